"""Training of the SentencePiece model, with the settings of the released English vocabulary.

Unigram; `<pad>` 0, `<unk>` 1, no sentence marks; [CLS], [SEP], [MASK] are control symbols that text never produces;
brackets, quotes, dashes, full stops and currency signs always stand alone (reference README).
"""

import hashlib
import heapq
import io
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import sentencepiece

from albert.runtime.errors import AlbertError, InvalidConfiguration, MissingInput
from albert.runtime.randomness import stream_key
from albert.text.normalization import normalize
from albert.text.sentences import split_sentences

CONTROL_SYMBOLS = ["[CLS]", "[SEP]", "[MASK]"]
ALWAYS_ALONE = ["(", ")", '"', "-", ".", "–", "£", "€"]
LONGEST_SENTENCE = 4192  # bytes; SentencePiece would drop longer ones without a word
THREADS = 16  # a constant: sums of floats, hence the vocabulary, depend on it
_RESERVED = re.compile("[\0▅]")  # SentencePiece refuses sentences with these


@dataclass
class TrainingReport:
    """How much text a vocabulary saw: all of it is counted, used or not."""

    documents_read: int = 0
    bytes_read: int = 0
    documents_used: int = 0
    bytes_used: int = 0
    sentences: int = 0
    sentences_cut: int = 0


def sample_documents(
    texts: Iterable[str], maximum_bytes: int, seed: int, report: TrainingReport
) -> list[str]:
    """The documents with the smallest keyed hashes that fit into `maximum_bytes` of UTF-8 together.

    The sample, and its order, do not depend on the order of the documents.
    """
    key = stream_key("vocabulary sample", seed).to_bytes(16, "little")
    kept: list[tuple[int, int, str]] = []  # a heap with the largest hash on top
    size = 0
    for text in texts:
        data = text.encode("utf-8", "surrogatepass")
        report.documents_read += 1
        report.bytes_read += len(data)
        rank = int.from_bytes(hashlib.blake2b(data, key=key, digest_size=8).digest(), "big")
        heapq.heappush(kept, (-rank, len(data), text))
        size += len(data)
        while size > maximum_bytes and len(kept) > 1:
            size -= heapq.heappop(kept)[1]
    report.documents_used, report.bytes_used = len(kept), size
    return [text for _, _, text in sorted(kept, reverse=True)]


def train_model(
    documents: Iterable[str],
    vocab_size: int,
    *,
    lower_case: bool,
    keep_accents: bool,
    character_coverage: float,
    input_sentence_size: int,
    seed: int,
    language: str,
    report: TrainingReport,
) -> bytes:
    """Train on documents and return the serialised model; equal input gives equal bytes.

    Raises:
        InvalidConfiguration: the text does not support that many pieces, or needs more of them.
        MissingInput: no text.
    """
    sentences = _sentences(documents, lower_case, keep_accents, language, report)
    output = io.BytesIO()
    sentencepiece.set_random_generator_seed(seed % 2**32)
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=sentences,
            model_writer=output,
            model_type="unigram",
            vocab_size=vocab_size,
            pad_id=0,
            unk_id=1,
            bos_id=-1,
            eos_id=-1,
            control_symbols=CONTROL_SYMBOLS,
            user_defined_symbols=ALWAYS_ALONE,
            character_coverage=character_coverage,
            input_sentence_size=input_sentence_size,
            shuffle_input_sentence=True,
            max_sentence_length=LONGEST_SENTENCE,
            num_threads=THREADS,
            minloglevel=3,
        )
    except RuntimeError as error:
        raise _explained(vocab_size, str(error), report) from error
    return output.getvalue()


def cut_to_bytes(text: str, limit: int) -> list[str]:
    """The text in pieces of at most `limit` bytes of UTF-8, cut at blanks where there are any."""
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
    return [*pieces, data.decode("utf-8")]


def _sentences(
    documents: Iterable[str], lower_case: bool, keep_accents: bool, language: str, report: TrainingReport
) -> Iterator[str]:
    for document in documents:
        for sentence in split_sentences(_RESERVED.sub(" ", document), language):
            normalized = normalize(sentence, lower_case, keep_accents)
            if not normalized:
                continue
            pieces = (
                cut_to_bytes(normalized, LONGEST_SENTENCE)
                if len(normalized) * 4 > LONGEST_SENTENCE
                else [normalized]
            )
            report.sentences += len(pieces)
            report.sentences_cut += len(pieces) > 1
            yield from pieces


def _explained(vocab_size: int, message: str, report: TrainingReport) -> AlbertError:
    subject = f"vocabulary of {vocab_size:,} pieces"
    if report.sentences == 0:
        return MissingInput("corpus", "holds no sentence to train a vocabulary on")
    if found := re.search(r"set it to a value <= (\d+)", message):
        largest = int(found.group(1))
        return InvalidConfiguration(
            subject,
            f"this text supports {largest:,} at most",
            f"ask for {largest} or fewer, or give more text",
        )
    if found := re.search(r"smaller than required_chars\. \d+ vs (\d+)", message):
        least = int(found.group(1))
        return InvalidConfiguration(
            subject, f"the characters of this text alone need {least:,}", f"ask for more than {least}"
        )
    return InvalidConfiguration(
        subject, "SentencePiece cannot train it: " + message.split("] ")[-1].replace("\n", " ")
    )
