"""The columns of the tables: what a figure is called in the paper, and where ours comes from."""

from dataclasses import dataclass
from typing import Literal

from albert.experiments.published_scores import DOWNSTREAM, INTRINSIC
from albert.experiments.tables.scales import Scale
from albert.experiments.tables.smoothness import SMOOTHNESS
from albert.pretraining.intrinsic_evaluation import MASKED_TOKENS, SENTENCE_TESTS

ColumnKind = Literal["intrinsic", "downstream", "average", "parameters", "speed-up", "hours", "layers"]

AVERAGE = "average"
PARAMETERS = "parameters"
SPEED_UP = "speed-up"
HOURS = "hours"
INTRINSIC_TESTS: dict[str, str] = dict(
    zip(INTRINSIC, (MASKED_TOKENS, SENTENCE_TESTS["nsp"], SENTENCE_TESTS["sop"]), strict=True)
)
"""Column -> what `cross_evaluation` calls the test."""


@dataclass(frozen=True)
class Column:
    """A column of scores in points of 100, or of what needs no run.

    Args:
        name: as the paper's tables as data have it.
        kind: where the figure comes from: held-out text, a task, the mean of the five tasks, a formula, a measurement,
            the movement of layers.
        source: of "intrinsic" the test; of "downstream" the task.
        score: of "downstream" the score of the task.
        published: what the paper's table calls it, where that is something else.
    """

    name: str
    kind: ColumnKind
    source: str = ""
    score: str = ""
    published: str | None = None


def layer_columns() -> tuple[Column, ...]:
    """What is read off Figure 1, in percent."""
    return tuple(Column(name, "layers") for name in SMOOTHNESS)


def intrinsic_columns() -> tuple[Column, ...]:
    """Held-out masked tokens, next sentences and sentence order: at every scale, for every arm."""
    return tuple(Column(name, "intrinsic", test) for name, test in INTRINSIC_TESTS.items())


def task_columns(scale: Scale) -> tuple[Column, ...]:
    """The scores of all tasks that a scale learns."""
    return tuple(
        Column(name, "downstream", task.task, score) for task in scale.tasks for name, score in task.columns.items()
    )


def score_columns(scale: Scale, published: tuple[str, ...] = DOWNSTREAM) -> tuple[Column, ...]:
    """Held-out figures, and the scores of tasks: those that the paper's table has, where the scale learns all of them
    with their average; else all that the scale learns.

    Args:
        scale: what is learnt.
        published: the columns of the paper's table.
    """
    learnt = {column.name: column for column in task_columns(scale)}
    if set(published) <= set(learnt):
        downstream = tuple(learnt[name] for name in published)
        average = (Column(AVERAGE, "average"),) if set(DOWNSTREAM) <= set(published) else ()
        return (*intrinsic_columns(), *downstream, *average)
    return (*intrinsic_columns(), *learnt.values())
