"""ALBERT's tokenizer: SentencePiece unigram after normalisation, with offsets into the original text; its training.

`SentencePieceTokenizer` encodes and decodes, `train_tokenizer` trains one. Other functions parse, check and rebuild the
serialised SentencePiece model."""

import base64
import hashlib
import heapq
import io
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import sentencepiece
from google.protobuf.message import DecodeError
from jaxtyping import Bool, Float64, Int32, Int64
from sentencepiece import sentencepiece_model_pb2 as model_format

from albert.runtime.errors import AlbertError, DamagedData, InvalidConfiguration, MissingInput, require_range
from albert.runtime.files import write_bytes
from albert.runtime.json_files import save_json
from albert.runtime.progress import Bar, progress
from albert.runtime.random_streams import stream_key
from albert.runtime.words import plain
from albert.text.normalization import normalize
from albert.text.readers import split_bytes
from albert.text.sentences import check_language, split_sentences
from albert.text.tokenizer import (
    BLANK,
    CONFIG_NAME,
    JSON_NAME,
    MAXIMUM_LENGTH,
    MODEL_NAME,
    SPECIAL_PIECES,
    SPECIAL_TOKENS_NAME,
    Encoded,
    Tokenizer,
    begins_word,
    content_fingerprint,
    tokenizer_json,
)
from albert.text.word_cache import WordIds, WordSpans, encode_joined, encode_texts_with_offsets
from albert.text.wrapping import LineCounts, Wrapped

# --------------------------------------------------------------------------------------------------------------------
# Training, with the settings of the released English vocabulary (reference README): unigram; <pad> 0, <unk> 1, no
# sentence marks; [CLS], [SEP], [MASK] are control symbols that text never produces; brackets, quotes, dashes, full
# stops and currency signs are always pieces of their own.

CONTROL_SYMBOLS = ["[CLS]", "[SEP]", "[MASK]"]
ALWAYS_ALONE = ["(", ")", '"', "-", ".", "–", "£", "€"]
MAX_SENTENCE_LENGTH = 4192  # bytes; SentencePiece silently drops longer ones
THREADS = 16  # constant, because sums of floats, and so the vocabulary, depend on it
COUNTED_CHARACTERS = 2_000_000
_RESERVED = re.compile("[\0▅]")  # SentencePiece rejects sentences with these


@dataclass(frozen=True)
class VocabularySettings:
    """Settings for training a vocabulary.

    Attributes:
        character_coverage: share of all characters of the text that get a piece.
        maximum_bytes: of UTF-8 text; from a larger corpus documents are sampled.
        maximum_sentences: from more, sentences are sampled. Memory grows with them.
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
    wrapped: Wrapped = "auto"

    def __post_init__(self) -> None:
        require_range(self, "at least 1", "vocab_size")
        if self.maximum_bytes < 1:
            raise InvalidConfiguration("megabytes", f"is {self.maximum_bytes / 1e6:g}, a number above 0 is needed")
        if self.maximum_sentences <= 100:  # SentencePiece's own bounds, here and below
            raise InvalidConfiguration("sentences", f"is {self.maximum_sentences}, at least 101 is needed")
        if not 0.98 <= self.character_coverage <= 1:
            why = f"is {plain(self.character_coverage)}, a share from 0.98 to 1 is needed"
            raise InvalidConfiguration("character_coverage", why)
        check_language(self.language)


@dataclass
class TrainingReport:
    """Counts of the text that a vocabulary was trained on."""

    documents_used: int = 0
    bytes_used: int = 0
    sentences: int = 0
    sentences_cut: int = 0
    lines: LineCounts = field(default_factory=LineCounts)


def sample_documents(texts: Iterable[str], settings: VocabularySettings, report: TrainingReport) -> list[str]:
    """Return the documents with the smallest keyed hashes that fit into `settings.maximum_bytes`, in a random order.

    The result does not depend on the order of the documents.
    """
    key = stream_key("vocabulary sample", settings.seed).to_bytes(16, "little")
    sample: list[tuple[int, int, str]] = []  # a heap with the largest hash on top
    size = 0
    limit = 1 << 64
    for text in texts:
        data = text.encode("utf-8", "surrogatepass")
        rank = int.from_bytes(hashlib.blake2b(data, key=key, digest_size=8).digest(), "big")
        if rank >= limit:
            continue  # a document with a smaller hash did not fit
        heapq.heappush(sample, (-rank, len(data), text))
        size += len(data)
        while size > settings.maximum_bytes and len(sample) > 1:
            largest, length, _ = heapq.heappop(sample)
            size = size - length
            limit = -largest
    report.documents_used = len(sample)
    report.bytes_used = size
    return [text for _, _, text in sorted(sample, reverse=True)]


def accents_per_million(documents: Sequence[str]) -> int:
    """Return how many accents, tone marks and vowel signs a million characters have.

    Only the first two million characters are counted; the documents of a sample are in random order.
    """
    accents = 0
    characters = 0
    for document in documents:
        characters += len(document)
        if not document.isascii():
            accents += sum(unicodedata.combining(part) != 0 for part in unicodedata.normalize("NFKD", document))
        if characters >= COUNTED_CHARACTERS:
            break
    return round(1e6 * accents / max(characters, 1))


def _sentences(
    documents: Sequence[str], settings: VocabularySettings, report: TrainingReport, bar: Bar
) -> Iterator[str]:
    for document in documents:
        text = _RESERVED.sub(" ", document)
        for sentence in split_sentences(text, settings.language, settings.as_lines, settings.wrapped, report.lines):
            normalized = normalize(sentence, settings.lower_case, settings.keep_accents)
            parts = list(split_bytes(io.BytesIO(normalized.encode("utf-8")).read, MAX_SENTENCE_LENGTH))
            parts = [part for each in parts if (part := each.decode("utf-8").strip())]
            report.sentences += len(parts)
            report.sentences_cut += len(parts) > 1
            yield from parts
        bar.advance()
    bar.note(f"{report.sentences:,} sentences read, SentencePiece at work")


def _training_error(vocab_size: int, message: str, report: TrainingReport) -> AlbertError:
    """Translate an error of SentencePiece's trainer."""
    subject = f"vocabulary of {vocab_size:,} pieces"
    if report.sentences == 0:
        return MissingInput("corpus", "holds no sentence to train a vocabulary on")
    match = re.search(r"set it to a value <= (\d+)", message)
    if match:
        why = f"this text has enough for {int(match[1]):,} at most"
        return InvalidConfiguration(subject, why, f"write --vocab-size {match[1]} or less, or give more text")
    match = re.search(r"smaller than required_chars\. \d+ vs (\d+)", message)
    if match:
        why = f"the characters of this text alone need {int(match[1]):,}"
        return InvalidConfiguration(subject, why, f"write --vocab-size {int(match[1]) + 1} or more")
    message = " ".join(message.split("] ")[-1].split())
    return InvalidConfiguration(subject, f"SentencePiece cannot train it ({message})")


