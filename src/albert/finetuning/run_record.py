"""Settings, identity and files of a fine-tuning run, and the choice between its last and its best model."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, zip_longest
from pathlib import Path
from typing import Any, Literal

import torch

from albert.checkpoints.model_directory import open_model, weights_fingerprint
from albert.finetuning.model import Exits, StartedModel, head_kind, n_outputs
from albert.finetuning.objective import Distillation
from albert.optim.recipe import OptimizerRecipe
from albert.runtime.environment import Precision
from albert.runtime.errors import InvalidConfiguration
from albert.runtime.files import new_directory
from albert.runtime.json_files import (
    fingerprint_of,
    identity_settings,
    read_journal,
    read_json_object,
    save_json,
    to_json,
)
from albert.tasks.examples import Example
from albert.tasks.metrics import is_better
from albert.tasks.task import (
    Labels,
    PairEncoding,
    QuestionInContext,
    Score,
    Tags,
    Target,
    Task,
    TaskRecipe,
    ThresholdFrom,
    Words,
)

# --------------------------------------------------------------------------------------------------------------------
# Which model of a run is its result: the last one, or the one with the best development score.
#
# The paper stops early: it takes the best of evaluations every 100 steps (section 4.9). A score chosen on the set it is
# reported on is optimistic, so the last model is the default, and reports say which model was taken.

SelectedBy = Literal["last", "best"]
EVALUATION_INTERVAL = 100
"""Steps between evaluations, as in the paper."""
_SCORE_NAME = "score.json"


@dataclass(frozen=True)
class BestModel:
    """The best model so far, kept in a directory while the run goes on; the first one among equals.

    A resumed run finds it there. A model that was scored on another development set (by fingerprint) does not count.
    """

    directory: Path
    save: Callable[[Path], None]
    scored_on: str = ""

    def consider(self, scores: Mapping[str, float | None]) -> None:
        """Keep the current model if its first score is better than the best so far; undefined scores are worst."""
        name, score = next(iter(scores.items()))
        if self.directory.is_dir():
            best = read_json_object(self.directory / _SCORE_NAME)
            same_rows = best.get("scored_on", self.scored_on) == self.scored_on
            if same_rows and not is_better(name, score, best["score"]):
                return
        with new_directory(self.directory, replace=True) as directory:
            self.save(directory)
            save_json(directory / _SCORE_NAME, {"metric": name, "score": score, "scored_on": self.scored_on})

    @property
    def metric(self) -> str:
        """The name of the score, once a model was kept."""
        return read_json_object(self.directory / _SCORE_NAME)["metric"]

    def tensors(self, target: Target, pairs: PairEncoding = "together") -> dict[str, torch.Tensor]:
        """Its weights."""
        return open_model(self.directory, head_kind(target, pairs), n_outputs(target)).model.state_dict()


def evaluations_without_gain(metric: str, journal: Path) -> int:
    """The number of evaluations in a journal since the best one, the first one among equals."""
    scores = [record.get(metric) for record in read_journal(journal) if record["event"] == "evaluation"]
    best = 0
    for index, score in enumerate(scores):
        best = index if is_better(metric, score, scores[best]) else best
    return max(0, len(scores) - 1 - best)


def development_curve(metric: str, journal: Path) -> str | None:
    """The development scores of a run with their steps, as one line; None for fewer than two."""
    records = [record for record in read_journal(journal) if record["event"] == "evaluation"]
    if len(records) < 2:
        return None
    points = (
        f"{record['step']:,}: " + ("-" if metric not in record else f"{record[metric]:.1f}") for record in records
    )
    return f"{metric} on the development set by step: {', '.join(points)}"


def describe_selection(by: SelectedBy, scores: Mapping[str, float | None], journal: Path) -> dict[str, Any]:
    """Which model of a finished run is its result, from the evaluations in its journal; with two lines of text."""
    metric = next(iter(scores))
    step = None
    evaluations = 1
    rule = note = "selection: the model after the last step"
    if by == "best":
        records = [record for record in read_journal(journal) if record["event"] == "evaluation"]
        best = records[0]
        for record in records[1:]:
            best = record if is_better(metric, record.get(metric), best.get(metric)) else best
        step = best["step"]
        evaluations = len(records)
        rule = (
            f"selection: the best of {evaluations} evaluations by {metric} on the development set; a score "
            "that is chosen on the set it is reported on is somewhat high"
        )
        note = f"{rule} (step {step:,})"
    return {"by": by, "metric": metric, "step": step, "evaluations": evaluations, "rule": rule, "note": note}


# --------------------------------------------------------------------------------------------------------------------
# Settings, and the fingerprints that tell runs apart.

RESULTS_NAME = "results.json"
NOT_PART_OF_IDENTITY = ("device", "workers", "micro_batch_tokens", "checkpoint_every")
"""Settings that a resumed run may change."""
_ADDED_LATER = {
    "exits": None,
    "freeze_encoder": False,
    "distillation": None,
    "page_examples": 5,
    "encode_pairs": "together",
    "match_embedding": False,
    "solve_head": False,
    "frozen": False,
    "threshold": None,
    "patience": None,
    "class_weights": None,
}
"""Settings that older runs lack, with the value they had. That value is not recorded, so that older runs resume."""


@dataclass(frozen=True, kw_only=True)
class FinetuningSettings:
    """How a run computes, apart from the task's recipe.

    Attributes:
        null_threshold: the questions that choose the no-answer threshold: some held out of training, or, as in the
            reference, the scored ones.
        select: the model that is the result: the last one, or the best of all evaluations; None: the best for a user's
            own table with enough development rows, else the last.
        evaluate_every, checkpoint_every: in steps.
        patience: the run ends after so many evaluations in a row without a better score; None: `PATIENCE` where
            `select` is best by default, else the run never ends before its last step.
        class_weights: "balanced" weights each class, label or tag in the loss by its inverse frequency.
        optimizer: complete, or a name that takes rate and weight decay from the recipe; None: AdamW.
        precision: None: bf16 on a GPU, fp32 on a CPU.
        exits: layers after which the head is trained; None: the last alone.
        freeze_encoder: train only pooler and head.
        distillation: a teacher.
        page_examples: at most so many rows of the development set are written to `examples.json`.
        encode_pairs: how the two texts of a pair are encoded; None: as suits the model, see `choose_pairs`.
        match_embedding: mark tokens that occur in the other segment; None: see `choose_pairs`.
        solve_head: solve a new head on frozen features first; None: for a user's own table.
        frozen: the solved head is the result, nothing is fine-tuned.
        threshold: with several labels per example, the probability from which on a label is predicted, or "train" to
            choose it on rows held out of training; None: "train". Runs of earlier versions had 0.5, recorded as None.
    """

    seed: int = 0
    null_threshold: ThresholdFrom = "train"
    max_train_examples: int | None = None
    select: SelectedBy | None = None
    evaluate_every: int | None = None
    checkpoint_every: int | None = None
    patience: int | None = None
    class_weights: Literal["balanced"] | None = None
    micro_batch_tokens: int = 8192
    optimizer: OptimizerRecipe | Literal["adamw", "lamb"] | None = None
    device: str = "auto"
    precision: Precision | None = None
    workers: int = 0
    exits: Exits | None = None
    freeze_encoder: bool = False
    distillation: Distillation | None = None
    page_examples: int = 5
    encode_pairs: PairEncoding | None = None
    match_embedding: bool | None = None
    solve_head: bool | None = None
    frozen: bool = False
    threshold: float | Literal["train"] | None = None

    def __post_init__(self) -> None:
        counts = {
            "max_train_examples": 1,
            "evaluate_every": 1,
            "patience": 1,
            "checkpoint_every": 1,
            "micro_batch_tokens": 1,
        }
        for name, least in (counts | {"workers": 0, "page_examples": 0}).items():
            value = getattr(self, name)
            if value is not None and value < least:
                raise InvalidConfiguration(name, f"is {value}, at least {least} is needed")

    @property
    def evaluation_interval(self) -> int | None:
        """Steps between evaluations; None: no evaluation before the end."""
        return self.evaluate_every or (EVALUATION_INTERVAL if self.select == "best" else None)


@dataclass(frozen=True)
class FinetuningResult:
    """Scores on the development set, the content of `results.json`, and the model directory."""

    scores: Mapping[str, float | None]
    report: Mapping[str, Any]
    model_directory: Path
    already_complete: bool = False


def optimizer_of(settings: FinetuningSettings, recipe: TaskRecipe) -> OptimizerRecipe:
    """The complete optimizer."""
    if isinstance(settings.optimizer, OptimizerRecipe):
        return settings.optimizer
    return OptimizerRecipe(
        kind=settings.optimizer or "adamw", learning_rate=recipe.learning_rate, weight_decay=recipe.weight_decay
    )


def recorded_settings(settings: FinetuningSettings) -> dict[str, Any]:
    """Settings as plain values; a teacher is recorded by its name, not by its path."""
    values = to_json(settings)
    values["encode_pairs"] = settings.encode_pairs or "together"  # None: there are no pairs
    values["match_embedding"] = bool(settings.match_embedding)
    values["solve_head"] = bool(settings.solve_head)
    values["select"] = settings.select or "last"
    if settings.distillation is not None:
        values["distillation"]["teacher"] = settings.distillation.source
        del values["distillation"]["revision"]  # is part of the source
    return identity_settings(values, (), _ADDED_LATER)


def settings_for_fingerprint(settings: FinetuningSettings) -> dict[str, Any]:
    """Settings as plain values, with fixed values for those that do not affect the result."""
    return recorded_settings(replace(settings, device="auto", workers=0, micro_batch_tokens=1, checkpoint_every=None))


def start_identity(started: StartedModel) -> dict[str, str]:
    """Fingerprints of the initial weights and the tokenizer."""
    weights = weights_fingerprint(started.model.state_dict())
    return {"initial weights": weights, "tokenizer": started.tokenizer.fingerprint}


def recipe_fingerprint(
    target: Target, changes: Mapping[str, Any], recipe: TaskRecipe, settings: FinetuningSettings
) -> str:
    """A hash of recipe, settings, target and changes of the architecture, the same on every machine."""
    values = {"recipe": to_json(recipe), "settings": settings_for_fingerprint(settings), "target": to_json(target)}
    if isinstance(target, Labels | Tags) and target.names is None:
        values["target"].pop("names")  # earlier versions had none
    return fingerprint_of(values | ({"changes": dict(changes)} if changes else {}))


def examples_fingerprint(examples: Sequence[Example]) -> str:
    """SHA-256 over texts and answers in order, independent of file paths."""
    digest = hashlib.sha256()
    for row in examples:
        digest.update(repr((row.texts, row.target, row.answers, row.options, row.group)).encode())
    return digest.hexdigest()


def page_examples(task: Task, examples: Sequence[Example], count: int) -> list[dict[str, str]]:
    """At most `count` short examples without labels, as the fields of the page of `albert serve`.

    Labels take turns; numbers go from low to high. Where there are fewer short ones, the beginnings of longer ones
    follow. The result depends on the examples and their order alone.
    """
    chosen = _chosen_examples(task, examples, count, shortened=False)
    if len(chosen) < count:
        chosen += _chosen_examples(task, examples, count - len(chosen), shortened=True)
    return chosen


def _chosen_examples(task: Task, examples: Sequence[Example], count: int, shortened: bool) -> list[dict[str, str]]:
    """The short examples, or those that have to be shortened."""
    names = ("question", "context", "options") if isinstance(task.inputs, QuestionInContext) else ("text", "pair")
    groups_of: dict[tuple[str, ...], Any] = {}
    for row in examples:
        texts = (" ".join(row.texts),) if isinstance(task.inputs, Words) else row.texts
        required = (*row.texts[1:], *row.options) if row.options else texts  # a choice may have no question
        texts += ("\n".join(row.options),) if row.options else ()
        limits = {name: 1000 if name == "context" else 300 for name in names}
        short = all(len(text) <= limits[name] for name, text in zip(names, texts, strict=False))
        if shortened and not short and len("\n".join(row.options)) <= limits[names[-1]]:
            texts = tuple(_beginning(text, limits[name]) for name, text in zip(names, texts, strict=False))
            short = True
        elif shortened:
            short = False
        printable = "".join("".join(texts).split()).isprintable() and "\n" not in "".join(row.options)
        if short and printable and all(map(str.strip, required)):
            n_labels = -len(set(row.target)) if isinstance(row.target, tuple) else 0
            groups_of[texts] = (not row.answers, n_labels, row.target)
    ordered = sorted(groups_of, key=groups_of.__getitem__)
    if isinstance(task.target, Score):
        groups_of = {texts: index * count // len(ordered) for index, texts in enumerate(ordered)}
    groups = [list(group) for _, group in groupby(ordered, key=groups_of.__getitem__)]
    chosen = [texts for turn in zip_longest(*groups) for texts in turn if texts is not None]
    return [dict(zip(names, texts, strict=False)) for texts in chosen[:count]]


def _beginning(text: str, limit: int) -> str:
    """At most `limit` characters, up to the end of a word if there is one."""
    if len(text) <= limit:
        return text
    cut = text[:limit]
    return cut.rpartition(" ")[0].rstrip() or cut
