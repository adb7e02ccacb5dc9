"""Held-out evaluation of pre-training: masked tokens and sentence tasks, of one run or of several models (Table 5).

Every accuracy stands beside what a constant answer would score."""

import contextlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from albert.checkpoints.hub import find_model
from albert.checkpoints.huggingface import kind_of, sentence_objective
from albert.checkpoints.model_directory import CONFIG_NAME, open_model, read_config, tokenizer_of
from albert.pretraining.batches import (
    MixedSamples,
    PretrainingBatch,
    SampleSource,
    micro_batches,
    pretraining_objective,
)
from albert.pretraining.masking import MaskingRecipe
from albert.pretraining.recipe import PretrainingRecipe
from albert.pretraining.sampling import PretrainingSamples, SequenceRecipe
from albert.pretraining.segments import SentenceObjective
from albert.runtime.devices import autocast, parallel_map, pick_device
from albert.runtime.environment import Precision
from albert.runtime.errors import InvalidConfiguration, MissingInput
from albert.runtime.progress import progress
from albert.text.shards import TokenCorpus
from albert.training.run_folder import RunFolder
from albert.training.update import Sums

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

    Attributes:
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
        """
        sums: dict[str, float] = {}
        right: list[np.ndarray] = []
        with progress("Evaluating", len(self.batches), "batches", quiet=quiet) as bar:

            def compute(batch: PretrainingBatch) -> tuple[Sums, list[np.ndarray]]:
                hits: list[np.ndarray] = []
                with torch.inference_mode(), autocast(device, precision):
                    found = pretraining_objective(model, batch.to(device), hits)
                bar.advance()
                return found, hits

            by_workers = device.type == "cpu" and len(self.batches) > 1
            each = parallel_map(compute, self.batches) if by_workers else [compute(batch) for batch in self.batches]
        for batch, (found, hits) in zip(self.batches, each, strict=True):
            right += hits
            for name in batch.counts:
                for kind, values in (("loss", found.losses), ("accuracy", found.correct)):
                    key = f"{name}_{kind}"
                    sums[key] = sums.get(key, 0.0) + float(values[name])
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
        objectives: which; "none" adds nothing to the masked tokens.
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


# --------------------------------------------------------------------------------------------------------------------
# What pre-trained models know: each asked for masked tokens, next sentences and sentence order (paper §4.6, Table
# 5).
#
# The head that was trained to tell one thing is asked for the other, too: that is how the paper finds that NSP
# brings nothing to SOP. All models see the same held-out texts with the same masks: these depend on the corpus, the
# tokenizer, the length of sequences and the masking alone.

AS_IN_THE_PAPER = MaskingRecipe()
LONGEST = 512
"""Tokens of a sequence where neither the model nor the user says how many."""
NORMAL_95 = 1.959964
"""Standard deviations to either side that hold 95 % of a normal distribution."""


@dataclass(frozen=True)
class Score:
    """What a model scores on one test."""

    accuracy: float
    loss: float
    """Nats an item."""
    baseline: float
    """The accuracy of always giving the most frequent answer."""
    count: int
    """Items."""

    @property
    def interval(self) -> tuple[float, float]:
        """Wilson's 95 % interval of the accuracy (1927), as if the items were independent of each other."""
        square = NORMAL_95**2 / self.count
        middle = (self.accuracy + square / 2) / (1 + square)
        half = (self.accuracy * (1 - self.accuracy) * square + square**2 / 4) ** 0.5 / (1 + square)
        return middle - half, middle + half

    def to_json(self) -> dict[str, float]:
        """The figures by name."""
        low, high = self.interval
        return {
            "accuracy": self.accuracy,
            "low": low,
            "high": high,
            "baseline": self.baseline,
            "loss": self.loss,
            "count": self.count,
        }


@dataclass(frozen=True)
class ScoredModel:
    """A model and its scores."""

    model: str
    """As it was named."""
    learnt: str
    """What its sentence head was trained on; "none": it has none."""
    scores: Mapping[str, Score]
    """By test; without a sentence head that of masked tokens alone."""
    notes: tuple[str, ...] = ()
    """What is doubtful about it."""


