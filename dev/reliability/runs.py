"""Runs commands in forked processes that report their phases, and reads the files of a finished run."""

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

from dev.reliability.durable_calls import Fault
from dev.reliability.report import CHECKOUT

from albert.runtime.errors import AlbertError
from albert.runtime.json_files import read_journal
from albert.runtime.manifest import MANIFEST_NAME, verify_directory
from albert.training.logging import MACHINE_METRICS
from albert.training.run_folder import RunFolder

DEADLINE = 120.0
"""Seconds to wait for anything; far more than needed."""
EMPTY: Mapping[Any, Any] = MappingProxyType({})


BEFORE_FORKS = ["dev.reliability.forked_albert:warm_up"]
"""What fork servers import, or call where a function is named, before their first fork."""


class Run:
    """A call in its own process."""

    def __init__(self, server: "ForkServer", printed: Path) -> None:
        self._server, self._printed = server, printed
        self.process = 0  # its id, and that of its process group
        self.started = time.monotonic()
        self.events: list[tuple[float, str]] = []  # time and name: "save" and "after-save", say
        self.samples: dict[int, list[str]] = {}  # by step, if requested
        self.code: int | None = None  # exit code; None while it runs, negative if a signal ended it

    @property
    def phase(self) -> str:
        """The phase of its last event."""
        last = self.events[-1][1] if self.events else "start"
        if last == "after-rotation":  # rotation is a part of saving
            return "save"
        return "between" if last.startswith("after-") else last

    @property
    def printed(self) -> str:
        return self._printed.read_text()

    @property
    def ending(self) -> str:
        """Its exit code and the end of its output, for messages."""
        return f"exit code {self.code}: {self.printed[-300:]!r}"

    def wait_until(self, condition: Callable[[], bool], seconds: float = DEADLINE) -> None:
        """Wait until the condition holds or the run has ended; TimeoutError if neither happens in time."""
        deadline = time.monotonic() + seconds
        while self.code is None and not condition():
            if time.monotonic() > deadline:
                raise TimeoutError(f"still running after {seconds:.0f} s: {self.printed[-300:]!r}")
            self._server.listen(1.0)

    def wait_for(self, moment: str, times: int = 1) -> None:
        """Wait until an event has happened so many times, or the run has ended."""
        self.wait_until(lambda: [name for _, name in self.events].count(moment) >= times)

    def finish(self, seconds: float = DEADLINE) -> int:
        self.wait_until(lambda: False, seconds)
        assert self.code is not None
        return self.code

    def signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):  # it may have just ended
            os.killpg(self.process, number)

    def kill(self) -> bool:
        """Send SIGKILL; returns whether the signal ended the run."""
        self.signal(signal.SIGKILL)
        return self.finish() == -signal.SIGKILL


