"""`albert tokenizer` and `albert prepare`."""

import shlex
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from albert.api.keywords import Argument, Positional
from albert.api.options import Prepare, TrainTokenizer
from albert.api.text import preparation_rows, run_prepare, run_train_tokenizer, unknown_remarks
from albert.cli.options import CommandGroup, Subcommand
from albert.cli.render import bold_prefix, next_line, open_console, print_json, print_lines, table
from albert.runtime.errors import DamagedData, MissingInput, UsageError
from albert.runtime.files import new_directory
from albert.text.prepare import PreparationReport
from albert.text.tokenizer_loading import load_tokenizer


def prepare(args: Prepare) -> None:
    """Run `albert prepare`."""
    console = open_console()
    report = run_prepare(args).report
    headings, *rows = preparation_rows(report)
    lines = remarks(report)
    if report.splits["held_out"].documents == 0:
        lines.append("nothing is held out: the share is 0, all documents are equal, or there is a single sentence")
    elif report.held_out_fallback:
        what = {"document": "one document is", "sentences": "the last sentences of the only document are"}
        documents = f"{report.documents_in:,} document" + ("s" if report.documents_in != 1 else "")
        few = f"{args.held_out:.3g} of {documents} is less than one: {what[report.held_out_fallback]} held out"
        lines.append(f"{few}; --held-out 0 holds out nothing")
    ready = bold_prefix(args.output, " is ready")
    corpus = shlex.quote(str(args.output))
    following = next_line(f"pretrain small --data {corpus} --output runs/small --max-minutes 60")
    print_lines(console, table(None, headings, rows, boxed=True), *lines, ready, following)


def remarks(report: PreparationReport) -> list[str]:
    """Lines on speed, on documents that were left out, and on replaced characters."""
    rate = report.bytes_in / 1e6 / max(report.seconds, 1e-9)
    processes = "1 process" if report.workers == 1 else f"{report.workers} processes"
    lines = [f"{report.files:,} files in {report.seconds:,.1f} s, {rate:,.1f} MB/s with {processes}"]
    lines += [*unknown_remarks(report), *report.remarks()]
    for count, what in (
        (report.shards_found, "shards were finished before"),
        (report.sentences_dropped, "sentences without a token left out"),
    ):
        if count:
            lines.append(f"{count:,} {what}")
    return lines


# --------------------------------------------------------------------------------------------------------------------
# `albert verify`: files checked against their manifest.


@dataclass(frozen=True, kw_only=True)
class ConvertTokenizer:
    """Write the files of a tokenizer for transformers.AutoTokenizer, from a vocabulary in any form.

    Settings that are not given are those of the source. Other settings make another tokenizer, which does not fit
    models trained with the source.

    Example: albert tokenizer convert spiece.model --output tokenizer --accents keep
    """

    source: Positional[Path]
    """A directory with a tokenizer (a model has one), a spiece.model, vocab.txt or tokenizer.json."""
    output: Path
    """The directory to make."""
    case: Literal["lower", "keep"] | None = None
    """Lower-case capitals, or keep them."""
    accents: Literal["drop", "keep"] | None = None
    """Drop or keep accents."""
    replace: bool = False


def convert(args: ConvertTokenizer) -> None:
    """Run `albert tokenizer convert`."""
    tokenizer = load_tokenizer(
        args.source,
        lower_case=None if args.case is None else args.case == "lower",
        keep_accents=None if args.accents is None else args.accents == "keep",
    )
    with new_directory(args.output, replace=args.replace) as directory:
        tokenizer.save(directory)
    settings = [
        "letters are lower-cased" if tokenizer.lower_case else "capitals stay",
        "accents stay" if tokenizer.keep_accents else "accents are dropped",
    ]
    same = tokenizer.fingerprint == load_tokenizer(args.source).fingerprint
    fingerprint = f"its fingerprint is {'' if same else 'not '}that of the source"
    print(f"{args.output}: {tokenizer.vocab_size:,} pieces; {', '.join(settings)}; {fingerprint}")
    print(next_line(f'tokenizer encode --tokenizer {shlex.quote(str(args.output))} "This is a test"'))


# --------------------------------------------------------------------------------------------------------------------
# `albert tokenizer encode` and `decode`

STANDARD_INPUT = "standard input"


@dataclass(frozen=True, kw_only=True)
class Encode:
    """Show the pieces of a text, their ids and their positions in the text.

    Positions count characters; the text from START to END is the piece as it was written. Special pieces such as
    [MASK] are treated as text. Without TEXT the lines of standard input are read.

    Example: albert tokenizer encode --tokenizer tokenizer "This is a test"
    """

    text: Annotated[tuple[str, ...], Argument(positional=True, metavar="[TEXT...]")] = ()
    """One or several texts."""
    tokenizer: Path
    """A directory with a tokenizer (a model has one), a spiece.model, vocab.txt or tokenizer.json."""
    json: bool = False
    """Print one JSON object for each text instead of tables."""


