"""Held-out evaluation of pre-training: masked tokens and sentence objectives, of a run or of several models (Table 5).

Every accuracy comes with a baseline, the accuracy of the best constant prediction."""

import contextlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from albert.checkpoints.config_json import CONFIG_NAME, read_config, written_class
from albert.checkpoints.hub import find_model
from albert.checkpoints.huggingface import kind_of, sentence_objective
from albert.checkpoints.model_directory import open_model, tokenizer_of
from albert.checkpoints.warm_start import trained_length
from albert.pretraining.batches import PretrainingBatch, pretraining_objective
from albert.pretraining.sampling import PretrainingSamples, SampleSource, micro_batches, samples_of
from albert.recipes.pretraining import MaskingRecipe, PretrainingRecipe, SentenceObjective, SequenceRecipe
from albert.runtime.devices import autocast, parallel_map, pick_device
from albert.runtime.environment import Precision
from albert.runtime.errors import InvalidConfiguration, MissingInput
from albert.runtime.json_files import to_json
from albert.runtime.progress import progress
from albert.text.shards import TokenCorpus
from albert.training.run_folder import RunFolder
from albert.training.update import Sums

EVALUATION_SEED = 20190926
"""Held-out samples are the same for every model and every run; the date of the paper's first version."""

MASKED_TOKENS = "masked_tokens"
SENTENCE_ORDER = "sentence_order"
SENTENCE_TESTS: dict[SentenceObjective, str] = {
    "nsp": "next_sentence",
    "sop": "sentence_order",
}
"""The name of each sentence objective's figures."""


class HeldOutSamples:
    """The same held-out samples for every model: a fixed seed, in a fixed order.

    Attributes:
        counts: items of each loss term.
        n_sequences: number of samples.
    """

    def __init__(self, samples: SampleSource, limit: int, batch_size: int = 32) -> None:
        numbers = np.arange(min(limit, samples.per_epoch))
        self.batches: list[PretrainingBatch] = list(micro_batches(samples, numbers, batch_size))
        self.n_sequences = sum(batch.packed.n_sequences for batch in self.batches)
        self.counts: Counter[str] = Counter()
        for batch in self.batches:
            self.counts.update(batch.counts)
        labels = [batch.masked_labels.numpy() for batch in self.batches]
        every_label = np.concatenate(labels)
        values, counts = np.unique(every_label, return_counts=True)
        order = np.argsort(-counts, kind="stable")
        share = np.cumsum(counts[order]) / max(1, len(every_label))
        frequent = values[order[: int(np.searchsorted(share, 0.5)) + 1]]  # the values that make up half of all
        self._is_rare = [~np.isin(part, frequent) for part in labels]
        self._is_repeated = [_is_repeated(batch) for batch in self.batches]

    def evaluate(self, model: nn.Module, device: torch.device, precision: Precision) -> dict[str, float]:
        """Loss, accuracy, baseline and number of items of both objectives, as `masked_tokens_loss`,
        `sentence_order_count`, ...

        Args:
            model: an `AlbertForPreTraining` in evaluation mode on `device`.
        """
        with progress("Evaluating", len(self.batches), "batches") as bar:

            def compute(batch: PretrainingBatch) -> tuple[Sums, list[np.ndarray]]:
                hits: list[np.ndarray] = []
                with torch.inference_mode(), autocast(device, precision):
                    sums = pretraining_objective(model, batch.to(device), hits)
                bar.advance()
                return sums, hits

            in_threads = device.type == "cpu" and len(self.batches) > 1
            results = parallel_map(compute, self.batches) if in_threads else [compute(b) for b in self.batches]
        figures: dict[str, float] = {}
        for name, count in self.counts.items():
            if count:
                figures[f"{name}_loss"] = sum(float(sums.losses[name]) for sums, _ in results) / count
                figures[f"{name}_count"] = float(count)
                figures[f"{name}_accuracy"] = sum(float(sums.correct[name]) for sums, _ in results) / count
        hits = [array for _, arrays in results for array in arrays]
        return {**figures, **self.baselines(), **self.repetition(hits), "sequences": float(self.n_sequences)}

    def repetition(self, hits: Sequence[np.ndarray]) -> dict[str, float]:
        """Accuracy on rare masked tokens that occur elsewhere in their sequence, and on those that do not.

        Rare tokens are not among the most frequent ones that make up half of all masked tokens. The difference shows
        how much a model gains by matching words with each other.

        Args:
            hits: bool [masked] for each batch, which masked tokens are predicted correctly.
        """
        rare = np.concatenate(self._is_rare)
        repeated = np.concatenate(self._is_repeated)
        correct = np.concatenate(hits)
        groups = {"repeated": correct[rare & repeated], "unrepeated": correct[rare & ~repeated]}
        return {f"{MASKED_TOKENS}_{name}_accuracy": float(group.mean()) for name, group in groups.items() if len(group)}

    def baselines(self) -> dict[str, float]:
        """The accuracy of the best constant prediction on these samples."""
        tokens = np.concatenate([batch.masked_labels.numpy() for batch in self.batches])
        orders = np.concatenate([batch.order_labels.numpy() for batch in self.batches])
        labels = {MASKED_TOKENS: tokens, SENTENCE_ORDER: orders[orders >= 0]}
        return {f"{name}_baseline": float(np.bincount(of).max() / len(of)) for name, of in labels.items() if len(of)}


