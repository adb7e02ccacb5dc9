"""`albert tokenizer` and `albert.tokenizer.train`: train a vocabulary, encode and decode text, convert a vocabulary."""

import os
import shlex
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from albert.cli.command_line import CommandGroup
from albert.cli.main import imports
from albert.cli.render import next_line, open_console, print_json, print_lines, table
from albert.cli.signature import PathLike
from albert.commands.function import command, on_command_line
from albert.commands.prepare import Corpus, TextOptions, names_of
from albert.report.display import Displayable
from albert.runtime.errors import DamagedData, MissingInput, UsageError, without_inner_frames
from albert.runtime.files import new_directory
from albert.runtime.progress import progress
from albert.runtime.words import bytes_of, counted, kind_of_value
from albert.text.readers import BadUtf8, DocumentBoundary, Reading
from albert.text.tokenizer import Tokenizer
from albert.text.tokenizer_loading import load_tokenizer
from albert.text.wrapping import Wrapped

if TYPE_CHECKING:
    from albert.text.readers import CorpusReport
    from albert.text.sentencepiece import TrainingReport

MANY_ACCENTS = 5_000
"""Accents per million characters. English text has some hundreds, German and Russian over ten thousand."""


@command("albert tokenizer train", rows="beside output")
def train(
    corpus: Corpus,
    *,
    output: PathLike,
    text_field: str = Reading.text_field,
    documents: DocumentBoundary = Reading.documents,
    sentences_as_lines: bool = False,
    wrapped: Wrapped = "auto",
    language: str = "en",
    bad_utf8: BadUtf8 = Reading.bad_utf8,
    vocab_size: int = 30_000,
    keep_case: bool = False,
    keep_accents: bool = False,
    character_coverage: float = 0.99995,
    megabytes: float = 100.0,
    sentences: int = 2_000_000,
    seed: int = 0,
    replace: bool = False,
) -> "TokenizerResult":
    """Train a SentencePiece vocabulary (unigram, the settings of the released English models).

    The result contains spiece.model and tokenizer.json; transformers.AutoTokenizer opens it.

    Example: albert tokenizer train corpus/ --output tokenizer --vocab-size 30000

    Args:
        corpus: Files, folders or patterns: .txt, .jsonl, .json, .csv, .tsv, .xlsx, .parquet, packed as .gz, .bz2, .xz
            or .zst; a folder that `datasets` saved; or hf://OWNER/NAME[/CONFIG][@REVISION]:SPLIT on the Hub.
        output: The directory to create.
        vocab_size: Number of pieces, including the five special ones.
        keep_case: Keep capitals, which the released models lower-case.
        keep_accents: Keep accents, for languages that need them; the released English models drop accents and vowel
            signs.
        character_coverage: Share of all characters that the vocabulary covers; the rest is unknown.
        megabytes: Maximum amount of text, in millions of bytes; of a larger corpus a sample of documents is drawn.
        sentences: Maximum number of sentences, at least 101; memory grows with it.
        seed: Seed of both samples.
    """
    with imports():
        from albert.text.corpus import find_corpus_files, read_corpus
        from albert.text.normalization import lower_case_note
        from albert.text.readers import CorpusReport
        from albert.text.sentencepiece import (
            TrainingReport,
            VocabularySettings,
            accents_per_million,
            sample_documents,
            train_on_documents,
        )

    text = TextOptions(
        text_field=text_field,
        documents=documents,
        sentences_as_lines=sentences_as_lines,
        wrapped=wrapped,
        language=language,
        bad_utf8=bad_utf8,
    )
    output = Path(output)
    names = names_of(corpus)
    settings = VocabularySettings(
        vocab_size=vocab_size,
        lower_case=not keep_case,
        keep_accents=keep_accents,
        character_coverage=character_coverage,
        maximum_bytes=round(megabytes * 1e6),
        maximum_sentences=sentences,
        seed=seed,
        language=language,
        as_lines=sentences_as_lines,
        wrapped=wrapped,
    )
    begin = time.monotonic()
    paths = [Path(name) for name in names]
    on_disk = sum(file.size for file in find_corpus_files(paths).files) / 1e6
    read = CorpusReport()
    used = TrainingReport()
    with new_directory(output, replace=replace) as directory:
        with progress("Reading", total=on_disk, unit="MB on disk") as bar:
            reading = Reading(**text.reading)
            documents_read = read_corpus(paths, reading, report=read, advance=lambda size: bar.advance(size / 1e6))
            sampled = sample_documents(documents_read, settings, used)
        if not keep_accents:
            accents = accents_per_million(sampled)
            if accents >= MANY_ACCENTS:
                what = f"of every million characters, {accents:,} accents and vowel signs are dropped"
                print(f"albert: note: {what}; --keep-accents keeps them, for languages that need them", file=sys.stderr)
        note = lower_case_note(language, not keep_case, keep_accents)
        if note is not None:
            print(f"albert: note: {note}", file=sys.stderr)
        trained = train_on_documents(sampled, settings, used)
        trained.save(directory)
    read.lines = used.lines
    return TokenizerResult(
        output=output,
        tokenizer=trained,
        read=read,
        used=used,
        sentences=sentences,
        seconds=time.monotonic() - begin,
        following=f"prepare {text.command_line(names)} --tokenizer {shlex.quote(str(output))} --output data",
    )


