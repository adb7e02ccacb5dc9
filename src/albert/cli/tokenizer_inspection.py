"""`albert tokenizer encode` and `decode`: what a tokenizer makes of a text, piece by piece, and the way back."""

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro
from rich.markup import escape
from rich.table import Column, Table
from tyro.conf import Positional

from albert.cli.command_line import parse
from albert.cli.console import open_console
from albert.runtime.errors import DamagedData, MissingInput, UsageError
from albert.text.tokenizer import Tokenizer
from albert.text.tokenizer_directory import load_tokenizer

STANDARD_INPUT = "standard input"


@dataclass(frozen=True, kw_only=True)
class Encode:
    """Show the pieces of a text, their ids, and where in the text each of them stands.

    Places count characters; the text from START to END is the piece as it was written. Special pieces such as [MASK]
    are text here. Without TEXT the lines of standard input are read.

    Example: albert tokenizer encode --tokenizer tokenizer "This is a test"
    """

    text: Annotated[Positional[tuple[str, ...]], tyro.conf.arg(metavar="[TEXT...]", help_behavior_hint="")] = ()
    """One text or several."""
    tokenizer: Path
    """A directory with a tokenizer (a model has one), a spiece.model, vocab.txt or tokenizer.json."""
    json: bool = False
    """One JSON object a text in place of tables."""


@dataclass(frozen=True, kw_only=True)
class Decode:
    """Write the text of some ids: normalised, as the model reads it. Without ID the lines of standard input are read.

    Example: albert tokenizer decode --tokenizer tokenizer 48 25 21 1289
    """

    ids: Annotated[Positional[tuple[int, ...]], tyro.conf.arg(metavar="[ID...]", help_behavior_hint="")] = ()
    """The ids of one text."""
    tokenizer: Path
    """A directory with a tokenizer (a model has one), a spiece.model, vocab.txt or tokenizer.json."""
    special: bool = False
    """Write special pieces such as [CLS] out."""
    json: bool = False
    """One JSON object a text."""


def encode(arguments: list[str]) -> int:
    """Run `albert tokenizer encode`."""
    options = parse(Encode, arguments, "albert tokenizer encode")
    tokenizer = load_tokenizer(options.tokenizer)
    for number, text in enumerate(options.text or _lines("TEXT")):
        if options.json:
            print(json.dumps(_encoded(tokenizer, text), ensure_ascii=False))
        else:
            print("\n" * bool(number), end="")
            _show(tokenizer, text)
    return 0


def decode(arguments: list[str]) -> int:
    """Run `albert tokenizer decode`."""
    options = parse(Decode, arguments, "albert tokenizer decode")
    tokenizer = load_tokenizer(options.tokenizer)
    for ids in [list(options.ids)] if options.ids else map(_numbers, _lines("ID")):
        for number in ids:
            if not 0 <= number < tokenizer.vocab_size:
                raise UsageError(f"id {number}", f"is none of this vocabulary's, 0 to {tokenizer.vocab_size - 1}")
        text = tokenizer.decode(ids, skip_special_tokens=not options.special)
        found = {"ids": ids, "tokens": [tokenizer.piece(number) for number in ids], "text": text}
        print(json.dumps(found, ensure_ascii=False) if options.json else text)
    return 0


def _encoded(tokenizer: Tokenizer, text: str) -> dict[str, object]:
    ids, offsets = tokenizer.encode_with_offsets(text)
    tokens = [tokenizer.piece(number) for number in ids]
    return {"text": text, "tokens": tokens, "ids": ids, "offsets": offsets}


def _show(tokenizer: Tokenizer, text: str) -> None:
    ids, offsets = tokenizer.encode_with_offsets(text)
    numbers = [Column(name, justify="right") for name in ("id", "start", "end")]
    table = Table(Column("token", overflow="fold"), *numbers, Column("text", overflow="fold"))
    for number, (start, end) in zip(ids, offsets, strict=True):
        shown = _visible(text[start:end])
        table.add_row(escape(_visible(tokenizer.piece(number))), str(number), str(start), str(end), escape(shown))
    console = open_console()
    console.print(table)
    unknown = ids.count(tokenizer.unk_id)
    console.print(f"{len(text):,} characters, {len(ids):,} tokens" + f", {unknown:,} of them unknown" * bool(unknown))


def _visible(text: str) -> str:
    """Text with what has no shape written as escapes."""
    return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in text)


def _lines(missing: str) -> Iterator[str]:
    if sys.stdin.isatty():
        raise UsageError(missing, "is missing", "give one, or lines on standard input")
    number = 0
    for number, line in enumerate(sys.stdin.buffer, start=1):
        try:
            yield line.decode("utf-8").rstrip("\r\n")
        except UnicodeDecodeError as error:
            raise DamagedData(f"{STANDARD_INPUT}:{number}", "is not UTF-8") from error
    if not number:
        raise MissingInput(STANDARD_INPUT, "holds no line", f"give {missing}, or lines on standard input")


def _numbers(line: str) -> list[int]:
    words = line.replace(",", " ").replace("[", " ").replace("]", " ").split()
    for word in words:
        if not (word.isascii() and word.isdigit()):
            raise DamagedData(STANDARD_INPUT, f"{word[:40]!r} is no id", "lines of numbers are expected")
    return [int(word) for word in words]
