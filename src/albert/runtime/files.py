"""Durable files and directories, and locks: an output is complete or absent, also after a crash.

An output is written under a temporary name, flushed to the disk, described by a manifest of SHA-256 sums that is
written last, and only then renamed to its final name. A process that dies leaves a temporary name behind, never part
of a result; the next writer in that directory removes it.

    .out.lock-0123abcd   locked by the writer as long as one of the other two may exist
    .out.tmp-0123abcd    becomes `out`
    .out.old-0123abcd    the previous `out`, until the new one has its name

A writer is alive if its lock is held (see `lock_file`), also in another container or on another host. On a file system
without locks the names are `.out.tmp-PROCESS-0123abcd`, and leftovers are not removed."""

import contextlib
import csv
import errno
import fcntl
import os
import re
import secrets
import shutil
import stat
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from albert.runtime.errors import CannotCreate, DamagedData, WriteFailed, system_error
from albert.runtime.manifest import MANIFEST_NAME, FileSum, file_hash, files_below, manifest_bytes

# --------------------------------------------------------------------------------------------------------------------
# A lock on a file, exclusive among threads, processes, containers and hosts, which ends with its owner.
#
# POSIX record locks (fcntl), for two reasons. Network file systems carry them to other hosts (NFS, Lustre mounted
# with `flock`, GPFS, CephFS), independent of the process numbers in containers. And worker processes do not inherit
# them, unlike the locks of `flock` and of open file descriptions: when the owner was killed, its lock is free although
# its workers live on for seconds.
#
# Two properties need care. They do not exclude threads of one process, so a process keeps a set of the files that it
# has locked. And a process loses its lock when it closes *any* descriptor of that file, so a locked file is not opened
# a second time here, and no other code should open lock files.

NO_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP}
"""Errors of a file system without locks."""
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
        """Return whether the file still exists under its name; otherwise another process can lock a new file there."""
        return _identity(self.path) == self.identity

    def release(self) -> None:
        """Release the lock; a second call does nothing."""
        with _mutex:
            if self.identity in _held:
                _held.remove(self.identity)
                os.close(self.descriptor)

    def remove(self) -> None:
        """Remove the file, then release the lock."""
        with contextlib.suppress(OSError):  # it is empty, and the next writer removes it
            if self.is_in_place():
                os.unlink(self.path)
        self.release()


def lock_file(path: Path) -> FileLock | None:
    """Lock a file, which is created if missing; None if another thread, process or host has locked it."""
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
            except (BlockingIOError, PermissionError):  # POSIX: EAGAIN or EACCES if it is locked
                os.close(descriptor)
                return None
            except BaseException:
                os.close(descriptor)
                raise
            os.close(descriptor)  # its last owner removed it between open and lockf


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _clear_after_fork() -> None:
    """A forked process holds no locks, and the thread that held the mutex may not exist in it."""
    global _mutex
    _mutex = threading.Lock()
    _held.clear()


os.register_at_fork(after_in_child=_clear_after_fork)


_TEMPORARY = re.compile(r"^\.(?P<name>.+)\.(?P<kind>tmp|old|lock)-(?P<process>\d+-)?(?P<token>[0-9a-f]{8})$")
_NOT_CREATABLE = {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOENT, errno.ENOTDIR, errno.EEXIST}
_NOT_CREATABLE |= {errno.ENOTEMPTY, errno.ENAMETOOLONG}


@contextmanager
def new_file(path: Path) -> Iterator[Path]:
    """Yield a temporary path for the block to write, which becomes `path` if the block succeeds.

    `path` always has either its old or its new content, also after `WriteFailed`. A link is followed; a device, a pipe
    or a directory is refused (`CannotCreate`), because the new file would replace it.
    """
    with writing(path):
        path = Path(os.path.realpath(path)) if path.is_symlink() else path
        if path.exists() and not path.is_file():
            raise CannotCreate(path, "exists and is not a regular file", "choose another name")
        make_directory(path.parent)
        with _temporary_names(path) as (temporary, _, check):
            yield temporary
            check()
            _sync_file(temporary)
            os.replace(temporary, path)
            sync_directory(path.parent)


