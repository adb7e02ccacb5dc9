"""Which files a corpus consists of, and their bytes: plain or gzip, checked."""

import glob
import gzip
import os
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import BufferedIOBase
from pathlib import Path

from albert.runtime.errors import DamagedData, MissingInput, UsageError

SUFFIXES = (".txt", ".txt.gz", ".jsonl", ".jsonl.gz")


@dataclass(frozen=True)
class CorpusFile:
    """One file of a corpus.

    Attributes:
        path: where it is.
        name: how it is called in records: relative to the folder it was found in.
        size: bytes on disk.
    """

    path: Path
    name: str
    size: int

    @property
    def is_jsonl(self) -> bool:
        """Whether each line is a JSON object, rather than text."""
        return self.path.name.lower().removesuffix(".gz").endswith(".jsonl")


def find_corpus_files(paths: Sequence[Path]) -> tuple[list[CorpusFile], int]:
    """The files behind files, folders (searched recursively) and glob patterns, in a fixed order.

    Returns:
        the files, each once; and how many files of other kinds the folders hold.

    Raises:
        MissingInput: a path or pattern that leads to nothing.
        UsageError: a file of a kind that is not read.
    """
    if not paths:
        raise UsageError("corpus", "no file, folder or pattern is given")
    files: dict[Path, CorpusFile] = {}
    ignored = 0
    for path in paths:
        for place in _matches(path):
            if place.is_dir():
                below = sorted(
                    (Path(f) / n for f, _, names in os.walk(place) for n in names),
                    key=lambda p: p.relative_to(place).parts,
                )
                readable = [p for p in below if p.name.lower().endswith(SUFFIXES) and p.is_file()]
                ignored += len(below) - len(readable)
                if not readable:
                    raise MissingInput(place, "holds no " + ", ".join(SUFFIXES) + " file")
                found = [(p, p.relative_to(place).as_posix()) for p in readable]
            else:
                found = [(place, place.name)]
            for file, name in found:
                files.setdefault(file.resolve(), CorpusFile(file, name, _size(file)))
    return list(files.values()), ignored


@contextmanager
def open_corpus_file(file: CorpusFile) -> Iterator[tuple[BufferedIOBase, BufferedIOBase]]:
    """Open a file: its content, unpacked if need be, and the raw file, whose position is the progress.

    Raises:
        MissingInput: it cannot be read.
        DamagedData: the gzip stream is damaged or cut.
    """
    try:
        with open(file.path, "rb") as raw:
            if file.path.suffix.lower() == ".gz":
                with gzip.open(raw, "rb") as unpacked:
                    yield unpacked, raw
            else:
                yield raw, raw
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DamagedData(file.path, f"damaged gzip file ({_one_line(error)})", "fetch or pack it again") from error
    except OSError as error:
        raise MissingInput(file.path, error.strerror or _one_line(error)) from error


def _matches(path: Path) -> list[Path]:
    if path.exists() or not glob.has_magic(str(path)):
        if not path.exists():
            raise MissingInput(path, "no such file or folder")
        if not path.is_dir() and not path.is_file():
            raise MissingInput(path, "is neither a file nor a folder")
        if path.is_file() and not path.name.lower().endswith(SUFFIXES):
            raise UsageError(path, "cannot tell its format from its name", "known: " + ", ".join(SUFFIXES))
        return [path]
    found = sorted(Path(name) for name in glob.glob(str(path), recursive=True))
    found = [place for place in found if place.is_dir() or place.name.lower().endswith(SUFFIXES)]
    if not found:
        raise MissingInput(path, "matches no file")
    return found


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError as error:
        raise MissingInput(path, error.strerror or "cannot be read") from error


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())
