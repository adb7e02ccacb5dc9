"""Kill `albert tables`, then finish it with the same command; test_tables.py runs this as a script.

Usage: `killed_tables.py ROOT WORD…` with the arguments of `albert`.
"""

import os
import signal
import sys
import time
from pathlib import Path

import torch._dynamo  # noqa: F401 (imported before the fork, because torch's optimisers import it at their first use)
from tests.paper.tables.toy_scale import TOY

from albert.cli.main import run
from albert.paper import grids


def main(root: Path, words: list[str]) -> int:
    """Kill a process at a checkpoint of its second run, then repeat the command; returns its exit code."""
    grids.SCALES["tiny"] = TOY
    child = os.fork()
    if child == 0:
        os._exit(run(words))
    while not (list(root.glob("runs/*/model")) and list(root.glob("runs/*/checkpoints/step-00000002"))):
        if os.waitpid(child, os.WNOHANG)[0]:
            return 1
        time.sleep(0.002)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    assert len(list(root.glob("runs/*/model"))) < 3, "it was killed too late"
    return run(words)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
