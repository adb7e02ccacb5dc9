"""A declared task with the place of its files on this machine."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from albert.runtime.errors import UsageError
from albert.tasks.declared import find_task
from albert.tasks.task import Task


@dataclass(frozen=True)
class TaskFiles:
    """What is learnt, and the folder in which its files are."""

    task: Task
    folder: Path


def own_files(said: Iterable[str]) -> dict[str, dict[str, Path]]:
    """Files in the place of published ones, by task and split.

    Args:
        said: "TASK/SPLIT=FILE" each, a file in the layout of the published one.

    Raises:
        UsageError: one is not of that form, or there is no such task.
    """
    found: dict[str, dict[str, Path]] = {}
    for each in said:
        place, _, file = each.partition("=")
        task, _, split = place.rpartition("/")
        if not (task and split and file):
            raise UsageError("--files", f"{each!r} is not TASK/SPLIT=FILE", "write qnli/train=mine.tsv")
        found.setdefault(find_task(task).name, {})[split] = Path(file)
    return found


def with_files(task: Task, files: dict[str, Path] | None) -> Task:
    """The task with other files for some splits."""
    return replace(task, source=task.source.with_files(files)) if files else task
