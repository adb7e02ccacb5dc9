"""What all benchmarks share: options, systems measured in turns, memory, rows on the terminal and in a CSV, a server.

A benchmark declares its options (a dataclass), its columns, and a function that yields rows; `script`
makes its `main` of them. Systems take turns within a round, in the reverse order in every other one, so that what else
the machine does meets all of them; ratios are taken within a round (`ratio`), and medians are reported. A row of a CSV
begins with the date, the commit and the machine; rows and columns of earlier measurements stay.
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

from albert.cli.options import parse
from albert.model.config import PRESETS, AlbertConfig
from albert.runtime.devices import describe_machine
from albert.runtime.errors import UsageError, did_you_mean
from albert.runtime.progress import progress

CIRCUMSTANCES = ("date", "commit", "machine")
PROCESS = Path("/proc/self")
Name = TypeVar("Name", bound=Hashable)
Argument = TypeVar("Argument")
Result = TypeVar("Result")
Row = Mapping[str, Any] | Sequence[Any]

# --------------------------------------------------------------------------------------------------------------------
# A script: its options, and what becomes of its rows.


def script(
    options: type,
    columns: Sequence[str],
    measure: Callable[[Any], Iterable[Row]],
    same: Sequence[str] = (),
    table: str = "output",
) -> Callable[..., None]:
    """The `main` of a benchmark, which takes the words of a command line, by default those of this process.

    Args:
        options: a dataclass.
        columns: of a row, behind the circumstances.
        measure: given the options, yields rows; each is added to the CSV at once, and all are printed at the end.
        same: columns that say what a row is of, see `append_rows`.
        table: the option that names the CSV.
    """

    def main(arguments: Sequence[str] | None = None) -> None:
        asked = parse(options, sys.argv[1:] if arguments is None else arguments, Path(inspect.getfile(measure)).name)
        rows = []
        for row in measure(asked):
            rows.append(row)
            append_rows(getattr(asked, table), columns, [row], same)
        show(columns, rows)

    return main


@dataclass(frozen=True, kw_only=True)
class ModelSize:
    """Options that tell the size of a model with random weights."""

    preset: str | None = None
    """Sizes of a preset, in place of hidden_size and layers."""
    hidden_size: int = 256
    layers: int = 4

    def config(self, **changes: Any) -> AlbertConfig:
        """The sizes as a configuration, with some fields changed."""
        sized = AlbertConfig(hidden_size=self.hidden_size, num_hidden_layers=self.layers,
                             num_attention_heads=max(1, self.hidden_size // 64),
                             intermediate_size=4 * self.hidden_size)  # fmt: skip
        return replace(PRESETS[self.preset] if self.preset else sized, **changes)


def chosen(option: str, names: Iterable[str], known: Mapping[str, Result]) -> list[Result]:
    """What is known by these names; UsageError at one that is not."""
    for name in names:
        if name not in known:
            raise UsageError(f"{option} {name}", "is unknown", did_you_mean(name, known))
    return [known[name] for name in names]


def show(columns: Sequence[str], rows: Sequence[Row]) -> None:
    """Print rows as a table, and above it the columns in which all have the same."""
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
    """Add rows under the circumstances of now; columns that older rows lack stay empty in them, and the other way.

    Args:
        path: the table, made where there is none.
        columns: behind the circumstances.
        rows: by column, or in the order of the columns.
        same: columns that say what a row is of. A new row takes the place of an older one of the same, which stays
            where nothing in it has changed; none: every row is added.
    """
    older = read_rows(path)
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


def read_rows(path: Path) -> list[dict[str, str]]:
    """The rows of a CSV; none where there is no file."""
    if not path.exists():
        return []
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def circumstances() -> dict[str, str]:
    """The day, the checkout's commit ("unknown" outside of one), and processor or GPU with threads and torch."""
    machine, asked = describe_machine(), ["git", "rev-parse", "--short", "HEAD"]
    try:
        commit = subprocess.run(asked, cwd=Path(__file__).parent, capture_output=True, text=True, check=False).stdout
    except FileNotFoundError:
        commit = ""
    place = machine.get("gpu", machine["processor"])
    return {
        "date": time.strftime("%Y-%m-%d"),
        "commit": commit.strip() or "unknown",
        "machine": f"{place}, {machine['threads']} threads, torch {machine['torch']}",
    }