@dataclass(frozen=True, repr=False, kw_only=True)
class TokenizerResult(Displayable):
    """A trained tokenizer, and counts of the text that was read and used.

    Attributes:
        sentences: the maximum number of sentences.
        following: the command that prepares the same text.
    """

    output: Path
    tokenizer: Tokenizer
    read: "CorpusReport"
    used: "TrainingReport"
    sentences: int
    seconds: float
    following: str

    def title(self) -> str:
        return f"TokenizerResult: {self.tokenizer.vocab_size:,} pieces in {self.output}"

    def rows(self) -> list[tuple[str, ...]]:
        documents = ("documents", f"{self.read.documents_in:,}", f"{self.used.documents_used:,}")
        megabytes = ("MB of text", f"{self.read.bytes_in / 1e6:,.2f}", f"{self.used.bytes_used / 1e6:,.2f}")
        return [("", "read", "used"), documents, megabytes]

    def remarks(self) -> list[str]:
        return self.read.remarks()


def show_trained(result: TokenizerResult) -> None:
    """Print what was read and used."""
    read = result.read
    used = result.used
    documents = counted(read.documents_in, "documents")
    print(f"read {documents}, {bytes_of(read.bytes_in)} of text, {counted(read.files, 'files')}")
    for line in read.remarks():
        print(line)
    sentences = f"{min(used.sentences, result.sentences):,} of {used.sentences:,} sentences"
    print(f"used {counted(used.documents_used, 'documents')}, {bytes_of(used.bytes_used)} of text, {sentences}")
    if used.sentences_cut:
        print(f"{counted(used.sentences_cut, 'sentences')} too long for SentencePiece, cut")
    print(f"{result.output}: {result.tokenizer.vocab_size:,} pieces in {result.seconds:,.0f} s")
    print(next_line(result.following))


@command("albert tokenizer encode")
def encode(
    text: str | Sequence[str] = (),
    *,
    tokenizer: PathLike,
    json: bool = False,
) -> None:
    """Show the pieces of a text, their ids and their positions in the text.

    Positions count characters; the text from START to END is the piece as it was written. Special pieces such as
    [MASK] are treated as text. Without TEXT the lines of standard input are read.

    Example: albert tokenizer encode --tokenizer tokenizer "This is a test"

    Args:
        text: One or several texts.
        tokenizer: A directory with a tokenizer (a model has one), a spiece.model, vocab.txt or tokenizer.json.
        json: Print one JSON object for each text instead of tables.
    """
    opened = load_tokenizer(Path(tokenizer))
    console = open_console()
    for number, each in enumerate([text] if isinstance(text, str) else text or input_lines("TEXT")):
        ids, offsets = opened.encode_with_offsets(each)
        tokens = [opened.piece(piece) for piece in ids]
        if json:
            print_json({"text": each, "tokens": tokens, "ids": ids, "offsets": offsets})
            continue
        rows = [
            (visible(token), str(piece), str(start), str(end), visible(each[start:end]))
            for token, piece, (start, end) in zip(tokens, ids, offsets, strict=True)
        ]
        drawn = table(None, ("token", "id", "start", "end", "text"), rows, words=(0, 4), boxed=True)
        counts = f"{counted(len(each), 'characters')}, {counted(len(ids), 'tokens')}"
        unknown = ids.count(opened.unk_id)
        if unknown:
            counts += f", {unknown:,} of them unknown"
        if number:
            print()
        print_lines(console, drawn, counts)


