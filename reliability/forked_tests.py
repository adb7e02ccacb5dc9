"""Has imported what tests stand on, and runs pytest in forked children, each of which imports the project anew.

That is most of what a short test costs. Reads lines of JSON: pytest's words, a file for what is printed, whether to
keep what is compiled. Tells `PROCESS` when a child begins, and its exit code when it has ended, a line each. Nothing
here imports the project, and nothing that is a plug-in of pytest, which wants to import those itself.
"""

import importlib
import json
import os
import sys

import pytest

IMPORTED = ("matplotlib", "numpy", "rich.progress", "safetensors.torch", "scipy.stats", "sklearn.metrics",
            "sentencepiece", "torch.distributed", "torch.utils.tensorboard", "tyro")  # fmt: skip


def serve() -> None:
    """Run pytest for each line."""
    for name in IMPORTED:
        importlib.import_module(name)
    for line in sys.stdin:
        request = json.loads(line)
        child = os.fork()
        if child == 0:
            _run(**request)
        print(child, flush=True)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


def _run(words: list[str], printed: str, keep_compiled: bool) -> None:
    """Become pytest; never returns."""
    os.setsid()
    with open(printed, "wb") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    sys.dont_write_bytecode = not keep_compiled
    code = 1
    try:
        code = int(pytest.main(words))
    finally:
        sys.stdout.flush()
        os._exit(code)


if __name__ == "__main__":
    serve()
