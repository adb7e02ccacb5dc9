"""Parsing of command lines with tyro, terminal width, and commands of several parts."""

import contextlib
import dataclasses
import io
import os
import re
import sys
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import tyro
from rich.console import Console

from albert.api.keywords import keywords_of, read_options
from albert.cli.help import HELP_WORDS, check_required, missing_positional, show_help, usual_words
from albert.runtime.errors import UsageError, did_you_mean

# --------------------------------------------------------------------------------------------------------------------
# How wide the output is: as the terminal on a terminal, and without any wrapping where it goes to a file or a pipe.
#
# What is written to a file or a pipe must not depend on COLUMNS or on the length of a path, so every command makes
# its console here.

UNWRAPPED = 10_000
"""Columns; more than any line needs."""


def open_console(
    soft_wrap: bool = True, highlight: bool = False, quiet: bool = False, at_least: int | None = None
) -> Console:
    """The console on standard output.

    Args:
        soft_wrap: leave the wrapping of long lines to the terminal.
        highlight: numbers and paths in colours, on a terminal.
        quiet: print nothing.
        at_least: columns to print even on a narrower terminal.
    """
    console = Console(soft_wrap=soft_wrap, highlight=highlight, quiet=quiet)
    if not sys.stdout.isatty():
        console.size = (UNWRAPPED, 25)
    elif at_least is not None:
        console.size = (max(console.width, at_least), 25)
    return console


@contextmanager
def columns(number: int) -> Iterator[None]:
    """Libraries that ask for the width of the terminal get this number of columns in the block."""
    before = os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = str(number)
    try:
        yield
    finally:
        if before is None:
            del os.environ["COLUMNS"]
        else:
            os.environ["COLUMNS"] = before


T = TypeVar("T")
DESCRIBE = "--describe"
"""Stands for the options of a command, which `parse` then raises instead of reading arguments: for shell completion."""


class CommandOptions(Exception):
    """The dataclass with the options of a command."""

    def __init__(self, shape: type[Any]) -> None:
        self.shape = shape


class CommandParts(Exception):
    """The names of the parts of a command, of "export" say."""

    def __init__(self, parts: Iterable[str]) -> None:
        self.parts = tuple(parts)


_BOX = re.compile(r"[\u2500-\u257f]")


def parse(
    shape: type[T],
    arguments: Sequence[str],
    program: str,
    description: str | None = None,
    defaults: Mapping[str, Any] | None = None,
) -> T:
    """Read arguments into a dataclass; `--help` prints the common options, `--help-all` all of them, and exits.

    Args:
        shape: a dataclass, whose docstring is the help text unless `description` is given.
        arguments: the words after the command's name.
        program: how the command is called, shown in the help ("albert prepare").
        description: the help text; put an example at its end.
        defaults: field -> the default in place of the class's own, a recipe say.

    Raises:
        UsageError: an unknown option, a missing or an impossible value; SystemExit(0) after `--help`.
    """
    shape = _with_defaults(shape, defaults or {})
    if DESCRIBE in arguments:
        raise CommandOptions(shape)
    if any(word in HELP_WORDS for word in arguments):
        show_help(shape, program, description, "--help-all" in arguments)
        raise SystemExit(0)
    words = usual_words(shape, arguments, program)
    check_required(shape, words, program)
    said = io.StringIO()
    try:
        with columns(UNWRAPPED), contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
            value = tyro.cli(shape, args=words, prog=program, description=description)
    except SystemExit as end:
        why = _one_line(said.getvalue())
        if why.startswith("Missing from"):
            why = f"{missing_positional(shape)} is missing"
        raise UsageError(program, why, f"see {program} --help") from end
    if said.getvalue():
        sys.stderr.write(said.getvalue())
    return typing.cast(T, value)


def option_file(shape: type[Any], arguments: Sequence[str]) -> dict[str, Any]:
    """The defaults that the file behind --recipe gives the options of a command, for `parse`.

    Its keys are the names of the options with _ for -, in TOML or JSON.

    Raises:
        MissingInput, DamagedData: the file cannot be read.
        InvalidConfiguration: an unknown key, or a wrong type.
    """
    path = given_value(arguments, "--recipe")
    if path is None:
        return {}
    groups = {one.name: one.group for one in keywords_of(shape)}
    defaults: dict[str, Any] = {}
    for key, value in read_options(shape, Path(path), ABOUT_RECIPES).items():
        part = groups[key]
        if part is None:
            defaults[key] = value
        else:
            before = defaults.get(part, getattr(shape, part))
            defaults[part] = dataclasses.replace(before, **{key: value})
    return defaults


def given_value(arguments: Sequence[str], option: str) -> str | None:
    """What is given to an option, before the arguments can be parsed; "" to one that stands last."""
    for argument, following in zip(arguments, [*arguments[1:], ""], strict=False):
        name, equals, value = argument.partition("=")
        if name.replace("_", "-") == option:
            return value if equals else following
    return None


def flat_parts(shape: type[Any]) -> list[str]:
    """The fields that are dataclasses of options which have no prefix."""
    return [each.name for each in dataclasses.fields(shape) if dataclasses.is_dataclass(each.default)]


def _with_defaults(shape: type[T], defaults: Mapping[str, Any]) -> type[T]:
    """The same dataclass with other defaults; handing tyro a value would need one for the required fields too."""
    if not defaults:
        return shape
    hints = typing.get_type_hints(shape, include_extras=True)
    fields = [(name, hints[name], dataclasses.field(default=value)) for name, value in defaults.items()]
    return dataclasses.make_dataclass(shape.__name__, fields, bases=(shape,), frozen=True, kw_only=True)


ABOUT_RECIPES = ("recipe_file", "print_recipe")
"""Fields of options that no recipe holds."""


def _one_line(box: str) -> str:
    """The words of tyro's boxed message, without the frame and the call to read the help."""
    words = " ".join(_BOX.sub(" ", box).split())
    words = re.sub(r"^.*? -{5,} ", "", words, count=1)  # the heading and its rule
    words = re.sub(r" ?(For full helptext|-{5,}).*$", "", words).rstrip(".")
    return words or "the arguments cannot be read"


# --------------------------------------------------------------------------------------------------------------------
# Commands of several parts: `albert tokenizer train`, `albert export onnx`.

Subcommand = Callable[[list[str]], int]


def dispatch(command: str, usage: str, parts: Mapping[str, Subcommand], arguments: list[str], what: str) -> int:
    """Run the part that the first argument names, or print the usage where there is none.

    Args:
        command: "albert tokenizer", say.
        usage: what --help prints.
        parts: by their names.
        arguments: behind the command.
        what: what a part is called: "command", "format".

    Raises:
        UsageError: there is no such part.
    """
    if arguments[:1] == [DESCRIBE]:
        raise CommandParts(parts)
    if not arguments or arguments[0] in HELP_WORDS:
        print(usage)
        return 0
    name, *rest = arguments
    if name not in parts:
        raise UsageError(f"{command}: {name}", f"no such {what}", did_you_mean(name, parts))
    return parts[name](rest)
