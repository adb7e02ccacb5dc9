"""Which files a corpus consists of: what folders and patterns hold, each file once, in a fixed order."""

import glob
import os
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, NamedTuple

from albert.runtime.errors import MissingInput, UsageError
from albert.runtime.input_files import refuse_special_file

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
