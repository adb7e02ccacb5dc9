"""Commands in forked children that tell what they are doing, and what a run leaves."""

import contextlib
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from multiprocessing.util import Finalize
from pathlib import Path
from types import MappingProxyType
from typing import Any

from albert.runtime.errors import AlbertError
from albert.runtime.json_files import read_journal
from albert.runtime.manifest import MANIFEST_NAME, verify_directory
from albert.training.logging import MACHINE_METRICS
from albert.training.run_folder import RunFolder
from reliability.durable_calls import Fault
from reliability.report import CHECKOUT

DEADLINE = 120.0
"""Seconds; far more than any wait should take."""
NOTHING: Mapping[Any, Any] = MappingProxyType({})


class Run:
    """A call in a process of its own."""

    def __init__(self, server: "ForkServer", printed: Path) -> None:
        self._server, self._printed = server, printed
        self.process = 0  # its number, and that of its group
        self.began = time.monotonic()
        self.told: list[tuple[float, str]] = []  # moments of its phases, with the time
        self.samples: dict[int, list[str]] = {}  # of each step, when it was asked to tell them
        self.code: int | None = None  # once it has ended; negative when a signal ended it

    @property
    def phase(self) -> str:
        """What it was doing when it last told something."""
        last = self.told[-1][1] if self.told else "start"
        if last == "after-rotation":  # which is a part of saving
            return "save"
        return "between" if last.startswith("after-") else last

    @property
    def printed(self) -> str:
        return self._printed.read_text()

    @property
    def ending(self) -> str:
        """Its exit code and the end of what it printed, for a message."""
        return f"exit code {self.code}: {self.printed[-300:]!r}"

    def wait_until(self, condition: Callable[[], bool], seconds: float = DEADLINE) -> None:
        """Return when the condition holds or the run has ended; TimeoutError when neither comes in time."""
        deadline = time.monotonic() + seconds
        while self.code is None and not condition():
            if time.monotonic() > deadline:
                raise TimeoutError(f"no end within {seconds:.0f} s: {self.printed[-300:]!r}")
            self._server.listen(1.0)

    def wait_for(self, moment: str, times: int = 1) -> None:
        """Return when it has told a moment of a phase so many times, or has ended."""
        self.wait_until(lambda: [what for _, what in self.told].count(moment) >= times)

    def finish(self, seconds: float = DEADLINE) -> int:
        self.wait_until(lambda: False, seconds)
        assert self.code is not None
        return self.code

    def signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):  # it may end by itself at this very moment
            os.killpg(self.process, number)

    def kill(self) -> bool:
        """SIGKILL; whether that is what it died of."""
        self.signal(signal.SIGKILL)
        return self.finish() == -signal.SIGKILL


