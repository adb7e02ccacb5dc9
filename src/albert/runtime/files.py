"""Durable files and directories, and locks: an output is whole or absent, whatever happens while it is written.

An output is written under a temporary name, flushed to the disk, described by a manifest of SHA-256 sums that is
written last, and only then renamed to its final name. A process that dies leaves a temporary name behind, never half
of a result; the next writer in that place removes it.

    .out.lock-0123abcd   locked by the writer for as long as the other two may be there
    .out.tmp-0123abcd    what becomes `out`
    .out.old-0123abcd    what was `out`, until the new one has its name

Only the lock says whether a writer is alive (see `lock_file`), as other containers and hosts may write there. Where a
file system has no locks the names are `.out.tmp-PROCESS-0123abcd`, as earlier versions wrote them, and what dead
processes left under such a name stays."""

import contextlib
import csv
import errno
import fcntl
import io
import os
import re
import secrets
import shutil
import stat
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from dataclasses import replace as with_fields
from pathlib import Path

from albert.runtime.errors import CannotCreate, DamagedData, WriteFailed, system_error
from albert.runtime.manifest import MANIFEST_NAME, FileSum, file_hash, files_below, manifest_bytes

# --------------------------------------------------------------------------------------------------------------------
# A lock on a file that keeps apart threads, processes, containers and hosts, and dies with its owner.
#
# POSIX record locks (fcntl), for two reasons. Network file systems carry them to other hosts (NFS, Lustre mounted
# with `flock`, GPFS, CephFS), and a container's own process numbers do not matter to them. And worker processes do
# not inherit them, unlike the locks of `flock` and of open file descriptions: when the owner was killed, its lock
# is free although its workers live on for seconds.
#
# Two of their properties need care. They do not keep the threads of one process apart, so a process lists the files
# that it holds. And a process loses its lock when it closes *any* descriptor of that file, so a file that it holds
# is not opened a second time here; lock files are for nothing else and no other code should open them.

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
    """Take the lock of a file, which is made if need be; None where another thread, process or host holds it."""
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


_TEMPORARY = re.compile(r"^\.(?P<name>.+)\.(?P<kind>tmp|old|lock)-(?P<process>\d+-)?(?P<token>[0-9a-f]{8})$")
_written: dict[Path, set[Path]] = {}
"""For each directory of `new_directory` that is being written: the files that were finished in it."""
_NOT_CREATABLE = {
    errno.EACCES,
    errno.EPERM,
    errno.EROFS,
    errno.ENOENT,
    errno.ENOTDIR,
    errno.EEXIST,
    errno.ENOTEMPTY,
    errno.ENAMETOOLONG,
}


@contextmanager
def new_file(path: Path) -> Iterator[Path]:
    """Yield a temporary name for the block to write, which becomes `path` if the block ends well.

    `path` holds either its old content or all of the new, whatever happens.

    Raises:
        CannotCreate: the place cannot be written.
        WriteFailed: the disk is full or failed; `path` is as it was.
    """
    with writing(path):
        make_directory(path.parent)
        with _temporary_names(path) as names:
            temporary = names.new
            try:
                yield temporary
                names.check()
                _sync_file(temporary)
                os.replace(temporary, path)
                _sync_directory(path.parent)
            finally:
                temporary.unlink(missing_ok=True)
        register_written(path)


def write_bytes(path: Path, data: bytes) -> None:
    """`new_file` with the content at hand."""
    with new_file(path) as temporary:
        temporary.write_bytes(data)


def write_text(path: Path, text: str) -> None:
    """`write_bytes` of UTF-8 text."""
    write_bytes(path, text.encode("utf-8"))


