"""Command lines: options read from dataclasses by tyro, their help, commands of several parts, shell completion."""

import contextlib
import dataclasses
import inspect
import io
import os
import re
import shlex
import shutil
import sys
import textwrap
import tomllib
import types
import typing
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import tyro
from tyro.conf import Positional

from albert.api.keywords import (
    EARLIER_NAMES,
    SAME_THING,
    keywords_of,
    nearest_name,
    option_fields,
    read_options,
    switch,
    usual_name,
)
from albert.cli.main import COMMANDS, load_command
from albert.cli.main import dispatch as run_command
from albert.cli.render import UNWRAPPED
from albert.runtime.environment import load_by_name
from albert.runtime.errors import UsageError, did_you_mean

_TEXTS = tomllib.loads((files("albert.cli") / "help.toml").read_text(encoding="utf-8"))
COMMON: dict[str, str] = _TEXTS["common"]
"""Command -> the options that --help shows; of other commands it shows all."""
METAVARS = {"model": "MODEL", "init": "MODEL", "teacher": "MODEL", "intermediate": "MODEL", "revision": "REVISION"}
"""Fields of text -> what stands for it in the help."""

_POSITIONAL = typing.get_args(Positional[str])[1]
_NO_OFF_SWITCH = typing.get_args(tyro.conf.FlagCreatePairsOff[bool])[1]
_POSITIONAL_MODELS = ("model", "models", "what", "source")


@dataclass(frozen=True, kw_only=True)
class Option:
    """One option or positional argument of a command.

    Attributes:
        long: `--outer.inner`, as tyro calls it; "" of positional arguments.
        short: the name without the outer one where no other option has it, else `long`.
        off: `--no-...` of switches, else "".
        choices: the values that it takes, where they are few; of a switch that may be left unset True and False.
        default: in words; "" where there is nothing to say.
        section: the field of the dataclass that it is in, "" of those of the command itself.
    """

    field: str
    long: str
    short: str
    off: str
    metavar: str
    choices: tuple[str, ...]
    doc: str
    default: str
    section: str
    is_path: bool
    is_required: bool

    @property
    def name(self) -> str:
        return self.short.removeprefix("--") or self.field


def options_of(shape: type[Any]) -> list[Option]:
    """Every option of a dataclass, positional arguments first."""
    found = list(_walk(shape, None, ""))
    inner = Counter(option.long.rpartition(".")[2].removeprefix("--") for option in found)
    outer = {option.long for option in found}
    renamed = {long: short for short, long in SAME_THING.items() if short not in outer}
    options = []
    for option in found:
        last = option.long.rpartition(".")[2]
        unique = "." in option.long and inner[last] == 1 and f"--{last}" not in outer
        short = renamed.get(option.long) if "." in option.long else None
        options.append(dataclasses.replace(option, short=short or (f"--{last}" if unique else option.long)))
    return sorted(options, key=lambda option: option.long != "")


def _walk(shape: type[Any], value: Any, section: str, prefix: str = "") -> Iterator[Option]:
    for field in option_fields(shape):
        hint, markers = field.hint, field.markers
        renamed = next((m.name for m in markers if getattr(m, "name", None) is not None), field.name)
        long = ".".join(part for part in (prefix, renamed.replace("_", "-")) if part)
        default = getattr(value, field.name) if value is not None else field.default
        if dataclasses.is_dataclass(hint):
            yield from _walk(typing.cast(type, hint), default, field.name if long else section, long)
            continue
        is_switch = hint in (bool, bool | None)
        outer, _, last = long.rpartition(".")
        metavar = next((m.metavar for m in markers if getattr(m, "metavar", None)), None) or _metavar(hint)
        doc = field.text or ("auto takes a GPU where there is one." if field.name == "device" else "")
        if metavar.startswith("STR"):
            metavar = metavar.replace("STR", METAVARS.get(field.name, "STR"))
        positional = _POSITIONAL in markers
        if positional and metavar in ("STR", "PATH", "MODEL"):
            metavar = field.name.upper() if default is dataclasses.MISSING else f"[{field.name.upper()}]"
        yield Option(
            field=field.name,
            long="" if positional else f"--{long}",
            short="",
            off="" if not is_switch or _NO_OFF_SWITCH in markers else f"--{outer and outer + '.'}no-{last}",
            metavar="" if is_switch else metavar,
            choices=_choices(hint),
            doc=doc,
            default=_in_words(default, is_switch),
            section=section,
            is_path=_has_path(hint),
            is_required=default is dataclasses.MISSING,
        )


