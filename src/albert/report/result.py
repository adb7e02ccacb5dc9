"""The result of a command that scores models. Its attributes have the figures; `Shown` has what its views show of them:
`repr` and a notebook (`albert.report.display`), the terminal (`albert.report.terminal`), a page (`albert.report.page`).

`albert.report.runs` and `albert.report.evaluations` make results from the content of results.json."""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from albert.report.curves import Points
from albert.report.display import Displayable
from albert.report.reading import DataReport
from albert.report.tables import Scores, Table, confusion_table
from albert.runtime.python_words import in_python

SHOWN_CONFUSIONS = 20
ADVISED = ("epochs", "learning_rate", "model", "class_weights", "metrics", "frozen")
"""The options and keys that advice names, which are keywords in Python."""


@dataclass(frozen=True, repr=False)
class Confusion(Displayable):
    """How often each class was predicted for each right one.

    Attributes:
        labels: the classes; an empty one is no entity.
        counts: [right class, predicted class]; with several labels per example [label, right, predicted] of 2 by 2;
            None for more than 200 classes.
        largest: the largest confusions first, as dicts of `gold`, `predicted` and `count`.
    """

    labels: Sequence[str]
    counts: Sequence[Sequence[Any]] | None
    largest: Sequence[Mapping[str, Any]]

    def title(self) -> str:
        return f"Confusion of {len(self.labels):,} classes, the largest first"

    def rows(self) -> Sequence[Sequence[str]]:
        table = confusion_table(vars(self), SHOWN_CONFUSIONS)
        return [] if table is None else table.rows


@dataclass(frozen=True, kw_only=True)
class Shown:
    """What the views of a result show, from top to bottom.

    Attributes:
        heading: what was done, on which task.
        summary: with what, without times.
        ended: how it ended, with its time; for the terminal alone, above the scores.
        before: further lines above the scores.
        tables: the scores.
        notes: lines below them.
        said: notes that the terminal has shown before.
        advice: why something should change, and what to try.
        settings: how the model was trained; the terminal has shown it before.
        analysis_of: which of several runs the classes and errors are of.
        curves: name -> points.
        page: the page of the run whose classes and errors these are.
        written: what was written, in bold, and the rest of the line; for the terminal alone.
        following: a command to go on with, without the word albert.
    """

    heading: str
    summary: str = ""
    before: Sequence[str] = ()
    ended: Sequence[str] = ()
    tables: Sequence[Table] = ()
    notes: Sequence[str] = ()
    said: Collection[str] = ()
    advice: Sequence[str] = ()
    settings: str = ""
    analysis_of: str = ""
    curves: Mapping[str, Points] = field(default_factory=dict)
    page: Path | None = None
    written: Sequence[tuple[object, str]] = ()
    following: str = ""


@dataclass(frozen=True, repr=False, kw_only=True)
class Result(Displayable):
    """Scores beside those of simpler models, and where the model is right and wrong. Lists of dicts are rows for a data
    frame.

    Attributes:
        scores: on the scored rows: of a run its development set; medians over seeds, means over folds; of several
            models those of all together, of several depths or precisions those of the first.
        baselines: name -> scores of a simpler model on the same rows. First that of a constant answer.
        report: the content of results.json; of several runs of summary.json; of an evaluation of `--results`.
        output: the directory of the run or runs; None if there is none.
        model: the model directory; of several seeds or rates that of the best run.
        reading: how the rows were read, if nothing was trained.
        predictions: of an evaluation one dict for each example: `id`, `prediction`, `gold`, and probabilities or the
            position in the context.
        already_complete: whether an earlier run was returned as it is.
    """

    scores: Scores
    report: Mapping[str, Any]
    baselines: Mapping[str, Scores] = field(default_factory=dict)
    output: Path | None = None
    model: Path | None = None
    reading: DataReport | None = None
    predictions: Sequence[dict[str, Any]] = ()
    already_complete: bool = False
    analysis: Mapping[str, Any] = field(default_factory=dict)
    shown: Shown

    @property
    def per_class(self) -> list[dict[str, Any]]:
        """Precision, recall and F1 in points, count and predicted count of each class, label, entity type or tag."""
        return self.analysis.get("per_class") or []

    @property
    def confusion(self) -> Confusion | None:
        """Which classes were predicted for which; None for numbers and for answers in a text."""
        found = self.analysis.get("confusion")
        return None if not found else Confusion(**found)

    @property
    def errors(self) -> list[dict[str, Any]]:
        """The most confident errors with their text; of numbers those with the largest difference."""
        return self.analysis.get("errors") or []

    @property
    def calibration(self) -> dict[str, Any] | None:
        """Expected calibration error and bins of probability; None for numbers."""
        return self.analysis.get("calibration")

    # ---- As text and in a notebook ----------------------------------------------------------------------------------

    def title(self) -> str:
        shown = self.shown
        return f"{shown.heading}: {shown.summary}" if shown.summary else shown.heading

    def remarks(self) -> list[str]:
        shown = self.shown
        if self.reading is not None:
            return self.reading.remarks()
        lines = [*shown.before, *shown.notes, *self._advice()]
        lines += [f"model: {self.model}"] if self.model is not None else []
        lines += [f"report: {shown.page}"] if shown.page is not None else []
        return lines

    def _advice(self) -> list[str]:
        return [in_python(line, ADVISED) for line in self.shown.advice]

    def tables(self) -> Sequence[Table]:
        return self.shown.tables if self.reading is None else self.reading.tables()

    def curves(self) -> Mapping[str, Points]:
        return self.shown.curves

    def _repr_html_(self) -> str:
        from albert.report.page import fragment

        shown = self.shown
        advice = self._advice()
        return fragment(
            shown.heading,
            summary=shown.summary,
            advice=advice,
            tables=self.tables(),
            curves=shown.curves,
            analysis=self.analysis,
            notes=[line for line in self.remarks() if line not in advice],
        )

    def page(self) -> str:
        """The page of the result as HTML, without times."""
        from albert.report.page import page

        shown = self.shown
        lines = [shown.settings, *shown.before, *shown.notes]
        return page(
            shown.heading,
            summary=shown.summary,
            advice=shown.advice,
            tables=shown.tables,
            curves=shown.curves,
            analysis=self.analysis,
            notes=[re.sub(r" after [\d,]+ s\b", "", line) for line in lines if line],
        )
