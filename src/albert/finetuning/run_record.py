"""The settings of a fine-tuning run, what they become by default, and what of a run is saved and compared."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import torch

from albert.checkpoints.hub import model_name
from albert.checkpoints.model_directory import weights_fingerprint
from albert.columns.read import TableSource
from albert.finetuning.model import PretrainedEncoder, Start, StartedModel, choose_pairs
from albert.finetuning.options import (
    MIN_SELECTING_ROWS,
    PATIENCE,
    LearningPlan,
    RequestedRecipe,
    evaluation_interval,
    plan_learning,
)
from albert.recipes.finetuning import FinetuningSettings
from albert.runtime.devices import default_precision
from albert.runtime.environment import Precision
from albert.runtime.errors import InvalidConfiguration
from albert.runtime.json_files import read_versioned, to_json
from albert.runtime.words import counted
from albert.tasks.declared import DeclaredTask
from albert.tasks.examples import Example
from albert.training.run_folder import RunFolder
from albert.training.same_run import Input


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
    task: DeclaredTask,
    start: Start,
    settings: FinetuningSettings,
    record: Mapping[str, Any] | None,
    device: torch.device,
) -> FinetuningSettings:
    """Fill in what does not depend on the rows: the encoding of pairs, the threshold of several labels, whether the
    head is solved first, and the precision.

    Args:
        record: of the run to resume; None: the run is new.
    """
    pairs, matching = choose_pairs(task, start, settings.encode_pairs, settings.match_embedding, record)
    if settings.class_weights is not None and not task.target.class_names:
        why = f"need classes, labels or tags, {task.title} has none"
        raise InvalidConfiguration("class_weights", why, "leave them out")
    return replace(
        settings,
        encode_pairs=pairs,
        match_embedding=matching,
        threshold=_threshold_of(task, settings, record),
        solve_head=_solves_head(task, start, settings, record),
        precision=precision_of(settings, record, device),
    )


@dataclass(frozen=True, kw_only=True)
class FilledIn:
    """Settings with nothing left open, the recipe fitted to model and rows, and the rows divided."""

    settings: FinetuningSettings
    plan: LearningPlan
    examples: list[Example]
    """Of the training set."""
    held_out: list[Example]
    """Rows of the training file that are held out to choose a threshold; usually none."""


def fit_to_rows(
    task: DeclaredTask,
    requested: RequestedRecipe,
    settings: FinetuningSettings,
    record: Mapping[str, Any] | None,
    hidden_size: int,
    examples: list[Example],
    dev_examples: int,
) -> FilledIn:
    """Fill in the rest: rows that are held out of training, the recipe, the optimizer, and which model is the result.

    Args:
        settings: resolved.
        hidden_size: of the model.
        examples: of the training file.
        dev_examples: the number of rows of the development set.
    """
    held_out: list[Example] = []
    of_null_threshold = task.target.may_be_absent and settings.null_threshold == "train"
    if of_null_threshold or settings.threshold == "train":
        examples, held_out = task.target.hold_out(examples, settings.seed)
    n_classes = task.target.n_outputs or 0
    plan = plan_learning(requested, hidden_size, len(examples), n_classes, settings.optimizer)
    if settings.frozen:
        plan = replace(plan, updates=0, warmup_updates=0, epochs=0.0)
    settings = replace(settings, optimizer=plan.optimizer)
    settings = _with_selection(task, settings, plan, dev_examples, record)
    return FilledIn(settings=settings, plan=plan, examples=examples, held_out=held_out)


def precision_of(settings: FinetuningSettings, record: Mapping[str, Any] | None, device: torch.device) -> Precision:
    """The precision that was requested, that of the run to resume, or the device's default."""
    recorded = None if record is None else record.get("settings", {}).get("precision")
    return settings.precision or recorded or default_precision(device)


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


def _with_selection(
    task: DeclaredTask,
    settings: FinetuningSettings,
    plan: LearningPlan,
    dev_examples: int,
    record: Mapping[str, Any] | None,
) -> FinetuningSettings:
    """Fill in which model is the result, when it is evaluated and when the run ends early. For a user's table the
    best evaluation is the result, unless the development set is too small."""
    recorded = None if record is None else record.get("settings", {})
    if settings.frozen:
        return replace(settings, select="last", evaluate_every=None, patience=None)
    if settings.patience is not None and settings.select == "last":
        raise InvalidConfiguration("patience", "keeps the best evaluation, not the last", "leave select=last out")
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
# The record and the inputs of a run.


def read_record(folder: RunFolder, task: str) -> dict[str, Any] | None:
    """The record of a fine-tuning run of this task; None if the folder has none."""
    if not folder.recipe_path.exists():
        return None
    record = read_versioned(folder.recipe_path)
    return record if record.get("task") == task and isinstance(record.get("recipe"), dict) else None


def recorded_settings(settings: FinetuningSettings) -> dict[str, Any]:
    """Settings as plain values; a teacher is recorded by its name, not by its path."""
    values = to_json(settings)
    values["encode_pairs"] = settings.encode_pairs or "together"  # None: there are no pairs
    values["match_embedding"] = bool(settings.match_embedding)
    values["solve_head"] = bool(settings.solve_head)
    values["select"] = settings.select or "last"
    if settings.distillation is not None:
        values["distillation"]["teacher"] = model_name(settings.distillation.teacher)
    return values


def start_inputs(started: StartedModel) -> dict[str, Input]:
    """The initial weights and the tokenizer."""
    tokenizer = started.tokenizer
    return {
        "initial weights": Input(started.source, weights_fingerprint(started.model.state_dict())),
        "tokenizer": Input(counted(tokenizer.vocab_size, "pieces"), tokenizer.fingerprint),
    }


def examples_fingerprint(examples: Sequence[Example]) -> str:
    """SHA-256 over texts and answers in order, independent of file paths."""
    digest = hashlib.sha256()
    for row in examples:
        digest.update(repr((row.texts, row.target, row.answers, row.options, row.group)).encode())
    return digest.hexdigest()
