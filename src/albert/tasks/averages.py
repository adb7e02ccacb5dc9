"""The averages that papers print: which scores of which tasks they are the mean of."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from albert.tasks import glue, race, squad
from albert.tasks.task import Published


@dataclass(frozen=True)
class Average:
    """The mean over tasks of the mean of some scores of each: `parts` maps a task's name to them.

    `published` are averages from the literature. `diagnostics` are sets that belong to the benchmark and not to the
    average, each with the task whose model answers it.
    """

    name: str
    parts: Mapping[str, tuple[str, ...]]
    published: tuple[Published, ...] = ()
    diagnostics: Mapping[str, str] = field(default_factory=dict)

    def of(self, scores: Mapping[str, Mapping[str, float | None]]) -> float | None:
        """The average in points; None when a score is missing or undefined: no subset is averaged.

        Args:
            scores: of each task by name. Those on a further split of a task are called `score/split`.
        """
        means = []
        for task, names in self.parts.items():
            values = [scores.get(task, {}).get(name) for name in names]
            known = [value for value in values if value is not None]
            if len(known) < len(names):
                return None
            means.append(sum(known) / len(known))
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
"""Table 9's Avg of test sets: of the pairs, which count half each, the table shows one. Without the diagnostic set."""

FIVE_TASKS_AVERAGE = Average(
    "five tasks, as the paper's Tables 2 to 8 average",
    {
        squad.SQUAD_1.name: ("span_f1", "span_exact_match"),
        squad.SQUAD_2.name: ("best_f1", "best_exact"),
        glue.MNLI.name: ("accuracy",),
        glue.SST2.name: ("accuracy",),
        race.RACE.name: ("accuracy",),
    },
)
"""Avg of development sets; SQuAD 2.0 with the threshold that suits its development set best, as the paper has it."""

BENCHMARKS = {"glue": GLUE_AVERAGE}
"""What can be fine-tuned as a whole, by name."""
