"""Files and directories that are whole or absent, whatever happens while they are written.

Everything the project keeps goes through here: written under a temporary name, flushed to the disk, described by a
manifest of SHA-256 sums that is written last, and only then renamed to its final name. A process that dies leaves a
temporary name behind, never half of a result; the next writer in that place removes it.

    .out.lock-0123abcd   locked by the writer for as long as the other two may be there
    .out.tmp-0123abcd    what becomes `out`
    .out.old-0123abcd    what was `out`, until the new one has its name

Whether a writer lives is told by the lock alone (see `file_locks.py`), as other containers and hosts may write there.
Where a file system keeps no locks the names are `.out.tmp-PROCESS-0123abcd`, as earlier versions wrote them, and what
the dead left under such a name stays.
"""

import contextlib
import errno
import os
import re
import secrets
import shutil
import stat
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from dataclasses import dataclass
from dataclasses import replace as with_fields
from pathlib import Path

from albert.runtime.errors import CannotCreate, DamagedData, WriteFailed
from albert.runtime.file_locks import KEEPS_NO_LOCKS, FileLock, lock_file
from albert.runtime.manifests import MANIFEST_NAME, FileSum, file_hash, files_below, manifest_bytes

_TEMPORARY = re.compile(r"^\.(?P<name>.+)\.(?P<kind>tmp|old|lock)-(?P<process>\d+-)?(?P<token>[0-9a-f]{8})$")
_SAID_BY_RUST = re.compile(r"I/O error: .*\(os error (\d+)\)")
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
        note_written(path)


def write_bytes(path: Path, data: bytes) -> None:
    """`new_file` with the content at hand."""
    with new_file(path) as temporary:
        temporary.write_bytes(data)


def write_text(path: Path, text: str) -> None:
    """`write_bytes` of UTF-8 text."""
    write_bytes(path, text.encode("utf-8"))


def note_written(path: Path) -> None:
    """Let `new_directory` refuse to end without this file, where it is in one; `new_file` notes its own."""
    for parent in path.parents:
        if parent in _written:
            _written[parent].add(path)


@contextmanager
def written_by_library(path: Path) -> Iterator[None]:
    """For a block in which a library writes the file: what `new_file` would see to.

    It gets the permissions of any new file, as some libraries make theirs private, and is noted as written.

    Raises:
        OSError: what the operating system told the library, with the file's name.
    """
    path.touch()
    permissions = stat.S_IMODE(path.stat().st_mode)
    try:
        yield
    except Exception as error:
        number = _SAID_BY_RUST.search(str(error))
        if number is None or isinstance(error, OSError):
            raise
        raise OSError(int(number[1]), os.strerror(int(number[1])), str(path)) from error
    path.chmod(permissions)
    note_written(path)


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
    """Make a directory and its parents where they are missing; what is new about them is on the disk.

    Raises:
        OSError: it cannot be made.
    """
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
        path: the directory.
        release: called when its name is gone, before its files go: gives up the lock of a file in it, which a network
            file system would keep as long as it is open.

    Raises:
        WriteFailed, CannotCreate: it cannot be removed.
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
        directory: where to look.
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
        entries[name] = {"bytes": size, "sha256": written.sha256 if written else file_hash(directory / name)}
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
    """Turn what the operating system says while the block writes `path` into one line that names the file.

    Raises:
        CannotCreate: the place cannot be written.
        WriteFailed: the disk is full or failed.
    """
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
