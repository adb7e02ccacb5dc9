"""What pre-trained models know: each asked for masked tokens, next sentences and sentence order (paper §4.6, Table 5).

The head that was trained to tell one thing is asked for the other, too: that is how the paper finds that NSP brings
nothing to SOP. All models see the same held-out texts with the same masks: these depend on the corpus, the tokenizer,
the length of sequences and the masking alone.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import nn

from albert.checkpoints.config_file import CONFIG_NAME
from albert.checkpoints.kinds import sentence_objective
from albert.checkpoints.location import find_model
from albert.checkpoints.model_directory import kind_of, open_model, read_config
from albert.checkpoints.model_tokenizer import tokenizer_of
from albert.pretraining.intrinsic_evaluation import EVALUATION_SEED, MASKED_TOKENS, HeldOutTests
from albert.pretraining.ngram_masking import MaskingRecipe
from albert.pretraining.samples import PretrainingSamples, SequenceRecipe
from albert.pretraining.sentence_order import SentenceObjective
from albert.runtime.devices import pick_device
from albert.runtime.errors import InvalidConfiguration
from albert.runtime.precisions import Precision
from albert.text.preparation.shards import TokenCorpus
from albert.training.run_folder import RunFolder

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
        corpus_directory: what `albert prepare` wrote, with the models' own tokenizer.
        objectives: which sentence tasks to ask, whatever the models were trained on; "none": masked tokens alone.
        max_length: most tokens of a sequence; None: as many as all of them were trained with.
        keep_pairs: as of `SequenceRecipe`: of short sequences many more have an order to tell.
        masking: what is masked.
        limit: most sequences.
        revision: a branch, tag or commit, of Hub ids.
        device, precision: where and how to compute.
        overrides: fields of the models' configurations to set anew.
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
    directory = find_model(name, revision)
    notes: tuple[str, ...] = ()
    newest = None if (directory / CONFIG_NAME).is_file() else RunFolder(directory).newest_checkpoint()
    if newest is not None:
        step, directory = newest
        notes = (f"{name} is under way: what is scored is its checkpoint of step {step:,}",)
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
    learnt = "none" if random else sentence_objective(opened.model, extra)
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
