"""Keyword arguments of the package's functions: the options of the command with the same name.

Signature, types, defaults and documentation are made from the fields of those options, and values are checked as in a
recipe file. Rows, as data frames or lists of dicts, are taken where a command takes a file."""

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
import shutil
import textwrap
import tomllib
import types
import typing
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal, Protocol, TypeVar

from albert.runtime.errors import (
    AlbertError,
    InvalidConfiguration,
    MissingInput,
    UsageError,
    did_you_mean,
    without_inner_frames,
)
from albert.runtime.files import write_text
from albert.runtime.json_files import convert_value, deep_merge, field_docs, from_json, read_toml_or_json, to_json

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
class Keyword:
    """A keyword argument.

    Attributes:
        default: where it is not given; `...` stands for what the recipe has, MISSING for none.
        group: the field of the options that holds it; None: it is a field itself.
    """

    name: str
    hint: Any
    default: Any
    text: str
    group: str | None = None
    markers: tuple[Any, ...] = ()
    """Tyro's."""


def keywords_of(shape: type) -> list[Keyword]:
    """Every field of a dataclass; those of a group of options stand beside the others, as on the command line."""
    found: list[Keyword] = []
    for field in option_fields(shape):
        if dataclasses.is_dataclass(field.hint) and any(getattr(each, "name", None) == "" for each in field.markers):
            group = typing.cast(type, field.hint)
            is_default = field.default == group()  # else the fields of a recipe, which another one gives
            made = (dataclasses.replace(one, group=field.name) for one in keywords_of(group))
            found += made if is_default else [dataclasses.replace(one, default=...) for one in made]
        else:
            found.append(field)
    return found


def option_fields(shape: type) -> Iterator[Keyword]:
    """The fields of a dataclass of options as they are, for keywords and for the command line."""
    hints, texts = typing.get_type_hints(shape, include_extras=True), field_docs(shape)
    for field in dataclasses.fields(shape):
        hint = hints[field.name]
        hint, *markers = typing.get_args(hint) if typing.get_origin(hint) is typing.Annotated else (hint,)
        made_by = field.default_factory
        default = field.default if made_by is dataclasses.MISSING else made_by()
        text = texts.get(field.name) or USUAL_TEXTS.get(field.name, "")
        yield Keyword(field.name, hint, default, text, markers=tuple(markers))


def flags_of(args: Any, *names: str) -> list[str]:
    """The flags of the fields that differ from their default: of the named fields, or of all if none is named."""
    defaults = {field.name: field.default for field in dataclasses.fields(args)}
    return [option_name(name) for name in names or defaults if getattr(args, name) != defaults[name]]


def values_set(args: Any, *names: str) -> dict[str, Any]:
    """The named fields that are not None, with their values."""
    return {name: value for name in names if (value := getattr(args, name)) is not None}


def option_name(field: str) -> str:
    """The command line option of a field."""
    return "--" + field.replace("_", "-")


def union_parts(hint: Any) -> tuple[Any, ...]:
    """The types of a union; any other type alone."""
    return typing.get_args(hint) if typing.get_origin(hint) in (typing.Union, types.UnionType) else (hint,)


# --------------------------------------------------------------------------------------------------------------------
# Names of options that are known from elsewhere, the same for the command line and for keywords.


_NAMES = tomllib.loads((files("albert.api") / "option_names.toml").read_text(encoding="utf-8"))
TRANSFORMERS_NAMES, SAME_THING, EARLIER_NAMES = (
    {f"--{name}": f"--{ours}" for name, ours in (pair.split("=") for pair in _NAMES[kind].split())}
    for kind in ("transformers", "same", "earlier")
)
"""Names that users of transformers type, that other commands use, and that options had before -> ours."""
SETTINGS: dict[str, tuple[str, str]] = {name: tuple(setting) for name, setting in _NAMES["switches"].items()}
"""Switches of transformers and of other commands -> an option and its value."""
USUAL_TEXTS: dict[str, str] = _NAMES["texts"]
"""Field -> what it is, of options that several commands have."""
NO_SUCH_OPTION: dict[str, str] = _NAMES["missing"]
"""Options of transformers' and the reference's scripts that albert has not -> what to do."""