# ---- The serialised SentencePiece model ----------------------------------------------------------------------------

UNIGRAM = 1  # TrainerSpec.ModelType of the SentencePiece format
NORMAL = 1  # SentencePiece.Type of the format
UNKNOWN = 2
CONTROL = 3
USER_DEFINED = 4
DIGIT_COMMA_PENALTY = 100.0  # log-probability; larger than that of any learned piece
REBUILT_FROM = "tokenizer.json"  # TrainerSpec.input of a model built by `build_model`


def parse_model(model: bytes, source: str) -> Any:
    """Parse and check a serialised model of ALBERT; returns a SentencePiece `ModelProto`."""
    proto = parse_unigram(model, source)
    require_special_pieces([entry.piece for entry in proto.pieces[: len(SPECIAL_PIECES)]], source)
    return proto


def parse_unigram(model: bytes, source: str) -> Any:
    """Parse a serialised unigram model with any pieces; returns a SentencePiece `ModelProto`."""
    proto = _new_model()
    try:
        proto.ParseFromString(model)
    except DecodeError as error:
        raise DamagedData(source, "is not a SentencePiece model") from error
    if not all(isinstance(entry.piece, str) for entry in proto.pieces):  # invalid UTF-8 is returned as bytes
        raise DamagedData(source, "has a piece that is not text")
    if proto.trainer_spec.model_type != UNIGRAM:
        raise DamagedData(source, "is not a unigram model", "vocabularies of ALBERT and XLM-R are")
    return proto


def require_special_pieces(first_pieces: Sequence[str], source: str) -> None:
    """Raise DamagedData unless a vocabulary begins with the special pieces of the released models."""
    if tuple(first_pieces) != SPECIAL_PIECES:
        raise DamagedData(source, "is not an ALBERT vocabulary", "its first pieces must be " + " ".join(SPECIAL_PIECES))


def penalize_digit_comma_pieces(proto: Any, model: bytes) -> bytes:
    """Give pieces like "2010," a score so low that they are never chosen, as transformers does.

    The reference splits them again after encoding (and misplaces a blank under Python 3). A low score needs no second
    pass, and gives SentencePiece and `tokenizer.json` the same ids.
    """
    changed = False
    for entry in proto.pieces:
        if is_choosable_digit_comma(entry.piece, entry.score):
            entry.score -= DIGIT_COMMA_PENALTY
            changed = True
    return proto.SerializeToString(deterministic=True) if changed else model


