"""Tries in processes of their own, with a time, a memory and a folder; a process that hangs or dies costs one try.

The parent is warm, so a start costs a fork. A child tells of each try in a line; where no line comes in time, or the
child dies of a signal, the try it was at has failed and another child goes on behind it.
"""

import contextlib
import json
import os
import resource
import select
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from reliability.forbidden_acts import ForbiddenActs


@dataclass(frozen=True)
class Limits:
    """What one try may take.

    Args:
        folder: the only place where it may write; temporary files go there.
        seconds: of a clock on the wall.
        memory: bytes beyond what the process had when it began.
    """

    folder: Path
    seconds: float = 10.0
    memory: int = 512 << 20


class Broken(Exception):
    """A promise was broken; says how."""


@dataclass(frozen=True)
class Verdict:
    """How one try ended: `kind` is what the work returned, `failure` how a promise was broken, or empty."""

    number: int
    kind: str
    failure: str
    seconds: float


def confined(work: Callable[[int], str], count: int, limits: Limits) -> Iterator[Verdict]:
    """Do `work(0)` to `work(count - 1)` in order, each watched.

    Args:
        work: returns in a word how it ended, or raises `Broken`; whatever else it raises is a failure too.
        count: how many.
        limits: of each.
    """
    reached = 0
    while reached < count:
        for verdict in _one_process(work, range(reached, count), limits):
            yield verdict
            reached = verdict.number + 1


def _one_process(work: Callable[[int], str], numbers: range, limits: Limits) -> Iterator[Verdict]:
    """Verdicts up to the first try that ends the process, that one included."""
    sys.stdout.flush()
    sys.stderr.flush()
    told, telling = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(told)
        _work_through(work, numbers, limits, telling)
    os.close(telling)
    waiting, reached = b"", numbers.start
    try:
        while reached < numbers.stop:
            if not select.select([told], [], [], limits.seconds)[0]:
                yield Verdict(reached, "", f"it took longer than {limits.seconds:g} s", limits.seconds)
                return
            read = os.read(told, 1 << 16)
            *lines, waiting = (waiting + read).split(b"\n")
            for line in lines:
                verdict = Verdict(**json.loads(line))
                yield verdict
                reached = verdict.number + 1
            if not read and reached < numbers.stop:
                _, status = os.waitpid(child, 0)
                child = 0
                yield Verdict(reached, "", f"the process ended with {os.waitstatus_to_exitcode(status)}", 0.0)
                return
    finally:
        os.close(told)
        if child:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)


def _work_through(work: Callable[[int], str], numbers: range, limits: Limits, telling: int) -> None:
    """All tries, in the child; it does not return."""
    code = 1
    try:
        silence = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silence, 1)  # progress, and what compiled libraries say of damage
        os.dup2(silence, 2)
        if "torch" in sys.modules:  # its other threads did not come along
            sys.modules["torch"].set_num_threads(1)
        tempfile.tempdir = str(limits.folder)
        acts = ForbiddenActs(limits.folder).install()
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        most = pages * resource.getpagesize() + limits.memory
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
        for number in numbers:
            verdict = _watched(work, number, acts, limits.seconds)
            os.write(telling, json.dumps(vars(verdict)).encode() + b"\n")
        code = 0
    finally:
        os._exit(code)


def _watched(work: Callable[[int], str], number: int, acts: ForbiddenActs, seconds: float) -> Verdict:
    kind = failure = ""
    acts.seen.clear()
    started = time.monotonic()
    acts.watching = True
    try:
        kind = work(number)
    except Broken as broken:
        failure = str(broken)
    except BaseException as error:
        failure = f"{type(error).__module__}.{type(error).__qualname__}: {error}"
    finally:
        acts.watching = False
    took = time.monotonic() - started
    if acts.seen and not failure:
        failure = f"it did what is forbidden: {acts.seen[0]}"
    if took > seconds and not failure:
        failure = f"it took {took:.1f} s"
    return Verdict(number, kind, failure[:1000], took)
