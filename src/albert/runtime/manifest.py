"""Input files, which must be regular files, and manifests, which detect damaged files."""

import hashlib
import json
import os
import stat
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from io import BufferedReader, FileIO
from pathlib import Path

from albert.runtime.errors import DamagedData, MissingInput

# --------------------------------------------------------------------------------------------------------------------
# Inputs are read more than once (checked, hashed, then used), which a pipe does not allow, and opening a pipe without
# a writer blocks for ever. Standard input is read only where a command documents it (albert predict --input -).

_KINDS = (
    (stat.S_ISDIR, "a directory"),
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)
PIPE_REMEDY = "write its output to a file first"
_NOT_WAITING = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0)


def refuse_special_file(path: Path | str, mode: int, pipe_remedy: str = PIPE_REMEDY) -> None:
    """Raise `MissingInput` unless `mode` is that of a regular file."""
    if stat.S_ISREG(mode):
        return
    kind = next((name for is_kind, name in _KINDS if is_kind(mode)), "a special file")
    raise MissingInput(path, f"is {kind}, a file is expected", pipe_remedy if stat.S_ISFIFO(mode) else None)


def open_input(path: Path) -> BufferedReader:
    """Open a regular file for reading bytes; links are followed."""
    try:
        refuse_special_file(path, os.stat(path).st_mode)  # before opening, which can start a device
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | _NOT_WAITING)
    except OSError as error:
        raise MissingInput(path, error.strerror or "cannot be read") from error
    try:
        refuse_special_file(path, os.fstat(descriptor).st_mode)
        return BufferedReader(FileIO(descriptor))
    except BaseException:
        os.close(descriptor)
        raise


def read_input(path: Path) -> bytes:
    """The bytes of a regular file."""
    with open_input(path) as file:
        try:
            return file.read()
        except OSError as error:
            raise MissingInput(path, error.strerror or "cannot be read") from error


# --------------------------------------------------------------------------------------------------------------------
# The version of a file's layout, an integer in every file that albert writes to read it again. A version counts for one
# kind of file: its writer and its readers name it.

LAYOUT = "layout"


def require_layout(path: Path | str, found: object, version: int = 1) -> None:
    """Refuse a file whose layout has another version than the one that is read here; None: it states none."""
    if type(found) is not int or found != version:
        has = "states no layout version" if found is None else f"has layout version {found!r:.20}"
        remedy = "use the version of albert that wrote it, or make it again"
        raise DamagedData(path, f"{has}, this version of albert reads {version}", remedy)


# --------------------------------------------------------------------------------------------------------------------
# Manifests: size and SHA-256 of every file of a directory.

MANIFEST_NAME = "MANIFEST.json"
UNVERIFIED = "README.md"
"""The card of a model may be changed: it is text for people, whom the Hub invites to edit it."""


@dataclass(frozen=True)
class FileSum:
    """Size and hash of a file, as in a manifest."""

    bytes: int
    sha256: str


def verify_directory(path: Path, checked: Callable[[str, int], None] | None = None) -> None:
    """Check every file of a directory against its manifest; hidden files that it does not list are ignored, and of
    the card (README.md) the content.

    `checked` is called with the name and the size of every correct file. Raises `DamagedData` for a missing, unlisted,
    special or changed file, and `MissingInput` without a directory or manifest.
    """
    if not path.is_dir():
        raise MissingInput(path, "no such directory")
    listed = read_manifest(path)
    present = {name for name in files_below(path) if name != MANIFEST_NAME}
    for name in sorted(present - set(listed)):
        if not any(part.startswith(".") for part in name.split("/")):  # a clone's .gitattributes, a hub's cache
            _verify_file(path, name, listed)
    for name, entry in sorted(listed.items()):
        if name not in present:
            raise DamagedData(path / name, f"is listed in {MANIFEST_NAME} but missing")
        _verify_file(path, name, listed)
        if checked:
            checked(name, entry.bytes)


def verify_files(directory: Path, names: Iterable[str]) -> None:
    """Check those of `names` that exist against the manifest in the same directory, if there is one."""
    if (directory / MANIFEST_NAME).is_file():
        listed = read_manifest(directory)
        for name in names:
            if (directory / name).is_file():
                _verify_file(directory, name, listed)


def read_manifest(directory: Path) -> dict[str, FileSum]:
    """Size and hash of each file that the manifest of a directory lists."""
    path = directory / MANIFEST_NAME
    if not path.is_file():
        raise MissingInput(directory, f"holds no {MANIFEST_NAME}", "albert did not write it completely")
    data = read_input(path)
    try:
        content = json.loads(data)
        files = content["files"]
        is_valid = all(isinstance(e["bytes"], int) and isinstance(e["sha256"], str) for e in files.values())
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise DamagedData(path, "is not a manifest") from error
    require_layout(path, content.get(LAYOUT))
    listed = {name: FileSum(entry["bytes"], entry["sha256"]) for name, entry in files.items()} if is_valid else {}
    if not is_valid or data != manifest_bytes(listed):
        raise DamagedData(path, "does not match its own hash")
    return listed


def is_intact(path: Path) -> bool:
    """Return whether `verify_directory` passes."""
    try:
        verify_directory(path)
    except (DamagedData, MissingInput):
        return False
    return True


def file_hash(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal."""
    with open_input(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def input_hash(path: Path) -> str:
    """SHA-256 of a file; of a folder that of the names and the contents of all files in it."""
    if not path.is_dir():
        return file_hash(path)
    names = "".join(f"{name}\n{file_hash(path / name)}\n" for name in sorted(files_below(path)))
    return hashlib.sha256(names.encode("utf-8", "surrogateescape")).hexdigest()


def files_below(directory: Path) -> list[str]:
    """The paths of all files below a directory, relative to it."""
    return [
        (Path(folder) / name).relative_to(directory).as_posix()
        for folder, _, names in os.walk(directory)
        for name in names
    ]


def _verify_file(directory: Path, name: str, listed: Mapping[str, FileSum]) -> None:
    file = directory / name
    if name not in listed:
        raise DamagedData(file, f"is not listed in {MANIFEST_NAME}")
    entry = listed[name]
    try:
        status = file.stat()
        if not stat.S_ISREG(status.st_mode):
            raise DamagedData(file, "is not a file")
        if name == UNVERIFIED:
            return
        if status.st_size != entry.bytes:
            raise DamagedData(file, f"has {status.st_size} bytes, {MANIFEST_NAME} says {entry.bytes}")
        if file_hash(file) != entry.sha256:
            raise DamagedData(file, f"SHA-256 differs from {MANIFEST_NAME}")
    except OSError as error:  # a dangling link, or one to itself
        raise MissingInput(file, error.strerror or "cannot be read") from error


def manifest_bytes(listed: Mapping[str, FileSum]) -> bytes:
    """The only valid bytes of a manifest with these entries."""
    entries = {name: vars(entry) for name, entry in listed.items()}
    own_hash = hashlib.sha256(json.dumps(entries, sort_keys=True).encode()).hexdigest()
    return (json.dumps({LAYOUT: 1, "files": entries, "self": own_hash}, indent=1) + "\n").encode()
