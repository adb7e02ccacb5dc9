"""Command lines: options read from dataclasses by tyro, their help, groups of commands, shell completion."""

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
import typing
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
    canonical_name,
    first_clause,
    keywords_of,
    option_fields,
    option_name,
    read_options,
    short_names,
    suggestion,
    switch_value,
    union_parts,
)
from albert.cli.main import COMMANDS, load_command
from albert.cli.render import UNWRAPPED
from albert.runtime.environment import load_by_name
from albert.runtime.errors import UsageError, did_you_mean

_TEXTS = tomllib.loads((files("albert.cli") / "help.toml").read_text(encoding="utf-8"))
COMMON: dict[str, str] = _TEXTS["common"]
"""Command -> the options that --help shows; of other commands it shows all."""
METAVARS = {"model": "MODEL", "init": "MODEL", "teacher": "MODEL", "intermediate": "MODEL", "revision": "REVISION"}
"""Fields of type str -> their placeholder in the help."""

_POSITIONAL = typing.get_args(Positional[str])[1]
_NO_OFF_SWITCH = typing.get_args(tyro.conf.FlagCreatePairsOff[bool])[1]
_POSITIONAL_MODELS = ("model", "models", "what", "source")


@dataclass(frozen=True, kw_only=True)
class Option:
    """One option or positional argument of a command.

    Attributes:
        long: `--group.field`, as tyro calls it; "" for positional arguments.
        short: the usual name without the group if there is one, else `long`.
        off: `--no-...` of switches, else "".
        choices: the allowed values, if they are few; True and False for a switch that may be left unset.
        default: as text; "" for none.
        section: the field that holds the group of the option, "" for fields of the command itself.
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
    is_required: bool

    @property
    def name(self) -> str:
        return self.short.removeprefix("--") or self.field


def options_of(shape: type[Any]) -> list[Option]:
    """Every option of a dataclass, positional arguments first."""
    options = list(_walk(shape, None, ""))
    names = short_names([option.long for option in options])
    named = [dataclasses.replace(each, short=next(iter(names.get(each.long, ())), each.long)) for each in options]
    return sorted(named, key=lambda option: option.long != "")


def _walk(shape: type[Any], value: Any, section: str, prefix: str = "") -> Iterator[Option]:
    for field in option_fields(shape):
        hint, markers = field.hint, field.markers
        name = next((m.name for m in markers if getattr(m, "name", None) is not None), field.name)
        long = ".".join(part for part in (prefix, name.replace("_", "-")) if part)
        default = getattr(value, field.name) if value is not None else field.default
        if dataclasses.is_dataclass(hint):
            yield from _walk(typing.cast(type, hint), default, field.name if long else section, long)
            continue
        is_switch = hint in (bool, bool | None)
        outer, _, last = long.rpartition(".")
        metavar = next((m.metavar for m in markers if getattr(m, "metavar", None)), None) or _metavar(hint)
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
            doc=field.text,
            default=_default_text(default, is_switch),
            section=section,
            is_required=default is dataclasses.MISSING,
        )


def _metavar(hint: Any) -> str:
    names = []
    for part in union_parts(hint):
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
    choices: list[str] = []
    for part in union_parts(hint):
        if typing.get_origin(part) is typing.Literal:
            choices += map(str, typing.get_args(part))
        elif typing.get_origin(part) is tuple:
            choices += _choices(typing.get_args(part)[0])
        elif part is bool and hint is not bool:
            choices += ["True", "False"]
    return tuple(choices)


def _default_text(default: Any, is_switch: bool) -> str:
    if default is dataclasses.MISSING or default is None or default == () or (is_switch and not default):
        return ""
    if is_switch:
        return "on"
    return " ".join(map(str, default)) if isinstance(default, tuple) else str(default)


# --------------------------------------------------------------------------------------------------------------------
# Arguments with every option under the name that tyro has for it.


def canonical_arguments(shape: type[Any], arguments: Sequence[str], program: str) -> list[str]:
    """The arguments with tyro's names of options, and positional arguments without a name."""
    index: dict[str, tuple[str, str | None]] = {}  # name -> tyro's argument, and the value that the name stands for
    positional: dict[str, Option] = {}
    for option in options_of(shape):
        if not option.long:
            positional[option_name(option.field)] = option
            continue
        is_tristate = bool(option.off and option.choices)  # tyro reads a switch that may be unset as a value
        index |= dict.fromkeys((option.long, option.short), (option.long, "True" if is_tristate else None))
        if option.off:
            short_off = option.off if option.short == option.long else f"--no-{option.short.removeprefix('--')}"
            target = (option.long, "False") if is_tristate else (option.off, None)
            index |= dict.fromkeys((option.off, short_off), target)
    model = next((option for option in positional.values() if option.field in _POSITIONAL_MODELS), None)
    if model is not None:
        positional.setdefault("--model", model)
    known = {*index, *positional}
    first: list[str] = []  # values of positional arguments that were named: here no option takes them
    words: list[str] = []
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
        usual = canonical_name(name, known)
        if usual is not None and usual == EARLIER_NAMES.get(name):
            print(f"albert: note: {name} is now called {usual}", file=sys.stderr)
        switch, setting = switch_value(name)
        if usual is None and (option := canonical_name(switch, known)):
            words += [index[option][0], setting]
        elif usual is None:
            remedy = suggestion(name, known) or "--help shows the usual options, --help-all all of them"
            raise UsageError(f"{program}: {name}", "unknown option", remedy)
        elif usual in positional:
            several = positional[usual].metavar.rstrip("]").endswith("...")
            values = [value] if equals else []
            while not equals and rest and not re.match(r"--?[A-Za-z]", rest[0]) and (several or not values):
                values.append(rest.pop(0))
            first += values
        elif (constant := index[usual][1]) is not None:
            words += [index[usual][0], value or (rest.pop(0) if rest[:1] in (["True"], ["False"]) else constant)]
        else:
            words.append(index[usual][0] + equals + value)
    return [*first, *words]


