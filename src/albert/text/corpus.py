"""Corpora: the files that they consist of, the format of each, and the documents in them, with counts.

To add a format, write a function that reads it and list it in `FORMATS`."""

import glob
import itertools
import os
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from albert.runtime.environment import lazy_import
from albert.runtime.errors import DamagedData, MissingInput, UsageError
from albert.runtime.files import LOCK_NAME
from albert.runtime.manifest import MANIFEST_NAME, read_manifest
from albert.runtime.progress import Position
from albert.tables.files import COMPRESSIONS, Advance, InputFile, Kind, input_file
from albert.text.readers import EMPTY, WIKIPEDIA, CorpusReport, Reader, Reading, SourceCounts, split_text, utf8_length


@dataclass(frozen=True)
class Format:
    """A format of corpus files.

    Attributes:
        endings: of file names.
        reader: "module:function" of an `albert.text.readers.Reader`.
        extra: the extra of the package that the reader needs.
        compressible: whether the files may be compressed.
    """

    endings: tuple[str, ...]
    reader: str
    extra: str | None = None
    compressible: bool = True


FORMATS: dict[Kind, Format] = {
    "text": Format((".txt",), "albert.text.readers:read_plain_text"),
    "JSON lines": Format((".jsonl", ".ndjson", ".json"), "albert.text.readers:read_json_lines"),
    "CSV": Format((".csv",), "albert.text.readers:read_rows"),
    "TSV": Format((".tsv", ".tab"), "albert.text.readers:read_rows"),
    "Excel": Format((".xlsx", ".xlsm", ".xls", ".ods"), "albert.text.readers:read_rows", "excel", compressible=False),
    "Parquet": Format((".parquet",), "albert.text.arrow_files:read_parquet", "data", compressible=False),
    "saved dataset": Format((), "albert.text.arrow_files:read_saved_dataset", "data"),
    "Hub dataset": Format((), "albert.text.arrow_files:read_hub_dataset", "data"),
}
HUB = re.compile(
    r"hf:/{1,2}(?P<id>[\w.-]+/[\w.-]+)(?:/(?P<config>[\w.+-]+))?(?:@(?P<revision>[\w./-]+))?:(?P<split>[^/]+)"
)
"""hf://OWNER/NAME[/CONFIG][@REVISION]:SPLIT, a data set of the Hugging Face Hub; `Path` leaves one slash of two."""
WIKIEXTRACTOR_NAME = re.compile(r"wiki_\d{2,}")
"""WikiExtractor's files have no ending; their content says what they hold (see `readers.read_plain_text`)."""
_ARCHIVES = (".tar", ".tgz", ".tbz2", ".txz", ".zip", ".7z", ".rar")
DEFAULT_READING = Reading()


def endings() -> str:
    """Return the endings of all formats, separated by blanks."""
    return " ".join(ending for format_ in FORMATS.values() for ending in format_.endings)


def describe_endings() -> str:
    """Return all endings with the compressions, for error messages."""
    packable = " ".join(end for format_ in FORMATS.values() if format_.compressible for end in format_.endings)
    return f"{endings()} ({packable} also with {' '.join(COMPRESSIONS)})"


def _ending(name: str) -> str:
    """Return the ending of a name, both of `a.xml.bz2`."""
    stem, ending = os.path.splitext(name.lower())
    return os.path.splitext(stem)[1] + ending if ending in COMPRESSIONS else ending


def _instead_of(ending: str) -> str:
    """What to do instead of naming files with an ending that is not known."""
    if ending.startswith(".xml"):
        return f"dumps of Wikipedia are not read: {WIKIPEDIA}"
    if ending.startswith(_ARCHIVES):
        return "unpack the archive, and name its folder"
    return f"known: {describe_endings()}"


def kind_of(name: str) -> Kind | None:
    """Return the format of a file by its name; None if it is unknown."""
    stem, ending = os.path.splitext(name.lower())
    compressed = ending in COMPRESSIONS
    if WIKIEXTRACTOR_NAME.fullmatch(stem if compressed else name):
        return "text"
    ending = os.path.splitext(stem)[1] if compressed else ending
    for kind, format_ in FORMATS.items():
        if ending in format_.endings and (format_.compressible or not compressed):
            return kind
    return None


