"""`albert tokenizer`: train a vocabulary, look at what it does with a text, write it out with other settings."""

from collections.abc import Callable

from albert.cli.tokenizer_conversion import convert
from albert.cli.tokenizer_inspection import decode, encode
from albert.cli.tokenizer_training import train
from albert.runtime.errors import UsageError, did_you_mean

USAGE = """usage: albert tokenizer COMMAND [options]

Commands:
  train     a SentencePiece vocabulary from text
  encode    the pieces of a text, their ids and places
  decode    ids back to text
  convert   a vocabulary in any form to all files of a tokenizer

Examples:
  albert tokenizer train corpus/ --output tokenizer
  albert tokenizer encode --tokenizer tokenizer "This is a test"
  albert tokenizer convert spiece.model --output tokenizer --accents keep"""

COMMANDS: dict[str, Callable[[list[str]], int]] = {
    "train": train,
    "encode": encode,
    "decode": decode,
    "convert": convert,
}


def main(arguments: list[str]) -> int:
    """Run `albert tokenizer`."""
    if not arguments or arguments[0] in ("-h", "--help"):
        print(USAGE)
        return 0
    name, *rest = arguments
    if name not in COMMANDS:
        raise UsageError(f"albert tokenizer: {name}", "no such command", did_you_mean(name, COMMANDS))
    return COMMANDS[name](rest)
