"""Parsing of command lines with tyro, terminal width, and commands of several parts."""

import contextlib
import dataclasses
import io
import os
import re
import shutil
import sys
import textwrap
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, NoReturn, TypeVar

import tyro
from rich.console import Console
from tyro.conf import Positional

from albert.runtime.errors import InvalidConfiguration, UsageError, did_you_mean
from albert.runtime.json_files import convert_value
from albert.runtime.toml_files import read_object

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
_BOX = re.compile(r"[\u2500-\u257f]")
_WIDEST_PROSE = 100
_HELP_WIDTH = 80
"""Columns of the help where there is no terminal."""


def parse(
    shape: type[T],
    arguments: Sequence[str],
    program: str,
    description: str | None = None,
    defaults: Mapping[str, Any] | None = None,
) -> T:
    """Read arguments into a dataclass; `--help` prints what it takes and exits.

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
    arguments = _usual_names(shape, arguments)
    if "--help" in arguments or "-h" in arguments:
        _show_help(shape, program, description)
    _refuse_unknown_options(shape, arguments, program)
    said = io.StringIO()
    try:
        with columns(UNWRAPPED), contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
            value = tyro.cli(shape, args=list(arguments), prog=program, description=description)
    except SystemExit as end:
        raise UsageError(program, _one_line(said.getvalue()), f"see {program} --help") from end
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
    places: dict[str, tuple[str | None, Any]] = {}
    for name, hint in typing.get_type_hints(shape).items():
        if name in flat_parts(shape):
            places |= {inner: (name, each) for inner, each in typing.get_type_hints(hint).items()}
        elif name not in ABOUT_RECIPES:
            places[name] = (None, hint)
    defaults: dict[str, Any] = {}
    for key, value in read_object(Path(path)).items():
        if key not in places:
            raise InvalidConfiguration(f"{path}: {key}", "unknown key", did_you_mean(key, places))
        part, hint = places[key]
        value = convert_value(hint, value, f"{path}: {key}")
        if part is None:
            defaults[key] = value
        else:
            before = defaults.get(part, getattr(shape, part))
            defaults[part] = dataclasses.replace(before, **{key: value})
    return defaults


def given_value(arguments: Sequence[str], option: str) -> str | None:
    """What is given to an option, before the arguments can be parsed; "" to one that stands last."""
    for argument, following in zip(arguments, [*arguments[1:], ""], strict=True):
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


def _show_help(shape: type[Any], program: str, description: str | None) -> NoReturn:
    """Print tyro's help with its paragraphs wrapped, which tyro leaves to the terminal; commands stay as they are."""
    said = _Captured()
    words = (tyro.conf.PositionalMetavarFromFieldName,)
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else _HELP_WIDTH
    with columns(width), contextlib.redirect_stdout(said), contextlib.suppress(SystemExit):
        tyro.cli(_without_none(shape), args=["--help"], prog=program, description=description, config=words)
    width = min(width, _WIDEST_PROSE)
    for line in said.getvalue().rstrip("\n").split("\n"):
        print(textwrap.fill(line, width) if line[:1].isalpha() else line)
    raise SystemExit(0)


class _Captured(io.StringIO):
    """Is to be written to as the real output is: with its colours, in its letters."""

    def __init__(self) -> None:
        super().__init__()
        self._terminal = sys.stdout

    def isatty(self) -> bool:
        return self._terminal.isatty()

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self._terminal.encoding or "utf-8"


def _without_none(shape: type[T], value: T | None = None) -> type[T]:
    """The same dataclass for the help: what is None when it is not given does not say so."""
    hints = typing.get_type_hints(shape, include_extras=True)
    fields: list[Any] = []
    for field in dataclasses.fields(shape):  # type: ignore[arg-type]
        hint, default = hints[field.name], field.default if value is None else getattr(value, field.name)
        if dataclasses.is_dataclass(default):
            markers = typing.get_args(hint)[1:] if typing.get_origin(hint) is Annotated else ()
            inner = _without_none(type(default), default)
            hint = Annotated[(inner, *markers)] if markers else inner  # type: ignore[valid-type]
            fields.append((field.name, hint, dataclasses.field(default_factory=inner)))
        elif default is dataclasses.MISSING:
            fields.append((field.name, hint))
        elif default is None:
            hint = Annotated[hint, tyro.conf.arg(help_behavior_hint="")]
            if bool not in typing.get_args(typing.get_args(hint)[0]):  # a switch, which parsing does not make of it
                hint = Annotated[hint, tyro.conf.DisallowNone]
            fields.append((field.name, hint, dataclasses.field(default=None)))
        else:
            if default == ():  # nor does what is empty
                hint = Annotated[hint, tyro.conf.arg(help_behavior_hint="")]
            fields.append((field.name, hint, dataclasses.field(default=default)))
    kept = {"__doc__": shape.__doc__}
    return dataclasses.make_dataclass(shape.__name__, fields, bases=(shape,), namespace=kept, frozen=True, kw_only=True)