def switch(name: str) -> tuple[str, str]:
    """The option and its value that a switch of another name stands for; empty where it stands for none."""
    return SETTINGS.get(TRANSFORMERS_NAMES.get(name, name), ("", ""))


def usual_name(name: str, known: Collection[str]) -> str | None:
    """What is meant by the name of an option, among those that a command has; None where it has no such one."""
    usual = TRANSFORMERS_NAMES.get(name, name)
    names = (name, usual, SAME_THING.get(usual), EARLIER_NAMES.get(name))
    return next((each for each in names if each in known), None)


def nearest_name(name: str, known: Collection[str]) -> str | None:
    """What to do about an unknown option: the name that was probably meant, or a hint; None if nothing is close."""
    told = NO_SUCH_OPTION.get(TRANSFORMERS_NAMES.get(name, name))
    if told is not None and (not (said := re.findall(r"--[a-z-]+", told)) or any(each in known for each in said)):
        return told
    others = {other for other in (*TRANSFORMERS_NAMES, *SAME_THING) if usual_name(other, known)}
    # Without the dashes, which are alike in all of them.
    plain = {each[2:]: each for each in sorted({*known, *others})}
    typed = name.strip("-").lower()
    close = difflib.get_close_matches(typed, sorted(each[2:] for each in known), n=1, cutoff=0.75)
    close = close or difflib.get_close_matches(typed, plain, n=1, cutoff=0.7)
    close = close or difflib.get_close_matches(typed, sorted(each[2:] for each in known), n=1, cutoff=0.6)
    return f"did you mean {usual_name(plain[close[0]], known)!r}?" if close else None


def places_of(known: Mapping[str, Keyword]) -> dict[str, tuple[str, ...]]:
    """Option -> the keyword that it is, or a keyword and the field inside of it that has the name to itself."""
    inside = {name: one.hint for name, one in known.items() if dataclasses.is_dataclass(one.hint)}
    parts = [(outer, field.name) for outer, hint in inside.items() for field in dataclasses.fields(hint)]
    times = Counter([*(name for _, name in parts), *known])
    found = {option_name(name): (name,) for name in known if name not in inside}
    found |= {option_name(name): (outer, name) for outer, name in parts if times[name] == 1}
    dotted = {option_name(".".join(place)): place for place in parts}
    return found | {short: dotted[long] for short, long in SAME_THING.items() if long in dotted}


def by_keyword(given: Iterable[tuple[str, Any]], known: Mapping[str, Keyword], name: str) -> dict[str, Any]:
    """What is given under any name, by keyword; UsageError where a name is unknown, or two are of one thing."""
    places, found = places_of(known), dict[tuple[str, ...], tuple[str, Any]]()
    for word, value in given:
        option, is_text = option_name(word), isinstance(value, str | os.PathLike)
        usual, (switched, setting) = usual_name(option, places), switch(option)
        if word in known and not (usual and is_text and dataclasses.is_dataclass(known[word].hint)):
            place = (word,)
        elif usual is not None:
            place = places[usual]
        elif usual := usual_name(switched, places):
            if not isinstance(value, bool):
                raise UsageError(f"{name}: {word}", f"is {value!r}, True or False is expected")
            place, value = places[usual], setting if value else ...
        else:
            nearest = re.sub(r"--([a-z-]+)", lambda it: it[1].replace("-", "_"), nearest_name(option, places) or "")
            raise UsageError(f"{name}: {word}", "unknown keyword", nearest or did_you_mean(word, known))
        if place in found:
            raise UsageError(f"{name}: {word}", f"and {found[place][0]} say the same thing twice", "give one of them")
        if value is not ...:
            found[place] = (word, value)
    taken = {place[0]: value for place, (_, value) in found.items() if len(place) == 1}
    for (outer, *inner), (word, value) in found.items():
        if inner:
            part = plain_value(taken.get(outer, {}))
            if not isinstance(part, dict) or inner[0] in part:
                raise UsageError(f"{name}: {word}", f"and {outer} say the same thing twice", "give one of them")
            taken[outer] = {**part, inner[0]: value}
    return taken


