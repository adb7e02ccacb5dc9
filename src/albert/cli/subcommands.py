"""Commands of several parts: `albert tokenizer train`, `albert export onnx`."""

from collections.abc import Callable, Mapping

from albert.runtime.errors import UsageError, did_you_mean

Subcommand = Callable[[list[str]], int]


def dispatch(command: str, usage: str, parts: Mapping[str, Subcommand], arguments: list[str], what: str) -> int:
    """Run the part that the first argument names, or print the usage where there is none.

    Args:
        command: "albert tokenizer", say.
        usage: what --help prints.
        parts: by their names.
        arguments: behind the command.
        what: what a part is called: "command", "format".

    Raises:
        UsageError: there is no such part.
    """
    if not arguments or arguments[0] in ("-h", "--help"):
        print(usage)
        return 0
    name, *rest = arguments
    if name not in parts:
        raise UsageError(f"{command}: {name}", f"no such {what}", did_you_mean(name, parts))
    return parts[name](rest)
