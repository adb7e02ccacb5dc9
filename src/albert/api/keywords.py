"""Options of a command and keyword arguments of Python, both made from the parameters of one function.

`shape_of` turns the parameters of a function into a dataclass, `options_of` into options with names, types, defaults
and help. `keyword_function` makes the function of the package: values are checked as in a recipe file, and where a
command takes a file, it also takes a data frame or a list of dicts."""

import copy
import dataclasses
import difflib
import functools
import hashlib
import inspect
import json
import math
import os
import re
import tempfile
import textwrap
import tomllib
import types
import typing
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib.resources import files
from inspect import Parameter
from numbers import Real
from pathlib import Path
from typing import Annotated, Any, Literal, Protocol, TypeVar

from albert.runtime.errors import (
    AlbertError,
    DamagedData,
    InvalidConfiguration,
    MissingInput,
    UsageError,
    did_you_mean,
    without_inner_frames,
)
from albert.runtime.files import write_text
from albert.runtime.json_files import convert_value, field_docs, read_toml_or_json, to_json
from albert.runtime.removed import removed_option
from albert.training.run_folder import ROWS_FOLDER

T = TypeVar("T")


class DataFrame(Protocol):
    """A data frame of pandas or polars."""

    @property
    def columns(self) -> Any:
        """The names of the columns."""
        ...


Rows = str | os.PathLike[str] | Iterable[Mapping[str, Any]] | DataFrame
"""A file, a data frame, or rows as dicts."""


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
Positional = Annotated[T, Argument(positional=True)]
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
        """The names that turn a switch off, in the order of `names`."""
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


def given_values(options: Any, *names: str) -> dict[str, Any]:
    """The named fields that are not None, with their values."""
    return {name: value for name in names if (value := getattr(options, name)) is not None}


def option_name(field: str) -> str:
    """The command line option of a field."""
    return "--" + field.replace("_", "-")


def check_png(option: str, picture: Path, csv: Path | None = None) -> None:
    """Raises UsageError for a picture that is not a PNG, or whose figures (`csv`) would replace it."""
    if csv is not None and csv.absolute() == picture.absolute():
        raise UsageError(f"--csv {csv}", "is the file of the picture", "choose another name")
    if picture.suffix.lower() != ".png":
        raise UsageError(f"{option} {picture}", "must end in .png", "choose a name that ends in .png")


def union_parts(hint: Any) -> tuple[Any, ...]:
    """The types of a union; any other type alone."""
    return typing.get_args(hint) if typing.get_origin(hint) in (typing.Union, types.UnionType) else (hint,)


def first_clause(text: str) -> str:
    """The first clause of a help text, without a capital letter, for an error about a missing value."""
    clause = re.split(r"\.(?:\s|$)|[:;]", text)[0]
    return clause if clause[1:2].isupper() else clause[:1].lower() + clause[1:]


# --------------------------------------------------------------------------------------------------------------------
# Other names of options, for the command line and for keywords.


_NAMES = tomllib.loads((files("albert.api") / "option_names.toml").read_text(encoding="utf-8"))
TRANSFORMERS_NAMES, SAME_THING, EARLIER_NAMES = (
    {f"--{name}": f"--{ours}" for name, ours in (pair.split("=") for pair in _NAMES[kind].split())}
    for kind in ("transformers", "same", "earlier")
)
"""Names in transformers, in other commands, and in earlier versions -> ours."""
SETTINGS: dict[str, tuple[str, str]] = {name: tuple(setting) for name, setting in _NAMES["switches"].items()}
"""Switches of transformers and of other commands -> an option and its value."""
USUAL_TEXTS: dict[str, str] = _NAMES["texts"]
"""Field -> help text of options that several commands have."""
NO_SUCH_OPTION: dict[str, str] = _NAMES["missing"]
"""Options of transformers' and the reference's scripts that albert lacks -> what to do."""


