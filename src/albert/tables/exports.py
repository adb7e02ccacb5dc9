"""Raw exports of annotation tools: each is refused, with what to write instead."""

from typing import Any

from albert.runtime.errors import UsageError
from albert.tables.records import Record

MARKED_TEXT = '{"text": "Anna in Rome", "label": [[0, 4, "PER"], [8, 12, "LOC"]]}'
"""How a text with marked parts is written."""
CONVERT = "python examples/convert_annotations.py EXPORT train.jsonl"
"""The command that writes a table from exports of Label Studio and BRAT."""


def refuse_raw_export(name: str, first: Record) -> None:
    """Raise UsageError for the raw export of an annotation tool, by its first row."""
    fields = first.fields
    if isinstance(fields.get("data"), dict) and _holds_objects(fields, "annotations", "completions"):
        raise UsageError(name, "is a raw export of Label Studio", f"export it as JSON-MIN, or convert it: {CONVERT}")
    if isinstance(fields.get("content"), str) and _holds_objects(fields, "annotation"):
        raise UsageError(name, "is an export of DataTurks", f"write a line for each text: {MARKED_TEXT}")


def is_of_spacy(item: Any) -> bool:
    """Return whether a value is a text with its annotations, as spaCy is trained on."""
    return isinstance(item, list) and len(item) == 2 and isinstance(item[0], str) and isinstance(item[1], dict)


def _holds_objects(fields: Any, *names: str) -> bool:
    """Return whether one of these fields is a list of objects, or an empty list."""
    lists = [fields[name] for name in names if isinstance(fields.get(name), list)]
    return any(all(isinstance(item, dict) for item in each) for each in lists)