def _parts(hint: Any) -> tuple[Any, ...]:
    return typing.get_args(hint) if typing.get_origin(hint) in (typing.Union, types.UnionType) else (hint,)


def _metavar(hint: Any) -> str:
    names = []
    for part in _parts(hint):
        args = typing.get_args(part)
        if typing.get_origin(part) is typing.Literal:
            names.append(str(args[0]) if len(args) == 1 else "{" + ",".join(map(str, args)) + "}")
        elif typing.get_origin(part) is tuple:
            several = len(args) == 2 and args[1] is Ellipsis
            names.append(f"{_metavar(args[0])}..." if several else " ".join(map(_metavar, args)))
        elif part is bool:
            names.append("{True,False}")
        elif part is not type(None):
            names.append("PATH" if part is Path else part.__name__.upper())
    return "|".join(names)


def _choices(hint: Any) -> tuple[str, ...]:
    found: list[str] = []
    for part in _parts(hint):
        if typing.get_origin(part) is typing.Literal:
            found += map(str, typing.get_args(part))
        elif typing.get_origin(part) is tuple:
            found += _choices(typing.get_args(part)[0])
        elif part is bool and hint is not bool:
            found += ["True", "False"]
    return tuple(found)


def _has_path(hint: Any) -> bool:
    return any(part is Path or (typing.get_args(part) and _has_path(typing.get_args(part)[0])) for part in _parts(hint))


def _in_words(default: Any, is_switch: bool) -> str:
    if default is dataclasses.MISSING or default is None or default == () or (is_switch and not default):
        return ""
    if is_switch:
        return "on"
    return " ".join(map(str, default)) if isinstance(default, tuple) else str(default)


# --------------------------------------------------------------------------------------------------------------------
# The words of a command line under the names that tyro knows.


def usual_words(shape: type[Any], arguments: Sequence[str], program: str) -> list[str]:
    """The arguments with every name of an option as tyro has it, and positional arguments without theirs.

    Raises:
        UsageError: an option that the command has not, with the one that was probably meant.
    """
    options = options_of(shape)
    names = {name: option.long for option in options for name in (option.long, option.short) if name}
    said: dict[str, tuple[str, str]] = {}  # what tyro takes for a switch that may also be left unset
    for option in options:
        if option.off:
            values = zip((option.long, option.off), option.choices, strict=False)
            said |= {name: (option.long, value) for name, value in values}
            outer, _, last = option.long.removeprefix("--").rpartition(".")
            names |= {option.off: option.off}
            if option.short != option.long:
                names |= {f"--no-{option.short.removeprefix('--')}": f"--{outer}.no-{last}"}
    places = {f"--{option.field.replace('_', '-')}": option for option in options if not option.long}
    models = next((option for option in options if not option.long and option.field in _POSITIONAL_MODELS), None)
    if models is not None:
        places.setdefault("--model", models)
    known = {*names, *places}
    words: list[str] = []
    first: list[str] = []
    rest = list(arguments)
    while rest:
        word = rest.pop(0)
        if word == "--":
            words += [word, *rest]
            break
        if not re.match(r"--?[A-Za-z]", word):
            words.append(word)
            continue
        name, equals, value = word.partition("=")
        name = name.replace("_", "-")
        found = usual_name(name, known)
        if found is not None and found == EARLIER_NAMES.get(name):
            print(f"albert: note: {name} is now called {found}", file=sys.stderr)
        switched, setting = switch(name)
        if found is None and (settled := usual_name(switched, known)):
            words += [names[settled], setting]
        elif found is None:
            remedy = nearest_name(name, known) or "--help shows the usual options, --help-all all of them"
            raise UsageError(f"{program}: {name}", "unknown option", remedy)
        elif found in names and names[found] in said:
            long, on = said[names[found]]
            words += [long, value or (rest.pop(0) if rest[:1] in (["True"], ["False"]) else on)]
        elif found in names:
            words.append(names[found] + equals + value)
        else:  # a positional argument by its name: its values go to the front, where no option takes them
            several = places[found].metavar.rstrip("]").endswith("...")
            values = [value] if equals else []
            while not equals and rest and not re.match(r"--?[A-Za-z]", rest[0]) and (several or not values):
                values.append(rest.pop(0))
            first += values
    return [*first, *words]


