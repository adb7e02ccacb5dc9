"""Opening a tokenizer from its files: a SentencePiece model, a WordPiece vocabulary, `tokenizer.json`, or the older
files of RoBERTa (`vocab.json`, `merges.txt`) and XLM-R (`sentencepiece.bpe.model`)."""

import base64
import binascii
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from albert.runtime.environment import bundled_model
from albert.runtime.errors import DamagedData, InvalidConfiguration, MissingInput
from albert.runtime.json_files import read_json_object
from albert.runtime.manifest import read_input, verify_files
from albert.text.sentencepiece import (
    SentencePieceTokenizer,
    build_model,
    is_choosable_digit_comma,
    require_special_pieces,
)
from albert.text.tokenizer import (
    BERT_CLASSES,
    BPE_MODEL_NAME,
    BYTE_LEVEL_NAME,
    CONFIG_NAME,
    JSON_NAME,
    MERGES_NAME,
    MODEL_NAME,
    SPECIAL_PIECES,
    VOCABULARY_NAME,
    Tokenizer,
    read_flag,
    refuse_added_tokens,
    require_cut_at_the_end,
    require_stated_cut_at_the_end,
)

# --------------------------------------------------------------------------------------------------------------------
# A SentencePiece model from `tokenizer.json`, the only vocabulary file that transformers 5 saves.
#
# As in transformers, vocabulary and character map come from that file, the rest from `tokenizer_config.json`. Files
# that would give other ids here than there are refused, with two rare exceptions: with accents dropped, combining marks
# of class 0 (vowel signs of Indic scripts) are kept here as in the reference, and dropped there; without a character
# map a literal "▁" is a blank here, and a piece there.

ALBERT_CLASSES = ("AlbertTokenizer", "AlbertTokenizerFast")
MAX_SCORE = 1e30  # fits into single precision
ORIGINAL = "put the spiece.model that the model was trained with beside it"


def model_from_tokenizer_json(file: Path, config: dict[str, Any]) -> bytes:
    """Return a serialised SentencePiece model that gives the ids of transformers."""
    content = read_json_object(file)
    model = content.get("model")
    if not isinstance(model, dict):
        raise DamagedData(file, "describes no tokenizer", "`AutoTokenizer.save_pretrained` writes one")
    vocabulary = _vocabulary(file, model)
    require_special_pieces([piece for piece, _ in vocabulary[: len(SPECIAL_PIECES)]], str(file))
    if model.get("unk_id") != 1 or model.get("byte_fallback"):
        raise DamagedData(file, "does not map unknown characters to <unk>, piece 1, as ALBERT does")
    refuse_added_tokens(file, content, SPECIAL_PIECES, ORIGINAL)
    require_stated_cut_at_the_end(file, content, config)
    path = file.parent / CONFIG_NAME
    class_name = config.get("tokenizer_class")
    if class_name is not None and class_name not in ALBERT_CLASSES:
        why = f"is {class_name!r}, only {ALBERT_CLASSES[0]} can be rebuilt from {file.name}"
        raise InvalidConfiguration(f"{path}: tokenizer_class", why, ORIGINAL)
    if config.get("add_prefix_space", True) is not True:
        raise InvalidConfiguration(f"{path}: add_prefix_space", "is off, ALBERT's vocabularies mark where words begin")
    for piece, score in vocabulary:
        if is_choosable_digit_comma(piece, score):
            why = f"gives a usable score to pieces such as {piece!r}, which ALBERT's tokenizer never does"
            raise DamagedData(file, why, ORIGINAL)
    try:
        return build_model(vocabulary, _character_map(file, content.get("normalizer")))
    except ValueError as error:
        raise DamagedData(file, "has a piece that is not text") from error


