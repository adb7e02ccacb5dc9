"""Runs tries in child processes with limited time, memory and files, and detects code execution and network access.

The parent has imported everything, so a start costs a fork. A child reports each try; if no report comes in time, or a
signal ends the child, the present try has failed and another child continues with the next one."""

import os
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from dev.reliability.trials import Tries


@dataclass(frozen=True)
class Limits:
    """Limits of one try."""

    folder: Path  # the only folder it may write to; also for temporary files
    seconds: float = 10.0
    memory: int = 512 << 20  # bytes, in addition to the memory of the process at its start


class Broken(Exception):
    """A promise was broken; the message says how."""


@dataclass(frozen=True)
class Verdict:
    """The result of one try: `kind` is the work's return value, `failure` how a promise was broken, if so."""

    number: int
    kind: str
    failure: str
    seconds: float


def confined(work: Callable[[int], str], count: int, limits: Limits) -> Iterator[Verdict]:
    """Run `work(0)` to `work(count - 1)` in order; `work` returns the kind of result or raises `Broken`."""
    reached = 0
    while reached < count:
        for verdict in _one_process(work, range(reached, count), limits):
            yield verdict
            reached = verdict.number + 1


def record_all(
    tries: Tries, work: Callable[[int], str], limits: Limits, describe: Callable[[int], str], slowest: str
) -> None:
    """Make all tries of a trial, counted by kind.

    `describe` is called for failed tries, after all processes have ended; `slowest` is the detail for the longest time.
    """
    broken = []
    for verdict in confined(work, tries.count, limits):
        tries.most(slowest, verdict.seconds)
        tries.record((), "" if verdict.failure else verdict.kind)
        broken += [verdict] if verdict.failure else []
    tries.failures += [f"try {verdict.number}, {describe(verdict.number)}: {verdict.failure}" for verdict in broken]


def _one_process(work: Callable[[int], str], numbers: range, limits: Limits) -> Iterator[Verdict]:
    """Verdicts up to and including the first try that ends the process."""
    context = get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    child = context.Process(target=_work_through, args=(work, numbers, limits, sender))
    child.start()
    sender.close()
    reached = numbers.start
    try:
        while reached < numbers.stop:
            if not receiver.poll(limits.seconds):
                yield Verdict(reached, "", f"it took longer than {limits.seconds:g} s", limits.seconds)
                return
            try:
                verdict = receiver.recv()
            except EOFError:
                child.join()
                yield Verdict(reached, "", f"the process ended with {child.exitcode}", 0.0)
                return
            yield verdict
            reached = verdict.number + 1
    finally:
        receiver.close()
        child.kill()
        child.join()


def _work_through(work: Callable[[int], str], numbers: range, limits: Limits, sender: Connection) -> None:
    silence = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silence, 1)  # progress bars, and messages of compiled libraries
    os.dup2(silence, 2)
    if "torch" in sys.modules:  # its other threads do not survive a fork
        sys.modules["torch"].set_num_threads(1)
    tempfile.tempdir = str(limits.folder)
    acts = ForbiddenActs(limits.folder).install()
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * resource.getpagesize() + limits.memory
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    for number in numbers:
        sender.send(_watched(work, number, acts, limits.seconds))
    os._exit(0)  # without waiting for threads


def _watched(work: Callable[[int], str], number: int, acts: "ForbiddenActs", seconds: float) -> Verdict:
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
        failure = f"a forbidden act: {acts.seen[0]}"
    if took > seconds and not failure:
        failure = f"it took {took:.1f} s"
    return Verdict(number, kind, failure[:1000], took)


# ---- forbidden acts --------------------------------------------------------------------------------------------------

_RUNS_CODE = {
    *("pickle.find_class", "marshal.loads", "ctypes.dlopen", "subprocess.Popen"),
    *("os.system", "os.exec", "os.fork", "os.posix_spawn", "os.spawn"),
}
_REACHES_THE_NETWORK = {"socket.connect", "socket.getaddrinfo", "socket.gethostbyname", "socket.sendto"}
_CHANGES_FILES = {
    **dict.fromkeys(("os.chmod", "os.chown", "os.mkdir", "os.remove", "os.rmdir", "os.truncate"), slice(1)),
    **dict.fromkeys(("os.link", "os.symlink"), slice(1, 2)),  # the target of a link is not changed
    "os.rename": slice(2),
}
"""Events that change the contents of a folder, and which of their arguments are paths."""
_FOR_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_SOURCES_OF_CODE = {"<string>", "<stdin>", "<unknown>"}
"""The file names of code that does not come from a module."""
_CHECK_ANNOTATIONS = ("beartype", "jaxtyping")


class ForbiddenActs:
    """Records forbidden acts while `watching`: code execution, network access, changed files outside of a folder.

    Uses Python's audit events (PEP 578), which cover the interpreter's own calls but none inside compiled libraries. An
    audit hook cannot be removed, so use this in child processes.
    """

    def __init__(self, folder: Path) -> None:
        self.watching = False
        self.seen: list[str] = []
        self._folder = os.path.realpath(folder)

    def install(self) -> "ForbiddenActs":
        """Receive all events until the process ends, and do not write compiled modules."""
        sys.dont_write_bytecode = True
        sys.addaudithook(self)
        return self

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self.watching:
            return
        if event in _RUNS_CODE:
            if event != "marshal.loads" or not _is_machinery():
                self.seen.append(f"{event} {arguments!r}"[:300])
        elif event in _REACHES_THE_NETWORK:
            self.seen.append(f"{event} {arguments[1:]!r}"[:300])
        elif event == "exec" and getattr(arguments[0], "co_filename", "") in _SOURCES_OF_CODE and not _is_machinery():
            caller = sys._getframe(1).f_code
            self.seen.append(f"exec of a string by {caller.co_name} in {caller.co_filename}")
        elif event == "open":
            path, _, flags = arguments
            if flags & _FOR_WRITING and not isinstance(path, int) and self._is_outside(path):
                self.seen.append(f"open for writing {path!r}")
        elif event in _CHANGES_FILES:
            changed = arguments[_CHANGES_FILES[event]]
            self.seen += [f"{event} {path!r}" for path in changed if self._is_outside(path, arguments[-1])]

    def _is_outside(self, path: Any, folder: Any = None) -> bool:
        """Whether a path or open file is outside of the allowed folder; `folder`: the directory it is relative to."""
        if isinstance(path, int):
            return False
        name = os.fsdecode(path)
        if name == os.devnull:
            return False
        if isinstance(folder, int) and folder > 2 and not os.path.isabs(name):
            name = os.path.join(os.readlink(f"/proc/self/fd/{folder}"), name)
        real = os.path.join(os.path.realpath(os.path.dirname(name) or "."), os.path.basename(name))
        return os.path.commonpath([real, self._folder]) != self._folder


def _is_machinery() -> bool:
    """Whether the code comes from an import (libraries import modules late) or a checker of annotations (in tests)."""
    frame = sys._getframe(2)
    while frame is not None:
        file = frame.f_code.co_filename
        checks = any(f"{os.sep}{name}{os.sep}" in file for name in _CHECK_ANNOTATIONS)
        if checks or file.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False