@dataclass(frozen=True, kw_only=True)
class Decode:
    """Print the text of token ids, normalised as the model reads it. Without ID the lines of standard input are read.

    Example: albert tokenizer decode --tokenizer tokenizer 48 25 21 1289
    """

    ids: Annotated[tuple[int, ...], Argument(positional=True, metavar="[ID...]")] = ()
    """The ids of one text."""
    tokenizer: Path
    """A directory with a tokenizer (a model has one), a spiece.model, vocab.txt or tokenizer.json."""
    special: bool = False
    """Print special pieces such as [CLS]."""
    json: bool = False
    """Print one JSON object for each text."""


def encode(args: Encode) -> None:
    """Run `albert tokenizer encode`."""
    tokenizer = load_tokenizer(args.tokenizer)
    console = open_console()
    for number, text in enumerate(args.text or _lines("TEXT")):
        ids, offsets = tokenizer.encode_with_offsets(text)
        tokens = [tokenizer.piece(number) for number in ids]
        if args.json:
            print_json({"text": text, "tokens": tokens, "ids": ids, "offsets": offsets})
            continue
        rows = [
            (_visible(token), str(number), str(start), str(end), _visible(text[start:end]))
            for token, number, (start, end) in zip(tokens, ids, offsets, strict=True)
        ]
        unknown = ids.count(tokenizer.unk_id)
        counts = f"{len(text):,} characters, {len(ids):,} tokens" + f", {unknown:,} of them unknown" * bool(unknown)
        print("\n" * bool(number), end="")
        print_lines(
            console, table(None, ("token", "id", "start", "end", "text"), rows, words=(0, 4), boxed=True), counts
        )


def decode(args: Decode) -> None:
    """Run `albert tokenizer decode`."""
    tokenizer = load_tokenizer(args.tokenizer)
    for ids in [list(args.ids)] if args.ids else map(_numbers, _lines("ID")):
        for number in ids:
            if not 0 <= number < tokenizer.vocab_size:
                raise UsageError(f"id {number}", f"is not an id of this vocabulary, 0 to {tokenizer.vocab_size - 1}")
        text = tokenizer.decode(ids, skip_special_tokens=not args.special)
        values = {"ids": ids, "tokens": [tokenizer.piece(number) for number in ids], "text": text}
        if args.json:
            print_json(values)
        else:
            print(text)


def _visible(text: str) -> str:
    """Text with unprintable characters as escapes."""
    return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in text)


def _lines(argument: str) -> Iterator[str]:
    """The lines of standard input, which replace an argument."""
    if sys.stdin.isatty():
        raise UsageError(argument, "is missing", "give one, or lines on standard input")
    number = 0
    for number, line in enumerate(sys.stdin.buffer, start=1):
        try:
            yield line.decode("utf-8").rstrip("\r\n")
        except UnicodeDecodeError as error:
            raise DamagedData(f"{STANDARD_INPUT}:{number}", "is not UTF-8") from error
    if not number:
        raise MissingInput(STANDARD_INPUT, "is empty", f"give {argument}, or lines on standard input")


def _numbers(line: str) -> list[int]:
    words = line.replace(",", " ").replace("[", " ").replace("]", " ").split()
    for word in words:
        if not (word.isascii() and word.isdigit()):
            raise DamagedData(STANDARD_INPUT, f"{word[:40]!r} is not an id", "lines of numbers are expected")
    return [int(word) for word in words]


MANY_ACCENTS = 5_000
"""Accents per million characters. English text has some hundreds, German and Russian over ten thousand."""


def train(args: TrainTokenizer) -> None:
    """Run `albert tokenizer train`."""
    result = run_train_tokenizer(args, _note_accents)
    read = result.read
    used = result.used
    lines = [
        f"read {read.documents_in:,} documents, {read.bytes_in / 1e6:,.1f} MB of text, {read.files} files",
        *read.remarks(),
        f"used {used.documents_used:,} documents, {used.bytes_used / 1e6:,.1f} MB of text,"
        f" {min(used.sentences, args.sentences):,} of {used.sentences:,} sentences",
    ]
    if used.sentences_cut:
        lines.append(f"{used.sentences_cut:,} sentences too long for SentencePiece, cut")
    lines.append(f"{args.output}: {result.tokenizer.vocab_size:,} pieces in {result.seconds:,.0f} s")
    lines.append(next_line(f"prepare {args.words} --tokenizer {shlex.quote(str(args.output))} --output data"))
    print("\n".join(lines))


def _note_accents(per_million: int) -> None:
    if per_million >= MANY_ACCENTS:
        what = f"of every million characters, {per_million:,} accents and vowel signs are dropped"
        print(f"note: {what}; --keep-accents keeps them, for languages that need them", file=sys.stderr)


prepare_main = Subcommand(Prepare, "albert prepare", prepare)
_TOKENIZER_COMMANDS = {
    "train": Subcommand(TrainTokenizer, "albert tokenizer train", train),
    "encode": Subcommand(Encode, "albert tokenizer encode", encode),
    "decode": Subcommand(Decode, "albert tokenizer decode", decode),
    "convert": Subcommand(ConvertTokenizer, "albert tokenizer convert", convert),
}
tokenizer_main = CommandGroup("albert tokenizer", _TOKENIZER_COMMANDS)