def short_names(options: Collection[str]) -> dict[str, list[str]]:
    """`--group.field` -> its names without the group, the usual one first.

    The name of the field itself is among them if no other option ends in it.
    """
    ends = Counter(option.rpartition(".")[2].removeprefix("--") for option in options)
    usual = {long: short for short, long in SAME_THING.items() if short not in options}
    names = {}
    for option in (option for option in options if "." in option):
        field = option.rpartition(".")[2]
        names[option] = [usual[option]] if option in usual else []
        names[option] += [f"--{field}"] if ends[field] == 1 else []
    return names


def switch_value(name: str) -> tuple[str, str]:
    """The option and the value that a switch stands for; empty strings for no switch."""
    return SETTINGS.get(TRANSFORMERS_NAMES.get(name, name), ("", ""))


def canonical_name(name: str, known: Collection[str]) -> str | None:
    """The known option that a name stands for; None if there is none."""
    usual = TRANSFORMERS_NAMES.get(name, name)
    names = (name, usual, SAME_THING.get(usual), EARLIER_NAMES.get(name))
    return next((option for option in names if option in known), None)


def suggestion(name: str, known: Collection[str]) -> str | None:
    """A remedy for an unknown option: a hint, or the most similar option; None if none is similar."""
    hint = NO_SUCH_OPTION.get(TRANSFORMERS_NAMES.get(name, name))
    if hint is not None and (not (named := re.findall(r"--[a-z-]+", hint)) or any(option in known for option in named)):
        return hint
    aliases = {alias for alias in (*TRANSFORMERS_NAMES, *SAME_THING) if canonical_name(alias, known)}
    typed = name.lower().replace("--", "")  # compared without the dashes, which all of them have
    for candidates, cutoff in ((known, 0.75), ({*known, *aliases}, 0.6)):
        plain = sorted(option[2:] for option in candidates)
        if close := difflib.get_close_matches(typed, plain, n=1, cutoff=cutoff):
            return f"did you mean {canonical_name(f'--{close[0]}', known)!r}?"
    return None


def by_option(
    arguments: Iterable[tuple[str, Any]],
    options: Sequence[Option],
    subject: str,
    what: str = "keyword",
    error: type[AlbertError] = UsageError,
    rows: Collection[str] = (),
) -> dict[tuple[str, ...], Any]:
    """The values of arguments under any accepted name, by path; a group may be a dict.

    Args:
        subject: of the errors.
        what: what an argument is called.
        error: for an unknown or repeated argument.
        rows: keywords that may hold rows, which are left as they are.
    """
    index = {name: option for option in options for name in option.names}
    groups = {name.rpartition(".")[0] for name in index if "." in name}
    found: dict[tuple[str, ...], tuple[str, Any]] = {}
    rest = list(arguments)
    while rest:
        word, value = rest.pop(0)
        if value is ...:
            continue
        name = option_name(word)
        usual = canonical_name(name, index)
        (switch, setting) = switch_value(name)
        if name in groups and not isinstance(value, str | os.PathLike):
            value = plain_value(value)
            if not isinstance(value, dict):
                raise error(f"{subject}: {word}", f"is {value!r}, a dict is expected")
            rest = [*((f"{word}.{key}", item) for key, item in value.items()), *rest]
            continue
        if usual is None and (usual := canonical_name(switch, index)) and what == "keyword":
            if not isinstance(value, bool):
                raise error(f"{subject}: {word}", f"is {value!r}, True or False is expected")
            value = setting if value else ...
        if usual is None:
            removed = removed_option(subject, name, word)
            if removed is not None:
                raise removed
            remedy = re.sub(r"--([a-z-]+)", lambda match: match[1].replace("-", "_"), suggestion(name, index) or "")
            known = [option.keyword for option in options]
            raise error(f"{subject}: {word}", f"unknown {what}", remedy or did_you_mean(word, known))
        option = index[usual]
        if option.path in found:
            raise error(
                f"{subject}: {word}", f"and {found[option.path][0]} say the same thing twice", "give one of them"
            )
        if value is not ...:
            is_left = option.keyword in rows and is_rows(value)
            found[option.path] = word, value if is_left else convert(option, value, f"{subject}: {word}")
    return {path: value for path, (_, value) in found.items()}


