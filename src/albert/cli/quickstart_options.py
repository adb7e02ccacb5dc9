"""What `albert quickstart` is asked for."""

from dataclasses import dataclass
from pathlib import Path

from albert.cli.command_line import parse
from albert.cli.main import load_command

DESCRIPTION = """From raw text to answers on the embedded sample, in a few minutes on two cores.

Trains a vocabulary, prepares shards, pre-trains a small all-shared ALBERT, fine-tunes it to tell authors apart, and
reports. The same command goes on where an earlier one was stopped.

Example:
  albert quickstart --output my-quickstart"""


@dataclass(frozen=True, kw_only=True)
class Quickstart:
    """Where to write."""

    output: Path = Path("quickstart-run")
    """The directory for everything the quickstart makes."""


def main(arguments: list[str]) -> int:
    """Read the options, and run `albert quickstart`."""
    asked = parse(Quickstart, arguments, "albert quickstart", DESCRIPTION)
    return load_command("albert.cli.quickstart").run(asked)
