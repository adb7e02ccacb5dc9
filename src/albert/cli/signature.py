"""The options and keys of a command: the parameters of its function, and the fields of the class of its keys.

What a command reads, writes and works on is an option: `--output PATH`. What it computes with is a key, written with
its value: `learning_rate=1e-4`, or with its group: `masking.share=0.15`. In Python both are keyword arguments, and a
group is a dict: `masking={"share": 0.15}`. A key has the same name in a recipe file."""

import dataclasses
import functools
import inspect
import os
import re
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from inspect import Parameter
from pathlib import Path
from typing import Any, Literal, Protocol, TypeVar

from albert.cli.option_names import USUAL_TEXTS, suggestion
from albert.runtime.errors import AlbertError, InvalidConfiguration
from albert.runtime.json_files import convert_value, field_docs, read_toml_or_json, to_json
from albert.runtime.manifest import LAYOUT
from albert.runtime.words import kind_of_value

T = TypeVar("T")

# --------------------------------------------------------------------------------------------------------------------
# Types of parameters.

PathLike = str | os.PathLike[str]
"""The type of a parameter that is a path, a model or a corpus."""
_NAMES_OR_PATHS = ("model", "teacher", "init", "corpus", "source", "recipe", "task")
"""Parameters of that type that may be names or addresses; they stay text."""


@typing.runtime_checkable
class DataFrame(Protocol):
    """A data frame of pandas or polars."""

    @property
    def columns(self) -> Any:
        """The names of the columns."""
        ...