@dataclass(frozen=True)
class CrossEvaluation:
    """Models and tests."""

    models: tuple[ScoredModel, ...]
    counts: Mapping[str, int]
    """Items by test."""
    sequences: int
    max_length: int
    """Most tokens of a sequence."""
    max_ngram: int
    """Most words that were masked together."""

    def to_json(self) -> dict[str, Any]:
        """Everything, as plain values."""
        models = [
            {
                "model": one.model,
                "sentence_objective": one.learnt,
                "scores": {test: score.to_json() for test, score in one.scores.items()},
            }
            for one in self.models
        ]
        about = {"sequences": self.sequences, "max_length": self.max_length, "max_ngram": self.max_ngram}
        return {**about, "models": models}


@dataclass(frozen=True)
class _Candidate:
    """A model that can be asked."""

    name: str
    directory: Path
    learnt: str
    longest: int
    """Tokens that it was trained with, as far as is known."""
    positions: int
    notes: tuple[str, ...] = field(default=())


def evaluate_pretraining(
    models: Sequence[str | Path],
    corpus_directory: Path,
    *,
    objectives: Sequence[SentenceObjective] = ("nsp", "sop"),
    max_length: int | None = None,
    keep_pairs: bool = False,
    masking: MaskingRecipe = AS_IN_THE_PAPER,
    limit: int = 2000,
    revision: str | None = None,
    device: str = "auto",
    precision: Precision = "fp32",
    overrides: Mapping[str, Any] | None = None,
    prepare: Callable[[nn.Module], None] | None = None,
) -> CrossEvaluation:
    """Ask pre-trained models on the held-out split of a prepared corpus; every one is opened before the first is asked.

    Args:
        models: model directories, runs, or Hub ids, with a masked-token head; of a run under way its newest checkpoint.
        objectives: which sentence tasks to ask, whatever the models were trained on; "none": masked tokens alone.
        max_length: most tokens of a sequence; None: as many as all of them were trained with.
        keep_pairs: as of `SequenceRecipe`: of short sequences many more have an order to tell.
        prepare: what is done to each model, on its device, before it works.

    Raises:
        InvalidConfiguration: the corpus was prepared with another tokenizer, the sequences are too long, none are
            asked for, or a model lacks the masked-token head.
        MissingInput, Unavailable, DamagedData: see `open_model` and `TokenCorpus.open`.
    """
    if limit < 1:
        raise InvalidConfiguration("sequences", f"is {limit}, at least 1 sequence is needed")
    place = pick_device(device)
    corpus = TokenCorpus.open(corpus_directory, "held_out")
    asked = [_candidate(str(model), corpus, revision, overrides) for model in models]
    length = min(one.longest for one in asked) if max_length is None else max_length
    for one in asked:
        if length > one.positions:
            raise InvalidConfiguration("max_length", f"is {length}, {one.name} has {one.positions} positions")

    def samples(objective: SentenceObjective) -> PretrainingSamples:
        sequences = SequenceRecipe(max_length=length, objective=objective, keep_pairs=keep_pairs)
        return PretrainingSamples(corpus, sequences, masking, EVALUATION_SEED)

    tests = HeldOutTests(samples, objectives, limit)
    scored = []
    for one in asked:
        model = open_model(one.directory, "pretraining", overrides=overrides, verify=False).model.to(place)
        if prepare is not None:
            prepare(model)
        figures = tests.evaluate(model, place, precision, sentence_head=one.learnt != "none")
        scores = {
            test: Score(figures[f"{test}_accuracy"], figures[f"{test}_loss"], figures[f"{test}_baseline"], count)
            for test, count in tests.counts.items()
            if f"{test}_accuracy" in figures
        }
        scored.append(ScoredModel(one.name, one.learnt, scores, one.notes))
    n_sequences = tests.tests[MASKED_TOKENS].n_sequences
    return CrossEvaluation(tuple(scored), tests.counts, n_sequences, length, masking.max_ngram)