def read_options(shape: type, path: Path, given: Values | None = None) -> dict[tuple[str, ...], Any]:
    """The options in a TOML or JSON file, without those that `given` ones exclude."""
    values = read_toml_or_json(path).items()
    return not_excluded(by_option(values, options_of(shape), str(path), "key", InvalidConfiguration), given or {})


def not_excluded(values: Values, given: Values) -> dict[tuple[str, ...], Any]:
    """Values without the steps that given epochs replace, or the epochs that given steps replace."""
    other = {"steps": "epochs", "epochs": "steps"}
    names = {path[-1] for path, value in given.items() if value is not None}
    return {path: value for path, value in values.items() if other.get(path[-1]) not in names}


# --------------------------------------------------------------------------------------------------------------------
# Types as help shows them: Python values may have more types than words of a command line.


class _TypeName(str):
    """The name of a type, which `help` shows without quotes."""

    __slots__ = ()
    __repr__ = str.__str__


def type_name(hint: Any) -> str:
    """The type of a field as Python takes it."""
    origin = typing.get_origin(hint)
    parts = typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return " | ".join(dict.fromkeys(map(type_name, parts)))
    if origin is Literal:
        return f"Literal[{', '.join(map(repr, parts))}]"
    if origin is Mapping:
        return f"Mapping[{', '.join(map(type_name, parts))}]"
    if origin is tuple:
        items = [type_name(part) for part in parts if part is not Ellipsis]
        return f"Sequence[{items[0]}]" if len(items) < len(parts) else f"tuple[{', '.join(items)}]"
    if dataclasses.is_dataclass(hint):
        return f"{typing.cast(type, hint).__name__} | Mapping[str, Any]"
    if hint is Path:
        return "str | os.PathLike[str]"
    return "None" if hint is type(None) else getattr(hint, "__name__", str(hint))


def _item_type(hint: Any) -> Any:
    """The type of an item of a sequence, for which a single item may be given; None for other types."""
    items = [typing.get_args(part) for part in union_parts(hint) if typing.get_origin(part) is tuple]
    return next((item for item, *rest in items if rest == [...]), None)


# --------------------------------------------------------------------------------------------------------------------
# Keyword arguments as plain values, and as options.


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


def convert(option: Option, value: Any, subject: str) -> Any:
    """A Python value converted to the type of an option; a single item may stand for a sequence."""
    value = plain_value(value)
    choices = [typing.get_args(part) for part in union_parts(option.hint) if typing.get_origin(part) is Literal]
    is_single = not (value is None or isinstance(value, list) or any(value in choice for choice in choices))
    return convert_value(option.hint, [value] if is_single and _item_type(option.hint) else value, subject)


# --------------------------------------------------------------------------------------------------------------------
# Rows in memory are written as JSON lines, and read as any other file.


def is_rows(value: object) -> bool:
    """Whether a value is rows, not one or several file names."""
    if isinstance(value, str | os.PathLike) or value is None:
        return False
    if hasattr(value, "columns") or not isinstance(value, Sequence):
        return True
    return not value or isinstance(value[0], Mapping)


def rows_as_json_lines(value: Any, name: str) -> str:
    """The rows of a data frame, or dicts, as JSON lines; missing values (None, NaN) are null."""
    if hasattr(value, "to_dicts"):  # polars
        value = value.to_dicts()
    elif hasattr(value, "to_dict") and hasattr(value, "columns"):  # pandas
        if len({*map(str, value.columns)}) < len(value.columns):
            raise DamagedData(name, "two columns have the same name")
        value = value.astype(object).where(value.notna(), None).to_dict("records")
    if isinstance(value, Mapping) or not isinstance(value, Iterable):
        why = "is one dict, rows are a list of dicts" if isinstance(value, Mapping) else f"is {value!r}, not rows"
        raise UsageError(name, why, "give a file, a data frame, or a list of dicts")
    lines = []
    for number, row in enumerate(value, start=1):
        if not isinstance(row, Mapping):
            raise UsageError(f"{name}:{number}", f"is {type(row).__name__}, a dict of columns is expected")
        cells = {str(key): None if isinstance(item, Real) and math.isnan(item) else item for key, item in row.items()}
        lines.append(_json_line(cells, f"{name}:{number}"))
    if not lines:
        raise MissingInput(name, "has no rows")
    return "".join(lines)


