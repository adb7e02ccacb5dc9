"""`albert tokenizer train`: a SentencePiece vocabulary from text."""

import shlex
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from albert.cli.command_line import parse
from albert.cli.corpus_options import CorpusOptions
from albert.runtime.durable_files import new_directory
from albert.runtime.progress import progress
from albert.text.readers.corpus import read_corpus
from albert.text.readers.corpus_files import find_corpus_files
from albert.text.readers.reading import CorpusReport, Reading
from albert.text.unigram.sentencepiece_tokenizer import train_on_documents
from albert.text.unigram.vocabulary_training import (
    TrainingReport,
    VocabularySettings,
    accents_per_million,
    sample_documents,
)

ACCENTS_WORTH_A_NOTE = 5_000
"""Per million characters. English text has some hundreds, German and Russian over ten thousand."""


@dataclass(frozen=True, kw_only=True)
class TrainTokenizer(CorpusOptions):
    """Train a SentencePiece vocabulary (unigram, the settings of the released English models).

    The result holds spiece.model and tokenizer.json; transformers.AutoTokenizer opens it.

    Example: albert tokenizer train corpus/ --output tokenizer --vocab-size 30000
    """

    output: Path
    """The directory to make."""
    vocab_size: int = 30_000
    """Number of pieces, the five special ones included."""
    lower_case: bool = True
    """Lower-case letters, as the released models do."""
    keep_accents: bool = False
    """Keep accents, for languages that need them; the released English models drop them, and vowel signs with them."""
    character_coverage: float = 0.99995
    """Share of the characters' occurrences that gets pieces of its own; the rest is unknown."""
    megabytes: float = 100.0
    """Text used at most, in millions of bytes; of a larger corpus a sample of documents is drawn."""
    sentences: int = 2_000_000
    """Sentences used at most; memory grows with them."""
    seed: int = 0
    """Seed of both draws."""
    replace: bool = False
    """Replace an existing output."""


def train(arguments: list[str]) -> int:
    """Run `albert tokenizer train`."""
    options = parse(TrainTokenizer, arguments, "albert tokenizer train")
    settings = VocabularySettings(
        vocab_size=options.vocab_size,
        lower_case=options.lower_case,
        keep_accents=options.keep_accents,
        character_coverage=options.character_coverage,
        maximum_bytes=round(options.megabytes * 1e6),
        maximum_sentences=options.sentences,
        seed=options.seed,
        language=options.language,
        as_lines=options.sentences_as_lines,
    )
    begin = time.monotonic()
    size_on_disk = sum(file.size for file in find_corpus_files(options.paths).files)
    read, used = CorpusReport(), TrainingReport()
    with new_directory(options.output, replace=options.replace) as directory:
        with progress("Reading", total=size_on_disk / 1e6, unit="MB on disk") as bar:
            corpus = read_corpus(
                options.paths,
                Reading(**options.reading),
                report=read,
                advance=lambda amount: bar.advance(amount / 1e6),
            )
            documents = sample_documents((document.text for document in corpus), settings, used)
        if not options.keep_accents:
            _tell_of_accents(accents_per_million(documents))
        tokenizer = train_on_documents(documents, settings, used)
        tokenizer.save(directory)
    _tell(options, tokenizer.vocab_size, read, used, time.monotonic() - begin)
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
