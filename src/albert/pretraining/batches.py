"""Pre-training batches and loss: micro-batches over ranks, mixtures of corpora, masked tokens plus sentence order."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Int, Int64
from torch import Tensor, nn
from torch.nn import functional

from albert.model.packing import PackedSequences, pack_run
from albert.pretraining.sampling import PretrainingSamples, Sample, Samples
from albert.pretraining.segments import NO_LABEL
from albert.runtime.errors import InvalidConfiguration
from albert.text.shards import TokenCorpus
from albert.training.update import Batch, Sums, equal_parts

# --------------------------------------------------------------------------------------------------------------------
# Several corpora as one stream of samples, by weight (paper Table 7: additional data).
#
# Which corpus sample i of the mixture comes from is arithmetic: of the first i samples, a corpus with the share w has
# floor(i·w), give or take one. Within a corpus samples come in its own shuffled order, so nothing is repeated before
# its epoch is over, and the mixture is a pure function of i like each of its parts.

SHARE_UNITS = 1_000_000
"""Shares are rounded to millionths."""


@runtime_checkable
class SampleSource(Protocol):
    """Samples by number."""

    per_epoch: int
    preferred_batch: int

    def batch(self, numbers: np.ndarray) -> Samples:
        """Many samples at once, the same as one by one."""
        ...

    def lengths(self, numbers: np.ndarray) -> np.ndarray:
        """Tokens of samples, without making them."""
        ...


class MixedSamples:
    """Samples of several corpora.

    Args:
        weights: how often each is drawn from, relative to the others; empty: by their sizes.

    Raises:
        InvalidConfiguration: not one weight above 0 for each corpus.
    """

    def __init__(self, parts: Sequence[PretrainingSamples], weights: Sequence[float] = ()) -> None:
        if weights and (len(weights) != len(parts) or not all(weight > 0 for weight in weights)):
            shown = " ".join(map(str, weights))
            why = f"is {shown}, {len(parts)} corpora need as many weights above 0"
            raise InvalidConfiguration("mixture", why)
        shares = np.array(weights if weights else [part.per_epoch for part in parts], dtype=np.float64)
        self._parts = parts
        self._shares = np.maximum(1, np.rint(SHARE_UNITS * shares / shares.sum())).astype(np.int64).tolist()
        self.per_epoch = sum(part.per_epoch for part in parts)
        self.preferred_batch = min(part.preferred_batch for part in parts)

    def batch(self, numbers: Int64[np.ndarray, " samples"]) -> Samples:
        """Many samples at once, in the order of their numbers."""
        corpora, within = self.locate(numbers)
        by_corpus = np.argsort(corpora, kind="stable")
        batches = [part.batch(within[corpora == i]) for i, part in enumerate(self._parts) if (corpora == i).any()]
        return Samples.concatenate(batches).take(np.argsort(by_corpus))

    def lengths(self, numbers: Int64[np.ndarray, " samples"]) -> Int64[np.ndarray, " samples"]:
        """Tokens of samples, without making them."""
        corpora, within = self.locate(numbers)
        lengths = np.empty_like(numbers)
        for corpus, part in enumerate(self._parts):
            lengths[corpora == corpus] = part.lengths(within[corpora == corpus])
        return lengths

    def locate(
        self, numbers: Int64[np.ndarray, " samples"]
    ) -> tuple[Int64[np.ndarray, " samples"], Int64[np.ndarray, " samples"]]:
        """The corpus of each sample, and its number within that corpus."""
        corpora = np.zeros_like(numbers)
        within = numbers.copy()
        pending = np.arange(len(numbers))
        for corpus, share in enumerate(self._shares[:-1]):
            # This corpus gets its share of the samples left by earlier ones, evenly spaced.
            total = sum(self._shares[corpus:])
            before = _count_before(share, total, within[pending])
            selected = _count_before(share, total, within[pending] + 1) > before
            corpora[pending[selected]] = corpus
            within[pending] = np.where(selected, before, within[pending] - before)
            pending = pending[~selected]
            corpora[pending] = corpus + 1
        return corpora, within


def _count_before(share: int, total: int, numbers: np.ndarray) -> np.ndarray:
    """floor(numbers · share / total), in two steps to avoid overflow: samples of a corpus among the first ones."""
    quotient, rest = np.divmod(numbers, total)
    return quotient * share + rest * share // total


def open_corpora(paths: Sequence[Path], verify: bool) -> list[TokenCorpus]:
    """The training splits of prepared corpora.

    Raises:
        InvalidConfiguration: they have different tokenizers, or one is named twice.
        MissingInput, DamagedData: see `TokenCorpus.open`.
    """
    if len({path.resolve() for path in paths}) < len(paths):
        raise InvalidConfiguration("data", "names a corpus twice", "give it a larger weight instead")
    corpora = [TokenCorpus.open(path, "train", verify=verify) for path in paths]
    for corpus in corpora[1:]:
        if corpus.tokenizer_fingerprint != corpora[0].tokenizer_fingerprint:
            why = f"was prepared with another tokenizer than {corpora[0].directory}"
            raise InvalidConfiguration(corpus.directory, why, "prepare both with the same one")
    return corpora


@dataclass(frozen=True)
class PretrainingBatch:
    """Masked sequences with their labels."""

    packed: PackedSequences
    masked_positions: Int[Tensor, " masked"]
    """Indices into the concatenated tokens."""
    masked_labels: Int[Tensor, " masked"]
    order_labels: Int[Tensor, " sequences"]
    counts: Mapping[str, int]

    @property
    def n_tokens(self) -> int:
        """Tokens that pass through the model."""
        return self.packed.n_tokens

    @property
    def lengths(self) -> tuple[int, ...]:
        """Tokens of each sequence."""
        return self.packed.lengths

    def to(self, device: torch.device) -> "PretrainingBatch":
        """The same batch on a device."""
        return PretrainingBatch(
            self.packed.to(device),
            self.masked_positions.to(device, non_blocking=True),
            self.masked_labels.to(device, non_blocking=True),
            self.order_labels.to(device, non_blocking=True),
            self.counts,
        )


def collate(samples: Sequence[Sample]) -> PretrainingBatch:
    """Samples as a micro-batch."""
    return batch_of(Samples.of(samples))


def batch_of(samples: Samples) -> PretrainingBatch:
    """A batch of samples as tensors."""
    return PretrainingBatch(
        packed=pack_run(samples.token_ids, samples.token_type_ids, samples.lengths),
        masked_positions=torch.from_numpy(samples.masked_positions),
        masked_labels=torch.from_numpy(samples.masked_labels),
        order_labels=torch.from_numpy(samples.order_labels),
        counts=samples.counts,
    )


class PretrainingBatches:
    """Batches by step: step t has samples t·B to (t+1)·B − 1, which the ranks take in turn.

    Args:
        batch_size: B, sequences over all ranks and micro-batches.
        workers: threads that compute at the same time; every micro-batch is split into as many parts, of about equal
            numbers of tokens.
    """

    def __init__(
        self,
        samples: SampleSource,
        batch_size: int,
        micro_batch_size: int,
        workers: int = 1,
    ) -> None:
        self._samples = samples
        self._workers = workers
        self._batch_size = batch_size
        self._micro_batch_size = micro_batch_size

    def micro_batches(self, step: int, rank: int, world_size: int) -> Sequence[PretrainingBatch]:
        """The samples of one rank in a step."""
        first = step * self._batch_size
        numbers = np.arange(first + rank, first + self._batch_size, world_size)
        return list(micro_batches(self._samples, numbers, self._micro_batch_size, self._workers))


def micro_batches(
    samples: SampleSource, numbers: np.ndarray, micro_batch_size: int, parts: int = 1
) -> Iterator[PretrainingBatch]:
    """Samples in micro-batches, each split into parts of about equal numbers of tokens."""
    at_once = max(1, samples.preferred_batch // micro_batch_size) * micro_batch_size
    for begin in range(0, len(numbers), at_once):
        batch = samples.batch(numbers[begin : begin + at_once])
        for i in range(0, len(batch.lengths), micro_batch_size):
            for part in equal_parts(batch.lengths[i : i + micro_batch_size], parts):
                yield batch_of(batch.part(i + part.start, i + part.stop))


# --------------------------------------------------------------------------------------------------------------------
# The pre-training loss: masked tokens plus sentence order, with the number of correct answers (paper §3.1).


def pretraining_objective(model: nn.Module, batch: Batch, hits: list[np.ndarray] | None = None) -> Sums:
    """Sums of both cross-entropies, in float32, over a micro-batch.

    Args:
        hits: a list to which bool [masked] is appended: which masked tokens are predicted correctly.
    """
    assert isinstance(batch, PretrainingBatch)
    output = model(batch.packed, batch.masked_positions, batch.masked_labels)
    if hits is not None:
        hits.append(output.masked_tokens_correct.cpu().numpy())
    order = output.sentence_order.float()
    return Sums(
        losses={
            "masked_tokens": output.masked_tokens.sum(),
            "sentence_order": functional.cross_entropy(
                order, batch.order_labels, reduction="sum", ignore_index=NO_LABEL
            ),
        },
        correct={
            "masked_tokens": output.masked_tokens_correct.sum(),
            "sentence_order": (order.argmax(-1) == batch.order_labels).sum(),
        },
    )