def check_required(shape: type[Any], words: Sequence[str], program: str) -> None:
    """Raises UsageError when an option is missing that must be given."""
    given = {word.partition("=")[0] for word in words}
    for option in options_of(shape):
        if option.is_required and option.long and option.long not in given:
            what = _first_sentence(option.doc).rstrip(".")
            what = what[:1].lower() + what[1:] if what[1:2].islower() or what[1:2] == " " else what
            raise UsageError(option.long, "is missing", f"it is {what}; see {program} --help")


# --------------------------------------------------------------------------------------------------------------------
# The help.

HELP_WORDS = ("-h", "--help", "--help-all")
_LEFT = 26
"""Columns of the names."""
MOST_LINES = 60
"""Of --help, at `_WIDTH` columns."""
_WIDTH, _WIDEST = 80, 100
"""Columns where there is no terminal, and the most on one."""


def help_text(program: str) -> str | None:
    """What `help.toml` says of a command; None where the docstring of its options does."""
    name = "albert pretrain" if program.startswith("albert pretrain") else program
    text = _TEXTS["text"].get(name)
    if text is not None and "{tasks}" in text:
        known = load_by_name("albert.tasks.submission")
        text = text.replace("{tasks}", ", ".join(known.DECLARED)).replace("{benchmarks}", " or ".join(known.BENCHMARKS))
    return text


def show_help(shape: type[Any], program: str, is_all: bool) -> None:
    """Print the help of a command: what it does, one example, and the common options; or everything."""
    width = min(shutil.get_terminal_size().columns, _WIDEST) if sys.stdout.isatty() else _WIDTH
    about, examples = split_description(help_text(program) or inspect.getdoc(shape) or "")
    options = options_of(shape)
    by_name = {option.name: option for option in options}
    common = COMMON.get("albert pretrain" if program.startswith("albert pretrain") else program)
    chosen = options if is_all or common is None else [by_name[name] for name in common.split()]
    required = [
        f"{option.long} {option.metavar}".strip() for option in options if not option.long or option.is_required
    ]
    usage = " ".join(["usage:", program, "[OPTIONS]", *required])
    head = textwrap.wrap(usage, width, subsequent_indent=" " * 8)
    examples = examples if is_all else examples[:1]
    lines = ["", "Examples:" if len(examples) > 1 else "Example:", *(line for each in examples for line in each)]
    sections = list(dict.fromkeys(option.section for option in chosen)) if is_all else [""]
    for section in sections:
        lines += ["", f"{section.replace('_', ' ').capitalize()}:" if section else "Options:"]
        for option in chosen:
            if not is_all or option.section == section:
                lines += _rows(option, width, is_all)
        if is_all and section == sections[0]:
            lines += ["  -h, --help, --help-all".ljust(_LEFT - 1) + " Show the usual options; show all."]
    if not is_all and len(chosen) < len(options):
        lines += ["", f"{len(options) - len(chosen)} more options: {program} --help-all"]
    for paragraph in about:
        wrapped = textwrap.wrap(paragraph, width)
        if not is_all and paragraph != about[0] and len(head) + len(wrapped) + 1 + len(lines) > MOST_LINES:
            break
        head += ["", *wrapped]
    print("\n".join(head + lines))


