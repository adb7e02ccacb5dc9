"""Functions of the package: each is the function of a command, with its options and keys as keywords.

`albert.finetune` is `finetune` of `albert.commands.finetune`. Called from Python, its arguments are checked and read as
on the command line, rows in memory are written to files, and errors name keywords."""

import copy
import functools
import hashlib
import inspect
import tempfile
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal, TypeVar, cast

from albert.cli.command_line import Subcommand
from albert.cli.main import runs_command
from albert.cli.signature import (
    LISTENER,
    Option,
    arguments_of,
    first_clause,
    is_rows,
    options_of,
    read_values,
    with_options_file,
)
from albert.commands.checks import check_options
from albert.commands.rows_in_memory import rows_as_json_lines
from albert.runtime.errors import AlbertError, UsageError, without_inner_frames
from albert.runtime.files import write_text
from albert.runtime.python_words import in_python
from albert.training.run_folder import ROWS_FOLDER

F = TypeVar("F", bound=Callable[..., Any])
Place = Literal["temporary", "beside output", "in output"]


@dataclass(frozen=True)
class Definition:
    """What makes a function a command.

    Attributes:
        name: as Python calls it: "albert.finetune".
        program: as the command line calls it: "albert finetune".
        keys: the class of its keys.
        reads_file: whether its first argument may be a file with its options and keys.
    """

    function: Callable[..., Any]
    name: str
    program: str
    keys: type | None = None
    reads_file: bool = False

    @functools.cached_property
    def options(self) -> list[Option]:
        """Its options and keys."""
        return options_of(self.function, self.keys)


def command(
    program: str, *, keys: type | None = None, rows: Place = "temporary", reads_file: bool = False
) -> Callable[[F], F]:
    """Make a function a command, and a function of the package.

    Args:
        program: as the command line calls it: "albert finetune".
        keys: the class of its keys; the function has them in its parameter `**keys`, by name.
        rows: where rows in memory are written: in a temporary folder, in one beside the output that is removed
            afterwards, or in the output, where they stay.
        reads_file: whether its first argument may be a file with its options and keys.
    """

    def decorate(function: F) -> F:
        name = ".".join(program.replace("-", "_").split())
        definition = Definition(function, name, program, keys, reads_file)

        @functools.wraps(function)
        @without_inner_frames(name)
        def call(*args: Any, **kwargs: Any) -> Any:
            if runs_command():
                return function(*args, **kwargs)
            return _call(definition, rows, args, kwargs)

        vars(call)["definition"] = definition
        return cast(F, call)

    return decorate


def definition_of(function: Callable[..., Any]) -> Definition:
    """What makes this function a command."""
    return vars(function)["definition"]


def on_command_line(
    function: Callable[..., Any],
    show: Callable[[Any], None] | None = None,
    checks_paths: bool = True,
    run: Callable[..., Any] | None = None,
) -> Subcommand:
    """A command as the command line runs it.

    Args:
        show: prints what the function returns; None: the function prints, and returns an exit code or None.
        checks_paths: whether inputs, models and the output are checked first (`check_options`); a function that checks
            its options before their paths does both itself.
        run: calls the function with its arguments, and prints; it replaces both.
    """
    definition = definition_of(function)

    @functools.wraps(function)
    def call_and_show(**arguments: Any) -> Any:
        if checks_paths:
            call = inspect.signature(definition.function).bind(**arguments)
            call.apply_defaults()
            check_options(SimpleNamespace(**call.arguments))
        result = definition.function(**arguments)
        if show is None:
            return result
        show(result)
        return None

    if run is not None:
        call_and_show = functools.wraps(function)(run)
    return Subcommand(call_and_show, definition.program, definition.options, definition.reads_file)