class HeldOutTests:
    """Several tests on the same held-out texts (paper Table 5).

    Masked tokens are predicted in the unchanged text, and every sentence objective on its own pairs. The same sentence
    head answers all of these: 0 for pairs as in the text, 1 for others.

    Args:
        objectives: the sentence objectives to test; "none" adds no test.
    """

    def __init__(
        self,
        samples_for: Callable[[SentenceObjective], SampleSource],
        objectives: Sequence[SentenceObjective],
        limit: int,
    ) -> None:
        self.tests = {MASKED_TOKENS: HeldOutSamples(samples_for("none"), limit)}
        for objective, test in SENTENCE_TESTS.items():
            if objective in objectives:
                self.tests[test] = HeldOutSamples(samples_for(objective), limit)

    @property
    def counts(self) -> dict[str, int]:
        """Items of each test: masked tokens, or sequences of two segments."""
        return {test: samples.counts[_loss_term(test)] for test, samples in self.tests.items()}

    def evaluate(
        self, model: nn.Module, device: torch.device, precision: Precision, *, sentence_head: bool = True
    ) -> dict[str, float]:
        """Loss, accuracy and baseline of every test, as `masked_tokens_loss`, `next_sentence_accuracy`, ...

        Args:
            model, device, precision: as of `HeldOutSamples.evaluate`.
            sentence_head: whether the model has one; otherwise only masked tokens are tested.
        """
        figures: dict[str, float] = {}
        for test, samples in self.tests.items():
            if sentence_head or test == MASKED_TOKENS:
                term = _loss_term(test)
                results = samples.evaluate(model, device, precision)
                figures |= {key.replace(term, test): value for key, value in results.items() if key.startswith(term)}
        return {**figures, "sequences": float(self.tests[MASKED_TOKENS].n_sequences)}


def _loss_term(test: str) -> str:
    return MASKED_TOKENS if test == MASKED_TOKENS else SENTENCE_ORDER


def _is_repeated(batch: PretrainingBatch) -> np.ndarray:
    """Return whether each masked token also occurs unmasked in its sequence."""
    lengths = np.array(batch.packed.lengths)
    sequence = np.repeat(np.arange(len(lengths)), lengths)
    positions = batch.masked_positions.numpy()
    labels = batch.masked_labels.numpy()
    visible = np.ones(len(sequence), dtype=bool)
    visible[positions] = False
    size = int(max(batch.packed.token_ids.max(), labels.max(initial=0))) + 1
    keys = sequence * size + batch.packed.token_ids.numpy()
    return np.isin(sequence[positions] * size + labels, keys[visible])


# --------------------------------------------------------------------------------------------------------------------
# Several models on masked tokens, next sentences and sentence order (paper §4.6, Table 5).
#
# A sentence head trained on one objective is also tested on the other: this is how the paper finds that NSP does not
# help with SOP. All models see the same held-out texts with the same masks: these depend on the corpus, the tokenizer,
# the maximum length and the masking only.

