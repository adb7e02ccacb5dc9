"""Command lines: words to the values of options and keys.

Keys are `NAME=VALUE` wherever they stand; options are read by argparse."""

import argparse
import itertools
import math
import re
import shlex
import sys
import typing
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from albert.cli.option_names import suggestion
from albert.cli.signature import Option, first_clause, union_parts
from albert.runtime.errors import UsageError, did_you_mean

HELP_FLAGS = ("-h", "--help")
METAVARS = {"model": "MODEL", "init": "MODEL", "teacher": "MODEL", "corpus": "CORPUS", "choose": "OPTION"}
METAVARS |= {"labels": "NAME", "options": "COLUMN", "ids": "ID"}
"""Options with text -> their placeholder in the help."""
_OPTION = re.compile(r"--?[A-Za-z]")


def read_command_line(options: Sequence[Option], words: Sequence[str], program: str) -> dict[str, Any]:
    """The values in the words of a command line, by the names of options and keys.

    Raises:
        UsageError: a name is unknown, or a value is missing or has another type.
    """
    known = {option.name: option for option in options}
    keys, rest = split_keys(words, {option.name for option in options if option.is_key})
    values: dict[str, Any] = {}
    for name, text in keys:
        if not text:
            raise key_without_value(known[name], program)
        values[name] = _from_words(known[name].hint, _words_of_key(known[name], text, program), f"{program}: {name}")
    rest, literal = _split_at_dashes(rest)
    rest, given = _split_switches(rest, options)
    read, others = _read_options(options, rest, program)
    for name, text in [*given, *read.items()]:
        option = known[name]
        stray = next((word for word in text if _is_unknown_key(word, known)), None)
        if stray is not None and option.is_list:
            raise unexpected_argument(stray, known, values, program)
        values[name] = _from_words(option.hint, text, f"{program}: {option.typed}")

    unnamed: list[str] = []
    for position, word in enumerate(others):
        if word in HELP_FLAGS:
            continue
        if _OPTION.match(word):
            name, equals, value = word.partition("=")
            following = itertools.takewhile(lambda next_word: not _OPTION.match(next_word), others[position + 1 :])
            raise unknown_name(name, [value] if equals else list(following), known, program)
        if _is_unknown_key(word, known):
            raise unexpected_argument(word, known, values, program)
        if word in known and known[word].is_key and not Path(word).exists():
            raise key_without_value(known[word], program)
        unnamed.append(word)
    unnamed += literal
    for option in options:
        if option.is_positional and option.name not in values and unnamed:
            taken = unnamed[: _width(option.hint)]
            unnamed = unnamed[len(taken) :]
            values[option.name] = _from_words(option.hint, taken, f"{program}: {metavar(option)}")
    if unnamed:
        raise unexpected_argument(unnamed[0], known, values, program)
    return values


def require_values(options: Sequence[Option], values: Mapping[str, Any], program: str) -> None:
    """Raise UsageError for a required option without a value."""
    for option in options:
        if option.is_required and option.name not in values:
            if option.is_positional:
                raise UsageError(program, f"{metavar(option)} is missing", f"see {program} --help")
            remedy = f"it is {first_clause(option.text)}; see {program} --help"
            task = values.get("task")
            if option.name == "model" and isinstance(task, str) and Path(task).is_dir():
                remedy = f"did you mean --model {shlex.quote(task)}?"
            raise UsageError(option.typed, "is missing", remedy)


