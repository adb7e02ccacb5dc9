"""Command lines: options read into dataclasses, their help, groups of commands."""

import inspect
import itertools
import math
import re
import shlex
import shutil
import sys
import textwrap
import tomllib
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal, TypeVar

from albert.api.checks import check_options
from albert.api.option_names import canonical_name, suggestion, switch_value
from albert.api.options import Option, Values, first_clause, make_options, options_of, shape_of, union_parts
from albert.cli.main import COMMANDS, main_of
from albert.runtime.environment import lazy_import
from albert.runtime.errors import UsageError, did_you_mean

_TEXTS = tomllib.loads((files("albert.cli") / "help.toml").read_text(encoding="utf-8"))
COMMON: dict[str, str] = _TEXTS["common"]
"""Command -> the options that --help shows; of other commands it shows all."""
METAVARS = {"model": "MODEL", "init": "MODEL", "teacher": "MODEL", "revision": "REVISION"}
"""Fields of type str -> their placeholder in the help."""

# --------------------------------------------------------------------------------------------------------------------
# Parsing.

T = TypeVar("T")
_OPTION = re.compile(r"--?[A-Za-z]")


def parse(
    shape: type[T],
    arguments: Sequence[str],
    program: str,
    defaults: Values | None = None,
    given: Values | None = None,
) -> T:
    """Read arguments into a dataclass; `--help` and `--help-all` print the help and exit.

    Args:
        shape: a dataclass, whose docstring is the help text if `help.toml` has none.
        defaults: path of fields -> a default that replaces the class's own, such as a recipe.
        given: what `typed_values` has read from the arguments before, if the defaults depend on it.
    """
    options = options_of(shape, defaults)
    if any(word in HELP_FLAGS for word in arguments):
        show_help(shape, options, program, "--help-all" in arguments)
        raise SystemExit(0)
    if given is None:
        given = typed_values(options, arguments, program)
    values = {**(defaults or {}), **given}
    for option in options:
        if option.is_required and option.path not in values:
            if option.marks.positional:
                raise UsageError(program, f"{metavar(option)} is missing", f"see {program} --help")
            remedy = f"it is {first_clause(option.text)}; see {program} --help"
            raise UsageError(option.names[-1], "is missing", remedy)
    return typing.cast(T, make_options(shape, values))


def typed_values(options: Sequence[Option], arguments: Sequence[str], program: str) -> dict[tuple[str, ...], Any]:
    """The values in arguments, by path."""
    index = {name: (option, True) for option in options for name in option.names}
    index |= {name: (option, False) for option in options for name in option.negations}
    values: dict[tuple[str, ...], Any] = {}
    unnamed: list[str] = []
    rest = list(arguments)
    while rest:
        word = rest.pop(0)
        if word in HELP_FLAGS:
            continue
        if not _OPTION.match(word):
            unnamed += rest if word == "--" else [word]
            rest = [] if word == "--" else rest
            continue
        name, equals, value = word.partition("=")
        name = name.replace("_", "-")
        words = [value] if equals else []
        usual = canonical_name(name, index)
        if usual is None:
            switch, setting = switch_value(name)
            usual = canonical_name(switch, index)
            words = [setting]
        if usual is None:
            remedy = suggestion(name, index) or "--help shows the usual options, --help-all all of them"
            raise UsageError(f"{program}: {name}", "unknown option", remedy)
        option, is_on = index[usual]
        if option.is_switch:
            words = words or ([rest.pop(0)] if rest[:1] in (["True"], ["False"]) else ["True"])
        elif not words:
            words = list(itertools.takewhile(lambda each: not _OPTION.match(each), rest))[: _width(option.hint)]
            del rest[: len(words)]
        value = _from_words(option.hint, words, f"{program}: {name}")
        values[option.path] = value if is_on else not value
    for option in options:
        if option.marks.positional and option.path not in values and unnamed:
            words = unnamed[: _width(option.hint)]
            unnamed = unnamed[_width(option.hint) :]
            values[option.path] = _from_words(option.hint, words, f"{program}: {metavar(option)}")
    if unnamed:
        remedy = f"see {program} --help"
        if program == "albert predict" and not any(path[0] in _TEXT_INPUTS for path in values):
            option = "--fill-mask" if "[MASK]" in unnamed[0] else "--classify"
            remedy = f"did you mean {option} {shlex.quote(unnamed[0])}?"
        raise UsageError(program, f"unexpected argument {unnamed[0]!r}", remedy)
    return values


