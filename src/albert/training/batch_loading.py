"""The batches of a run in their order, made ahead by worker processes where there are any."""

import signal
from collections.abc import Iterator, Sequence

import torch
from torch.utils.data import DataLoader, Dataset

from albert.runtime.world import World
from albert.training.objective import Batch, BatchSource


def load_batches(source: BatchSource, here: World, numbers: range, workers: int) -> Iterator[Sequence[Batch]]:
    """This rank's share of each batch.

    Args:
        source: batches by number.
        here: this process among all.
        numbers: which batches, in this order.
        workers: processes that make them; 0: this one, when a batch is asked for.
    """
    loader = DataLoader(
        _BatchDataset(source, here),
        batch_size=None,
        sampler=numbers,
        num_workers=workers,
        collate_fn=_as_is,
        worker_init_fn=_leave_signals_to_the_parent,
        generator=torch.Generator(),  # or a draw from the global generator would shift every later one
    )
    yield from loader


class _BatchDataset(Dataset[Sequence[Batch]]):
    """Batches by number, for the worker processes of a DataLoader."""

    def __init__(self, source: BatchSource, here: World) -> None:
        self._source, self._here = source, here

    def __getitem__(self, number: int) -> Sequence[Batch]:
        return self._source.micro_batches(number, self._here.rank, self._here.size)


def _leave_signals_to_the_parent(_: int) -> None:
    """Signals often go to all processes of a job; a worker that ended would keep the parent from its last step."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)


def _as_is(batches: Sequence[Batch]) -> Sequence[Batch]:
    return batches
