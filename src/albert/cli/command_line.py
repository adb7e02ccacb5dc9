"""Commands of the command line: words to the arguments of a function, and what it returns to what is printed."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from albert.cli.help_page import help_text, show_help
from albert.cli.main import COMMANDS, main_of
from albert.cli.parsing import HELP_FLAGS, read_command_line, require_values
from albert.cli.signature import Option, arguments_of, keys_in, read_keys, with_options_file
from albert.runtime.errors import AlbertError, UsageError, did_you_mean

T = TypeVar("T")


@dataclass(frozen=True)
class Subcommand:
    """A command with options.

    Attributes:
        function: what it does; returns an exit code, or None for success.
        options: its options and keys.
        reads_file: whether the first argument may be a file with its options and keys.
    """

    function: Callable[..., Any]
    program: str
    options: Sequence[Option]
    reads_file: bool = False

    def __call__(self, words: list[str]) -> int:
        if any(word in HELP_FLAGS for word in words):
            show_help(self.function, self.options, self.program)
            raise SystemExit(0)
        with self.options_named(words):
            return self.function(**self.arguments(words)) or 0

    @contextmanager
    def options_named(self, words: Sequence[str]) -> Iterator[None]:
        """A block whose errors name the options in `words` as they are typed: `held_out` becomes `--held-out`.

        Others keep their name: `num_attention_heads` may be a key of a `config.json`.
        """
        try:
            yield
        except AlbertError as error:
            given = {word.partition("=")[0] for word in words}
            typed = {option.name: option.typed for option in self.options if option.typed in given}
            if typed.get(error.subject, error.subject) == error.subject:
                raise
            raise error.about(typed[error.subject]) from error

    def arguments(self, words: Sequence[str], **others: Any) -> dict[str, Any]:
        """The arguments of the function that these words stand for, and others."""
        values = read_command_line(self.options, words, self.program)
        if self.reads_file:
            values = with_options_file(self.options, values)
        require_values(self.options, values, self.program)
        return arguments_of(self.function, self.options, values) | others


def words_of(options: Sequence[Option], values: Mapping[str, Any]) -> list[str]:
    """The words that stand for the values of some options and keys; keys come last."""
    words: list[str] = []
    for option in sorted(options, key=lambda option: (option.is_key, not option.is_positional)):
        value = values.get(option.name)
        several = value if isinstance(value, list | tuple) else [value]
        texts = [str(each).lower() if isinstance(each, bool) else str(each).removesuffix(".0") for each in several]
        if value is None:
            continue
        if option.is_key:
            words.append(f"{option.name}={','.join(texts)}")
        elif option.is_switch:
            words += [option.typed] if value else []
        else:
            words += [*([] if option.is_positional else [option.typed]), *texts]
    return words


def parse(shape: type[T], words: Sequence[str], program: str) -> T:
    """The words of a script's command line as a dataclass, whose fields are its options."""
    options = [replace(option, is_key=False) for option in keys_in(shape)]
    if any(word in HELP_FLAGS for word in words):
        show_help(shape, options, program)
        raise SystemExit(0)
    values = read_command_line(options, words, program)
    require_values(options, values, program)
    return read_keys(shape, values)


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
