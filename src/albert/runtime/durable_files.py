"""Files and directories that are whole or absent, whatever happens while they are written.

Everything the project keeps goes through here: written under a temporary name, flushed to the disk, described by a
manifest of SHA-256 sums that is written last, and only then renamed to its final name. A process that dies leaves a
temporary name behind, never half of a result; the next writer in that place removes it once its owner is dead.
"""

import contextlib
import errno
import os
import re
import secrets
import shutil
import stat
from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from pathlib import Path

from albert.runtime.errors import CannotCreate, DamagedData, WriteFailed
from albert.runtime.manifests import MANIFEST_NAME, FileSum, file_hash, files_below, manifest_bytes

_TEMPORARY = re.compile(r"^\.(?P<name>.+)\.(?P<kind>tmp|old)-(?P<process>\d+)-(?P<token>[0-9a-f]{8})$")
_own_tokens: set[str] = set()
"""Of the temporary names this process made: in a container a dead owner had the same process number."""
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
    with _writing(path):
        make_directory(path.parent)
        temporary = _temporary_name(path, "tmp")
        try:
            yield temporary
            _sync_file(temporary)
            os.replace(temporary, path)
            _sync_directory(path.parent)
        finally:
            temporary.unlink(missing_ok=True)


def write_bytes(path: Path, data: bytes) -> None:
    """`new_file` with the content at hand."""
    with new_file(path) as temporary:
        temporary.write_bytes(data)


def write_text(path: Path, text: str) -> None:
    """`write_bytes` of UTF-8 text."""
    write_bytes(path, text.encode("utf-8"))


@contextmanager
def usual_permissions(path: Path) -> Iterator[None]:
    """Give the file that the block writes the permissions of any new file: some libraries make theirs private."""
    path.touch()
    permissions = stat.S_IMODE(path.stat().st_mode)
    yield
    path.chmod(permissions)


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
        WriteFailed: the disk is full or failed; nothing is left behind.
    """
    with _writing(path):
        make_directory(path.parent)
        remove_leftovers(path.parent)
        if os.path.lexists(path) and not replace:
            raise CannotCreate(path, "exists already", "choose another name, or remove it first")
        temporary = _temporary_name(path, "tmp")
        try:
            temporary.mkdir()
            yield temporary
            _write_manifest(temporary, known or {})
            _put_in_place(temporary, path, replace)
        finally:
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


def remove_directory(path: Path) -> None:
    """Remove a directory so that no moment shows half of it under its name.

    Raises:
        WriteFailed, CannotCreate: it cannot be removed.
    """
    with _writing(path):
        dying = _temporary_name(path, "tmp")
        os.rename(path, dying)
        _sync_directory(path.parent)  # or its files may be gone, and its name back, after the power went
        shutil.rmtree(dying)


def remove_leftovers(directory: Path) -> None:
    """Remove temporary names in `directory` whose process no longer lives.

    Where it died between taking an old directory away and putting the new one in its place, the old one returns.
    """
    for entry in list(directory.iterdir()):
        found = _TEMPORARY.match(entry.name)
        if not found or _lives(int(found["process"]), found["token"]):
            continue
        replaced = directory / found["name"]
        with contextlib.suppress(OSError):  # another user's, or another process is at it too
            if found["kind"] == "old" and not os.path.lexists(replaced):
                os.rename(entry, replaced)
            else:
                _remove(entry)


def _temporary_name(path: Path, kind: str) -> Path:
    token = secrets.token_hex(4)
    _own_tokens.add(token)
    return path.parent / f".{path.name}.{kind}-{os.getpid()}-{token}"


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _write_manifest(directory: Path, known: Mapping[str, FileSum]) -> None:
    names = sorted(files_below(directory))
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


def _put_in_place(temporary: Path, path: Path, replace: bool) -> None:
    if replace and os.path.lexists(path):
        old = _temporary_name(path, "old")
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


def _lives(process: int, token: str) -> bool:
    if process == os.getpid():
        return token in _own_tokens
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    """Turn what the operating system says while writing into one line."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        if error.errno in _NOT_CREATABLE:
            raise CannotCreate(error.filename or path, reason) from error
        raise WriteFailed(path, reason, "nothing was left behind; free space or choose another disk") from error
