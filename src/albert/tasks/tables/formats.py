"""A table's file to rows, by the ending of its name; `.gz` may follow that of any text.

CSV has quoting (RFC 4180); TSV has none, a tab always ends a field. JSON lines hold one object a line, Parquet typed
columns (it needs the library pyarrow), and the formats of tagged text one word a line, under `.txt` too where all lines
but few look like it.
"""

import csv
import io
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from albert.runtime.errors import DamagedData, MissingInput, UsageError
from albert.runtime.late_modules import load_by_name
from albert.runtime.progress import progress
from albert.runtime.strict_json import each_key_once
from albert.tasks.rows import Row, Rows
from albert.tasks.sources import lines_of, read_tab_separated, read_text
from albert.tasks.tables.json_fields import fields_of
from albert.tasks.tables.tagged_text import looks_tagged, read_tagged_text

csv.field_size_limit(2**31 - 1)  # a field is as long as a text may be; the module's own limit is 131,072 characters

TAGGED_TEXT = (".conll", ".bio", ".iob", ".iob2")


def read_table(path: Path) -> Rows:
    """Every row of a table.

    Args:
        path: `.csv`, `.tsv`, `.jsonl`, `.conll`, `.bio`, `.iob`, `.iob2`, `.txt` (or the same with `.gz`), or
            `.parquet`.

    Raises:
        UsageError: another ending, or `.txt` with text that is not tagged.
        MissingInput: absent or without rows.
        Unavailable: a Parquet file, and pyarrow is not installed.
        DamagedData: a ragged row, broken quoting, a line that is no JSON object and the like, with file and line.
    """
    ending = Path(path.stem if path.suffix == ".gz" else path.name).suffix.lower()
    readers: dict[str, Callable[[Path], Rows]] = {
        ".csv": _read_comma_separated,
        ".tsv": read_tab_separated,
        ".jsonl": _read_json_lines,
        **dict.fromkeys(TAGGED_TEXT, read_tagged_text),
        ".txt": _read_text_that_is_tagged,
    }
    if ending == ".parquet" and path.suffix != ".gz":
        return load_by_name("albert.tasks.tables.parquet", "data").read_parquet(path)
    if ending == ".json":
        why = "is JSON, not JSON lines"
        raise UsageError(path, why, "SQuAD's layout goes with the task squad-1.1 or squad-2.0, a table with .jsonl")
    if ending not in readers:
        raise UsageError(path, "unknown kind of file", "use .csv, .tsv, .jsonl or .conll (also .gz), or .parquet")
    rows = readers[ending](path)
    if not rows.rows:
        raise MissingInput(path, "has no rows")
    return rows


def columns_of(rows: Rows) -> tuple[str, ...]:
    """The columns that any row has, in the order of their first appearance."""
    return tuple(dict.fromkeys(column for row in rows.rows for column in row.fields))


def _read_text_that_is_tagged(path: Path) -> Rows:
    if not looks_tagged(lines_of(path)):
        why = "is text whose lines are no words with tags"
        raise UsageError(
            path, why, "a table is .csv, .tsv, .jsonl or .parquet; tagged text has a word and its tag a line"
        )
    return read_tagged_text(path)


def _read_comma_separated(path: Path) -> Rows:
    text = read_text(path)
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    rows: list[Row] = []
    columns: list[str] | None = None
    line = 1
    try:
        with progress(f"Reading {path.name}", total=text.count("\n"), unit="lines") as bar:
            for fields in reader:
                bar.advance(reader.line_num + 1 - line)
                where, line = f"{path}:{line}", reader.line_num + 1
                if columns is None:
                    columns = fields
                    if len(set(columns)) != len(columns):
                        raise DamagedData(where, "two columns have the same name")
                elif len(fields) != len(columns):
                    raise DamagedData(where, f"has {len(fields)} fields where the header has {len(columns)}")
                else:
                    rows.append(Row(str(len(rows)), where, dict(zip(columns, fields, strict=True))))
    except csv.Error as error:
        raise DamagedData(f"{path}:{line}", f"broken CSV ({error})", "check the quotes of this row") from error
    return Rows(rows, {"rows": len(rows)})


def _read_json_lines(path: Path) -> Rows:
    rows: list[Row] = []
    lines = lines_of(path)
    counts: Counter[str] = Counter()
    with progress(f"Reading {path.name}", total=len(lines), unit="lines") as bar:
        for number, line in enumerate(lines, start=1):
            where = f"{path}:{number}"
            try:
                value = json.loads(line, object_pairs_hook=each_key_once)
            except (ValueError, RecursionError) as error:
                raise DamagedData(where, f"not JSON ({error})") from error
            if not isinstance(value, dict):
                raise DamagedData(where, "is not a JSON object")
            rows.append(Row(str(len(rows)), where, fields_of(value, where, counts)))
            bar.advance()
    return Rows(rows, {"rows": len(rows), **counts})
