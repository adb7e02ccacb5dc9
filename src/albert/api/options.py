"""The options of a command, which are the parameters of a function.

`shape_of` turns the parameters into a dataclass, `options_of` into options with names, types, defaults and help."""

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

from albert.api.option_names import USUAL_TEXTS, short_names
from albert.runtime.errors import UsageError
from albert.runtime.json_files import field_docs


@dataclasses.dataclass(frozen=True)
class Argument:
    """How a parameter or a field is given, as a mark of its type: `Annotated[str, Argument(metavar="NAME")]`.

    Attributes:
        name: the name, if it is not that of the field; "" for a group whose fields need no name of the group.
        metavar: the placeholder in the help, if it does not follow from the type.
        positional: the value is given without a name; so are parameters before the `*`.
        rows: a file; in Python also a data frame, or rows as dicts.
        only_command: an option of the command line alone, such as how results are printed.
        only_python: a parameter that is no option: what a caller of the function listens with.
    """

    name: str | None = None
    metavar: str = ""
    positional: bool = False
    rows: bool = False
    only_command: bool = False
    only_python: bool = False


GROUP = Argument(name="")
ROWS = Argument(rows=True)
_POSITIONAL_MODELS = ("models", "what", "source")
"""Positional arguments that may be given as --model, too."""

Values = Mapping[tuple[str, ...], Any]
"""Path of fields -> its value; a group may have a value, and values of its fields that change it."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Option:
    """One option of a command, or keyword argument of a function.

    Attributes:
        path: the fields that lead to it.
        names: the usual one first: `--field`, and `--group.field`.
        default: MISSING for a required one.
    """

    path: tuple[str, ...]
    names: tuple[str, ...]
    hint: Any
    default: Any
    text: str = ""
    marks: Argument = Argument()

    @property
    def name(self) -> str:
        """The usual name, without dashes."""
        return self.names[0].removeprefix("--")

    @property
    def keyword(self) -> str:
        return self.name.replace("-", "_")

    @property
    def is_required(self) -> bool:
        return self.default is dataclasses.MISSING

    @property
    def is_switch(self) -> bool:
        return self.hint in (bool, bool | None)

    @property
    def negations(self) -> list[str]:
        """The names that turn a switch off, in the order of `names`; none if the switch turns something off itself."""
        if self.path[-1].startswith("no_"):
            return []
        return [re.sub(r"([^.-][^.]*)$", r"no-\1", name) for name in self.names] if self.is_switch else []


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
        field = dataclasses.field(default=default, metadata={"help": helps.get(name, "")})
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
    """Every option of a dataclass, positional arguments first, with the defaults in `values`."""
    options = [option for option in _walk(shape, values or {}) if not dataclasses.is_dataclass(option.hint)]
    short = short_names([option.names[0] for option in options])
    for number, option in enumerate(options):
        more = ["--model"] if option.marks.positional and option.path[-1] in _POSITIONAL_MODELS else []
        names = (*short.get(option.names[0], ()), *option.names, *more)
        options[number] = dataclasses.replace(option, names=names)
    return sorted(options, key=lambda option: not option.marks.positional)


def keywords_of(shape: type) -> list[Option]:
    """The keyword arguments: options without a group, and groups; values of a recipe have the default `...`."""
    groups: dict[str, Any] = {field.name: field.default for field in dataclasses.fields(shape)}
    keywords = []
    for option in (option for option in _walk(shape, {}) if "." not in option.names[0]):
        group = groups[option.path[0]]
        is_of_recipe = len(option.path) > 1 and group != type(group)()
        keywords.append(dataclasses.replace(option, default=...) if is_of_recipe else option)
    return keywords


def _walk(shape: Any, values: Values, path: tuple[str, ...] = (), prefix: str = "") -> Iterator[Option]:
    """Options and groups that have a name, of a class or of the default of a group."""
    cls = shape if isinstance(shape, type) else type(shape)
    hints = typing.get_type_hints(cls, include_extras=True)
    texts = field_docs(cls)
    for field in dataclasses.fields(cls):
        hint, *marks = hints[field.name], Argument()
        if typing.get_origin(hint) is Annotated:
            hint, *marks = typing.get_args(hint)
        name = field.name if marks[0].name is None else marks[0].name
        long = ".".join(filter(None, (prefix, name))).replace("_", "-")
        here = (*path, field.name)
        default = values.get(here, field.default if shape is cls else getattr(shape, field.name))
        text = texts.get(field.name) or USUAL_TEXTS.get(field.name, "")
        if name:
            yield Option(path=here, names=(f"--{long}",), hint=hint, default=default, text=text, marks=marks[0])
        if dataclasses.is_dataclass(hint):
            yield from _walk(default, values, here, long)


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


def changed_flags(options: Any, *names: str) -> list[str]:
    """The flags of the fields that differ from their default; only of the named fields if any are named."""
    defaults = {field.name: field.default for field in dataclasses.fields(options)}
    return [option_name(name) for name in names or defaults if getattr(options, name) != defaults[name]]


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