class ForkServer:
    """Starts calls in children of a process that has imported everything (see fork_server.py)."""

    def __init__(
        self,
        directory: Path,  # where what they print is kept
        below: Sequence[str] = (),  # a command that runs the server as its last words, `unshare` say
        imported: Sequence[str] = ("reliability.forked_albert:warm_up",),
        place: Path = CHECKOUT,  # the working directory, whose packages are imported
        environment: Mapping[str, str] = NOTHING,
    ) -> None:
        self._directory = directory
        self._process = subprocess.Popen(
            [*below, sys.executable, "-m", "reliability.fork_server", *imported],
            cwd=place,
            env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "default", **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self._heard = b""
        self._starting: list[Run] = []
        self._runs: dict[int, Run] = {}
        self._calls = 0

    @property
    def root(self) -> Path:
        return Path(f"/proc/{self._process.pid}/root")

    def start(
        self,
        words: list[str],
        stand_still: str = "",
        tell_samples: bool = False,
        fault: Fault | None = None,
        diverge_at: int | None = None,
        environment: Mapping[str, str] = NOTHING,
    ) -> Run:
        """`albert` with these words; the other arguments are those of `forked_albert.run`."""
        arguments = [words, stand_still, tell_samples, diverge_at, None if fault is None else asdict(fault)]
        return self.call("reliability.forked_albert:run", arguments, environment)

    def call(self, function: str, arguments: list, environment: Mapping[str, str]) -> Run:
        """A function ("module:function") whose result is the exit code."""
        self._calls += 1
        printed = self._directory / f"printed-{self._calls}.txt"
        run = Run(self, printed)
        request = {"call": function, "arguments": arguments, "environment": dict(environment), "printed": str(printed)}
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(request).encode() + b"\n")
        self._process.stdin.flush()
        self._starting.append(run)
        run.wait_until(lambda: run.process > 0)
        return run

    def finished(self, words: list[str], output: Path, fault: Fault | None = None) -> Run:
        """A command that ended well; RuntimeError when it did not."""
        output.parent.mkdir(parents=True, exist_ok=True)
        done = self.start(words, fault=fault)
        if done.finish() != 0:
            raise RuntimeError(done.printed)
        return done

    def start_world(
        self,
        commands: Sequence[list[str]],
        stand_still: Mapping[int, str] = NOTHING,
        tell_samples: bool = False,
        diverge_at: Mapping[int, int] = NOTHING,
    ) -> list[Run]:
        """One process for each rank, with the place to stand still and to diverge of each."""
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = str(free.getsockname()[1])
        world = {"WORLD_SIZE": str(len(commands)), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        return [
            self.start(words, stand_still.get(rank, ""), tell_samples, None, diverge_at.get(rank), world | environment)
            for rank, words in enumerate(commands)
            for environment in [{"RANK": str(rank), "LOCAL_RANK": str(rank)}]
        ]

    def listen(self, seconds: float) -> None:
        """Take in what the children tell, and return after something came or the time is over."""
        stream = self._process.stdout
        assert stream is not None
        if not select.select([stream], [], [], seconds)[0]:
            return
        read = os.read(stream.fileno(), 1 << 16)
        assert read, "the fork server has ended"
        *lines, self._heard = (self._heard + read).split(b"\n")
        for line in lines:
            number, what = line.decode().split(" ", 1)
            process = int(number)
            if what == "started":
                run = self._starting.pop(0)
                run.process, self._runs[process] = process, run
            elif what.startswith("samples"):
                _, step, *samples = what.split()
                self._runs[process].samples[int(step)] = samples
            elif what.startswith("ended"):
                self._runs[process].code = int(what.split()[1])
            else:
                self._runs[process].told.append((time.monotonic(), what))

    def close(self) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()


_kept: ForkServer | None = None


def fork_server() -> ForkServer:
    """The fork server of this process, which is started once and ends with it."""
    global _kept
    if _kept is None:
        _kept = ForkServer(Path(tempfile.mkdtemp(prefix="reliability-printed-")))
        Finalize(None, close_fork_server, exitpriority=0)  # a process of --jobs ends without `atexit`
    return _kept


def close_fork_server() -> None:
    """End the fork server of this process, if there is one."""
    global _kept
    if _kept is not None:
        _kept.close()
        shutil.rmtree(_kept._directory)
        _kept = None


def fresh_process(words: Sequence[str], before: Sequence[str] = ()) -> "subprocess.Popen[str]":
    """`albert` in a Python process and a group of its own, as a user starts it; its standard error can be read."""
    return subprocess.Popen(
        [*before, sys.executable, "-m", "albert", *words],
        cwd=CHECKOUT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


# ---- what a run leaves -----------------------------------------------------------------------------------------------


def output_of(words: list[str]) -> Path:
    """Where a command writes."""
    return Path(words[words.index("--output") + 1])


def journal_of(run: Path) -> list[dict]:
    """The journal of a finished run, without what its clock said."""
    return [{k: v for k, v in r.items() if k not in MACHINE_METRICS} for r in read_journal(run / "journal.jsonl")]


def final_files(run: Path) -> dict[str, bytes]:
    """What a finished run leaves: its model, and the weights and moments of its last checkpoint."""
    _, newest = RunFolder(run).checkpoints()[-1]
    verify_directory(newest)
    verify_directory(run / "model")
    return {
        "model": (run / "model" / "model.safetensors").read_bytes(),
        "checkpoint's model": (newest / "model.safetensors").read_bytes(),
        "training state": (newest / "training_state.safetensors").read_bytes(),
    }


def damages(place: Path) -> list[str]:
    """What stands under a final name, and is not whole."""
    found = []
    final = {manifest.parent for manifest in place.rglob(MANIFEST_NAME)}
    final |= {path for _, path in RunFolder(place).checkpoints()}
    for directory in sorted(final):
        if not any(part.startswith(".") for part in directory.relative_to(place.parent).parts):
            try:
                verify_directory(directory)
            except AlbertError as error:
                found.append(str(error))
    return found