def _json_line(cells: Mapping[str, Any], where: str) -> str:
    try:
        line = json.dumps(cells, ensure_ascii=False, allow_nan=False, default=_json_value) + "\n"
        line.encode()  # refuses half of a surrogate pair
    except (TypeError, ValueError) as error:
        for column in cells if len(cells) > 1 else ():
            _json_line({column: cells[column]}, where)
        why = f"column {next(iter(cells))!r} cannot be written as JSON ({error})"
        raise UsageError(where, why, "drop the column if it is not used") from error
    return line


def _json_value(value: Any) -> Any:
    if hasattr(value, "tolist"):  # an array, or a number of NumPy
        return value.tolist()
    if hasattr(value, "isoformat"):
        return str(value)
    raise TypeError(f"{type(value).__name__} is neither text, number, truth value nor list")


# --------------------------------------------------------------------------------------------------------------------
# Functions made from a dataclass of options: signature, help, and errors that name keywords.


def options_as_keywords(text: str, known: Iterable[str]) -> str:
    """A line about the command line in terms of Python: `--max-length` becomes `max_length`."""
    names = set(known)

    def keyword(match: re.Match[str]) -> str:
        name = match[1].replace("-", "_")
        return name if name.split(".")[0] in names else match[0]

    text = re.sub(r"--([a-z][a-z0-9-]*(?:\.[a-z0-9-]+)*)", keyword, text)
    text = re.sub(r"see albert ([a-z]+) --help", r"see help(albert.\1)", text)
    return re.sub(r"^albert (finetune|evaluate|pretrain|prepare|push)\b", r"albert.\1", text)


@dataclasses.dataclass(frozen=True)
class Call:
    """The arguments of a call.

    Attributes:
        values: path -> value, or rows in memory.
        row_keywords: keywords that may hold rows.
        files: keyword -> the file that holds its rows.
    """

    shape: type
    name: str
    values: dict[tuple[str, ...], Any]
    row_keywords: Sequence[str]
    files: dict[str, str] = dataclasses.field(default_factory=dict)

    def pop(self, keyword: str) -> Any:
        """The value of a keyword, which the options do not get; None if it is not given."""
        return self.values.pop((keyword,), None)

    def get(self, keyword: str) -> Any:
        return self.values.get((keyword,))

    def add(self, values: Values) -> None:
        """Set what has no value yet."""
        self.values.update({**not_excluded(values, self.values), **self.values})

    @contextmanager
    def rows_in(self, place: Literal["temporary", "beside output", "in output"]) -> Iterator[None]:
        """Write rows in memory to files for the duration of the block; equal rows give the same file.

        Args:
            place: see `keyword_function`. Without an output, or if nothing but statistics is asked for, it is a
                temporary folder. A folder beside the output has the same path in a repeated call, which can resume.
        """
        output = None if self.get("statistics_only") else self.get("output")
        if not self.row_keywords:
            yield
        elif place == "temporary" or output is None:
            with tempfile.TemporaryDirectory() as folder, self._rows_in(Path(folder)):
                yield
        elif place == "beside output":
            with self._rows_in(output.parent / f"{output.name}.{ROWS_FOLDER}"):
                yield
        else:
            with self._rows_in(output / ROWS_FOLDER, keep=True):
                yield

    @contextmanager
    def _rows_in(self, folder: Path, keep: bool = False) -> Iterator[None]:
        """Write rows in memory to a folder.

        Args:
            keep: leave the files if the block succeeds. Otherwise they and empty folders are removed.
        """
        rows = {keyword: value for keyword in self.row_keywords if is_rows(value := self.get(keyword))}
        texts = {keyword: rows_as_json_lines(value, keyword) for keyword, value in rows.items()}
        new_folders = [path for path in (folder, folder.parent) if not path.exists()]
        written: list[Path] = []
        try:
            for keyword, text in texts.items():
                path = folder / f"{keyword}-{hashlib.sha256(text.encode()).hexdigest()[:12]}.jsonl"
                self.files[keyword] = str(path)
                if not path.exists():
                    folder.mkdir(parents=True, exist_ok=True)
                    write_text(path, text)
                    written.append(path)
            yield
            written = [] if keep else written
        finally:
            for path in written:
                path.unlink(missing_ok=True)
            for path in new_folders:
                with suppress(OSError):  # it is missing, or not empty
                    path.rmdir()

    def options(self, **groups: Any) -> Any:
        """The options of the command.

        Args:
            groups: a value of a group, of which keywords change single values.
        """
        values = self.values | {(name,): group for name, group in groups.items()}
        for option in options_of(self.shape):
            if option.keyword in self.files:
                values[option.path] = convert(option, self.files[option.keyword], self.name)
            if option.is_required and option.path not in values:
                remedy = f"it is {first_clause(option.text)}"
                raise UsageError(f"{self.name}: {option.keyword}", "is missing", remedy)
        return make_options(self.shape, values)

    def reworded(self, error: AlbertError, known: Iterable[str]) -> AlbertError:
        """The error with keywords in place of options, and of the files that hold their rows."""

        def reword(text: str) -> str:
            for keyword, file in self.files.items():
                text = text.replace(file, keyword)
            return options_as_keywords(text, known)

        result = copy.copy(error)
        result.subject = reword(error.subject)
        result.why = reword(error.why)
        result.args = (reword(str(error)),)
        return result