def write_csv(path: Path, rows: Iterable[Sequence[object]]) -> None:
    """`write_text` of rows as CSV, the head first."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    write_text(path, text.getvalue())


def register_written(path: Path) -> None:
    """Let `new_directory` refuse to end without this file, where it is in one; `new_file` notes its own."""
    for parent in path.parents:
        if parent in _written:
            _written[parent].add(path)


@contextmanager
def library_writes(path: Path) -> Iterator[None]:
    """For a block in which a library writes the file: what `new_file` would see to.

    It gets the permissions of any new file, as some libraries make theirs private, and is noted as written.
    """
    path.touch()
    permissions = stat.S_IMODE(path.stat().st_mode)
    try:
        yield
    except Exception as error:
        known = system_error(error, str(path))
        if known is None:
            raise
        raise known from error
    path.chmod(permissions)
    register_written(path)


@contextmanager
def new_directory(
    path: Path, replace: bool = False, known: MutableMapping[str, FileSum] | None = None
) -> Iterator[Path]:
    """Yield a temporary directory that becomes `path`, with a manifest, if the block ends well.

    Args:
        path: the final name. Its parents are made.
        replace: whether an existing `path` may give way (it does so only after the new one is complete).
        known: sums of files, by name, that were flushed and hashed when they were written: they are not read again.
            The block may fill it.

    Raises:
        CannotCreate: `path` exists and `replace` is false, or the place cannot be written.
        WriteFailed: the disk is full or failed, or somebody removed what was being written; nothing is left behind.
    """
    with writing(path):
        make_directory(path.parent)
        remove_leftovers(path.parent)
        if os.path.lexists(path) and not replace:
            raise CannotCreate(path, "exists already", "choose another name, or remove it first")
        with _temporary_names(path) as names:
            temporary = names.new
            try:
                temporary.mkdir()
                _written[temporary] = set()
                yield temporary
                names.check()
                _write_manifest(temporary, known or {})
                _put_in_place(temporary, names.old, path, replace)
            finally:
                _written.pop(temporary, None)
                shutil.rmtree(temporary, ignore_errors=True)


def make_directory(path: Path) -> None:
    """Make a directory and its parents where they are missing; what is new about them is on the disk."""
    missing = []
    place = path
    while not place.is_dir() and place != place.parent:
        missing.append(place)
        place = place.parent
    path.mkdir(parents=True, exist_ok=True)
    for made in reversed(missing):
        _sync_directory(made.parent)


def remove_directory(path: Path, release: Callable[[], None] | None = None) -> None:
    """Remove a directory so that no moment shows half of it under its name.

    Args:
        release: called when its name is gone, before its files go: gives up the lock of a file in it, which a network
            file system would keep as long as it is open.
    """
    with writing(path), _temporary_names(path) as names:
        os.rename(path, names.new)
        _sync_directory(path.parent)  # or its files may be gone, and its name back, after the power went
        if release:
            release()
        shutil.rmtree(names.new)


def remove_leftovers(directory: Path, is_locked: bool = False) -> None:
    """Remove temporary names in `directory` whose writer is dead, which is to say: whose lock can be had.

    Where it died between taking an old directory away and putting the new one in its place, the old one returns.

    Args:
        is_locked: a lock that the caller holds keeps every other writer out of `directory`, so that names without a
            lock (see above) are of the dead as well; otherwise those stay.
    """
    found = [match for entry in directory.iterdir() if (match := _TEMPORARY.match(entry.name))]
    for name, process, token in sorted({(match["name"], match["process"] or "", match["token"]) for match in found}):
        names = _Names.of(directory / name, process + token)
        with contextlib.suppress(OSError):  # it is another user's, or there are no locks
            if process:
                if is_locked:
                    names.remove()
            elif lock := lock_file(names.lock_path):
                try:
                    names.remove()
                finally:
                    lock.remove()


def final_name(directory: Path) -> str:
    """What a directory is called, also while it is written under a temporary name."""
    match = _TEMPORARY.match(directory.name)
    return match["name"] if match else directory.name


@dataclass(frozen=True)
class _Names:
    """The temporary names of one writing of `path`; see the top of this file."""

    path: Path
    new: Path
    old: Path
    lock_path: Path
    lock: FileLock | None = None

    @classmethod
    def of(cls, path: Path, token: str) -> "_Names":
        new, old, lock = (path.parent / f".{path.name}.{kind}-{token}" for kind in ("tmp", "old", "lock"))
        return cls(path, new, old, lock)

    def check(self) -> None:
        """Refuse to go on where somebody took what is written for the leftovers of a dead writer."""
        if self.lock and not self.lock.is_in_place():
            raise WriteFailed(self.path, "another program removed it while it was written", "run the command again")

    def remove(self) -> None:
        """Remove what a dead writer left, or bring back what it had taken out of the way."""
        if os.path.lexists(self.old):
            if os.path.lexists(self.path):
                _remove(self.old)
            else:
                os.rename(self.old, self.path)
        if os.path.lexists(self.new):
            _remove(self.new)


@contextmanager
def _temporary_names(path: Path) -> Iterator[_Names]:
    """Names that nobody else has, whose lock is held for the block."""
    names, lock = _Names.of(path, token := secrets.token_hex(4)), None
    try:
        lock = lock_file(names.lock_path)
    except OSError as error:
        if error.errno not in KEEPS_NO_LOCKS:
            raise
        names.lock_path.unlink(missing_ok=True)
        names = _Names.of(path, f"{os.getpid()}-{token}")
    try:
        yield with_fields(names, lock=lock)
    finally:
        if lock:
            lock.remove()


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _write_manifest(directory: Path, known: Mapping[str, FileSum]) -> None:
    names = sorted(files_below(directory))
    wanted = {*known, *(path.relative_to(directory).as_posix() for path in _written.get(directory, ()))}
    for name in sorted(wanted.difference(names)):
        why = f"{name} was written and is gone: another program removed it"
        raise WriteFailed(directory, why, "run the command again")
    entries = {}
    for name in names:
        size = (directory / name).stat().st_size
        written = known.get(name)
        if written is not None and written.bytes != size:
            raise DamagedData(directory / name, f"has {size} bytes, {written.bytes} were written")
        entries[name] = written or FileSum(size, file_hash(directory / name))
        if written is None:
            _sync_file(directory / name)
    manifest = directory / MANIFEST_NAME
    manifest.write_bytes(manifest_bytes(entries))
    _sync_file(manifest)
    for folder, _, _ in os.walk(directory):
        _sync_directory(Path(folder))


def _put_in_place(temporary: Path, old: Path, path: Path, replace: bool) -> None:
    if replace and os.path.lexists(path):
        os.rename(path, old)
        try:
            os.rename(temporary, path)
        except OSError:
            os.rename(old, path)
            raise
        try:
            _sync_directory(path.parent)
        finally:
            _remove(old)
    else:
        os.rename(temporary, path)
        _sync_directory(path.parent)


def _sync_file(path: Path) -> None:
    with open(path, "rb+") as file:
        os.fsync(file.fileno())


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _final_name(path: Path) -> Path:
    """The path with final names in the place of temporary ones."""
    found = [(part, _TEMPORARY.match(part)) for part in path.parts]
    return Path(*(match["name"] if match else part for part, match in found))


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn what the operating system says while the block writes `path` into one line that names the file."""
    try:
        yield
    except OSError as error:
        # NumPy counts bytes and gives neither a number nor words of the system.
        reason = error.strerror or f"the disk is full or failed ({error})"
        place = error.filename2 or error.filename
        subject = _final_name(Path(place) if isinstance(place, str) else path)
        if error.errno in _NOT_CREATABLE:
            raise CannotCreate(subject, reason) from error
        raise WriteFailed(subject, reason, "free space or choose another disk") from error