def check_required(shape: type[Any], words: Sequence[str], program: str) -> None:
    """Raises UsageError when a required option is missing."""
    present = {word.partition("=")[0] for word in words}
    for option in options_of(shape):
        if option.is_required and option.long and option.long not in present:
            raise UsageError(option.long, "is missing", f"it is {first_clause(option.doc)}; see {program} --help")


# --------------------------------------------------------------------------------------------------------------------
# The help.

HELP_FLAGS = ("-h", "--help", "--help-all")
_LEFT = 26
"""Columns of the names."""
MOST_LINES = 60
"""Of --help, at `_WIDTH` columns."""
_WIDTH, _WIDEST = 80, 100
"""Columns without a terminal, and at most on one."""


def _without_recipe(program: str) -> str:
    return "albert pretrain" if program.startswith("albert pretrain") else program


def help_text(program: str) -> str | None:
    """The description of a command in `help.toml`; None if it is the docstring of the options."""
    text = _TEXTS["text"].get(_without_recipe(program))
    if text is not None and "{tasks}" in text:
        known = load_by_name("albert.tasks.submission")
        text = text.replace("{tasks}", ", ".join(known.DECLARED)).replace("{benchmarks}", " or ".join(known.BENCHMARKS))
    return text


def show_help(shape: type[Any], program: str, is_all: bool) -> None:
    """Print the description of a command with one example and its usual options, or with everything."""
    width = min(shutil.get_terminal_size().columns, _WIDEST) if sys.stdout.isatty() else _WIDTH
    about, examples = split_description(help_text(program) or inspect.getdoc(shape) or "")
    options = options_of(shape)
    by_name = {option.name: option for option in options}
    common = COMMON.get(_without_recipe(program))
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
                lines += _option_lines(option, width, is_all)
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


def _option_lines(option: Option, width: int, is_all: bool) -> list[str]:
    """The names of an option, and its first sentence or all of its help."""
    names = [option.short]
    if is_all:
        names = list(dict.fromkeys([option.short, option.long, option.off]))
    elif option.default == "on":
        names = ["--[no-]" + option.short.removeprefix("--")]
    left = "  " + " ".join(part for part in (", ".join(filter(None, names)), option.metavar) if part)
    doc = re.sub(r"(^|\. )None:", r"\1Not set:", option.doc).replace("None:", "not set:")
    if not is_all and (sentence := re.search(r"(?<!e\.g)(?<!i\.e)\.(?= (?!When not set)|$)", doc)):
        doc = doc[: sentence.end()]
    notes = ["(required)" if option.is_required else f"(default: {option.default})" if option.default else ""]
    text = textwrap.wrap(" ".join(filter(None, [doc, *notes])), width - _LEFT, break_on_hyphens=False) or [""]
    indented = [" " * _LEFT + line for line in text]
    if len(left) < _LEFT - 1:
        return [(left.ljust(_LEFT) + text[0]).rstrip(), *indented[1:]]
    if len(left) <= width:
        return [left, *indented]
    return [*textwrap.wrap(left.replace(",", ", "), width, initial_indent="  ", subsequent_indent=" " * 6), *indented]


# --------------------------------------------------------------------------------------------------------------------
# Parsing.

T = TypeVar("T")
_BOX = re.compile(r"[\u2500-\u257f]")


