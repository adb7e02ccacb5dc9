"""A fine-tuned model directory, opened to answer a task: the head that it has, its labels, lengths and threshold."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import nn

from albert.checkpoints.location import find_model
from albert.checkpoints.model_directory import Kind, kind_of, open_model, read_config
from albert.checkpoints.model_tokenizer import tokenizer_of
from albert.finetuning.start import LENGTHS, PROBLEM_TYPES, head_kind
from albert.model.depth import run_to_depth
from albert.runtime.errors import InvalidConfiguration
from albert.tasks.null_threshold import NullThreshold, stated_threshold
from albert.tasks.task import Choice, Labels, Score, Span, Tags, Target, Task, TaskRecipe
from albert.text.tokenizer import Tokenizer

_ANSWERING: tuple[Kind, ...] = ("question_answering", "joint_question_answering")


@dataclass(frozen=True)
class OpenedForTask:
    """A model that can be asked a task.

    Attributes:
        model: with its head, on the CPU.
        tokenizer: its own.
        recipe: the task's, with the lengths that the model was trained with.
        label_columns: see `label_columns`.
        threshold: from where on a question has no answer.
        directory: where it lies.
        notes: how it was opened, for people.
    """

    model: nn.Module
    tokenizer: Tokenizer
    recipe: TaskRecipe
    label_columns: list[int] | None
    threshold: NullThreshold
    directory: Path
    notes: tuple[str, ...]


def open_for_task(
    task: Task,
    model: str,
    max_length: int | None = None,
    revision: str | None = None,
    overrides: Mapping[str, Any] | None = None,
    depth: int | None = None,
) -> OpenedForTask:
    """Open a model directory, a run of `albert finetune`, or a Hub id; for the rest see `evaluate_directory`.

    Raises:
        InvalidConfiguration: the model has no head for this kind of target, or other labels, or not that depth.
        MissingInput, DamagedData: the model cannot be read, or the tokenizer is another one's.
    """
    opened = open_model(model, _kind(task.target, model, revision), revision=revision, overrides=overrides)
    opened.loading_report.warn_if_unverified()
    fresh = opened.loading_report.newly_initialised
    if fresh:
        remedy = "give a model of `albert finetune` for this task"
        raise InvalidConfiguration(model, f"has no head for this task ({', '.join(fresh)} would be random)", remedy)
    _refuse_another_problem(task.target, opened.extra.get("problem_type"), model)
    columns = label_columns(task.target, opened.extra.get("id2label"), model)
    tokenizer = tokenizer_of(opened)
    recipe = _recipe_of_model(task, opened.extra, model)
    if max_length is not None:
        recipe = replace(recipe, max_length=max_length)
    recipe.check()
    recipe = fit_length(recipe, opened.config.max_position_embeddings)
    threshold = stated_threshold(opened.extra, model)
    notes = tuple(opened.loading_report.lines())
    if depth is not None:
        run_to_depth(opened.model, depth)
        notes += (f"run at depth {depth} of {opened.config.num_hidden_layers}",)
    return OpenedForTask(opened.model, tokenizer, recipe, columns, threshold, opened.directory, notes)


def _kind(target: Target, model: str, revision: str | None) -> Kind:
    """What a target needs; a model that answers questions does it with the head that it has."""
    needed = head_kind(target)
    if isinstance(target, Span):
        found = kind_of(read_config(find_model(model, revision))[1])
        return found if found in _ANSWERING else needed
    return needed


def _refuse_another_problem(target: Target, problem: Any, model: str) -> None:
    """Outputs trained to exclude each other say nothing of several labels at once, nor the other way round."""
    several = PROBLEM_TYPES[Labels]
    if isinstance(target, Labels) and problem != several:
        why = f"was not trained for several labels at once (its problem_type is {problem!r})"
        raise InvalidConfiguration(model, why, "give another model")
    if isinstance(target, Choice) and problem == several:
        raise InvalidConfiguration(
            model, "was trained for several labels at once, the task has one", "give another model"
        )


def fit_length(recipe: TaskRecipe, positions: int) -> TaskRecipe:
    """The recipe with its length limited to the positions that the model has."""
    return replace(recipe, max_length=min(recipe.max_length, positions))


def _recipe_of_model(task: Task, extra: Mapping[str, Any], model: str) -> TaskRecipe:
    kept = extra.get("finetuning", {})
    lengths = {name: kept[name] for name in LENGTHS if name in kept} if isinstance(kept, dict) else {}
    if not all(isinstance(value, int) and value > 0 for value in lengths.values()):
        raise InvalidConfiguration(f"{model}: finetuning", f"holds lengths that are no lengths: {lengths}")
    return replace(task.recipe, **lengths)


def label_columns(target: Target, id2label: Mapping[int, str] | None, model: str) -> list[int] | None:
    """For each label of the task, which output of the model it is; None for targets without labels.

    Labels are matched by name (as in the data, or in words). A model with the nameless labels `LABEL_0`, ...
    is taken to have the task's order.

    Raises:
        InvalidConfiguration: the model has other labels than the task.
    """
    if not isinstance(target, Choice | Labels | Tags):
        if id2label is not None and isinstance(target, Score) and len(id2label) != 1:
            raise InvalidConfiguration(model, f"has {len(id2label)} outputs, a score needs 1", "give another model")
        return None
    names = [id2label[index] for index in sorted(id2label)] if id2label else []
    for known in (target.labels, target.shown):
        if sorted(names) == sorted(known):
            return [names.index(label) for label in known]
    if names == [f"LABEL_{index}" for index in range(len(target.labels))]:
        return list(range(len(names)))
    raise InvalidConfiguration(
        model,
        f"has the labels {', '.join(names)}; the task has {', '.join(target.shown)}",
        "give another model",
    )
