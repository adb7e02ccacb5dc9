"""fastText: a label, then its text on each line, `__label__spam Win a prize`."""

import re
from collections import Counter
from collections.abc import Iterator
from typing import ClassVar

from albert.tables.encodings import lines_of
from albert.tables.files import Advance
from albert.tables.records import Record
from albert.tables.table_file import Beginning, TableFile, TextFormat

_MARKED = re.compile(r"__label__\S+(\s|$)")


class FastText(TextFormat):
    """A label, or several, and a text on each line."""

    name: ClassVar[str] = "fasttext"
    about: ClassVar[str] = "labels and texts"

    def recognise(self, beginning: Beginning) -> str | None:
        return "" if all(map(_MARKED.match, beginning.filled_lines)) else None

    def open(self, beginning: Beginning) -> TableFile:
        return TableFile(
            file=beginning.file,
            format=self.name,
            encoding=beginning.encoding,
            notes=(*beginning.notes, "every line is a label and its text"),
            names=("text", "label"),
        )

    def records(self, table: TableFile, reached: Advance, counts: Counter[str], class_names: bool) -> Iterator[Record]:
        for number, line in lines_of(table.file, table.encoding):
            where = f"{table.file.name}:{number}"
            words = line.split()
            if not words:
                continue
            marked = 0
            while marked < len(words) and words[marked].startswith("__label__"):
                marked += 1
            labels = [word.removeprefix("__label__") for word in words[: marked or 1]]
            text = line.strip()
            for word in words[: marked or 1]:
                text = text[len(word) :].lstrip()
            yield Record(where, {"text": text, "label": labels if len(labels) > 1 else labels[0]})