class ForkServer:
    """Starts calls in forks of a process that has imported everything (see fork_server.py)."""

    def __init__(
        self,
        output: Path,  # for the output of the calls
        below: Sequence[str] = (),  # a command that runs the server, such as `unshare`
        before_forks: Sequence[str] | None = None,  # None: BEFORE_FORKS
        directory: Path = CHECKOUT,  # the working directory, from which packages are imported
        environment: Mapping[str, str] = EMPTY,
    ) -> None:
        self._output = output
        self._process = subprocess.Popen(
            [*below, sys.executable, "-m", "dev.reliability.fork_server", *(before_forks or BEFORE_FORKS)],
            cwd=directory,
            env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "default", **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self._buffer = b""
        self._starting: list[Run] = []
        self._runs: dict[int, Run] = {}
        self._calls = 0

    @property
    def root(self) -> Path:
        return Path(f"/proc/{self._process.pid}/root")

    def start(
        self,
        words: list[str],
        pause_at: str = "",
        tell_samples: bool = False,
        fault: Fault | None = None,
        diverge_at: int | None = None,
        environment: Mapping[str, str] = EMPTY,
    ) -> Run:
        """Run `albert` with these arguments; for the others see `forked_albert.run`."""
        arguments = [words, pause_at, tell_samples, diverge_at, None if fault is None else asdict(fault)]
        return self.call("dev.reliability.forked_albert:run", arguments, environment)

    def call(self, function: str, arguments: list, environment: Mapping[str, str]) -> Run:
        """Call a function ("module:function") that returns the exit code."""
        self._calls += 1
        printed = self._output / f"printed-{self._calls}.txt"
        run = Run(self, printed)
        request = {"call": function, "arguments": arguments, "environment": dict(environment), "printed": str(printed)}
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(request).encode() + b"\n")
        self._process.stdin.flush()
        self._starting.append(run)
        run.wait_until(lambda: run.process > 0)
        return run

    def run_to_end(self, words: list[str], output: Path, fault: Fault | None = None) -> Run:
        """Run a command to its end; RuntimeError if it fails."""
        output.parent.mkdir(parents=True, exist_ok=True)
        run = self.start(words, fault=fault)
        if run.finish() != 0:
            raise RuntimeError(run.printed)
        return run

    def start_world(
        self,
        commands: Sequence[list[str]],
        pause_at: Mapping[int, str] = EMPTY,
        tell_samples: bool = False,
        diverge_at: Mapping[int, int] = EMPTY,
    ) -> list[Run]:
        """Run one command per rank; `pause_at` and `diverge_at` are by rank."""
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = str(free.getsockname()[1])
        world = {"WORLD_SIZE": str(len(commands)), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        return [
            self.start(words, pause_at.get(rank, ""), tell_samples, None, diverge_at.get(rank), world | environment)
            for rank, words in enumerate(commands)
            for environment in [{"RANK": str(rank), "LOCAL_RANK": str(rank)}]
        ]

    def listen(self, seconds: float) -> None:
        """Read events of the children; returns after some were read or the time is over."""
        stream = self._process.stdout
        assert stream is not None
        if not select.select([stream], [], [], seconds)[0]:
            return
        read = os.read(stream.fileno(), 1 << 16)
        assert read, "the fork server has ended"
        *lines, self._buffer = (self._buffer + read).split(b"\n")
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
                self._runs[process].events.append((time.monotonic(), what))

    def close(self) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()


_fork_server: ForkServer | None = None


def fork_server() -> ForkServer:
    """The fork server of this process, started at the first call."""
    global _fork_server
    if _fork_server is None:
        _fork_server = ForkServer(Path(tempfile.mkdtemp(prefix="reliability-printed-")))
        Finalize(None, close_fork_server, exitpriority=0)  # processes of --jobs do not run `atexit`
    return _fork_server


def close_fork_server() -> None:
    """End the fork server of this process, if there is one."""
    global _fork_server
    if _fork_server is not None:
        _fork_server.close()
        shutil.rmtree(_fork_server._output)
        _fork_server = None


def fresh_process(words: Sequence[str], before: Sequence[str] = ()) -> "subprocess.Popen[str]":
    """Start `albert` in a new Python process and process group, with a pipe for its standard error."""
    return subprocess.Popen(
        [*before, sys.executable, "-m", "albert", *words],
        cwd=CHECKOUT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


# ---- files of a run --------------------------------------------------------------------------------------------------


def output_of(words: list[str]) -> Path:
    """The output of a command."""
    return Path(words[words.index("--output") + 1])


def journal_of(run: Path) -> list[dict]:
    """The journal of a finished run, without timings."""
    return [{k: v for k, v in r.items() if k not in MACHINE_METRICS} for r in read_journal(run / "journal.jsonl")]


def final_files(run: Path) -> dict[str, bytes]:
    """The weights of a finished run's model, and the weights and state of its last checkpoint."""
    _, newest = RunFolder(run).checkpoints()[-1]
    verify_directory(newest)
    verify_directory(run / "model")
    return {
        "model": (run / "model" / "model.safetensors").read_bytes(),
        "checkpoint's model": (newest / "model.safetensors").read_bytes(),
        "training state": (newest / "training_state.safetensors").read_bytes(),
    }


def find_damage(folder: Path) -> list[str]:
    """The errors of incomplete or damaged directories below a folder, temporary ones excepted."""
    errors = []
    directories = {manifest.parent for manifest in folder.rglob(MANIFEST_NAME)}
    directories |= {path for _, path in RunFolder(folder).checkpoints()}
    for directory in sorted(directories):
        if not any(part.startswith(".") for part in directory.relative_to(folder.parent).parts):
            try:
                verify_directory(directory)
            except AlbertError as error:
                errors.append(str(error))
    return errors
