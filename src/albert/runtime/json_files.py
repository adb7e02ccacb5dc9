"""JSON and TOML files: dataclasses to JSON and back, the journal of a run, and commented TOML.

An unknown key, a repeated key or a wrong type is an error. A journal has one JSON object per line and is only appended
to; an incomplete last line, after a crash, is dropped."""

import ast
import contextlib
import dataclasses
import functools
import hashlib
import inspect
import itertools
import json
import math
import os
import re
import sys
import textwrap
import time
import tomllib
import types
import typing
from collections import Counter
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, TypeVar

from albert.runtime.errors import AlbertError, DamagedData, InvalidConfiguration, did_you_mean
from albert.runtime.files import write_bytes, write_text, writing
from albert.runtime.manifest import LAYOUT, open_input, read_input, require_layout
from albert.runtime.words import counted, kind_of_value

T = TypeVar("T")
MAX_JSON_BYTES = 2**27
"""Bytes; the tokenizer.json of a million pieces has half as many."""


def to_json(value: Any) -> Any:
    """A dataclass tree as plain dicts, lists and scalars."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: to_json(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {str(key): to_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_json(item) for item in value]
    if isinstance(value, Path):
        return str(value)
    return value


def from_json(cls: type[T], data: Any, where: str) -> T:
    """The inverse of `to_json`; `where` is the subject of errors (`InvalidConfiguration`)."""
    _require(dict, data, where)
    fields = {f.name: f for f in dataclasses.fields(cls) if f.init}  # type: ignore[arg-type]
    hints = typing.get_type_hints(cls)
    for key in data:
        if key not in fields:
            # A field of a nested dataclass may have this name.
            nested = [name for name in fields if key in getattr(hints[name], "__dataclass_fields__", ())]
            remedy = f"did you mean '{nested[0]}.{key}'?" if nested else did_you_mean(key, fields)
            raise InvalidConfiguration(f"{where}: {key}", "unknown key", remedy)
    for key, f in fields.items():
        if key not in data and f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING:
            raise InvalidConfiguration(f"{where}: {key}", "is missing")
    values = {key: convert_value(hints[key], item, f"{where}: {key}") for key, item in data.items()}
    try:
        return cls(**values)
    except AlbertError:
        raise
    except (TypeError, ValueError) as error:
        raise InvalidConfiguration(where, str(error)) from error


def read_json_object(path: Path) -> dict[str, Any]:
    """The object in a JSON file; `DamagedData` if it is not JSON, not an object, or larger than `MAX_JSON_BYTES`."""
    with open_input(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > MAX_JSON_BYTES:
            raise DamagedData(path, f"has {size:,} bytes, {MAX_JSON_BYTES:,} are read at most")
    try:
        data = json.loads(read_input(path), object_pairs_hook=unique_keys)
    except (ValueError, RecursionError) as error:
        raise DamagedData(path, f"is not JSON ({error})") from error
    if not isinstance(data, dict):
        raise DamagedData(path, f"is {kind_of_value(data)}, a table of keys {{...}} is expected")
    return data


class RepeatedKey(ValueError):
    """A JSON object has a key twice."""

    def __init__(self, key: str) -> None:
        self.msg = f"the key {key[:40]!r} occurs twice"
        super().__init__(self.msg)


def unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An `object_pairs_hook` of `json.loads` that refuses repeated keys."""
    values = dict(pairs)
    if len(values) < len(pairs):
        raise RepeatedKey(next(key for key, count in Counter(key for key, _ in pairs).items() if count > 1))
    return values


def load_json(cls: type[T], path: Path) -> T:
    """`from_json` of a file."""
    return from_json(cls, read_json_object(path), str(path))


def save_versioned(path: Path, value: Any) -> None:
    """`save_json` with the version of the file's layout, see `albert.runtime.manifest.LAYOUT`."""
    save_json(path, {LAYOUT: 1, **to_json(value)})