# ---- The files of a corpus: each once, in a fixed order ------------------------------------------------------------


class CorpusFiles(NamedTuple):
    """The files of a corpus, the number of ignored files (unknown format or hidden), and of repeated ones."""

    files: list[InputFile]
    ignored: int
    repeated: int


def find_corpus_files(paths: Sequence[Path]) -> CorpusFiles:
    """Find the files of files, folders (searched recursively), glob patterns and `hf://` addresses, in a fixed order.

    A file with two paths, for example through links, counts once. Hidden files and folders in a folder are ignored, and
    so are tokenizers, corpora, models and runs that albert wrote there.
    """
    if not paths:
        raise UsageError("corpus", "no file, folder or pattern is given")
    files: dict[tuple[int, int] | str, InputFile] = {}
    counts: Counter[str] = Counter()
    for path in paths:
        if str(path).startswith("hf:"):
            name = str(path).replace("hf:/", "hf://", 1)
            if not HUB.fullmatch(str(path)):
                remedy = "write hf://OWNER/NAME[/CONFIG][@REVISION]:SPLIT"
                raise UsageError(name, "is not an address of a data set", remedy)
            files.setdefault(name, InputFile(path, name, 0, 0, "Hub dataset"))
            continue
        for found, name in _found(path, counts):
            kind = "saved dataset" if found.is_dir() else kind_of(found.name) or "text"  # "text" where there is no file
            file = replace(input_file(found, kind), name=_in_utf8(name))
            file_id = _file_id(found.stat())
            counts["repeated"] += file_id in files
            files.setdefault(file_id, file)
    return CorpusFiles(_disambiguate_names(list(files.values())), counts["ignored"], counts["repeated"])


def _found(path: Path, counts: Counter[str]) -> Iterator[tuple[Path, str]]:
    """Yield the files and saved data sets of a path or pattern, with their names in the corpus."""
    matches = [path]
    if glob.has_magic(str(path)) and not os.path.lexists(path):
        found = sorted(Path(name) for name in glob.glob(str(path), recursive=True))
        matches = [match for match in found if match.is_dir() or kind_of(match.name) is not None]
        counts["ignored"] += len(found) - len(matches)
        if not matches:
            known = f" of a known format: {describe_endings()}" if found else ""
            raise MissingInput(path, f"matches no file{known}")
    elif path.is_file() and kind_of(path.name) is None:
        raise UsageError(path, "is of a format that is not read", _instead_of(_ending(path.name)))
    for match in matches:
        if not match.is_dir():
            yield match, match.name
            continue
        is_empty = True  # also for a folder that holds only a link to itself
        for file in _walk(match, set(), counts):
            is_empty = False
            yield file, file.relative_to(match).as_posix() if file != match else match.resolve().name
        if is_empty:
            files = (_ending(name) for _, _, names in os.walk(match) for name in names)
            most_frequent = Counter(itertools.islice(files, 10_000)).most_common(3)
            why = f"holds no {endings()} file"
            remedy = None
            if most_frequent:
                held = (f"{count:,} with {ending or 'no ending'}" for ending, count in most_frequent)
                why += f", but {', '.join(held)}"
                ending = most_frequent[0][0]
                remedy = _instead_of(ending) if ending.startswith((".xml", *_ARCHIVES)) else None
            raise MissingInput(match, why, remedy)


