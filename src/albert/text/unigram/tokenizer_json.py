"""A SentencePiece model from `tokenizer.json`: all that transformers 5 leaves of a tokenizer when it saves one.

Its ALBERT tokenizer takes the vocabulary and the character map from that file and the rest from
`tokenizer_config.json`; so does this. What would give other ids here than there is refused. Two rarities remain: with
accents dropped, marks that combine without a class (vowel signs of Indic scripts) stay here as in the reference and
vanish there; and without a character map a literal "▁" is a blank here and a piece there.
"""

import base64
import binascii
from pathlib import Path
from typing import Any

from albert.runtime.errors import DamagedData, InvalidConfiguration
from albert.runtime.strict_json import read_json_object
from albert.text.unigram.sentencepiece_model import build_model, is_choosable_digit_comma, require_special_pieces
from albert.text.unigram.tokenizer_files import SPECIAL_PIECES

ALBERT_CLASSES = ("AlbertTokenizer", "AlbertTokenizerFast")
LARGEST_SCORE = 1e30  # what single precision surely holds
ORIGINAL = "put the spiece.model that the model was trained with beside it"


def model_from_tokenizer_json(file: Path, config: dict[str, Any]) -> bytes:
    """The serialised SentencePiece model that gives the ids of transformers.

    Args:
        file: `tokenizer.json`.
        config: the content of `tokenizer_config.json`.

    Raises:
        MissingInput: no such file.
        DamagedData: not JSON, not the description of a tokenizer, or not of one for ALBERT.
        InvalidConfiguration: a setting that ALBERT's tokenizers do not have.
    """
    content = read_json_object(file)
    model = content.get("model")
    if not isinstance(model, dict):
        raise DamagedData(file, "describes no tokenizer", "`AutoTokenizer.save_pretrained` writes one")
    vocabulary = _vocabulary(file, model)
    require_special_pieces([piece for piece, _ in vocabulary[: len(SPECIAL_PIECES)]], str(file))
    _refuse_other_tokenizers(file, content, model, config)
    for piece, score in vocabulary:
        if is_choosable_digit_comma(piece, score):
            why = f"lets text choose pieces such as {piece!r}, which ALBERT's tokenizer never does"
            raise DamagedData(file, why, ORIGINAL)
    try:
        return build_model(vocabulary, _character_map(file, content.get("normalizer")))
    except ValueError as error:
        raise DamagedData(file, "has a piece that is no text") from error


def _vocabulary(file: Path, model: dict[str, Any]) -> list[tuple[str, float]]:
    entries = model.get("vocab")
    kind = model.get("type") or ("Unigram" if isinstance(entries, list) else "word or byte-pair")  # of old files
    if kind != "Unigram":
        raise DamagedData(file, f"holds a {kind} model", "ALBERT's vocabularies are Unigram models")
    if not isinstance(entries, list):
        raise DamagedData(file, "has no list of pieces")
    vocabulary: list[tuple[str, float]] = []
    for number, entry in enumerate(entries):
        match entry:
            case [str(piece), int(score) | float(score)] if piece and not isinstance(score, bool):
                if not abs(score) < LARGEST_SCORE:  # nor is NaN
                    raise DamagedData(file, f"piece {number} has the score {score}")
                vocabulary.append((piece, float(score)))
            case _:
                raise DamagedData(file, f"entry {number} of its vocabulary is not a piece with a score")
    return vocabulary


def _refuse_other_tokenizers(
    file: Path, content: dict[str, Any], model: dict[str, Any], config: dict[str, Any]
) -> None:
    if model.get("unk_id") != 1 or model.get("byte_fallback"):
        raise DamagedData(file, "writes unknown characters in another way than ALBERT's <unk>, piece 1")
    if foreign := _foreign_tokens(content.get("added_tokens") or []):
        shown = " ".join(foreign[:4]) + (f" and {len(foreign) - 4} more" if len(foreign) > 4 else "")
        why = f"cuts added tokens out of the text ({shown}), which ALBERT's tokenizer does not"
        raise DamagedData(file, why, ORIGINAL)
    place = file.parent / "tokenizer_config.json"
    named = config.get("tokenizer_class")
    if named is not None and named not in ALBERT_CLASSES:
        why = f"is {named!r}, only {ALBERT_CLASSES[0]} can be rebuilt from {file.name}"
        raise InvalidConfiguration(f"{place}: tokenizer_class", why, ORIGINAL)
    if config.get("add_prefix_space", True) is not True:
        raise InvalidConfiguration(f"{place}: add_prefix_space", "is off, ALBERT's vocabularies mark where words begin")


def _foreign_tokens(added: object) -> list[str]:
    """Tokens that are cut out of the text before anything else, beyond the five that ALBERT has."""
    foreign = []
    for entry in added if isinstance(added, list) else [added]:
        known = entry if isinstance(entry, dict) else {"content": entry}
        if (known.get("id"), known.get("content")) not in list(enumerate(SPECIAL_PIECES)):
            foreign.append(str(known.get("content")))
    return foreign


def _character_map(file: Path, normalizer: object) -> bytes:
    """The map of the first `Precompiled` step, empty if there is none."""
    steps: object = normalizer.get("normalizers", [normalizer]) if isinstance(normalizer, dict) else []
    for step in steps if isinstance(steps, list) else []:
        if isinstance(step, dict) and step.get("type") == "Precompiled":
            try:
                return base64.b64decode(step.get("precompiled_charsmap") or "", validate=True)
            except (binascii.Error, TypeError, ValueError) as error:
                raise DamagedData(file, "its character map is not base64") from error
    return b""
