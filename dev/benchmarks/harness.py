"""Shared by all benchmarks: options, alternating measurements, memory, tables on the terminal and in CSV, a server.

A benchmark declares its options (a dataclass), its columns, and a function that yields rows; `script` makes its `main`.
Systems alternate within a round, in reverse order in every other round, so that other load on the machine affects all
of them alike; ratios are taken within a round (`ratio`), and medians are reported. A row of a CSV begins with the date,
the commit and the machine; rows and columns of earlier measurements are kept.
"""

import albert  # noqa: F401 (before torch, which reads how its threads wait when it is loaded)

# isort: split
import csv
import gc
import inspect
import multiprocessing
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from rich.console import Console
from rich.table import Table

from albert.cli.command_line import parse
from albert.cli.main import run
from albert.recipes.architecture import PRESETS, EncoderConfig
from albert.runtime.devices import describe_machine
from albert.runtime.errors import UsageError, did_you_mean
from albert.runtime.progress import progress

ENVIRONMENT_COLUMNS = ("date", "commit", "machine")
PROCESS = Path("/proc/self")
Name = TypeVar("Name", bound=Hashable)
Argument = TypeVar("Argument")
Result = TypeVar("Result")
Row = Mapping[str, Any] | Sequence[Any]

# --------------------------------------------------------------------------------------------------------------------
# A script: its options and its rows.


def script(
    options: type,
    columns: Sequence[str],
    measure: Callable[[Any], Iterable[Row]],
    same: Sequence[str] = (),
    table: str = "output",
) -> Callable[..., None]:
    """The `main` of a benchmark, which takes command-line arguments, by default those of this process.

    Args:
        options: a dataclass.
        columns: of a row, after those of the environment.
        measure: yields rows for the options; each is added to the CSV at once, and all are printed at the end.
        same: columns that identify a row, see `append_rows`.
        table: the option that names the CSV.
    """

    def main(arguments: Sequence[str] | None = None) -> None:
        if arguments is None:
            sys.exit(run(command=main))
        args = parse(options, arguments, Path(inspect.getfile(measure)).name)
        rows = []
        for row in measure(args):
            rows.append(row)
            append_rows(getattr(args, table), columns, [row], same)
        show(columns, rows)

    return main


@dataclass(frozen=True, kw_only=True)
class ModelSize:
    """Options for the size of a model with random weights."""

    preset: str | None = None
    """Sizes of a preset, in place of hidden_size and layers."""
    hidden_size: int = 256
    layers: int = 4

    def config(self, **changes: Any) -> EncoderConfig:
        """The sizes as a configuration, with some fields changed."""
        sized = EncoderConfig(hidden_size=self.hidden_size, num_hidden_layers=self.layers,
                             num_attention_heads=max(1, self.hidden_size // 64),
                             intermediate_size=4 * self.hidden_size)  # fmt: skip
        return replace(PRESETS[self.preset] if self.preset else sized, **changes)


def select(option: str, names: Iterable[str], known: Mapping[str, Result]) -> list[Result]:
    """The values of these names; UsageError for an unknown one."""
    for name in names:
        if name not in known:
            raise UsageError(f"{option} {name}", "is unknown", did_you_mean(name, known))
    return [known[name] for name in names]


def show(columns: Sequence[str], rows: Sequence[Row]) -> None:
    """Print rows as a table; columns with the same value in all rows are printed above it."""
    named = [_named(columns, row) for row in rows]
    varying = [name for name in columns if len({str(row[name]) for row in named}) > 1]
    for name in columns if named else ():
        if name not in varying and str(named[0][name]):
            print(f"{name}: {named[0][name]}")
    table = Table(*varying, box=None)
    for row in named:
        table.add_row(*(str(row[name]) for name in varying))
    if varying:
        Console(width=max(140, 15 * len(varying))).print(table)


def append_rows(path: Path, columns: Sequence[str], rows: Sequence[Row], same: Sequence[str] = ()) -> None:
    """Add rows with the current environment; a column that some rows lack is empty there.

    Args:
        path: the table, which is created if it does not exist.
        columns: after those of the environment.
        rows: by column, or in the order of the columns.
        same: columns that identify a row. A new row replaces an older one with the same identity, unless nothing
            has changed; none: every row is added.
    """
    older = read_rows(path)
    measured_on = environment()
    names = list(dict.fromkeys((*ENVIRONMENT_COLUMNS, *columns, *(name for old in older[:1] for name in old))))
    for row in rows:
        values = {name: str(value) for name, value in _named(columns, row).items()}
        if any(all(old.get(name) == values[name] for name in columns) for old in older) and same:
            continue
        if same:
            older = [old for old in older if any(old.get(name) != values[name] for name in same)]
        older.append({**measured_on, **values})
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, names, restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows(older)


def read_rows(path: Path) -> list[dict[str, str]]:
    """The rows of a CSV; none if there is no file."""
    if not path.exists():
        return []
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def environment() -> dict[str, str]:
    """The day, the checkout's commit ("unknown" outside of one), and processor or GPU with threads and torch."""
    machine, command = describe_machine(), ["git", "rev-parse", "--short", "HEAD"]
    try:
        commit = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True, check=False).stdout
    except FileNotFoundError:
        commit = ""
    processor = machine.get("gpu", machine["processor"])
    return {
        "date": time.strftime("%Y-%m-%d"),
        "commit": commit.strip() or "unknown",
        "machine": f"{processor}, {machine['threads']} threads, torch {machine['torch']}",
    }