ABOUT_RECIPES = ("recipe_file", "print_recipe")
"""Fields of options that no recipe holds."""
OTHER_NAMES = {
    "--lr": ("--learning-rate", "--optimizer.learning-rate"),
    "--learning-rate": ("--optimizer.learning-rate",),
    "--weight-decay": ("--optimizer.weight-decay",),
    "--num-train-epochs": ("--epochs",),
    "--max-steps": ("--steps", "--schedule.total-steps"),
    "--per-device-train-batch-size": ("--batch-size",),
    "--max-seq-length": ("--max-length", "--sequences.max-length"),
    "--max-length": ("--sequences.max-length",),
    "--warmup-ratio": ("--warmup-share",),
    "--warmup-steps": ("--schedule.warmup-steps",),
    "--output-dir": ("--output",),
    "--model-name-or-path": ("--model",),
}
"""Names that users of transformers type -> ours; the first that the command has is meant."""
EARLIER_NAMES = {"--second-release": "--v2-recipe", "--ask": "--task"}
"""Names that options had before; they work, with a note."""


def _usual_names(shape: Any, arguments: Sequence[str]) -> list[str]:
    """The arguments with other names of options replaced, and `--model` left out where the model is positional."""
    known, words, first = set(_options(shape)), [], []
    rest = iter(arguments)
    for word in rest:
        if word == "--":
            words += [word, *rest]
            break
        name, equals, value = word.partition("=")
        name = name.replace("_", "-") if name.startswith("--") else name
        if name not in known and name in EARLIER_NAMES and EARLIER_NAMES[name] in known:
            print(f"albert: note: {name} is now called {EARLIER_NAMES[name]}", file=sys.stderr)
            word = EARLIER_NAMES[name] + equals + value
        elif name not in known:
            ours = [other for other in OTHER_NAMES.get(name, ()) if other in known or other == "--model"]
            name = ours[0] if ours else name
            word = name + equals + value if ours else word
        if name == "--model" and _takes_a_model(shape):
            first += [value] if equals else [next(rest, "")]
        else:
            words.append(word)
    return [*(word for word in first if word), *words]


def _takes_a_model(shape: Any) -> bool:
    """Whether the dataclass has a positional argument called `model`."""
    hint = typing.get_type_hints(shape, include_extras=True).get("model")
    return typing.get_origin(hint) is Annotated and typing.get_args(Positional[str])[1] in typing.get_args(hint)[1:]


def _refuse_unknown_options(shape: Any, arguments: Sequence[str], program: str) -> None:
    known = set(_options(shape)) | {"--help"}
    for argument in arguments:
        if argument == "--":
            return
        if not re.match(r"--?[A-Za-z]", argument):
            continue
        name = argument.split("=", 1)[0].replace("_", "-")
        if name not in known:
            raise UsageError(f"{program}: {name}", "unknown option", did_you_mean(name, sorted(known)))


def _options(shape: Any, prefix: str = "") -> Iterator[str]:
    """Every option tyro makes of a dataclass: `--field`, `--no-field` for switches, `--outer.inner` for nested ones."""
    hints = typing.get_type_hints(shape, include_extras=True)
    for field in dataclasses.fields(shape):
        hint, markers = hints[field.name], ()
        if typing.get_origin(hint) is typing.Annotated:
            hint, *markers = typing.get_args(hint)
        renamed = next((m.name for m in markers if getattr(m, "name", None) is not None), field.name)
        name = ".".join(part for part in (prefix, renamed.replace("_", "-")) if part)
        if dataclasses.is_dataclass(hint):
            yield from _options(hint, name)
            continue
        yield f"--{name}"
        if hint is bool:
            outer, _, inner = name.rpartition(".")
            yield f"--{outer}.no-{inner}" if outer else f"--no-{inner}"
        for marker in markers:
            yield from getattr(marker, "aliases", None) or ()


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
    if not arguments or arguments[0] in ("-h", "--help"):
        print(usage)
        return 0
    name, *rest = arguments
    if name not in parts:
        raise UsageError(f"{command}: {name}", f"no such {what}", did_you_mean(name, parts))
    return parts[name](rest)