# --------------------------------------------------------------------------------------------------------------------
# One worker at a time in a directory: a lock that dies with its owner.

LOCK_NAME = ".lock"


@contextmanager
def locked(directory: Path, what: str) -> Iterator[Callable[[], None]]:
    """Keep other processes and threads out of a directory, which is made if need be.

    Yields a function that gives the lock up before the block ends, for `remove_directory`.

    Raises:
        CannotCreate: another process or thread works here, or the directory cannot be made or locked.
    """
    with try_locked(directory) as release:
        if release is None:
            remedy = "wait for it, or choose another output"
            raise CannotCreate(directory, f"another process or thread is working in {what}", remedy)
        yield release


@contextmanager
def try_locked(directory: Path) -> Iterator[Callable[[], None] | None]:
    """Try to take the lock of a directory, which is made if need be.

    Yields a function that gives the lock up before the block ends; None where somebody else has it.
    """
    try:
        make_directory(directory)
        lock = lock_file(directory / LOCK_NAME)
    except OSError as error:
        why, remedy = error.strerror or str(error), None
        if error.errno in KEEPS_NO_LOCKS:
            why = f"its file system keeps no locks ({why})"
            remedy = "choose another disk, or mount this one with locks (Lustre: -o flock)"
        raise CannotCreate(directory, why, remedy) from error
    try:
        yield lock.release if lock else None
    finally:
        if lock:
            lock.release()
