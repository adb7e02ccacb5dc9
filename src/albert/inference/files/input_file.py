"""The file whose rows are predicted on: what kind it is, and standard input as a file."""

import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, cast

from albert.runtime.errors import MissingInput, UsageError
from albert.runtime.input_files import refuse_special_file
from albert.text.readers.corpus_files import CorpusFile
from albert.text.readers.unpacking import PACKINGS

InputKind = Literal["text", "JSON lines", "CSV", "TSV", "Parquet"]
KINDS: dict[str, InputKind] = {
    ".txt": "text",
    ".jsonl": "JSON lines",
    ".ndjson": "JSON lines",
    ".csv": "CSV",
    ".tsv": "TSV",
    ".parquet": "Parquet",
}
STANDARD_INPUT = "-"
_CHUNK = 1 << 20


@contextmanager
def opened_input(source: str) -> Iterator[CorpusFile]:
    """The file for a path, or for `-` what comes on standard input, kept in a file of its own until it is read.

    Lines of standard input are JSON when the first one begins with `{`, else texts.

    Raises:
        UsageError: the name does not say what it is.
        MissingInput: it cannot be read.
    """
    if source != STANDARD_INPUT:
        path = Path(source)
        suffix = path.with_suffix("").suffix if path.suffix.lower() in PACKINGS else path.suffix
        kind = KINDS.get(suffix.lower())
        if kind is None or (kind == "Parquet" and path.suffix.lower() in PACKINGS):
            known = ", ".join(KINDS)
            raise UsageError(source, "unknown kind of file", f"use {known} (all but Parquet packed too: .gz), or -")
        yield _described(path, source, kind)
        return
    with tempfile.NamedTemporaryFile(prefix="albert-") as file:
        beginning = b""
        while data := sys.stdin.buffer.read(_CHUNK):
            beginning += data[: 64 - len(beginning)] if len(beginning) < 64 else b""
            file.write(data)
        file.flush()
        is_json = beginning.removeprefix(b"\xef\xbb\xbf").lstrip().startswith(b"{")
        yield _described(Path(file.name), "standard input", "JSON lines" if is_json else "text")


def _described(path: Path, name: str, kind: InputKind) -> CorpusFile:
    try:
        status = path.stat()
    except OSError as error:
        raise MissingInput(name, error.strerror or "cannot be read") from error
    refuse_special_file(name, status.st_mode, "pipe it into standard input: --input -")
    return CorpusFile(path, name, status.st_size, status.st_mtime_ns, cast(InputKind, kind))