PAPER_MASKING = MaskingRecipe()
DEFAULT_LENGTH = 512
"""Tokens of a sequence where neither the model nor the user gives a length."""
NORMAL_95 = 1.959964
"""Standard deviations to either side that hold 95 % of a normal distribution."""


@dataclass(frozen=True)
class Score:
    """The result of a model on one test."""

    accuracy: float
    low: float
    """Wilson's 95 % interval of the accuracy (1927), as if the items were independent of each other."""
    high: float
    baseline: float
    """The accuracy of the best constant prediction."""
    loss: float
    """In nats per item."""
    count: int
    """Items."""

    @classmethod
    def of(cls, accuracy: float, baseline: float, loss: float, count: int) -> "Score":
        """The score with its interval."""
        square = NORMAL_95**2 / count
        middle = (accuracy + square / 2) / (1 + square)
        half = (accuracy * (1 - accuracy) * square + square**2 / 4) ** 0.5 / (1 + square)
        return cls(accuracy, middle - half, middle + half, baseline, loss, count)


@dataclass(frozen=True)
class ScoredModel:
    """A model and its scores."""

    model: str
    """As it was named."""
    sentence_objective: str
    """What its sentence head was trained on; "none": it has none."""
    scores: Mapping[str, Score]
    """By test; without a sentence head only masked tokens."""
    notes: tuple[str, ...] = ()
    """Warnings about the model."""


@dataclass(frozen=True)
class CrossEvaluation:
    """Several models on the same tests."""

    models: tuple[ScoredModel, ...]
    counts: Mapping[str, int]
    """Items by test."""
    sequences: int
    max_length: int
    """Most tokens of a sequence."""
    max_ngram: int
    """Most words of a masked n-gram."""

    def to_json(self) -> dict[str, Any]:
        """Everything, as plain values."""
        return {
            "sequences": self.sequences,
            "max_length": self.max_length,
            "max_ngram": self.max_ngram,
            "models": [{k: v for k, v in to_json(scored).items() if k != "notes"} for scored in self.models],
        }


def evaluate_pretraining(
    models: Sequence[str | Path],
    corpus_directory: Path,
    *,
    objectives: Sequence[SentenceObjective] | None = None,
    max_length: int | None = None,
    keep_pairs: bool = False,
    masking: MaskingRecipe = PAPER_MASKING,
    limit: int = 2000,
    device: str = "auto",
    precision: Precision = "fp32",
    overrides: Mapping[str, Any] | None = None,
    prepare: Callable[[nn.Module], None] | None = None,
) -> CrossEvaluation:
    """Evaluate pre-trained models on the held-out split of a prepared corpus, after all of them passed the checks.

    Args:
        models: model directories, runs, or Hub ids, with a masked-token head; an unfinished run's newest checkpoint.
        objectives: the sentence objectives to test, independent of the models' own; "none": masked tokens alone. None:
            "nsp" and "sop", or "sop" alone if a single document is held out.
        max_length: most tokens of a sequence; None: the smallest maximum length the models were trained with.
        keep_pairs: as of `SequenceRecipe`; gives many more pairs of short sequences.
        prepare: called with each model on its device before it is evaluated.

    Raises:
        InvalidConfiguration: the corpus has another tokenizer, `max_length` is too long, `limit` is below 1, or a model
            lacks the masked-token head.
        MissingInput, Unavailable, DamagedData: see `open_model` and `TokenCorpus.open`.
    """
    if limit < 1:
        raise InvalidConfiguration("sequences", f"is {limit}, at least 1 sequence is needed")
    torch_device = pick_device(device)
    corpus = TokenCorpus.open(corpus_directory, "held_out")
    if objectives is None:
        objectives = ("nsp", "sop") if corpus.n_documents > 1 else ("sop",)
    candidates = [_check_model(str(model), corpus, overrides) for model in models]
    length = min(trained for _, _, trained, _ in candidates) if max_length is None else max_length
    for candidate, _, _, positions in candidates:
        if length > positions:
            raise InvalidConfiguration("max_length", f"is {length}, {candidate.model} has {positions} positions")

    def samples(objective: SentenceObjective) -> PretrainingSamples:
        sequences = SequenceRecipe(max_length=length, objective=objective, keep_pairs=keep_pairs)
        return PretrainingSamples(corpus, sequences, masking, EVALUATION_SEED)

    tests = HeldOutTests(samples, objectives, limit)
    scored = []
    for candidate, directory, _, _ in candidates:
        opened = open_model(directory, "pretraining", overrides=overrides, verify=False)
        model = opened.model.to(torch_device)
        if prepare is not None:
            prepare(model)
        has_head = candidate.sentence_objective != "none"
        figures = tests.evaluate(model, torch_device, precision, sentence_head=has_head)
        scores = {
            test: Score.of(figures[f"{test}_accuracy"], figures[f"{test}_baseline"], figures[f"{test}_loss"], count)
            for test, count in tests.counts.items()
            if f"{test}_accuracy" in figures
        }
        scored.append(replace(candidate, scores=scores))
    n_sequences = tests.tests[MASKED_TOKENS].n_sequences
    return CrossEvaluation(tuple(scored), tests.counts, n_sequences, length, masking.max_ngram)


