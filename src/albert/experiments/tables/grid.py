"""A table of the paper as an experiment: which runs, which columns, and what the paper has in their place."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from albert.experiments.published_scores import PUBLISHED_TABLES, PublishedRow, PublishedTable
from albert.experiments.tables.arms import Arm
from albert.experiments.tables.columns import Column
from albert.experiments.tables.scales import ScaleName

Compute = Literal["equal updates", "equal time", "as published", "none"]
"""What the arms of a table have in common: the same updates of the same batch and length; about the same time on the
machine that the scale is meant for; what each was published with; or there is nothing to train."""
FigureKind = Literal["layers", "curves", "bars", "depth", "arms"]
"""What is drawn: movement of every layer (Fig. 1), held-out curves of runs (Fig. 2), a bar for each row, scores against
depth or width, scores of the arms side by side."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """A row: the paper's and ours.

    Args:
        name: as the paper's tables as data name it; claims name rows so.
        label: what it is at this scale, where that is another number.
        arm: what is trained for it; None: this scale has no counterpart, or the row is of somebody else's model.
        preset: the architecture that the paper's row is of; None: it is no ALBERT or BERT of the paper.
    """

    name: str
    label: str
    arm: Arm | None
    preset: str | None = None


@dataclass(frozen=True, kw_only=True)
class Grid:
    """An experiment at a scale.

    Args:
        table: its name, as `albert tables run` takes it.
        title: what is compared.
        scale: at which scale.
        rows: in the order of the paper.
        columns: what is told of each row.
        published: the paper's figures; None: a figure without any.
        compute: what is equal between the arms.
        figure: what is drawn of it.
        notes: what a reader should know: of the paper's figures, or of this scale.
    """

    table: str
    title: str
    scale: ScaleName
    rows: tuple[Row, ...]
    columns: tuple[Column, ...]
    published: PublishedTable | None
    compute: Compute
    figure: FigureKind | None = None
    notes: tuple[str, ...] = ()

    def row(self, name: str) -> Row:
        """The row of that name. Raises KeyError when there is none."""
        return {row.name: row for row in self.rows}[name]

    def published_row(self, name: str) -> PublishedRow | None:
        """The paper's row of that name; None where it has none."""
        rows = () if self.published is None else self.published.rows
        return {row.arm: row for row in rows}.get(name)

    def arms(self) -> Iterator[Arm]:
        """What is trained for it, without what some of them begin as; an arm of two rows comes once."""
        seen: list[Arm] = []
        for row in self.rows:
            if row.arm is not None and row.arm not in seen:
                seen.append(row.arm)
                yield row.arm


def published_table(name: str) -> PublishedTable:
    """The paper's figures of a table."""
    return PUBLISHED_TABLES[name]
