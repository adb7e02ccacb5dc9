"""Curves of runs from their journals; pictures.py draws them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from albert.runtime.errors import MissingInput
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
    evaluations = [record for record in records if record["event"] == "evaluation"]
    return RunCurves(name, updates, evaluations)


def figures_of(record: dict[str, Any]) -> Iterator[str]:
    """The names of a record's figures."""
    for name, value in record.items():
        if name not in _NOT_FIGURES and isinstance(value, int | float):
            yield name