def is_choosable_digit_comma(piece: str, score: float) -> bool:
    """Return whether a piece is like "2010," and has not got the low score."""
    return is_digit_comma(piece) and score > -DIGIT_COMMA_PENALTY


def is_digit_comma(piece: str) -> bool:
    """Return whether a piece is a digit and a comma at the end, like "2010,"."""
    return len(piece) > 1 and piece[-1] == "," and piece[-2].isdigit()


def build_model(vocabulary: Sequence[tuple[str, float]], character_map: bytes) -> bytes:
    """Return the serialised model of a unigram vocabulary.

    A vocabulary does not say which pieces were user-defined symbols: single characters with score 0 (no learned piece
    has it) that are in no other piece. Marking them changes no id, and restores the types of the trained model.

    Args:
        vocabulary: pieces with log-probabilities, the special pieces first.
        character_map: SentencePiece's compiled normalisation; empty for none.
    """
    proto = _new_model()
    proto.trainer_spec.model_type = UNIGRAM
    proto.trainer_spec.input.append(REBUILT_FROM)
    proto.trainer_spec.vocab_size = len(vocabulary)
    proto.trainer_spec.pad_id = 0
    proto.trainer_spec.unk_id = 1
    proto.trainer_spec.bos_id = proto.trainer_spec.eos_id = -1
    proto.normalizer_spec.name = "nmt_nfkc" if character_map else "identity"
    proto.normalizer_spec.precompiled_charsmap = character_map
    pieces_with = Counter(letter for piece, _ in vocabulary[len(SPECIAL_PIECES) :] for letter in set(piece))
    for number, (piece, score) in enumerate(vocabulary):
        kind = NORMAL
        if number < len(SPECIAL_PIECES):
            kind = UNKNOWN if number == 1 else CONTROL
        elif score == 0 and pieces_with[piece] == 1:
            kind = USER_DEFINED
        proto.pieces.add(piece=piece, score=score, type=kind)
    return proto.SerializeToString(deterministic=True)


def _new_model() -> Any:
    return model_format.ModelProto()  # pyright: ignore[reportAttributeAccessIssue]  # generated at run time


