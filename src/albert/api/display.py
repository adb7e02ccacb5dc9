"""Results as text and, in a notebook, as tables with curves; and the picture of a run's curves."""

import contextlib
import html
import io
import math
from collections.abc import Sequence
from pathlib import Path

from albert.runtime.environment import lazy_import
from albert.runtime.errors import MissingInput, Unavailable
from albert.runtime.json_files import read_journal
from albert.training.run_folder import RunFolder

Points = Sequence[tuple[float, float]]


class Displayable:
    """Base of results: `repr` gives aligned text, a notebook shows a table with curves."""

    def title(self) -> str:
        """What the result is, on one line."""
        raise AssertionError("every result has a title")

    def rows(self) -> list[tuple[str, ...]]:
        """A table, headings first; empty for no table."""
        return []

    def remarks(self) -> list[str]:
        """Lines below the table."""
        return []

    def tables(self) -> list[tuple[str, list[tuple[str, ...]]]]:
        """Further tables of a notebook, with their titles."""
        return []

    def curves(self) -> dict[str, Points]:
        """Name -> (step, value) pairs."""
        return {}

    def __repr__(self) -> str:
        rows = [[cell.replace("\n", " ") for cell in row] for row in self.rows()]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = []
        for first, *rest in rows:
            cells = [cell.rjust(width) for cell, width in zip(rest, widths[1:], strict=True)]
            lines.append("  ".join(["", first.ljust(widths[0]), *cells]).rstrip())
        return "\n".join([self.title(), *lines, *self.remarks()])

    def _repr_html_(self) -> str:
        parts = []
        for title, rows in [(self.title(), self.rows()), *self.tables()]:
            lines = [_html_row(row, "td" if number else "th") for number, row in enumerate(rows)]
            parts.append(f"<p><b>{html.escape(title)}</b></p>")
            parts += [f"<table>{''.join(lines)}</table>"] if lines[1:] else []
        parts += [f"<p>{html.escape(line)}</p>" for line in self.remarks()]
        try:
            parts += [svg_curve(name, points) for name, points in self.curves().items()]
        except Unavailable as error:
            parts.append(f"<p>No curves are drawn: {html.escape(str(error))}</p>")
        return "<div>" + "\n".join(parts) + "</div>"


def _html_row(cells: Sequence[str], tag: str) -> str:
    aligned = [f'style="text-align:{"right" if column else "left"}">{html.escape(c)}' for column, c in enumerate(cells)]
    return f"<tr>{''.join(f'<{tag} {cell}</{tag}>' for cell in aligned)}</tr>"


def svg_curve(name: str, points: Points) -> str:
    """A curve as an SVG picture."""
    figure = lazy_import("matplotlib.figure", "plots").Figure(figsize=(3.2, 1.8))
    axes = figure.subplots()
    axes.plot([x for x, _ in points], [y for _, y in points])
    axes.set(title=name, xlabel="step")
    picture = io.StringIO()
    figure.savefig(picture, format="svg", bbox_inches="tight")
    return picture.getvalue().partition("?>")[2]


def journal_curves(run: Path, evaluations: Sequence[str] = ()) -> dict[str, Points]:
    """The training loss of a run and the named evaluation figures; curves of fewer than two points are left out."""
    journal = RunFolder(run).journal_path
    records = read_journal(journal) if journal.is_file() else []
    curves = {}
    for event, name in (("train", "loss"), *(("evaluation", name) for name in evaluations)):
        values = [(r["step"], r.get(name)) for r in records if r["event"] == event]
        points = [(float(x), float(y)) for x, y in values if isinstance(y, int | float) and math.isfinite(y)]
        if len(points) > 1:
            curves[f"{'training ' if event == 'train' else ''}{name.replace('_', ' ')}"] = points
    return curves


CURVES_NAME = "curves.png"


def draw_curves(run: Path) -> None:
    """Draw the curves of a finished run into its folder, if they changed and matplotlib is installed."""
    picture = run / CURVES_NAME
    journal = RunFolder(run).journal_path
    is_current = picture.exists() and picture.stat().st_mtime >= journal.stat().st_mtime
    if is_current:
        return
    with contextlib.suppress(Unavailable, MissingInput):  # no matplotlib, or no update that was taken
        pictures = lazy_import("albert.report.pictures", "plots")
        runs = lazy_import("albert.report.curves").read_runs([run])
        pictures.draw_runs(runs, picture)
