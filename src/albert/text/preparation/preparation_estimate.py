"""What preparing a corpus will take: a sample is read, split and encoded, and the rest is rule of three.

The sample is the beginning of some files, spread evenly over the corpus by bytes on disk.
"""

import itertools
import time
from collections.abc import Sequence
from dataclasses import dataclass

from albert.runtime.errors import MissingInput, UsageError
from albert.runtime.progress import progress
from albert.text.preparation.duplicate_fingerprints import fingerprint_arrays
from albert.text.preparation.shard_encoding import token_type
from albert.text.preparation.unit_preparation import PreparationSettings
from albert.text.readers.corpus import read_files
from albert.text.readers.corpus_files import CorpusFile
from albert.text.readers.reading import CorpusReport
from albert.text.sentences import split_sentences
from albert.text.tokenizer import Tokenizer

SAMPLE_BYTES = 8_000_000
PLACES = 32
BYTES_OF_LENGTH = 4
"""On disk, of a sentence and of a document."""


@dataclass(frozen=True)
class PreparationEstimate:
    """Numbers of the whole corpus, from a sample of it.

    Attributes:
        files, bytes_on_disk: of the corpus, exact.
        sample_bytes: text that was read for it.
        documents, text_bytes, sentences, tokens: estimated, duplicates included.
        output_bytes: of the prepared corpus.
        seconds: of preparing it with `workers` processes of this machine.
    """

    files: int
    bytes_on_disk: int
    sample_bytes: int
    documents: float
    text_bytes: float
    sentences: float
    tokens: float
    output_bytes: float
    seconds: float
    workers: int


def estimate_preparation(
    files: Sequence[CorpusFile], tokenizer: Tokenizer, settings: PreparationSettings, workers: int
) -> PreparationEstimate:
    """Estimate what preparing some files takes.

    Raises:
        MissingInput: there is no text in the sample.
        UsageError: a data set of the Hub, whose size nobody knows.
        DamagedData, UsageError: as when it is read.
    """
    total = sum(file.size for file in files)
    if unknown := next((file.name for file in files if file.kind == "Hub dataset"), None):
        raise UsageError(unknown, "its size is not known before it is read, so there is no plan")
    sampled = _spread(files, total)
    room = SAMPLE_BYTES // len(sampled)
    documents = text_bytes = sentences = tokens = on_disk = 0
    reading = encoding = comparing = 0.0
    with progress("Looking at a sample", total=len(sampled), unit="files") as bar:
        for file in sampled:
            begin = time.perf_counter()
            texts, read = _beginning(file, settings, room)
            reading += time.perf_counter() - begin
            size = sum(len(text.encode("utf-8", "surrogatepass")) for text in texts)
            begin = time.perf_counter()
            rules = settings.language, settings.as_lines
            split = [sentence for text in texts for sentence in split_sentences(text, *rules)]
            tokens += sum(map(len, tokenizer.encode_batch(split)))
            encoding += time.perf_counter() - begin
            if settings.duplicates != "keep":
                begin = time.perf_counter()
                fingerprint_arrays(texts, settings.duplicates == "near")
                comparing += time.perf_counter() - begin
            documents, text_bytes, sentences = documents + len(texts), text_bytes + size, sentences + len(split)
            on_disk += read
            bar.advance()
    if not tokens:
        raise MissingInput(files[0].path if len(files) == 1 else "corpus", "there is no text in a sample of it")
    more = total / max(on_disk, 1)
    # One process reads for all where there are few files; reading and encoding overlap.
    stages = [encoding] if settings.duplicates == "keep" else [comparing, encoding]
    seconds = more * sum(max(reading, (reading + work) / workers) for work in stages)
    lengths = BYTES_OF_LENGTH * (sentences + documents)
    return PreparationEstimate(
        files=len(files),
        bytes_on_disk=total,
        sample_bytes=text_bytes,
        documents=more * documents,
        text_bytes=more * text_bytes,
        sentences=more * sentences,
        tokens=more * tokens,
        output_bytes=more * (tokens * token_type(tokenizer.vocab_size).itemsize + lengths),
        seconds=seconds,
        workers=workers,
    )


def _spread(files: Sequence[CorpusFile], total: int) -> list[CorpusFile]:
    """At most `PLACES` files, those that hold evenly spaced bytes of the corpus."""
    ends = list(itertools.accumulate(file.size for file in files))
    chosen: list[CorpusFile] = []
    place = 0
    for number in range(PLACES):
        wanted = (number + 0.5) * total / PLACES
        while place < len(files) - 1 and ends[place] <= wanted:
            place += 1
        if not chosen or chosen[-1] is not files[place]:
            chosen.append(files[place])
    return chosen


def _beginning(file: CorpusFile, settings: PreparationSettings, room: int) -> tuple[list[str], int]:
    """The first documents of a file, up to some bytes of text, and how many bytes on disk they took."""
    report, texts, size = CorpusReport(), [], 0
    consumed: list[int] = []
    documents = read_files([file], settings, report=report, advance=consumed.append)
    for document in documents:
        texts.append(document.text)
        size += len(document.text)
        if size >= room:
            break
    else:
        return texts, file.size
    return texts, sum(consumed) or min(file.size, size)