def _named(columns: Sequence[str], row: Row) -> dict[str, Any]:
    if isinstance(row, Mapping):
        return {name: row.get(name, "") for name in columns}
    return dict(zip(columns, row, strict=True))


# --------------------------------------------------------------------------------------------------------------------
# Time.


def take_turns(
    systems: Mapping[Name, Callable[..., Result]], rounds: int, given: Callable[[int], Any] | None = None,
    warm_up: int = 1,
) -> dict[Name, list[Result]]:  # fmt: skip
    """What each system returns, once for each round, after rounds that warm up.

    Args:
        systems: what is run, by name.
        rounds: how often each is measured.
        given: what all systems are given in a round, made from its number outside of what they time; None: nothing.
        warm_up: rounds before, numbered from 0.
    """
    found: dict[Name, list[Result]] = {name: [] for name in systems}
    with progress("Measuring", (rounds + warm_up) * len(systems), "runs") as bar:
        for number in range(rounds + warm_up):
            arguments = () if given is None else (given(number),)
            for name in list(systems)[:: 1 if number % 2 else -1]:
                result = systems[name](*arguments)
                if number >= warm_up:
                    found[name].append(result)
                bar.advance()
    return found


def interleave(systems: Mapping[Name, Callable[[], object]], rounds: int) -> dict[Name, list[float]]:
    """Seconds of each system in each round, see `take_turns`."""

    def seconds(run: Callable[[], object]) -> float:
        started = time.perf_counter()
        run()
        return time.perf_counter() - started

    return take_turns({name: partial(seconds, run) for name, run in systems.items()}, rounds)


def ratios(ours: Sequence[float], theirs: Sequence[float]) -> list[float]:
    """Ours by theirs in every round."""
    return [a / b for a, b in zip(ours, theirs, strict=True)]


def ratio(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """The median over rounds of ours by theirs."""
    return statistics.median(ratios(ours, theirs))


def spread(values: Sequence[float], form: str) -> list[str]:
    """Median, lowest and highest, in words."""
    return [format(value, form) for value in (statistics.median(values), min(values), max(values))]


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


# --------------------------------------------------------------------------------------------------------------------
# Memory, as Linux tells it: `getrusage` will not do, for a new process begins with the peak of the one that started it.


def memory_growth(warm_up: Callable[[], object], work: Callable[[], object]) -> int:
    """Bytes by which the resident set of this process grows at the most; code and threads are there before."""
    warm_up()
    gc.collect()
    (PROCESS / "clear_refs").write_text("5", encoding="ascii")  # the peak so far is forgotten
    before = _kibibytes("VmRSS:")
    work()
    return peak_bytes() - 1024 * before


def peak_bytes() -> int:
    """The most bytes of this process that were resident at a time, since it began or `memory_growth` did."""
    return 1024 * _kibibytes("VmHWM:")


def _kibibytes(name: str) -> int:
    lines = (PROCESS / "status").read_text(encoding="ascii", errors="replace").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name))


def each_in_a_process(measure: Callable[[Argument], Result], cases: Sequence[Argument]) -> list[Result]:
    """What a function returns for each case, in a new process for each, one after the other."""
    found, context = [], multiprocessing.get_context("spawn")
    with (
        progress("Measuring", len(cases), "processes") as bar,
        ProcessPoolExecutor(1, mp_context=context, max_tasks_per_child=1) as processes,
    ):
        for result in processes.map(measure, cases):
            found.append(result)
            bar.advance()
    return found


# --------------------------------------------------------------------------------------------------------------------
# A server.


@contextmanager
def serving(model: str | Path, threads: int | None = None, precision: str | None = None) -> Iterator[tuple[Any, int]]:
    """`albert serve` on the CPU: its process, and the port that it listens at, once it is ready."""
    command = [sys.executable, "-m", "albert", "serve", str(model), "--port", "0", "--device", "cpu"]
    command += [] if threads is None else ["--threads", str(threads)]
    command += [] if precision is None else ["--precision", precision]
    environment = os.environ | ({} if threads is None else {"OMP_NUM_THREADS": str(threads)})
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) as server:
        assert server.stderr is not None
        try:
            port = int(server.stderr.readline().split("listening at ")[1].split(",")[0].rsplit(":", 1)[1])
            while "ready:" not in (line := server.stderr.readline()):
                if not line:
                    raise SystemExit("albert serve ended before it was ready")
            yield server, port
        finally:
            server.kill()
