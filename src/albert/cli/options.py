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
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal, TypeVar

from albert.api.checks import check_options
from albert.api.option_names import suggestion
from albert.api.options import Option, Values, first_clause, make_options, options_of, shape_of, union_parts
from albert.cli.main import COMMANDS, main_of
from albert.runtime.environment import lazy_import
from albert.runtime.errors import UsageError, did_you_mean

_TEXTS = tomllib.loads((files("albert.cli") / "help.toml").read_text(encoding="utf-8"))
USUAL_KEYS: dict[str, str] = _TEXTS["keys"]
"""Command -> the keys that --help explains; it names the others."""
METAVARS = {"model": "MODEL", "init": "MODEL", "teacher": "MODEL"}
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
    """Read arguments into a dataclass; `--help` prints the help and exits.

    Args:
        shape: a dataclass, whose docstring is the help text if `help.toml` has none.
        defaults: path of fields -> a default that replaces the class's own, such as a recipe.
        given: what `typed_values` has read from the arguments before, if the defaults depend on it.
    """
    options = options_of(shape, defaults)
    if any(word in HELP_FLAGS for word in arguments):
        show_help(shape, options, program)
        raise SystemExit(0)
    if given is None:
        given = typed_values(options, arguments, program)
    values = {**(defaults or {}), **given}
    for option in options:
        if option.is_required and option.path not in values:
            if option.marks.positional:
                raise UsageError(program, f"{metavar(option)} is missing", f"see {program} --help")
            remedy = f"it is {first_clause(option.text)}; see {program} --help"
            raise UsageError(option.typed, "is missing", remedy)
    return typing.cast(T, make_options(shape, values))


def typed_values(options: Sequence[Option], arguments: Sequence[str], program: str) -> dict[tuple[str, ...], Any]:
    """The values in arguments, by path: keys first, which are `NAME=VALUE` wherever they stand, then options."""
    known = {option.name: option for option in options}
    flags = {option.typed: option for option in options if not (option.is_key or option.marks.positional)}
    keys, rest = split_keys(arguments, {option.name for option in options if option.is_key})
    values: dict[tuple[str, ...], Any] = {}
    for name, text in keys:
        if not text:
            raise key_without_value(known[name], program)
        values[known[name].path] = _from_words(
            known[name].hint, _words_of_key(known[name], text, program), f"{program}: {name}"
        )
    unnamed: list[str] = []
    has_keys = any(option.is_key for option in options)

    def is_next_value(word: str) -> bool:
        """Whether a word goes on with the values of an option: it is neither an option nor an unknown key."""
        return not _OPTION.match(word) and not (has_keys and _KEY.fullmatch(word))

    while rest:
        word = rest.pop(0)
        if word in HELP_FLAGS:
            continue
        if not _OPTION.match(word):
            if has_keys and _KEY.fullmatch(word) and not Path(word).exists():
                raise unexpected_argument(word, known, values, program)
            if word in known and known[word].is_key and not Path(word).exists():
                raise key_without_value(known[word], program)
            unnamed += rest if word == "--" else [word]
            rest = [] if word == "--" else rest
            continue
        name, equals, value = word.partition("=")
        if name not in flags:
            following = [value] if equals else list(itertools.takewhile(is_next_value, rest))
            raise unknown_name(name, following, known, program)
        option = flags[name]
        if option.is_switch:
            words = [value.capitalize()] if equals else ["True"]
        elif equals:
            words = [value]
        elif _width(option.hint) == 1:
            words = [rest.pop(0)] if rest and not _OPTION.match(rest[0]) else []
        else:
            words = list(itertools.takewhile(is_next_value, rest))[: _width(option.hint)]
            del rest[: len(words)]
            if not words:
                raise UsageError(f"{program}: {name}", "needs a value")
        values[option.path] = _from_words(option.hint, words, f"{program}: {name}")
    for option in options:
        if option.marks.positional and option.path not in values and unnamed:
            words = unnamed[: _width(option.hint)]
            unnamed = unnamed[_width(option.hint) :]
            values[option.path] = _from_words(option.hint, words, f"{program}: {metavar(option)}")
    if unnamed:
        raise unexpected_argument(unnamed[0], known, values, program)
    return values