def _named(columns: Sequence[str], row: Row) -> dict[str, Any]:
    if isinstance(row, Mapping):
        return {name: row.get(name, "") for name in columns}
    return dict(zip(columns, row, strict=True))


# --------------------------------------------------------------------------------------------------------------------
# Time.


def alternate(
    systems: Mapping[Name, Callable[..., Result]], rounds: int, prepare: Callable[[int], Any] | None = None,
    warm_up: int = 1,
) -> dict[Name, list[Result]]:  # fmt: skip
    """The results of each system, one for each round, after warm-up rounds.

    Args:
        systems: functions, by name.
        rounds: measurements of each.
        prepare: makes the argument of all systems from the number of a round, not timed; None: no argument.
        warm_up: rounds before, numbered from 0.
    """
    results: dict[Name, list[Result]] = {name: [] for name in systems}
    with progress("Measuring", (rounds + warm_up) * len(systems), "runs") as bar:
        for number in range(rounds + warm_up):
            arguments = () if prepare is None else (prepare(number),)
            for name in list(systems)[:: 1 if number % 2 else -1]:
                result = systems[name](*arguments)
                if number >= warm_up:
                    results[name].append(result)
                bar.advance()
    return results


def interleave(systems: Mapping[Name, Callable[[], object]], rounds: int) -> dict[Name, list[float]]:
    """Seconds of each system in each round, see `alternate`."""

    def seconds(run: Callable[[], object]) -> float:
        started = time.perf_counter()
        run()
        return time.perf_counter() - started

    return alternate({name: partial(seconds, run) for name, run in systems.items()}, rounds)


def ratios(ours: Sequence[float], theirs: Sequence[float]) -> list[float]:
    """Ours divided by theirs in every round."""
    return [a / b for a, b in zip(ours, theirs, strict=True)]


def ratio(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """The median over rounds of ours divided by theirs."""
    return statistics.median(ratios(ours, theirs))


def spread(values: Sequence[float], form: str) -> list[str]:
    """Median, lowest and highest as text."""
    return [format(value, form) for value in (statistics.median(values), min(values), max(values))]


@contextmanager
def spinning_process() -> Iterator[None]:
    """Run another process that computes all the time on the last core of this one."""
    core = max(os.sched_getaffinity(0))
    spin = f"import os; os.sched_setaffinity(0, [{core}]); print(flush=True)\nwhile True: pass"
    with subprocess.Popen([sys.executable, "-c", spin], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            yield
        finally:
            process.kill()


# --------------------------------------------------------------------------------------------------------------------
# Memory from /proc: in `getrusage` a new process begins with the peak of the one that started it.


def memory_growth(warm_up: Callable[[], object], work: Callable[[], object]) -> int:
    """The largest growth of this process's resident set in bytes; code and threads are loaded before."""
    warm_up()
    gc.collect()
    (PROCESS / "clear_refs").write_text("5", encoding="ascii")  # resets the peak
    before = _kibibytes("VmRSS:")
    work()
    return peak_bytes() - 1024 * before


def peak_bytes() -> int:
    """The peak resident set in bytes since the process or `memory_growth` started."""
    return 1024 * _kibibytes("VmHWM:")


def _kibibytes(name: str) -> int:
    lines = (PROCESS / "status").read_text(encoding="ascii", errors="replace").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name))


def in_new_processes(measure: Callable[[Argument], Result], cases: Sequence[Argument]) -> list[Result]:
    """Call a function for each case in a new process, one after the other."""
    results, context = [], multiprocessing.get_context("spawn")
    with (
        progress("Measuring", len(cases), "processes") as bar,
        ProcessPoolExecutor(1, mp_context=context, max_tasks_per_child=1) as processes,
    ):
        for result in processes.map(measure, cases):
            results.append(result)
            bar.advance()
    return results


# --------------------------------------------------------------------------------------------------------------------
# A server.


@contextmanager
def serving(model: str | Path, threads: int | None = None, precision: str | None = None) -> Iterator[tuple[Any, int]]:
    """Start `albert serve` on the CPU: its process and port, once it is ready."""
    command = [sys.executable, "-m", "albert", "serve", str(model), "--port", "0", "--device", "cpu"]
    command += [] if threads is None else ["--threads", str(threads)]
    command += [] if precision is None else ["--precision", precision]
    environment = os.environ | ({} if threads is None else {"OMP_NUM_THREADS": str(threads)})
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) as server:
        assert server.stderr is not None
        try:
            while "listening at " not in (line := server.stderr.readline()):
                if not line:
                    raise SystemExit("albert serve ended before it was ready")
            port = int(line.split("listening at ")[1].split(",")[0].rsplit(":", 1)[1])
            yield server, port
        finally:
            server.kill()
