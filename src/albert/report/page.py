"""A result as HTML: a page of one file without scripts or external resources, for a phone and a screen, and the part
of it that a notebook shows. `page.html` is the template.

A page says no times, so that equal runs have equal pages."""

import functools
import math
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any

from albert.report.curves import Points
from albert.report.tables import (
    NOTHING,
    SHOWN_CLASSES,
    SHOWN_ERRORS,
    Table,
    calibration_table,
    class_table,
    confusion_table,
    error_cells,
    errors_title,
)
from albert.runtime.environment import lazy_import

PAGE_NAME = "report.html"
"""In the folder of a run."""
MATRIX_CLASSES = 30
"""Classes of the confusion matrix; of more, those with the most errors."""
SHOWN_CONFUSIONS = 10
CURVE_POINTS = 400


def page(heading: str, **parts: Any) -> str:
    """A page; for the parts see `fragment`."""
    return _render(heading, is_page=True, **parts)


def fragment(heading: str, **parts: Any) -> str:
    """HTML for a notebook.

    Args:
        parts: those of `_render`.
    """
    return _render(heading, is_page=False, **parts)


def _render(
    heading: str,
    is_page: bool,
    *,
    summary: str = "",
    advice: Sequence[str] = (),
    tables: Sequence[Table] = (),
    curves: Mapping[str, Points] | None = None,
    analysis: Mapping[str, Any] | None = None,
    notes: Sequence[str] = (),
) -> str:
    """The template filled in.

    Args:
        analysis: where a model is right and wrong; a notebook shows fewer classes and errors.
    """
    shown = {"heading": heading, "is_page": is_page, "summary": summary, "advice": advice, "tables": tables}
    most = (None, None) if is_page else (SHOWN_CLASSES, SHOWN_ERRORS)
    return _template().render(
        **shown,
        curves=[_curve(title, points) for title, points in (curves or {}).items()],
        notes=notes,
        **_analysis(analysis or {}, *most),
    )


@functools.cache
def _template() -> Any:
    jinja2 = lazy_import("jinja2")
    environment = jinja2.Environment(autoescape=True, trim_blocks=True, undefined=jinja2.ChainableUndefined)
    return environment.from_string((files("albert.report") / "page.html").read_text(encoding="utf-8"))


# --------------------------------------------------------------------------------------------------------------------
# Where the model is right and wrong.


def _analysis(analysis: Mapping[str, Any], most_classes: int | None, most_errors: int | None) -> dict[str, Any]:
    """What the template shows of an analysis; see `albert.tasks.error_analysis`."""
    tables = [
        class_table(analysis.get("per_class"), most_classes),
        confusion_table(analysis.get("confusion"), SHOWN_CONFUSIONS),
    ]
    errors = analysis.get("errors") or []
    return {
        "before_errors": [table for table in tables if table is not None],
        "matrix": _matrix(analysis.get("confusion")),
        "errors_title": errors_title(errors) if errors else "",
        "errors": [_error(error) for error in errors[:most_errors]],
        "calibration": calibration_table(analysis.get("calibration")),
    }


def _error(error: Mapping[str, Any]) -> dict[str, str]:
    right, predicted, score = error_cells(error)
    texts = {"words": error.get("words", ""), "text": error["text"]}
    return {**texts, "right": right, "predicted": predicted, "score": score}


def _matrix(confusion: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """The counts of classes that were predicted for each other; None for several labels per example."""
    if not confusion or not confusion["counts"] or isinstance(confusion["counts"][0][0], list):
        return None
    counts = confusion["counts"]
    names = [label or NOTHING for label in confusion["labels"]]
    shown = list(range(len(names)))
    title = "Confusion matrix"
    if len(names) > MATRIX_CLASSES:
        wrong = [sum(counts[i]) + sum(row[i] for row in counts) - 2 * counts[i][i] for i in shown]
        shown = sorted(sorted(shown, key=lambda index: -wrong[index])[:MATRIX_CLASSES])
        title = f"Confusion matrix of the {MATRIX_CLASSES} classes with the most errors"
    rows = []
    for row in shown:
        total = max(1, sum(counts[row]))
        cells = []
        for column in shown:
            count = counts[row][column]
            colour, most = ("36 87 197", 0.6) if row == column else ("214 64 43", 0.8)
            opacity = f"{most * count / total:.2f}"
            cells.append({"colour": colour, "opacity": opacity, "count": f"{count:,}" if count else ""})
        rows.append({"name": names[row], "cells": cells})
    return {"title": title, "names": [names[index] for index in shown], "rows": rows}


# --------------------------------------------------------------------------------------------------------------------
# Curves as SVG, with the lowest and highest values at their axes.

WIDTH = 360
HEIGHT = 190
LEFT = 52
RIGHT = 12
TOP = 26
BOTTOM = 26


def axis_number(value: float) -> str:
    """A number of at most seven characters, which is what the margin has room for: 0.709, 12.3, 7.1e-4."""
    text = f"{value:.3g}"
    if len(text) <= 6:
        return text
    mantissa, _, exponent = f"{value:.1e}".partition("e")
    return f"{mantissa}e{int(exponent)}"


def _curve(title: str, points: Points) -> dict[str, Any]:
    """A curve for the template; of many points, a part at equal distances."""
    every = math.ceil(len(points) / CURVE_POINTS)
    points = [*points[:-1:every], points[-1]]
    first = points[0][0]
    last = points[-1][0]
    low = min(y for _, y in points)
    high = max(y for _, y in points)
    across = (WIDTH - LEFT - RIGHT) / (last - first or 1.0)
    up = (HEIGHT - TOP - BOTTOM) / (high - low or 1.0)
    bottom = HEIGHT - BOTTOM
    labels = (
        (LEFT - 6, TOP + 8, "end", axis_number(high)),
        (LEFT - 6, bottom, "end", axis_number(low)),
        (LEFT, HEIGHT - 8, "start", f"update {first:,.0f}"),
        (WIDTH - RIGHT, HEIGHT - 8, "end", f"{last:,.0f}"),
        (LEFT, 16, "start", title),
    )
    return {
        "title": title,
        "width": WIDTH,
        "height": HEIGHT,
        "axes": f"M{LEFT} {TOP}V{bottom}H{WIDTH - RIGHT}",
        "line": " ".join(f"{LEFT + (x - first) * across:.1f},{bottom - (y - low) * up:.1f}" for x, y in points),
        "labels": [{"x": x, "y": y, "anchor": anchor, "text": text} for x, y, anchor, text in labels],
    }
