"""Kill `albert tables`, then finish it with two processes; test_tables.py runs this as a script.

Usage: `killed_tables.py ROOT WORD…` with the arguments of `albert`. The output of the two processes goes to
ROOT/output-0 and ROOT/output-1.
"""

import os
import signal
import sys
import time
from pathlib import Path

import torch._dynamo  # noqa: F401 (imported before the forks, because torch's optimisers import it at their first use)
from tests.experiments.tables.toy_scale import TOY

from albert.cli.main import run
from albert.experiments import execution, grids


def start(words: list[str], output: Path) -> int:
    """Run a command in a child process; returns its id."""
    child = os.fork()
    if child == 0:
        with open(output, "wb", buffering=0) as file:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
        os._exit(run(words))
    return child


def main(root: Path, words: list[str]) -> int:
    """Kill a process at a checkpoint of its second run, then run two; returns the larger exit code."""
    grids.SCALES["tiny"] = TOY
    execution.WAIT_SECONDS = 0.05
    first = start(words, root / "output-first")
    while not (list(root.glob("runs/*/model")) and list(root.glob("runs/*/checkpoints/step-00000002"))):
        if os.waitpid(first, os.WNOHANG)[0]:
            return 1
        time.sleep(0.002)
    os.kill(first, signal.SIGKILL)
    os.waitpid(first, 0)
    assert len(list(root.glob("runs/*/model"))) < 3, "it was killed too late"
    both = [start(words, root / f"output-{number}") for number in range(2)]
    return max(abs(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])) for child in both)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
