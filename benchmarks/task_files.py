"""Where a benchmark finds the files of declared tasks: some folders, and files in the place of published ones."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from albert.experiments.jobs import parse_file_options, with_files
from albert.runtime.errors import MissingInput, UsageError
from albert.tasks.examples import Example, to_examples
from albert.tasks.submission import find_task
from albert.tasks.task import Rows, Task


@dataclass(frozen=True)
class FoundTask:
    """A task whose files are there, the folder that they are in, and its development set."""

    task: Task
    data: Path
    dev: Rows

    def examples(self, split: str) -> list[Example]:
        """All labelled examples of a split."""
        rows = self.dev if split == "dev" else self.task.source.read(self.data, split)
        return to_examples(self.task, rows.rows)


def find_files(name: str, folders: Sequence[Path], files: Sequence[str]) -> FoundTask:
    """A declared task with its files.

    Args:
        name: of the task.
        folders: data folders; the first that has the task's development set is taken.
        files: "TASK/SPLIT=FILE" each, a file in the place of the published one and in its layout.

    Raises:
        UsageError: no such task, or a file that is not told so.
        MissingInput: none of the folders has it.
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
