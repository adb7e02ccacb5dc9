"""A fine-tuned model directory, opened for a task; and what its `config.json` says of the head.

`head_description` writes what `open_for_task` reads."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import nn

from albert.checkpoints.config_json import read_config
from albert.checkpoints.cross_encoders import ACTIVATION_KEY, score_activation
from albert.checkpoints.hub import find_model
from albert.checkpoints.huggingface import kind_of
from albert.checkpoints.model_directory import open_model, tokenizer_of
from albert.model.albert import set_depth
from albert.recipes.finetuning import TaskRecipe
from albert.runtime.errors import InvalidConfiguration
from albert.tasks.declared import DeclaredTask
from albert.tasks.inputs import Pair
from albert.tasks.regression import Regression
from albert.tasks.task import LinearTask, Task
from albert.text.tokenizer import Tokenizer

_OTHER_MODEL = "give another model"

LENGTHS = ("max_length", "question_length", "stride")
"""Recipe fields that evaluation needs too."""


def head_description(task: DeclaredTask, recipe: TaskRecipe, trained_positions: int | None) -> dict[str, Any]:
    """Keys of `config.json`: the meaning of the head's outputs, and the lengths it was trained with."""
    keys: dict[str, Any] = {"finetuning": {"task": task.name, **{name: getattr(recipe, name) for name in LENGTHS}}}
    if trained_positions is not None:
        keys["trained_positions"] = trained_positions
    target = task.target
    if isinstance(target, LinearTask):
        keys["max_sequence_length"] = recipe.max_length
    outputs: dict[str, Any] = {}
    if target.output_names is not None:
        outputs["id2label"] = dict(enumerate(target.output_names))
    if target.problem_type is not None:
        outputs["problem_type"] = target.problem_type
    if target.problem_type == "regression" and isinstance(task.inputs, Pair):
        outputs[ACTIVATION_KEY] = "Identity"  # else CrossEncoder of sentence-transformers applies a sigmoid
    return {**outputs, **keys}


@dataclass(frozen=True)
class OpenedForTask:
    """A fine-tuned model for a task.

    Attributes:
        recipe: the task's, with the lengths that the model was trained with.
        target: what is predicted, with what was tuned.
        label_columns: for each label of the task the model's output; None: in order.
    """

    model: nn.Module
    tokenizer: Tokenizer
    recipe: TaskRecipe
    target: Task
    label_columns: list[int] | None
    directory: Path
    notes: tuple[str, ...]


def open_for_task(
    task: DeclaredTask,
    model: str,
    max_length: int | None = None,
    overrides: Mapping[str, Any] | None = None,
    depth: int | None = None,
    label_threshold: float | None = None,
) -> OpenedForTask:
    """Open a model directory, a run of `albert finetune`, or a Hub id; for the rest see `evaluate_models`."""
    target = task.target
    kind = target.model_kind_of(kind_of(read_config(find_model(model))[1]))
    if kind == "pair_classification" and not len(task.inputs.columns) == 2:
        raise InvalidConfiguration(model, f"compares two texts, {task.title} has one", _OTHER_MODEL)
    opened = open_model(model, kind, overrides=overrides)
    opened.loading_report.warn_if_unverified()
    missing = opened.loading_report.newly_initialised
    if missing:
        remedy = "give a model of `albert finetune` for this task"
        raise InvalidConfiguration(model, f"has no head for this task ({', '.join(missing)} would be random)", remedy)
    target.check_head(opened.extra.get("problem_type"), model)
    columns = label_columns(target, opened.extra.get("id2label"), model)
    tokenizer = tokenizer_of(opened)
    saved = opened.extra.get("finetuning", {})
    lengths = {name: saved[name] for name in LENGTHS if name in saved} if isinstance(saved, dict) else {}
    if not all(isinstance(value, int) and value > 0 for value in lengths.values()):
        raise InvalidConfiguration(f"{model}: finetuning", f"holds invalid lengths: {lengths}")
    recipe = replace(task.recipe, **lengths)
    if max_length is not None:
        recipe = replace(recipe, max_length=max_length)
    recipe.check()
    recipe = recipe.within(opened.config.max_position_embeddings)
    target = target.tuned_as(opened.extra, model, label_threshold)
    if isinstance(target, Regression):
        target = replace(target, activation=score_activation(opened.extra))
    notes = tuple(opened.loading_report.lines())
    if depth is not None:
        set_depth(opened.model, depth)
        notes += (f"run at depth {depth} of {opened.config.num_hidden_layers}",)
    return OpenedForTask(opened.model, tokenizer, recipe, target, columns, opened.directory, notes)


def label_columns(
    target: Task,
    id2label: Mapping[int, str] | None,
    model: str,
    remedy: str = _OTHER_MODEL,
    may_be_unnamed: bool = True,
) -> list[int] | None:
    """For each label of the task, the index of the model's output for it; None for targets without labels.

    Labels are matched by name, as in the data or in words. A model with the default names `LABEL_0`, ... is taken to
    have the task's order, if it may be unnamed.
    """
    if not target.class_names:
        if id2label is not None and target.n_outputs is not None and len(id2label) != target.n_outputs:
            raise InvalidConfiguration(model, f"has {len(id2label)} outputs, a score needs 1", remedy)
        return None
    names = [id2label[index] for index in sorted(id2label)] if id2label else []
    for labels in (target.class_names, target.output_names or ()):
        if sorted(names) == sorted(labels):
            return [names.index(label) for label in labels]
    if may_be_unnamed and names == [f"LABEL_{index}" for index in range(len(target.class_names))]:
        return list(range(len(names)))
    why = f"has the labels {', '.join(names)}; the task has {', '.join(target.output_names or ())}"
    raise InvalidConfiguration(model, why, remedy)
