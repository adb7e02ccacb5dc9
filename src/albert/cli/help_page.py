"""The help of a command: its description and examples, its options, and the keys used most."""

import inspect
import re
import shutil
import sys
import textwrap
import tomllib
import typing
from collections.abc import Callable, Sequence
from importlib.resources import files
from typing import Any, Literal

from albert.cli.parsing import metavar
from albert.cli.signature import Option, union_parts
from albert.runtime.environment import lazy_import

_TEXTS = tomllib.loads((files("albert.cli") / "help.toml").read_text(encoding="utf-8"))
USUAL_KEYS: dict[str, str] = _TEXTS["keys"]
"""Command -> the keys that --help explains; it names the others."""
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
        text = text.replace("{tasks}", ", ".join(known.DECLARED))
    return text


def show_help(function: Callable[..., Any], options: Sequence[Option], program: str) -> None:
    """Print the description of a command, its examples, its options, the keys used most and the names of the others."""
    width = min(shutil.get_terminal_size().columns, _WIDEST) if sys.stdout.isatty() else _WIDTH
    keys = {option.name: option for option in options if option.is_key}
    typed = [option for option in options if not option.is_key]
    needed = [
        metavar(each) if each.is_positional else f"{each.typed} {metavar(each)}"
        for each in typed
        if each.is_positional or each.is_required
    ]
    words = ["usage:", program, *needed, "[OPTIONS]", *(["[KEY=VALUE...]"] if keys else [])]
    lines = textwrap.wrap(" ".join(words), width, subsequent_indent=" " * 8)
    about, examples = split_description(help_text(program) or _description(function) or "")
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


def _description(function: Callable[..., Any]) -> str:
    """The docstring of a function without its arguments."""
    return (inspect.getdoc(inspect.unwrap(function)) or "").partition("\n\nArgs:\n")[0]


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
    name = "" if option.is_positional else option.typed
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