_TEXT_INPUTS = ("fill_mask", "order", "classify", "question", "tag", "choose", "input")


def _width(hint: Any) -> int:
    """The largest number of words of a value."""
    widths = []
    for part in union_parts(hint):
        items = typing.get_args(part) if typing.get_origin(part) is tuple else ()
        widths.append(sys.maxsize if Ellipsis in items else sum(map(_width, items)) or 1)
    return max(widths)


def _from_words(hint: Any, words: Sequence[str], subject: str) -> Any:
    """The value that words stand for; raises UsageError."""
    parts = union_parts(hint)
    if list(words) == ["None"] and type(None) in parts:
        return None
    errors = []
    for part in (part for part in parts if part is not type(None)):
        try:
            if typing.get_origin(part) is tuple:
                return _several_from_words(typing.get_args(part), words, subject)
            return _one_from_words(part, words, subject)
        except UsageError as error:
            errors.append(error)
    raise errors[0]


def _several_from_words(items: tuple[Any, ...], words: Sequence[str], subject: str) -> tuple[Any, ...]:
    if Ellipsis in items:
        items = items[:1] * -(-len(words) // _width(items[0]))
    ends = [0, *itertools.accumulate(map(_width, items))]
    if ends[-1] != len(words):
        raise UsageError(subject, f"needs {ends[-1]} values, {len(words)} are given")
    parts = (words[begin:end] for begin, end in itertools.pairwise(ends))
    return tuple(_from_words(item, part, subject) for item, part in zip(items, parts, strict=True))


def _one_from_words(kind: Any, words: Sequence[str], subject: str) -> Any:
    if len(words) != 1:
        raise UsageError(subject, "needs a value")
    choices = {str(choice): choice for choice in typing.get_args(kind) or (True, False)}
    if typing.get_origin(kind) is Literal or kind is bool:
        if words[0] not in choices:
            remedy = did_you_mean(words[0], choices)
            raise UsageError(subject, f"{words[0]!r} is not a choice", remedy)
        return choices[words[0]]
    try:
        value = kind(words[0])
    except ValueError as error:
        raise UsageError(subject, f"{words[0]!r} is not {'a whole number' if kind is int else 'a number'}") from error
    if kind is float and not math.isfinite(value):  # JSON has no such number
        raise UsageError(subject, f"{words[0]!r} is not a finite number")
    return value


# --------------------------------------------------------------------------------------------------------------------
# The help.

HELP_FLAGS = ("-h", "--help", "--help-all")
_LEFT = 26
"""Columns of the names."""
MAX_LINES = 60
"""Of --help, at `_WIDTH` columns."""
_WIDTH = 80
_WIDEST = 100
"""Columns without a terminal, and at most on one."""


def _without_recipe(program: str) -> str:
    return "albert pretrain" if program.startswith("albert pretrain") else program


def help_text(program: str) -> str | None:
    """The description of a command in `help.toml`; None if it is the docstring of the options."""
    text = _TEXTS["text"].get(_without_recipe(program))
    if text is not None and "{tasks}" in text:
        known = lazy_import("albert.tasks.submission")
        text = text.replace("{tasks}", ", ".join(known.DECLARED)).replace("{benchmarks}", " or ".join(known.BENCHMARKS))
    return text


def show_help(shape: type[Any], options: Sequence[Option], program: str, is_all: bool) -> None:
    """Print the description of a command with one example and its usual options, or with everything."""
    width = min(shutil.get_terminal_size().columns, _WIDEST) if sys.stdout.isatty() else _WIDTH
    about, examples = split_description(help_text(program) or inspect.getdoc(shape) or "")
    by_name = {option.name: option for option in options}
    common = COMMON.get(_without_recipe(program))
    chosen = options if is_all or common is None else [by_name[name] for name in common.split()]
    required = [
        metavar(each) if each.marks.positional else f"{each.names[-1]} {metavar(each)}"
        for each in options
        if each.marks.positional or each.is_required
    ]
    usage = " ".join(["usage:", program, "[OPTIONS]", *required])
    head = textwrap.wrap(usage, width, subsequent_indent=" " * 8)
    examples = examples if is_all else examples[:1]
    lines = ["", "Examples:" if len(examples) > 1 else "Example:", *(line for each in examples for line in each)]
    sections: dict[str, list[Option]] = {}
    for option in chosen:
        sections.setdefault(option.path[-2] if is_all and "." in option.names[-1] else "options", []).append(option)
    for number, (section, members) in enumerate(sections.items()):
        lines += ["", f"{section.replace('_', ' ').capitalize()}:"]
        lines += [line for option in members for line in _option_lines(option, width, is_all)]
        if is_all and number == 0:
            lines += ["  -h, --help, --help-all".ljust(_LEFT - 1) + " Show the usual options; show all."]
    if not is_all and len(chosen) < len(options):
        lines += ["", f"{len(options) - len(chosen)} more options: {program} --help-all"]
    for paragraph in about:
        wrapped = textwrap.wrap(paragraph, width)
        if not is_all and paragraph != about[0] and len(head) + len(wrapped) + 1 + len(lines) > MAX_LINES:
            break
        head += ["", *wrapped]
    print("\n".join(head + lines))


def split_description(description: str) -> tuple[list[str], list[list[str]]]:
    """The paragraphs of a description, each on one line, and the lines of each example."""
    about: list[str] = []
    examples: list[list[str]] = []
    for paragraph in inspect.cleandoc(description).split("\n\n"):
        head, _, rest = paragraph.partition("\n")
        if head.startswith("Example:") and head != "Example:":
            examples.append(["  " + " ".join(paragraph.removeprefix("Example:").split())])
        elif head in ("Example:", "Examples:"):
            for line in rest.split("\n"):
                if line.startswith("    ") and examples:
                    examples[-1].append(line)
                else:
                    examples.append([line])
        else:
            about.append(" ".join(paragraph.split()))
    return about, examples


def metavar(option: Option) -> str:
    """The placeholder of a value; empty for a switch."""
    field = option.path[-1]
    placeholder = option.marks.metavar or _metavar(option.hint)
    if placeholder.startswith("STR"):
        placeholder = placeholder.replace("STR", METAVARS.get(field, "STR"))
    if option.marks.positional and placeholder in ("STR", "PATH", "MODEL"):
        return field.upper() if option.is_required else f"[{field.upper()}]"
    return "" if option.is_switch else placeholder


def _metavar(hint: Any) -> str:
    names = []
    for part in union_parts(hint):
        args = typing.get_args(part)
        if typing.get_origin(part) is Literal:
            names.append(str(args[0]) if len(args) == 1 else "{" + ",".join(map(str, args)) + "}")
        elif typing.get_origin(part) is tuple:
            names.append(f"{_metavar(args[0])}..." if Ellipsis in args else " ".join(map(_metavar, args)))
        elif part is not type(None):
            names.append("PATH" if part is Path else part.__name__.upper())
    return "|".join(names)


def choices_of(hint: Any) -> tuple[str, ...]:
    """The allowed values of a type, if they are few; of a switch that may be unset True and False."""
    choices: list[str] = ["True", "False"] if hint == bool | None else []
    for part in union_parts(hint):
        if typing.get_origin(part) is Literal:
            choices += map(str, typing.get_args(part))
        elif typing.get_origin(part) is tuple:
            choices += choices_of(typing.get_args(part)[0])
    return tuple(choices)


def default_text(option: Option) -> str:
    """The default as text; "" for none."""
    default = option.default
    if option.is_required or default is None or default == () or default is False:
        return ""
    if default is True:
        return "on"
    return " ".join(map(str, default)) if isinstance(default, tuple) else str(default)


def _option_lines(option: Option, width: int, is_all: bool) -> list[str]:
    """The names of an option, and its first sentence or all of its help."""
    usual = option.names[0]
    default = default_text(option)
    names = [] if option.marks.positional else [usual]
    if is_all and names:
        names = [*option.names, *option.negations[-1:]]
    elif default == "on":
        names = [f"--[no-]{option.name}"]
    left = "  " + " ".join(part for part in (", ".join(names), metavar(option)) if part)
    doc = re.sub(r"(^|\. )None:", r"\1Not set:", option.text).replace("None:", "not set:")
    if not is_all and (sentence := re.search(r"(?<!e\.g)(?<!i\.e)\.(?= (?!When not set)|$)", doc)):
        doc = doc[: sentence.end()]
    notes = ["(required)" if option.is_required else f"(default: {default})" if default else ""]
    text = textwrap.wrap(" ".join(filter(None, [doc, *notes])), width - _LEFT, break_on_hyphens=False) or [""]
    indented = [" " * _LEFT + line for line in text]
    if len(left) < _LEFT - 1:
        return [(left.ljust(_LEFT) + text[0]).rstrip(), *indented[1:]]
    if len(left) <= width:
        return [left, *indented]
    spaced = re.sub(r", *", ", ", left.strip())  # long lists of values have no blanks at which a line may end
    names_lines = textwrap.wrap(spaced, width, initial_indent="  ", subsequent_indent=" " * 6, break_on_hyphens=False)
    return [*names_lines, *indented]


# --------------------------------------------------------------------------------------------------------------------
# Commands whose module is imported after their options are parsed, and groups of commands.


@dataclass(frozen=True)
class Subcommand:
    """A command with options.

    Attributes:
        shape: its options, for help.
        main: called with the words of the command line; returns an exit code, or None for success.
    """

    shape: type[Any]
    program: str
    main: Callable[[list[str]], int | None]

    def __call__(self, arguments: list[str]) -> int:
        return self.main(arguments) or 0


def command(
    function: Callable[..., Any], program: str, show: Callable[[Any], None] | None = None, checks_paths: bool = True
) -> Subcommand:
    """A command whose options are the parameters of a function.

    Parameters before the `*` are given without a name. The docstring is the help: that of an option is in its `Args:`.

    Args:
        show: prints what the function returns; None: the function prints, and returns an exit code or None.
        checks_paths: whether inputs, models and the output are checked first (`check_options`); a function that checks
            its options before their paths does both itself.
    """
    shape = shape_of(function)

    def main(arguments: list[str]) -> int | None:
        options = parse(shape, arguments, program)
        if checks_paths:
            check_options(options)
        result = function(**vars(options))
        if show is None:
            return result
        show(result)
        return None

    return Subcommand(shape, program, main)


@dataclass(frozen=True)
class CommandGroup:
    """A command whose first argument names one of several others; without one it prints the usage.

    Attributes:
        kind: what a part is called: "command", "format".
    """

    program: str
    parts: Mapping[str, Subcommand]
    kind: str = "command"

    def __call__(self, arguments: list[str]) -> int:
        if not arguments or arguments[0] in HELP_FLAGS:
            print(help_text(self.program))
            return 0
        name, *rest = arguments
        if name not in self.parts:
            raise UsageError(f"{self.program}: {name}", f"no such {self.kind}", did_you_mean(name, self.parts))
        return self.parts[name](rest)


def all_commands() -> dict[str, Subcommand | CommandGroup]:
    """Commands by name, "tokenizer", and parts of groups by two words, "tokenizer train"."""
    mains = {name: main_of(name) for name in COMMANDS}
    groups = {name: main for name, main in mains.items() if isinstance(main, CommandGroup)}
    return mains | {f"{name} {part}": main for name, group in groups.items() for part, main in group.parts.items()}
