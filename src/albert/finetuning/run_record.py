"""The settings of a fine-tuning run, what they become by default, and what of a run is saved and compared."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby, zip_longest
from pathlib import Path
from typing import Any, Literal

from albert.checkpoints.model_directory import weights_fingerprint
from albert.finetuning.model import PretrainedEncoder, Start, StartedModel, choose_pairs
from albert.finetuning.objective import Distillation
from albert.finetuning.options import MIN_SELECTING_ROWS, PATIENCE, LearningPlan, evaluation_interval
from albert.finetuning.selection import EVALUATION_INTERVAL, SelectedBy
from albert.optim.recipe import OptimizerRecipe
from albert.runtime.environment import Precision
from albert.runtime.errors import InvalidConfiguration
from albert.runtime.json_files import to_json
from albert.tasks.custom import TableSource
from albert.tasks.declared import DeclaredTask, ThresholdFrom
from albert.tasks.examples import Example
from albert.tasks.inputs import PairEncoding, QuestionInContext, Words
from albert.tasks.recipe import TaskRecipe
from albert.tasks.regression import Regression
from albert.training.metric_logger import DEFAULT_LOG, Log
from albert.training.record import finetuning_fingerprint


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
        log: where the curves go, beside the journal.
        freeze_encoder: train only pooler and head.
        distillation: a teacher.
        page_examples: at most so many rows of the development set are written to `examples.json`.
        encode_pairs: how the two texts of a pair are encoded; None: as suits the model, see `choose_pairs`.
        match_embedding: mark tokens that occur in the other segment; None: see `choose_pairs`.
        solve_head: solve a new head on frozen features first; None: for a user's own table, unless it has numbers.
        frozen: the solved head is the result, nothing is fine-tuned.
        threshold: with several labels per example, the probability from which on a label is predicted, or "train" to
            choose it on rows held out of training; None: "train". Tags of entities have a shift of `O` in its place,
            which is always chosen so.
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
    log: Log = DEFAULT_LOG
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
    report: Mapping[str, Any] = field(repr=False)
    model_directory: Path
    already_complete: bool = False


# --------------------------------------------------------------------------------------------------------------------
# What the settings leave open is filled in once: as requested, as recorded by the run to resume, or by default.


def resolve_settings(
    task: DeclaredTask, start: Start, settings: FinetuningSettings, record: Mapping[str, Any] | None
) -> FinetuningSettings:
    """Fill in the encoding of pairs, the threshold of several labels, and whether the head is solved first.

    Args:
        record: of the run to resume; None: the run is new.
    """
    pairs, matching = choose_pairs(task, start, settings.encode_pairs, settings.match_embedding, record)
    return replace(
        settings,
        encode_pairs=pairs,
        match_embedding=matching,
        threshold=_threshold_of(task, settings, record),
        solve_head=_solves_head(task, start, settings, record),
    )


def _threshold_of(
    task: DeclaredTask, settings: FinetuningSettings, record: Mapping[str, Any] | None
) -> float | Literal["train"] | None:
    """The threshold of several labels: as requested, as recorded, or chosen on rows held out of training."""
    if settings.threshold not in (None, "train") and not task.target.takes_threshold:
        why = f"needs several labels per example, {task.title} has none"
        raise InvalidConfiguration("threshold", why, "leave it out")
    if not task.target.is_tuned:
        return None
    if settings.threshold is not None or record is None:
        return settings.threshold or "train"
    return record.get("settings", {}).get("threshold")


def _solves_head(
    task: DeclaredTask, start: Start, settings: FinetuningSettings, record: Mapping[str, Any] | None
) -> bool:
    """Return whether the head is solved first, on frozen features: as requested, as recorded, or for a user's table.

    Not for numbers: a random head was better on both tables with numbers (results/finetuning.md, "Small tables: the
    head solved first").
    """
    keeps_head = isinstance(start, PretrainedEncoder) and start.keep_head
    reason = None
    if not task.target.is_linear:
        reason = f"{task.title} has spans as answers, whose head is not solved"
    elif keeps_head:
        reason = "the model's own head is kept"
    if reason is not None:
        for name in ("frozen", "solve_head"):
            if getattr(settings, name):
                raise InvalidConfiguration(name, reason, "leave it out")
        return False
    if settings.solve_head is not None or settings.frozen:
        return settings.solve_head is not False
    if record is not None:
        return bool(record.get("settings", {}).get("solve_head", False))
    return isinstance(task.source, TableSource) and task.target.problem_type != "regression"


def resolve_plan_settings(
    task: DeclaredTask,
    settings: FinetuningSettings,
    plan: LearningPlan,
    dev_examples: int,
    record: Mapping[str, Any] | None,
) -> FinetuningSettings:
    """Fill in what depends on the plan: the optimizer, and which model is the result, when it is evaluated and when the
    run ends early. For a user's own table the best evaluation is the result, unless the development set is too small.
    """
    recorded = None if record is None else record.get("settings", {})
    settings = replace(settings, optimizer=optimizer_of(settings, plan.recipe))
    if settings.frozen:
        return replace(settings, select="last", evaluate_every=None, patience=None)
    if settings.patience is not None and settings.select == "last":
        raise InvalidConfiguration("patience", "keeps the best evaluation, not the last", "leave --select last out")
    if settings.patience is not None:
        return replace(settings, select="best")
    if settings.select is not None:
        return settings
    if recorded is not None:
        every = settings.evaluate_every or recorded.get("evaluate_every")
        select = recorded.get("select", "last")
        return replace(settings, select=select, patience=recorded.get("patience"), evaluate_every=every)
    if not isinstance(task.source, TableSource) or dev_examples < MIN_SELECTING_ROWS:
        return replace(settings, select="last")
    every = settings.evaluate_every or evaluation_interval(plan, dev_examples)
    return replace(settings, select="best", patience=PATIENCE, evaluate_every=every)


# --------------------------------------------------------------------------------------------------------------------
# The record and the fingerprints of a run.


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
    return values


def start_identity(started: StartedModel) -> dict[str, str]:
    """Fingerprints of the initial weights and the tokenizer."""
    weights = weights_fingerprint(started.model.state_dict())
    return {"initial weights": weights, "tokenizer": started.tokenizer.fingerprint}


def task_fingerprint(record: Mapping[str, Any]) -> str:
    """A hash of recipe, settings, target and changes of the architecture, the same on every machine."""
    parts = {name: record[name] for name in ("recipe", "settings", "target", "changes") if name in record}
    return finetuning_fingerprint(parts)


def examples_fingerprint(examples: Sequence[Example]) -> str:
    """SHA-256 over texts and answers in order, independent of file paths."""
    digest = hashlib.sha256()
    for row in examples:
        digest.update(repr((row.texts, row.target, row.answers, row.options, row.group)).encode())
    return digest.hexdigest()


def page_examples(task: DeclaredTask, examples: Sequence[Example], count: int) -> list[dict[str, str]]:
    """At most `count` short examples without labels, as the fields of the page of `albert serve`.

    Labels take turns; numbers go from low to high. Where there are fewer short ones, the beginnings of longer ones
    follow. The result depends on the examples and their order alone.
    """
    chosen = _chosen_examples(task, examples, count, shortened=False)
    if len(chosen) < count:
        chosen += _chosen_examples(task, examples, count - len(chosen), shortened=True)
    return chosen


def _chosen_examples(
    task: DeclaredTask, examples: Sequence[Example], count: int, shortened: bool
) -> list[dict[str, str]]:
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
    if isinstance(task.target, Regression):
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
