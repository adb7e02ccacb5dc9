"""Time and memory of reading a CSV of short rows: `albert.tasks.reading.rows.read_table` beside `pandas.read_csv`.

    python dev/benchmarks/table_reading.py

Each measurement is a process of its own, and systems take turns. Seconds are processor time without imports, because
other work on the machine does not count in it; memory is the growth of the resident set. What is read has three stages:
the file (`read`), all texts of both columns as lists of Python (`columns`), and an object for each row (`rows`).
"""

import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import harness

COLUMNS = (
    "rows", "texts", "megabytes", "stage", "albert_seconds", "pandas_seconds", "times_pandas",
    "albert_megabytes", "pandas_megabytes",
)  # fmt: skip
READERS = {
    "albert": """
from pathlib import Path
from albert.tasks.reading.rows import read_table, without_collection
def read(path, stage):
    rows = read_table(Path(path))
    if stage == "columns":
        return [rows.values(name) for name in rows.columns]
    if stage == "rows":
        with without_collection():
            return list(rows.rows)
    return rows
""",
    "pandas": """
import pandas
def read(path, stage):
    frame = pandas.read_csv(path)
    if stage == "columns":
        return [frame[name].tolist() for name in frame]
    return frame.to_dict("records") if stage == "rows" else frame
""",
}
PROGRAM = """
import sys, tempfile, time
{reader}
def resident(name):
    with open("/proc/self/status", encoding="ascii", errors="replace") as file:
        return next(1024 * int(line.split()[1]) for line in file if line.startswith(name))
path, stage = sys.argv[1:]
with tempfile.NamedTemporaryFile("w", suffix=".csv") as file:
    file.write("text,label\\n" + "a text,a label\\n" * 100)
    file.flush()
    read(file.name, stage)  # loads code
with open("/proc/self/clear_refs", "w", encoding="ascii") as file:
    file.write("5")  # resets the peak
before = resident("VmRSS:")
started = time.process_time()
result = read(path, stage)
print(time.process_time() - started, resident("VmHWM:") - before)
"""
TEXTS = {"plain": "it was a good film number {}", "quoted": '"it was a good film, number {}"'}


@dataclass(frozen=True, kw_only=True)
class Benchmark:
    """Measure the reading of tables."""

    rows: int = 1_000_000
    rounds: int = 5
    output: Path = Path("results/benchmark-table-reading.csv")


def measure(args: Benchmark) -> Iterator[dict[str, object]]:
    """A row for each kind of texts and each stage."""
    with tempfile.TemporaryDirectory() as folder:
        for texts, form in TEXTS.items():
            path = Path(folder) / f"{texts}.csv"
            write_table(path, form, args.rows)
            for stage in ("read", "columns", "rows"):
                systems = {
                    "albert": partial(alone, "albert", path, stage),
                    "pandas": partial(alone, "pandas", path, stage),
                }
                results = harness.alternate(systems, args.rounds, warm_up=0)
                seconds = {name: [each[0] for each in values] for name, values in results.items()}
                memory = {name: statistics.median(each[1] for each in values) for name, values in results.items()}
                yield {
                    "rows": args.rows,
                    "texts": texts,
                    "megabytes": round(path.stat().st_size / 1e6, 1),
                    "stage": stage,
                    "albert_seconds": round(statistics.median(seconds["albert"]), 3),
                    "pandas_seconds": round(statistics.median(seconds["pandas"]), 3),
                    "times_pandas": round(harness.ratio(seconds["albert"], seconds["pandas"]), 2),
                    "albert_megabytes": round(memory["albert"] / 1e6),
                    "pandas_megabytes": round(memory["pandas"] / 1e6),
                }


def write_table(path: Path, form: str, rows: int) -> None:
    """A CSV with the columns text and label."""
    with open(path, "w", encoding="utf-8") as file:
        file.write("text,label\n")
        for number in range(rows):
            file.write(f"{form.format(number)},{'pos' if number % 2 else 'neg'}\n")


def alone(system: str, path: Path, stage: str) -> tuple[float, int]:
    """Seconds and bytes of a reader in a new process."""
    command = [sys.executable, "-c", PROGRAM.format(reader=READERS[system]), str(path), stage]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    seconds, size = done.stdout.split()[-2:]
    return float(seconds), int(size)


main = harness.script(Benchmark, COLUMNS, measure, same=("rows", "texts", "stage"))

if __name__ == "__main__":
    main()
