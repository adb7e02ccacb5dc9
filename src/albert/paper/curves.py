"""Curves of runs from their journals, and as tables; pictures.py draws them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from albert.runtime.errors import MissingInput
from albert.runtime.files import write_csv
from albert.runtime.json_files import read_journal
from albert.training.run_folder import RunFolder

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
    seconds = _seconds(updates)
    steps = [record["step"] for record in updates]
    evaluations = [
        {"seconds": float(np.interp(record["step"], [0, *steps], [0.0, *seconds])), **record}
        for record in records
        if record["event"] == "evaluation"
    ]
    updates = [record | {"seconds": time} for record, time in zip(updates, seconds, strict=True)]
    return RunCurves(name, updates, evaluations)


def _seconds(updates: Sequence[dict[str, Any]]) -> list[float]:
    """Training time at each record; computed from tokens per second if the journal has no times."""
    total = 0.0
    tokens = 0
    times = []
    for record in updates:
        total += (record["tokens"] - tokens) / record["tokens_per_second"]
        total = record.get("seconds", total)
        tokens = record["tokens"]
        times.append(total)
    return times


def write_table(runs: Sequence[RunCurves], table: Path) -> None:
    """Write a CSV row per figure of every record: run, event, step, tokens, minutes, figure, value."""
    rows: list[Sequence[object]] = [["run", "event", "step", "tokens", "minutes", "figure", "value"]]
    for run in runs:
        for event, records in (("train", run.updates), ("evaluation", run.evaluations)):
            for record in records:
                position = [run.name, event, record["step"], record["tokens"], round(record["seconds"] / 60, 4)]
                rows += [[*position, figure, record[figure]] for figure in figures_of(record)]
    write_csv(table, rows)


def figures_of(record: dict[str, Any]) -> Iterator[str]:
    """The names of a record's figures."""
    for name, value in record.items():
        if name not in _NOT_FIGURES and isinstance(value, int | float):
            yield name
