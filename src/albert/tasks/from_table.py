"""How a kind of task is learned from a table of the user's. Each kind says so of itself, in its own file.

`albert.columns` asks the kinds in the order of the methods below, and knows none of them by name."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from albert.recipes.finetuning import TaskRecipe
from albert.tables.table import Table
from albert.tasks.inputs import ReadColumns
from albert.tasks.metrics import Metric
from albert.tasks.table_task import TableTask

if TYPE_CHECKING:
    from albert.tasks.task import Task


@dataclass(frozen=True)
class Inferred:
    """An inferred setting: its name, value, reason, and the option that overrides it."""

    what: str
    value: str
    why: str
    override: str


@dataclass(frozen=True)
class Recognised:
    """A table is of a kind: the task as the kind understands it, the reason, and the options that override it."""

    task: TableTask
    why: str
    override: str


@dataclass(frozen=True)
class TableDeclaration:
    """What is declared of a complete task: what a model reads, what it learns, and the same as a sentence."""

    table_task: TableTask
    inputs: ReadColumns
    target: "Task"
    about: str


class FromTable(ABC):
    """What a kind says about the tables that it is learned from."""

    needed_columns: ClassVar[tuple[str, ...]]
    """The fields of `TableTask` that name the columns it cannot do without."""
    further_columns: ClassVar[tuple[str, ...]] = ()
    """Those of columns that it may have."""
    own_settings: ClassVar[tuple[str, ...]] = ()
    """Settings that only some kinds have, among them this one."""
    table_recipe: ClassVar[TaskRecipe] = TaskRecipe(learning_rate=2e-5, batch_size=32, epochs=3.0)

    @classmethod
    def named_columns(cls, task: TableTask, table: Table, inferred: list[Inferred]) -> TableTask | None:
        """The task with the columns that it has by their usual names; None if they are not those of this kind."""
        return None

    @classmethod
    def recognised(cls, task: TableTask, table: Table) -> Recognised | None:
        """Whether a table whose kind is not said is of this one; UsageError if it may be of another one, too."""
        return None

    @classmethod
    def converted(
        cls, task: TableTask, table: Table, source: object, inferred: list[Inferred]
    ) -> tuple[TableTask, Table]:
        """The table with values that the kind understands, in the place of what people write into cells."""
        return task, table

    @classmethod
    def text_columns(cls, task: TableTask) -> tuple[str | None, ...]:
        """The columns of texts of which one must be filled, so that a row says something; all rows are kept if none."""
        return ()

    @classmethod
    def completed(
        cls, task: TableTask, table: Table, source: object, inferred: list[Inferred], to_learn: bool
    ) -> tuple[TableTask, Table]:
        """The task with what the rows say about it, such as its labels.

        Args:
            to_learn: whether the rows are for training; otherwise what the task says is applied.
        """
        return task, table

    @classmethod
    def prepared(cls, task: TableTask, table: Table) -> Table:
        """The rows as `Task.example` reads them."""
        return table

    @classmethod
    @abstractmethod
    def of_table(cls, task: TableTask, tables: Mapping[str, Table]) -> TableDeclaration:
        """The declaration of a complete task, of which all rows are prepared."""

    @classmethod
    @abstractmethod
    def possible_metrics(cls, task: TableTask) -> dict[str, Metric]:
        """The metrics that a user may choose, by name."""

    @classmethod
    def usual_metrics(cls, task: TableTask) -> tuple[Metric, ...]:
        """The metrics if none is chosen; the first selects models."""
        return tuple(cls.possible_metrics(task).values())


def metrics_by_name(*metrics: Metric) -> dict[str, Metric]:
    """Metrics as `FromTable.possible_metrics` has them."""
    return {metric.__name__: metric for metric in metrics}


def quoted_columns(*columns: str | None) -> str:
    """The names of columns in a sentence."""
    return " and ".join(f"`{column}`" for column in columns if column)
