"""The user's own task, of a model that learnt it: from the task.json beside it, or what its configuration tells."""

from dataclasses import replace
from pathlib import Path

from albert.api.options import TableOptions
from albert.checkpoints.hub import find_model
from albert.checkpoints.huggingface import kind_of
from albert.checkpoints.model_directory import read_config
from albert.runtime.errors import InvalidConfiguration, UsageError
from albert.tasks.custom import read_task
from albert.tasks.table_task import TASK_FILE, TableTask, table_task_of
from albert.tasks.task import Task


def task_of_model(model: str, revision: str | None, options: TableOptions, dev: Path | None) -> Task:
    """The task that a model learnt, on a table: the one given, or that on which it was scored.

    Args:
        model: a model directory, a run, or a Hub id.
        revision: of a Hub repository.
        options: what is said of the table; it goes before what was kept.
        dev: the table.

    Raises:
        UsageError: nothing was kept, and too little is said.
        MissingInput, DamagedData, InvalidConfiguration: see `read_task`; or the model names no labels.
    """
    directory = find_model(model, revision)
    kept = table_task_of(directory)
    if kept is None and options.task_file is None:
        kept = _described_by_model(directory, options, dev)
    table = options.task(kept, dev=dev)
    if table.dev is not None:
        table = replace(table, train=None)
    return read_task(table).check("dev").task


def _described_by_model(directory: Path, options: TableOptions, dev: Path | None) -> TableTask:
    """Kind and labels that a model's configuration names; the columns must be said."""
    needed = {"--dev": dev, "--text": options.text, "--label": options.label}
    missing = [name for name, value in needed.items() if value is None]
    if missing:
        why = f"there is no {TASK_FILE} beside it, and your own file needs {', '.join(missing)}"
        raise UsageError(directory, why, "or name a TASK")
    _, extra = read_config(directory)
    names = extra.get("id2label")
    if kind_of(extra) != "classification":
        raise InvalidConfiguration(directory, "has no head for this task", "give a model that was fine-tuned on it")
    if not names:
        raise InvalidConfiguration(directory, "its config.json names no labels", "give a fine-tuned model")
    if extra.get("problem_type") == "regression":
        return TableTask(kind="regression")
    several = extra.get("problem_type") == "multi_label_classification"
    labels = tuple(names[index] for index in sorted(names))
    return TableTask(kind="multi-label" if several else "classification", labels=labels)