@command("albert tokenizer decode")
def decode(
    ids: Sequence[int] = (),
    *,
    tokenizer: PathLike,
    special: bool = False,
    json: bool = False,
) -> None:
    """Print the text of token ids, normalised as the model reads it. Without ID the lines of standard input are read.

    Example: albert tokenizer decode --tokenizer tokenizer 48 25 21 1289

    Args:
        ids: The ids of one text.
        tokenizer: A directory with a tokenizer (a model has one), a spiece.model, vocab.txt or tokenizer.json.
        special: Print special pieces such as [CLS].
        json: Print one JSON object for each text.
    """
    opened = load_tokenizer(Path(tokenizer))
    for each in [list(ids)] if ids else map(numbers_of, input_lines("ID")):
        for piece in each:
            if not 0 <= piece < opened.vocab_size:
                raise UsageError(f"id {piece}", f"is not an id of this vocabulary, 0 to {opened.vocab_size - 1}")
        text = opened.decode(each, skip_special_tokens=not special)
        if json:
            print_json({"ids": each, "tokens": [opened.piece(piece) for piece in each], "text": text})
        else:
            print(text)


@command("albert tokenizer convert")
def convert(
    source: PathLike,
    *,
    output: PathLike,
    keep_case: bool | None = None,
    keep_accents: bool | None = None,
    replace: bool = False,
) -> None:
    """Write the files of a tokenizer for transformers.AutoTokenizer, from a vocabulary in any form.

    Settings that are not given are those of the source. Other settings make another tokenizer, which does not fit
    models trained with the source.

    Example: albert tokenizer convert spiece.model --output tokenizer --keep-accents

    Args:
        source: A directory with a tokenizer (a model has one), a spiece.model, vocab.txt or tokenizer.json.
        output: The directory to make.
        keep_case: Keep capitals; false lower-cases them.
        keep_accents: Keep accents; false drops them.
    """
    source = Path(source)
    output = Path(output)
    converted = load_tokenizer(
        source,
        lower_case=None if keep_case is None else not keep_case,
        keep_accents=keep_accents,
    )
    with new_directory(output, replace=replace) as directory:
        converted.save(directory)
    settings = [
        "letters are lower-cased" if converted.lower_case else "capitals stay",
        "accents stay" if converted.keep_accents else "accents are dropped",
    ]
    same = converted.fingerprint == load_tokenizer(source).fingerprint
    fingerprint = f"its fingerprint is {'' if same else 'not '}that of the source"
    print(f"{output}: {converted.vocab_size:,} pieces; {', '.join(settings)}; {fingerprint}")
    print(next_line(f'tokenizer encode --tokenizer {shlex.quote(str(output))} "This is a test"'))


STANDARD_INPUT = "standard input"


def input_lines(argument: str) -> Iterator[str]:
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


def numbers_of(line: str) -> list[int]:
    """The ids on a line; commas and brackets between them are ignored."""
    words = line.replace(",", " ").replace("[", " ").replace("]", " ").split()
    for word in words:
        if not (word.isascii() and word.isdigit()):
            raise DamagedData(STANDARD_INPUT, f"{word[:40]!r} is not an id", "lines of numbers are expected")
    return [int(word) for word in words]


def visible(text: str) -> str:
    """Text with unprintable characters as escapes."""
    return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in text)


@without_inner_frames("albert.tokenizer.load")
def load(path: PathLike) -> Tokenizer:
    """Open a tokenizer: a directory with one (a model has one), a spiece.model, vocab.txt or tokenizer.json.

    Raises:
        UsageError: neither text nor a path.
        MissingInput, DamagedData: there is none, or it is damaged.
    """
    if not isinstance(path, str | os.PathLike):
        raise UsageError("albert.tokenizer.load: path", f"is {kind_of_value(path)}, a path is expected")
    return load_tokenizer(Path(path))


tokenizer_main = CommandGroup(
    "albert tokenizer",
    {
        "train": on_command_line(train, show_trained),
        "encode": on_command_line(encode),
        "decode": on_command_line(decode),
        "convert": on_command_line(convert),
    },
)