def _read_options(
    options: Sequence[Option], words: Sequence[str], program: str
) -> tuple[dict[str, list[str]], list[str]]:
    """The words of each option, and all other words."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    for option in options:
        if option.is_key or option.is_positional:
            continue
        if option.is_switch:
            how: dict[str, Any] = {"action": "store_const", "const": ["True"]}
        else:
            width = _width(option.hint)
            how = {"nargs": "+" if width == sys.maxsize else width}
        parser.add_argument(option.typed, dest=option.name, default=argparse.SUPPRESS, **how)
    try:
        found, others = parser.parse_known_args(list(words))
    except argparse.ArgumentError as error:
        option = next(each for each in options if each.typed == error.argument_name)
        width = _width(option.hint)
        why = "needs a value" if width in (1, sys.maxsize) else f"needs {width} values"
        raise UsageError(f"{program}: {option.typed}", why) from error
    return vars(found), others


def _split_at_dashes(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """The words before `--`, and those after it, which are no options."""
    if "--" not in words:
        return list(words), []
    position = words.index("--")
    return list(words[:position]), list(words[position + 1 :])


def _split_switches(words: Sequence[str], options: Sequence[Option]) -> tuple[list[str], list[tuple[str, list[str]]]]:
    """All words but switches with a value, such as `--normalize=false`; and these switches with their value."""
    switches = {option.typed: option.name for option in options if option.is_switch and not option.is_key}
    others: list[str] = []
    given: list[tuple[str, list[str]]] = []
    for word in words:
        name, equals, value = word.partition("=")
        if equals and name in switches:
            if value.lower() not in ("true", "false"):
                raise UsageError(name, f"{value!r} is not a truth value", "write true or false")
            given.append((switches[name], [value.capitalize()]))
        else:
            others.append(word)
    return others, given


_KEY = re.compile(r"([A-Za-z][\w-]*(?:\.[\w-]+)*) *=(.*)", re.DOTALL)


def _is_unknown_key(word: str, known: Mapping[str, Option]) -> bool:
    """Whether a word looks like a key, in a command that has keys, and is no file."""
    has_keys = any(option.is_key for option in known.values())
    return has_keys and _KEY.fullmatch(word) is not None and not Path(word).exists()


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
        if option.is_positional:
            return f"{shlex.join([*program.split(), *words])}, without {name}"
        return option.typed if option.is_switch else " ".join([option.typed, shlex.join(words)]).strip()

    plain = name.lstrip("-").replace("-", "_")
    off = plain.removeprefix("no_")
    if off != plain and off in known and known[off].is_switch:
        return UsageError(f"{program}: {name}", "unknown option", f"write {known[off].typed}=false")
    why = "is a key" if plain in known and known[plain].is_key else "unknown option"
    remedy = suggestion(plain, known, spelled) or f"see {program} --help"
    return UsageError(f"{program}: {name}", why, remedy)


def unexpected_argument(word: str, known: Mapping[str, Option], values: Mapping[str, Any], program: str) -> UsageError:
    """The error for a word that is no value: an unknown key, an option without dashes, or a text for `predict`."""
    match = _KEY.fullmatch(word)
    if match is not None:

        def spelled(option: Option, value: str | None) -> str:
            text = match[2].strip() if value is None else value
            if option.is_key:
                return shlex.quote(f"{option.name}={text}")
            if option.is_positional:
                return f"{shlex.join([*program.split(), text])}, without {match[1]}="
            return f"{option.typed} {text}".strip()

        plain = match[1].replace("-", "_")
        why = "is an option" if plain in known and not known[plain].is_key else "unknown key"
        return UsageError(f"{program}: {match[1]}", why, suggestion(plain, known, spelled) or f"see {program} --help")
    remedy = f"see {program} --help"
    if program == "albert predict" and not any(name in _TEXT_INPUTS for name in values):
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
# Placeholders.


def metavar(option: Option) -> str:
    """The placeholder of a value; empty for a switch."""
    field = option.path[-1]
    placeholder = _metavar(option.hint)
    if placeholder.startswith("STR"):
        placeholder = placeholder.replace("STR", METAVARS.get(field, "STR"))
    if option.is_positional:
        name = METAVARS.get(field, field.upper())
        shown = f"{name}..." if option.is_list else name
        return shown if option.is_required else f"[{shown}]"
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
