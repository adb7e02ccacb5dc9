"""The serialised SentencePiece model: what ALBERT asks of one, and one built from a vocabulary."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from google.protobuf.message import DecodeError
from sentencepiece import sentencepiece_model_pb2 as model_format

from albert.runtime.errors import DamagedData
from albert.text.unigram.tokenizer_files import SPECIAL_PIECES

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
        raise DamagedData(source, "has a piece that is no text")
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