def read_options(shape: type, path: Path, leave_out: Collection[str] = ()) -> dict[str, Any]:
    """The options in a TOML or JSON file, by keyword.

    Raises:
        MissingInput, DamagedData: the file cannot be read.
        InvalidConfiguration: an unknown key, or a wrong type.
    """
    known = {one.name: one.hint for one in keywords_of(shape) if one.name not in leave_out}
    options = {option_name(name): name for name in known}
    values = {}
    for key, value in read_toml_or_json(path).items():
        if (usual := usual_name(option_name(key), options)) is None:
            raise InvalidConfiguration(f"{path}: {key}", "unknown key", did_you_mean(key, known))
        if options[usual] in values:
            raise InvalidConfiguration(f"{path}: {key}", f"says the same as {options[usual]}", "give one of them")
        values[options[usual]] = convert_value(known[options[usual]], value, f"{path}: {key}")
    return values


# --------------------------------------------------------------------------------------------------------------------
# Types as they are shown: what a field takes from Python, which is more than the command line has words for.


class _Spelled(str):
    """A type in words; `help` shows it without quotes."""

    __slots__ = ()
    __repr__ = str.__str__


def spelled(hint: Any) -> str:
    """A field's type as Python takes it."""
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return " | ".join(dict.fromkeys(map(spelled, parts)))
    if origin is Literal:
        return f"Literal[{', '.join(map(repr, parts))}]"
    if origin is Mapping:
        return f"Mapping[{', '.join(map(spelled, parts))}]"
    if origin is tuple:
        items = [spelled(part) for part in parts if part is not Ellipsis]
        return f"Sequence[{items[0]}]" if len(items) < len(parts) else f"tuple[{', '.join(items)}]"
    if dataclasses.is_dataclass(hint):
        return f"{typing.cast(type, hint).__name__} | Mapping[str, Any]"
    if hint is Path:
        return "str | os.PathLike[str]"
    return "None" if hint is type(None) else getattr(hint, "__name__", str(hint))


def _single_item(hint: Any) -> Any:
    """The type of an item where one alone may be given in place of several; None where not."""
    several = [typing.get_args(part) for part in union_parts(hint) if typing.get_origin(part) is tuple]
    return next((item for item, *rest in several if rest == [...]), None)


# --------------------------------------------------------------------------------------------------------------------
# Keyword arguments as plain values, and as options.


def plain_value(value: Any) -> Any:
    """Dicts, lists and scalars, of paths, dataclasses, sets, and numbers of NumPy as well."""
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return to_json(value)
    if isinstance(value, Mapping):
        return {str(key): plain_value(item) for key, item in value.items()}
    if isinstance(value, list | tuple | range | set | frozenset):
        return [plain_value(item) for item in value]
    return value.item() if getattr(value, "shape", None) == () else value  # type: ignore[union-attr] (of NumPy)


def arguments_of(shape: type[T], given: Mapping[str, Any], name: str, **bases: Any) -> T:
    """The options, from keyword arguments.

    Args:
        bases: group -> what the keywords of that group change single values of: a recipe.

    Raises:
        InvalidConfiguration: a value is missing or has the wrong type.
    """
    known = {keyword.name: keyword for keyword in keywords_of(shape)}
    plain: dict[str | None, dict[str, Any]] = {None: {}}
    for keyword, value in given.items():
        if value is ...:
            continue
        value, one = plain_value(value), known[keyword]
        choices = [typing.get_args(part) for part in union_parts(one.hint) if typing.get_origin(part) is Literal]
        is_whole = value is None or isinstance(value, list) or any(value in each for each in choices)
        takes_several = _single_item(one.hint) is not None
        plain.setdefault(one.group, {})[keyword] = [value] if takes_several and not is_whole else value
    for one in known.values():
        if one.default is dataclasses.MISSING and one.name not in plain[None]:
            what = re.split(r"\.(?:\s|$)|[:;]", one.text)[0]
            what = what if what[1:2].isupper() else what[:1].lower() + what[1:]
            raise UsageError(f"{name}: {one.name}", "is missing", f"it is {what}")
    groups = {}
    for field in dataclasses.fields(typing.cast(Any, shape)):
        if field.name in plain or field.name in bases:
            base = bases.get(field.name, field.default)
            values = plain.get(field.name, {})
            groups[field.name] = from_json(type(base), deep_merge(to_json(base), values), name) if values else base
    return dataclasses.replace(from_json(shape, plain[None], name), **groups)  # type: ignore[type-var]