def _walk(folder: Path, entered: set[tuple[int, int]], counts: Counter[str]) -> Iterator[Path]:
    """Yield files and saved data sets in a folder; each folder is entered once, whatever links lead to it."""
    try:
        file_id = _file_id(folder.stat())
        names = sorted(os.listdir(folder))
    except OSError as error:
        raise MissingInput(folder, error.strerror or "cannot be searched") from error
    if file_id in entered:
        counts["repeated"] += 1
        return
    entered.add(file_id)
    if _is_output(folder, names):
        counts["ignored"] += 1
        return
    if "dataset_dict.json" in names:
        splits = [name for name in names if (folder / name / "state.json").is_file()]
        why = f"holds a data set of several splits: {', '.join(splits)}"
        raise UsageError(folder, why, f"name one: {folder / splits[0]}" if splits else None)
    if "state.json" in names and "dataset_info.json" in names:
        yield folder
        return
    for name in names:
        path = folder / name
        if not name.startswith(".") and path.is_dir():
            yield from _walk(path, entered, counts)
        elif name.startswith(".") or kind_of(name) is None:
            counts["ignored"] += 1
        else:
            yield path


def _is_output(folder: Path, names: list[str]) -> bool:
    """Return whether albert wrote a folder: it has a manifest, or is a run or an unfinished corpus."""
    if MANIFEST_NAME in names:
        with suppress(DamagedData, MissingInput):
            read_manifest(folder)
            return True
    return LOCK_NAME in names and ("journal.jsonl" in names or "plan.json" in names)


def _file_id(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def _disambiguate_names(files: list[InputFile]) -> list[InputFile]:
    """Prefix names that occur twice with as many folders of their paths as make them unique."""
    folders = 0
    names = Counter(file.name for file in files)
    while max(names.values(), default=0) > 1:
        folders += 1
        files = [
            replace(file, name=_in_utf8("/".join(file.path.parts[-1 - folders :]))) if names[file.name] > 1 else file
            for file in files
        ]
        names = Counter(file.name for file in files)
    return files


def _in_utf8(name: str) -> str:
    """The name with escapes for bytes that are not UTF-8, which no record can hold."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")


# ---- The documents of files ----------------------------------------------------------------------------------------


def read_corpus(
    paths: Sequence[Path],
    reading: Reading = DEFAULT_READING,
    *,
    report: CorpusReport | None = None,
    advance: Advance | None = None,
) -> Iterator[str]:
    """Read the documents of files, folders, glob patterns and `hf://` addresses, in a fixed order.

    Args:
        advance: called with the bytes on disk read since the last call.

    Raises:
        MissingInput: a path does not exist or cannot be read, or no document has text.
        UsageError: a file of an unknown format.
        DamagedData: invalid content, with file and line: bytes that are not UTF-8 or NUL bytes (with their position), a
            damaged or growing file, a line without a JSON object, a field or column that is missing or not text.
        Unavailable: a library is not installed, or a data set of the Hub cannot be fetched.
    """
    report = report if report is not None else CorpusReport()
    files, report.files_ignored, report.files_repeated = find_corpus_files(paths)
    yield from read_files(files, reading, report=report, advance=advance)
    report.refuse_empty(paths[0] if len(paths) == 1 else "corpus")


def read_files(
    files: Sequence[InputFile],
    reading: Reading = DEFAULT_READING,
    *,
    report: CorpusReport,
    advance: Advance | None = None,
) -> Iterator[str]:
    """Read the documents of files that `find_corpus_files` found; there may be none."""
    sources: list[SourceCounts] = []
    for file in files:
        report.files += 1
        before = report.documents_in, report.bytes_in, report.documents, report.bytes
        progress = Position(advance)
        module, _, function = FORMATS[file.kind].reader.partition(":")
        read: Reader = getattr(lazy_import(module, FORMATS[file.kind].extra), function)
        texts = (text for text in read(file, reading, report, progress.reached) if text is not None)
        for text in texts:
            for part in split_text(text, reading.max_document_bytes, report):
                if not part or part.isspace():
                    report.drop(EMPTY, utf8_length(part))
                    continue
                report.documents += 1
                report.bytes += utf8_length(part)
                yield part
        progress.reached(file.size)
        after = report.documents_in, report.bytes_in, report.documents, report.bytes
        sources.append(SourceCounts(file.name, file.size, *(b - a for a, b in zip(before, after, strict=True))))
        report.files_empty += sources[-1].documents_in == 0
    report.sources += tuple(sources)