@contextmanager
def columns(number: int) -> Iterator[None]:
    """Set COLUMNS, which libraries take for the width of the terminal, for the duration of the block."""
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
    """Read arguments into a dataclass; `--help` and `--help-all` print the help and exit.

    Args:
        shape: a dataclass, whose docstring is the help text if `help.toml` has none.
        defaults: field -> a default that replaces the class's own, such as a recipe.
    """
    if defaults:  # a default instance for tyro would need values for the required fields too
        hints = typing.get_type_hints(shape, include_extras=True)
        fields = [(name, hints[name], dataclasses.field(default=value)) for name, value in defaults.items()]
        shape = dataclasses.make_dataclass(shape.__name__, fields, bases=(shape,), frozen=True, kw_only=True)
    if any(word in HELP_FLAGS for word in arguments):
        show_help(shape, program, "--help-all" in arguments)
        raise SystemExit(0)
    words = canonical_arguments(shape, arguments, program)
    check_required(shape, words, program)
    output = io.StringIO()
    try:
        with columns(UNWRAPPED), contextlib.redirect_stderr(output), contextlib.redirect_stdout(output):
            value = tyro.cli(shape, args=words, prog=program)
    except SystemExit as end:
        why = _message(output.getvalue())
        if why.startswith("Missing from"):
            missing = [option.metavar for option in options_of(shape) if option.is_required and not option.long]
            why = f"{' '.join(missing)} is missing"
        raise UsageError(program, why, f"see {program} --help") from end
    sys.stderr.write(output.getvalue())
    return typing.cast(T, value)


def _message(box: str) -> str:
    """The text of tyro's boxed message, without the frame and the advice to read the help."""
    words = " ".join(_BOX.sub(" ", box).split())
    words = re.sub(r"^.*? -{5,} ", "", words, count=1)  # the heading and its rule
    words = re.sub(r" ?(For full helptext|-{5,}).*$", "", words).rstrip(".")
    return words or "the arguments cannot be read"


def check_at_least(options: Any, least: int, *names: str) -> None:
    """Raises UsageError for the first of these options that is set to less."""
    for name in names:
        value = getattr(options, name)
        if value is not None and value < least:
            raise UsageError(option_name(name), f"is {value}, at least {least} is needed")


def check_png(output: Path) -> None:
    """Raises UsageError for a picture that is not a PNG."""
    if output.suffix.lower() != ".png":
        raise UsageError(f"--output {output}", "must end in .png", "choose a name that ends in .png")


NOT_IN_RECIPES = ("recipe_file", "print_recipe")
"""Fields of options that a recipe file does not contain."""


def defaults_from_file(shape: type[Any], arguments: Sequence[str]) -> dict[str, Any]:
    """The defaults for `parse` in the file after --recipe: TOML or JSON, options with _ for -."""
    path = raw_value(arguments, "--recipe")
    if path is None:
        return {}
    defaults = read_options(shape, Path(path), NOT_IN_RECIPES)
    for keyword in keywords_of(shape):
        if keyword.group is not None and keyword.name in defaults:
            group = defaults.get(keyword.group, getattr(shape, keyword.group))
            changed = {keyword.name: defaults.pop(keyword.name)}
            defaults[keyword.group] = dataclasses.replace(group, **changed)
    return defaults


def raw_value(arguments: Sequence[str], option: str) -> str | None:
    """The value of an option in arguments that are not parsed yet; "" if nothing follows it, None without it."""
    for argument, following in zip(arguments, [*arguments[1:], ""], strict=False):
        name, equals, value = argument.partition("=")
        if name.replace("_", "-") == option:
            return value if equals else following
    return None


# --------------------------------------------------------------------------------------------------------------------
# Commands whose module is imported after their options are parsed, and groups of commands.


@dataclass(frozen=True)
class Subcommand:
    """A command with options.

    Attributes:
        work: called with the options; a function, or "module:function" of `albert.cli`, imported late.
        parses: whether the arguments are parsed before; otherwise the function gets them as they are.
    """

    shape: type[Any]
    program: str
    work: str | Callable[[Any], int | None]
    parses: bool = True

    def __call__(self, arguments: list[str]) -> int:
        options = parse(self.shape, arguments, self.program) if self.parses else arguments
        if callable(self.work):
            return self.work(options) or 0
        module, _, function = self.work.partition(":")
        return getattr(load_command(f"albert.cli.{module}"), function)(options) or 0