def _vocabulary(file: Path, model: dict[str, Any]) -> list[tuple[str, float]]:
    entries = model.get("vocab")
    kind = model.get("type") or ("Unigram" if isinstance(entries, list) else "word or byte-pair")  # for old files
    if kind != "Unigram":
        raise DamagedData(file, f"holds a {kind} model", "ALBERT's vocabularies are Unigram models")
    if not isinstance(entries, list):
        raise DamagedData(file, "has no list of pieces")
    vocabulary: list[tuple[str, float]] = []
    for number, entry in enumerate(entries):
        match entry:
            case [str(piece), int(score) | float(score)] if piece and not isinstance(score, bool):
                if not abs(score) < MAX_SCORE:  # or NaN
                    raise DamagedData(file, f"piece {number} has the score {score}")
                vocabulary.append((piece, float(score)))
            case _:
                raise DamagedData(file, f"entry {number} of its vocabulary is not a piece with a score")
    return vocabulary


def _character_map(file: Path, normalizer: object) -> bytes:
    steps: object = normalizer.get("normalizers", [normalizer]) if isinstance(normalizer, dict) else []
    for step in steps if isinstance(steps, list) else []:
        if isinstance(step, dict) and step.get("type") == "Precompiled":
            try:
                return base64.b64decode(step.get("precompiled_charsmap") or "", validate=True)
            except (binascii.Error, TypeError, ValueError) as error:
                raise DamagedData(file, "its character map is not base64") from error
    return b""


def load_tokenizer(path: Path, *, lower_case: bool | None = None, keep_accents: bool | None = None) -> Tokenizer:
    """Open a file with a vocabulary, or a directory that holds one.

    Of several files, the first of `spiece.model`, `tokenizer.json`, `vocab.txt`, `vocab.json` and
    `sentencepiece.bpe.model` is opened; but `spiece.model` is left out if `tokenizer_config.json` names a class of
    BERT. The settings of `tokenizer_config.json` apply unless they are given here. Files beside a manifest are checked
    against it.

    Args:
        path: the file or directory, or the name of a model that comes with the package ("tiny").
        lower_case: lower-case letters; None: as in the files, else yes.
        keep_accents: keep accents; None: as in the files, else no for SentencePiece, and for WordPiece only if capitals
            are kept.

    Raises:
        MissingInput: no such file.
        DamagedData: the file is not a vocabulary, or not the one that the manifest beside it lists.
        InvalidConfiguration: a setting of `tokenizer_config.json` or `tokenizer.json` that is not supported.
    """
    if not os.path.lexists(path):
        path = bundled_model(path) or path
    file = vocabulary_file(path)
    if path.is_dir() and not file.exists():
        known = (MODEL_NAME, JSON_NAME, VOCABULARY_NAME, BYTE_LEVEL_NAME, BPE_MODEL_NAME)
        remedy = "save it with transformers, AutoTokenizer.from_pretrained(...).save_pretrained(...), or train one"
        raise MissingInput(path, f"holds no tokenizer: no {', '.join(known[:-1])} or {known[-1]}", remedy)
    config_file = file.parent / CONFIG_NAME
    verify_files(file.parent, (file.name, CONFIG_NAME, *((MERGES_NAME,) if file.name == BYTE_LEVEL_NAME else ())))
    config = read_tokenizer_config(file.parent)
    require_cut_at_the_end(f"{config_file}: truncation_side", config.get("truncation_side"))
    if lower_case is not None:
        config["do_lower_case"] = lower_case
    if keep_accents is not None:
        config |= {"keep_accents": keep_accents, "strip_accents": not keep_accents}
    is_of_roberta = file.name in (BYTE_LEVEL_NAME, BPE_MODEL_NAME)
    if is_of_roberta or file.suffix == ".txt" or (file.suffix == ".json" and not _is_alberts(file, config)):
        return _load_other(file, config, lower_case is not None or keep_accents is not None)
    model = model_from_tokenizer_json(file, config) if file.suffix == ".json" else _read_model(file)
    lower = read_flag(config, "do_lower_case", True, config_file)
    accents = read_flag(config, "keep_accents", False, config_file)
    return SentencePieceTokenizer(model, lower, accents, str(file))


def read_tokenizer_config(directory: Path) -> dict[str, Any]:
    """The content of `tokenizer_config.json`; as in transformers, the model's `config.json` may name the class."""
    file = directory / CONFIG_NAME
    config = read_json_object(file) if file.is_file() else {}
    model_file = directory / "config.json"
    if config.get("tokenizer_class") is None and model_file.is_file():
        stated = read_json_object(model_file).get("tokenizer_class")
        if isinstance(stated, str):
            config["tokenizer_class"] = stated
    return config


