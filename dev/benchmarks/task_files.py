"""The files of declared tasks for a benchmark: some folders, and files that replace published ones."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from albert.paper.jobs import parse_file_options, with_files
from albert.runtime.errors import MissingInput, UsageError
from albert.tables.table import Rows
from albert.tasks.examples import Example
from albert.tasks.submission import find_task
from albert.tasks.task import Task


@dataclass(frozen=True)
class FoundTask:
    """A task with its files, their folder, and the development set."""

    task: Task
    data: Path
    dev: Rows

    def examples(self, split: str) -> list[Example]:
        """All labelled examples of a split."""
        rows = self.dev if split == "dev" else self.task.source.read(self.data, split)
        return self.task.examples(rows.rows)


def find_files(name: str, folders: Sequence[Path], files: Sequence[str]) -> FoundTask:
    """Find the files of a declared task.

    Args:
        name: the task.
        folders: data folders; the first one with the task's development set is used.
        files: "TASK/SPLIT=FILE" each, a file that replaces the published one, in its layout.

    Raises:
        UsageError: no such task, or an invalid file option.
        MissingInput: no folder has it.
    """
    task = find_task(name)
    task = with_files(task, parse_file_options(files).get(task.name))
    missing: list[MissingInput] = []
    for folder in folders:
        try:
            return FoundTask(task, folder, task.source.read(folder, "dev"))
        except MissingInput as error:
            missing.append(error)
    raise missing[0] if missing else UsageError("--data", "names no folder")
