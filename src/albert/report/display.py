"""Results as text and in a notebook. What is shown is a title, tables, lines and curves."""

from collections.abc import Mapping, Sequence

from albert.report.curves import Points
from albert.report.tables import Table


class Displayable:
    """Base of results: `repr` gives aligned text, a notebook shows tables and curves."""

    def title(self) -> str:
        """What the result is, on one line."""
        raise AssertionError("every result has a title")

    def rows(self) -> Sequence[Sequence[str]]:
        """A table, headings first; empty for no table."""
        return []

    def tables(self) -> Sequence[Table]:
        """All tables."""
        rows = self.rows()
        return [Table(rows)] if len(rows) > 1 else []

    def remarks(self) -> list[str]:
        """Lines below the tables."""
        return []

    def curves(self) -> Mapping[str, Points]:
        """Name -> (step, value) pairs."""
        return {}

    def __repr__(self) -> str:
        lines = [line for table in self.tables() for line in text_of(table)]
        return "\n".join([self.title(), *lines, *self.remarks()])

    def _repr_html_(self) -> str:
        from albert.report.page import fragment

        return fragment(self.title(), tables=self.tables(), notes=self.remarks(), curves=self.curves())


def text_of(table: Table) -> list[str]:
    """The lines of a table, aligned."""
    cells = [[cell.replace("\n", " ") for cell in row] for row in table.rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = []
    for row in cells:
        aligned = [
            cell.ljust(width) if column in table.words else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(["", *aligned]).rstrip())
    return lines