# --------------------------------------------------------------------------------------------------------------------
# Rows in memory: written as JSON lines, which is what is then read.


def is_rows(value: object) -> bool:
    """Whether something is rows, not the name of a file or several names."""
    if isinstance(value, str | os.PathLike) or value is None:
        return False
    if hasattr(value, "columns") or not isinstance(value, Sequence):
        return True
    return not value or isinstance(value[0], Mapping)


def rows_as_json_lines(value: Any, name: str) -> str:
    """The rows of a data frame, or dicts, one JSON object a line; what is missing (None, NaN) is left out.

    Raises:
        MissingInput: there are none.
        UsageError: the value is not rows, a row is not a dict, or a value cannot be written as JSON.
    """
    if hasattr(value, "to_dicts"):  # polars
        value = value.to_dicts()
    elif hasattr(value, "to_dict") and hasattr(value, "columns"):  # pandas
        value = value.astype(object).where(value.notna(), None).to_dict("records")
    if isinstance(value, Mapping) or not isinstance(value, Iterable):
        why = "is one dict, rows are a list of dicts" if isinstance(value, Mapping) else f"is {value!r}, not rows"
        raise UsageError(name, why, "give a file, a data frame, or a list of dicts")
    lines = []
    for number, row in enumerate(value, start=1):
        if not isinstance(row, Mapping):
            raise UsageError(f"{name}:{number}", f"is {type(row).__name__}, a dict of columns is expected")
        kept = {
            str(key): item
            for key, item in row.items()
            if item is not None and not (isinstance(item, float) and math.isnan(item))
        }
        try:
            lines.append(json.dumps(kept, ensure_ascii=False, allow_nan=False, default=_json_value) + "\n")
        except (TypeError, ValueError) as error:
            raise UsageError(f"{name}:{number}", f"holds a value that cannot be read ({error})") from error
    if not lines:
        raise MissingInput(name, "has no rows")
    return "".join(lines)


def _json_value(value: Any) -> Any:
    if hasattr(value, "tolist"):  # an array, or a number of NumPy
        return value.tolist()
    if hasattr(value, "isoformat"):
        return str(value)
    raise TypeError(f"{type(value).__name__} is neither text, number, truth value nor list")


# --------------------------------------------------------------------------------------------------------------------
# Functions made of a dataclass: their signature, their help, and errors in words of Python.


def in_python(text: str, known: Iterable[str]) -> str:
    """A line for the command line with options as keywords: `--max-length` becomes `max_length`."""
    names = set(known)

    def keyword(match: re.Match[str]) -> str:
        name = match[1].replace("-", "_")
        return name if name.split(".")[0] in names else match[0]

    text = re.sub(r"--([a-z][a-z0-9-]*(?:\.[a-z0-9-]+)*)", keyword, text)
    text = re.sub(r"see albert ([a-z]+) --help", r"see help(albert.\1)", text)
    return re.sub(r"^albert (finetune|evaluate|pretrain|prepare|push)\b", r"albert.\1", text)


