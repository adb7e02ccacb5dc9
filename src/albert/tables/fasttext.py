"""fastText: a label, then its text on each line, `__label__spam Win a prize`."""

import re
from collections.abc import Iterator

from albert.tables.encodings import lines_of
from albert.tables.files import InputFile
from albert.tables.records import Record
from albert.tables.table_file import TableFile

FASTTEXT = re.compile(r"__label__\S+(\s|$)")


def open_fasttext(file: InputFile, encoding: str, notes: tuple[str, ...]) -> TableFile:
    """A file with a label and its text on each line."""
    notes += ("every line is a label and its text",)
    return TableFile(file=file, format="fasttext", encoding=encoding, notes=notes, names=("text", "label"))


def fasttext_records(table: TableFile) -> Iterator[Record]:
    """The rows of a file with a label and its text on each line."""
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