def _check_model(
    name: str, corpus: TokenCorpus, overrides: Mapping[str, Any] | None
) -> tuple[ScoredModel, Path, int, int]:
    """Open a model to check its heads and tokenizer, without keeping it in memory.

    Returns:
        The model without scores, its directory, the maximum length it was trained with, and its number of positions.
    """
    run = RunFolder(Path(name))
    newest = None if (run.model_path / CONFIG_NAME).is_file() else run.newest_checkpoint()
    directory = newest[1] if newest else find_model(name)
    notes = (f"{name} is not finished: its checkpoint of step {newest[0]:,} is evaluated",) if newest else ()
    config, extra = read_config(directory)
    if kind_of(extra) not in ("pretraining", "masked_lm"):
        architecture = str((extra.get("architectures") or ["AlbertModel"])[0])
        why = f"has no masked-token head, its class is {written_class(architecture, config)}"
        raise InvalidConfiguration(name, why, "give a model of `albert pretrain`")
    opened = open_model(directory, "pretraining", overrides=overrides)
    opened.loading_report.warn_if_unverified()
    initialised = opened.loading_report.drawn
    if any(part.startswith("predictions.") for part in initialised):
        raise InvalidConfiguration(name, "has no masked-token head", "give a pre-trained model")
    fingerprint = tokenizer_of(opened).fingerprint
    if corpus.tokenizer_fingerprint != fingerprint:
        prepared = corpus.tokenizer_fingerprint[:12]
        why = f"has tokenizer {fingerprint[:12]}, {corpus.directory} was prepared with {prepared}"
        raise InvalidConfiguration(name, why, "prepare the corpus again with the model's tokenizer")
    positions = opened.config.max_position_embeddings
    objective = "none" if initialised else sentence_objective(extra)
    scored = ScoredModel(name, objective, {}, (*notes, *opened.loading_report.notes))
    return scored, directory, trained_length(extra) or min(DEFAULT_LENGTH, positions), positions


# --------------------------------------------------------------------------------------------------------------------
# The held-out samples of a recipe.


def held_out_samples(recipe: PretrainingRecipe, corpora: Sequence[TokenCorpus]) -> HeldOutSamples | HeldOutTests | None:
    """The held-out samples of all corpora that have held-out documents, mixed by their sizes; None if none has any.

    The paper's share of tokens is masked, whatever the recipe masks in training, so that runs can be compared.

    Raises:
        DamagedData: the held-out split is damaged.
    """
    held_out = []
    for corpus in corpora:
        with contextlib.suppress(MissingInput):
            held_out.append(TokenCorpus.open(corpus.directory, "held_out", verify=False))
    if not held_out:
        return None

    def samples(objective: SentenceObjective) -> SampleSource:
        sequences = replace(recipe.sequences, objective=objective)
        masking = replace(recipe.masking, share=PAPER_MASKING.share)
        plain = replace(recipe, mixture=(), sequences=sequences, masking=masking, evaluation_objectives=())
        return samples_of(plain, held_out, EVALUATION_SEED)

    if recipe.evaluation_objectives:
        return HeldOutTests(samples, recipe.evaluation_objectives, recipe.evaluation_sequences)
    return HeldOutSamples(samples(recipe.sequences.objective), recipe.evaluation_sequences)
