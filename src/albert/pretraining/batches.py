"""Pre-training batches and loss: micro-batches over ranks, mixtures of corpora, masked tokens plus sentence order."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float, Int, Int64
from torch import Tensor, nn
from torch.nn import functional

from albert.model.packing import PackedSequences, pack_run
from albert.pretraining.recipe import ALL_ALIKE, HardExamplesRecipe
from albert.pretraining.sampling import PretrainingSamples, Sample, Samples
from albert.pretraining.segments import NO_LABEL
from albert.runtime.errors import InvalidConfiguration
from albert.text.shards import TokenCorpus
from albert.training.update import Batch, Sums, equal_parts

# --------------------------------------------------------------------------------------------------------------------
# Several corpora as one stream of samples, by weight (paper Table 7: additional data).
#
# Sample i of the mixture is a sample of one corpus, and which one is arithmetic: of the first i samples, a corpus
# with the share w has floor(i·w), give or take one. Within a corpus samples come in its own shuffled order, so
# nothing is repeated before its epoch is over, and the mixture is a pure function of i like each of its parts.

GRAIN = 1_000_000
"""Shares are rounded to millionths."""


@runtime_checkable
class SampleSource(Protocol):
    """Samples by number."""

    per_epoch: int
    preferred_batch: int

    def batch(self, numbers: np.ndarray) -> Samples:
        """Many samples at once, each as it would be alone."""
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
        self._shares = np.maximum(1, np.rint(GRAIN * shares / shares.sum())).astype(np.int64).tolist()
        self.per_epoch = sum(part.per_epoch for part in parts)
        self.preferred_batch = min(part.preferred_batch for part in parts)

    def batch(self, numbers: Int64[np.ndarray, " samples"]) -> Samples:
        """Many samples at once, in the order of their numbers, each as it would be alone."""
        corpora, within = self.places(numbers)
        found = [(np.flatnonzero(corpora == number), part) for number, part in enumerate(self._parts)]
        made = [part.batch(within[which]) for which, part in found if len(which)]
        return _in_order(made, np.concatenate([which for which, _ in found]))

    def lengths(self, numbers: Int64[np.ndarray, " samples"]) -> Int64[np.ndarray, " samples"]:
        """Tokens of samples, without making them."""
        corpora, within = self.places(numbers)
        lengths = np.empty_like(numbers)
        for corpus, part in enumerate(self._parts):
            lengths[corpora == corpus] = part.lengths(within[corpora == corpus])
        return lengths

    def places(
        self, numbers: Int64[np.ndarray, " samples"]
    ) -> tuple[Int64[np.ndarray, " samples"], Int64[np.ndarray, " samples"]]:
        """Of each sample, its corpus and its number there."""
        corpora = np.zeros_like(numbers)
        within = numbers.copy()
        waiting = np.arange(len(numbers))
        for corpus, share in enumerate(self._shares[:-1]):
            # Of those that no earlier corpus has taken, this one takes its share, evenly spaced.
            taken = partial(_taken, share, sum(self._shares[corpus:]))
            before = taken(within[waiting])
            own = taken(within[waiting] + 1) > before
            corpora[waiting[own]] = corpus
            within[waiting] = np.where(own, before, within[waiting] - before)
            waiting = waiting[~own]
            corpora[waiting] = corpus + 1
        return corpora, within


def open_corpora(places: Sequence[Path], verify: bool) -> list[TokenCorpus]:
    """The training splits of prepared corpora.

    Raises:
        InvalidConfiguration: their tokens are not those of one tokenizer, or one is named twice.
        MissingInput, DamagedData: see `TokenCorpus.open`.
    """
    if len({place.resolve() for place in places}) < len(places):
        raise InvalidConfiguration("data", "names a corpus twice", "give it a larger weight instead")
    corpora = [TokenCorpus.open(place, "train", verify=verify) for place in places]
    for other in corpora[1:]:
        if other.tokenizer_fingerprint != corpora[0].tokenizer_fingerprint:
            why = f"was prepared with another tokenizer than {corpora[0].directory}"
            raise InvalidConfiguration(other.directory, why, "prepare both with the same one")
    return corpora


def _taken(share: int, of: int, numbers: np.ndarray) -> np.ndarray:
    """How many of the first `numbers` samples go to a corpus; in two steps, so that nothing overflows."""
    whole, rest = np.divmod(numbers, of)
    return whole * share + rest * share // of


def _in_order(made: Sequence[Samples], numbers: np.ndarray) -> Samples:
    """Batches joined, with sample k of the join at place numbers[k]."""
    order = np.argsort(numbers)
    lengths = np.concatenate([samples.lengths for samples in made])
    masks = np.concatenate([_masks_each(samples) for samples in made])
    starts = np.cumsum(lengths) - lengths
    tokens = _runs(starts[order], lengths[order])
    mask_starts = np.cumsum(masks) - masks
    chosen = _runs(mask_starts[order], masks[order])
    tokens_before = np.cumsum([0, *(len(samples.token_ids) for samples in made[:-1])])
    positions = np.concatenate([s.masked_positions + n for s, n in zip(made, tokens_before, strict=True)])
    moved = np.cumsum(lengths[order]) - lengths[order] - starts[order]
    return Samples(
        np.concatenate([samples.token_ids for samples in made])[tokens],
        np.concatenate([samples.token_type_ids for samples in made])[tokens],
        lengths[order],
        positions[chosen] + np.repeat(moved, masks[order]),
        np.concatenate([samples.masked_labels for samples in made])[chosen],
        np.concatenate([samples.order_labels for samples in made])[order],
    )


def _masks_each(samples: Samples) -> np.ndarray:
    """How many masked tokens each sequence has."""
    ends = np.cumsum(samples.lengths)
    return np.diff(np.searchsorted(samples.masked_positions, ends), prepend=0)


def _runs(starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """start, start + 1, ... of every run, one after the other."""
    before = np.cumsum(lengths) - lengths
    return np.arange(int(lengths.sum())) + np.repeat(starts - before, lengths)


@dataclass(frozen=True)
class PretrainingBatch:
    """Masked sequences, and what is to be predicted of them."""

    packed: PackedSequences
    masked_positions: Int[Tensor, " masked"]
    """Indices into the run of tokens."""
    masked_labels: Int[Tensor, " masked"]
    order_labels: Int[Tensor, " sequences"]
    counts: Mapping[str, int]
    focus: float = 0.0
    """How much more hard masked tokens count: see `hard_examples`."""

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
            self.focus,
        )


def collate(samples: Sequence[Sample]) -> PretrainingBatch:
    """Put samples one after the other."""
    return batch_of(Samples.joined(samples))


def batch_of(samples: Samples) -> PretrainingBatch:
    """Samples as a micro-batch."""
    return PretrainingBatch(
        packed=pack_run(samples.token_ids, samples.token_type_ids, samples.lengths),
        masked_positions=torch.from_numpy(samples.masked_positions),
        masked_labels=torch.from_numpy(samples.masked_labels),
        order_labels=torch.from_numpy(samples.order_labels),
        counts={
            "masked_tokens": len(samples.masked_labels),
            "sentence_order": int(np.count_nonzero(samples.order_labels != NO_LABEL)),
        },
    )


class PretrainingBatches:
    """Batches by step: step t holds samples t·B to (t+1)·B − 1, dealt out to the ranks in turn.

    Args:
        batch_size: B, sequences over all ranks and micro-batches.
        workers: that compute at the same time; each gets a part of every micro-batch, with about as many tokens.
    """

    def __init__(
        self,
        samples: SampleSource,
        batch_size: int,
        micro_batch_size: int,
        hard_examples: HardExamplesRecipe = ALL_ALIKE,
        workers: int = 1,
    ) -> None:
        self._samples, self._hard_examples, self._workers = samples, hard_examples, workers
        self._batch_size, self._micro_batch_size = batch_size, micro_batch_size

    def micro_batches(self, step: int, rank: int, world_size: int) -> Sequence[PretrainingBatch]:
        """One rank's share of a step."""
        first = step * self._batch_size
        numbers = np.arange(first + rank, first + self._batch_size, world_size)
        focus = self._hard_examples.focus_of(step)
        made = micro_batches(self._samples, numbers, self._micro_batch_size, self._workers)
        return [replace(batch, focus=focus) for batch in made]


