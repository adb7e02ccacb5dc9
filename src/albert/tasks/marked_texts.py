"""Marked parts of texts as tags of words, and rows of one word as sentences: two ways in which tables have tags.

A part is `[start, end, label]`, in characters, or an object with these three."""

import ast
import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from albert.runtime.errors import DamagedData, UsageError, did_you_mean
from albert.runtime.words import counted
from albert.tables.fields import as_number
from albert.tables.table import TAGS, WORDS, Field, Row, Table
from albert.tasks.table_task import TableTask
from albert.text.word_split import word_spans

Part = tuple[int, int, str]
"""Start, end and label of a marked part of a text."""
NAMES_OF_MARKS = ("label", "entities", "spans", "labels")
_POSITIONS = "positions are counted in characters from 0, and the end is that after the last character"
_LAYOUTS = 'write marked parts as [0, 3, "PER"], or as {"start": 0, "end": 3, "label": "PER"}'

# --------------------------------------------------------------------------------------------------------------------
# Where parts are marked, and how.


@dataclass(frozen=True)
class _ObjectColumns:
    """The columns of marked parts that are written as objects; `text` is that of the parts themselves."""

    start: str
    end: str
    label: str
    text: str | None

    def parts(self, row: Row) -> list[Part]:
        if self.start not in row.fields:
            return []
        parts = zip(row.texts(self.start), row.texts(self.end), row.texts(self.label), strict=True)
        return [(_position(row, first), _position(row, last), name) for first, last, name in parts]


def _object_columns(table: Table, label: str) -> _ObjectColumns | None:
    """The columns of start, end and label in the objects of a column; None if there are none."""
    columns = set(table.columns)
    start = f"{label}.start"
    end = f"{label}.end"
    named = next((name for name in (f"{label}.label", f"{label}.labels") if name in columns), None)
    if named is None or not {start, end} <= columns:
        return None
    text = f"{label}.text"
    return _ObjectColumns(start, end, named, text if text in columns else None)


def _position(row: Row, value: str) -> int:
    number = as_number(value)
    if number is None or number != int(number):
        raise DamagedData(row.where, f"{value!r} is not a position in a text", _LAYOUTS)
    return int(number)


def _listed_parts(value: Field | None) -> list[Part]:
    """The parts in a cell, as `fields_of` keeps them or as text; none if it has something else."""
    if isinstance(value, str) and re.match(r"\s*\[\s*[\[(]\s*\d", value):
        try:
            items = ast.literal_eval(value.strip())
        except (ValueError, SyntaxError):
            return []
        value = tuple(json.dumps(list(item)) for item in items if isinstance(item, list | tuple))
    if not isinstance(value, tuple):
        return []
    parts = []
    for item in value:
        if not re.match(r"\[\d+, \d+, \"", item):
            return []
        start, end, name = json.loads(item)
        parts.append((start, end, name))
    return parts


def has_marks(table: Table, column: str) -> bool:
    """Return whether a column marks parts of texts."""
    return _object_columns(table, column) is not None or any(map(_listed_parts, set(table.values(column))))


def may_have_marks(table: Table, column: str) -> bool:
    """Return whether a column marks parts of texts, or holds objects that may do so in another form."""
    return any(name.startswith(f"{column}.") for name in table.columns) or has_marks(table, column)


def refuse_unknown_objects(table: Table, column: str) -> None:
    """Raise UsageError for a column of objects that are no marks."""
    inner = [name for name in table.columns if name.startswith(f"{column}.")]
    if inner and not has_marks(table, column) and not any(table.values(column)):
        why = f"holds objects with {', '.join(map(repr, inner))}, of which no start, end and label are known"
        raise UsageError(f"column {column!r}", why, _LAYOUTS)


def refuse_marked_words(table: Table, tags: str) -> None:
    """Raise UsageError for marks that number words, `[start, end, label]`, in the place of a tag for each word."""
    if has_marks(table, tags):
        remedy = "write a list of tags, one for each word (B-PER, I-PER, O)"
        raise UsageError(f"column {tags!r}", "marks words by their numbers, which is not read", remedy)


def refuse_unaccepted_rows(task: TableTask, table: Table, source: object) -> None:
    """Raise UsageError for rows of Prodigy that were rejected or ignored: their marks are not annotations."""
    columns = set(table.columns)
    if task.label == "answer" or "answer" not in columns or not {"_input_hash", "_task_hash"} & columns:
        return
    others = Counter(value for value in table.values("answer") if value != "accept")
    if others:
        shown = ", ".join(f"{count:,} of {answer!r}" for answer, count in others.items())
        remedy = f"""keep the accepted ones: grep '"answer": *"accept"' {source} > accepted.jsonl"""
        raise UsageError(str(source), f"has rows of Prodigy whose answer is not 'accept': {shown}", remedy)


# --------------------------------------------------------------------------------------------------------------------
# Tags of words for marked parts.