_KEY = re.compile(r"([A-Za-z][\w-]*(?:\.[\w-]+)*) *=(.*)", re.DOTALL)


def split_keys(arguments: Sequence[str], keys: Collection[str]) -> tuple[list[tuple[str, str]], list[str]]:
    """The keys with their values in a command line, and all other words. Blanks around `=` are forgiven."""
    found: list[tuple[str, str]] = []
    others: list[str] = []
    rest = list(arguments)
    while rest:
        word = rest.pop(0)
        if word == "--":
            return found, [*others, word, *rest]
        if word in keys and rest and rest[0].startswith("="):
            word += rest.pop(0)
        match = _KEY.fullmatch(word)
        if match is None or match[1] not in keys:
            others.append(word)
            continue
        value = match[2].strip()
        if not value and rest and not _OPTION.match(rest[0]):
            value = rest.pop(0)
        found.append((match[1], value))
    return found, others


def _words_of_key(option: Option, text: str, program: str) -> list[str]:
    """The words of a key's value: several are separated by commas, and truth values are written as in TOML."""
    if option.is_switch:
        if text.lower() not in ("true", "false"):
            raise UsageError(f"{program}: {option.name}", f"{text!r} is not a truth value", "write true or false")
        return [text.capitalize()]
    return [word.strip() for word in text.split(",")] if _width(option.hint) > 1 else [text]


def key_without_value(option: Option, program: str) -> UsageError:
    """The error for a key that is named alone, or with nothing after its sign."""
    return UsageError(f"{program}: {option.name}", "has no value", f"write {option.name}={metavar(option) or 'true'}")


def unknown_name(name: str, values: Sequence[str], known: Mapping[str, Option], program: str) -> UsageError:
    """The error for an option, such as `--epochs`, that is a key, that has another name, or that does not exist."""

    def spelled(option: Option, value: str | None) -> str:
        words = list(values) if value is None else [value]
        if option.is_key:
            return shlex.quote(f"{option.name}={','.join(words) or ('true' if option.is_switch else '...')}")
        if option.marks.positional:
            return f"{shlex.join([*program.split(), *words])}, without {name}"
        return option.typed if option.is_switch else " ".join([option.typed, shlex.join(words)]).strip()

    plain = name.lstrip("-").replace("-", "_")
    off = plain.removeprefix("no_")
    if off != plain and off in known and known[off].is_switch:
        return UsageError(f"{program}: {name}", "unknown option", f"write {known[off].typed}=false")
    why = "is a key" if plain in known and known[plain].is_key else "unknown option"
    remedy = suggestion(plain, known, spelled) or f"see {program} --help"
    return UsageError(f"{program}: {name}", why, remedy)


def unexpected_argument(word: str, known: Mapping[str, Option], values: Values, program: str) -> UsageError:
    """The error for a word that is no value: an unknown key, an option without dashes, or a text for `predict`."""
    match = _KEY.fullmatch(word)
    if match is not None:

        def spelled(option: Option, value: str | None) -> str:
            text = match[2].strip() if value is None else value
            if option.is_key:
                return shlex.quote(f"{option.name}={text}")
            if option.marks.positional:
                return f"{shlex.join([*program.split(), text])}, without {match[1]}="
            return f"{option.typed} {text}".strip()

        plain = match[1].replace("-", "_")
        why = "is an option" if plain in known and not known[plain].is_key else "unknown key"
        return UsageError(f"{program}: {match[1]}", why, suggestion(plain, known, spelled) or f"see {program} --help")
    remedy = f"see {program} --help"
    if program == "albert predict" and not any(path[0] in _TEXT_INPUTS for path in values):
        option = "--fill-mask" if "[MASK]" in word else "--classify"
        remedy = f"did you mean {option} {shlex.quote(word)}?"
    return UsageError(program, f"unexpected argument {word!r}", remedy)


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

