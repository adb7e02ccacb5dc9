"""What all corpus readers share: finding, unpacking and decoding files, and counting what is read and dropped.

`KINDS` maps file endings to formats; the reader of each format is entered in `albert.text.corpus`."""

import bz2
import glob
import io
import lzma
import os
import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from io import BufferedIOBase
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

from albert.runtime.environment import load_by_name
from albert.runtime.errors import DamagedData, InvalidConfiguration, MissingInput, UsageError, did_you_mean
from albert.runtime.input_files import open_input, refuse_special_file
from albert.text.normalization import REPLACEMENT_CHARACTER
from albert.text.sentences import repair_surrogates

# --------------------------------------------------------------------------------------------------------------------
# Which files a corpus consists of: what folders and patterns hold, each file once, in a fixed order.

Kind = Literal["text", "JSON lines", "CSV", "TSV", "Parquet", "Wikipedia", "saved dataset", "Hub dataset"]

KINDS: dict[str, Kind] = {
    ".txt": "text",
    ".jsonl": "JSON lines",
    ".ndjson": "JSON lines",
    ".json": "JSON lines",
    ".csv": "CSV",
    ".tsv": "TSV",
    ".xml": "Wikipedia",
    ".parquet": "Parquet",
}
PACKED = (".gz", ".xz", ".bz2", ".zst")
KNOWN = f"{' '.join(KINDS)} (each but .parquet also with {' '.join(PACKED)})"
HUB = re.compile(
    r"hf:/{1,2}(?P<id>[\w.-]+/[\w.-]+)(?:/(?P<config>[\w.+-]+))?(?:@(?P<revision>[\w./-]+))?:(?P<split>[^/]+)"
)
"""A data set of the Hugging Face Hub: hf://OWNER/NAME[/CONFIG][@REVISION]:SPLIT; `Path` leaves one slash of two."""


@dataclass(frozen=True)
class CorpusFile:
    """One source of a corpus: a file, or a data set of `datasets`.

    Attributes:
        path: where it is; of a data set on the Hub, its address.
        name: how it is called in records: relative to the folder it was found in.
        size: bytes on disk; 0 of what is not on this disk.
        modified: when it was last written, in nanoseconds, or 0.
        kind: what reads it.
    """

    path: Path
    name: str
    size: int
    modified: int
    kind: Kind


class FoundFiles(NamedTuple):
    """The files of a corpus; how many files of other kinds, or hidden ones, were passed over; how many met again."""

    files: list[CorpusFile]
    ignored: int
    repeated: int


def find_corpus_files(paths: Sequence[Path]) -> FoundFiles:
    """The files behind files, folders (searched recursively), glob patterns and `hf://` addresses, in a fixed order.

    A file met by two paths, through links say, is one file. Hidden files and folders of a folder are passed over.

    Raises:
        MissingInput: a path or pattern that leads to nothing; a folder that cannot be searched; a link to nothing.
        UsageError: a file of a kind that is not read.
    """
    if not paths:
        raise UsageError("corpus", "no file, folder or pattern is given")
    search = _Search()
    for path in paths:
        search.add(path)
    return FoundFiles(_distinct_names(list(search.files.values())), search.ignored, search.repeated)


def kind_of(name: str) -> Kind | None:
    """What reads a file of this name; None when nothing does."""
    name = name.lower()
    for packed in PACKED:
        if name.endswith(packed):
            plain = KINDS.get(os.path.splitext(name.removesuffix(packed))[1])
            return plain if plain != "Parquet" else None
    return KINDS.get(os.path.splitext(name)[1])