def with_options(
    shape: type,
    name: str,
    positional: Sequence[str],
    rows: Sequence[str] = (),
    omit: Sequence[str] = (),
    extra: Sequence[Option] = (),
) -> Callable[[Callable[[Call], T]], Callable[..., T]]:
    """Give a function the options of a command as keywords.

    Args:
        positional: the keywords that may be given without their names, in their order.
        rows: keywords that also take rows in memory.
        omit: fields for the command line only: how to print.
        extra: keywords that the command lacks.
    """
    options = [*extra, *(option for option in options_of(shape) if option.keyword not in omit)]
    words = {name.removeprefix("--").replace("-", "_") for option in options for name in option.names}
    known = {each.keyword: each for each in (*extra, *keywords_of(shape)) if each.keyword not in omit}
    ordered = [*(known[key] for key in positional), *(known[key] for key in known if key not in positional)]

    def decorate(function: Callable[[Call], T]) -> Callable[..., T]:
        @functools.wraps(function)
        @without_inner_frames
        def wrapper(*args: Any, **kwargs: Any) -> T:
            if len(args) > len(positional):
                only = f"only {' and '.join(positional)} may be given so"
                raise UsageError(name, f"{len(args)} values have no keyword", only)
            arguments = [*zip(positional, args, strict=False), *kwargs.items()]
            call = Call(shape, name, by_option(arguments, options, name, rows=rows), rows)
            try:
                return function(call)
            except AlbertError as error:
                raise call.reworded(error, words) from error

        parameters = []
        for option in ordered:
            kind = Parameter.POSITIONAL_OR_KEYWORD if option.keyword in positional else Parameter.KEYWORD_ONLY
            default = Parameter.empty if option.is_required else option.default
            marked = dataclasses.replace(option.marks, rows=option.keyword in rows)
            annotation = _annotation(dataclasses.replace(option, marks=marked))
            parameters.append(Parameter(option.keyword, kind, default=default, annotation=annotation))
        result = _TypeName(function.__annotations__["return"])
        signature = inspect.Signature(parameters, return_annotation=result)
        width = {"width": 116, "initial_indent": " " * 4, "subsequent_indent": " " * 8}
        lines = [textwrap.fill(f"{each.keyword}: {options_as_keywords(each.text, words)}", **width) for each in ordered]
        wrapper.__doc__ = f"{inspect.cleandoc(function.__doc__ or '')}\n\nArgs:\n" + "\n".join(lines)
        wrapper.__annotations__ = {each.name: each.annotation for each in parameters} | {"return": result}
        vars(wrapper)["__signature__"] = signature
        return wrapper

    return decorate


