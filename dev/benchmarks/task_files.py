"""The files of declared tasks for a benchmark, in one of several folders."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from albert.runtime.errors import MissingInput, UsageError
from albert.tables.table import Table
from albert.tasks.declared import DeclaredTask
from albert.tasks.examples import Example
from albert.tasks.submission import find_task


@dataclass(frozen=True)
class FoundTask:
    """A task with its files, their folder, and the development set."""

    task: DeclaredTask
    data: Path
    dev: Table

    def examples(self, split: str) -> list[Example]:
        """All labelled examples of a split."""
        rows = self.dev if split == "dev" else self.task.source.read(self.data, split)
        return self.task.examples(rows.rows)


def find_files(name: str, folders: Sequence[Path]) -> FoundTask:
    """Find the files of a declared task.

    Args:
        name: the task.
        folders: data folders; the first one with the task's development set is used.

    Raises:
        UsageError: no such task.
        MissingInput: no folder has it.
    """
    task = find_task(name)
    missing: list[MissingInput] = []
    for folder in folders:
        try:
            return FoundTask(task, folder, task.source.read(folder, "dev"))
        except MissingInput as error:
            missing.append(error)
    raise missing[0] if missing else UsageError("--data", "names no folder")
