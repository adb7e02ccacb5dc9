"""Opening a tokenizer from its files: a SentencePiece model, a WordPiece vocabulary, or `tokenizer.json`."""

import base64
import binascii
import os
from pathlib import Path
from typing import Any

from albert.runtime.environment import shipped_model
from albert.runtime.errors import DamagedData, InvalidConfiguration, MissingInput
from albert.runtime.json_files import read_json_object
from albert.runtime.manifest import read_input, verify_files
from albert.text.sentencepiece import (
    ReferenceSentencePieceTokenizer,
    SentencePieceTokenizer,
    build_model,
    is_choosable_digit_comma,
    require_special_pieces,
)
from albert.text.tokenizer import (
    CONFIG_NAME,
    JSON_NAME,
    MODEL_NAME,
    PREPROCESSING_KEY,
    SPECIAL_PIECES,
    VOCABULARY_NAME,
    Tokenizer,
    read_flag,
)
from albert.text.wordpiece import (
    BERT_CLASSES,
    WordPieceTokenizer,
    read_normalization,
    read_vocabulary,
    vocabulary_from_json,
)

# --------------------------------------------------------------------------------------------------------------------
# A SentencePiece model from `tokenizer.json`: all that transformers 5 leaves of a tokenizer when it saves one.
#
# Its ALBERT tokenizer takes the vocabulary and the character map from that file and the rest from
# `tokenizer_config.json`; so does this. What would give other ids here than there is refused. Two rarities remain:
# with accents dropped, marks that combine without a class (vowel signs of Indic scripts) stay here as in the
# reference and vanish there; and without a character map a literal "▁" is a blank here and a piece there.

ALBERT_CLASSES = ("AlbertTokenizer", "AlbertTokenizerFast")
LARGEST_SCORE = 1e30  # what single precision surely holds
ORIGINAL = "put the spiece.model that the model was trained with beside it"


def model_from_tokenizer_json(file: Path, config: dict[str, Any]) -> bytes:
    """The serialised SentencePiece model that gives the ids of transformers."""
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
        raise DamagedData(file, "has a piece that is not text") from error


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
    if foreign := _extra_tokens(content.get("added_tokens") or []):
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


def _extra_tokens(added: object) -> list[str]:
    """Tokens that are cut out of the text before anything else, beyond the five that ALBERT has."""
    foreign = []
    for entry in added if isinstance(added, list) else [added]:
        known = entry if isinstance(entry, dict) else {"content": entry}
        if (known.get("id"), known.get("content")) not in list(enumerate(SPECIAL_PIECES)):
            foreign.append(str(known.get("content")))
    return foreign


def _character_map(file: Path, normalizer: object) -> bytes:
    steps: object = normalizer.get("normalizers", [normalizer]) if isinstance(normalizer, dict) else []
    for step in steps if isinstance(steps, list) else []:
        if isinstance(step, dict) and step.get("type") == "Precompiled":
            try:
                return base64.b64decode(step.get("precompiled_charsmap") or "", validate=True)
            except (binascii.Error, TypeError, ValueError) as error:
                raise DamagedData(file, "its character map is not base64") from error
    return b""


def load_tokenizer(
    path: Path, *, lower_case: bool | None = None, keep_accents: bool | None = None, reference: bool | None = None
) -> Tokenizer:
    """Open `spiece.model`, `vocab.txt` or `tokenizer.json`, or a directory that holds one of them.

    Of several, `spiece.model` goes first, then `vocab.txt`, then `tokenizer.json`; `vocab.txt` goes before
    `spiece.model` where `tokenizer_config.json` names a class of BERT. That file is respected in all it says of the
    text, unless it is set here. A `tokenizer.json` that transformers wrote gives its ids. Files beside a manifest are
    checked against it.

    Args:
        path: the file or directory; or, where there is none, the name of a model that comes with the package ("tiny").
        lower_case: whether letters are lower-cased; None: as the files say, which is yes where they say nothing.
        keep_accents: whether accents stay; None likewise, no for SentencePiece, and for WordPiece as capitals do.
        reference: whether the ids are those of the original code where transformers gives others; None likewise, no.

    Raises:
        MissingInput: no such file.
        DamagedData: the file is not an ALBERT vocabulary, or not the one that the manifest beside it lists.
        InvalidConfiguration: a setting of `tokenizer_config.json` is not one of ALBERT's.
    """
    if not os.path.lexists(path):
        path = shipped_model(path) or path
    file = vocabulary_file(path)
    config_file = file.parent / CONFIG_NAME
    verify_files(file.parent, (file.name, CONFIG_NAME))
    config = read_json_object(config_file) if config_file.is_file() else {}
    if lower_case is not None:
        config["do_lower_case"] = lower_case
    if keep_accents is not None:
        config |= {"keep_accents": keep_accents, "strip_accents": not keep_accents}
    if reference is None:
        stated = config.get(PREPROCESSING_KEY, "transformers")
        if stated not in ("transformers", "reference"):
            why = f'is {stated!r}, "transformers" or "reference" is expected'
            raise InvalidConfiguration(f"{config_file}: {PREPROCESSING_KEY}", why)
        reference = stated == "reference"
    pieces: list[str] | None = None
    content: dict[str, Any] = {}
    if file.suffix == ".txt":
        pieces = read_vocabulary(file)
    elif file.suffix == ".json":
        content = read_json_object(file)
        # Old files do not say of which type the model is; byte-pair models have merges beside their pieces.
        described = content["model"] if isinstance(content.get("model"), dict) else {}
        kind = described.get("type", "" if "merges" in described else "WordPiece")
        if kind == "WordPiece" and isinstance(described.get("vocab"), dict):
            pieces = vocabulary_from_json(file, content)
    if pieces is not None:
        normalization = read_normalization(file, config, content.get("normalizer"), reference)
        return WordPieceTokenizer(pieces, normalization, str(file))
    model = model_from_tokenizer_json(file, config) if file.suffix == ".json" else _read_model(file)
    lower = read_flag(config, "do_lower_case", True, config_file)
    accents = read_flag(config, "keep_accents", False, config_file)
    kind = ReferenceSentencePieceTokenizer if reference else SentencePieceTokenizer
    return kind(model, lower, accents, str(file))


def _read_model(file: Path) -> bytes:
    if file.suffix == ".vocab":
        raise DamagedData(file, "lists the pieces of a SentencePiece model", "give the .model file beside it")
    try:
        return read_input(file)
    except MissingInput as error:
        raise MissingInput(file, error.why, error.remedy or "`albert tokenizer train` makes a vocabulary") from error


def vocabulary_file(path: Path) -> Path:
    """The file that `load_tokenizer` opens, whether or not it is there."""
    if not path.is_dir():
        return path
    order = [MODEL_NAME, VOCABULARY_NAME, JSON_NAME]
    config = path / CONFIG_NAME
    both = all((path / name).exists() for name in order[:2]) and config.is_file()
    if both and read_json_object(config).get("tokenizer_class") in BERT_CLASSES:
        order.remove(MODEL_NAME)
    return next((path / name for name in order if (path / name).exists()), path / MODEL_NAME)
