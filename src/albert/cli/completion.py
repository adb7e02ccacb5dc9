"""`albert completion bash|zsh|fish`: a script with which a shell completes commands, options and their values.

The script holds all names itself, read from the options of the commands: the shell never starts Python."""

import shlex
from dataclasses import dataclass
from importlib.resources import files
from typing import Annotated, Literal

import tyro
from tyro.conf import Positional

from albert.cli.main import COMMANDS, dispatch
from albert.cli.options import DESCRIBE, CommandOptions, CommandParts, Option, options_of, parse
from albert.model.config import PRESETS
from albert.pretraining.recipe import RECIPES
from albert.tasks.submission import BENCHMARKS, DECLARED

Shell = Literal["bash", "zsh", "fish"]
FIRST_WORDS = {
    "pretrain": tuple(RECIPES),
    "finetune": (*DECLARED, *BENCHMARKS),
    "evaluate": (*DECLARED, "pretraining"),
    "info": tuple(PRESETS),
    "completion": ("bash", "zsh", "fish"),
}
"""Command -> what its first word may be, beside a file."""


@dataclass(frozen=True, kw_only=True)
class Completion:
    """Print a script that completes commands, options and values in a shell.

    Bash: add `source <(albert completion bash)` to ~/.bashrc. Zsh: add `source <(albert completion zsh)` to ~/.zshrc,
    behind compinit. Fish: write the script to ~/.config/fish/completions/albert.fish.

    Example: albert completion bash > ~/.local/share/bash-completion/completions/albert
    """

    shell: Annotated[Positional[Shell], tyro.conf.arg(metavar="{bash,zsh,fish}")]
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
            dispatch([*words, DESCRIBE])
        except CommandParts as found:
            parts[words[0]] = found.args
            waiting += [(words[0], part) for part in found.args]
        except CommandOptions as found:
            options[" ".join(words)] = options_of(found.args[0])
    return parts, options


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
        "FIRST": [f"        {command}) words={_quoted(words)} ;;" for command, words in FIRST_WORDS.items()],
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
    for name, each in FIRST_WORDS.items():
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