def micro_batches(
    samples: SampleSource, numbers: np.ndarray, micro_batch_size: int, parts: int = 1
) -> Iterator[PretrainingBatch]:
    """Samples in micro-batches, each cut into parts of about as many tokens."""
    at_once = max(1, samples.preferred_batch // micro_batch_size) * micro_batch_size
    for begin in range(0, len(numbers), at_once):
        made = samples.batch(numbers[begin : begin + at_once])
        for i in range(0, len(made.lengths), micro_batch_size):
            for part in equal_parts(made.lengths[i : i + micro_batch_size], parts):
                yield batch_of(made.part(i + part.start, i + part.stop))


# --------------------------------------------------------------------------------------------------------------------
# The pre-training loss: masked tokens plus sentence order, and what is answered right of each (paper §3.1).


def pretraining_objective(model: nn.Module, batch: Batch, right: list[np.ndarray] | None = None) -> Sums:
    """Sums of both cross-entropies, in float32, over a micro-batch.

    Args:
        right: is given, bool [masked], which masked tokens are answered right.
    """
    assert isinstance(batch, PretrainingBatch)
    found = model(batch.packed, batch.masked_positions, batch.masked_labels)
    if right is not None:
        right.append(found.masked_tokens_correct.cpu().numpy())
    each, order = found.masked_tokens, found.sentence_order.float()
    return Sums(
        losses={
            "masked_tokens": (hardness(each, batch.focus) * each).sum() if batch.focus else each.sum(),
            "sentence_order": functional.cross_entropy(
                order, batch.order_labels, reduction="sum", ignore_index=NO_LABEL
            ),
        },
        correct={
            "masked_tokens": found.masked_tokens_correct.sum(),
            "sentence_order": (order.argmax(-1) == batch.order_labels).sum(),
        },
    )


def hardness(losses: Float[Tensor, " items"], focus: float | Float[Tensor, "1"]) -> Float[Tensor, " items"]:
    """(1 − p)^focus of each item, without a gradient.

    Args:
        losses: −log p.
    """
    return (-torch.expm1(-losses.detach())).pow(focus)
