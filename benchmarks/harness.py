"""What all benchmarks share: systems measured in turns, peaks of memory, a table on the terminal, rows of a CSV.

Systems take turns within a round, in the reverse order in every other one, so that what else the machine does meets all
of them; ratios are taken within a round (`ratio`), and medians are reported. A row of a CSV begins with the date, the
commit and the machine; rows and columns of earlier measurements stay.
"""

import albert  # noqa: F401 (before torch, which reads how its threads wait when it is loaded)

# isort: split
import csv
import multiprocessing
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing.context import BaseContext
from pathlib import Path
from typing import Any, TypeVar

import torch
from rich.console import Console
from rich.table import Table

from albert.runtime.devices import describe_machine
from albert.runtime.progress import progress

CIRCUMSTANCES = ("date", "commit", "machine")
PROCESS = Path("/proc/self")
Name = TypeVar("Name", bound=Hashable)
Argument = TypeVar("Argument")
Result = TypeVar("Result")

# --------------------------------------------------------------------------------------------------------------------
# Time.


@contextmanager
def spinning_process() -> Iterator[None]:
    """Another process computes all the time, on the last of the cores that this one may use."""
    core = max(os.sched_getaffinity(0))
    spin = f"import os; os.sched_setaffinity(0, [{core}]); print(flush=True)\nwhile True: pass"
    with subprocess.Popen([sys.executable, "-c", spin], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            yield
        finally:
            process.kill()


def interleave(
    systems: Mapping[Name, Callable[[], object]],
    rounds: int,
    *,
    device: torch.device | None = None,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[Name, list[float]]:
    """Seconds of each system, one for each round, after a round that warms up.

    Args:
        systems: what is run, by name.
        rounds: how often each is measured.
        device: a GPU is waited for.
        clock: in seconds.
    """
    found: dict[Name, list[float]] = {name: [] for name in systems}
    with progress("Measuring", (rounds + 1) * len(systems), "runs") as bar:
        for number in range(rounds + 1):
            for name in in_turn(list(systems), number):
                took = seconds(systems[name], device, clock)
                if number:
                    found[name].append(took)
                bar.advance()
    return found


def in_turn(names: Sequence[Name], number: int) -> list[Name]:
    """The names in the order of round `number`: there, and back in the next."""
    return list(names) if number % 2 else list(reversed(names))


def seconds(
    run: Callable[[], object], device: torch.device | None = None, clock: Callable[[], float] = time.perf_counter
) -> float:
    """Of one run; a GPU is waited for."""
    started = clock()
    run()
    if device is not None and device.type == "cuda":
        torch.cuda.synchronize(device)
    return clock() - started


def ratio(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """The median over rounds of ours by theirs."""
    return statistics.median(a / b for a, b in zip(ours, theirs, strict=True))


# --------------------------------------------------------------------------------------------------------------------
# Memory, as Linux tells it: `getrusage` will not do, for a new process begins with the peak of the one that started it.


def forget_peak() -> int:
    """Begin to look for a peak; bytes that are resident now."""
    (PROCESS / "clear_refs").write_text("5", encoding="ascii")
    return _kibibytes("VmRSS:") * 1024


def peak_bytes() -> int:
    """The most bytes that were resident since `forget_peak`."""
    return _kibibytes("VmHWM:") * 1024


def each_in_a_process(
    measure: Callable[[Argument], Result], cases: Sequence[Argument], context: BaseContext | None = None
) -> list[Result]:
    """What a function returns for each case, in a new process for each, one after the other."""
    context = context or multiprocessing.get_context("spawn")
    found = []
    with (
        progress("Measuring", len(cases), "processes") as bar,
        ProcessPoolExecutor(1, mp_context=context, max_tasks_per_child=1) as processes,
    ):
        for result in processes.map(measure, cases):
            found.append(result)
            bar.advance()
    return found


def _kibibytes(name: str) -> int:
    lines = (PROCESS / "status").read_text(encoding="ascii", errors="replace").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name))


# --------------------------------------------------------------------------------------------------------------------
# Reports.

Row = Mapping[str, Any] | Sequence[Any]


def report(path: Path | None, columns: Sequence[str], rows: Sequence[Row], same: Sequence[str] = ()) -> None:
    """Print rows as a table, and append them to a CSV (None: print alone); see `append_rows`."""
    named = [_named(columns, row) for row in rows]
    table = Table(*columns, box=None)
    for row in named:
        table.add_row(*(str(row[name]) for name in columns))
    Console(width=max(140, 12 * len(columns))).print(table)
    if path is not None:
        append_rows(path, columns, named, same)


def append_rows(path: Path, columns: Sequence[str], rows: Sequence[Row], same: Sequence[str] = ()) -> None:
    """Add rows under the circumstances of now; columns that older rows lack stay empty in them, and the other way.

    Args:
        path: the table, made where there is none.
        columns: behind the circumstances.
        rows: by column, or in the order of the columns.
        same: columns that say what a row is of. A new row takes the place of an older one of the same, which stays
            where nothing in it has changed; none: every row is added.
    """
    older: list[dict[str, str]] = []
    if path.exists():
        with open(path, newline="", encoding="utf-8") as file:
            older = list(csv.DictReader(file))
    here = circumstances()
    names = list(dict.fromkeys((*CIRCUMSTANCES, *columns, *(name for old in older[:1] for name in old))))
    for row in rows:
        told = {name: str(value) for name, value in _named(columns, row).items()}
        if any(all(old.get(name) == told[name] for name in columns) for old in older) and same:
            continue
        if same:
            older = [old for old in older if any(old.get(name) != told[name] for name in same)]
        older.append({**here, **told})
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, names, restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows(older)


def circumstances() -> dict[str, str]:
    """The day, the checkout's commit ("unknown" outside of one), and processor or GPU with threads and torch."""
    machine = describe_machine()
    place = machine.get("gpu", machine["processor"])
    return {
        "date": time.strftime("%Y-%m-%d"),
        "commit": _commit(),
        "machine": f"{place}, {machine['threads']} threads, torch {machine['torch']}",
    }


def _named(columns: Sequence[str], row: Row) -> dict[str, Any]:
    return (
        {name: row.get(name, "") for name in columns}
        if isinstance(row, Mapping)
        else dict(zip(columns, row, strict=True))
    )


def _commit() -> str:
    asked = ["git", "rev-parse", "--short", "HEAD"]
    try:
        done = subprocess.run(asked, cwd=Path(__file__).parent, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return "unknown"
    return done.stdout.strip() or "unknown"