HELP_FLAGS = ("-h", "--help")
_LEFT = 26
"""Columns of the names."""
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


def show_help(shape: type[Any], options: Sequence[Option], program: str) -> None:
    """Print the description of a command, its examples, its options, the keys used most and the names of the others."""
    width = min(shutil.get_terminal_size().columns, _WIDEST) if sys.stdout.isatty() else _WIDTH
    keys = {option.name: option for option in options if option.is_key}
    typed = [option for option in options if not option.is_key]
    needed = [
        metavar(each) if each.marks.positional else f"{each.typed} {metavar(each)}"
        for each in typed
        if each.marks.positional or each.is_required
    ]
    words = ["usage:", program, *needed, "[OPTIONS]", *(["[KEY=VALUE...]"] if keys else [])]
    lines = textwrap.wrap(" ".join(words), width, subsequent_indent=" " * 8)
    about, examples = split_description(help_text(program) or inspect.getdoc(shape) or "")
    for paragraph in about:
        lines += ["", *textwrap.wrap(paragraph, width)]
    lines += ["", "Examples:" if len(examples) > 1 else "Example:", *(line for each in examples for line in each)]
    lines += ["", "Options:", *(line for option in typed for line in _option_lines(option, width))]
    if keys:
        usual = [keys[name] for name in USUAL_KEYS.get(_without_recipe(program), "").split()]
        heading = "Keys (defaults of the recipe small):" if program == "albert pretrain RECIPE" else "Keys:"
        lines += ["", heading, *(line for option in usual for line in _option_lines(option, width))]
        others = ", ".join(name for name in keys if keys[name] not in usual)
        if others:
            name = program.removeprefix("albert pretrain ").removeprefix("albert ")
            lines += ["", *textwrap.wrap(f"Other keys: {others}.", width, break_on_hyphens=False)]
            lines += ["", f"All keys with their meaning: albert info --recipe {name}"]
    print("\n".join(lines))


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
            between = " or " if "," in args else ","
            names.append(str(args[0]) if len(args) == 1 else "{" + between.join(map(str, args)) + "}")
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
    if option.is_key:
        values = default if isinstance(default, tuple) else (default,)
        return ",".join("true" if value is True else str(value) for value in values)
    return " ".join(map(str, default)) if isinstance(default, tuple) else str(default)


def _option_lines(option: Option, width: int) -> list[str]:
    """The name of an option or key, and its help."""
    default = default_text(option)
    name = "" if option.marks.positional else option.typed
    shown = (metavar(option) or "{true,false}") if option.is_key else metavar(option)
    left = f"  {name}={shown}" if option.is_key else "  " + " ".join(filter(None, [name, shown]))
    text = re.sub(r"(^|\. )None:", r"\1Not set:", option.text).replace("None:", "not set:")
    if sentence := re.search(r"(?<!e\.g)(?<!i\.e)\.(?= (?!When not set|0\.)|$)", text):
        text = text[: sentence.end()]
    notes = ["(required)" if option.is_required else f"(default: {default})" if default else ""]
    wrapped = textwrap.wrap(" ".join(filter(None, [text, *notes])), width - _LEFT, break_on_hyphens=False) or [""]
    indented = [" " * _LEFT + line for line in wrapped]
    if len(left) < _LEFT - 1:
        return [(left.ljust(_LEFT) + wrapped[0]).rstrip(), *indented[1:]]
    if len(left) <= width:
        return [left, *indented]
    spaced = re.sub(r", *", ", ", left.strip())  # long lists of values have no blanks at which a line may end
    names = textwrap.wrap(spaced, width, initial_indent="  ", subsequent_indent=" " * 6, break_on_hyphens=False)
    return [*names, *indented]


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
