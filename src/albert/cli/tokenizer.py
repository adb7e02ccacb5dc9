"""`albert tokenizer`: train a vocabulary, look at what it does with a text, write it out with other settings."""

from albert.cli.subcommands import Subcommand, dispatch
from albert.cli.tokenizer_conversion import convert
from albert.cli.tokenizer_inspection import decode, encode
from albert.cli.tokenizer_training import train

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

COMMANDS: dict[str, Subcommand] = {
    "train": train,
    "encode": encode,
    "decode": decode,
    "convert": convert,
}


def main(arguments: list[str]) -> int:
    """Run `albert tokenizer`."""
    return dispatch("albert tokenizer", USAGE, COMMANDS, arguments, "command")
