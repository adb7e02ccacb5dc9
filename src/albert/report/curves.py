"""Curves of runs from their journals. Pages draw them as SVG, pictures.py as PNG."""

import contextlib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from albert.runtime.environment import lazy_import
from albert.runtime.errors import MissingInput, Unavailable
from albert.runtime.json_files import read_journal
from albert.training.run_folder import RunFolder

Points = Sequence[tuple[float, float]]
"""Steps and values."""
CURVES_NAME = "curves.png"
_NOT_FIGURES = {"event", "time", "step", "tokens", "seconds", "sequences", "peak_memory_bytes"}


@dataclass(frozen=True)
class RunCurves:
    """The records of a run's journal, in the order of steps."""

    name: str
    updates: Sequence[dict[str, Any]]
    evaluations: Sequence[dict[str, Any]]


def read_runs(paths: Sequence[Path]) -> list[RunCurves]:
    """Read the curves of runs from their folders, also while they are running."""
    resolved = [path.resolve() for path in paths]
    length = 1
    while len({path.parts[-length:] for path in resolved}) < len(set(resolved)):
        length += 1
    names = ["/".join(path.parts[-length:]) for path in resolved]  # the shortest ends of the paths that are distinct
    return [_read_run(path, name) for path, name in zip(paths, names, strict=True)]


def _read_run(path: Path, name: str) -> RunCurves:
    journal = RunFolder(path).journal_path
    if not journal.is_file():
        raise MissingInput(path, f"is not a run: it has no {journal.name}", "name the --output of pretrain or finetune")
    records = sorted((r for r in read_journal(journal) if "step" in r), key=lambda record: record["step"])
    updates = [record for record in records if record["event"] == "train"]
    if not updates:
        raise MissingInput(path, "has recorded no update yet", "wait for the first line of its journal")
    evaluations = [record for record in records if record["event"] == "evaluation"]
    return RunCurves(name, updates, evaluations)


def figures_of(record: dict[str, Any]) -> Iterator[str]:
    """The names of a record's figures."""
    for name, value in record.items():
        if name not in _NOT_FIGURES and not name.endswith("_count") and isinstance(value, int | float):
            yield name


def points_of(records: Sequence[Mapping[str, Any]], figures: Sequence[str] = ()) -> dict[str, Points]:
    """The training loss and the named evaluation figures of a journal, by title; curves of fewer than two points are
    left out."""
    curves: dict[str, Points] = {}
    for event, name in (("train", "loss"), *(("evaluation", name) for name in figures)):
        values = [(record["step"], record.get(name)) for record in records if record["event"] == event]
        points = [(float(x), float(y)) for x, y in values if isinstance(y, int | float) and math.isfinite(y)]
        title = "training loss" if event == "train" else f"{name.replace('_', ' ')}, held out"
        if len(points) > 1:
            curves[title] = points
    return curves


def journal_of(run: Path) -> list[dict[str, Any]]:
    """The records of a run's journal; empty if there is none."""
    journal = RunFolder(run).journal_path
    return read_journal(journal) if journal.is_file() else []


def draw_curves(run: Path) -> None:
    """Draw the curves of a finished run into its folder, if they changed and matplotlib is installed."""
    picture = run / CURVES_NAME
    journal = RunFolder(run).journal_path
    if picture.exists() and picture.stat().st_mtime >= journal.stat().st_mtime:
        return
    with contextlib.suppress(Unavailable, MissingInput):  # no matplotlib, or no update that was taken
        lazy_import("albert.report.pictures", "plots").draw_runs(read_runs([run]), picture)
