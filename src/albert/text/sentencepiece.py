"""ALBERT's own tokenizer: SentencePiece unigram after normalisation, with offsets into the original text.

`SentencePieceTokenizer` encodes and decodes, `train_tokenizer` trains one (see `albert.text.vocabulary`), and the
functions above them parse, check and rebuild the serialised SentencePiece model."""

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import sentencepiece
from google.protobuf.message import DecodeError
from jaxtyping import Bool, Int32, Int64
from sentencepiece import sentencepiece_model_pb2 as model_format

from albert.runtime.errors import DamagedData
from albert.runtime.files import write_bytes, write_text
from albert.text.normalization import normalize
from albert.text.sentencepiece_files import (
    BLANK,
    SPECIAL_PIECES,
    begins_word,
    special_tokens_map,
    tokenizer_config,
    tokenizer_json,
)
from albert.text.tokenizer import (
    CONFIG_NAME,
    CONTENT_PREFIX,
    JSON_NAME,
    MODEL_NAME,
    Tokenizer,
    byte_fingerprint,
    content_fingerprint,
)
from albert.text.vocabulary import TrainingReport, VocabularySettings, sample_documents, train_model
from albert.text.word_cache import WordIds, WordSpans, encode_joined, encode_texts, encode_texts_with_places

# --------------------------------------------------------------------------------------------------------------------
# The serialised SentencePiece model: what ALBERT asks of one, and one built from a vocabulary.

UNIGRAM = 1  # TrainerSpec.ModelType of the SentencePiece format
NORMAL, UNKNOWN, CONTROL, USER_DEFINED = 1, 2, 3, 4  # SentencePiece.Type of the format
DIGIT_COMMA_PENALTY = 100.0  # log-probability; no learned piece comes near it
REBUILT_FROM = "tokenizer.json"  # TrainerSpec.input of a model that was never trained here


def parse_model(model: bytes, source: str) -> Any:
    """The SentencePiece `ModelProto` of a serialised model.

    Raises:
        DamagedData: not a SentencePiece model, or not one for ALBERT.
    """
    proto = _new_model()
    try:
        proto.ParseFromString(model)
    except DecodeError as error:
        raise DamagedData(source, "is not a SentencePiece model") from error
    if not all(
        isinstance(entry.piece, str) for entry in proto.pieces
    ):  # protobuf gives bytes that are not UTF-8 as such
        raise DamagedData(source, "has a piece that is not text")
    require_special_pieces([entry.piece for entry in proto.pieces[: len(SPECIAL_PIECES)]], source)
    if proto.trainer_spec.model_type != UNIGRAM:
        raise DamagedData(source, "is not a unigram model", "ALBERT's vocabularies are")
    return proto


def require_special_pieces(first_pieces: Sequence[str], source: str) -> None:
    """Refuse a vocabulary that does not begin as those of the released models do.

    Raises:
        DamagedData: it does not.
    """
    if tuple(first_pieces) != SPECIAL_PIECES:
        raise DamagedData(source, "is not an ALBERT vocabulary", "its first pieces must be " + " ".join(SPECIAL_PIECES))


def without_digit_comma_pieces(proto: Any, model: bytes) -> bytes:
    """Make pieces such as "2010," so improbable that they are never chosen, as transformers does.

    The reference re-splits them after encoding (and misplaces a blank under Python 3); a low score needs no
    second pass and gives SentencePiece and `tokenizer.json` the same ids.
    """
    changed = False
    for entry in proto.pieces:
        if is_choosable_digit_comma(entry.piece, entry.score):
            entry.score -= DIGIT_COMMA_PENALTY
            changed = True
    return proto.SerializeToString(deterministic=True) if changed else model


def is_choosable_digit_comma(piece: str, score: float) -> bool:
    """Whether a piece such as "2010," has a score with which text can choose it."""
    return is_digit_comma(piece) and score > -DIGIT_COMMA_PENALTY


def is_digit_comma(piece: str) -> bool:
    """Whether a piece is one such as "2010,", which no text shall have."""
    return len(piece) > 1 and piece[-1] == "," and piece[-2].isdigit()


def build_model(vocabulary: Sequence[tuple[str, float]], character_map: bytes) -> bytes:
    """The serialised model of a unigram vocabulary, the special pieces first.

    A vocabulary alone does not say which pieces were user-defined symbols. A single character with score 0 (the
    probability 1, which none is learnt with) that occurs in no other piece was one, and always stands alone: to mark it
    changes no id, and gives back the types of the model that was trained.

    Args:
        vocabulary: pieces with their log-probabilities, rounded here to the single precision that they were made in.
        character_map: SentencePiece's compiled normalisation; empty for none.

    Raises:
        ValueError: a piece is not text that can be encoded.
    """
    proto = _new_model()
    proto.trainer_spec.model_type = UNIGRAM
    proto.trainer_spec.input.append(REBUILT_FROM)
    proto.trainer_spec.vocab_size = len(vocabulary)
    proto.trainer_spec.pad_id, proto.trainer_spec.unk_id = 0, 1
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


def is_rebuilt(proto: Any) -> bool:
    """Whether a model is one of `build_model`."""
    return list(proto.trainer_spec.input) == [REBUILT_FROM]


def _new_model() -> Any:
    return model_format.ModelProto()  # pyright: ignore[reportAttributeAccessIssue]  # made at run time


