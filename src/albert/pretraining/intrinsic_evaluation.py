"""Masked-token and sentence accuracy on held-out text, beside what a constant answer would score."""

from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import nn

from albert.pretraining.batches import PretrainingBatch, micro_batches
from albert.pretraining.mixture import SampleSource
from albert.pretraining.objective import pretraining_objective
from albert.pretraining.sentence_order import SentenceObjective
from albert.runtime.devices import autocast
from albert.runtime.precisions import Precision
from albert.runtime.progress import progress

EVALUATION_SEED = 20190926
"""Held-out samples are the same for every model and every run; the date of the paper's first version."""

MASKED_TOKENS, SENTENCE_TASK = "masked_tokens", "sentence_order"
SENTENCE_TESTS: dict[SentenceObjective, str] = {
    "nsp": "next_sentence",
    "sop": "sentence_order",
    "sop-reference": "reference_order",
}
"""What the figures of each sentence objective are called."""


class HeldOutSamples:
    """The same held-out samples for every model: a fixed seed, in a fixed order.

    Args:
        samples: of the held-out split, drawn with `EVALUATION_SEED`.
        limit: most sequences; all of an epoch when there are fewer.
        batch_size: sequences at a time.

    Attributes:
        batches: the samples.
        counts: how many of them each term asks for.
    """

    def __init__(
        self,
        samples: SampleSource,
        limit: int,
        batch_size: int = 32,
    ) -> None:
        numbers = np.arange(min(limit, samples.per_epoch))
        self.batches: list[PretrainingBatch] = list(micro_batches(samples, numbers, batch_size))
        self.counts: Counter[str] = Counter()
        for batch in self.batches:
            self.counts.update(batch.counts)
        labels = np.concatenate([batch.masked_labels.numpy() for batch in self.batches])
        frequent = _most_frequent_half(labels)
        self._rare = [~np.isin(batch.masked_labels.numpy(), frequent) for batch in self.batches]
        self._repeated = [_seen_elsewhere(batch) for batch in self.batches]

    def evaluate(
        self, model: nn.Module, device: torch.device, precision: Precision, quiet: bool = False
    ) -> dict[str, float]:
        """Loss and accuracy of both objectives, and the accuracies of always giving the most frequent answer.

        Args:
            model: an `AlbertForPreTraining` in evaluation mode on `device`.
            device: where to compute.
            precision: of the matrix products.
            quiet: show no progress.
        """
        sums: dict[str, float] = {}
        with torch.inference_mode(), progress("Evaluating", len(self.batches), "batches", quiet=quiet) as bar:
            right: list[np.ndarray] = []
            for batch in self.batches:
                with autocast(device, precision):
                    found = pretraining_objective(model, batch.to(device), right)
                for name in batch.counts:
                    for kind, values in (("loss", found.losses), ("accuracy", found.correct)):
                        key = f"{name}_{kind}"
                        sums[key] = sums.get(key, 0.0) + float(values[name])
                bar.advance()
        counts = {key: self.counts[key.rsplit("_", 1)[0]] for key in sums}
        means = {key: total / counts[key] for key, total in sums.items() if counts[key]}
        return {**means, **self.baselines(), **self._repetition(right), "sequences": float(self.n_sequences)}

    def _repetition(self, right: Sequence[np.ndarray]) -> dict[str, float]:
        """Accuracy on rare masked tokens that can be seen elsewhere in their sequence, and on those that cannot.

        Rare is what is not among the most frequent tokens that make up half of all masked ones. The gap is what a model
        gains by matching words with each other.
        """
        kinds: dict[str, list[np.ndarray]] = {"repeated": [], "unrepeated": []}
        for hits, rare, repeated in zip(right, self._rare, self._repeated, strict=True):
            kinds["repeated"].append(hits[rare & repeated])
            kinds["unrepeated"].append(hits[rare & ~repeated])
        found = {kind: np.concatenate(hits) for kind, hits in kinds.items()}
        return {f"{MASKED_TOKENS}_{kind}_accuracy": float(hits.mean()) for kind, hits in found.items() if len(hits)}

    @property
    def n_sequences(self) -> int:
        """How many there are."""
        return sum(batch.packed.n_sequences for batch in self.batches)

    def baselines(self) -> dict[str, float]:
        """What the best constant answer scores on these very samples."""
        tokens = np.concatenate([batch.masked_labels.numpy() for batch in self.batches])
        orders = np.concatenate([batch.order_labels.numpy() for batch in self.batches])
        orders = orders[orders >= 0]
        found = ((MASKED_TOKENS, tokens), (SENTENCE_TASK, orders))
        return {f"{name}_baseline": float(np.bincount(some).max() / len(some)) for name, some in found if len(some)}