def read_versioned(path: Path) -> dict[str, Any]:
    """The object in a file of `save_versioned`; `DamagedData` if its layout has another version."""
    content = read_json_object(path)
    require_layout(path, content.pop(LAYOUT, None))
    return content


def load_versioned(cls: type[T], path: Path) -> T:
    """`from_json` of a file of `save_versioned`."""
    return from_json(cls, read_versioned(path), str(path))


def deep_merge(base: Any, values: Any) -> Any:
    """`base` with the entries of `values` replaced or added, at any depth."""
    if not (isinstance(base, dict) and isinstance(values, dict)):
        return values
    return base | {key: deep_merge(base.get(key), value) for key, value in values.items()}


def common_fields(cls: type, source: Any) -> dict[str, Any]:
    """The fields of a dataclass that `source` has as attributes, with its values."""
    return {field.name: getattr(source, field.name) for field in dataclasses.fields(cls) if hasattr(source, field.name)}


def save_json(path: Path, value: Any) -> None:
    """Write `to_json(value)` durably, with keys in field order."""
    write_text(path, json.dumps(to_json(value), indent=2, ensure_ascii=False) + "\n")


def convert_value(hint: Any, value: Any, where: str) -> Any:
    """A JSON value converted to a field type; `where` is the subject of errors."""
    origin = typing.get_origin(hint)
    items = typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        for choice in items:
            with contextlib.suppress(InvalidConfiguration):
                return convert_value(choice, value, where)
        return convert_value(items[0], value, where)  # raises the error of the first choice
    if origin is typing.Literal:
        if value not in items:
            raise InvalidConfiguration(where, f"{value!r} is not a choice", did_you_mean(str(value), map(str, items)))
        return value
    if dataclasses.is_dataclass(hint):
        return from_json(typing.cast(type, hint), value, where)
    if origin is tuple:
        _require(list, value, where)
        kinds = [items[0]] * len(value) if items[-1] is Ellipsis else items
        if len(kinds) != len(value):
            raise InvalidConfiguration(where, f"has {counted(len(value), 'items')}, {len(kinds)} are expected")
        return tuple(convert_value(kind, item, where) for kind, item in zip(kinds, value, strict=True))
    if origin in (dict, Counter):
        _require(dict, value, where)
        kind = items[1] if origin is dict else int
        return origin({key: convert_value(kind, item, f"{where}: {key}") for key, item in value.items()})
    if hint is Path and isinstance(value, str):
        if _NOT_A_NAME.search(value):
            raise InvalidConfiguration(where, "is not a valid file name")
        return Path(value)
    if hint is float and type(value) in (int, float):
        if not abs(value) <= sys.float_info.max:  # Python's parser accepts 1e999 and NaN
            raise InvalidConfiguration(where, "is not a finite number")
        return float(value)
    if isinstance(hint, type) and hint is not Any:
        _require(hint, value, where)
    return value


_NAMES = {
    dict: "a table of keys {...}",
    list: "a list",
    str: "a text",
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    Path: "a path",
    types.NoneType: "nothing",
}
_NOT_A_NAME = re.compile("[\\0\ud800-\udc7f\udd00-\udfff]")
"""Characters that the system takes in no file name."""


def _require(kind: type, value: Any, where: str) -> None:
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise InvalidConfiguration(where, f"is {kind_of_value(value)}, {_NAMES[kind]} is expected")


# --------------------------------------------------------------------------------------------------------------------
# Settings as flat values, and their hash.


