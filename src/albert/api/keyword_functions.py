"""The functions of the package, made from the functions of the commands.

Values are checked as in a recipe file; where a command takes a file, a function also takes a data frame or a list of
dicts. Errors name keywords, not options."""

import copy
import dataclasses
import functools
import hashlib
import inspect
import os
import re
import tempfile
import textwrap
import types
import typing
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from inspect import Parameter
from pathlib import Path
from typing import Any, Literal, TypeVar

from albert.api.option_names import suggestion
from albert.api.options import (
    Option,
    Values,
    first_clause,
    keywords_of,
    make_options,
    options_of,
    shape_of,
    union_parts,
)
from albert.api.rows_in_memory import is_rows, rows_as_json_lines
from albert.runtime.errors import (
    AlbertError,
    UsageError,
    without_inner_frames,
)
from albert.runtime.files import write_text
from albert.runtime.json_files import convert_value, to_json
from albert.training.run_folder import ROWS_FOLDER

T = TypeVar("T")


def by_option(
    arguments: Iterable[tuple[str, Any]],
    options: Sequence[Option],
    subject: str,
    what: str = "keyword",
    error: type[AlbertError] = UsageError,
    rows: Collection[str] = (),
) -> dict[tuple[str, ...], Any]:
    """The values of arguments, by path; the keys of a group may be a dict.

    Args:
        subject: of the errors.
        what: what an argument is called.
        error: for an unknown or repeated argument.
        rows: keywords that may hold rows, which are left as they are.
    """
    known = {option.name: option for option in options}
    groups = {option.group for option in options if option.group}
    found: dict[tuple[str, ...], Any] = {}
    rest = list(arguments)
    while rest:
        name, value = rest.pop(0)
        if value is ...:
            continue
        if name in groups:
            members = plain_value(value)
            if not isinstance(members, dict):
                raise error(f"{subject}: {name}", f"is {value!r}, a dict is expected")
            rest = [*((f"{name}.{key}", item) for key, item in members.items()), *rest]
            continue
        if name not in known:
            spelled = _as_keyword if what == "keyword" else _as_key
            raise error(f"{subject}: {name}", f"unknown {what}", suggestion(name.replace("-", "_"), known, spelled))
        option = known[name]
        if option.path in found:
            raise error(f"{subject}: {name}", "is given twice", "give it once")
        is_share = isinstance(value, float) and float in union_parts(option.hint)
        is_left = name in rows and is_rows(value) and not is_share
        found[option.path] = value if is_left else convert(option, value, f"{subject}: {name}")
    return found


def _as_key(option: Option, value: str | None) -> str:
    """An option or a key as a file has it."""
    return option.name if value is None else f"{option.name} = {value}"


def _as_keyword(option: Option, value: str | None) -> str:
    """An option as a keyword argument."""
    if option.group:
        member = option.name.removeprefix(f"{option.group}.")
        return f'{option.group}={{"{member}": {value or "..."}}}'
    return f"{option.name}={value or '...'}"


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
# Functions made from those of commands: signature, help, and errors that name keywords.


def options_as_keywords(text: str, known: Iterable[str]) -> str:
    """A line about the command line in terms of Python.

    `--max-length` becomes `max_length`, `class_weights=balanced` `class_weights="balanced"`, and `reading.format=csv`
    `reading={"format": "csv"}`.
    """
    names = set(known)
    groups = {name.rpartition(".")[0] for name in names} - {""}

    def keyword(match: re.Match[str]) -> str:
        name = match[1].replace("-", "_")
        return name if name in names else match[0]

    def key(match: re.Match[str]) -> str:
        if match[1] not in names or not match[2].strip("."):
            return match[0]
        group, _, field = match[1].rpartition(".")
        value = _value_in_python(match[2])
        return f'{group}={{"{field}": {value}}}' if group else f"{field}={value}"

    text = re.sub(r"--kind ([\w-]+)", r'kind="\1"', text)
    text = re.sub(r"--([a-z][a-z0-9-]*)", keyword, text)
    text = re.sub(
        r"(?<![\w.\"'])([a-z][a-z0-9_]*(?:\.[a-z0-9_]+)?)=([^\s=)\"\[{]+?)(?=[;.)]?(?:\s|$)|,(?:\s|$))", key, text
    )
    if groups:
        text = re.sub(rf"(?<![\w.\"'])({'|'.join(groups)})\.(\w+)(?![\w=.])", r'\1={"\2": ...}', text)
    text = re.sub(r"albert finetune-vectors\b", "albert finetune_vectors", text)
    text = re.sub(r"see albert ([a-z_]+) --help", r"see help(albert.\1)", text)
    return re.sub(r"^albert (finetune|finetune_vectors|sweep|evaluate|pretrain|prepare|push)\b", r"albert.\1", text)


