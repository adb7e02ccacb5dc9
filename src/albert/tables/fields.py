"""Typed values of JSON, Parquet and Excel to the fields of a row: texts, and lists of texts.

Numbers and booleans are written as in JSON. The entries of an object become columns with a dot in the name:
`answers.text` is `text` in the object `answers`; of a list of objects they become lists: `choices.label`,
`choices.text`. null and NaN are absent fields. Lists of spans `[start, end, label]` become lists of JSON texts. Other
values are left out and counted."""

import datetime
import decimal
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any

from albert.runtime.errors import DamagedData
from albert.tables.table import Field


def fields_of(values: Mapping[str, Any], where: str, unread: Counter[str]) -> dict[str, Field]:
    """The fields of a row; those that cannot be converted are counted in `unread` by name."""
    fields: dict[str, Field] = {}
    for name, value in _leaves(values, ""):
        if name in fields:
            raise DamagedData(where, f"two values are called {name!r}")
        if isinstance(value, str):
            fields[name] = value
            continue
        if isinstance(value, list | tuple) and value and all(map(_is_span, value)):
            fields[name] = tuple(json.dumps(list(item), ensure_ascii=False) for item in value)
            continue
        items = value if isinstance(value, list | tuple) else [value]
        texts = tuple(text for item in items if (text := text_of(item)) is not None)
        if len(texts) < len(items):
            unread[name] += 1
        else:
            fields[name] = texts if isinstance(value, list | tuple) else texts[0]
    return fields


def null_names(values: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """The names of fields that are null or NaN, inside of objects with dotted names."""
    for name, value in values.items():
        if value is None or value != value:  # NaN is not equal to itself
            yield f"{prefix}{name}"
        elif isinstance(value, dict):
            yield from null_names(value, f"{prefix}{name}.")


def _is_span(item: Any) -> bool:
    """Return whether a value is `[start, end, label]`, as Doccano writes a marked part of a text."""
    if not isinstance(item, list | tuple) or len(item) != 3:
        return False
    start, end, label = item
    return type(start) is int and type(end) is int and isinstance(label, str)


def _is_one_text(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 1 and isinstance(value[0], str)


def _leaves(values: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    """The values inside nested objects and lists of objects, with dotted names."""
    for name, value in values.items():
        if isinstance(value, dict):
            yield from _leaves(value, f"{prefix}{name}.")
        elif isinstance(value, list) and value and all(isinstance(item, dict) for item in value):
            keys = list(dict.fromkeys(chain.from_iterable(value)))
            plain = [key for key in keys if not any(isinstance(item.get(key), dict | list) for item in value)]
            for key in plain:
                yield f"{prefix}{name}.{key}", ["" if item.get(key) is None else item[key] for item in value]
            for key in keys:
                if key in plain:
                    continue
                if all(_is_one_text(item.get(key)) for item in value):
                    yield f"{prefix}{name}.{key}", [item[key][0] for item in value]
                else:
                    yield f"{prefix}{name}.{key}", [None]
        elif value is not None and value == value:  # NaN is not equal to itself
            yield f"{prefix}{name}", value


def text_of(value: Any) -> str | None:
    """A number, truth value, text or date as text; None for anything else."""
    if isinstance(value, bool | int | float):
        return json.dumps(value)
    kinds = str | datetime.date | datetime.time | datetime.timedelta | decimal.Decimal
    return str(value) if isinstance(value, kinds) else None


_NUMBER = re.compile(r"[+-]?(0|[1-9][0-9]*|(?=\.[0-9]))(\.[0-9]*)?([eE][+-]?[0-9]+)?|[+-]?(nan|inf|infinity)", re.I)


def as_number(value: str) -> float | None:
    """The number in a text, also NaN; None for other texts, and for codes such as `0101`, `2_6` or other digits."""
    value = value.strip()
    return float(value) if _NUMBER.fullmatch(value) else None
