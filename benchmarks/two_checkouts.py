"""Pre-training steps of this checkout beside those of an older one, in turns, on a CPU, by processor time, one thread.

It tells whether changes made training slower. A round is some steps of each, on the same samples.

    git worktree add ../before COMMIT
    python benchmarks/two_checkouts.py --data corpus --other ../before
"""

import os
import statistics
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from harness import in_turn, ratio, report

from albert.cli.options import parse
from albert.runtime.errors import InvalidConfiguration

HERE = Path(__file__).resolve().parents[1]
COLUMNS = ("case", "other_commit", "steps", "rounds", "tokens_per_second", "other_tokens_per_second", "ratio", "lowest",
           "highest")  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Benchmark:
    """Compare the speed of training of two checkouts.

    Example: python benchmarks/two_checkouts.py --data corpus --other ../before
    """

    data: Path
    """What `albert prepare` wrote."""
    other: Path
    """The other checkout."""
    cases: tuple[str, ...] = ("H128-L4-n64-b32-fp32", "H128-L4-n64-b32-bf16", "H256-L4-n128-b32-fp32",
                              "H256-L4-n128-b32-bf16", "H768-L12-n128-b8-bf16")  # fmt: skip
    """Width, layers, length, batch and precision."""
    rounds: int = 9
    tokens: int = 6000
    """Of a round at least, about, at the width 256; wider models take fewer."""
    output: Path = Path("results/benchmark-two-checkouts.csv")


def start(data: Path, checkout: Path) -> subprocess.Popen:
    """A process with the package of a checkout."""
    environment = {**os.environ, "PYTHONPATH": str(checkout / "src"), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(HERE / "benchmarks" / "one_checkout.py"), str(data)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)
    found = process.stdout.readline().strip() if process.stdout else ""
    if Path(found).resolve() != checkout:
        raise InvalidConfiguration(checkout, f"does not hold the package that was loaded, {found or 'none'}")
    return process


def took(process: subprocess.Popen, case: str, steps: int) -> tuple[int, float]:
    """Tokens and processor seconds of some steps."""
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(f"{case} {steps}\n")
    process.stdin.flush()
    tokens, seconds = process.stdout.readline().split()
    return int(tokens), float(seconds)


def main(arguments: list[str]) -> None:
    """Run and report."""
    asked = parse(Benchmark, arguments, "two_checkouts.py")
    other = asked.other.resolve()
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=other, capture_output=True, text=True).stdout
    processes = {"this": start(asked.data, HERE), "other": start(asked.data, other)}
    rows = []
    for case in asked.cases:
        width, length, batch_size = (int(case.split("-")[place][1:]) for place in (0, 2, 3))
        steps = max(1, min(asked.tokens, asked.tokens * 256**2 // width**2) // (length * batch_size))
        rates: dict[str, list[float]] = {name: [] for name in processes}
        for number in range(asked.rounds + 1):
            done = {name: took(processes[name], case, steps) for name in in_turn(list(processes), number)}
            assert done["this"][0] == done["other"][0], "the samples differ"
            for name, (tokens, seconds) in done.items():
                rates[name] += [tokens / seconds] if number else []
        ratios = [one / two for one, two in zip(rates["this"], rates["other"], strict=True)]
        medians = (round(statistics.median(rates[name])) for name in ("this", "other"))
        rounded = (f"{value:.3f}" for value in (ratio(rates["this"], rates["other"]), min(ratios), max(ratios)))
        rows.append((case, commit.strip(), steps, asked.rounds, *medians, *rounded))
    for process in processes.values():
        process.kill()
    report(asked.output, COLUMNS, rows, same=("case", "other_commit"))


if __name__ == "__main__":
    main(sys.argv[1:])
