"""The options and keys of a command, which are the parameters of a function.

`shape_of` turns the parameters into a dataclass, `options_of` into options with names, types, defaults and help.

What a command reads, writes and works on is an option: `--output PATH`. What it computes with is a key, written with
its value: `learning_rate=1e-4`, or with its group: `masking.share=0.15`. In Python both are keyword arguments, and a
group is a dict: `masking={"share": 0.15}`. A key has the same name in a recipe file."""

import dataclasses
import functools
import inspect
import re
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from inspect import Parameter
from pathlib import Path
from typing import Annotated, Any

from albert.api.option_names import USUAL_TEXTS
from albert.runtime.errors import UsageError
from albert.runtime.json_files import field_docs


@dataclasses.dataclass(frozen=True)
class Argument:
    """How a parameter or a field is given, as a mark of its type: `Annotated[str, Argument(metavar="NAME")]`.

    Attributes:
        key: a key, or a group whose fields are keys.
        group: the name before those of the fields of a group.
        metavar: the placeholder in the help, if it does not follow from the type.
        positional: the value is given without a name; so are parameters before the `*`.
        rows: a file; in Python also a data frame, or rows as dicts.
        only_command: an option of the command line alone, such as how results are printed.
        only_python: a parameter that is no option: what a caller of the function listens with.
    """

    key: bool = False
    group: str = ""
    metavar: str = ""
    positional: bool = False
    rows: bool = False
    only_command: bool = False
    only_python: bool = False


GROUP = Argument()
KEY = Argument(key=True)
KEYS = Argument(key=True)
"""The mark of a group whose fields are keys."""
ROWS = Argument(rows=True)

Values = Mapping[tuple[str, ...], Any]
"""Path of fields -> its value; a group may have a value, and values of its fields that change it."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Option:
    """One option or key of a command, or keyword argument of a function.

    Attributes:
        path: the fields that lead to it.
        name: as Python and recipe files spell it: `max_length`, `masking.share`.
        default: MISSING for a required one.
    """

    path: tuple[str, ...]
    name: str
    hint: Any
    default: Any
    text: str = ""
    is_key: bool = False
    marks: Argument = Argument()

    @property
    def typed(self) -> str:
        """How the command line spells it: `--max-length`; a key has the same name everywhere."""
        return self.name if self.is_key else option_name(self.name)

    @property
    def group(self) -> str:
        """The group of a key; empty for none."""
        return self.name.rpartition(".")[0]

    @property
    def is_required(self) -> bool:
        return self.default is dataclasses.MISSING

    @property
    def is_switch(self) -> bool:
        return self.hint in (bool, bool | None)


@functools.cache
def shape_of(function: Callable[..., Any]) -> type:
    """The parameters of a function as a dataclass: types, marks, defaults, and the help in its docstring's `Args:`."""
    about, _, texts = (inspect.getdoc(function) or "").partition("\n\nArgs:\n")
    helps = {name: " ".join(text.split()) for name, text in _ARGS.findall(texts)}
    members: list[tuple[str, Any, Any]] = []
    for name, parameter in inspect.signature(function).parameters.items():
        hint, *marks = parameter.annotation, Argument()
        if typing.get_origin(hint) is Annotated:
            hint, *marks = typing.get_args(hint)
        if marks[0].only_python:
            continue
        is_positional = parameter.kind is Parameter.POSITIONAL_OR_KEYWORD
        mark = dataclasses.replace(marks[0], positional=is_positional)
        default = dataclasses.MISSING if parameter.default is Parameter.empty else parameter.default
        field: Any = dataclasses.field(default=default, metadata={"help": helps.get(name, "")})
        members.append((name, Annotated[hint, mark], field))
    namespace = {"__doc__": about}
    return dataclasses.make_dataclass(function.__name__, members, frozen=True, kw_only=True, namespace=namespace)


_ARGS = re.compile(r"^    (\w+): (.*(?:\n {8}.*)*)", re.MULTILINE)
"""A parameter in the `Args:` of a docstring, and its text."""


