"""Training of the SentencePiece model, with the settings of the released English vocabulary.

Unigram; `<pad>` 0, `<unk>` 1, no sentence marks; [CLS], [SEP], [MASK] are control symbols that text never
produces; brackets, quotes, dashes, full stops and currency signs always stand alone (reference README).
"""

import hashlib
import heapq
import io
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import sentencepiece

from albert.runtime.errors import AlbertError, InvalidConfiguration, MissingInput
from albert.runtime.progress import progress
from albert.runtime.random_streams import stream_key
from albert.text.normalization import normalize
from albert.text.sentences import check_language, split_sentences

CONTROL_SYMBOLS = ["[CLS]", "[SEP]", "[MASK]"]
ALWAYS_ALONE = ["(", ")", '"', "-", ".", "–", "£", "€"]
LONGEST_SENTENCE = 4192  # bytes; SentencePiece would drop longer ones without a word
THREADS = 16  # a constant: sums of floats, hence the vocabulary, depend on it
COUNTED_CHARACTERS = 2_000_000
_RESERVED = re.compile("[\0▅]")  # SentencePiece refuses sentences with these


@dataclass(frozen=True)
class VocabularySettings:
    """How a vocabulary is trained.

    Attributes:
        vocab_size: number of pieces, the five special ones included.
        character_coverage: share of the characters' occurrences that gets pieces of its own.
        maximum_bytes: bytes of UTF-8 text used at most; of a larger corpus a sample of documents is drawn.
        maximum_sentences: sentences used at most; of more a sample is drawn. Memory grows with them.

    Raises:
        InvalidConfiguration: a number is out of range.
    """

    vocab_size: int = 30_000
    lower_case: bool = True
    keep_accents: bool = False
    character_coverage: float = 0.99995
    maximum_bytes: int = 100_000_000
    maximum_sentences: int = 2_000_000
    seed: int = 0
    language: str = "en"
    as_lines: bool = False

    def __post_init__(self) -> None:
        for name in ("vocab_size", "maximum_bytes", "maximum_sentences"):
            if getattr(self, name) < 1:
                raise InvalidConfiguration(name, f"{getattr(self, name)} is not positive")
        if not 0.98 <= self.character_coverage <= 1:  # SentencePiece's own bounds
            why = f"{self.character_coverage} is not between 0.98 and 1"
            raise InvalidConfiguration("character_coverage", why)
        check_language(self.language)


@dataclass
class TrainingReport:
    """How much text a vocabulary saw: all of it is counted, used or not."""

    documents_read: int = 0
    bytes_read: int = 0
    documents_used: int = 0
    bytes_used: int = 0
    sentences: int = 0
    sentences_used: int = 0
    sentences_cut: int = 0


def sample_documents(texts: Iterable[str], settings: VocabularySettings, report: TrainingReport) -> list[str]:
    """The documents with the smallest keyed hashes that fit into `settings.maximum_bytes` together.

    The sample, and its order, do not depend on the order of the documents.
    """
    key = stream_key("vocabulary sample", settings.seed).to_bytes(16, "little")
    kept: list[tuple[int, int, str]] = []  # a heap with the largest hash on top
    size, limit = 0, 1 << 64
    for text in texts:
        data = text.encode("utf-8", "surrogatepass")
        report.documents_read += 1
        report.bytes_read += len(data)
        rank = int.from_bytes(hashlib.blake2b(data, key=key, digest_size=8).digest(), "big")
        if rank >= limit:
            continue  # one with a smaller hash did not fit either
        heapq.heappush(kept, (-rank, len(data), text))
        size += len(data)
        while size > settings.maximum_bytes and len(kept) > 1:
            largest, length, _ = heapq.heappop(kept)
            size, limit = size - length, -largest
    report.documents_used, report.bytes_used = len(kept), size
    return [text for _, _, text in sorted(kept, reverse=True)]