class SentencePieceTokenizer(Tokenizer):
    """A SentencePiece model and the normalisation before it.

    Args:
        model: the serialised SentencePiece model.
        keep_accents: keep accents; the released English models drop them.
        source: the file, in errors.
    """

    pad_id, unk_id, cls_id, sep_id, mask_id = range(5)

    def __init__(self, model: bytes, lower_case: bool = True, keep_accents: bool = False, source: str = MODEL_NAME):
        proto = parse_model(model, source)
        self._proto = proto
        self.model = penalize_digit_comma_pieces(proto, model)
        self.lower_case = lower_case
        self.keep_accents = keep_accents
        self._arguments = self.model, lower_case, keep_accents
        self._character_map: bytes = proto.normalizer_spec.precompiled_charsmap
        self._normalization = (lower_case, keep_accents, bool(self._character_map))
        self._vocabulary: list[tuple[str, float]] = [(entry.piece, entry.score) for entry in proto.pieces]
        try:
            self._processor = sentencepiece.SentencePieceProcessor(model_proto=self.model)
        except RuntimeError as error:
            raise DamagedData(source, "SentencePiece cannot read it") from error
        self._word_ids = WordIds(self._processor, self._normalization)
        pieces = (piece for piece, _ in self._vocabulary)
        self._word_spans = WordSpans(self._processor, self._normalization, pieces, self.unk_id)

    @property
    def vocab_size(self) -> int:
        return len(self._vocabulary)

    def _fingerprint(self) -> str:
        return content_fingerprint(self._proto, self.lower_case, self.keep_accents)

    def normalize(self, text: str) -> str:
        return normalize(text, *self._normalization)

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        ids, counts = encode_joined(texts, self._word_ids)
        numbers = ids.tolist()
        bounds = np.append(0, np.cumsum(counts)).tolist()
        return [numbers[start:end] for start, end in pairwise(bounds)]

    def encode_joined(self, texts: Sequence[str]) -> tuple[Int32[np.ndarray, " pieces"], Int64[np.ndarray, " texts"]]:
        return encode_joined(texts, self._word_ids)

    def encode_sentences(
        self, sentences: Sequence[str]
    ) -> tuple[Int32[np.ndarray, " pieces"], Int64[np.ndarray, " sentences"]]:
        normalized = [self.normalize(sentence) for sentence in sentences]
        ids = self._processor.encode(normalized, num_threads=1, return_type="numpy")
        counts = np.array(list(map(len, ids)), dtype=np.int64)
        return np.concatenate(ids, dtype=np.int32) if ids else np.zeros(0, np.int32), counts

    def encode_batch_with_offsets(self, texts: Sequence[str]) -> list[Encoded]:
        encoded = encode_texts_with_offsets(texts, self._word_spans)
        return [(ids.tolist(), list(zip(*offsets.T.tolist(), strict=True))) for ids, offsets in encoded]

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        if skip_special_tokens:
            return self._processor.decode([int(number) for number in ids])
        special = self.special_ids
        pieces = [" " + self.piece(number) if number in special else self.piece(number) for number in ids]
        return "".join(pieces).replace(BLANK, " ").strip()

    def piece(self, number: int) -> str:
        return self._vocabulary[number][0]

    def piece_to_id(self, piece: str) -> int:
        return self._processor.piece_to_id(piece)

    def log_probabilities(self) -> Float64[np.ndarray, " pieces"]:
        """Return the scores of the unigram model (Kudo 2018); 0 for special pieces."""
        return np.array([score for _, score in self._vocabulary])

    def word_starts(self) -> Bool[np.ndarray, " pieces"]:
        starts = np.array([begins_word(piece) for piece, _ in self._vocabulary], dtype=np.bool_)
        starts[list(self.special_ids)] = True
        return starts

    def save(self, directory: Path) -> None:
        write_bytes(directory / MODEL_NAME, self.model)
        pad, unknown, first, separator, mask = SPECIAL_PIECES
        names = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
        pieces = (first, separator, unknown, separator, pad, first, mask)
        config = {
            "tokenizer_class": "AlbertTokenizer",
            "model_max_length": MAXIMUM_LENGTH,
            # else `AlbertTokenizer` of transformers 5 returns no segment ids
            "model_input_names": ["input_ids", "token_type_ids", "attention_mask"],
            "do_lower_case": self.lower_case,
            "keep_accents": self.keep_accents,
        }
        normalizers: list[dict[str, Any]] = [
            {"type": "Replace", "pattern": {"String": pair}, "content": '"'} for pair in ("``", "''")
        ]
        if not self.keep_accents:
            normalizers += [{"type": "NFKD"}, {"type": "StripAccents"}]
        if self.lower_case:
            normalizers.append({"type": "Lowercase"})
        if self._character_map:
            encoded = base64.b64encode(self._character_map).decode("ascii")
            normalizers.append({"type": "Precompiled", "precompiled_charsmap": encoded})
        metaspace = {"type": "Metaspace", "replacement": BLANK, "prepend_scheme": "always", "split": True}
        content = tokenizer_json(
            {number: self.piece(number) for number in self.special_ids},
            normalizer={"type": "Sequence", "normalizers": normalizers},
            pre_tokenizer={"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"}, metaspace]},
            decoder=metaspace,
            model={"type": "Unigram", "unk_id": 1, "vocab": self._vocabulary, "byte_fallback": False},
        )
        # `AlbertTokenizer` of transformers 5 builds the normaliser from do_lower_case and keep_accents, and takes only
        # vocabulary and character map from tokenizer.json, so both files must agree.
        special_tokens = dict(zip(names, pieces, strict=True))
        save_json(directory / JSON_NAME, content)
        save_json(directory / CONFIG_NAME, config | special_tokens)
        save_json(directory / SPECIAL_TOKENS_NAME, special_tokens)


def train_tokenizer(
    texts: Iterable[str],
    vocab_size: int = 30_000,
    *,
    settings: VocabularySettings | None = None,
    report: TrainingReport | None = None,
) -> SentencePieceTokenizer:
    """Train a vocabulary on documents; their order has no effect.

    Args:
        vocab_size: number of pieces, the five special ones included; overrides `settings.vocab_size`.
        settings: the others; None: those of the released English vocabulary.

    Raises:
        InvalidConfiguration: the text does not support the vocabulary size (the largest one is named).
        MissingInput: no text.
    """
    settings = replace(settings or VocabularySettings(), vocab_size=vocab_size)
    report = report if report is not None else TrainingReport()
    return train_on_documents(sample_documents(texts, settings, report), settings, report)


def train_on_documents(
    documents: Sequence[str], settings: VocabularySettings, report: TrainingReport
) -> SentencePieceTokenizer:
    """Train a vocabulary on the result of `sample_documents`."""
    output = io.BytesIO()
    sentencepiece.set_random_generator_seed(settings.seed % 2**32)
    try:
        with progress("Training the vocabulary", total=len(documents), unit="documents") as bar:
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=_sentences(documents, settings, report, bar),
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
                max_sentence_length=MAX_SENTENCE_LENGTH,
                num_threads=THREADS,
                minloglevel=3,
            )
    except RuntimeError as error:
        raise _training_error(settings.vocab_size, str(error), report) from error
    return SentencePieceTokenizer(output.getvalue(), settings.lower_case, settings.keep_accents)