Rows = str | os.PathLike[str] | Iterable[Mapping[str, Any]] | DataFrame
"""A file, a data frame, or rows as dicts."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Option:
    """One option or key of a command, or keyword argument of a function.

    Attributes:
        name: as Python and recipe files spell it: `max_length`, `masking.share`.
        path: the fields that lead to it.
        hint: its type once it is read: a path is a Path, one or several values are a tuple.
        default: MISSING for a required one.
        text: its help.
        is_positional: it may be given without its name.
        takes_rows: in Python it may be rows in memory.
    """

    name: str
    path: tuple[str, ...]
    hint: Any
    default: Any
    text: str = ""
    is_key: bool = False
    is_positional: bool = False
    takes_rows: bool = False

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

    @property
    def is_list(self) -> bool:
        """Whether it takes several values."""
        return any(typing.get_origin(part) is tuple for part in union_parts(self.hint))


def option_name(field: str) -> str:
    """The command line option of a parameter."""
    return "--" + field.replace("_", "-")


def union_parts(hint: Any) -> tuple[Any, ...]:
    """The types of a union; any other type alone."""
    return typing.get_args(hint) if typing.get_origin(hint) in (typing.Union, types.UnionType) else (hint,)


def _as_read(hint: Any, name: str) -> Any:
    """The type of a parameter once it is read: `str | os.PathLike[str]` is Path, `T | Sequence[T]` is tuple[T, ...]."""
    parts = list(union_parts(hint))
    read: list[Any] = []
    for part in parts:
        if part is DataFrame or typing.get_origin(part) is Iterable:  # of `Rows`, besides a path
            continue
        if typing.get_origin(part) is Sequence:
            (item,) = typing.get_args(part)
            read = [each for each in read if each not in union_parts(_as_read(item, name))]
            read.append(tuple[_as_read(item, name), ...])
        elif typing.get_origin(part) is os.PathLike:
            read.append(str if name in _NAMES_OR_PATHS else Path)
        elif part is not str or not any(typing.get_origin(other) is os.PathLike for other in parts):
            read.append(part)
    return functools.reduce(lambda one, other: one | other, dict.fromkeys(read))


def file_of(value: Any) -> Path | None:
    """The file that a parameter of type `Rows` names; a function has rows in memory as a file."""
    return None if value is None else Path(value)


# --------------------------------------------------------------------------------------------------------------------
# Options and keys.

LISTENER = "on_"
"""The beginning of the names of parameters that are called while a command works."""


def options_of(function: Callable[..., Any], keys: Any = None) -> list[Option]:
    """The options of a function, then its keys.

    Parameters `on_...` are left out: they are functions with which a caller from Python listens. A parameter whose
    default is a dataclass stands for its fields.

    Args:
        keys: the class of its keys, or an instance with other defaults.
    """
    function = inspect.unwrap(function)
    texts = _helps(function)
    options: list[Option] = []
    for name, parameter in inspect.signature(function).parameters.items():
        hint = parameter.annotation
        if name.startswith(LISTENER) or parameter.kind is Parameter.VAR_KEYWORD:
            continue
        if dataclasses.is_dataclass(parameter.default):
            fields = keys_in(parameter.default)
            options += [dataclasses.replace(each, path=(name, *each.path), is_key=False) for each in fields]
            continue
        options.append(
            Option(
                name=name,
                path=(name,),
                hint=_as_read(hint, name),
                default=dataclasses.MISSING if parameter.default is Parameter.empty else parameter.default,
                text=texts.get(name) or USUAL_TEXTS.get(name, ""),
                is_positional=parameter.kind is Parameter.POSITIONAL_OR_KEYWORD,
                takes_rows=DataFrame in union_parts(hint),
            )
        )
    return [*options, *(keys_in(keys) if keys is not None else ())]


def _helps(function: Callable[..., Any]) -> dict[str, str]:
    """The help of each parameter, from the `Args:` of a docstring."""
    texts = (inspect.getdoc(function) or "").partition("\n\nArgs:\n")[2]
    return {name: " ".join(text.split()) for name, text in _ARGS.findall(texts)}


_ARGS = re.compile(r"^    (\w+): (.*(?:\n {8}.*)*)", re.MULTILINE)
"""A parameter in the `Args:` of a docstring, and its text."""


def keys_in(keys: Any, path: tuple[str, ...] = (), group: str = "") -> Iterator[Option]:
    """The fields of a dataclass, or of an instance, as keys; those of a field that is a dataclass are `FIELD.NAME`.

    Metadata of a field may have another name under "key", whatever its group is called; the empty name of a dataclass
    makes no group.
    """
    cls = keys if isinstance(keys, type) else type(keys)
    hints = typing.get_type_hints(cls)
    texts = field_docs(cls)
    for field in dataclasses.fields(cls):
        here = (*path, field.name)
        name = field.metadata.get("key", f"{group}.{field.name}" if group else field.name)
        if not isinstance(keys, type):
            default = getattr(keys, field.name)
        elif field.default_factory is not dataclasses.MISSING:
            default = field.default_factory()
        else:
            default = field.default
        if dataclasses.is_dataclass(hints[field.name]):
            yield from keys_in(default, here, name)
        else:
            text = texts.get(field.name) or USUAL_TEXTS.get(field.name, "")
            yield Option(name=name, path=here, hint=hints[field.name], default=default, text=text, is_key=True)


def read_keys(keys: type[T] | T, values: Mapping[str, Any]) -> T:
    """The class of keys with these values, or an instance that they change.

    Args:
        values: name of a key -> its value, as both entry points read it.

    Raises:
        InvalidConfiguration: a value is out of range; the subject is the key, as it is typed.
    """
    paths = {option.name: option.path for option in keys_in(keys)}
    try:
        return typing.cast(T, _changed(keys, {paths[name]: value for name, value in values.items()}))
    except InvalidConfiguration as error:
        typed = [name for name, path in paths.items() if path[-1] == error.subject]
        if len(typed) != 1:
            raise
        raise InvalidConfiguration(typed[0], error.why, error.remedy) from error


def _changed(base: Any, values: Mapping[tuple[str, ...], Any]) -> Any:
    """An instance of a dataclass with these values, or a changed one; fields that are dataclasses are changed."""
    given: dict[str, Any] = {}
    inner: dict[str, dict[tuple[str, ...], Any]] = {}
    for (name, *rest), value in values.items():
        if rest:
            inner.setdefault(name, {})[tuple(rest)] = value
        else:
            given[name] = value
    if isinstance(base, type):
        defaults = {field.name: field for field in dataclasses.fields(base)}
        for name, changes in inner.items():
            field = defaults[name]
            make = field.default_factory
            given[name] = _changed(field.default if make is dataclasses.MISSING else make(), changes)
        return base(**given)
    given |= {name: _changed(getattr(base, name), changes) for name, changes in inner.items()}
    return dataclasses.replace(base, **given)


def arguments_of(function: Callable[..., Any], options: Sequence[Option], values: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a call of `function` with these values, by the names of their options."""
    arguments: dict[str, Any] = {}
    grouped: dict[str, dict[tuple[str, ...], Any]] = {}
    for option in options:
        if option.name not in values:
            continue
        if option.is_key or len(option.path) == 1:
            arguments[option.name] = values[option.name]
        else:
            grouped.setdefault(option.path[0], {})[option.path[1:]] = values[option.name]
    parameters = inspect.signature(inspect.unwrap(function)).parameters
    return arguments | {name: _changed(parameters[name].default, changes) for name, changes in grouped.items()}


