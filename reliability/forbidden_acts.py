"""What no input may bring about: code run, a network reached, a file changed outside of one folder.

Seen through Python's audit events (PEP 578), which tell of the interpreter's own calls and of none inside compiled
libraries. A hook stays for the life of its process, so this goes into processes that end (see confined.py).
"""

import os
import sys
from pathlib import Path
from typing import Any

_RUNS_CODE = {
    "pickle.find_class",
    "marshal.loads",
    "subprocess.Popen",
    "os.system",
    "os.exec",
    "os.fork",
    "os.posix_spawn",
    "os.spawn",
    "ctypes.dlopen",
}
_REACHES_THE_NETWORK = {"socket.connect", "socket.getaddrinfo", "socket.gethostbyname", "socket.sendto"}
_CHANGES_FILES = {
    "os.chmod": 1,
    "os.chown": 1,
    "os.link": 2,
    "os.mkdir": 1,
    "os.remove": 1,
    "os.rename": 2,
    "os.rmdir": 1,
    "os.symlink": 2,
    "os.truncate": 1,
}
"""Events that change what a folder holds, and how many of their arguments are paths."""
_FOR_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_SOURCES_OF_CODE = {"<string>", "<stdin>", "<unknown>"}
"""What `exec` calls a program that came from no module."""
_CHECK_ANNOTATIONS = ("beartype", "jaxtyping")


class ForbiddenActs:
    """An audit hook that remembers what was forbidden, while `watching`.

    Attributes:
        watching: whether events count.
        seen: each in words, the first first.
    """

    def __init__(self, folder: Path) -> None:
        """Args: folder: the only one below which files may be made, changed or removed."""
        self.watching = False
        self.seen: list[str] = []
        self._folder = os.path.realpath(folder)

    def install(self) -> "ForbiddenActs":
        """Hear of every event from now on, to the end of the process, in which Python keeps no compiled modules."""
        sys.dont_write_bytecode = True
        sys.addaudithook(self)
        return self

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        """One event; nothing is prevented."""
        if not self.watching:
            return
        if event in _RUNS_CODE:
            if event == "marshal.loads" and _is_machinery():
                return
            self.seen.append(f"{event} {_shown(arguments)}")
        elif event in _REACHES_THE_NETWORK:
            self.seen.append(f"{event} {_shown(arguments[1:])}")
        elif event == "exec" and getattr(arguments[0], "co_filename", "") in _SOURCES_OF_CODE and not _is_machinery():
            caller = sys._getframe(1).f_code
            self.seen.append(f"exec of a text by {caller.co_name} in {caller.co_filename}")
        elif event == "open":
            path, _, flags = arguments
            if flags & _FOR_WRITING and not isinstance(path, int) and self._is_outside(path):
                self.seen.append(f"open for writing {path!r}")
        elif event in _CHANGES_FILES:
            for path in arguments[: _CHANGES_FILES[event]]:
                if event in ("os.link", "os.symlink") and path is arguments[0]:
                    continue  # what a link leads to is not changed
                if self._is_outside(path, arguments[-1]):
                    self.seen.append(f"{event} {path!r}")

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
        if file.startswith("<frozen importlib") or any(
            f"{os.sep}{name}{os.sep}" in file for name in _CHECK_ANNOTATIONS
        ):
            return True
        frame = frame.f_back
    return False


def _shown(arguments: tuple[Any, ...]) -> str:
    return " ".join(repr(argument)[:80] for argument in arguments)