def accents_per_million(documents: Sequence[str]) -> int:
    """How many accents, tone marks and vowel signs a million characters lose when accents are dropped.

    Counted in the first two million characters of a sample, which is in random order.
    """
    accents = characters = 0
    for document in documents:
        characters += len(document)
        if not document.isascii():
            accents += sum(unicodedata.combining(part) != 0 for part in unicodedata.normalize("NFKD", document))
        if characters >= COUNTED_CHARACTERS:
            break
    return round(1e6 * accents / max(characters, 1))


def train_model(documents: Sequence[str], settings: VocabularySettings, report: TrainingReport) -> bytes:
    """Train on documents and return the serialised model; equal documents in equal order give equal bytes.

    Raises:
        InvalidConfiguration: the text does not support that many pieces, or needs more of them.
        MissingInput: no text.
    """
    output = io.BytesIO()
    sentencepiece.set_random_generator_seed(settings.seed % 2**32)
    try:
        with progress("Training the vocabulary", total=len(documents), unit="documents") as bar:
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=_sentences(documents, settings, report, bar.advance, bar.note),
                model_writer=output,
                model_type="unigram",
                vocab_size=settings.vocab_size,
                pad_id=0,
                unk_id=1,
                bos_id=-1,
                eos_id=-1,
                control_symbols=CONTROL_SYMBOLS,
                user_defined_symbols=ALWAYS_ALONE,
                character_coverage=settings.character_coverage,
                input_sentence_size=settings.maximum_sentences,
                shuffle_input_sentence=True,
                max_sentence_length=LONGEST_SENTENCE,
                num_threads=THREADS,
                minloglevel=3,
            )
    except RuntimeError as error:
        raise _explained(settings.vocab_size, str(error), report) from error
    return output.getvalue()


def cut_to_bytes(text: str, limit: int) -> list[str]:
    """The text in pieces of at most `limit` (4 or more) bytes of UTF-8, cut at blanks where there are any."""
    pieces = []
    data = text.encode("utf-8")
    while len(data) > limit:
        end = data.rfind(b" ", 1, limit + 1)
        if end < 0:
            end = limit
            while data[end] & 0xC0 == 0x80:  # not inside a character
                end -= 1
        pieces.append(data[:end].decode("utf-8"))
        data = data[end:].lstrip(b" ")
    return [*pieces, data.decode("utf-8")] if data else pieces


def _sentences(
    documents: Sequence[str],
    settings: VocabularySettings,
    report: TrainingReport,
    advance: Callable[[], None],
    note: Callable[[str], None],
) -> Iterator[str]:
    for document in documents:
        for sentence in split_sentences(_RESERVED.sub(" ", document), settings.language, settings.as_lines):
            normalized = normalize(sentence, settings.lower_case, settings.keep_accents)
            pieces = cut_to_bytes(normalized, LONGEST_SENTENCE)
            report.sentences += len(pieces)
            report.sentences_cut += len(pieces) > 1
            yield from pieces
        advance()
    report.sentences_used = min(report.sentences, settings.maximum_sentences)
    note(f"{report.sentences:,} sentences read, SentencePiece at work")


def _explained(vocab_size: int, message: str, report: TrainingReport) -> AlbertError:
    subject = f"vocabulary of {vocab_size:,} pieces"
    if report.sentences == 0:
        return MissingInput("corpus", "holds no sentence to train a vocabulary on")
    if found := re.search(r"set it to a value <= (\d+)", message):
        largest = int(found.group(1))
        why, remedy = (
            f"this text supports {largest:,} at most",
            f"ask for {largest} or fewer, or give more text",
        )
        return InvalidConfiguration(subject, why, remedy)
    if found := re.search(r"smaller than required_chars\. \d+ vs (\d+)", message):
        least = int(found.group(1))
        why = f"the characters of this text alone need {least:,}"
        return InvalidConfiguration(subject, why, f"ask for more than {least}")
    said = " ".join(message.split("] ")[-1].split())
    return InvalidConfiguration(subject, f"SentencePiece cannot train it ({said})")
