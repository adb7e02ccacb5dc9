"""Which rows `albert evaluate` scores: those of a declared task, or of the user's table, as the model knows it."""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from albert.cli.signature import read_keys
from albert.commands.columns import Columns, TableKeys
from albert.runtime.errors import AlbertError, CannotCreate, InvalidConfiguration, UsageError
from albert.runtime.manifest import input_hash
from albert.runtime.words import counted
from albert.tasks.declared import DeclaredTask

if TYPE_CHECKING:
    from albert.columns.read import ReadTask
    from albert.tables.table import Row
    from albert.tasks.table_task import TableTask


def check_outputs(outputs: Iterable[Path | None], inputs: Iterable[Path | None]) -> None:
    """Raises CannotCreate for a file to write that is an input."""
    read = [path.resolve() for path in inputs if path is not None]
    for output in outputs:
        if output is not None and output.resolve() in read:
            raise CannotCreate(output, "is an input, which would be replaced", "choose another name")


def declared_task(name: str, split: str | None, dev: Path | None, outputs: Iterable[Path | None]) -> DeclaredTask:
    """A declared task, with `dev` in the place of its file."""
    from albert.tasks.submission import find_task

    check_outputs(outputs, [dev])
    task = find_task(name)
    if dev is None:
        return task
    return dataclasses.replace(task, source=task.source.with_files({split or "dev": dev}))


def task_of_model(
    model: str, columns: Columns, keys: Mapping[str, Any], dev: Path | None, outputs: Iterable[Path | None]
) -> tuple[DeclaredTask, str | None]:
    """The task of a model that was trained on a table, on the file `dev` or on the one it was scored on, and a line if
    the model was trained on some of the rows."""
    from albert.checkpoints.hub import find_model
    from albert.columns.read import for_other_file, read_task
    from albert.tasks.table_task import table_task_of

    directory = find_model(model)
    saved = table_task_of(directory)
    if saved is None:
        saved = task_from_config(directory, columns, dev)
    learned = saved
    of_keys = read_keys(TableKeys, keys)
    described = columns.task(of_keys, saved)
    if saved is not None and dev is not None:
        saved = for_other_file(saved, dev)
    check_outputs(outputs, [dev, described.train, described.dev])
    described = columns.task(of_keys, saved, dev=dev)
    if described.dev is not None:
        described = dataclasses.replace(described, train=None)
    if saved is not None and dev is None:
        check_rows_are_known(directory, saved)
    read = read_task(described).check("dev")
    return read.task, origin_of_rows(learned, described, read.tables["dev"].rows)


def check_rows_are_known(directory: Path, saved: "TableTask") -> None:
    """Raise UsageError if the rows on which a model was scored cannot be found again: of a copy without its table, or
    of one fold of several."""
    rows = saved.dev or saved.train
    if rows is not None and not rows.exists():
        why = f"is missing; {directory} is a copy of a model, and its table {rows.name} is not beside it"
        raise UsageError("--dev", why, "name the rows to score")
    if saved.dev is None and saved.held_out.digest is None:
        why = f"is missing; {directory} does not say which rows of {rows} were held out, as of one fold of several"
        raise UsageError("--dev", why, "name the rows to score; predictions-dev.jsonl has those of the fold")


def origin_of_rows(saved: "TableTask | None", described: "TableTask", rows: "Sequence[Row]") -> str | None:
    """A line if rows are scored that were held out of the training file, or whose texts are in it.

    Args:
        saved: The task that a run saved beside its model.
        described: The task whose rows are scored.
        rows: The scored rows.
    """
    from albert.columns.statistics import rows_with_texts_of

    if saved is None:
        return None
    if described.dev is None:
        return f"the rows of {described.train} that were held out of training"
    trained = training_rows(saved)
    if trained is not None:
        seen = rows_with_texts_of(trained.task, trained.tables["train"].rows, rows)
        if not seen:
            return None
        verb = "has" if seen == 1 else "have"
        return f"{seen:,} of {counted(len(rows), 'rows')} {verb} a text of {saved.train}, which {TRAINED_ON}"
    if saved.held_out.digest != input_hash(described.dev):
        return None
    return f"{described.dev} is the file that {TRAINED_ON}"


TRAINED_ON = "the model was trained on: these scores do not hold for other rows"


def training_rows(saved: "TableTask") -> "ReadTask | None":
    """The rows that a model was trained on; None if the file is gone or was changed, or for one fold of several."""
    from albert.columns.read import read_task

    if saved.train is None or not saved.train.exists():
        return None
    if saved.dev is None and saved.held_out.digest != input_hash(saved.train):
        return None
    try:
        return read_task(dataclasses.replace(saved, dev=None), hold_out=saved.dev is None)
    except AlbertError:
        return None


def task_from_config(directory: Path, columns: Columns, dev: Path | None) -> "TableTask":
    """Kind and labels from a model's configuration; the options must name the columns, unless it tags words."""
    from albert.checkpoints.config_json import read_config
    from albert.checkpoints.huggingface import kind_of
    from albert.tasks.table_task import TASK_FILE, TableTask

    _, extra = read_config(directory)
    names = extra.get("id2label")
    kind = kind_of(extra)
    is_tagger = kind == "token_classification"
    if kind in ("pretraining", "masked_lm", "encoder"):
        remedy = "albert finetune trains a model with a head on your rows: give that one"
        raise InvalidConfiguration(directory, "is a pre-trained model without a head for a task", remedy)
    if not is_tagger and kind not in ("classification", "pair_classification"):
        why = f"there is no {TASK_FILE} beside it, which says what its head answers"
        raise InvalidConfiguration(directory, why, "name a TASK, or give a model of albert finetune")
    needed = {"--dev": dev}
    if not is_tagger:
        needed |= {"--text": columns.text, "--label": columns.label}
    missing = [name for name, value in needed.items() if value is None]
    if missing:
        why = f"there is no {TASK_FILE} beside it, and your own file needs {', '.join(missing)}"
        raise UsageError(directory, why, "or name a TASK")
    if extra.get("problem_type") == "regression" or (extra.get("problem_type") is None and len(names or ()) == 1):
        return TableTask(kind="regression")
    if not names:
        raise InvalidConfiguration(directory, "its config.json names no labels", "give a fine-tuned model")
    several = extra.get("problem_type") == "multi_label_classification"
    labels = tuple(names[index] for index in sorted(names))
    if is_tagger:
        return TableTask(kind="token-classification", labels=labels)
    return TableTask(kind="multi-label" if several else "classification", labels=labels)


def splits_to_score(
    task: DeclaredTask, split: str | None, dev: Path | None, submission: Path | None
) -> tuple[str, ...]:
    """The named split, else dev; for files to hand in those that the benchmark's server scores."""
    if submission is not None and submission.exists() and not submission.is_dir():
        raise CannotCreate(submission, "is not a directory", "name a directory for the files to hand in")
    if split is not None:
        return (split,)
    if submission is not None and dev is None and task.submission:
        return tuple(task.submission)
    return ("dev",)