@dataclass(frozen=True)
class CommandGroup:
    """A command whose first argument names one of several others; without one it prints the usage.

    Attributes:
        kind: what a part is called: "command", "format".
        earlier: earlier names of parts -> present names.
    """

    program: str
    parts: Mapping[str, Subcommand]
    kind: str = "command"
    earlier: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def __call__(self, arguments: list[str]) -> int:
        if not arguments or arguments[0] in HELP_FLAGS:
            print(help_text(self.program))
            return 0
        name, *rest = arguments
        if (present := self.earlier.get(name)) is not None:
            print(f"albert: note: {self.program} {name} is now called {self.program} {present}", file=sys.stderr)
            name = present
        if name not in self.parts:
            raise UsageError(f"{self.program}: {name}", f"no such {self.kind}", did_you_mean(name, self.parts))
        return self.parts[name](rest)


def all_commands() -> dict[str, Subcommand | CommandGroup]:
    """Commands by name, "tokenizer", and parts of groups by two words, "tokenizer train"."""
    mains = {name: getattr(load_command(command.module), f"{name}_main") for name, command in COMMANDS.items()}
    groups = {name: main for name, main in mains.items() if isinstance(main, CommandGroup)}
    return mains | {f"{name} {part}": main for name, group in groups.items() for part, main in group.parts.items()}


# --------------------------------------------------------------------------------------------------------------------
# `albert completion bash|zsh|fish`: a script with which a shell completes commands, options and their values.
#
# The script contains all names, so the shell never starts Python.


@dataclass(frozen=True, kw_only=True)
class Completion:
    """Print a script that completes commands, options and values in a shell.

    Bash: add `source <(albert completion bash)` to ~/.bashrc. Zsh: add `source <(albert completion zsh)` to ~/.zshrc,
    after compinit. Fish: write the script to ~/.config/fish/completions/albert.fish.

    Example: albert completion bash > ~/.local/share/bash-completion/completions/albert
    """

    shell: Annotated[Positional[Literal["bash", "zsh", "fish"]], tyro.conf.arg(metavar="{bash,zsh,fish}")]
    """The shell."""


def completion(args: Completion) -> None:
    """Run `albert completion`."""
    commands = all_commands()
    parts = {name: tuple(command.parts) for name, command in commands.items() if isinstance(command, CommandGroup)}
    options = {name: options_of(command.shape) for name, command in commands.items() if isinstance(command, Subcommand)}
    print({"bash": bash_script, "zsh": zsh_script, "fish": fish_script}[args.shell](parts, options), end="")


completion_main = Subcommand(Completion, "albert completion", completion)


def first_words() -> dict[str, tuple[str, ...]]:
    """Command -> names that its first argument may be."""
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
    part_case = (
        '        if [ "$COMP_CWORD" -eq 2 ]; then\n'
        '            COMPREPLY=($(compgen -W {} -- "$current"))\n'
        "            return\n"
        "        fi\n"
        '        command="$command ${{COMP_WORDS[2]}}" place=3 ;;'
    )
    values = ((f"{name} {option.short}", option) for name, each in options.items() for option in each if option.long)
    cases = {
        "COMMANDS": [_quoted([*COMMANDS, "--help", "--version"])],
        "PARTS": [f"    {name})\n{part_case.format(_quoted(words))}" for name, words in parts.items()],
        "VALUES": [
            f"    {shlex.quote(name)}) words={_quoted(option.choices)} ;;" for name, option in values if option.choices
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
    head = "# Completion of albert for zsh, written by: albert completion zsh\nautoload -Uz compinit bashcompinit\n"
    return f"{head}(( $+functions[compdef] )) || compinit\nbashcompinit\n{bash_script(parts, options)}"


def fish_script(parts: dict[str, tuple[str, ...]], options: dict[str, list[Option]]) -> str:
    """The script for fish, with the first sentence of each option's help."""
    lines = [f"-f -n '__albert_words 1' -a {name} -d {_fish(each.purpose)}" for name, each in COMMANDS.items()]
    second = [*(("-f ", *item) for item in parts.items()), *(("", *item) for item in first_words().items())]
    for no_files, name, words in second:
        lines.append(f"{no_files}-n '__albert_at {name}; and __albert_words 2' -a {_fish(' '.join(words))}")
    for command, each in options.items():
        at = f"-n '__albert_at {command}' -l"
        for option in (option for option in each if option.long):
            name = option.short.removeprefix("--")
            values = f" -x -a {_fish(' '.join(option.choices))}" if option.choices else " -r" * bool(option.metavar)
            lines.append(f"{at} {name}{values} -d {_fish(option.doc.split('. ')[0])}")
            lines += [f"{at} no-{name}"] if option.default == "on" else []
    script = (files("albert.cli") / "completion.fish").read_text(encoding="utf-8")
    return script + "".join(f"complete -c albert {line}\n" for line in lines)


def _fish(text: str) -> str:
    """A quoted string of fish."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