def _call(definition: Definition, place: Place, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Call the function of a command from Python."""
    name = definition.name
    options = definition.options
    parameters = inspect.signature(definition.function).parameters
    listeners = {each: kwargs[each] for each in kwargs if each.startswith(LISTENER) and each in parameters}
    for each, value in listeners.items():
        if value is not None and not callable(value):
            raise UsageError(f"{name}: {each}", f"is {value!r}, a function is expected")
    positional = [option.name for option in options if option.is_positional]
    if len(args) > len(positional):
        only = f"only {' and '.join(positional)} may be given so" if positional else "give them by name"
        raise UsageError(name, f"{len(args)} values have no keyword", only)
    named = [(each, value) for each, value in kwargs.items() if each not in listeners]
    values = read_values([*zip(positional, args, strict=False), *named], options, name, "keyword", UsageError)
    files: dict[str, Path] = {}
    try:
        if definition.reads_file:
            values = with_options_file(options, values)
        for option in options:
            if option.is_required and option.name not in values:
                raise UsageError(f"{name}: {option.name}", "is missing", f"it is {first_clause(option.text)}")
        with _rows_in_files(options, values, place) as files:
            arguments = arguments_of(definition.function, options, values | files)
            return definition.function(**arguments, **listeners)
    except AlbertError as error:
        raise _reworded(error, files, definition.options) from error


# --------------------------------------------------------------------------------------------------------------------
# Rows in memory.


@contextmanager
def _rows_in_files(options: Sequence[Option], values: Mapping[str, Any], place: Place) -> Iterator[dict[str, Path]]:
    """Rows in memory as files for the duration of the block, by the names of their options; equal rows make equal
    files.

    Without an output they are in a temporary folder. A folder beside the output has the same path in a repeated call,
    which can resume.
    """
    rows = {option.name: values[option.name] for option in options if is_rows(option, values.get(option.name))}
    output = values.get("output")
    if not rows:
        yield {}
    elif place == "temporary" or output is None:
        with tempfile.TemporaryDirectory() as folder, _written(rows, Path(folder)) as files:
            yield files
    elif place == "beside output":
        with _written(rows, output.parent / f"{output.name}.{ROWS_FOLDER}") as files:
            yield files
    else:
        with _written(rows, output / ROWS_FOLDER, keep=True) as files:
            yield files


@contextmanager
def _written(rows: Mapping[str, Any], folder: Path, keep: bool = False) -> Iterator[dict[str, Path]]:
    """Rows as files in a folder.

    Args:
        keep: leave the files if the block succeeds. Otherwise they and empty folders are removed.
    """
    texts = {name: rows_as_json_lines(value, name) for name, value in rows.items()}
    new_folders = [path for path in (folder, folder.parent) if not path.exists()]
    files: dict[str, Path] = {}
    written: list[Path] = []
    try:
        for name, text in texts.items():
            path = folder / f"{name}-{hashlib.sha256(text.encode()).hexdigest()[:12]}.jsonl"
            files[name] = path
            if not path.exists():
                folder.mkdir(parents=True, exist_ok=True)
                write_text(path, text)
                written.append(path)
        yield files
        written = [] if keep else written
    finally:
        for path in written:
            path.unlink(missing_ok=True)
        for path in new_folders:
            with suppress(OSError):  # it is missing, or not empty
                path.rmdir()


# --------------------------------------------------------------------------------------------------------------------
# Words of the command line in terms of Python.


def _reworded(error: AlbertError, files: Mapping[str, Path], options: Sequence[Option]) -> AlbertError:
    """The error with keywords in place of options, and of the files that hold their rows."""
    known = {option.name for option in options}

    def reword(text: str) -> str:
        for keyword, file in files.items():
            text = text.replace(str(file), keyword)
        return in_python(text, known)

    result = copy.copy(error)
    result.subject = reword(error.subject)
    result.why = reword(error.why)
    result.args = (reword(str(error)),)
    return result


def remedy_in_python(text: str, options: Iterable[Option]) -> str:
    """What an option would change, as keyword arguments: `--labels A B ...` becomes `labels=["A", "B", ...]`.

    Only parts that begin with an option are arguments; others are sentences, in which an option becomes a keyword.
    """
    known = {option.name: option for option in options}
    parts = []
    for part in text.split(", "):
        name, *words = part.split(" ")
        option = known.get(name.removeprefix("--").replace("-", "_")) if name.startswith("--") else None
        if option is None:
            parts.append(in_python(part, known))
            continue
        values = [word if word == "..." else f'"{word}"' for word in words]
        if option.is_switch:
            value = "True"
        elif not values:
            value = "..."
        else:
            value = f"[{', '.join(values)}]" if option.is_list else " ".join(values)
        parts.append(f"{option.name}={value}")
    return ", ".join(parts)


# --------------------------------------------------------------------------------------------------------------------
# What `help` shows.


def describe(function: Callable[..., Any]) -> None:
    """Complete the docstring of a command for `help`: its keys, and keywords in place of options."""
    definition = definition_of(function)
    options = definition.options
    known = {option.name for option in options}
    about, _, _ = inspect.cleandoc(definition.function.__doc__ or "").partition("\n\nArgs:\n")
    width = {"width": 116, "initial_indent": " " * 4, "subsequent_indent": " " * 8}
    parts = [about, f"The same as `{definition.program}`, with the same files."]
    for title, is_key in (("Args", False), ("Keys", True)):
        chosen = [option for option in options if option.is_key is is_key]
        lines = [textwrap.fill(f"{each.name}: {in_python(each.text, known)}", **width) for each in chosen]
        if lines:
            parts.append("\n".join([f"{title}:", *lines]))
    function.__doc__ = "\n\n".join(parts)
