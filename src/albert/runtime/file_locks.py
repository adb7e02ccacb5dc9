"""A lock on a file that keeps apart threads, processes, containers and hosts, and dies with its owner.

POSIX record locks (fcntl), for two reasons. Network file systems carry them to other hosts (NFS, Lustre mounted with
`flock`, GPFS, CephFS), and a container's own process numbers do not matter to them. And worker processes do not
inherit them, unlike the locks of `flock` and of open file descriptions: when the owner was killed, its lock is free
although its workers live on for seconds.

Two of their properties need care. They do not keep the threads of one process apart, so a process lists the files that
it holds. And a process loses its lock when it closes *any* descriptor of that file, so a file that it holds is not
opened a second time here; lock files are for nothing else and no other code should open them.
"""

import contextlib
import errno
import fcntl
import os
import threading
from dataclasses import dataclass
from pathlib import Path

KEEPS_NO_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP}
"""What a file system without locks answers."""
_mutex = threading.Lock()
_held: set[tuple[int, int]] = set()
"""Device and inode of the lock files that this process holds."""


@dataclass(frozen=True)
class FileLock:
    """A lock that this process holds; see `lock_file`."""

    path: Path
    descriptor: int
    identity: tuple[int, int]

    def is_in_place(self) -> bool:
        """Whether the file is still there under its name: others take the lock of what is there."""
        return _identity(self.path) == self.identity

    def release(self) -> None:
        """Give the lock up; a second call does nothing."""
        with _mutex:
            if self.identity in _held:
                _held.remove(self.identity)
                os.close(self.descriptor)

    def remove(self) -> None:
        """Remove the file, then give the lock up."""
        with contextlib.suppress(OSError):  # it is empty, and whoever cleans up next removes it
            if self.is_in_place():
                os.unlink(self.path)
        self.release()


def lock_file(path: Path) -> FileLock | None:
    """Take the lock of a file, which is made if need be; None where another thread, process or host holds it.

    Raises:
        OSError: the file cannot be opened for writing, or its file system keeps no locks.
    """
    while True:
        with _mutex:
            if _identity(path) in _held:
                return None
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            try:
                fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                status = os.fstat(descriptor)
                identity = status.st_dev, status.st_ino
                if _identity(path) == identity:
                    _held.add(identity)
                    return FileLock(path, descriptor, identity)
            except (BlockingIOError, PermissionError):  # POSIX: EAGAIN or EACCES where it is held
                os.close(descriptor)
                return None
            except BaseException:
                os.close(descriptor)
                raise
            os.close(descriptor)  # its last owner removed it between our opening and our locking it


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _forget() -> None:
    """A forked process holds nothing: the locks are its parent's, and so was the thread that held the mutex."""
    global _mutex
    _mutex = threading.Lock()
    _held.clear()


os.register_at_fork(after_in_child=_forget)
