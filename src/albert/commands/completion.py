"""`albert completion`: a script with which a shell completes commands, options and their values.

The script contains all names, so the shell never starts Python."""

import shlex
from importlib.resources import files
from typing import Annotated, Literal

from albert.api.options import Argument, Option, options_of
from albert.cli.main import COMMANDS
from albert.cli.options import CommandGroup, Subcommand, all_commands, choices_of, command, metavar
from albert.runtime.environment import lazy_import


def completion(shell: Annotated[Literal["bash", "zsh", "fish"], Argument(metavar="{bash,zsh,fish}")]) -> None:
    """Print a script that completes commands, options and values in a shell.

    Bash: add `source <(albert completion bash)` to ~/.bashrc. Zsh: add `source <(albert completion zsh)` to ~/.zshrc,
    after compinit. Fish: write the script to ~/.config/fish/completions/albert.fish.

    Example: albert completion bash > ~/.local/share/bash-completion/completions/albert

    Args:
        shell: The shell.
    """
    commands = all_commands()
    parts = {name: tuple(each.parts) for name, each in commands.items() if isinstance(each, CommandGroup)}
    options = {
        name: [option for option in options_of(each.shape) if not option.marks.positional]
        for name, each in commands.items()
        if isinstance(each, Subcommand)
    }
    print({"bash": bash_script, "zsh": zsh_script, "fish": fish_script}[shell](parts, options), end="")


def first_words() -> dict[str, tuple[str, ...]]:
    """Command -> names that its first argument may be."""
    tasks, recipes, config = map(
        lazy_import, ("albert.tasks.submission", "albert.pretraining.recipe", "albert.model.config")
    )
    return {
        "pretrain": tuple(recipes.RECIPES),
        "finetune": (*tasks.DECLARED, *tasks.BENCHMARKS),
        "evaluate": (*tasks.DECLARED, "pretraining"),
        "info": tuple(config.PRESETS),
        "completion": ("bash", "zsh", "fish"),
    }


def _flags(options: list[Option]) -> list[str]:
    off = [f"--no-{option.name}" for option in options if option.default is True]
    return [*(f"--{option.name}" for option in options), *off, "--help", "--help-all"]


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
    values = {
        f"{name} --{option.name}": choices
        for name, each in options.items()
        for option in each
        if (choices := choices_of(option.hint))
    }
    cases = {
        "COMMANDS": [_quoted([*COMMANDS, "--help", "--version"])],
        "PARTS": [f"    {name})\n{part_case.format(_quoted(words))}" for name, words in parts.items()],
        "VALUES": [f"    {shlex.quote(name)}) words={_quoted(words)} ;;" for name, words in values.items()],
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
    for program, each in options.items():
        at = f"-n '__albert_at {program}' -l"
        for option in each:
            choices = choices_of(option.hint)
            values = f" -x -a {_fish(' '.join(choices))}" if choices else " -r" * bool(metavar(option))
            lines.append(f"{at} {option.name}{values} -d {_fish(option.text.split('. ')[0])}")
            lines += [f"{at} no-{option.name}"] if option.default is True else []
    script = (files("albert.cli") / "completion.fish").read_text(encoding="utf-8")
    return script + "".join(f"complete -c albert {line}\n" for line in lines)


def _fish(text: str) -> str:
    """A quoted string of fish."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


completion_main = command(completion, "albert completion")
