"""JSON: an object on each line; or one value, a list of objects, SQuAD's layout, or what pandas writes."""

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, ClassVar

from albert.runtime.errors import DamagedData, UsageError
from albert.runtime.json_files import unique_keys
from albert.runtime.words import kind_of_value
from albert.tables.encodings import lines_of, text_of_file
from albert.tables.exports import MARKED_TEXT, is_of_spacy, refuse_raw_export
from albert.tables.files import Advance, InputFile
from albert.tables.records import PYTHON_DICT_REMEDY, Record, json_line_records
from albert.tables.table_file import Beginning, Layout, TableFile, TextFormat


class JsonLines(TextFormat):
    """An object on each line."""

    name: ClassVar[str] = "jsonl"
    about: ClassVar[str] = "JSON lines"
    endings: ClassVar[tuple[str, ...]] = (".jsonl", ".ndjson")

    def recognise(self, beginning: Beginning) -> str | None:
        return "every line is JSON" if _is_json(beginning.filled_lines[0]) else None

    def otherwise(self, beginning: Beginning) -> tuple[str, str] | None:
        is_list = re.match(r"\s*\[\s*[{\]]", beginning.sample)
        return ("json", "one list of objects, not a line for each") if is_list else None

    def open(self, beginning: Beginning) -> TableFile:
        table = TableFile(file=beginning.file, format=self.name, encoding=beginning.encoding, notes=beginning.notes)
        for first in self.records(table, lambda position: None, Counter(), False):
            refuse_raw_export(table.file.name, first)
            break
        return table

    def records(self, table: TableFile, reached: Advance, counts: Counter[str], class_names: bool) -> Iterator[Record]:
        if table.encoding in ("utf-8", "utf-8-sig"):
            return json_line_records(table.file, reached)
        return _json_lines(table.file, table.encoding)


class Json(TextFormat):
    """One value with all rows."""

    name: ClassVar[str] = "json"
    about: ClassVar[str] = "JSON"
    endings: ClassVar[tuple[str, ...]] = (".json",)

    def recognise(self, beginning: Beginning) -> str | None:
        return "the file is JSON" if _is_json(beginning.sample) else None

    def otherwise(self, beginning: Beginning) -> tuple[str, str] | None:
        is_given = beginning.layout.format is not None
        if is_given or not re.match(r"\s*\{.*\}\s*\n\s*\{", beginning.sample):
            return None
        return "jsonl", "every line is an object: read as JSON lines"

    def open(self, beginning: Beginning) -> TableFile:
        table = _open_json(beginning.file, beginning.encoding, beginning.notes, beginning.layout)
        for first in (table.rows or ())[:1]:
            refuse_raw_export(table.file.name, first)
        return table

    def records(self, table: TableFile, reached: Advance, counts: Counter[str], class_names: bool) -> Iterator[Record]:
        return iter(table.rows or ())


def _is_json(text: str) -> bool:
    """Return whether a text is an object or a list in JSON."""
    if not re.match(r"\s*[{\[]", text):
        return False
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def _json_lines(file: InputFile, encoding: str) -> Iterator[Record]:
    """The rows of a file with one JSON value on each line, in any encoding."""
    for number, line in lines_of(file, encoding):
        if not line.strip():
            continue
        try:
            value = json.loads(line, object_pairs_hook=unique_keys)
        except (ValueError, RecursionError) as error:
            raise DamagedData(f"{file.name}:{number}", f"is not JSON ({error})") from error
        if not isinstance(value, dict):
            raise DamagedData(f"{file.name}:{number}", f"is {kind_of_value(value)}, a JSON object {{...}} is expected")
        yield Record(f"{file.name}:{number}", value)


def _is_list_of_rows(value: Any) -> bool:
    """Return whether a value is a list of lists of texts or numbers, as many in each."""
    if not isinstance(value, list) or not value or not all(isinstance(row, list) and len(row) > 1 for row in value):
        return False
    plain = all(isinstance(cell, str | int | float | None) for row in value for cell in row)
    return plain and len(set(map(len, value))) == 1


def _are_rows_by_key(value: Mapping[str, Mapping[str, Any]]) -> bool:
    """Return whether objects are rows and not columns: more of them than fields, and all with the same fields."""
    fields = next(iter(value.values()))
    same = all(row.keys() == fields.keys() for row in value.values())
    return same and len(value) > len(fields) and not all(name.isdecimal() for name in fields)


