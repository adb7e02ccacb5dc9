"""Files with rows or documents: where one is, and its bytes, decompressed if needed.

A file that is damaged, cut short or still growing is refused. The standard library ignores damaged data after the first
stream of a `.bz2` or `.xz` file; here every stream must be complete."""

import bz2
import io
import lzma
import os
import sys
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import BufferedIOBase
from pathlib import Path
from typing import Any, NamedTuple

from albert.runtime.environment import lazy_import
from albert.runtime.errors import AlbertError, DamagedData, MissingInput
from albert.runtime.manifest import PIPE_REMEDY, open_input, refuse_special_file

Kind = str
"""The name of a format: "text", "JSON lines", "CSV", "TSV", "Parquet" and so on."""


@dataclass(frozen=True)
class InputFile:
    """One source of a corpus: a file, or a data set of `datasets`.

    Attributes:
        path: of the file; for a data set on the Hub, its address.
        name: the name in records and errors; in a corpus, relative to the folder that was searched.
        size: bytes on disk; 0 for a data set on the Hub.
        modified: time of the last change in nanoseconds.
        member: the file in a zip archive that is read; empty if it is no archive.
    """

    path: Path
    name: str
    size: int
    modified: int
    kind: Kind
    member: str = ""


def input_file(path: Path, kind: Kind, name: str | None = None, pipe_remedy: str = PIPE_REMEDY) -> InputFile:
    """Return a single file, or a saved data set, of a known format."""
    name = str(path) if name is None else name
    try:
        return InputFile(path, name, *size_and_time(path, name, pipe_remedy), kind)
    except OSError as error:
        is_broken_link = isinstance(error, FileNotFoundError) and path.is_symlink()
        why = f"is a link to {os.readlink(path)}, which does not exist" if is_broken_link else error.strerror
        raise MissingInput(name, why or "cannot be read") from error


def size_and_time(path: Path, name: str, pipe_remedy: str = PIPE_REMEDY) -> tuple[int, int]:
    """Return bytes on disk and time of the last change, for a file or for all files of a folder."""
    entries = [entry.stat() for entry in os.scandir(path)] if path.is_dir() else [path.stat()]
    if not path.is_dir():
        refuse_special_file(name, entries[0].st_mode, pipe_remedy)
    return sum(entry.st_size for entry in entries), max(entry.st_mtime_ns for entry in entries)


Advance = Callable[[int], None]
"""Called with a number of bytes, to show progress."""


CHUNK = 1 << 16
MAX_PART = 1 << 18
WINDOW_BITS = 31  # `zstd --long=31`, which some published corpora need; memory is used only as data fill it


def _zstandard() -> Any:
    library = lazy_import("compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd", "data")
    return library.ZstdDecompressor(options={library.DecompressionParameter.window_log_max: WINDOW_BITS})


class Compression(NamedTuple):
    """A compression format.

    Attributes:
        decompressor: opens one stream, like `bz2.BZ2Decompressor`. Input that it has not used stays in it, or comes
            back as `unconsumed_tail` (zlib).
    """

    name: str
    decompressor: Callable[[], Any]


COMPRESSIONS: dict[str, Compression] = {
    ".gz": Compression("gzip", lambda: zlib.decompressobj(16 + zlib.MAX_WBITS)),
    ".bz2": Compression("bzip2", bz2.BZ2Decompressor),
    ".xz": Compression("xz", lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ)),
    ".zst": Compression("Zstandard", _zstandard),
}


class DecompressedFile(io.RawIOBase):
    """The data of all streams of a compressed file, one after the other."""

    def __init__(self, raw: BufferedIOBase, path: Path, compression: Compression) -> None:
        self._path = path
        self._name = compression.name
        self._parts = _decompress(raw, compression)
        self._data = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill a buffer; returns 0 at the end of the data."""
        try:
            self._data = self._data or memoryview(next(filter(None, self._parts), b""))
        except Exception as error:
            if isinstance(error, AlbertError) or (isinstance(error, OSError) and error.errno is not None):
                raise  # a missing library, or an error of the disk, not of the stream
            why = f"damaged {self._name} file ({' '.join(str(error).split())})"
            raise DamagedData(self._path, why, "fetch or pack it again") from error
        count = min(len(buffer), len(self._data))
        buffer[:count] = self._data[:count]
        self._data = self._data[count:]
        return count


def _decompress(raw: BufferedIOBase, compression: Compression) -> Iterator[bytes]:
    """Yield the data of all streams, in parts that may be empty."""
    packed = raw.read(CHUNK)
    if not packed:
        raise EOFError("it is empty")
    while packed:
        stream = compression.decompressor()
        while not stream.eof:
            given = packed or (raw.read(CHUNK) if getattr(stream, "needs_input", True) else b"")
            data = stream.decompress(given, MAX_PART)
            packed = getattr(stream, "unconsumed_tail", b"")
            if not (data or given or stream.eof) and getattr(stream, "needs_input", True):
                raise EOFError("it ends too early")
            yield data
        packed = stream.unused_data.lstrip(b"\0")
        while not packed and (padding := raw.read(CHUNK)):  # to a block
            packed = padding.lstrip(b"\0")


@contextmanager
def open_input_file(file: InputFile) -> Iterator[tuple[BufferedIOBase, BufferedIOBase]]:
    """Open a file; yields its decompressed content, and the raw file, whose position is the progress."""
    try:
        with open_input(file.path) as raw:
            status = os.fstat(raw.fileno())
            check_unchanged(file, status.st_size, status.st_mtime_ns)
            compression = COMPRESSIONS.get(file.path.suffix.lower())
            content = raw
            if compression is not None:
                content = io.BufferedReader(DecompressedFile(raw, file.path, compression), MAX_PART)
            if file.member:
                with _zip_damage_refused(file.name):
                    archive = zipfile.ZipFile(raw)
                content = io.BufferedReader(_Member(archive, file), MAX_PART)
            yield content, raw
            status = os.fstat(raw.fileno())
            check_unchanged(file, status.st_size, status.st_mtime_ns)
    except OSError as error:
        raise MissingInput(file.path, error.strerror or " ".join(str(error).split())) from error


class _Member(io.RawIOBase):
    """The data of a file in a zip archive."""

    def __init__(self, archive: zipfile.ZipFile, file: InputFile) -> None:
        self._name = file.name
        with _zip_damage_refused(file.name):
            self._data = archive.open(file.member)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        with _zip_damage_refused(self._name):
            data = self._data.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)


@contextmanager
def _zip_damage_refused(name: str) -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:  # encrypted, or a method that Python does not have
        raise DamagedData(name, f"cannot be unpacked ({error})", "unpack it with another program") from error
    except (zipfile.BadZipFile, zlib.error, EOFError, KeyError, lzma.LZMAError) as error:
        raise DamagedData(name, f"damaged zip file ({error})", "fetch it again") from error


def check_unchanged(file: InputFile, size: int, modified: int) -> None:
    """Raise DamagedData if a source has changed since it was found."""
    if (size, modified) != (file.size, file.modified):
        raise DamagedData(file.path, "changed while it was read", "run again when nothing writes to it")
