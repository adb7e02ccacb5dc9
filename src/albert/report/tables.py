"""Tables of scores, classes, confusions and errors, from the content of results.json. The terminal, notebooks and pages
show these same tables."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Scores = Mapping[str, float | None]
"""Name -> value, in points of 100 or in the unit of the numbers; None: undefined."""
SHOWN_CLASSES = 40
"""Of many classes those with the lowest F1, except on a page."""
SHOWN_ERRORS = 5
SHOWN_CHARACTERS = 80
NOTHING = "(none)"
"""In the place of a class: no entity, or no label."""


@dataclass(frozen=True)
class Table:
    """Text in rows and columns.

    Attributes:
        rows: headings first.
        about: a line on the whole, which the terminal shows in the place of the title.
        words: indices of the columns of words; the others contain numbers.
        minor: how many of the last rows are there for comparison only.
    """

    rows: Sequence[Sequence[str]]
    title: str = ""
    about: str = ""
    words: Collection[int] = (0,)
    minor: int = 0


# --------------------------------------------------------------------------------------------------------------------
# Scores.


def format_score(value: float | None) -> str:
    """A score with two decimals."""
    return "undefined" if value is None else f"{value:.2f}"


def is_threshold(name: str) -> bool:
    """Whether a name among scores is that of a threshold that was chosen."""
    return "thresh" in name


def without_thresholds(scores: Scores | None) -> dict[str, float | None]:
    """The scores alone."""
    return {name: value for name, value in (scores or {}).items() if not is_threshold(name)}


def score_in(scores: Scores | None, name: str) -> str:
    """A score, or a dash if there is none of that name."""
    return format_score(scores[name]) if scores is not None and name in scores else "-"


def score_table(columns: Mapping[str, Scores | None], *, title: str = "", corner: str = "") -> Table:
    """A row for each score, and a column for each model or run. Columns without scores are left out. The scores of
    entity types are in the table of classes.

    Args:
        corner: the heading of the names.
    """
    shown = {heading: scores for heading, scores in columns.items() if scores is not None}
    names = dict.fromkeys(name for scores in shown.values() for name in scores if not name.startswith("entity_f1_"))
    rows = [[corner, *shown]]
    for name in names:
        rows.append([name, *(score_in(scores, name) for scores in shown.values())])
    return Table(rows, title)


def compared_scores(
    scores: Scores, simpler: Mapping[str, Scores | None], *, title: str = "", corner: str = ""
) -> Table | None:
    """The scores of a model beside those of simpler ones; None without scores. A threshold is the model's own."""
    if not scores:
        return None
    columns: dict[str, Scores | None] = {"score": scores}
    for heading, others in simpler.items():
        if others:
            columns[heading] = {name: value for name, value in without_thresholds(others).items() if name in scores}
    return score_table(columns, title=title, corner=corner)


# --------------------------------------------------------------------------------------------------------------------
# Where a model is right and wrong; see `albert.tasks.error_analysis`.


def analysis_tables(analysis: Mapping[str, Any]) -> list[Table]:
    """Classes, the largest confusions and the first errors, and the bins of probability."""
    tables = [
        class_table(analysis.get("per_class"), SHOWN_CLASSES),
        confusion_table(analysis.get("confusion"), SHOWN_ERRORS),
        error_table(analysis.get("errors")),
        calibration_table(analysis.get("calibration")),
    ]
    return [table for table in tables if table is not None]


def class_table(per_class: Sequence[Mapping[str, Any]] | None, most: int | None = None) -> Table | None:
    """A row for each class; of more than `most` those with the lowest F1."""
    if not per_class:
        return None
    title = "Classes"
    chosen = list(per_class)
    if most is not None and len(chosen) > most:
        chosen = sorted(chosen, key=lambda row: row["f1"])[:most]
        title = f"The {most} classes with the lowest F1"
    rows = [["class", "precision", "recall", "F1", "count"]]
    for row in chosen:
        points = (f"{row[name]:.1f}" for name in ("precision", "recall", "f1"))
        rows.append([row["class"], *points, f"{row['count']:,}"])
    return Table(rows, title)


def confusion_table(confusion: Mapping[str, Any] | None, most: int) -> Table | None:
    """The largest confusions; None if there are none."""
    if not confusion or not confusion["largest"]:
        return None
    rows = [["right answer", "predicted", "count"]]
    for each in confusion["largest"][:most]:
        rows.append([each["gold"] or NOTHING, each["predicted"] or NOTHING, f"{each['count']:,}"])
    return Table(rows, "Largest confusions", words=(0, 1))


def error_table(errors: Sequence[Mapping[str, Any]] | None) -> Table | None:
    """The beginnings of the first errors; None if there are none."""
    if not errors:
        return None
    last = "difference" if "difference" in errors[0] else "probability"
    rows = [["text", "right", "predicted", last]]
    for error in errors[:SHOWN_ERRORS]:
        text = f"{error['words']}: {error['text']}" if "words" in error else error["text"]
        rows.append([beginning(text, SHOWN_CHARACTERS), *error_cells(error)])
    return Table(rows, errors_title(errors), words=(0, 1, 2))


def errors_title(errors: Sequence[Mapping[str, Any]]) -> str:
    """Errors of numbers are in the order of their difference, others in that of their probability."""
    return "Largest errors" if "difference" in errors[0] else "Most confident errors"


def error_cells(error: Mapping[str, Any]) -> tuple[str, str, str]:
    """The right answer, the prediction, and its probability or the difference of the numbers, as text."""
    right, predicted = (_answer(error[name]) for name in ("gold", "predicted"))
    if "difference" in error:
        return right, predicted, f"{error['difference']:+.4g}"
    of_label = f" for {error['label']}" if "label" in error else ""
    return right, predicted, f"{error['probability']:.2f}{of_label}"


def _answer(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(value) or NOTHING
    return f"{value:.4g}" if isinstance(value, float) else value or NOTHING


def calibration_table(calibration: Mapping[str, Any] | None) -> Table | None:
    """A row for each bin of probability that is not empty, and a verdict."""
    if not calibration:
        return None
    difference = calibration["difference"]
    verdict = "neither too high nor too low"
    if abs(difference) >= 1:
        verdict = f"{abs(difference):.1f} points too {'high' if difference > 0 else 'low'}"
    error = calibration["expected_calibration_error"]
    about = f"Expected calibration error {error:.1f} points; on average the probabilities are {verdict}"
    rows = [["probability", "predictions", "mean probability, %", "accuracy, %"]]
    for each in calibration["bins"]:
        edges = f"{each['from']:.1f}–{each['to']:.1f}"
        rows.append([edges, f"{each['count']:,}", f"{each['probability']:.1f}", f"{each['right']:.1f}"])
    return Table(rows, "Calibration", about)


def beginning(text: str, most: int) -> str:
    """The first characters of a text, on one line."""
    text = " ".join(text.split())
    return text if len(text) <= most else text[: most - 1] + "…"
