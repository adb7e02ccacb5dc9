"""A label, then its text: fastText's `__label__spam Win a prize` and TREC's `NUM:date When was ...`."""

import re
from collections.abc import Iterator

from albert.runtime.errors import DamagedData
from albert.tasks.reading.encodings import lines_of
from albert.tasks.reading.table_file import TableFile
from albert.text.readers import (
    CorpusFile,
    Record,
)

FASTTEXT = re.compile(r"__label__\S+(\s|$)")
COARSE_AND_FINE = re.compile(r"[A-Z]{2,12}:[A-Za-z]+ \S")


def open_labelled_lines(file: CorpusFile, encoding: str, notes: tuple[str, ...], sample: str) -> TableFile:
    """A file with a label and its text on each line."""
    lines = [line for line in sample.splitlines() if line.strip()]
    is_coarse = all(map(COARSE_AND_FINE.match, lines))
    if is_coarse:
        notes += ("every line is a label and its text; 'label' is what is before the colon, 'fine' all of it",)
    else:
        notes += ("every line is a label and its text",)
    names = ("text", "label", "fine") if is_coarse else ("text", "label")
    return TableFile(file=file, format="fasttext", encoding=encoding, notes=notes, names=names)


def labelled_records(table: TableFile) -> Iterator[Record]:
    """The rows of a file with a label and its text on each line."""
    is_coarse = len(table.names) == 3
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
        if is_coarse:
            coarse, colon, _ = labels[0].partition(":")
            if not colon:
                raise DamagedData(where, f"begins with {labels[0]!r}, not with a label such as 'NUM:date'")
            yield Record(where, {"text": text, "label": coarse, "fine": labels[0]})
        else:
            yield Record(where, {"text": text, "label": labels if len(labels) > 1 else labels[0]})
