"""Checks of options before torch is imported: missing inputs, unknown tasks and existing outputs are refused at once.

The functions behind the commands check more, when they open the inputs."""

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from albert.runtime.environment import lazy_import
from albert.runtime.errors import CannotCreate, MissingInput, UsageError

_FILES = ("train", "dev", "test", "input", "runs")
_MODELS = ("model", "models", "init", "teacher")
"""Options that name models."""


def check_options(options: object, resumes: bool = False) -> None:
    """Check the inputs and the output of any command.

    Args:
        resumes: whether the command goes on with what is in an existing output.

    Raises:
        MissingInput: a file, a folder or a local model does not exist.
        UsageError: a revision of a model that is here.
        CannotCreate: the output exists, and is not replaced; or it is a file where a run's folder is expected.
    """
    values: dict[str, object] = {name: getattr(options, name, None) for name in _FILES}
    data = getattr(options, "data", None)
    corpora = data if isinstance(data, tuple) else ()
    values["data"] = corpora
    for name in ("train", "dev", "test"):
        if Path("-") in _paths([values[name]]) and not Path("-").exists():
            why = "standard input is not read here"
            raise UsageError(f"--{name} -", why, f"save it in a file first: cat > {name}.csv; --{name} {name}.csv")
    for path in _paths(values.values()):
        if not path.exists():
            raise MissingInput(path, "No such file or directory", _remedy(path))
    for name in ("train", "dev", "test", "input"):
        refuse_model(getattr(options, name, None))
    for corpus in corpora:
        check_corpus(corpus)
    for name in _MODELS:
        models = getattr(options, name, None)
        for model in models if isinstance(models, tuple) else [models]:
            if isinstance(model, str) and model:
                check_model(model)
    output = getattr(options, "output", None)
    is_new = getattr(options, "replace", True) is False and not resumes
    if resumes and isinstance(output, Path) and os.path.lexists(output) and not output.is_dir():
        raise CannotCreate(output, "is a file, a folder is expected", "choose another --output")
    if is_new and isinstance(output, Path) and os.path.lexists(output):
        raise CannotCreate(output, "exists already", "choose another name, or add --replace")


def refuse_model(rows: object) -> None:
    """Raise UsageError for a run or a model in the place of a file of rows."""
    for path in _paths([rows]):
        if (path / "recipe.json").is_file():
            raise UsageError(path, "is a run of albert, rows are expected", "name a file of rows")
        if (path / "config.json").is_file():
            raise UsageError(path, "is a model, rows are expected", "name a file of rows")


def _remedy(path: Path) -> str | None:
    """What to do if this may be a data set of the Hub, or a pattern."""
    name = path.as_posix()
    if name.startswith("hf:/") or (name.count("/") == 1 and not path.suffix and not path.parent.exists()):
        return "fetch a data set of the Hub (hf download --repo-type dataset OWNER/NAME), and name one of its files"
    if any(sign in name for sign in "*?["):
        return "name one file; tables with the same columns are joined first"
    return None


def _paths(values: Iterable[object]) -> Iterator[Path]:
    """The paths in values; without addresses and standard input."""
    for value in values:
        for each in value if isinstance(value, tuple | list) else [value]:
            if isinstance(each, Path):
                yield each
            elif isinstance(each, str) and each not in ("", "-") and "://" not in each:
                yield Path(each)


def check_model(model: str) -> None:
    """Raises MissingInput if this is neither a local model nor a Hub id."""
    directory = lazy_import("albert.checkpoints.hub").find_local_model(model)
    if directory is None or any(directory.glob("config.json")) or any(directory.glob("*/config.json")):
        return
    raise MissingInput(directory, "is not a model: it has no config.json", "name a model directory, a run or a Hub id")


def check_corpus(directory: Path) -> None:
    """Raises MissingInput or DamagedData unless this is a prepared corpus."""
    lazy_import("albert.text.shards").read_description(directory)


def check_data(task: str, data: Path | None, has_files: bool) -> None:
    """Check the name of a task, and the folder of its files unless all of them are given."""
    lazy_import("albert.tasks.submission").find_task(task)
    if data is None and not has_files:
        raise UsageError("--data", "is missing; the task's files are looked for there", "name their folder")
    if data is not None and not data.is_dir():
        raise MissingInput(data, "is not a directory", f"name the folder with the files of {task}")


def check_options_of_task(task: str, given: Mapping[str, bool]) -> None:
    """Raises UsageError for an option of `predict` that only other tasks have; `given` says which are given."""
    pipelines = lazy_import("albert.tasks.pipelines").row_pipelines()
    for option, is_given in given.items():
        names = [name for name, pipeline in pipelines.items() if option in pipeline.file_options]
        if is_given and names and task not in names:
            raise UsageError(option, f"requires --task {' or '.join(names)}, not {task}")
