"""Keyword arguments of the package's functions, made from the options of the command with the same name.

Signatures, types, defaults and help come from the fields of the option classes; values are checked as in a recipe file.
Where a command takes a file, a function also takes a data frame or a list of dicts."""

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
from inspect import Parameter
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
        default: MISSING for a required one, `...` for the value of the recipe.
        group: the field of the options that holds it; None for a field of the options themselves.
        markers: tyro's annotations.
    """

    name: str
    hint: Any
    default: Any
    text: str
    group: str | None = None
    markers: tuple[Any, ...] = ()


def keywords_of(shape: type) -> list[Keyword]:
    """The fields of a dataclass of options; a group without a name is replaced by its fields."""
    keywords: list[Keyword] = []
    for field in option_fields(shape):
        if not (dataclasses.is_dataclass(field.hint) and any(getattr(m, "name", None) == "" for m in field.markers)):
            keywords.append(field)
            continue
        group = typing.cast(type, field.hint)
        is_default = field.default == group()  # otherwise a recipe, whose values depend on its name
        for inner in keywords_of(group):
            default = inner.default if is_default else ...
            keywords.append(dataclasses.replace(inner, default=default, group=field.name))
    return keywords


def option_fields(shape: type) -> Iterator[Keyword]:
    """The fields of a dataclass of options, groups included."""
    hints, texts = typing.get_type_hints(shape, include_extras=True), field_docs(shape)
    for field in dataclasses.fields(shape):
        hint = hints[field.name]
        hint, *markers = typing.get_args(hint) if typing.get_origin(hint) is typing.Annotated else (hint,)
        factory = field.default_factory
        default = field.default if factory is dataclasses.MISSING else factory()
        text = texts.get(field.name) or USUAL_TEXTS.get(field.name, "")
        yield Keyword(field.name, hint, default, text, markers=tuple(markers))


def flags_set(options: Any, *names: str) -> list[str]:
    """The flags of the fields that differ from their default; only of the named fields if any are named."""
    defaults = {field.name: field.default for field in dataclasses.fields(options)}
    return [option_name(name) for name in names or defaults if getattr(options, name) != defaults[name]]


def values_set(options: Any, *names: str) -> dict[str, Any]:
    """The named fields that are not None, with their values."""
    return {name: value for name in names if (value := getattr(options, name)) is not None}


def option_name(field: str) -> str:
    """The command line option of a field."""
    return "--" + field.replace("_", "-")


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
    # Compared without the dashes, which all of them have.
    plain = {option[2:]: option for option in sorted({*known, *aliases})}
    typed, own = name.strip("-").lower(), sorted(option[2:] for option in known)
    for candidates, cutoff in ((own, 0.75), (plain, 0.7), (own, 0.6)):
        if close := difflib.get_close_matches(typed, candidates, n=1, cutoff=cutoff):
            return f"did you mean {canonical_name(plain[close[0]], known)!r}?"
    return None


def option_paths(known: Mapping[str, Keyword]) -> dict[str, tuple[str, ...]]:
    """Option -> a keyword, or a keyword that is a dataclass and one of its fields."""
    paths = {}
    for name, keyword in known.items():
        is_group = dataclasses.is_dataclass(keyword.hint)
        inner = [(name, field.name) for field in dataclasses.fields(keyword.hint)] if is_group else [(name,)]
        paths |= {option_name(".".join(path)): path for path in inner}
    found = {option: path for option, path in paths.items() if "." not in option}
    return found | {name: paths[option] for option, names in short_names(paths).items() for name in names}


def by_keyword(arguments: Iterable[tuple[str, Any]], known: Mapping[str, Keyword], name: str) -> dict[str, Any]:
    """The values of arguments under any accepted name, by keyword."""
    paths, found = option_paths(known), dict[tuple[str, ...], tuple[str, Any]]()
    for word, value in arguments:
        option, is_text = option_name(word), isinstance(value, str | os.PathLike)
        usual, (switched, setting) = canonical_name(option, paths), switch_value(option)
        if word in known and not (usual and is_text and dataclasses.is_dataclass(known[word].hint)):
            path = (word,)
        elif usual is not None:
            path = paths[usual]
        elif usual := canonical_name(switched, paths):
            if not isinstance(value, bool):
                raise UsageError(f"{name}: {word}", f"is {value!r}, True or False is expected")
            path, value = paths[usual], setting if value else ...
        else:
            remedy = re.sub(r"--([a-z-]+)", lambda match: match[1].replace("-", "_"), suggestion(option, paths) or "")
            raise UsageError(f"{name}: {word}", "unknown keyword", remedy or did_you_mean(word, known))
        if path in found:
            raise UsageError(f"{name}: {word}", f"and {found[path][0]} say the same thing twice", "give one of them")
        if value is not ...:
            found[path] = (word, value)
    values = {path[0]: value for path, (_, value) in found.items() if len(path) == 1}
    for (outer, *inner), (word, value) in found.items():
        if inner:
            group = plain_value(values.get(outer, {}))
            if not isinstance(group, dict) or inner[0] in group:
                raise UsageError(f"{name}: {word}", f"and {outer} say the same thing twice", "give one of them")
            values[outer] = {**group, inner[0]: value}
    return values


def read_options(shape: type, path: Path, omit: Collection[str] = ()) -> dict[str, Any]:
    """The options in a TOML or JSON file, by keyword."""
    known = {keyword.name: keyword.hint for keyword in keywords_of(shape) if keyword.name not in omit}
    options = {option_name(name): name for name in known}
    values = {}
    for key, value in read_toml_or_json(path).items():
        if (usual := canonical_name(option_name(key), options)) is None:
            raise InvalidConfiguration(f"{path}: {key}", "unknown key", did_you_mean(key, known))
        name = options[usual]
        if name in values:
            raise InvalidConfiguration(f"{path}: {key}", f"sets the same value as {name}", "give one of them")
        values[name] = convert_value(known[name], value, f"{path}: {key}")
    return values


# --------------------------------------------------------------------------------------------------------------------
# Types as help shows them: Python values may have more types than words of a command line.


class _TypeName(str):
    """The name of a type, which `help` shows without quotes."""

    __slots__ = ()
    __repr__ = str.__str__


def type_name(hint: Any) -> str:
    """The type of a field as Python takes it."""
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
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


def options_from(shape: type[T], values: Mapping[str, Any], name: str, **bases: Any) -> T:
    """The options with these values by keyword.

    Args:
        bases: group -> the recipe of which the keywords of the group change single values.
    """
    known = {keyword.name: keyword for keyword in keywords_of(shape)}
    plain: dict[str | None, dict[str, Any]] = {None: {}}  # group -> its values
    for key, value in values.items():
        if value is ...:
            continue
        value, keyword = plain_value(value), known[key]
        choices = [typing.get_args(part) for part in union_parts(keyword.hint) if typing.get_origin(part) is Literal]
        is_single = not (value is None or isinstance(value, list) or any(value in choice for choice in choices))
        takes_several = _item_type(keyword.hint) is not None
        plain.setdefault(keyword.group, {})[key] = [value] if takes_several and is_single else value
    for keyword in known.values():
        if keyword.default is dataclasses.MISSING and keyword.name not in plain[None]:
            raise UsageError(f"{name}: {keyword.name}", "is missing", f"it is {first_clause(keyword.text)}")
    groups = {}
    for field in dataclasses.fields(typing.cast(Any, shape)):
        if field.name in plain or field.name in bases:
            base = bases.get(field.name, field.default)
            changes = plain.get(field.name, {})
            groups[field.name] = from_json(type(base), deep_merge(to_json(base), changes), name) if changes else base
    return dataclasses.replace(from_json(shape, plain[None], name), **groups)  # type: ignore[type-var]


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
    """The rows of a data frame, or dicts, as JSON lines; missing values (None, NaN) are left out."""
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
        present = {
            str(key): item
            for key, item in row.items()
            if item is not None and not (isinstance(item, float) and math.isnan(item))
        }
        try:
            lines.append(json.dumps(present, ensure_ascii=False, allow_nan=False, default=_json_value) + "\n")
        except (TypeError, ValueError) as error:
            raise UsageError(f"{name}:{number}", f"has a value that cannot be written as JSON ({error})") from error
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
        row_keywords: keywords that may hold rows.
        files: keyword -> the file that holds its rows.
    """

    shape: type
    name: str
    values: dict[str, Any]
    row_keywords: Sequence[str]
    files: dict[str, str] = dataclasses.field(default_factory=dict)

    def path(self, keyword: str) -> Path | None:
        """The value of a keyword if it is a path."""
        value = self.values.get(keyword)
        return Path(value) if isinstance(value, str | os.PathLike) else None

    @contextmanager
    def rows_in(self, folder: Path, keep: bool = False) -> Iterator[None]:
        """Write rows in memory to files for the duration of the block; equal rows give the same file.

        Args:
            keep: leave the files if the block succeeds. Otherwise they and empty folders are removed.
        """
        rows = {keyword: self.values[keyword] for keyword in self.row_keywords if is_rows(self.values.get(keyword))}
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
        except BaseException:
            keep = False
            raise
        finally:
            if not keep:
                for path in written:
                    path.unlink(missing_ok=True)
                for path in new_folders:
                    if path.is_dir() and not any(path.iterdir()):
                        shutil.rmtree(path, ignore_errors=True)

    def options(self, **bases: Any) -> Any:
        """The options of the command; see `options_from`."""
        return options_from(self.shape, {**self.values, **self.files}, self.name, **bases)

    def reworded(self, error: AlbertError, known: Iterable[str]) -> AlbertError:
        """The error with keywords in place of options, and of the files that hold their rows."""

        def reword(text: str) -> str:
            for keyword, file in self.files.items():
                text = text.replace(file, keyword)
            return options_as_keywords(text, known)

        result = copy.copy(error)
        result.subject, result.why, result.args = reword(error.subject), reword(error.why), (reword(str(error)),)
        return result