def _open_json(file: InputFile, encoding: str, notes: tuple[str, ...], layout: Layout) -> TableFile:
    """A file that is one JSON value, with its rows."""
    value: Any
    with text_of_file(file, encoding) as text:
        try:
            value = json.loads(text.read(), object_pairs_hook=unique_keys)
        except (ValueError, RecursionError) as error:
            text.seek(0)
            remedy = PYTHON_DICT_REMEDY if re.match(r"\s*\{u?'", text.read(100)) else None
            raise DamagedData(file.name, f"is not JSON ({error})", remedy) from error
    if isinstance(value, dict):
        articles = value.get("data")
        if isinstance(articles, list) and articles and isinstance(articles[0], dict) and "paragraphs" in articles[0]:
            notes += ("SQuAD's layout: columns question, context, answers.text and answers.answer_start",)
            rows = tuple(_squad_records(file.name, articles))
            return TableFile(file=file, format="json", encoding=encoding, notes=notes, rows=rows)
        lists = {
            name: items
            for name, items in value.items()
            if isinstance(items, list) and items and all(isinstance(item, dict) for item in items)
        }
        if isinstance(value.get("columns"), list) and "index" in value and _is_list_of_rows(value.get("data")):
            names = [str(name) for name in value["columns"]]
            lists["data"] = [dict(zip(names, row, strict=False)) for row in value["data"]]
            notes += ("columns and rows are lists, as pandas writes them",)
        pairs = [name for name, items in value.items() if _is_list_of_rows(items)]
        if pairs and not lists:
            why = f"has {len(pairs)} lists of rows, {', '.join(map(repr, pairs[:8]))}"
            remedy = "write the one with your rows to a file of its own, as a list"
            raise DamagedData(file.name, why, remedy)
        if len(lists) == 1:
            ((name, value),) = lists.items()
            notes += (f"the rows are the list {name!r}",)
        elif lists:
            why = f"has several lists of objects, {', '.join(map(repr, lists))}"
            raise DamagedData(file.name, why, "write the one with the rows to a file of its own")
        elif value and all(isinstance(row, dict) for row in value.values()) and _are_rows_by_key(value):
            value = [{"key": key, **row} for key, row in value.items()]
            notes += ("each row is an object, and its name is the column 'key'",)
        elif value and all(isinstance(column, dict) for column in value.values()):
            keys = list(dict.fromkeys(chain.from_iterable(value.values())))
            value = [{name: column.get(key) for name, column in value.items()} for key in keys]
            notes += ("the columns are objects, as pandas writes them",)
        elif value and all(isinstance(column, list) for column in value.values()):
            lengths = {len(column) for column in value.values()}
            if len(lengths) > 1:
                raise DamagedData(file.name, "has lists of different lengths", "write one object for each row")
            value = [dict(zip(value, cells, strict=True)) for cells in zip(*value.values(), strict=True)]
            notes += ("the columns are lists",)
        else:
            known = ", ".join(map(repr, list(value)[:8]))
            why = f"is an object with {known or 'nothing in it'}, no list of rows"
            raise DamagedData(file.name, why, "write a list of objects, or JSON lines")
    if not isinstance(value, list):
        raise DamagedData(file.name, f"is {kind_of_value(value)}, a list of JSON objects {{...}} is expected")
    if _is_list_of_rows(value):
        width = max(map(len, value))
        names = layout.columns or tuple(f"column {number}" for number in range(1, width + 1))
        value = [dict(zip(names, row, strict=False)) for row in value]
        notes += ("every row is a list of values",)
    if value and is_of_spacy(value[0]):
        why = "holds texts with annotations as for spaCy"
        raise UsageError(file.name, why, f"write a line for each text: {MARKED_TEXT}")
    records = []
    for number, row in enumerate(value):
        if not isinstance(row, dict):
            why = f"is {kind_of_value(row)}, a JSON object {{...}} is expected"
            raise DamagedData(f"{file.name}: [{number}]", why, "write one object for each row")
        records.append(Record(f"{file.name}: [{number}]", row))
    return TableFile(file=file, format="json", encoding=encoding, notes=notes, rows=tuple(records))


def _squad_records(name: str, articles: Sequence[Any]) -> Iterator[Record]:
    for a, article in enumerate(articles):
        for p, paragraph in enumerate(article.get("paragraphs") or ()):
            for q, question in enumerate(paragraph.get("qas") or ()):
                where = f"{name}: data[{a}].paragraphs[{p}].qas[{q}]"
                fields = {
                    "id": question.get("id"),
                    "question": question.get("question"),
                    "context": paragraph.get("context"),
                }
                if "answers" in question:
                    answers = question["answers"] or []
                    if not isinstance(answers, list) or not all(isinstance(answer, dict) for answer in answers):
                        raise DamagedData(where, "'answers' is not a list of objects", "expected SQuAD's JSON layout")
                    fields["answers"] = {
                        "text": [answer.get("text") for answer in answers],
                        "answer_start": [answer.get("answer_start", -1) for answer in answers],
                    }
                yield Record(where, fields)
