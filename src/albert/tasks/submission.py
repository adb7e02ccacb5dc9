"""All declared tasks by name, and prediction files for the benchmarks' servers.

GLUE: a table of `index` and `prediction`, which is a label of the data, or a number within the range of the scores.
SQuAD: an object of question to text, "" for no answer; if a question may have no answer, also an object of question to
the probability of no answer, which the official script takes as `--na-prob-file` (a probability is never above its
threshold of 1, so it changes no decision). RACE: an object of question to letter. Labels and tags: an object of example
to list."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from albert.runtime.errors import UsageError, did_you_mean
from albert.tasks import glue, race, squad
from albert.tasks.declared import DeclaredTask

DECLARED: dict[str, DeclaredTask] = {task.name: task for task in (*glue.TASKS, *squad.TASKS, *race.TASKS)}


def submission_files(task: DeclaredTask, split: str, entries: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """The files to submit for a split: name to content. Splits that are not submitted are named after task and split.

    Args:
        entries: one object per example with `id` and `prediction`, as `albert evaluate --predictions` writes them.
    """
    return task.target.submission_files(task.submission.get(split, f"{task.name}-{split}"), entries)


def find_task(name: str) -> DeclaredTask:
    """The task with this name, ignoring case and punctuation; UsageError with the closest name if there is none."""
    wanted = _letters_and_digits(name)
    if wanted == "glue":
        names = ", ".join(task.name for task in glue.TASKS)
        remedy = "name one of them; in a checkout python -m experiments.glue trains and scores all"
        raise UsageError("task glue", f"is a benchmark of several tasks: {names}", remedy)
    for task in DECLARED.values():
        if _letters_and_digits(task.name) == wanted:
            return task
    if Path(name).is_file():
        why = "is a file, where the name of a task is expected"
        raise UsageError(name, why, f"a file of your own is given as --train {name}")
    raise UsageError(f"task {name}", "unknown", did_you_mean(name.lower(), DECLARED))


def _letters_and_digits(text: str) -> str:
    return "".join(character for character in text.lower() if character.isalnum())
