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
    option_name,
    read_options,
    switch,
    union_parts,
    usual_name,
)
from albert.cli.main import COMMANDS, load_command
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
            default=_in_words(default, is_switch),
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
    found: list[str] = []
    for part in union_parts(hint):
        if typing.get_origin(part) is typing.Literal:
            found += map(str, typing.get_args(part))
        elif typing.get_origin(part) is tuple:
            found += _choices(typing.get_args(part)[0])
        elif part is bool and hint is not bool:
            found += ["True", "False"]
    return tuple(found)


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
    index: dict[str, tuple[str, str | None]] = {}  # name -> tyro's argument, and the value it stands for
    for option in options_of(shape):
        if not option.long:
            continue
        is_unset = bool(option.off and option.choices)  # a switch that may also be left unset: an option with a value
        index |= dict.fromkeys((option.long, option.short), (option.long, "True" if is_unset else None))
        if option.off:
            shorter = option.off if option.short == option.long else f"--no-{option.short.removeprefix('--')}"
            index |= dict.fromkeys((option.off, shorter), (option.long, "False") if is_unset else (option.off, None))
    places = {option_name(option.field): option for option in options_of(shape) if not option.long}
    models = next((option for option in places.values() if option.field in _POSITIONAL_MODELS), None)
    if models is not None:
        places.setdefault("--model", models)
    known = {*index, *places}
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
            words += [index[settled][0], setting]
        elif found is None:
            remedy = nearest_name(name, known) or "--help shows the usual options, --help-all all of them"
            raise UsageError(f"{program}: {name}", "unknown option", remedy)
        elif (
            found in places
        ):  # a positional argument by its name: its values go to the front, where no option takes them
            several = places[found].metavar.rstrip("]").endswith("...")
            values = [value] if equals else []
            while not equals and rest and not re.match(r"--?[A-Za-z]", rest[0]) and (several or not values):
                values.append(rest.pop(0))
            first += values
        elif (on := index[found][1]) is not None:
            words += [index[found][0], value or (rest.pop(0) if rest[:1] in (["True"], ["False"]) else on)]
        else:
            words.append(index[found][0] + equals + value)
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
    if defaults:  # handing tyro a value would need one for the required fields too
        hints = typing.get_type_hints(shape, include_extras=True)
        fields = [(name, hints[name], dataclasses.field(default=value)) for name, value in defaults.items()]
        shape = dataclasses.make_dataclass(shape.__name__, fields, bases=(shape,), frozen=True, kw_only=True)
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
            raise UsageError(option_name(name), f"is {value}, at least {least} is needed")


def check_png(output: Path) -> None:
    """Raises UsageError for a picture that is not a PNG."""
    if output.suffix.lower() != ".png":
        raise UsageError(f"--output {output}", "must end in .png", "choose a name that ends in .png")


def option_file(shape: type[Any], arguments: Sequence[str]) -> dict[str, Any]:
    """The defaults that the file behind --recipe (TOML or JSON, options with _ for -) gives a command, for `parse`.

    Raises:
        MissingInput, DamagedData: the file cannot be read.
        InvalidConfiguration: an unknown key, or a wrong type.
    """
    path = given_value(arguments, "--recipe")
    if path is None:
        return {}
    defaults = read_options(shape, Path(path), ABOUT_RECIPES)
    for one in keywords_of(shape):
        if one.group is not None and one.name in defaults:
            group = defaults.get(one.group, getattr(shape, one.group))
            defaults[one.group] = dataclasses.replace(group, **{one.name: defaults.pop(one.name)})
    return defaults


def given_value(arguments: Sequence[str], option: str) -> str | None:
    """What is given to an option, before the arguments can be parsed; "" to one that stands last."""
    for argument, following in zip(arguments, [*arguments[1:], ""], strict=False):
        name, equals, value = argument.partition("=")
        if name.replace("_", "-") == option:
            return value if equals else following
    return None


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


@dataclass(frozen=True)
class Subcommand:
    """A command with options.

    Attributes:
        work: what is called with the options, or "module:function" of `albert.cli`, imported when it is needed.
        reads: whether the arguments are read here; otherwise they are what the function is called with.
    """

    shape: type[Any]
    program: str
    work: str | Callable[[Any], int | None]
    reads: bool = True

    def __call__(self, arguments: list[str]) -> int:
        args = parse(self.shape, arguments, self.program) if self.reads else arguments
        if callable(self.work):
            return self.work(args) or 0
        module, _, function = self.work.partition(":")
        return getattr(load_command(f"albert.cli.{module}"), function)(args) or 0


@dataclass(frozen=True)
class CommandGroup:
    """A command whose first argument names one of several others; without one it prints the usage.

    Attributes:
        what: what a part is called: "command", "format".
        earlier: names that parts had before -> theirs.
    """

    program: str
    parts: Mapping[str, Subcommand]
    what: str = "command"
    earlier: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def __call__(self, arguments: list[str]) -> int:
        if not arguments or arguments[0] in HELP_WORDS:
            print(help_text(self.program))
            return 0
        name, *rest = arguments
        if (now := self.earlier.get(name)) is not None:
            print(f"albert: note: {self.program} {name} is now called {self.program} {now}", file=sys.stderr)
            name = now
        if name not in self.parts:
            raise UsageError(f"{self.program}: {name}", f"no such {self.what}", did_you_mean(name, self.parts))
        return self.parts[name](rest)


def every_command() -> dict[str, Subcommand | CommandGroup]:
    """Every command by its name, "tokenizer", and every part by both of its words, "tokenizer train"."""
    mains = {name: getattr(load_command(each.module), f"{name}_main") for name, each in COMMANDS.items()}
    groups = {name: each for name, each in mains.items() if isinstance(each, CommandGroup)}
    return mains | {f"{name} {part}": each for name, group in groups.items() for part, each in group.parts.items()}


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


def completion(args: Completion) -> None:
    """Run `albert completion`."""
    commands = every_command()
    parts = {name: tuple(each.parts) for name, each in commands.items() if isinstance(each, CommandGroup)}
    options = {name: options_of(each.shape) for name, each in commands.items() if isinstance(each, Subcommand)}
    print({"bash": bash_script, "zsh": zsh_script, "fish": fish_script}[args.shell](parts, options), end="")


completion_main = Subcommand(Completion, "albert completion", completion)


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
    head = "# Completion of albert for zsh, written by: albert completion zsh\nautoload -Uz compinit bashcompinit\n"
    return f"{head}(( $+functions[compdef] )) || compinit\nbashcompinit\n{bash_script(parts, options)}"


def fish_script(parts: dict[str, tuple[str, ...]], options: dict[str, list[Option]]) -> str:
    """The script for fish, with the first line of each option's help."""
    lines = [f"-f -n '__albert_words 1' -a {name} -d {_fish(each.purpose)}" for name, each in COMMANDS.items()]
    second = [*(("-f ", *each) for each in parts.items()), *(("", *each) for each in first_words().items())]
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
    """A string of fish: backslashes and quotes are escaped with backslashes."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
