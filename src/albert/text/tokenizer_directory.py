"""A tokenizer from its files, of whichever kind they are."""

import os
from pathlib import Path
from typing import Any

from albert.runtime.errors import DamagedData, InvalidConfiguration, MissingInput
from albert.runtime.input_files import read_input
from albert.runtime.manifests import verify_files
from albert.runtime.package import shipped_model
from albert.runtime.strict_json import read_json_object
from albert.text.tokenizer import (
    CONFIG_NAME,
    JSON_NAME,
    MODEL_NAME,
    PREPROCESSING_KEY,
    VOCABULARY_NAME,
    Tokenizer,
)
from albert.text.unigram.reference_tokenizer import ReferenceSentencePieceTokenizer
from albert.text.unigram.sentencepiece_tokenizer import SentencePieceTokenizer
from albert.text.unigram.tokenizer_json import model_from_tokenizer_json
from albert.text.wordpiece.wordpiece_json import BERT_CLASSES, normalization_settings, vocabulary_from_json
from albert.text.wordpiece.wordpiece_normalization import WordPieceNormalization
from albert.text.wordpiece.wordpiece_tokenizer import WordPieceTokenizer
from albert.text.wordpiece.wordpiece_vocabulary import read_vocabulary


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
    reference = _reference(config, config_file) if reference is None else reference
    if file.suffix == ".txt":
        return _wordpiece(read_vocabulary(file), file, config, None, reference)
    if file.suffix == ".json":
        content = read_json_object(file)
        model = content.get("model")
        if isinstance(model, dict) and _is_wordpiece(model):
            pieces = vocabulary_from_json(file, content)
            return _wordpiece(pieces, file, config, content.get("normalizer"), reference)
        return _sentencepiece(model_from_tokenizer_json(file, config), file, config, reference)
    if file.suffix == ".vocab":
        raise DamagedData(file, "lists the pieces of a SentencePiece model", "give the .model file beside it")
    try:
        model = read_input(file)
    except MissingInput as error:
        raise MissingInput(file, error.why, error.remedy or "`albert tokenizer train` makes a vocabulary") from error
    return _sentencepiece(model, file, config, reference)


def vocabulary_file(path: Path) -> Path:
    """The file that `load_tokenizer` opens, whether or not it is there."""
    if not path.is_dir():
        return path
    order = [MODEL_NAME, VOCABULARY_NAME, JSON_NAME]
    if all((path / name).exists() for name in order[:2]) and _names_bert(path / CONFIG_NAME):
        order.remove(MODEL_NAME)
    return next((path / name for name in order if (path / name).exists()), path / MODEL_NAME)


def _names_bert(config_file: Path) -> bool:
    return config_file.is_file() and read_json_object(config_file).get("tokenizer_class") in BERT_CLASSES


def _is_wordpiece(model: dict[str, Any]) -> bool:
    """Old files do not say of which type the model is; byte-pair models have merges beside their pieces."""
    return model.get("type", "" if "merges" in model else "WordPiece") == "WordPiece" and isinstance(
        model.get("vocab"), dict
    )


def _reference(config: dict[str, Any], config_file: Path) -> bool:
    stated = config.get(PREPROCESSING_KEY, "transformers")
    if stated not in ("transformers", "reference"):
        why = f'is {stated!r}, "transformers" or "reference" is expected'
        raise InvalidConfiguration(f"{config_file}: {PREPROCESSING_KEY}", why)
    return stated == "reference"


def _sentencepiece(model: bytes, file: Path, config: dict[str, Any], reference: bool) -> Tokenizer:
    flags = {"do_lower_case": True, "keep_accents": False}
    for name in flags:
        flags[name] = config.get(name, flags[name])
        if not isinstance(flags[name], bool):
            place = f"{file.parent / CONFIG_NAME}: {name}"
            raise InvalidConfiguration(place, f"is {flags[name]!r}, true or false is expected")
    kind = ReferenceSentencePieceTokenizer if reference else SentencePieceTokenizer
    return kind(model, flags["do_lower_case"], flags["keep_accents"], str(file))


def _wordpiece(
    pieces: list[str], file: Path, config: dict[str, Any], normalizer: object, reference: bool
) -> WordPieceTokenizer:
    stated = normalization_settings(file, config, normalizer)
    lower_case = bool(stated["do_lower_case"])
    strip = stated["strip_accents"]
    normalization = WordPieceNormalization(
        lower_case=lower_case,
        keep_accents=not (lower_case if strip is None else strip),
        space_ideographs=bool(stated["tokenize_chinese_chars"]),
        reference=reference,
    )
    return WordPieceTokenizer(pieces, normalization, str(file))