@dataclasses.dataclass(frozen=True)
class Call:
    """A call of a function: what is given by keyword, and which file stands for rows in memory."""

    shape: type
    name: str
    given: dict[str, Any]
    rows: Sequence[str]
    files: dict[str, str] = dataclasses.field(default_factory=dict)

    def path(self, keyword: str) -> Path | None:
        """The path that a keyword names, None where it is not given or is no path."""
        value = self.given.get(keyword)
        return Path(value) if isinstance(value, str | os.PathLike) else None

    @contextmanager
    def rows_in(self, folder: Path, keep: bool = False) -> Iterator[None]:
        """In the block the keywords that have rows name files with them, whose names say their content: equal rows give
        the same file.

        Args:
            keep: whether they stay when all goes well; otherwise, and what is empty then, is removed.
        """
        rows = {keyword: self.given[keyword] for keyword in self.rows if is_rows(self.given.get(keyword))}
        texts = {keyword: rows_as_json_lines(value, keyword) for keyword, value in rows.items()}
        folders = [place for place in (folder, folder.parent) if not place.exists()]
        made: list[Path] = []
        try:
            for keyword, text in texts.items():
                place = folder / f"{keyword}-{hashlib.sha256(text.encode()).hexdigest()[:12]}.jsonl"
                self.files[keyword] = str(place)
                if not place.exists():
                    folder.mkdir(parents=True, exist_ok=True)
                    write_text(place, text)
                    made.append(place)
            yield
        except BaseException:
            keep = False
            raise
        finally:
            if not keep:
                for place in made:
                    place.unlink(missing_ok=True)
                for place in folders:
                    if place.is_dir() and not any(place.iterdir()):
                        shutil.rmtree(place, ignore_errors=True)

    def arguments(self, **bases: Any) -> Any:
        """The options; see `arguments_of`."""
        return arguments_of(self.shape, {**self.given, **self.files}, self.name, **bases)

    def in_words_of_python(self, error: AlbertError, known: Iterable[str]) -> AlbertError:
        """The error with keywords for options, and the keyword in place of the file that holds its rows."""
        told = copy.copy(error)

        def reworded(text: str) -> str:
            for keyword, file in self.files.items():
                text = text.replace(file, keyword)
            return in_python(text, known)

        told.subject, told.why, told.args = reworded(error.subject), reworded(error.why), (reworded(str(error)),)
        return told


def takes(
    shape: type,
    name: str,
    first: Sequence[str],
    rows: Sequence[str] = (),
    without: Sequence[str] = (),
    more: Sequence[Keyword] = (),
) -> Callable[[Callable[[Call], T]], Callable[..., T]]:
    """Give a function the options of a command as keywords.

    Args:
        first: the keywords that may be given without their names, in their order.
        rows: keywords that take rows in memory, too.
        without: fields that only a command line has: how to print.
    """
    known = {one.name: one for one in (*more, *keywords_of(shape)) if one.name not in without}
    ordered = sorted(known.values(), key=lambda one: first.index(one.name) if one.name in first else len(first))

    def made(function: Callable[[Call], T]) -> Callable[..., T]:
        @functools.wraps(function)
        @without_inner_frames
        def called(*positional: Any, **given: Any) -> T:
            if len(positional) > len(first):
                only = f"only {' and '.join(first)} may be given so"
                raise UsageError(name, f"{len(positional)} values have no keyword", only)
            named = [*zip(first, positional, strict=False), *given.items()]
            call = Call(shape, name, by_keyword(named, known, name), rows)
            try:
                return function(call)
            except AlbertError as error:
                raise call.in_words_of_python(error, known) from error

        parameters = [
            inspect.Parameter(
                one.name,
                inspect.Parameter.POSITIONAL_OR_KEYWORD if one.name in first else inspect.Parameter.KEYWORD_ONLY,
                default=inspect.Parameter.empty if one.default is dataclasses.MISSING else one.default,
                annotation=_shown_type(one, one.name in rows),
            )
            for one in ordered
        ]
        result = _Spelled(function.__annotations__["return"])
        signature = inspect.Signature(parameters, return_annotation=result)
        width = {"width": 116, "initial_indent": " " * 4, "subsequent_indent": " " * 8}
        lines = [textwrap.fill(f"{one.name}: {in_python(one.text, known)}", **width) for one in ordered]
        called.__doc__ = f"{inspect.cleandoc(function.__doc__ or '')}\n\nArgs:\n" + "\n".join(lines)
        called.__annotations__ = {one.name: one.annotation for one in parameters} | {"return": result}
        vars(called)["__signature__"] = signature
        return called

    return made


_NAMES_OF_PLACES = ("model", "teacher", "init", "corpus")
"""Keywords that are texts on the command line, because they may be Hub ids, and in Python paths as well."""


def _shown_type(keyword: Keyword, takes_rows: bool) -> _Spelled:
    shown, item = spelled(keyword.hint), _single_item(keyword.hint)
    if keyword.name in _NAMES_OF_PLACES:
        shown = re.sub(r"\bstr\b", "str | os.PathLike[str]", shown)
    if takes_rows:
        return _Spelled(f"Rows | {shown}" if item is not None else shown.replace("str | os.PathLike[str]", "Rows"))
    return _Spelled(shown if item is None else f"{spelled(item)} | {shown}")
