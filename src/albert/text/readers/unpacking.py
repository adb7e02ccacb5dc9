"""Files as bytes, unpacked where they are packed; one that is damaged, cut short or still growing is refused.

The standard library's readers take what follows the first stream of a `.bz2` or `.xz` file, if it is damaged, for
nothing; Zstandard's take the end of the file for the end of the data. Here every stream must be whole.
"""

import bz2
import io
import lzma
import os
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import BufferedIOBase
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from albert.runtime.errors import DamagedData, MissingInput
from albert.runtime.input_files import open_input
from albert.runtime.late_modules import load_by_name
from albert.text.readers.corpus_files import CorpusFile

CHUNK = 1 << 16
LARGEST_PART = 1 << 18


@runtime_checkable
class Decompressor(Protocol):
    """One stream, as `bz2` and `lzma` have it."""

    @property
    def needs_input(self) -> bool:
        """Whether there is nothing more to be had without new bytes."""
        ...

    @property
    def eof(self) -> bool:
        """Whether the stream has ended."""
        ...

    @property
    def unused_data(self) -> bytes:
        """What followed its end."""
        ...

    def decompress(self, data: bytes, max_length: int = -1) -> bytes:
        """What the next packed bytes hold, at most so many bytes of it."""
        ...


class GzipDecompressor:
    """One member of a gzip file."""

    def __init__(self) -> None:
        self._stream = zlib.decompressobj(16 + zlib.MAX_WBITS)

    @property
    def needs_input(self) -> bool:
        """Whether all that was given is used up."""
        return not self._stream.unconsumed_tail

    @property
    def eof(self) -> bool:
        """Whether the member has ended, with the right checksum."""
        return self._stream.eof

    @property
    def unused_data(self) -> bytes:
        """What followed its end."""
        return self._stream.unused_data

    def decompress(self, data: bytes, max_length: int = -1) -> bytes:
        """What the next packed bytes hold, at most so many bytes of it."""
        return self._stream.decompress(self._stream.unconsumed_tail + data, max_length)


@dataclass(frozen=True)
class Packing:
    """A way to pack files: how it is called, and what opens one stream."""

    name: str
    decompressor: Callable[[], Decompressor]
    chunk: int = CHUNK
    """Packed bytes unpacked at a time."""


PACKINGS: dict[str, Packing] = {
    ".gz": Packing("gzip", lambda: GzipDecompressor()),
    ".bz2": Packing("bzip2", lambda: bz2.BZ2Decompressor()),
    ".xz": Packing("xz", lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ)),
    # There is no limit to the output of a call: four bytes may stand for 128 KB.
    ".zst": Packing(
        "Zstandard",
        lambda: load_by_name("albert.text.readers.zstandard_streams", "data").ZstandardDecompressor(),
        CHUNK >> 7,
    ),
}


class UnpackedFile(io.RawIOBase):
    """The data of all streams of a packed file, one after the other."""

    def __init__(self, raw: BufferedIOBase, path: Path, packing: Packing) -> None:
        self._raw, self._path, self._packing = raw, path, packing
        self._stream: Decompressor | None = None
        self._any_stream = False
        self._packed = b""
        self._data = memoryview(b"")

    def readable(self) -> bool:
        """True: it is there to be read."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill a buffer; 0 is the end of the data.

        Raises:
            DamagedData: a stream is damaged, cut short, or followed by something else.
        """
        if not self._data:
            try:
                self._data = memoryview(self._more())
            except (EOFError, OSError, ValueError, zlib.error, lzma.LZMAError) as error:
                if isinstance(error, OSError) and error.errno is not None:
                    raise  # the disk's, not the stream's
                why = f"damaged {self._packing.name} file ({' '.join(str(error).split())})"
                raise DamagedData(self._path, why, "fetch or pack it again") from error
        count = min(len(buffer), len(self._data))
        buffer[:count], self._data = self._data[:count], self._data[count:]
        return count

    def _more(self) -> bytes:
        """Some data; none at the end of a file whose streams are all whole."""
        while True:
            if not self._packed and (self._stream is None or self._stream.needs_input):
                self._packed = self._raw.read(self._packing.chunk)
                if not self._packed and self._stream is None:
                    if self._any_stream:
                        return b""
                    raise EOFError("it is empty")
            if self._stream is None:
                if self._any_stream:
                    self._packed = self._packed.lstrip(b"\0")  # they may fill a block
                    if not self._packed:
                        continue
                self._stream, self._any_stream = self._packing.decompressor(), True
            packed, self._packed = self._packed, b""
            data = self._stream.decompress(packed, LARGEST_PART)
            if self._stream.eof:
                self._packed, self._stream = self._stream.unused_data, None
            elif not data and not packed and self._stream.needs_input:
                raise EOFError("it ends too early")
            if data:
                return data


@contextmanager
def open_corpus_file(file: CorpusFile) -> Iterator[tuple[BufferedIOBase, BufferedIOBase]]:
    """Open a file: its content, unpacked if need be, and the raw file, whose position is the progress.

    Raises:
        MissingInput: it cannot be read.
        DamagedData: it is packed and damaged, or it is not as it was when the corpus was looked for.
    """
    try:
        with open_input(file.path) as raw:
            _check_unchanged(file, raw)
            packing = PACKINGS.get(file.path.suffix.lower())
            yield (
                (raw if packing is None else io.BufferedReader(UnpackedFile(raw, file.path, packing), LARGEST_PART)),
                raw,
            )
            _check_unchanged(file, raw)
    except OSError as error:
        raise MissingInput(file.path, error.strerror or " ".join(str(error).split())) from error


def changed(file: CorpusFile) -> DamagedData:
    """The error of a source that something writes to."""
    return DamagedData(file.path, "changed while it was read", "run again when nothing writes to it")


def _check_unchanged(file: CorpusFile, raw: BufferedIOBase) -> None:
    status = os.fstat(raw.fileno())
    if (status.st_size, status.st_mtime_ns) != (file.size, file.modified):
        raise changed(file)