class SentencePieceTokenizer(Tokenizer):
    """A SentencePiece model and the normalisation before it.

    Args:
        model: the serialised SentencePiece model (`spiece.model`).
        keep_accents: whether accents stay; the released English models drop them.

    Raises:
        DamagedData: not a SentencePiece model, or not one for ALBERT.
    """

    pad_id, unk_id, cls_id, sep_id, mask_id = range(5)

    def __init__(self, model: bytes, lower_case: bool = True, keep_accents: bool = False, source: str = MODEL_NAME):
        proto = parse_model(model, source)
        self.model = without_digit_comma_pieces(proto, model)
        self.lower_case, self.keep_accents = lower_case, keep_accents
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

    def __reduce__(self) -> tuple[Any, ...]:
        return _reopened, (self.model, self.lower_case, self.keep_accents)

    @property
    def vocab_size(self) -> int:
        """Number of pieces, specials included."""
        return len(self._vocabulary)

    @property
    def fingerprint(self) -> str:
        """A hash of the pieces and the normalisation: equal fingerprints give equal ids, whatever the file."""
        return self._fingerprint

    @cached_property
    def _fingerprint(self) -> str:
        return content_fingerprint(parse_model(self.model, MODEL_NAME), self.lower_case, self.keep_accents)

    def answers_to(self, fingerprint: str) -> bool:
        """Whether a recorded fingerprint is that of this tokenizer.

        Older corpora and models recorded a hash over the bytes of `spiece.model`. A tokenizer rebuilt from
        `tokenizer.json` has not got those bytes: nothing can be said against it then, and it answers to all of them.
        """
        if fingerprint.startswith(CONTENT_PREFIX):
            return fingerprint == self.fingerprint
        if is_rebuilt(parse_model(self.model, MODEL_NAME)):
            return True
        return fingerprint == byte_fingerprint(self.model, self.lower_case, self.keep_accents)

    def normalize(self, text: str) -> str:
        """The text that SentencePiece sees."""
        return normalize(text, *self._normalization)

    def encode(self, text: str) -> list[int]:
        """Ids of a text, without specials. A literal "[MASK]" in it is text."""
        return self.encode_batch([text])[0]

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """`encode` of many texts."""
        return [ids.tolist() for ids in encode_texts(texts, self._word_ids)]

    def encode_joined(self, texts: Sequence[str]) -> tuple[Int32[np.ndarray, " pieces"], Int64[np.ndarray, " texts"]]:
        """`encode` of many texts in one array, and how many ids each has."""
        return encode_joined(texts, self._word_ids)

    def encode_with_offsets(self, text: str) -> tuple[list[int], list[tuple[int, int]]]:
        """Ids of a text and where each piece stands in it (see `Tokenizer.encode_with_offsets`)."""
        return self.encode_batch_with_offsets([text])[0]

    def encode_batch_with_offsets(self, texts: Sequence[str]) -> list[tuple[list[int], list[tuple[int, int]]]]:
        """`encode_with_offsets` of many texts."""
        encoded = encode_texts_with_places(texts, self._word_spans)
        return [(ids.tolist(), list(zip(*places.T.tolist(), strict=True))) for ids, places in encoded]

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        """The normalised text of some ids; special pieces vanish, or are written out."""
        if skip_special_tokens:
            return self._processor.decode([int(number) for number in ids])
        special = self.special_ids
        pieces = [" " + self.piece(number) if number in special else self.piece(number) for number in ids]
        return "".join(pieces).replace(BLANK, " ").strip()

    def piece(self, number: int) -> str:
        """The piece with an id."""
        return self._vocabulary[number][0]

    def piece_to_id(self, piece: str) -> int:
        """The id of a piece, `unk_id` if there is none."""
        return self._processor.piece_to_id(piece)

    def word_starts(self) -> Bool[np.ndarray, " pieces"]:
        """Which pieces begin a word, for whole-word masking (see `albert.text.sentencepiece_files`)."""
        starts = np.array([begins_word(piece) for piece, _ in self._vocabulary], dtype=np.bool_)
        starts[list(self.special_ids)] = True
        return starts

    def save(self, directory: Path) -> None:
        """Write `spiece.model` and the files of the Hugging Face libraries into an existing directory."""
        write_bytes(directory / MODEL_NAME, self.model)
        files = {
            JSON_NAME: tokenizer_json(self._vocabulary, self._character_map, self.lower_case, self.keep_accents),
            CONFIG_NAME: tokenizer_config(self.lower_case, self.keep_accents),
            "special_tokens_map.json": special_tokens_map(),
        }
        for name, content in files.items():
            write_text(directory / name, json.dumps(content, ensure_ascii=False, indent=2) + "\n")


def train_tokenizer(
    texts: Iterable[str],
    vocab_size: int = 30_000,
    *,
    settings: VocabularySettings | None = None,
    report: TrainingReport | None = None,
) -> SentencePieceTokenizer:
    """Train a vocabulary on documents. The same documents in any order give the same tokenizer.

    Args:
        vocab_size: number of pieces, the five special ones included; it overrides that of the settings.
        settings: everything else; None are those of the released English vocabulary.
        report: filled with what was read and used.

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
    """`train_tokenizer` on a sample that was drawn before."""
    model = train_model(documents, settings, report)
    return SentencePieceTokenizer(model, settings.lower_case, settings.keep_accents)


@lru_cache(maxsize=4)
def _reopened(model: bytes, lower_case: bool, keep_accents: bool) -> SentencePieceTokenizer:
    """A tokenizer sent to another process is opened there once, and remembers the words it met."""
    return SentencePieceTokenizer(model, lower_case, keep_accents)
