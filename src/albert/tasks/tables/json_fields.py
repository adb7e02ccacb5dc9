"""Typed values, of JSON and of Parquet, to the fields of a row: texts, and lists of texts.

Numbers and truth values are written as JSON writes them. An object's entries become columns of their own with a dot in
the name: `answers.text` is `text` in the object `answers`. null is an absent field; so is what is neither text nor list
of texts (a list of lists or of objects, bytes), and that is counted.
"""

import datetime
import decimal
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from albert.runtime.errors import DamagedData
from albert.tasks.rows import Field
from albert.tasks.sources import is_unicode

NOT_READ = "fields_not_read"


def fields_of(values: Mapping[str, Any], where: str, counts: Counter[str]) -> dict[str, Field]:
    """The fields of a row; those that cannot be read are added to `counts`.

    Raises:
        DamagedData: half of a surrogate pair, or two values of one name.
    """
    fields: dict[str, Field] = {}
    for name, value in _leaves(values, ""):
        if name in fields:
            raise DamagedData(where, f"two values are called {name!r}")
        items = value if isinstance(value, list) else [value]
        texts = tuple(text for item in items if (text := _text(item)) is not None)
        if len(texts) < len(items):
            counts[NOT_READ] += 1
            continue
        if not all(map(is_unicode, texts)):
            raise DamagedData(where, f"{name!r} holds half of a surrogate pair", "write the file as UTF-8 again")
        fields[name] = texts if isinstance(value, list) else texts[0]
    return fields


def _leaves(values: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    """What is no object, with the names of the objects around it."""
    for name, value in values.items():
        if isinstance(value, dict):
            yield from _leaves(value, f"{prefix}{name}.")
        elif value is not None:
            yield f"{prefix}{name}", value


def _text(value: Any) -> str | None:
    """A single value as a text, None for what is none."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool | int | float):
        return json.dumps(value)
    if isinstance(value, datetime.date | datetime.time | datetime.timedelta | decimal.Decimal):
        return str(value)
    return None