class _Search:
    """What has been found so far, by the numbers that the file system gives to files."""

    def __init__(self) -> None:
        self.files: dict[tuple[int, int] | str, CorpusFile] = {}
        self.ignored = self.repeated = 0

    def add(self, path: Path) -> None:
        """Add what a path, pattern or address leads to."""
        if str(path).startswith("hf:"):
            self._add_address(path)
        elif os.path.lexists(path) or not glob.has_magic(str(path)):
            if not path.is_dir() and path.is_file() and kind_of(path.name) is None:
                raise UsageError(path, "cannot tell its format from its name", f"known: {KNOWN}")
            self._add_place(path)
        else:
            found = sorted(Path(name) for name in glob.glob(str(path), recursive=True))
            read = [place for place in found if place.is_dir() or kind_of(place.name) is not None]
            self.ignored += len(found) - len(read)
            if not read:
                raise MissingInput(path, "matches no file" + (f" of a kind that is read: {KNOWN}" if found else ""))
            for place in read:
                self._add_place(place)

    def _add_address(self, address: Path) -> None:
        name = str(address).replace("hf:/", "hf://", 1)
        if not HUB.fullmatch(str(address)):
            raise UsageError(name, "is no address of a data set", "write hf://OWNER/NAME[/CONFIG][@REVISION]:SPLIT")
        self.files.setdefault(name, CorpusFile(address, name, 0, 0, "Hub dataset"))

    def _add_place(self, place: Path) -> None:
        if not place.is_dir():
            self._add_file(place, place.name)
            return
        any_file = False  # a folder whose only content is a link to itself holds none
        for found in self._below(place, set()):
            any_file = True
            self._add_file(found, found.relative_to(place).as_posix() if found != place else place.resolve().name)
        if not any_file:
            raise MissingInput(place, f"holds no {' '.join(KINDS)} file")

    def _below(self, folder: Path, entered: set[tuple[int, int]]) -> Iterator[Path]:
        """Files and saved data sets in a folder; a folder that links lead to again is entered once."""
        try:
            number = _number(folder.stat())
            names = sorted(os.listdir(folder))
        except OSError as error:
            raise MissingInput(folder, error.strerror or "cannot be searched") from error
        if number in entered:
            self.repeated += 1
            return
        entered.add(number)
        if _is_saved_dataset(folder, names):
            yield folder
            return
        for name in names:
            place = folder / name
            if name.startswith("."):
                self.ignored += 1
            elif place.is_dir():
                yield from self._below(place, entered)
            elif kind_of(name) is None:
                self.ignored += 1
            else:
                yield place

    def _add_file(self, path: Path, name: str) -> None:
        try:
            status = path.stat()
            size, modified = size_and_time(path)
        except OSError as error:
            raise MissingInput(path, _why_absent(path, error)) from error
        if _number(status) in self.files:
            self.repeated += 1
            return
        kind: Kind | None = "saved dataset" if path.is_dir() else kind_of(path.name)
        assert kind is not None
        name = os.fsencode(name).decode("utf-8", "replace")
        self.files[_number(status)] = CorpusFile(path, name, size, modified, kind)


def size_and_time(path: Path) -> tuple[int, int]:
    """Bytes on disk, and when they were last written, of a file or of a folder's files.

    Raises:
        OSError: it cannot be looked at.
        MissingInput: it is a pipe, a device or the like.
    """
    if path.is_dir():
        parts = [entry.stat() for entry in os.scandir(path)]
        return sum(part.st_size for part in parts), max(part.st_mtime_ns for part in parts)
    status = path.stat()
    refuse_special_file(path, status.st_mode)
    return status.st_size, status.st_mtime_ns


def _is_saved_dataset(folder: Path, names: list[str]) -> bool:
    """Whether `datasets` saved a data set here.

    Raises:
        UsageError: several of them, for training and for testing say.
    """
    if "dataset_dict.json" in names:
        splits = [name for name in names if (folder / name / "state.json").is_file()]
        why = f"holds a data set of several splits: {', '.join(splits)}"
        raise UsageError(folder, why, f"name one: {folder / splits[0]}" if splits else None)
    return "state.json" in names and "dataset_info.json" in names


