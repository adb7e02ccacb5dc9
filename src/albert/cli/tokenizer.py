"""`albert tokenizer`: train a vocabulary, encode and decode texts, convert a tokenizer's files."""

import json
import shlex
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro
from rich.markup import escape
from rich.table import Column, Table
from tyro.conf import Positional

from albert.api.options import TrainTokenizer
from albert.api.text import run_train_tokenizer
from albert.cli.options import Subcommand, dispatch, open_console, parse
from albert.runtime.errors import DamagedData, MissingInput, UsageError
from albert.runtime.files import new_directory
from albert.text.readers import CorpusReport
from albert.text.sentencepiece import TrainingReport
from albert.text.tokenizer import Tokenizer
from albert.text.tokenizer_loading import load_tokenizer

# --------------------------------------------------------------------------------------------------------------------
# `albert tokenizer convert`: a vocabulary in whichever form to all the files of a tokenizer.


@dataclass(frozen=True, kw_only=True)
class ConvertTokenizer:
    """Write the files of a tokenizer, which transformers.AutoTokenizer opens, from one in any form.

    What is not set stays as the source has it. Other settings make another tokenizer, and a model knows only the one it
    was trained with. "reference" gives the ids of ALBERT's own code (of BERT's, for WordPiece) where transformers gives
    others: numbers before a comma, quotes as `` and '', very long words. transformers itself has no such mode.

    Example: albert tokenizer convert spiece.model --output tokenizer --accents keep
    """

    source: Positional[Path]
    """A directory with a tokenizer (a model has one), a spiece.model, vocab.txt or tokenizer.json."""
    output: Path
    """The directory to make."""
    case: Literal["lower", "keep"] | None = None
    """What happens to capitals."""
    accents: Literal["drop", "keep"] | None = None
    """What happens to accents."""
    preprocessing: Literal["transformers", "reference"] | None = None
    """Whose ids text becomes, where the two differ."""
    replace: bool = False
    """Replace an existing output."""


def convert(arguments: list[str]) -> int:
    """Run `albert tokenizer convert`."""
    options = parse(ConvertTokenizer, arguments, "albert tokenizer convert")
    source = load_tokenizer(options.source)
    tokenizer = load_tokenizer(
        options.source,
        lower_case=None if options.case is None else options.case == "lower",
        keep_accents=None if options.accents is None else options.accents == "keep",
        reference=None if options.preprocessing is None else options.preprocessing == "reference",
    )
    with new_directory(options.output, replace=options.replace) as directory:
        tokenizer.save(directory)
    settings = [
        "letters are lower-cased" if tokenizer.lower_case else "capitals stay",
        "accents stay" if tokenizer.keep_accents else "accents are dropped",
        *(["the original code is followed, not transformers"] if tokenizer.reference else []),
    ]
    same = "that of the source" if tokenizer.fingerprint == source.fingerprint else "not that of the source"
    print(f"{options.output}: {tokenizer.vocab_size:,} pieces; {', '.join(settings)}; its fingerprint is {same}")
    print(f'next: albert tokenizer encode --tokenizer {shlex.quote(str(options.output))} "This is a test"')
    return 0


# --------------------------------------------------------------------------------------------------------------------
# `albert tokenizer encode` and `decode`: what a tokenizer makes of a text, piece by piece, and the way back.

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
            ids, offsets = tokenizer.encode_with_offsets(text)
            tokens = [tokenizer.piece(number) for number in ids]
            found = {"text": text, "tokens": tokens, "ids": ids, "offsets": offsets}
            print(json.dumps(found, ensure_ascii=False))
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
                raise UsageError(f"id {number}", f"is not an id of this vocabulary, 0 to {tokenizer.vocab_size - 1}")
        text = tokenizer.decode(ids, skip_special_tokens=not options.special)
        found = {"ids": ids, "tokens": [tokenizer.piece(number) for number in ids], "text": text}
        print(json.dumps(found, ensure_ascii=False) if options.json else text)
    return 0


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
            raise DamagedData(STANDARD_INPUT, f"{word[:40]!r} is not an id", "lines of numbers are expected")
    return [int(word) for word in words]


# --------------------------------------------------------------------------------------------------------------------
# `albert tokenizer train`: a SentencePiece vocabulary from text.

ACCENTS_WORTH_A_NOTE = 5_000
"""Per million characters. English text has some hundreds, German and Russian over ten thousand."""


def train(arguments: list[str]) -> int:
    """Run `albert tokenizer train`."""
    options = parse(TrainTokenizer, arguments, "albert tokenizer train")
    result = run_train_tokenizer(options, _tell_of_accents)
    _tell(options, result.tokenizer.vocab_size, result.read, result.used, result.seconds)
    return 0


def _tell_of_accents(per_million: int) -> None:
    if per_million >= ACCENTS_WORTH_A_NOTE:
        what = f"{per_million:,} accents and vowel signs are dropped of every million characters"
        print(f"note: {what}; --keep-accents keeps them, for languages that need them", file=sys.stderr)


def _tell(options: TrainTokenizer, pieces: int, read: CorpusReport, used: TrainingReport, seconds: float) -> None:
    lines = [
        f"read {read.documents_in:,} documents, {read.bytes_in / 1e6:,.1f} MB of text, {read.files} files",
        *read.remarks(),
        f"used {used.documents_used:,} documents, {used.bytes_used / 1e6:,.1f} MB of text,"
        f" {used.sentences_used:,} of {used.sentences:,} sentences",
    ]
    if used.sentences_cut:
        lines.append(f"{used.sentences_cut:,} sentences too long for SentencePiece, cut")
    lines.append(f"{options.output}: {pieces:,} pieces in {seconds:,.0f} s")
    lines.append(f"next: albert prepare {options.words} --tokenizer {shlex.quote(str(options.output))} --output data")
    print("\n".join(lines))


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

COMMANDS: dict[str, Subcommand] = {"train": train, "encode": encode, "decode": decode, "convert": convert}


def main(arguments: list[str]) -> int:
    """Run `albert tokenizer`."""
    return dispatch("albert tokenizer", USAGE, COMMANDS, arguments, "command")