def flatten(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested dicts as one dict with keys `outer.inner`."""
    values: dict[str, Any] = {}
    for key, value in tree.items():
        values |= flatten(value, f"{prefix}{key}.") if isinstance(value, dict) else {prefix + key: value}
    return values


def fingerprint_of(values: Any) -> str:
    """SHA-256 of plain values in hexadecimal, independent of the order of keys."""
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


# --------------------------------------------------------------------------------------------------------------------
# The journal of a run: one JSON object per line, only appended to.
#
# A resumed run repeats the steps after its last checkpoint, so the journal may have two records of a step. They are
# equal except for timings, and `read_journal` returns the last.


class Journal:
    """Append events to a file, without buffering in this process."""

    def __init__(self, path: Path) -> None:
        self.path = path
        if not path.exists():
            write_bytes(path, b"")  # flushes its name to the disk
        with writing(path):
            with open(path, "rb+") as file:  # a last line without its end is dropped
                content = file.read()
                end = content.rfind(b"\n") + 1
                if end != len(content):
                    file.truncate(end)
                    os.fsync(file.fileno())
            # Unbuffered: otherwise `close` would repeat a write that failed on a full disk.
            self._file = open(path, "ab", buffering=0)  # noqa: SIM115 (lives as long as the run)

    def write(self, event: str, **values: Any) -> None:
        """Append one event with the time (Unix seconds); non-finite numbers become "NaN" and "Infinity"."""
        record = {"event": event, "time": round(time.time(), 3), **_encode_non_finite(values)}
        rest = memoryview((json.dumps(record, allow_nan=False) + "\n").encode())
        with writing(self.path):
            while rest:
                rest = rest[self._file.write(rest) :]

    def sync(self) -> None:
        """Flush to the disk, so that a power loss keeps what was written."""
        with writing(self.path):
            os.fsync(self._file.fileno())

    def close(self) -> None:
        self._file.close()


def read_journal(path: Path) -> list[dict[str, Any]]:
    """All events in order; the last record for an event and step wins. An incomplete last line is ignored."""
    records: dict[Any, dict[str, Any]] = {}
    lines = read_input(path).split(b"\n")
    for number, line in enumerate(lines, start=1):
        if not line:
            continue
        try:
            record = json.loads(line, object_hook=_decode_non_finite)
        except (ValueError, RecursionError) as error:
            if number == len(lines):  # a process died while appending it
                break
            raise DamagedData(f"{path}:{number}", "is not JSON") from error
        if not isinstance(record, dict) or not isinstance(record.get("event"), str):
            raise DamagedData(f"{path}:{number}", "is not an event")
        if not isinstance(record.get("step", 0), int):
            raise DamagedData(f"{path}:{number}", "has a non-integer step")
        key = (record["event"], record["step"]) if "step" in record else number
        records.pop(key, None)
        records[key] = record
    return list(records.values())


_NOT_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
"""JSON has no such numbers."""


def _encode_non_finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _encode_non_finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_encode_non_finite(item) for item in value]
    return json.dumps(value) if isinstance(value, float) and not math.isfinite(value) else value


def _decode_non_finite(record: dict[str, Any]) -> dict[str, Any]:
    return {key: _NOT_FINITE.get(value, value) if isinstance(value, str) else value for key, value in record.items()}


# --------------------------------------------------------------------------------------------------------------------
# TOML files with comments, and recipes by their keys.

_WIDTH = 100


def read_toml_or_json(path: Path) -> dict[str, Any]:
    """The object in a file: TOML if its name ends in .toml, else JSON."""
    if path.suffix.lower() != ".toml":
        return read_json_object(path)
    try:
        return tomllib.loads(read_input(path).decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise DamagedData(path, "is not UTF-8") from error
    except (ValueError, RecursionError) as error:
        raise DamagedData(path, f"is not TOML ({error})") from error


def commented_toml(values: Collection[tuple[str, Any, str, Any]]) -> str:
    """Values as TOML with comments, which `read_toml_or_json` reads back.

    A value that is None becomes a comment, because TOML has no null. Values of a group must stand together, and after
    those without a group.

    Args:
        values: of each its name (`group.name`), its value, what it means, and its type.
    """
    lines: list[str] = []
    table = ""
    for name, value, text, hint in values:
        group, _, field = name.rpartition(".")
        if group != table:
            lines += ["", "", f"[{group}]"]
            table = group
        lines += ["", *_comment(" ".join(filter(None, (text, _choices(hint)))))]
        lines.append(f"# {field} = ...  (not set)" if value in (None, "") else f"{field} = {_toml(to_json(value))}")
    return "\n".join(lines).lstrip("\n") + "\n"


def keys_of(cls: type, group: str = "", path: tuple[str, ...] = ()) -> dict[str, tuple[str, ...]]:
    """The keys of a recipe -> the fields that lead to them.

    A key is `group.field`, or the name that metadata of a field have under "key".
    """
    hints = typing.get_type_hints(cls)
    keys: dict[str, tuple[str, ...]] = {}
    for field in dataclasses.fields(cls):
        name = field.metadata.get("key", f"{group}.{field.name}" if group else field.name)
        here = (*path, field.name)
        keys |= keys_of(hints[field.name], name, here) if dataclasses.is_dataclass(hints[field.name]) else {name: here}
    return keys


def values_by_keys(recipe: Any) -> dict[str, Any]:
    """The plain values of a recipe by its keys, those without a group first."""
    values = {}
    for key, path in keys_of(type(recipe)).items():
        values[key] = to_json(functools.reduce(getattr, path, recipe))
    return dict(sorted(values.items(), key=lambda item: item[0].rpartition(".")[0]))


def nested_by_keys(cls: type, values: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The values of a recipe by its keys, as `from_json` takes them; `InvalidConfiguration` for an unknown key."""
    paths = keys_of(cls)
    nested: dict[str, Any] = {}
    for key, value in flatten(values).items():
        if key not in paths:
            similar = [known for known in paths if known.rpartition(".")[2] == key.rpartition(".")[2]]
            remedy = f"did you mean '{similar[0]}'?" if similar else did_you_mean(key, paths)
            raise InvalidConfiguration(f"{where}: {key}", "unknown key", remedy)
        *groups, field = paths[key]
        inner = nested
        for group in groups:
            inner = inner.setdefault(group, {})
        inner[field] = value
    return nested


@functools.cache
def field_docs(cls: type) -> dict[str, str]:
    """The docstrings below the fields of a dataclass and its bases, by field name; empty without the source.

    The help of a field that was made from a parameter of a function is in its metadata.
    """
    docs = {field.name: field.metadata["help"] for field in dataclasses.fields(cls) if "help" in field.metadata}
    for base in reversed(cls.__mro__):
        if not dataclasses.is_dataclass(base) or docs.keys() >= {field.name for field in dataclasses.fields(base)}:
            continue
        try:
            tree = ast.parse(textwrap.dedent(inspect.getsource(base)))
        except (OSError, TypeError):
            continue
        body = typing.cast(ast.ClassDef, tree.body[0]).body
        for before, after in itertools.pairwise(body):
            if not (isinstance(before, ast.AnnAssign) and isinstance(before.target, ast.Name)):
                continue
            if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant) and type(after.value.value) is str:
                docs[before.target.id] = " ".join(after.value.value.split())
    return docs


def _comment(text: str) -> list[str]:
    text = re.sub(r"(^|\. )None:", r"\1Not set:", text).replace("None:", "not set:")
    return [f"# {line}" for line in textwrap.wrap(text, _WIDTH, break_long_words=False, break_on_hyphens=False)]


def _choices(hint: Any) -> str:
    """The values of a Literal field, as a sentence."""
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return " ".join(filter(None, map(_choices, typing.get_args(hint))))
    if typing.get_origin(hint) is not typing.Literal:
        return ""
    return "One of " + ", ".join(json.dumps(choice) for choice in typing.get_args(hint)) + "."


def _toml(value: Any) -> str:
    """A scalar or a list. Numbers are written as in Python, strings as in JSON with DEL escaped."""
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return str(value).lower() if isinstance(value, bool) else repr(value)
