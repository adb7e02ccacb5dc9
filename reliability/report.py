"""The report: what was tried, how often, what failed, on which machine, at which commit; one JSON file."""

import subprocess
import sys
import time
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path

from albert.runtime.devices import describe_machine
from albert.runtime.environment import DISTRIBUTION
from albert.runtime.json_files import load_json, save_json
from reliability.trial import Lane

CHECKOUT = Path(__file__).resolve().parent.parent
LIBRARIES = (DISTRIBUTION, "torch", "numpy", "safetensors", "sentencepiece")


@dataclass(frozen=True)
class Entry:
    """What came of one trial.

    Args:
        name: of the trial.
        guarantee: the promise it puts to the proof.
        what: what one try is.
        tried: how many tries.
        failed: how many broke the promise.
        seconds: that it took.
        date: the day it ran, YYYY-MM-DD.
        commit: of the checkout; with "+" where files differed from it.
        details: counts worth telling beside.
        failures: the first ones, a line each.
        processor: where it ran, if that is another than the report's machine.
    """

    name: str
    guarantee: str
    what: str
    tried: int
    failed: int
    seconds: float
    date: str
    commit: str
    details: dict[str, int | float | str]
    failures: tuple[str, ...]
    processor: str = ""


@dataclass(frozen=True)
class Report:
    """One run of a lane, or the newest of several that each ran some of its trials.

    Args:
        lane: how much was tried.
        seed: where all draws came from.
        date, commit: of the newest entry.
        machine: processor, cores, threads of the newest entry; an entry from another processor names its own.
        versions: of Python and the libraries that decide bytes.
        seconds: of all entries.
        trials: an entry each, by name.
    """

    lane: Lane
    seed: int
    date: str
    commit: str
    machine: dict[str, str | int]
    versions: dict[str, str]
    seconds: float
    trials: tuple[Entry, ...]


def new_report(lane: Lane, seed: int, entries: tuple[Entry, ...], older: Report | None = None) -> Report:
    """The report of these entries; those of other trials stay from an older one of the same lane and seed.

    Entries that ran on another processor keep its name, as each keeps its own date and commit.
    """
    machine = {name: told for name, told in describe_machine().items() if name not in ("torch", "python")}
    versions = {"python": sys.version.split()[0]} | {name: version(name) for name in LIBRARIES}
    kept: dict[str, Entry] = {}
    if older is not None and (older.lane, older.seed) == (lane, seed):
        for entry in older.trials:
            processor = entry.processor or str(older.machine["processor"])
            kept[entry.name] = replace(entry, processor="" if processor == machine["processor"] else processor)
    kept |= {entry.name: entry for entry in entries}
    return Report(
        lane=lane,
        seed=seed,
        date=time.strftime("%Y-%m-%d"),
        commit=commit(),
        machine=machine,
        versions=versions,
        seconds=round(sum(entry.seconds for entry in kept.values()), 1),
        trials=tuple(kept[name] for name in sorted(kept)),
    )


def read_report(path: Path) -> Report:
    """What `write_report` wrote.

    Raises:
        MissingInput, DamagedData, InvalidConfiguration: it is not there, or no such report.
    """
    return load_json(Report, path)


def write_report(path: Path, report: Report) -> None:
    """Write it whole, or not at all."""
    save_json(path, report)


def commit() -> str:
    """The checkout's commit, with "+" behind it where files differ from it; "unknown" outside of one."""
    told = _git("rev-parse", "--short", "HEAD")
    return told + ("+" if _git("status", "--porcelain", "--untracked-files=no") else "") if told else "unknown"


def _git(*words: str) -> str:
    try:
        done = subprocess.run(["git", *words], cwd=CHECKOUT, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return ""
    return done.stdout.strip()