class HeldOutTests:
    """The same held-out texts, asked in several ways (paper Table 5): masked tokens in the text as it stands, and
    every sentence objective on its own pairs. One sentence head answers them all: 0 for what the text has, 1 else.

    Args:
        samples_of: the samples of an objective, of the held-out split, drawn with `EVALUATION_SEED`.
        objectives: which; "none" adds nothing to the masked tokens.
        limit, batch_size: as of `HeldOutSamples`.

    Attributes:
        tests: by what their figures are called.
    """

    def __init__(
        self,
        samples_of: Callable[[SentenceObjective], SampleSource],
        objectives: Sequence[SentenceObjective],
        limit: int,
        batch_size: int = 32,
    ) -> None:
        self.tests = {MASKED_TOKENS: HeldOutSamples(samples_of("none"), limit, batch_size)}
        for objective, test in SENTENCE_TESTS.items():
            if objective in objectives:
                self.tests[test] = HeldOutSamples(samples_of(objective), limit, batch_size)

    @property
    def counts(self) -> dict[str, int]:
        """Items of each test: masked tokens, or sequences of two segments."""
        return {test: samples.counts[_term(test)] for test, samples in self.tests.items()}

    def evaluate(
        self,
        model: nn.Module,
        device: torch.device,
        precision: Precision,
        quiet: bool = False,
        *,
        sentence_head: bool = True,
    ) -> dict[str, float]:
        """Loss, accuracy and constant answer of every test, as `masked_tokens_loss`, `next_sentence_accuracy`, ...

        Args:
            model, device, precision, quiet: as of `HeldOutSamples.evaluate`.
            sentence_head: whether the model has one; else it is asked for masked tokens alone.
        """
        found: dict[str, float] = {}
        for test, samples in self.tests.items():
            if sentence_head or test == MASKED_TOKENS:
                term, figures = _term(test), samples.evaluate(model, device, precision, quiet)
                found |= {key.replace(term, test): value for key, value in figures.items() if key.startswith(term)}
        return {**found, "sequences": float(self.tests[MASKED_TOKENS].n_sequences)}


def _term(test: str) -> str:
    """The term of the loss that a test is answered by."""
    return MASKED_TOKENS if test == MASKED_TOKENS else SENTENCE_TASK


def _most_frequent_half(labels: np.ndarray) -> np.ndarray:
    """The most frequent values that make up half of all."""
    values, counts = np.unique(labels, return_counts=True)
    order = np.argsort(-counts, kind="stable")
    share = np.cumsum(counts[order]) / max(1, len(labels))
    return values[order[: int(np.searchsorted(share, 0.5)) + 1]]


def _seen_elsewhere(batch: PretrainingBatch) -> np.ndarray:
    """Of every masked token, whether its sequence shows the same token at a place that is not asked for."""
    lengths = np.array(batch.packed.lengths)
    sequence = np.repeat(np.arange(len(lengths)), lengths)
    places, labels = batch.masked_positions.numpy(), batch.masked_labels.numpy()
    shown = np.ones(len(sequence), dtype=bool)
    shown[places] = False
    size = int(max(batch.packed.token_ids.max(), labels.max(initial=0))) + 1
    keys = sequence * size + batch.packed.token_ids.numpy()
    return np.isin(sequence[places] * size + labels, keys[shown])