def split_description(description: str) -> tuple[list[str], list[list[str]]]:
    """The paragraphs of a description in one line each, and its examples as their lines."""
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


def _rows(option: Option, width: int, is_all: bool) -> list[str]:
    """The lines of one option: its names, then its first sentence, or all of its help with --help-all."""
    names = [option.short]
    if is_all:
        names = list(dict.fromkeys([option.short, option.long, option.off]))
    elif option.default == "on":
        names = ["--[no-]" + option.short.removeprefix("--")]
    left = "  " + " ".join(part for part in (", ".join(filter(None, names)), option.metavar) if part)
    doc = re.sub(r"(^|\. )None:", r"\1Not set:", option.doc).replace("None:", "not set:")
    doc = doc if is_all else _first_sentence(doc)
    notes = ["(required)" if option.is_required else f"(default: {option.default})" if option.default else ""]
    text = textwrap.wrap(" ".join(filter(None, [doc, *notes])), width - _LEFT, break_on_hyphens=False) or [""]
    indented = [" " * _LEFT + line for line in text]
    if len(left) < _LEFT - 1:
        return [(left.ljust(_LEFT) + text[0]).rstrip(), *indented[1:]]
    if len(left) <= width:
        return [left, *indented]
    return [*textwrap.wrap(left.replace(",", ", "), width, initial_indent="  ", subsequent_indent=" " * 6), *indented]


def _first_sentence(doc: str) -> str:
    match = re.search(r"(?<!e\.g)(?<!i\.e)\.(?= (?!When not set)|$)", doc)
    return doc if match is None else doc[: match.end()]


T = TypeVar("T")
DESCRIBE = "--describe"
"""Stands for the options of a command, which `parse` then raises instead of reading arguments: for shell completion."""


class CommandOptions(Exception):
    """Its argument is the dataclass with the options of a command."""


class CommandParts(Exception):
    """Its arguments are the names of the parts of a command, of "export" say."""


_BOX = re.compile(r"[\u2500-\u257f]")


@contextmanager
def columns(number: int) -> Iterator[None]:
    """Libraries that ask for the width of the terminal get this number of columns in the block."""
    before = {"COLUMNS": os.environ["COLUMNS"]} if "COLUMNS" in os.environ else {}
    os.environ["COLUMNS"] = str(number)
    try:
        yield
    finally:
        del os.environ["COLUMNS"]
        os.environ.update(before)


def parse(
    shape: type[T],
    arguments: Sequence[str],
    program: str,
    defaults: Mapping[str, Any] | None = None,
) -> T:
    """Read arguments into a dataclass; `--help` prints the common options, `--help-all` all of them, and exits.

    Args:
        shape: a dataclass, whose docstring is the help text where `help.toml` has none.
        defaults: field -> the default in place of the class's own, a recipe say.

    Raises:
        UsageError: an unknown option, a missing or an impossible value; SystemExit(0) after `--help`.
    """
    shape = _with_defaults(shape, defaults or {})
    if DESCRIBE in arguments:
        raise CommandOptions(shape)
    if any(word in HELP_WORDS for word in arguments):
        show_help(shape, program, "--help-all" in arguments)
        raise SystemExit(0)
    words = usual_words(shape, arguments, program)
    check_required(shape, words, program)
    said = io.StringIO()
    try:
        with columns(UNWRAPPED), contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
            value = tyro.cli(shape, args=words, prog=program)
    except SystemExit as end:
        why = _one_line(said.getvalue())
        if why.startswith("Missing from"):
            missing = [each.metavar for each in options_of(shape) if each.is_required and not each.long]
            why = f"{' '.join(missing)} is missing"
        raise UsageError(program, why, f"see {program} --help") from end
    if said.getvalue():
        sys.stderr.write(said.getvalue())
    return typing.cast(T, value)


