"""Batches by step, made in this process or in data loading processes, and copied to a GPU ahead of time.

Each tensor received from a worker process holds a file descriptor, and a step may have thousands of tensors: they are
sent as one flat tensor of each type."""

import math
import signal
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from albert.runtime.environment import Ranks
from albert.training.run_folder import STOPPING_SIGNALS
from albert.training.update import Batch, BatchSource


@dataclass(frozen=True)
class _Piece:
    """A tensor of a batch, as a slice of a flat tensor."""

    dtype: torch.dtype
    first: int
    shape: tuple[int, ...]


@dataclass(frozen=True)
class _Parts:
    """A dataclass split into its fields."""

    kind: type
    fields: dict[str, Any]


@dataclass(frozen=True)
class JoinedBatches:
    """The micro-batches of a step with all tensors of one dtype in a single flat tensor, for fast transfer."""

    pieces: tuple[Any, ...]
    """The batches with a `_Piece` in place of each tensor."""
    flat: Mapping[torch.dtype, Tensor]

    @classmethod
    def of(cls, batches: Sequence[Batch]) -> "JoinedBatches":
        """Join micro-batches, which are dataclasses of tensors."""
        rows: dict[torch.dtype, list[Tensor]] = {}
        lengths: dict[torch.dtype, int] = {}

        def put(tensor: Tensor) -> _Piece:
            first = lengths.get(tensor.dtype, 0)
            lengths[tensor.dtype] = first + tensor.numel()
            rows.setdefault(tensor.dtype, []).append(tensor.reshape(-1))
            return _Piece(tensor.dtype, first, tuple(tensor.shape))

        pieces = _split(tuple(batches), put)
        return cls(pieces, {dtype: torch.cat(tensors) for dtype, tensors in rows.items()})

    def batches(self) -> Sequence[Batch]:
        """The micro-batches, whose tensors are views."""
        return _join(self.pieces, self.flat)


def _split(value: Any, put: Callable[[Tensor], _Piece]) -> Any:
    """A tree of tuples and dataclasses with a `_Piece` for each tensor and a `_Parts` for each dataclass."""
    if isinstance(value, Tensor):
        return put(value)
    if type(value) is tuple:
        return tuple(_split(item, put) for item in value)
    if is_dataclass(value) and not isinstance(value, type):
        return _Parts(type(value), {f.name: _split(getattr(value, f.name), put) for f in fields(value)})
    return value


def _join(value: Any, flat: Mapping[torch.dtype, Tensor]) -> Any:
    if isinstance(value, _Piece):
        return flat[value.dtype][value.first : value.first + math.prod(value.shape)].view(value.shape)
    if type(value) is tuple:
        return tuple(_join(item, flat) for item in value)
    if isinstance(value, _Parts):
        return value.kind(**{name: _join(item, flat) for name, item in value.fields.items()})
    return value


CPU = torch.device("cpu")


def load_batches(
    source: BatchSource, ranks: Ranks, numbers: range, workers: int, device: torch.device = CPU
) -> Iterator[Sequence[Batch]]:
    """Yield this rank's micro-batches of each step.

    Args:
        numbers: batch numbers, in this order.
        workers: data loading processes; 0: batches are made in this process on demand.
        device: to a GPU, each batch is copied while the previous one is computed.
    """
    loader = DataLoader(
        _BatchDataset(source, ranks),
        batch_size=None,
        sampler=numbers,
        num_workers=workers,
        collate_fn=JoinedBatches.of if workers or device.type == "cuda" else tuple,
        generator=torch.Generator(),  # or a draw from the global generator would shift every later one
    )
    with _block_signals_in_workers():
        steps = iter(loader)  # starts the workers
    for step in steps if device.type != "cuda" else _prefetch(steps, device):
        yield step.batches() if isinstance(step, JoinedBatches) else step


def _prefetch(steps: Iterable[JoinedBatches], device: torch.device) -> Iterator[JoinedBatches]:
    """Copy each step to the GPU, from pinned memory on a separate stream, while the previous step is computed."""
    stream = torch.cuda.Stream(device)
    ready = None
    for step in steps:
        with torch.cuda.stream(stream):
            flat = {dtype: rows.pin_memory().to(device, non_blocking=True) for dtype, rows in step.flat.items()}
        copied = torch.cuda.Event()
        copied.record(stream)
        if ready is not None:
            yield _after(*ready)
        ready = replace(step, flat=flat), copied
    if ready is not None:
        yield _after(*ready)


def _after(step: JoinedBatches, copied: torch.cuda.Event) -> JoinedBatches:
    """Make the current stream wait for the copy of a step, and keep its memory until it was read."""
    current = torch.cuda.current_stream()
    current.wait_event(copied)
    for rows in step.flat.values():
        rows.record_stream(current)
    return step


class _BatchDataset(Dataset[Sequence[Batch]]):
    """Map-style dataset of batches by number."""

    def __init__(self, source: BatchSource, ranks: Ranks) -> None:
        self._source = source
        self._ranks = ranks

    def __getitem__(self, number: int) -> Sequence[Batch]:
        return self._source.micro_batches(number, self._ranks.rank, self._ranks.size)


@contextmanager
def _block_signals_in_workers() -> Iterator[None]:
    """Processes started in the block ignore `STOPPING_SIGNALS`; this process receives them after the block.

    Schedulers often signal all processes of a job; without its workers the parent could not finish its last step.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, STOPPING_SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