def write_bytes(path: Path, data: bytes) -> None:
    """Write a file through `new_file`."""
    with new_file(path) as temporary:
        temporary.write_bytes(data)


def write_text(path: Path, text: str) -> None:
    """Write a file of UTF-8 text through `new_file`."""
    write_bytes(path, text.encode("utf-8"))


def write_csv(path: Path, rows: Iterable[Sequence[object]]) -> None:
    """Write rows as CSV through `new_file`, the header first."""
    with new_file(path) as temporary, open(temporary, "w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows(rows)


@contextmanager
def library_writes(path: Path) -> Iterator[None]:
    """For a block in which a library writes the file: sets the usual permissions and translates errors."""
    path.touch()
    permissions = stat.S_IMODE(path.stat().st_mode)
    try:
        yield
    except Exception as error:
        os_error = system_error(error, str(path))
        if os_error is None:
            raise
        raise os_error from error
    path.chmod(permissions)


@contextmanager
def new_directory(path: Path, replace: bool = False, known: Mapping[str, FileSum] | None = None) -> Iterator[Path]:
    """Yield a temporary directory that becomes `path`, with a manifest, if the block succeeds.

    Args:
        replace: replace an existing `path`, once the new one is complete; otherwise it is refused (`CannotCreate`).
        known: sums of files that were flushed and hashed when they were written. The block may fill it.
    """
    with writing(path):
        make_directory(path.parent)
        remove_leftovers(path.parent)
        if os.path.lexists(path) and not replace:
            raise CannotCreate(path, "exists already", "choose another name, or add --replace")
        with _temporary_names(path) as (temporary, old, check):
            temporary.mkdir()
            yield temporary
            check()
            _write_manifest(temporary, known or {})
            _put_in_place(temporary, old, path, replace)


def make_directory(path: Path) -> None:
    """Create a directory and its missing parents, and flush their names to the disk."""
    missing = [folder for folder in (path, *path.parents) if not folder.is_dir()]
    path.mkdir(parents=True, exist_ok=True)
    for folder in reversed(missing):
        sync_directory(folder.parent)


def remove_directory(path: Path, release: Callable[[], None] | None = None) -> None:
    """Remove a directory, which is renamed first. `release` is called before files are removed, to release a lock in
    the directory: network file systems keep open files."""
    with writing(path), _temporary_names(path) as (temporary, _, _):
        os.rename(path, temporary)
        sync_directory(path.parent)  # otherwise a power loss could bring the name back without the files
        if release:
            release()
        shutil.rmtree(temporary)


def remove_file(path: Path) -> None:
    """Remove a file, if there is one."""
    with writing(path):
        if path.exists():
            path.unlink()
            sync_directory(path.parent)


def remove_leftovers(directory: Path) -> None:
    """Remove temporary names in `directory` whose writer is dead, that is, whose lock is free.

    If it died between moving the old directory away and renaming the new one, the old one gets its name back.
    """
    matches = (_TEMPORARY.match(entry.name) for entry in directory.iterdir())
    for name, token in sorted({(match["name"], match["token"]) for match in matches if match and not match["process"]}):
        path = directory / name
        new, old, lock_path = _names(path, token)
        with contextlib.suppress(OSError):  # it belongs to another user, or there are no locks
            lock = lock_file(lock_path)
            if lock:
                try:
                    if os.path.lexists(old) and not os.path.lexists(path):
                        os.rename(old, path)
                    _remove(old)
                    _remove(new)
                finally:
                    lock.remove()


def final_path(path: Path) -> Path:
    """The path with final names instead of temporary ones."""
    return Path(*(match["name"] if (match := _TEMPORARY.match(part)) else part for part in path.parts))


def _names(path: Path, token: str) -> tuple[Path, Path, Path]:
    """The temporary names for writing `path`: new, old and lock; see the top of this file."""
    new, old, lock = (path.parent / f".{path.name}.{kind}-{token}" for kind in ("tmp", "old", "lock"))
    return new, old, lock


@contextmanager
def _temporary_names(path: Path) -> Iterator[tuple[Path, Path, Callable[[], None]]]:
    """Unique names for the new and the old `path`, locked for the block; what is left under the first is removed.

    The block calls the function when it is done: it fails if another program removed the names as leftovers.
    """
    token = secrets.token_hex(4)
    new, old, lock_path = _names(path, token)
    lock = None
    try:
        lock = lock_file(lock_path)
    except OSError as error:
        if error.errno not in NO_LOCKS:
            raise
        lock_path.unlink(missing_ok=True)
        new, old, _ = _names(path, f"{os.getpid()}-{token}")

    def check() -> None:
        if lock and not lock.is_in_place():
            raise WriteFailed(path, "another program removed it while it was written", "run the command again")

    try:
        yield new, old, check
    finally:
        if os.path.lexists(new):
            _remove(new)
        if lock:
            lock.remove()


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _write_manifest(directory: Path, known: Mapping[str, FileSum]) -> None:
    entries = {}
    for name in sorted({*files_below(directory), *known}):
        file = directory / name
        entries[name] = known.get(name) or FileSum(file.stat().st_size, file_hash(file))
        if name not in known:
            _sync_file(file)
            continue
        size = file.stat().st_size
        if size != known[name].bytes:
            raise DamagedData(file, f"has {size} bytes, {known[name].bytes} were written")
    manifest = directory / MANIFEST_NAME
    manifest.write_bytes(manifest_bytes(entries))
    _sync_file(manifest)
    for folder, _, _ in os.walk(directory):
        sync_directory(Path(folder))


def _put_in_place(temporary: Path, old: Path, path: Path, replace: bool) -> None:
    if replace and os.path.lexists(path):
        os.rename(path, old)
        try:
            os.rename(temporary, path)
        except OSError:
            os.rename(old, path)
            raise
        try:
            sync_directory(path.parent)
        finally:
            _remove(old)
    else:
        os.rename(temporary, path)
        sync_directory(path.parent)


def _sync_file(path: Path) -> None:
    with open(path, "rb+") as file:
        os.fsync(file.fileno())


def sync_directory(path: Path) -> None:
    """Flush the names of a directory's files to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn an `OSError` while the block writes `path` into an error for users that names the file."""
    try:
        yield
    except OSError as error:
        # NumPy's errors have a number of bytes, and neither errno nor strerror.
        reason = error.strerror or f"the disk is full or failed ({error})"
        filename = error.filename2 or error.filename
        subject = final_path(Path(filename) if isinstance(filename, str) else path)
        if error.errno in _NOT_CREATABLE:
            raise CannotCreate(subject, reason) from error
        raise WriteFailed(subject, reason, "free space or choose another disk") from error


# --------------------------------------------------------------------------------------------------------------------
# A lock on a directory.

LOCK_NAME = ".lock"


@contextmanager
def locked(directory: Path, what: str) -> Iterator[Callable[[], None]]:
    """Lock a directory, which is created if missing; `CannotCreate` if another process or thread has locked it.

    Yields a function that releases the lock before the block ends, for `remove_directory`.
    """
    with try_locked(directory) as release:
        if release is None:
            remedy = "wait for it, or choose another output"
            raise CannotCreate(directory, f"another process or thread is working in {what}", remedy)
        yield release


@contextmanager
def try_locked(directory: Path) -> Iterator[Callable[[], None] | None]:
    """`locked`, but yields None if another process or thread has locked the directory."""
    try:
        make_directory(directory)
        lock = lock_file(directory / LOCK_NAME)
    except OSError as error:
        why = error.strerror or str(error)
        remedy = None
        if error.errno in NO_LOCKS:
            why = f"its file system has no locks ({why})"
            remedy = "choose another disk, or mount this one with locks (Lustre: -o flock)"
        raise CannotCreate(directory, why, remedy) from error
    try:
        yield lock.release if lock else None
    finally:
        if lock:
            lock.release()