def check_at_least(args: Any, least: int, *names: str) -> None:
    """Raises UsageError for the first of these options that is set and less."""
    for name in names:
        value = getattr(args, name)
        if value is not None and value < least:
            raise UsageError(f"--{name.replace('_', '-')}", f"is {value}, at least {least} is needed")


def option_file(shape: type[Any], arguments: Sequence[str]) -> dict[str, Any]:
    """The defaults that the file behind --recipe (TOML or JSON, options with _ for -) gives a command, for `parse`.

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
# Commands that are parsed before the module that does their work is imported, and commands of several parts.

Subcommand = Callable[[list[str]], int]


def command(shape: type[Any], program: str, work: str) -> Subcommand:
    """A command: its arguments are parsed, then a function is called with the options.

    Args:
        work: the function, as "module:function" in `albert.cli`; the module is imported when it is needed.
    """
    module, _, function = work.partition(":")

    def main(arguments: list[str]) -> int:
        args = parse(shape, arguments, program)
        return getattr(load_command(f"albert.cli.{module}"), function)(args) or 0

    return main


def dispatch(command: str, parts: Mapping[str, Subcommand], arguments: list[str], what: str) -> int:
    """Run the part that the first argument names, or print the usage where there is none.

    Args:
        what: what a part is called: "command", "format".

    Raises:
        UsageError: there is no such part.
    """
    if arguments[:1] == [DESCRIBE]:
        raise CommandParts(*parts)
    if not arguments or arguments[0] in HELP_WORDS:
        print(help_text(command))
        return 0
    name, *rest = arguments
    if name not in parts:
        raise UsageError(f"{command}: {name}", f"no such {what}", did_you_mean(name, parts))
    return parts[name](rest)


# --------------------------------------------------------------------------------------------------------------------
# `albert completion bash|zsh|fish`: a script with which a shell completes commands, options and their values.
#
# The script holds all names itself, read from the options of the commands: the shell never starts Python.


@dataclass(frozen=True, kw_only=True)
class Completion:
    """Print a script that completes commands, options and values in a shell.

    Bash: add `source <(albert completion bash)` to ~/.bashrc. Zsh: add `source <(albert completion zsh)` to ~/.zshrc,
    behind compinit. Fish: write the script to ~/.config/fish/completions/albert.fish.

    Example: albert completion bash > ~/.local/share/bash-completion/completions/albert
    """

    shell: Annotated[Positional[Literal["bash", "zsh", "fish"]], tyro.conf.arg(metavar="{bash,zsh,fish}")]
    """The shell."""


def completion_main(arguments: list[str]) -> int:
    """Run `albert completion`."""
    args = parse(Completion, arguments, "albert completion")
    parts, options = describe_commands()
    print({"bash": bash_script, "zsh": zsh_script, "fish": fish_script}[args.shell](parts, options), end="")
    return 0


def describe_commands() -> tuple[dict[str, tuple[str, ...]], dict[str, list[Option]]]:
    """Command -> its parts, of those that have some; and command or "command part" -> its options."""
    parts: dict[str, tuple[str, ...]] = {}
    options: dict[str, list[Option]] = {}
    waiting = [(name,) for name in COMMANDS]
    while waiting:
        words = waiting.pop(0)
        try:
            run_command([*words, DESCRIBE])
        except CommandParts as found:
            parts[words[0]] = found.args
            waiting += [(words[0], part) for part in found.args]
        except CommandOptions as found:
            options[" ".join(words)] = options_of(found.args[0])
    return parts, options


def first_words() -> dict[str, tuple[str, ...]]:
    """Command -> what its first word may be, beside a file."""
    tasks, recipes, config = map(
        load_by_name, ("albert.tasks.submission", "albert.pretraining.recipe", "albert.model.config")
    )
    return {
        "pretrain": tuple(recipes.RECIPES),
        "finetune": (*tasks.DECLARED, *tasks.BENCHMARKS),
        "evaluate": (*tasks.DECLARED, "pretraining"),
        "info": tuple(config.PRESETS),
        "completion": ("bash", "zsh", "fish"),
    }


def _flags(options: list[Option]) -> list[str]:
    named = [option for option in options if option.long]
    off = [f"--no-{option.short.removeprefix('--')}" for option in named if option.default == "on"]
    return [*(option.short for option in named), *off, "--help", "--help-all"]


def _quoted(words: tuple[str, ...] | list[str]) -> str:
    return shlex.quote(" ".join(words))


def bash_script(parts: dict[str, tuple[str, ...]], options: dict[str, list[Option]]) -> str:
    """The script for bash 3.2 and later: `completion.bash`, filled in."""
    of_part = (
        '        if [ "$COMP_CWORD" -eq 2 ]; then\n'
        '            COMPREPLY=($(compgen -W {} -- "$current"))\n'
        "            return\n"
        "        fi\n"
        '        command="$command ${{COMP_WORDS[2]}}" place=3 ;;'
    )
    values = ((f"{name} {each.short}", each) for name, all_ in options.items() for each in all_ if each.long)
    cases = {
        "COMMANDS": [_quoted([*COMMANDS, "--help", "--version"])],
        "PARTS": [f"    {name})\n{of_part.format(_quoted(each))}" for name, each in parts.items()],
        "VALUES": [
            f"    {shlex.quote(name)}) words={_quoted(each.choices)} ;;" for name, each in values if each.choices
        ],
        "OPTIONS": [f"        {shlex.quote(name)}) words={_quoted(_flags(each))} ;;" for name, each in options.items()],
        "FIRST": [f"        {command}) words={_quoted(words)} ;;" for command, words in first_words().items()],
    }
    script = (files("albert.cli") / "completion.bash").read_text(encoding="utf-8")
    for name, lines in cases.items():
        script = script.replace(f"@{name}@", "\n".join(lines))
    return script


def zsh_script(parts: dict[str, tuple[str, ...]], options: dict[str, list[Option]]) -> str:
    """The script for zsh: that of bash, through zsh's own bashcompinit."""
    head = (
        "# Completion of albert for zsh, written by: albert completion zsh\n"
        "autoload -Uz compinit bashcompinit\n"
        "(( $+functions[compdef] )) || compinit\n"
        "bashcompinit\n"
    )
    return head + bash_script(parts, options)


