"""The files of a benchmark, a split in each, read to rows. No line is skipped: each is a row or an error with file and
line."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from albert.runtime.errors import DamagedData, InvalidConfiguration, MissingInput, did_you_mean
from albert.runtime.progress import Position, progress
from albert.tables.files import input_file, open_input_file
from albert.tables.records import tab_separated_records
from albert.tables.table import Row, Table


@dataclass(frozen=True)
class SplitFiles:
    """One file or folder per split, in `DATA/<folder>/` or in DATA itself, plain or `.gz`.

    `read_file` is called with the path and the name of the split.
    """

    folder: str
    files: Mapping[str, str]
    read_file: Callable[[Path, str], Table]

    @property
    def splits(self) -> tuple[str, ...]:
        return tuple(self.files)

    def with_files(self, files: Mapping[str, Path]) -> Any:
        return replace(self, files={**self.files, **{split: str(path.absolute()) for split, path in files.items()}})

    def read(self, data: Path, split: str) -> Table:
        """The rows of a split; InvalidConfiguration if there is no such split, MissingInput if there is no file."""
        if split not in self.files:
            raise InvalidConfiguration(f"split {split}", "unknown", did_you_mean(split, self.files))
        name = self.files[split]
        paths = data / self.folder / name, data / name
        for candidate in (path.with_name(file) for path in paths for file in (path.name, f"{path.name}.gz")):
            if candidate.exists():
                return self.read_file(candidate, split)
        raise MissingInput(data, f"has no {name}", f"expected {paths[0]} or {paths[1]} (or the same .gz)")


def read_text(path: Path) -> str:
    """The text of a UTF-8 file, decompressed by the ending of its name, without a byte order mark."""
    with open_input_file(input_file(path, "text")) as (content, _):
        raw = content.read()
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise DamagedData(f"{path}:{line}", f"is not UTF-8: byte {error.start}", "convert the file to UTF-8") from error


def json_entry(value: Any, key: str, kind: type, where: str, layout: str) -> Any:
    """The entry of an object in a benchmark's JSON file; DamagedData if it is missing or has another type."""
    remedy = f"expected {layout}'s JSON layout"
    if not isinstance(value, dict) or key not in value:
        raise DamagedData(where, f"has no {key!r}", remedy)
    if not isinstance(value[key], kind):
        raise DamagedData(where, f"{key!r} is not a {kind.__name__}", remedy)
    return value[key]


def read_rows(path: Path, columns: Sequence[str] | None = None, drop_broken: bool = False) -> Table:
    """All rows of a table with tabs between its columns.

    Args:
        columns: names of the columns of a file without a header.
        drop_broken: leave out and count the lines with another number of fields, which are errors otherwise.
    """
    file = input_file(path, "TSV")
    rows: list[Row] = []
    counts: Counter[str] = Counter()
    with progress(f"Reading {path.name}", total=file.size / 1e6, unit="MB") as bar:
        reached = Position(lambda count: bar.advance(count / 1e6), least=1 << 16).reached
        names = None if columns is None else tuple(columns)
        for record in tab_separated_records(file, names, counts if drop_broken else None, reached):
            rows.append(Row(str(len(rows)), record.where, record.fields))
    if not rows:
        raise MissingInput(path, "has no rows")
    return Table(rows, {"rows": len(rows), **counts})
