"""A table that is killed and then finished by two processes at once; started by test_tables.py as a script.

Imports once and forks: `killed_tables.py ROOT WORD…`, where the words are those of `albert`. What the two print goes to
ROOT/said-0 and ROOT/said-1.
"""

import os
import signal
import sys
import time
from pathlib import Path

import torch._dynamo  # noqa: F401 (torch's optimisers load it when they are used: here before the forks)
from tests.experiments.tables.toy_scale import TOY

from albert.cli.main import run
from albert.experiments import execution, grids


def start(words: list[str], said: Path) -> int:
    """Run a command in a child; its process number."""
    child = os.fork()
    if child == 0:
        with open(said, "wb", buffering=0) as file:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
        os._exit(run(words))
    return child


def main(root: Path, words: list[str]) -> int:
    """Kill one while it is at its second run, with a checkpoint; the exit codes of the other two."""
    grids.SCALES["tiny"] = TOY
    execution.WAIT_SECONDS = 0.05
    first = start(words, root / "said-first")
    while not (list(root.glob("runs/*/model")) and list(root.glob("runs/*/checkpoints/step-00000002"))):
        if os.waitpid(first, os.WNOHANG)[0]:
            return 1
        time.sleep(0.002)
    os.kill(first, signal.SIGKILL)
    os.waitpid(first, 0)
    assert len(list(root.glob("runs/*/model"))) < 3, "it was killed too late"
    both = [start(words, root / f"said-{number}") for number in range(2)]
    return max(abs(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])) for child in both)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