def fish_script(parts: dict[str, tuple[str, ...]], options: dict[str, list[Option]]) -> str:
    """The script for fish, with the first line of each option's help."""
    lines: list[str] = []
    for name, command in COMMANDS.items():
        lines.append(f"complete -c albert -f -n '__albert_words 1' -a {name} -d {_fish(command.purpose)}")
    for name, each in parts.items():
        lines.append(f"complete -c albert -f -n '__albert_at {name}; and __albert_words 2' -a {_fish(' '.join(each))}")
    for name, each in first_words().items():
        lines.append(f"complete -c albert -n '__albert_at {name}; and __albert_words 2' -a {_fish(' '.join(each))}")
    for command, each in options.items():
        for option in each:
            if not option.long:
                continue
            line = f"complete -c albert -n '__albert_at {command}' -l {option.short.removeprefix('--')}"
            line += " -x -a " + _fish(" ".join(option.choices)) if option.choices else " -r" * bool(option.metavar)
            lines.append(f"{line} -d {_fish(option.doc.split('. ')[0])}")
            if option.default == "on":
                lines.append(f"complete -c albert -n '__albert_at {command}' -l no-{option.short.removeprefix('--')}")
    return (files("albert.cli") / "completion.fish").read_text(encoding="utf-8") + "\n".join(lines) + "\n"


def _fish(text: str) -> str:
    """A string of fish: backslashes and quotes are escaped with backslashes."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