_KEY_AND_VALUE = re.compile(
    r"(?<![\w.\"'])([a-z][a-z0-9_]*(?:\.[a-z0-9_]+)?)=([^\s=)\"\[{]+?)(?=[;.)]?(?:\s|$)|,(?:\s|$))"
)
"""A key with its value in a line, up to a sign that ends a clause."""


def _value_in_python(text: str) -> str:
    """The value of a key as Python writes it."""
    if "," in text and text != ",":
        return f"[{', '.join(map(_value_in_python, text.split(',')))}]"
    if text in ("true", "false"):
        return text.capitalize()
    is_number = re.fullmatch(r"-?\d+(\.\d+)?(e-?\d+)?", text) is not None
    return text if is_number or text == "..." else f'"{text}"'


def remedy_in_python(text: str, options: Iterable[Option]) -> str:
    """What an option would change, as keyword arguments: `--labels A B ...` becomes `labels=["A", "B", ...]`.

    Only parts that begin with an option are arguments; others are sentences, in which an option becomes a keyword.
    """
    known = {option.name: option for option in options}
    parts = []
    for part in text.split(", "):
        name, *values = part.split(" ")
        option = known.get(name.removeprefix("--").replace("-", "_")) if name.startswith("--") else None
        parts.append(options_as_keywords(part, known) if option is None else _argument(option, values))
    return ", ".join(parts)


def _argument(option: Option, words: Sequence[str]) -> str:
    """An option with its words as a keyword argument; one without words has the value `...`."""
    values = [word if word == "..." else f'"{word}"' for word in words]
    if option.is_switch:
        value = "True"
    elif not values:
        value = "..."
    elif _item_type(option.hint):
        value = f"[{', '.join(values)}]"
    else:
        value = " ".join(values)
    return f"{option.name}={value}"


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
            place: see `keyword_function`. Without an output it is a temporary folder. A folder
                beside the output has the same path in a repeated call, which can resume.
        """
        output = self.get("output")
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
        rows = {
            keyword: value
            for keyword in self.row_keywords
            if is_rows(value := self.get(keyword)) and not isinstance(value, float)
        }
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
            if option.name in self.files:
                values[option.path] = convert(option, self.files[option.name], self.name)
            if option.is_required and option.path not in values:
                remedy = f"it is {first_clause(option.text)}"
                raise UsageError(f"{self.name}: {option.name}", "is missing", remedy)
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
    words = {option.name for option in options}
    keywords = [option for option in keywords_of(shape) if not option.marks.only_command]
    known = {each.name: each for each in (*more, *keywords)}
    positional = [each.name for each in known.values() if each.marks.positional]
    with_rows = [each.name for each in known.values() if each.marks.rows]
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
        kind = Parameter.POSITIONAL_OR_KEYWORD if option.name in positional else Parameter.KEYWORD_ONLY
        default = Parameter.empty if option.is_required else option.default
        parameters.append(Parameter(option.name, kind, default=default, annotation=_annotation(option)))
    result = _TypeName(function.__annotations__["return"])
    signature = inspect.Signature(parameters, return_annotation=result)
    width = {"width": 116, "initial_indent": " " * 4, "subsequent_indent": " " * 8}
    lines = [textwrap.fill(f"{each.name}: {options_as_keywords(each.text, words)}", **width) for each in ordered]
    same = f"The same as `{name.replace('.', ' ').replace('_', '-')}`, with the same files."
    wrapper.__doc__ = "\n\n".join([inspect.cleandoc(shape.__doc__ or ""), same, "Args:\n" + "\n".join(lines)])
    wrapper.__annotations__ = {each.name: each.annotation for each in parameters} | {"return": result}
    vars(wrapper)["__signature__"] = signature
    return wrapper


_PATH_OR_ID = ("model", "teacher", "init", "corpus")
"""Keywords that are strings on the command line because they may be Hub ids; in Python they may be paths too."""


def _annotation(option: Option) -> _TypeName:
    shown = type_name(option.hint)
    item = _item_type(option.hint)
    if option.name in _PATH_OR_ID:
        shown = re.sub(r"\bstr\b", "str | os.PathLike[str]", shown)
    if option.marks.rows:
        return _TypeName(f"Rows | {shown}" if item is not None else shown.replace("str | os.PathLike[str]", "Rows"))
    return _TypeName(shown if item is None else f"{type_name(item)} | {shown}")