def given_options(function: Callable[..., Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters of a call that differ from their defaults, its keys, and the differing fields of a group.

    Args:
        values: all parameters of `function`.
    """
    given: dict[str, Any] = {}
    for name, parameter in inspect.signature(inspect.unwrap(function)).parameters.items():
        if parameter.kind is Parameter.VAR_KEYWORD:
            given |= values[name]
        elif dataclasses.is_dataclass(parameter.default):
            fields = [field.name for field in dataclasses.fields(parameter.default)]
            changed = {field: getattr(values[name], field) for field in fields}
            given |= {field: value for field, value in changed.items() if value != getattr(parameter.default, field)}
        elif values[name] is not parameter.default and values[name] != parameter.default:
            given[name] = values[name]
    return given


def first_clause(text: str) -> str:
    """The first clause of a help text, without a capital letter, for an error about a missing value."""
    clause = re.split(r"\.(?:\s|$)|[:;]", text)[0]
    return clause if clause[1:2].isupper() else clause[:1].lower() + clause[1:]


# --------------------------------------------------------------------------------------------------------------------
# Values from Python and from files.


def plain_value(value: Any) -> Any:
    """A value as dicts, lists and scalars; paths, dataclasses, sets and NumPy scalars are converted."""
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return to_json(value)
    if isinstance(value, Mapping):
        return {str(key): plain_value(item) for key, item in value.items()}
    if isinstance(value, list | tuple | range | set | frozenset):
        return [plain_value(item) for item in value]
    return value.item() if getattr(value, "shape", None) == () else value  # type: ignore[union-attr] (of NumPy)


def converted(option: Option, value: Any, subject: str) -> Any:
    """A value from Python or a file as its option's type; a single one may stand for several.

    Raises:
        InvalidConfiguration: it has another type, or is no choice.
    """
    value = plain_value(value)
    choices = [typing.get_args(part) for part in union_parts(option.hint) if typing.get_origin(part) is Literal]
    is_single = not (value is None or isinstance(value, list) or any(value in choice for choice in choices))
    items = [typing.get_args(part) for part in union_parts(option.hint) if typing.get_origin(part) is tuple]
    takes_any_number = any(rest == [...] for _, *rest in items)
    return convert_value(option.hint, [value] if is_single and takes_any_number else value, subject)


def read_values(
    given: Iterable[tuple[str, Any]],
    options: Sequence[Option],
    subject: str,
    what: str,
    error: type[AlbertError],
) -> dict[str, Any]:
    """The values of named options and keys, as their types; the keys of a group may be a dict. `...` is no value.

    Rows in memory are left as they are.

    Args:
        subject: of the errors.
        what: what an option is called: "keyword", or "key" in a file.
        error: for a name that is unknown or given twice.
    """
    known = {option.name: option for option in options}
    groups = {option.group for option in options if option.group}
    values: dict[str, Any] = {}
    rest = list(given)
    while rest:
        name, value = rest.pop(0)
        if value is ...:
            continue
        if name in groups:
            members = plain_value(value)
            if not isinstance(members, dict):
                raise error(f"{subject}: {name}", f"is {kind_of_value(value)}, a table of keys {{...}} is expected")
            rest = [*((f"{name}.{key}", item) for key, item in members.items()), *rest]
            continue
        if name not in known:
            spelled = as_keyword if what == "keyword" else _as_key
            raise error(f"{subject}: {name}", f"unknown {what}", suggestion(name.replace("-", "_"), known, spelled))
        if name in values:
            raise error(f"{subject}: {name}", "is given twice", "give it once")
        option = known[name]
        if option.takes_rows and not option.is_list and isinstance(value, list | tuple) and not is_rows(option, value):
            raise error(f"{subject}: {name}", "is a list, not rows", "give a file, a data frame, or a list of dicts")
        if is_rows(option, value):
            values[name] = value
        else:
            values[name] = converted(option, value, f"{subject}: {name}")
    return values


def is_rows(option: Option, value: object) -> bool:
    """Whether a value from Python is rows in memory, not one or several file names, nor a number for an option that may
    be one."""
    if not option.takes_rows or isinstance(value, str | os.PathLike) or value is None:
        return False
    if isinstance(value, int | float) and float in union_parts(option.hint):
        return False
    if hasattr(value, "columns") or not isinstance(value, Sequence):
        return True
    return not value or isinstance(value[0], Mapping)


def _as_key(option: Option, value: str | None) -> str:
    """An option or a key as a file has it."""
    return option.name if value is None else f"{option.name} = {value}"


def as_keyword(option: Option, value: str | None) -> str:
    """An option as a keyword argument."""
    if option.group:
        member = option.name.removeprefix(f"{option.group}.")
        return f'{option.group}={{"{member}": {value or "..."}}}'
    return f"{option.name}={value or '...'}"


_FILES = ("train", "dev", "test", "data")
"""Options that name files."""


def is_options_file(name: object) -> bool:
    """Whether the first argument names a file, not a declared task."""
    return isinstance(name, str) and Path(name).suffix.lower() in (".toml", ".json")


def refuse_file_of_pretraining(path: Path, content: Mapping[str, Any]) -> None:
    """Raise InvalidConfiguration for a recipe of pre-training in the place of a file for fine-tuning."""
    found = next((name for name in ("base", "masking", "sequences", "schedule") if name in content), None)
    if found is not None:
        raise InvalidConfiguration(path, f"is a recipe of pre-training: it has {found}", f"albert pretrain {path} ...")


def refuse_file_of_finetuning(path: Path, content: Mapping[str, Any]) -> None:
    """Raise InvalidConfiguration for a file for fine-tuning in the place of a recipe of pre-training."""
    found = next((name for name in ("train", "text", "label", "task") if name in content), None)
    if found is None and isinstance(content.get("model"), str):  # in the record of a run of pre-training it is a table
        found = "model"
    if found is not None:
        raise InvalidConfiguration(path, f"is a file for fine-tuning: it has {found}", f"albert finetune {path} ...")


def with_options_file(options: Sequence[Option], values: Mapping[str, Any]) -> dict[str, Any]:
    """Given values, and those of the file that the first argument names; a given one wins.

    Files that the file names lie in its folder. A file of a run, which states its layout, stays the first argument.
    """
    first = next(option.name for option in options if option.is_positional)
    if not is_options_file(values.get(first)):
        return dict(values)
    path = Path(values[first])
    content = read_toml_or_json(path)
    if LAYOUT in content:
        return dict(values)
    refuse_file_of_pretraining(path, content)
    read = read_values(content.items(), options, str(path), "key", InvalidConfiguration)
    for name in _FILES:
        if isinstance(read.get(name), Path):
            read[name] = path.parent / read[name]
    given = {name: value for name, value in values.items() if name != first}
    other = {"steps": "epochs", "epochs": "steps"}  # a given number of the one replaces the file's of the other
    replaced = {other[name] for name, value in given.items() if name in other and value is not None}
    return {name: value for name, value in read.items() if name not in replaced} | given
