"""All declared tasks by name, benchmark averages, ensembles, and prediction files for the benchmarks' servers.

GLUE: a table of `index` and `prediction`, which is a label of the data, or a number within the range of the scores.
SQuAD: an object of question to text, "" for no answer; if a question may have no answer, also an object of question to
the probability of no answer, which the official script takes as `--na-prob-file` (a probability is never above its
threshold of 1, so it changes no decision). RACE: an object of question to letter. Labels and tags: an object of example
to list."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from albert.runtime.errors import UsageError, did_you_mean
from albert.tasks import glue, race, squad
from albert.tasks.declared import DeclaredTask, Published

# --------------------------------------------------------------------------------------------------------------------
# Averages over the tasks of a benchmark.


@dataclass(frozen=True)
class Average:
    """The mean over tasks of the mean of some scores of each.

    Attributes:
        parts: task -> scores; those on a further split are called `score/split`.
        diagnostics: tasks that belong to the benchmark but not to the average -> the task whose model predicts them.
    """

    name: str
    parts: Mapping[str, tuple[str, ...]]
    published: tuple[Published, ...] = ()
    diagnostics: Mapping[str, str] = field(default_factory=dict)

    def of(self, scores: Mapping[str, Mapping[str, float | None]]) -> float | None:
        """The average in points, from scores by task and name; None if a score is missing or undefined."""
        means = []
        for task, names in self.parts.items():
            values = [value for name in names if (value := scores.get(task, {}).get(name)) is not None]
            if len(values) < len(names):
                return None
            means.append(sum(values) / len(values))
        return sum(means) / len(means)


GLUE_AVERAGE = Average(
    "GLUE, as its leaderboard averages",
    {
        glue.COLA.name: ("matthews_correlation",),
        glue.SST2.name: ("accuracy",),
        glue.MRPC.name: ("f1", "accuracy"),
        glue.STSB.name: ("pearson", "spearman"),
        glue.QQP.name: ("f1", "accuracy"),
        glue.MNLI.name: ("accuracy", "accuracy/dev_mismatched"),
        glue.QNLI.name: ("accuracy",),
        glue.RTE.name: ("accuracy",),
        glue.WNLI.name: ("accuracy",),
    },
    published=(
        Published("albert-xxlarge-v1, ensemble", "average", 89.4, "arXiv:1909.11942v6 Table 9, test, ensemble"),
    ),
    diagnostics={glue.AX.name: glue.MNLI.name},
)
"""Table 9's Avg of test sets, without the diagnostic set; of pairs of scores, which count half each, it shows one."""

BENCHMARKS = {"glue": GLUE_AVERAGE}
"""Benchmarks that can be fine-tuned as a whole."""


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
    for task in DECLARED.values():
        if _letters_and_digits(task.name) == wanted:
            return task
    if Path(name).is_file():
        why = "is a file, where the name of a task is expected"
        raise UsageError(name, why, f"a file of your own is given as --train {name}")
    raise UsageError(f"task {name}", "unknown", did_you_mean(name.lower(), DECLARED))


def _letters_and_digits(text: str) -> str:
    return "".join(character for character in text.lower() if character.isalnum())
