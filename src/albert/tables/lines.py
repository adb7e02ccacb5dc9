"""Lines of text without columns: what is predicted may have them, what is learned from may not."""

import re
from collections import Counter
from collections.abc import Iterator
from typing import ClassVar

from albert.runtime.errors import UsageError
from albert.tables.encodings import lines_of
from albert.tables.files import Advance
from albert.tables.records import Record
from albert.tables.table_file import Beginning, TableFile, TextFormat

_COARSE_AND_FINE = re.compile(r"[A-Z]{2,12}:[A-Za-z]+ \S")
"""A line of TREC: `NUM:date When was the war ?`."""


class Lines(TextFormat):
    """A text on each line."""

    name: ClassVar[str] = "text"
    about: ClassVar[str] = "text"

    def recognise(self, beginning: Beginning) -> str | None:
        """Of what no other format recognises, too; TREC's lines look like another one's."""
        return "" if all(map(_COARSE_AND_FINE.match, beginning.filled_lines)) else None

    def open(self, beginning: Beginning) -> TableFile:
        return TableFile(
            file=beginning.file,
            format=self.name,
            encoding=beginning.encoding,
            notes=beginning.notes,
            names=("text",),
            only_texts=True,
        )

    def records(self, table: TableFile, reached: Advance, counts: Counter[str], class_names: bool) -> Iterator[Record]:
        for number, line in lines_of(table.file, table.encoding):
            text = line.removeprefix("\ufeff") if number == 1 else line
            yield Record(f"{table.file.name}:{number}", {table.text_field: text})

    def check(self, table: TableFile) -> None:
        """Lines without columns are refused, with what to write."""
        path = table.file.path
        first = next((str(record.fields[table.text_field]) for record in _records_of(self, table)), None)
        if first is not None and _COARSE_AND_FINE.match(first):
            why = f"has a label and a text on each line, such as {first[:40]!r}"
            tabs = f"sed 's/ /\\t/' {path.name} > train.tsv"
            raise UsageError(path, why, f"write a tab after the label: {tabs}, then reading.columns=label,text")
        remedy = (
            "a table is .csv, .tsv, .jsonl or .parquet; tagged text has a word and its tag a line; "
            f"labels in a file of their own: paste {path.name} LABELS > train.tsv, then reading.columns=text,label"
        )
        raise UsageError(path, "has lines that are not words with tags, and no columns", remedy)


def _records_of(lines: Lines, table: TableFile) -> Iterator[Record]:
    return lines.records(table, lambda position: None, Counter(), False)