def _number(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def _why_absent(path: Path, error: OSError) -> str:
    if path.is_symlink() and isinstance(error, FileNotFoundError):
        return f"is a link to {os.readlink(path)}, which is not there"
    return "no such file or folder" if isinstance(error, FileNotFoundError) else error.strerror or "cannot be read"


def _distinct_names(files: list[CorpusFile]) -> list[CorpusFile]:
    """The same files; those with a name in common are called by as many folders of their paths as tell them apart."""
    folders, names = 0, Counter(file.name for file in files)
    while max(names.values(), default=0) > 1:
        folders += 1
        files = [
            replace(file, name="/".join(file.path.parts[-1 - folders :])) if names[file.name] > 1 else file
            for file in files
        ]
        names = Counter(file.name for file in files)
    return files


DocumentBoundary = Literal["file", "blank-line", "line"]
BadUtf8 = Literal["refuse", "replace", "skip"]

NULL, EMPTY, NOT_UTF8 = "null", "empty", "not UTF-8"


@dataclass(frozen=True)
class Document:
    """One document and where it comes from ("books.jsonl.gz:12")."""

    text: str
    source: str


@dataclass(frozen=True, kw_only=True)
class Reading:
    """How documents are taken out of files.

    Attributes:
        text_field: the key of a JSON line, or the column of a table, that holds the text.
        documents: what a document is in a `.txt` file: the file, what stands between blank lines, or a line.
        bad_utf8: what becomes of text that is not UTF-8, or holds NUL bytes: an error that names file and byte, U+FFFD
            for every bad sequence, or the document is dropped.
        max_document_bytes: a longer document is divided at the end of a paragraph, a line or a sentence.

    Raises:
        InvalidConfiguration: a limit that is shorter than a character may be.
    """

    text_field: str = "text"
    documents: DocumentBoundary = "file"
    bad_utf8: BadUtf8 = "refuse"
    max_document_bytes: int = 16_000_000

    def __post_init__(self) -> None:
        if self.max_document_bytes < 4:
            raise InvalidConfiguration("max_document_bytes", f"{self.max_document_bytes} holds no character")

    @property
    def max_record_bytes(self) -> int:
        """A record longer than this, text and all else, is refused: nothing can divide it."""
        return 8 * self.max_document_bytes


@dataclass(frozen=True)
class SourceCounts:
    """What was read of one source, a file or a data set of so many bytes on disk; used and dropped together.

    A prepared corpus of before these counts has zeros.
    """

    name: str
    bytes: int
    documents_in: int = 0
    bytes_in: int = 0
    documents_used: int = 0
    bytes_used: int = 0


@dataclass
class CorpusReport:
    """What was read: `documents_in` = `documents` + the sum of `dropped`, and the same in bytes.

    Bytes are bytes of UTF-8 text; those of a document that was never decoded are its bytes in the file.
    """

    files: int = 0
    files_ignored: int = 0
    files_repeated: int = 0
    files_empty: int = 0
    documents_in: int = 0
    bytes_in: int = 0
    documents: int = 0
    bytes: int = 0
    dropped: Counter[str] = field(default_factory=Counter)
    dropped_bytes: Counter[str] = field(default_factory=Counter)
    cuts: int = 0
    noted: Counter[str] = field(default_factory=Counter)
    sources: tuple[SourceCounts, ...] = ()

    def use(self, text: str) -> None:
        """Count a document that is handed on."""
        size = size_in_bytes(text)
        self.documents_in += 1
        self.bytes_in += size
        self.documents += 1
        self.bytes += size

    def drop(self, reason: str, size: int, documents: int = 1) -> None:
        """Count a document that is not, or bytes of one that is."""
        self.documents_in += documents
        self.bytes_in += size
        if documents:
            self.dropped[reason] += documents
        self.dropped_bytes[reason] += size

    def remarks(self) -> list[str]:
        """Whatever was left out or noted, for people."""
        lines = [f"{count:,} documents dropped: {reason}" for reason, count in self.dropped.items()]
        for count, what in (
            (self.files_ignored, "files of other kinds, or hidden, ignored"),
            (self.files_repeated, "files or folders met again by another path, read once"),
            (self.files_empty, "files without a document"),
            (self.cuts, "cuts in documents longer than --max-document-megabytes"),
        ):
            if count:
                lines.append(f"{count:,} {what}")
        return lines + [f"{count:,} {what}" for what, count in self.noted.items()]


@runtime_checkable
class Reader(Protocol):
    """What the module of every kind of file offers as `read`."""

    def __call__(
        self, file: CorpusFile, reading: Reading, report: CorpusReport, reached: Callable[[int], None]
    ) -> Iterator[Document]:
        """The documents of a file in their order; those without text included.

        Args:
            file: what to read.
            reading: how.
            report: to count what is dropped or noted here; documents that are yielded are counted by the caller.
            reached: to say how many bytes of the file are behind.

        Raises:
            MissingInput: it cannot be read.
            DamagedData: it is not what its name says; with the line, row or byte.
            Unavailable: a data set of the Hub that cannot be had.
        """
        ...


def size_in_bytes(text: str) -> int:
    """The length of a text as UTF-8."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


# --------------------------------------------------------------------------------------------------------------------
# Bytes of a file to text: UTF-8, or what `Reading.bad_utf8` says.

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")
_REPLACED = "bad UTF-8 sequences replaced by U+FFFD"
_REPAIRED = "half surrogates replaced by U+FFFD"


def decode_from_file(data: bytes, path: Path, offset: int, reading: Reading, report: CorpusReport) -> str | None:
    """`decode` of what stands at a place of a file, unpacked; a byte order mark at its beginning is no text."""
    if offset == 0:
        if data.startswith(_UTF16_MARKS) and reading.bad_utf8 == "refuse":
            raise DamagedData(path, "is not UTF-8: byte 0: it is UTF-16", "convert it: iconv -f UTF-16 -t UTF-8")
        if data.startswith(_BYTE_ORDER_MARK):
            data, offset = data[len(_BYTE_ORDER_MARK) :], len(_BYTE_ORDER_MARK)
    return decode(data, path, offset, reading, report)


def decode(data: bytes, subject: object, offset: int, reading: Reading, report: CorpusReport) -> str | None:
    """The text of some bytes; None when it is dropped, and counted as a document.

    Args:
        data: a document, a line, a field.
        subject: where they are: a file, perhaps with a line.
        offset: their place in it.
        reading, report: what to do about bytes that are no text, and the account of it.

    Raises:
        DamagedData: not UTF-8, or a NUL byte, which is UTF-8 and no text; with its place.
    """
    place, error = data.find(b"\0"), None
    if place < 0:
        try:
            return data.decode("utf-8")
        except UnicodeDecodeError as found:
            place, error = found.start, found
    if reading.bad_utf8 == "skip":
        report.drop(NOT_UTF8, len(data))
        return None
    if reading.bad_utf8 == "replace":
        text = data.decode("utf-8", "replace").replace("\0", REPLACEMENT_CHARACTER)
        report.noted[_REPLACED] += text.count(REPLACEMENT_CHARACTER) - data.count(b"\xef\xbf\xbd")
        return text
    what = "is not UTF-8:" if error else "is not text: NUL byte at"
    remedy = "convert it to UTF-8" if error else "UTF-8 is expected"
    raise DamagedData(subject, f"{what} byte {offset + place}", f"{remedy}, or --bad-utf8 replace or skip") from error


def similar_name(name: str, names: Iterable[object]) -> str:
    """`did_you_mean` for names out of a file, whatever characters they are made of."""
    hint = did_you_mean(name, [repr(str(known))[1:-1] for known in names])
    return f"{hint} (--text-field)" if hint else ""


def repair(text: str, report: CorpusReport) -> str:
    """The text with every lone surrogate, which JSON's escapes may leave, replaced and counted."""
    if text.isascii():
        return text
    repaired = repair_surrogates(text)
    if repaired is not text:
        report.noted[_REPAIRED] += sum(a != b for a, b in zip(text, repaired, strict=True))
    return repaired


# --------------------------------------------------------------------------------------------------------------------
# Files as bytes, unpacked where they are packed; one that is damaged, cut short or still growing is refused.
#
# The standard library's readers take what follows the first stream of a `.bz2` or `.xz` file, if it is damaged, for
# nothing; Zstandard's take the end of the file for the end of the data. Here every stream must be whole.

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
        lambda: load_by_name("albert.text.zstandard_reader", "data").ZstandardDecompressor(),
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