def _is_alberts(file: Path, config: Mapping[str, Any]) -> bool:
    """Return whether our own tokenizer reads a `tokenizer.json`: a Unigram model with ALBERT's special pieces."""
    model: Any = read_json_object(file).get("model")
    if not isinstance(model, dict) or model.get("type") == "WordPiece":
        return False
    class_name = config.get("tokenizer_class")
    if class_name is not None:
        return class_name in ALBERT_CLASSES
    entries = model.get("vocab")
    first = entries[: len(SPECIAL_PIECES)] if isinstance(entries, list) else []
    return [entry[0] if isinstance(entry, list) and entry else None for entry in first] == list(SPECIAL_PIECES)


def _load_other(file: Path, config: Mapping[str, Any], changed: bool) -> Tokenizer:
    """The vocabulary of another model than ALBERT, by the library `tokenizers`.

    Args:
        changed: whether the caller set case or accents.
    """
    from albert.text import huggingface, wordpiece

    if file.name in (BYTE_LEVEL_NAME, BPE_MODEL_NAME):
        make = huggingface.byte_level_json if file.name == BYTE_LEVEL_NAME else huggingface.sentencepiece_json
        return wordpiece.load_tokenizer_json(file, make(file, config), config, changed)
    if file.suffix == ".json":
        return wordpiece.load_tokenizer_json(file, read_json_object(file), config, changed)
    return wordpiece.load_wordpiece(file, config)


_WITHOUT_TYPES = (
    "RobertaTokenizer",
    "XLMRobertaTokenizer",
    "CamembertTokenizer",
    "DistilBertTokenizer",
    "MPNetTokenizer",
)
"""Classes of transformers that give no token types."""


def gives_token_types(directory: Path) -> bool:
    """Whether transformers gives the tokens of a second text the token type 1, by the files of a model's tokenizer.

    BERTs with the tokenizer of XLM-R, as the multilingual MiniLM, were trained without.
    """
    config = read_tokenizer_config(directory)
    names = config.get("model_input_names")
    if isinstance(names, list) and "token_type_ids" not in names:
        return False
    class_name = str(config.get("tokenizer_class") or "").removesuffix("Fast")
    if class_name in _WITHOUT_TYPES and not isinstance(names, list):
        return False
    if not class_name or class_name in (*BERT_CLASSES, *ALBERT_CLASSES) or not (directory / JSON_NAME).is_file():
        return True
    template = read_json_object(directory / JSON_NAME).get("post_processor")
    steps = template.get("processors", [template]) if isinstance(template, dict) else []
    for step in steps if isinstance(steps, list) else []:
        if not isinstance(step, dict):
            continue
        if step.get("type") == "RobertaProcessing":
            return False
        pieces = step.get("pair") if step.get("type") == "TemplateProcessing" else None
        for piece in pieces if isinstance(pieces, list) else []:
            sequence = piece.get("Sequence") if isinstance(piece, dict) else None
            if isinstance(sequence, dict) and sequence.get("id") == "B":
                return sequence.get("type_id") != 0
    return True


def _read_model(file: Path) -> bytes:
    if file.suffix == ".vocab":
        raise DamagedData(file, "lists the pieces of a SentencePiece model", "give the .model file beside it")
    try:
        return read_input(file)
    except MissingInput as error:
        raise MissingInput(file, error.why, error.remedy or "`albert tokenizer train` makes a vocabulary") from error


def vocabulary_file(path: Path) -> Path:
    """Return the file that `load_tokenizer` opens, whether or not it exists."""
    if not path.is_dir():
        return path
    order = [MODEL_NAME, JSON_NAME, VOCABULARY_NAME, BYTE_LEVEL_NAME, BPE_MODEL_NAME]
    config = path / CONFIG_NAME
    both = (path / MODEL_NAME).exists() and (path / VOCABULARY_NAME).exists() and config.is_file()
    if both and read_json_object(config).get("tokenizer_class") in BERT_CLASSES:
        order.remove(MODEL_NAME)
    return next((path / name for name in order if (path / name).exists()), path / MODEL_NAME)