def keyword_function(
    function: Callable[..., T],
    name: str,
    rows: Literal["temporary", "beside output", "in output"] = "temporary",
    more: Sequence[Option] = (),
    before: Callable[[Call], None] | None = None,
) -> Callable[..., T]:
    """The function of the package that does what a command does, with its options as keywords.

    Args:
        function: that of the command.
        name: as users call it: "albert.finetune".
        rows: where rows in memory are written: in a temporary folder, in one beside the output that is removed
            afterwards, or in the output, where they stay.
        more: keywords that `function` lacks.
        before: called with the arguments, which it may change; it must take those of `more`.
    """
    shape = shape_of(function)
    options = [*more, *(option for option in options_of(shape) if not option.marks.only_command)]
    words = {name.removeprefix("--").replace("-", "_") for option in options for name in option.names}
    keywords = [option for option in keywords_of(shape) if not option.marks.only_command]
    known = {each.keyword: each for each in (*more, *keywords)}
    positional = [each.keyword for each in known.values() if each.marks.positional]
    with_rows = [each.keyword for each in known.values() if each.marks.rows]
    ordered = [*(known[key] for key in positional), *(known[key] for key in known if key not in positional)]

    @functools.wraps(function)
    @without_inner_frames
    def wrapper(*args: Any, **kwargs: Any) -> T:
        if len(args) > len(positional):
            only = f"only {' and '.join(positional)} may be given so"
            raise UsageError(name, f"{len(args)} values have no keyword", only)
        arguments = [*zip(positional, args, strict=False), *kwargs.items()]
        call = Call(shape, name, by_option(arguments, options, name, rows=with_rows), with_rows)
        try:
            if before is not None:
                before(call)
            with call.rows_in(rows):
                return function(**vars(call.options()))
        except AlbertError as error:
            raise call.reworded(error, words) from error

    parameters = []
    for option in ordered:
        kind = Parameter.POSITIONAL_OR_KEYWORD if option.keyword in positional else Parameter.KEYWORD_ONLY
        default = Parameter.empty if option.is_required else option.default
        parameters.append(Parameter(option.keyword, kind, default=default, annotation=_annotation(option)))
    result = _TypeName(function.__annotations__["return"])
    signature = inspect.Signature(parameters, return_annotation=result)
    width = {"width": 116, "initial_indent": " " * 4, "subsequent_indent": " " * 8}
    lines = [textwrap.fill(f"{each.keyword}: {options_as_keywords(each.text, words)}", **width) for each in ordered]
    same = f"The same as `{name.replace('.', ' ')}`, with the same files."
    wrapper.__doc__ = "\n\n".join([inspect.cleandoc(shape.__doc__ or ""), same, "Args:\n" + "\n".join(lines)])
    wrapper.__annotations__ = {each.name: each.annotation for each in parameters} | {"return": result}
    vars(wrapper)["__signature__"] = signature
    return wrapper


_PATH_OR_ID = ("model", "teacher", "init", "corpus")
"""Keywords that are strings on the command line because they may be Hub ids; in Python they may be paths too."""


def _annotation(option: Option) -> _TypeName:
    shown = type_name(option.hint)
    item = _item_type(option.hint)
    if option.keyword in _PATH_OR_ID:
        shown = re.sub(r"\bstr\b", "str | os.PathLike[str]", shown)
    if option.marks.rows:
        return _TypeName(f"Rows | {shown}" if item is not None else shown.replace("str | os.PathLike[str]", "Rows"))
    return _TypeName(shown if item is None else f"{type_name(item)} | {shown}")
