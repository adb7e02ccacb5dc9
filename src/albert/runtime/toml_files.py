"""TOML files: dataclasses as commented TOML, and objects read from TOML or JSON by the name of the file.

The comments are the docstrings of the fields, so a file that is printed says what each of its values is."""

import ast
import dataclasses
import functools
import inspect
import itertools
import json
import re
import textwrap
import tomllib
import types
import typing
from collections.abc import Collection
from pathlib import Path
from typing import Any

from albert.runtime.errors import DamagedData
from albert.runtime.json_files import read_json_object, to_json
from albert.runtime.manifest import read_input

_WIDTH = 100


def read_object(path: Path) -> dict[str, Any]:
    """The object in a file: TOML where its name ends in .toml, else JSON.

    Raises:
        MissingInput: no such file.
        DamagedData: not TOML, or not JSON, or not an object.
    """
    if path.suffix.lower() != ".toml":
        return read_json_object(path)
    try:
        return tomllib.loads(read_input(path).decode("utf-8"))
    except UnicodeDecodeError as error:
        raise DamagedData(path, "is not UTF-8") from error
    except (ValueError, RecursionError) as error:
        raise DamagedData(path, f"is not TOML ({error})") from error


def to_toml(value: Any, inline: Collection[str] = (), leave_out: Collection[str] = (), prefix: str = "") -> str:
    """A dataclass tree as TOML with comments, which `read_object` and `from_json` read back to an equal value.

    A field that is None is a comment alone, because TOML has no such value: fields that can be None must have it as
    their default.

    Args:
        value: a dataclass whose fields are scalars, tuples, None or such dataclasses.
        inline: fields that are dataclasses whose values stand among those of the outer one.
        leave_out: fields that are not written.
        prefix: of its table, "model." say.
    """
    docs, hints = field_docs(type(value)), typing.get_type_hints(type(value))
    lines, tables = [], []
    for field in dataclasses.fields(value):
        item = getattr(value, field.name)
        if field.name in leave_out:
            continue
        if field.name in inline:
            lines += ["", to_toml(item).rstrip("\n")]
            continue
        if dataclasses.is_dataclass(item):
            doc = docs.get(field.name) or _first_paragraph(type(item))
            head = "\n".join(_comment(doc))
            tables.append(f"\n{head}\n[{prefix}{field.name}]\n" + to_toml(item, prefix=f"{prefix}{field.name}."))
            continue
        doc = " ".join(part for part in (docs.get(field.name), _choices(hints[field.name])) if part)
        lines += ["", *_comment(doc)]
        lines.append(f"# {field.name} is not set" if item in (None, "") else f"{field.name} = {_toml(to_json(item))}")
    return "\n".join(lines).lstrip("\n") + "\n" + "".join(tables)


@functools.cache
def field_docs(cls: type) -> dict[str, str]:
    """The docstrings that stand below the fields of a dataclass and of its bases, by the names of the fields.

    Empty where the source is not at hand.
    """
    docs: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        if not dataclasses.is_dataclass(base):
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


def _first_paragraph(cls: type) -> str:
    return " ".join((inspect.getdoc(cls) or "").split("\n\n")[0].split())


def _choices(hint: Any) -> str:
    """The values that a field of a few strings takes, in words."""
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return " ".join(filter(None, map(_choices, typing.get_args(hint))))
    if typing.get_origin(hint) is not typing.Literal:
        return ""
    return "One of " + ", ".join(json.dumps(choice) for choice in typing.get_args(hint)) + "."


def _toml(value: Any) -> str:
    """A scalar or a list. Numbers are written as in Python, strings as in JSON, where only DEL is not allowed."""
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return str(value).lower() if isinstance(value, bool) else repr(value)
