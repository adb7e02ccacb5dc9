"""Time of reading a CSV of short rows: `albert.tasks.rows.read_table` beside pandas, each in a process of its own.

    python -m dev.benchmarks.read_tables --rows 1000000 --rounds 5

Processes take turns. The time is that of the process (user and system), because other work on the machine does not
count in it; the import of the libraries is left out. Printed are the medians and their ratio.
"""

import argparse
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

READERS = {
    "pandas": "import pandas; read = lambda: pandas.read_csv(path)",
    "pandas, then dicts": "import pandas; read = lambda: pandas.read_csv(path).to_dict('records')",
    "albert": "import pathlib; from albert.tasks.rows import read_table; read = lambda: read_table(pathlib.Path(path))",
}
PROGRAM = """
import sys, time
path = sys.argv[1]
{reader}
started = time.process_time()
rows = read()
print(time.process_time() - started)
"""


def main() -> None:
    """Measure, and print the medians."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.csv"
        with open(path, "w", encoding="utf-8") as file:
            file.write("text,label\n")
            for number in range(options.rows):
                file.write(f"it was a good film number {number},{'pos' if number % 2 else 'neg'}\n")
        seconds: dict[str, list[float]] = {name: [] for name in READERS}
        for _ in range(options.rounds):
            for name, reader in READERS.items():
                command = [sys.executable, "-c", PROGRAM.format(reader=reader), str(path)]
                done = subprocess.run(command, capture_output=True, text=True, check=True)
                seconds[name].append(float(done.stdout.splitlines()[-1]))
    medians = {name: statistics.median(each) for name, each in seconds.items()}
    for name, median in medians.items():
        ratio = medians["albert"] / median
        print(f"{name:20} {median:6.2f} s for {options.rows:,} rows; albert takes {ratio:.2f} times as long")


if __name__ == "__main__":
    main()