def changed_parameters(function: Callable[..., Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a call that differ from their defaults, those in groups by their own names.

    Args:
        values: all parameters of `function`.
    """
    changed: dict[str, Any] = {}
    for name, parameter in inspect.signature(function).parameters.items():
        value = values[name]
        if dataclasses.is_dataclass(parameter.default):
            fields = [field.name for field in dataclasses.fields(parameter.default)]
            inner = {field: getattr(value, field) for field in fields}
            changed |= {field: inner[field] for field in fields if inner[field] != getattr(parameter.default, field)}
        elif value != parameter.default:
            changed[name] = value
    return changed


def options_of(shape: type, values: Values | None = None) -> list[Option]:
    """Every option and key of a dataclass, positional arguments first, with the defaults in `values`."""
    return sorted(_walk(shape, values or {}), key=lambda option: not option.marks.positional)


def keywords_of(shape: type) -> list[Option]:
    """The keyword arguments of a function: options, keys without a group, and groups of keys.

    A key whose default is that of a recipe has the default `...`.
    """
    parameters: dict[str, Any] = {field.name: field.default for field in dataclasses.fields(shape)}
    keywords: list[Option] = []
    groups: dict[str, list[Option]] = {}
    for option in options_of(shape):
        if option.group:
            groups.setdefault(option.group, []).append(option)
            continue
        parameter = parameters[option.path[0]]
        is_of_recipe = len(option.path) > 1 and parameter != type(parameter)()
        keywords.append(dataclasses.replace(option, default=...) if is_of_recipe else option)
    for group, members in groups.items():
        names = ", ".join(member.name.removeprefix(f"{group}.") for member in members)
        text = f"A dict with some of {names}."
        hint = Mapping[str, Any] | None
        keywords.append(Option(path=(group,), name=group, hint=hint, default=None, text=text, is_key=True))
    return keywords


def _walk(
    shape: Any, values: Values, path: tuple[str, ...] = (), group: str = "", are_keys: bool = False
) -> Iterator[Option]:
    """The options of a class, or of the default of a group.

    A field of a group is called `group.field`. Metadata of a field may have another name under "key", whatever its
    group is called; such a field is always a key.
    """
    cls = shape if isinstance(shape, type) else type(shape)
    hints = typing.get_type_hints(cls, include_extras=True)
    texts = field_docs(cls)
    for field in dataclasses.fields(cls):
        hint, *marks = hints[field.name], Argument()
        if typing.get_origin(hint) is Annotated:
            hint, *marks = typing.get_args(hint)
        here = (*path, field.name)
        default = values.get(here, field.default if shape is cls else getattr(shape, field.name))
        name = field.metadata.get("key", f"{group}.{field.name}" if group else field.name)
        is_key = are_keys or marks[0].key or "key" in field.metadata
        if dataclasses.is_dataclass(hint):
            yield from _walk(default, values, here, name if path else marks[0].group, is_key)
        else:
            text = texts.get(field.name) or USUAL_TEXTS.get(field.name, "")
            yield Option(path=here, name=name, hint=hint, default=default, text=text, is_key=is_key, marks=marks[0])


def make_options(base: Any, values: Values) -> Any:
    """An instance of a dataclass with these values, or a changed one; groups are changed likewise."""
    given: dict[str, Any] = {}
    groups: dict[str, dict[tuple[str, ...], Any]] = {}
    for (name, *inner), value in values.items():
        if inner:
            groups.setdefault(name, {})[tuple(inner)] = value
        else:
            given[name] = value
    given |= {name: make_options(given.get(name, getattr(base, name)), inner) for name, inner in groups.items()}
    return base(**given) if isinstance(base, type) else dataclasses.replace(base, **given)


def changed_options(options: Any) -> list[str]:
    """The fields of a group that differ from their default, as the command line spells them."""
    changed = [field for field in dataclasses.fields(options) if getattr(options, field.name) != field.default]
    return [field.metadata.get("key", option_name(field.name)) for field in changed]


def option_name(field: str) -> str:
    """The command line option of a field."""
    return "--" + field.replace("_", "-")


def check_png(option: str, picture: Path) -> None:
    """Raises UsageError for a picture that is not a PNG."""
    if picture.suffix.lower() != ".png":
        raise UsageError(f"{option} {picture}", "must end in .png", "choose a name that ends in .png")


def union_parts(hint: Any) -> tuple[Any, ...]:
    """The types of a union; any other type alone."""
    return typing.get_args(hint) if typing.get_origin(hint) in (typing.Union, types.UnionType) else (hint,)


def first_clause(text: str) -> str:
    """The first clause of a help text, without a capital letter, for an error about a missing value."""
    clause = re.split(r"\.(?:\s|$)|[:;]", text)[0]
    return clause if clause[1:2].isupper() else clause[:1].lower() + clause[1:]
