"""Tries in processes of their own, with a time, a memory and a folder, and watched: no code run, no network reached.

The parent is warm, so a start costs a fork. A child tells of each try; where nothing comes in time, or the child dies
of a signal, the try it was at has failed and another child goes on behind it.
"""

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

from reliability.trials import Tries


@dataclass(frozen=True)
class Limits:
    """What one try may take."""

    folder: Path  # the only place where it may write; temporary files go there
    seconds: float = 10.0
    memory: int = 512 << 20  # bytes beyond what the process had when it began


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
    """Do `work(0)` to `work(count - 1)` in order, each watched: its word for how it ended, or `Broken`."""
    reached = 0
    while reached < count:
        for verdict in _one_process(work, range(reached, count), limits):
            yield verdict
            reached = verdict.number + 1


def record_all(
    tries: Tries, work: Callable[[int], str], limits: Limits, told: Callable[[int], str], slowest: str
) -> None:
    """Make all tries of a trial, each counted by how it ended.

    What failed is described by `told`, once all other processes have ended; `slowest` names the longest time.
    """
    broken = []
    for verdict in confined(work, tries.count, limits):
        tries.most(slowest, verdict.seconds)
        tries.record((), "" if verdict.failure else verdict.kind)
        broken += [verdict] if verdict.failure else []
    tries.failures += [f"try {verdict.number}, {told(verdict.number)}: {verdict.failure}" for verdict in broken]


def _one_process(work: Callable[[int], str], numbers: range, limits: Limits) -> Iterator[Verdict]:
    """Verdicts up to the first try that ends the process, that one included."""
    context = get_context("fork")
    told, telling = context.Pipe(duplex=False)
    child = context.Process(target=_work_through, args=(work, numbers, limits, telling))
    child.start()
    telling.close()
    reached = numbers.start
    try:
        while reached < numbers.stop:
            if not told.poll(limits.seconds):
                yield Verdict(reached, "", f"it took longer than {limits.seconds:g} s", limits.seconds)
                return
            try:
                verdict = told.recv()
            except EOFError:
                child.join()
                yield Verdict(reached, "", f"the process ended with {child.exitcode}", 0.0)
                return
            yield verdict
            reached = verdict.number + 1
    finally:
        told.close()
        child.kill()
        child.join()


def _work_through(work: Callable[[int], str], numbers: range, limits: Limits, telling: Connection) -> None:
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
        telling.send(_watched(work, number, acts, limits.seconds))
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
        failure = f"it did what is forbidden: {acts.seen[0]}"
    if took > seconds and not failure:
        failure = f"it took {took:.1f} s"
    return Verdict(number, kind, failure[:1000], took)


# ---- what no input may bring about -----------------------------------------------------------------------------------

_RUNS_CODE = {
    *("pickle.find_class", "marshal.loads", "ctypes.dlopen", "subprocess.Popen"),
    *("os.system", "os.exec", "os.fork", "os.posix_spawn", "os.spawn"),
}
_REACHES_THE_NETWORK = {"socket.connect", "socket.getaddrinfo", "socket.gethostbyname", "socket.sendto"}
_CHANGES_FILES = {
    **dict.fromkeys(("os.chmod", "os.chown", "os.mkdir", "os.remove", "os.rmdir", "os.truncate"), slice(1)),
    **dict.fromkeys(("os.link", "os.symlink"), slice(1, 2)),  # what a link leads to is not changed
    "os.rename": slice(2),
}
"""Events that change what a folder holds, and which of their arguments are the paths."""
_FOR_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_SOURCES_OF_CODE = {"<string>", "<stdin>", "<unknown>"}
"""What `exec` calls a program that came from no module."""
_CHECK_ANNOTATIONS = ("beartype", "jaxtyping")


class ForbiddenActs:
    """Remembers what was forbidden, while `watching`: code run, a network reached, a file changed outside of a folder.

    Seen through Python's audit events (PEP 578), which tell of the interpreter's own calls and of none inside compiled
    libraries. A hook stays for the life of its process, so this goes into processes that end.
    """

    def __init__(self, folder: Path) -> None:
        self.watching = False
        self.seen: list[str] = []
        self._folder = os.path.realpath(folder)

    def install(self) -> "ForbiddenActs":
        """Hear of every event from now on, to the end of the process, in which Python keeps no compiled modules."""
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
            self.seen.append(f"exec of a text by {caller.co_name} in {caller.co_filename}")
        elif event == "open":
            path, _, flags = arguments
            if flags & _FOR_WRITING and not isinstance(path, int) and self._is_outside(path):
                self.seen.append(f"open for writing {path!r}")
        elif event in _CHANGES_FILES:
            changed = arguments[_CHANGES_FILES[event]]
            self.seen += [f"{event} {path!r}" for path in changed if self._is_outside(path, arguments[-1])]

    def _is_outside(self, path: Any, folder: Any = None) -> bool:
        """Args: path: a name or an open file; folder: the open folder that a name begins at, where it is one."""
        if isinstance(path, int):
            return False
        name = os.fsdecode(path)
        if name == os.devnull:
            return False
        if isinstance(folder, int) and folder > 2 and not os.path.isabs(name):
            name = os.path.join(os.readlink(f"/proc/self/fd/{folder}"), name)
        place = os.path.join(os.path.realpath(os.path.dirname(name) or "."), os.path.basename(name))
        return os.path.commonpath([place, self._folder]) != self._folder


def _is_machinery() -> bool:
    """Whether a module is being imported, as libraries do when they are first asked for something, or a check of
    annotations is being written, as tests have it: the code is Python's or theirs, not the input's."""
    frame = sys._getframe(2)
    while frame is not None:
        file = frame.f_code.co_filename
        checks = any(f"{os.sep}{name}{os.sep}" in file for name in _CHECK_ANNOTATIONS)
        if checks or file.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False