def with_options(
    shape: type,
    name: str,
    positional: Sequence[str],
    rows: Sequence[str] = (),
    omit: Sequence[str] = (),
    extra: Sequence[Keyword] = (),
) -> Callable[[Callable[[Call], T]], Callable[..., T]]:
    """Give a function the options of a command as keywords.

    Args:
        positional: the keywords that may be given without their names, in their order.
        rows: keywords that also take rows in memory.
        omit: fields for the command line only: how to print.
        extra: keywords that the command lacks.
    """
    known = {keyword.name: keyword for keyword in (*extra, *keywords_of(shape)) if keyword.name not in omit}
    ordered = [*(known[key] for key in positional), *(known[key] for key in known if key not in positional)]

    def decorate(function: Callable[[Call], T]) -> Callable[..., T]:
        @functools.wraps(function)
        @without_inner_frames
        def wrapper(*args: Any, **kwargs: Any) -> T:
            if len(args) > len(positional):
                only = f"only {' and '.join(positional)} may be given so"
                raise UsageError(name, f"{len(args)} values have no keyword", only)
            arguments = [*zip(positional, args, strict=False), *kwargs.items()]
            call = Call(shape, name, by_keyword(arguments, known, name), rows)
            try:
                return function(call)
            except AlbertError as error:
                raise call.reworded(error, known) from error

        parameters = []
        for keyword in ordered:
            kind = Parameter.POSITIONAL_OR_KEYWORD if keyword.name in positional else Parameter.KEYWORD_ONLY
            default = Parameter.empty if keyword.default is dataclasses.MISSING else keyword.default
            annotation = _annotation(keyword, keyword.name in rows)
            parameters.append(Parameter(keyword.name, kind, default=default, annotation=annotation))
        result = _TypeName(function.__annotations__["return"])
        signature = inspect.Signature(parameters, return_annotation=result)
        width = {"width": 116, "initial_indent": " " * 4, "subsequent_indent": " " * 8}
        lines = [textwrap.fill(f"{each.name}: {options_as_keywords(each.text, known)}", **width) for each in ordered]
        wrapper.__doc__ = f"{inspect.cleandoc(function.__doc__ or '')}\n\nArgs:\n" + "\n".join(lines)
        wrapper.__annotations__ = {each.name: each.annotation for each in parameters} | {"return": result}
        vars(wrapper)["__signature__"] = signature
        return wrapper

    return decorate


_PATH_OR_ID = ("model", "teacher", "init", "corpus")
"""Keywords that are strings on the command line because they may be Hub ids; in Python they may be paths too."""


def _annotation(keyword: Keyword, takes_rows: bool) -> _TypeName:
    shown, item = type_name(keyword.hint), _item_type(keyword.hint)
    if keyword.name in _PATH_OR_ID:
        shown = re.sub(r"\bstr\b", "str | os.PathLike[str]", shown)
    if takes_rows:
        return _TypeName(f"Rows | {shown}" if item is not None else shown.replace("str | os.PathLike[str]", "Rows"))
    return _TypeName(shown if item is None else f"{type_name(item)} | {shown}")
