"""How results show themselves: as text and, in a notebook, as tables with curves.

Everything that is shown is rows; one renderer makes text of them, another HTML. Curves are small SVG pictures of what a
run's journal tells."""

import html
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from albert.runtime.json_files import read_journal
from albert.training.run_folder import RunFolder

Points = Sequence[tuple[float, float]]
_HIDDEN = ("thresh",)
"""Scores with these in their name are settings that were chosen, and have no constant to compare with."""


def shown(value: float | None) -> str:
    """A score with two decimals."""
    return "undefined" if value is None else f"{value:.2f}"


class Shown:
    """A result that shows itself: `repr` gives aligned text, a notebook a table with curves."""

    def title(self) -> str:
        """What it is, on one line."""
        raise AssertionError("every result has a title")

    def rows(self) -> list[tuple[str, ...]]:
        """A table, its headings first; no rows where there is nothing to tell."""
        return []

    def remarks(self) -> list[str]:
        """Lines below the table."""
        return []

    def curves(self) -> dict[str, Points]:
        """Numbers against steps, by their name."""
        return {}

    def __repr__(self) -> str:
        rows = self.rows()
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        cells = (
            [c.rjust(w) if at else c.ljust(w) for at, (c, w) in enumerate(zip(row, widths, strict=True))]
            for row in rows
        )
        return "\n".join([self.title(), *("  " + "  ".join(row).rstrip() for row in cells), *self.remarks()])

    def _repr_html_(self) -> str:
        """The same for a notebook."""
        heading, *rows = self.rows() or [()]
        parts = [f"<p><b>{html.escape(self.title())}</b></p>"]
        if rows:
            lines = [_html_row(heading, "th"), *(_html_row(row, "td") for row in rows)]
            parts.append(f"<table>{''.join(lines)}</table>")
        parts += [f"<p>{html.escape(line)}</p>" for line in self.remarks()]
        parts += [svg_curve(name, points) for name, points in self.curves().items()]
        return "<div>" + "\n".join(parts) + "</div>"


def _html_row(cells: Sequence[str], tag: str) -> str:
    aligned = (f'<{tag} style="text-align:{"right" if place else "left"}">' for place in range(len(cells)))
    return "<tr>" + "".join(f"{a}{html.escape(c)}</{tag}>" for a, c in zip(aligned, cells, strict=True)) + "</tr>"


def svg_curve(name: str, points: Points, width: int = 260, height: int = 130) -> str:
    """A curve as an SVG picture, with its smallest and largest value and the last step."""
    xs, ys = [x for x, _ in points], [y for _, y in points]
    low, high, last = min(ys), max(ys), max(xs)
    left, top, right, bottom = 46, 20, width - 8, height - 18

    def place(x: float, y: float) -> str:
        across = x / last if last else 0.0
        up = (y - low) / (high - low) if high > low else 0.5
        return f"{left + across * (right - left):.1f},{bottom - up * (bottom - top):.1f}"

    label = 'font-size="10" fill="currentColor"'
    line = " ".join(place(x, y) for x, y in points)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" role="img">'
        f"<title>{html.escape(name)}</title>"
        f'<text x="{left}" y="12" {label}>{html.escape(name)}</text>'
        f'<text x="{left - 4}" y="{top + 4}" text-anchor="end" {label}>{high:.4g}</text>'
        f'<text x="{left - 4}" y="{bottom}" text-anchor="end" {label}>{low:.4g}</text>'
        f'<text x="{right}" y="{height - 4}" text-anchor="end" {label}>step {last:,.0f}</text>'
        f'<path d="M{left} {top}V{bottom}H{right}" fill="none" stroke="currentColor" stroke-opacity="0.4"/>'
        f'<polyline points="{line}" fill="none" stroke="#0072B2" stroke-width="1.5"/></svg>'
    )


def journal_curves(run: Path, evaluations: Sequence[str] = ()) -> dict[str, Points]:
    """The training loss of a run, and figures of its evaluations; of what has two values or more.

    Args:
        run: the run's directory.
        evaluations: names in the journal.
    """
    journal = RunFolder(run).journal_path
    records = read_journal(journal) if journal.is_file() else []
    found = {}
    for event, name in (("train", "loss"), *(("evaluation", name) for name in evaluations)):
        values = [(r["step"], r.get(name)) for r in records if r["event"] == event]
        points = [(float(x), float(y)) for x, y in values if isinstance(y, int | float) and math.isfinite(y)]
        if len(points) > 1:
            found[f"{'training ' if event == 'train' else ''}{name.replace('_', ' ')}"] = points
    return found


def score_rows(
    scores: Mapping[str, float | None],
    baseline: Mapping[str, float | None] | None,
    linear: Mapping[str, Any] | None = None,
) -> list[tuple[str, ...]]:
    """Scores beside the best constant answer's and, where there is one, the linear model's."""
    others: dict[str, Mapping[str, float | None]] = {}
    if baseline is not None:
        others["best constant"] = baseline
    if linear is not None and linear["scores"]:
        others[linear["method"]] = linear["scores"]
    rows = [("", "score", *others)]
    for name, value in scores.items():
        beside = (shown(o[name]) if name in o and not any(h in name for h in _HIDDEN) else "" for o in others.values())
        rows.append((name, shown(value), *beside))
    return rows if len(rows) > 1 else []
