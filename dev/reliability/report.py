"""The promises, the reports of trials, and the table in docs/promises.md."""

import subprocess
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Literal

from albert.runtime.devices import describe_machine
from albert.runtime.environment import DISTRIBUTION

CHECKOUT = Path(__file__).resolve().parents[2]
LIBRARIES = (DISTRIBUTION, "torch", "numpy", "safetensors", "sentencepiece")
Lane = Literal["quick", "full", "soak"]
"""quick: seconds, as part of the tests; full: the results shown in docs/promises.md; soak: hours, before a release."""

# ---- the promises, as in docs/promises.md ----------------------------------------------------------------------------

KILL_IT_ANY_TIME = (
    "Kill it any time: writes survive `kill -9` and a lost disk cache, and the resumed run ends with the same bytes "
    "(same machine, torch, threads and processes)."
)
NO_WRONG_LOAD = "No wrong load: a file that is damaged, mixed or of another tokenizer is refused with one line."
ORDER_IS_FIXED = "Order is fixed by seed and sample number, not by workers or processes."
SIGNALS_SAVE = "SIGTERM saves and exits 143, SIGINT 130."
NEVER_HANGS = "A lost process ends the job and never hangs it."
NUMBERS_ARE_FINITE = "A value that is not finite never enters weights or checkpoints."
FULL_DISKS = "On a full or broken disk a command ends with one line, and files that were complete stay complete."
NOTHING_VANISHES = "No data vanishes silently: what is dropped or shortened is counted, and no subset is scored."
ANSWERS_ARE_SLICES = "Answers are slices of your text, and scores equal those of the official scripts."
LOADING_RUNS_NOTHING = "Loading a model never runs code: no pickle, no code from elsewhere, no network unless asked."
SERVER_IS_BOUNDED = (
    "The server is bounded in memory, queue and time, and answers each accepted request once, with its own."
)
SAME_BYTES = "The same command gives the same bytes, whatever the locale, time zone, hash seed or order of a folder."
ANY_MACHINE = (
    "It works on other machines, in containers and beside other programs: their files are not touched, "
    "and what is impossible is refused in one line."
)

IN_ORDER = (
    *(KILL_IT_ANY_TIME, NO_WRONG_LOAD, ORDER_IS_FIXED, SIGNALS_SAVE, NEVER_HANGS, NUMBERS_ARE_FINITE),
    *(FULL_DISKS, NOTHING_VANISHES, ANSWERS_ARE_SLICES, LOADING_RUNS_NOTHING, SERVER_IS_BOUNDED),
    *(SAME_BYTES, ANY_MACHINE),
)
"""The order in docs/promises.md."""


# ---- the report ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Entry:
    """The result of one trial."""

    name: str
    guarantee: str  # the promise it tested
    what: str  # describes the tries
    tried: int
    failed: int
    seconds: float
    date: str  # YYYY-MM-DD
    commit: str  # of the checkout; with "+" if files were changed
    details: dict[str, int | float | str]
    failures: tuple[str, ...]  # the first ones
    processor: str = ""  # where it ran, if not on the report's machine

    @property
    def has_failed(self) -> bool:
        """Whether a promise was broken, or nothing was tried."""
        return self.failed > 0 or self.tried == 0


@dataclass(frozen=True)
class Report:
    """The results of a lane. If it was run in parts, date, commit, machine and versions are those of the last part."""

    lane: Lane
    seed: int
    date: str
    commit: str
    machine: dict[str, str | int]
    versions: dict[str, str]
    seconds: float
    trials: tuple[Entry, ...]


def new_report(lane: Lane, seed: int, entries: tuple[Entry, ...], older: Report | None = None) -> Report:
    """A report of these entries, and of the other trials of an older report with the same lane and seed.

    Older entries keep their date, commit, and processor if it is another one.
    """
    machine = {name: value for name, value in describe_machine().items() if name not in ("torch", "python")}
    versions = {"python": sys.version.split()[0]} | {name: version(name) for name in LIBRARIES}
    by_name: dict[str, Entry] = {}
    if older is not None and (older.lane, older.seed) == (lane, seed):
        for entry in older.trials:
            processor = entry.processor or str(older.machine["processor"])
            by_name[entry.name] = replace(entry, processor="" if processor == machine["processor"] else processor)
    by_name |= {entry.name: entry for entry in entries}
    seconds = round(sum(entry.seconds for entry in by_name.values()), 1)
    trials = tuple(by_name[name] for name in sorted(by_name))
    return Report(lane, seed, time.strftime("%Y-%m-%d"), commit(), machine, versions, seconds, trials)


def commit() -> str:
    """The checkout's commit, with "+" if files were changed; "unknown" outside of a checkout."""
    words = ["git", "describe", "--always", "--exclude=*", "--dirty=+"]
    try:
        output = subprocess.run(words, cwd=CHECKOUT, capture_output=True, text=True, check=False).stdout.strip()
    except FileNotFoundError:
        output = ""
    return output or "unknown"


def summary(entries: Iterable[Entry]) -> str:
    """One line per trial, followed by its failures."""
    lines = []
    for entry in entries:
        lines.append(f"{entry.name}: {entry.tried:,} {entry.what}, {entry.failed:,} failed, {entry.seconds:,.0f} s")
        lines += [f"    {failure}" for failure in entry.failures]
    return "\n".join(lines)


# ---- the table of docs/promises.md -----------------------------------------------------------------------------------


def table_of(report: Report) -> str:
    """The Markdown table of promises with their trials, and a line about its origin."""
    order = {promise: i for i, promise in enumerate(IN_ORDER)}
    entries = sorted(report.trials, key=lambda entry: (order.get(entry.guarantee, len(order)), entry.name))
    rows = ["| promise | tried | failed |", "|---|---|---|"]
    shown = ""
    for entry in entries:
        promise, what = ("" if entry.guarantee == shown else entry.guarantee), entry.what.replace("|", "\\|")
        shown = entry.guarantee
        rows.append(f"| {promise} | {entry.tried:,} {what} | {entry.failed:,} |")
    return "\n".join([*rows, "", _origin(report, entries)]) + "\n"


def _origin(report: Report, entries: list[Entry]) -> str:
    if not entries:
        return "Nothing was tried."
    commits = sorted({entry.commit for entry in entries})
    days = sorted({entry.date for entry in entries})
    seconds: dict[str, float] = {}
    for entry in entries:
        processor = entry.processor or str(report.machine["processor"])
        seconds[processor] = seconds.get(processor, 0.0) + entry.seconds
    spent = ", ".join(f"{round(s / 60):,} minutes of {processor}" for processor, s in sorted(seconds.items()))
    return (
        f"`make reliability` (lane {report.lane}, seed {report.seed}), {' to '.join(sorted({days[0], days[-1]}))}, "
        f"commit{'s' if len(commits) > 1 else ''} {', '.join(commits)}, {spent}."
    )