def tagged_words(table: Table, text: str, label: str) -> Table:
    """The table with words and tags (IOB2) for the parts of `text` that `label` marks; with words alone without it."""
    if text not in table.columns and WORDS in table.columns:
        return table  # words with tags, for a model that was trained on marked texts
    objects = _object_columns(table, label)
    if label not in table.columns and objects is None:
        rows = [replace(row, fields={**row.fields, WORDS: _words_of(row.text(text))}) for row in table.rows]
        return replace(table, rows=rows)
    refuse_unknown_objects(table, label)
    parts = [_listed_parts(row.fields.get(label)) if objects is None else objects.parts(row) for row in table.rows]
    counts = Counter[str]()
    if objects is not None and objects.text is not None:
        _check_marked_texts(table, text, parts, objects.text, counts)
    rows = []
    names = (label,) if objects is None else (label, objects.start)
    for row, own in zip(table.rows, parts, strict=True):
        if not any(name in row.fields for name in names):
            counts[f"rows without {label!r}, of which no word is marked"] += 1
        words, tags = tags_of_parts(row, row.text(text), own, counts)
        rows.append(replace(row, fields={**row.fields, WORDS: words, TAGS: tags}))
    of = "" if objects is None else f" (from {objects.start!r} to {objects.end!r}, called {objects.label!r})"
    notes = (*table.notes, f"the parts of {text!r} that {label!r} marks{of} are read as a tag for each word")
    notes += tuple(counted(count, what) for what, count in counts.items())
    return replace(table, rows=rows, notes=notes)


def _check_marked_texts(
    table: Table, text: str, parts: Sequence[Sequence[Part]], marked: str, counts: Counter[str]
) -> None:
    """Count marked parts whose own text, in the column `marked`, is not at their place; refused if they are most."""
    total = 0
    other = 0
    for row, own in zip(table.rows, parts, strict=True):
        texts = row.texts(marked) if marked in row.fields else ()
        if len(texts) != len(own):
            continue
        whole = row.text(text)
        total += len(own)
        places = zip(own, texts, strict=True)
        other += sum(whole[start:end].split() != written.split() for (start, end, _), written in places)
    if other > total / 2:
        why = f"its marked parts are another text than their own in {other:,} of {total:,} cases"
        raise DamagedData(table.rows[0].where, why, _POSITIONS)
    if other:
        counts["parts marked whose own text is another one"] += other


def tags_of_parts(
    row: Row, text: str, parts: Sequence[Part], counts: Counter[str]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The words of a text and their tags; of overlapping parts the longest is kept, the others are counted."""
    words = word_spans(text)
    tags = ["O"] * len(words)
    for start, end, name in sorted(parts, key=lambda part: (part[0] - part[1], part[0])):
        if not 0 <= start < end <= len(text):
            why = f"marks the characters {start} to {end} of a text with {len(text)}"
            raise DamagedData(row.where, why, _POSITIONS)
        inside = [at for at, (first, last) in enumerate(words) if first < end and last > start]
        if not inside:
            counts["parts marked without a word, left out"] += 1
            continue
        if any(tags[at] != "O" for at in inside):
            counts["parts marked across a longer one, left out"] += 1
            continue
        if words[inside[0]][0] < start or words[inside[-1]][1] > end:
            counts["parts marked from or to the inside of a word, which is marked as a whole"] += 1
        for at in inside:
            tags[at] = f"I-{name}"
        tags[inside[0]] = f"B-{name}"
    return _words_of(text), tuple(tags)


def _words_of(text: str) -> tuple[str, ...]:
    """The words of a text, as `albert predict --tag` divides it."""
    return tuple(text[start:end] for start, end in word_spans(text))


# --------------------------------------------------------------------------------------------------------------------
# One word in each row: rows with the same name of a sentence are grouped.


def grouped_words(task: TableTask, table: Table, source: object) -> Table:
    """The table with a sentence in each row, if every row holds one word; UsageError if nothing names the sentences."""
    assert task.words is not None
    values = [value for value in table.values(task.words) if value is not None]
    has_single_words = bool(values) and all(isinstance(value, str) and len(value.split()) <= 1 for value in values)
    if task.group is None:
        if has_single_words and len(values) > 20:
            likely = [name for name in table.columns if re.search(r"sent|doc|id", name, re.IGNORECASE)]
            example = likely[0] if likely else "COLUMN"
            why = f"{task.words!r} holds one word in each row"
            raise UsageError(str(source), why, f"name the column that numbers the sentences: --group {example!r}")
        return table
    if task.group not in table.columns:
        raise DamagedData(source, f"has no column {task.group!r}", did_you_mean(task.group, table.columns))
    if not has_single_words:
        return table  # a file of whole sentences
    columns = [name for name in (task.words, task.tags) if name is not None]
    sentences: list[Row] = []
    members: list[Row] = []
    current: Field | None = None
    for row in table.rows:
        name = row.fields.get(task.group)
        is_first = name is not None and name != current and not (isinstance(name, str) and not name.strip())
        if is_first:
            if members:
                sentences.append(_sentence(len(sentences), members, columns, task.group, current))
            members = []
            current = name
        word = row.fields.get(task.words)
        if not isinstance(word, str) or not word.strip():
            raise DamagedData(row.where, f"empty word in column {task.words!r}", "every row needs a word")
        members.append(row)
    if members:
        sentences.append(_sentence(len(sentences), members, columns, task.group, current))
    note = f"{len(table.rows):,} rows of one word are {len(sentences):,} sentences, by {task.group!r}"
    counts = {**table.counts, "rows": len(sentences)}
    return replace(table, rows=sentences, counts=counts, notes=(*table.notes, note))


def _sentence(number: int, members: Sequence[Row], columns: Sequence[str], group: str, name: Field | None) -> Row:
    """The row of a sentence from the rows of its words: a list in each column, its name (if any) in `group`."""
    fields: dict[str, Field] = {column: tuple(row.text(column).strip() for row in members) for column in columns}
    if name is not None:
        fields[group] = name
    return Row(str(number), members[0].where, fields)
