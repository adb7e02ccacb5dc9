"""Runs of `albert` in forked children that tell what they are doing, so that a kill meets the phase it is meant for.

On a busy machine a kill may come late. The run that it is meant for therefore stands still at the end of that phase: it
can neither end nor get far before it dies.
"""

import contextlib
import json
import os
import random
import select
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from multiprocessing.util import Finalize
from pathlib import Path
from types import MappingProxyType

from albert.runtime.json_files import read_journal
from albert.runtime.manifest import verify_directory
from albert.training.logging import MACHINE_FIGURES
from albert.training.run_folder import RunFolder
from reliability.durable_calls import Fault
from reliability.report import CHECKOUT

PHASES = ("start", "training", "save", "rotation", "evaluation")
"""What a kill can be meant for."""
DEADLINE = 120.0
"""Seconds; far more than any wait should take."""


class Run:
    """One command in a process of its own.

    Attributes:
        arguments: its words.
        process: its number, and that of its group.
        told: moments of its phases, with the time.
        samples: what it told of the samples of each step, when it was asked to.
        code: its exit code once it has ended, negative when a signal ended it.
    """

    def __init__(self, server: "ForkServer", arguments: list[str], printed: Path) -> None:
        self._server, self.arguments, self._printed = server, arguments, printed
        self.process = 0
        self.began = time.monotonic()
        self.told: list[tuple[float, str]] = []
        self.samples: dict[int, list[str]] = {}
        self.code: int | None = None

    @property
    def phase(self) -> str:
        """What it was doing when it last told something."""
        last = self.told[-1][1] if self.told else "start"
        if last == "after-rotation":  # which is a part of saving
            return "save"
        return "between" if last.startswith("after-") else last

    @property
    def printed(self) -> str:
        """What it wrote to standard output and error."""
        return self._printed.read_text()

    def wait_until(self, condition: Callable[[], bool]) -> None:
        """Return when the condition holds, which changes as the run tells more, or the run has ended."""
        deadline = time.monotonic() + DEADLINE
        while self.code is None and not condition():
            assert time.monotonic() < deadline, self.printed
            self._server.listen(1.0)

    def finish(self) -> int:
        """Its exit code."""
        self.wait_until(lambda: False)
        assert self.code is not None
        return self.code

    def signal(self, number: int) -> None:
        """Send a signal to the whole process group."""
        with contextlib.suppress(ProcessLookupError):  # it may end by itself at this very moment
            os.killpg(self.process, number)

    def kill(self) -> bool:
        """SIGKILL; whether that is what it died of."""
        self.signal(signal.SIGKILL)
        return self.finish() == -signal.SIGKILL


class ForkServer:
    """Starts commands in children of a process that has imported everything.

    Args:
        directory: where what they print is kept.
        below: a command that runs the server as its last words, `unshare` say.
    """

    def __init__(self, directory: Path, below: Sequence[str] = ()) -> None:
        self._directory = directory
        self._process = subprocess.Popen(
            [*below, sys.executable, "-m", "reliability.fork_server"],
            cwd=CHECKOUT,
            env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "default"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self._heard = b""
        self._starting: list[Run] = []
        self._runs: dict[int, Run] = {}

    @property
    def root(self) -> Path:
        """The file systems as the server sees them."""
        return Path(f"/proc/{self._process.pid}/root")

    def start(
        self,
        arguments: list[str],
        stand_still: str = "",
        tell_samples: bool = False,
        fault: Fault | None = None,
        diverge_at: int | None = None,
        **environment: str,
    ) -> Run:
        """`albert` with these words.

        Args:
            arguments: the words; behind "python", a file that is run instead, and its words.
            stand_still: a moment, `after-save 2` say, at which it stops for good.
            tell_samples: whether it tells what the samples of each step are.
            fault: what it meets when it changes the disk.
            diverge_at: how many micro-batches have a loss; those that follow have none.
            environment: variables beside those of this process.
        """
        run = Run(self, arguments, self._directory / f"printed-{len(self._runs)}-{len(self._starting)}.txt")
        request = {"arguments": arguments, "environment": environment, "stand_still": stand_still}
        request |= {"tell_samples": tell_samples, "diverge_at": diverge_at, "printed": str(run._printed)}
        request["fault"] = None if fault is None else asdict(fault)
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(request).encode() + b"\n")
        self._process.stdin.flush()
        self._starting.append(run)
        run.wait_until(lambda: run.process > 0)
        return run

    def start_world(
        self,
        commands: Sequence[list[str]],
        stand_still: Mapping[int, str] = MappingProxyType({}),
        tell_samples: bool = False,
        diverge_at: Mapping[int, int] = MappingProxyType({}),
    ) -> list[Run]:
        """One process for each rank, with the words, the place to stand still and to diverge of each."""
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = str(free.getsockname()[1])
        return [
            self.start(
                arguments,
                stand_still.get(rank, ""),
                tell_samples,
                diverge_at=diverge_at.get(rank),
                RANK=str(rank),
                LOCAL_RANK=str(rank),
                WORLD_SIZE=str(len(commands)),
                MASTER_ADDR="127.0.0.1",
                MASTER_PORT=port,
            )
            for rank, arguments in enumerate(commands)
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
        """End the server, once its children have ended."""
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


class Killer:
    """Starts runs and kills each in the phase that it is meant for, at a moment drawn within it.

    Args:
        server: what starts them.
        undisturbed: a finished run, which says how long each phase takes.
        draws: where moments come from.
    """

    def __init__(self, server: ForkServer, undisturbed: Run, draws: random.Random) -> None:
        self._server, self._draws = server, draws
        self._seconds = {phase: statistics.median(lengths(undisturbed, phase)) for phase in PHASES}

    def start_and_kill(self, arguments: list[str], phase: str) -> str | None:
        """The phase that a run died in; None when it had ended before."""
        occurrence = self._draws.randint(1, 2)
        last = "training 1" if phase == "start" else f"after-{phase} {occurrence}"
        run = self._server.start(arguments, stand_still=last)
        if phase != "start":
            run.wait_until(lambda: [what for _, what in run.told].count(phase) >= occurrence)
        time.sleep(self._draws.uniform(0, self._seconds[phase]))
        return run.phase if run.kill() else None


def lengths(run: Run, phase: str) -> list[float]:
    """Seconds of each occurrence of a phase."""
    started, found = run.began, []
    for moment, what in run.told:
        if what == phase:
            started = moment
        elif what == f"after-{phase}":
            found.append(moment - started)
    return found or [run.told[0][0] - run.began]


def told(run: Path) -> list[dict]:
    """The journal of a finished run, without what its clock said."""
    return [{k: v for k, v in r.items() if k not in MACHINE_FIGURES} for r in read_journal(run / "journal.jsonl")]


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