def _candidate(name: str, corpus: TokenCorpus, revision: str | None, overrides: Mapping[str, Any] | None) -> _Candidate:
    """Open a model, see that it can be asked, and let it go: one is in memory at a time."""
    run = RunFolder(Path(name))
    newest = None if (run.model_path / CONFIG_NAME).is_file() or revision else run.newest_checkpoint()
    directory = newest[1] if newest else find_model(name, revision)
    note = "{} is under way: what is scored is its checkpoint of step {:,}"
    notes = (note.format(name, newest[0]),) if newest else ()
    _, extra = read_config(directory)
    if kind_of(extra) not in ("pretraining", "masked_lm"):
        named = (extra.get("architectures") or ["AlbertModel"])[0]
        why = f"has no head for the tasks of pre-training, it is an {named}"
        raise InvalidConfiguration(name, why, "give a model of `albert pretrain`")
    opened = open_model(directory, "pretraining", overrides=overrides)
    opened.loading_report.warn_if_unverified()
    random = opened.loading_report.newly_initialised
    if any(part.startswith("predictions.") for part in random):
        raise InvalidConfiguration(name, "has no masked-token head", "give a pre-trained model")
    check_tokenizer(corpus, tokenizer_of(opened).fingerprint, name)
    positions, trained = opened.config.max_position_embeddings, extra.get("max_sequence_length")
    longest = trained if isinstance(trained, int) else min(LONGEST, positions)
    learnt = "none" if random else sentence_objective(extra)
    return _Candidate(name, directory, learnt, longest, positions, (*notes, *opened.loading_report.notes))


def check_tokenizer(corpus: TokenCorpus, fingerprint: str, subject: str) -> None:
    """Refuse a corpus whose tokens mean something else.

    Raises:
        InvalidConfiguration: the fingerprints differ.
    """
    if corpus.tokenizer_fingerprint != fingerprint:
        theirs = corpus.tokenizer_fingerprint[:12]
        why = f"has tokenizer {fingerprint[:12]}, {corpus.directory} was prepared with {theirs}"
        raise InvalidConfiguration(subject, why, "prepare the corpus again with the model's tokenizer")


# --------------------------------------------------------------------------------------------------------------------
# The samples that a recipe asks of its corpora: what is learnt from, and what is held out to judge by.


def training_samples(recipe: PretrainingRecipe, corpora: Sequence[TokenCorpus]) -> SampleSource:
    """What a run learns from, of all corpora by the recipe's weights.

    Raises:
        InvalidConfiguration: the weights do not fit the corpora.
    """
    return _samples(recipe, corpora, recipe.seed)


def held_out_samples(recipe: PretrainingRecipe, corpora: Sequence[TokenCorpus]) -> HeldOutSamples | HeldOutTests | None:
    """What a run is judged by, of all corpora that have held-out documents, by their sizes; None where none has.

    The paper's share of tokens is masked, whatever the recipe masks in training, so that runs can be compared.

    Raises:
        DamagedData: what is held out is not as it was written.
    """
    found = []
    for corpus in corpora:
        with contextlib.suppress(MissingInput):
            found.append(TokenCorpus.open(corpus.directory, "held_out", verify=False))
    if not found:
        return None

    def samples(objective: SentenceObjective) -> SampleSource:
        sequences = replace(recipe.sequences, objective=objective, neighbours_probability=0.0)
        masking = replace(recipe.masking, share=AS_IN_THE_PAPER.share)
        plain = replace(recipe, mixture=(), sequences=sequences, masking=masking, evaluation_objectives=())
        return _samples(plain, found, EVALUATION_SEED)

    if recipe.evaluation_objectives:
        return HeldOutTests(samples, recipe.evaluation_objectives, recipe.evaluation_sequences)
    return HeldOutSamples(samples(recipe.sequences.objective), recipe.evaluation_sequences)


def _samples(recipe: PretrainingRecipe, corpora: Sequence[TokenCorpus], seed: int) -> SampleSource:
    parts = [PretrainingSamples(corpus, recipe.sequences, recipe.masking, seed) for corpus in corpora]
    if recipe.mixture or len(parts) > 1:
        return MixedSamples(parts, recipe.mixture)
    return parts[0]
