"""Where a benchmark finds the files of declared tasks: some folders, and files in the place of published ones."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from albert.runtime.errors import MissingInput, UsageError
from albert.tasks.examples import Example, to_examples
from albert.tasks.submission import find_task
from albert.tasks.task import Rows, Task


@dataclass(frozen=True)
class FoundTask:
    """A task whose files are there, and the folder that they are in."""

    task: Task
    data: Path
    dev: Rows
    """Its development set, which is how it was found."""

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
    own = {}
    for each in files:
        place, _, file = each.partition("=")
        other, _, split = place.rpartition("/")
        if not (other and split and file):
            raise UsageError("--files", f"{each!r} is not TASK/SPLIT=FILE", "write squad-1.1/train=mine.json")
        if find_task(other).name == task.name:
            own[split] = Path(file)
    task = replace(task, source=task.source.with_files(own)) if own else task
    missing: list[MissingInput] = []
    for folder in folders:
        try:
            return FoundTask(task, folder, task.source.read(folder, "dev"))
        except MissingInput as error:
            missing.append(error)
    raise missing[0] if missing else UsageError("--data", "names no folder")
