"""`albert completion bash|zsh|fish`: a script with which a shell completes commands, options and their values.

The script holds all names itself, read from the options of the commands: the shell never starts Python."""

import shlex
from dataclasses import dataclass
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
    """The script for bash 3.2 and later."""
    lines = [
        "# Completion of albert for bash, written by: albert completion bash",
        "_albert() {",
        '    local current="${COMP_WORDS[COMP_CWORD]}" before="${COMP_WORDS[COMP_CWORD-1]}" command="${COMP_WORDS[1]}"',
        "    local place=2 words=",
        "    COMPREPLY=()",
        '    if [ "$COMP_CWORD" -eq 1 ]; then',
        f'        COMPREPLY=($(compgen -W {_quoted([*COMMANDS, "--help", "--version"])} -- "$current"))',
        "        return",
        "    fi",
        '    case "$command" in',
    ]
    for name, each in parts.items():
        lines += [
            f"    {name})",
            '        if [ "$COMP_CWORD" -eq 2 ]; then',
            f'            COMPREPLY=($(compgen -W {_quoted(each)} -- "$current"))',
            "            return",
            "        fi",
            '        command="$command ${COMP_WORDS[2]}" place=3 ;;',
        ]
    lines += ["    esac", '    case "$command $before" in']
    for command, each in options.items():
        for option in each:
            if option.choices and option.long:
                lines.append(f"    {shlex.quote(f'{command} {option.short}')}) words={_quoted(option.choices)} ;;")
    lines += [
        "    esac",
        '    if [ -n "$words" ]; then',
        '        COMPREPLY=($(compgen -W "$words" -- "$current"))',
        "        return",
        "    fi",
        '    case "$current" in',
        "    -*)",
        '        case "$command" in',
        *(f"        {shlex.quote(command)}) words={_quoted(_flags(each))} ;;" for command, each in options.items()),
        "        esac",
        '        COMPREPLY=($(compgen -W "$words" -- "$current"))',
        "        return ;;",
        "    esac",
        '    if [ "$COMP_CWORD" -eq "$place" ]; then',
        '        case "$command" in',
        *(f"        {command}) words={_quoted(words)} ;;" for command, words in FIRST_WORDS.items()),
        "        esac",
        "    fi",
        '    COMPREPLY=($(compgen -W "$words" -- "$current") $(compgen -f -- "$current"))',
        "    compopt -o filenames 2>/dev/null",
        "}",
        "complete -F _albert albert",
    ]
    return "\n".join(lines) + "\n"


def zsh_script(parts: dict[str, tuple[str, ...]], options: dict[str, list[Option]]) -> str:
    """The script for zsh: that of bash, through zsh's own bashcompinit."""
    return "\n".join(
        [
            "# Completion of albert for zsh, written by: albert completion zsh",
            "autoload -Uz compinit bashcompinit",
            "(( $+functions[compdef] )) || compinit",
            "bashcompinit",
            bash_script(parts, options),
        ]
    )


def fish_script(parts: dict[str, tuple[str, ...]], options: dict[str, list[Option]]) -> str:
    """The script for fish, with the first line of each option's help."""
    lines = [
        "# Completion of albert for fish, written by: albert completion fish",
        "function __albert_at",
        "    set -l words (commandline -opc)",
        "    set -l last (math 1 + (count $argv))",
        '    test (count $words) -ge $last; and test "$words[2..$last]" = "$argv"',
        "end",
        "function __albert_words",
        "    test (count (commandline -opc)) -eq $argv[1]",
        "end",
    ]
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
    return "\n".join(lines) + "\n"


def _fish(text: str) -> str:
    """A string of fish: backslashes and quotes are escaped with backslashes."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
