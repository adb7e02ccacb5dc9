"""WordPiece (Devlin et al. 2018): `vocab.txt` with one piece on each line, and `tokenizer.json`, where BERT's class
normalises as `tokenizer_config.json` says. A `tokenizer.json` of another kind is taken as it is."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from albert.runtime.errors import DamagedData, InvalidConfiguration
from albert.runtime.manifest import open_input, read_input
from albert.text.huggingface import (
    CONTINUATION_MARK,
    MAX_FILE,
    MAX_PIECES,
    MAX_WORD_LENGTH,
    ROLES,
    SAVE_AGAIN,
    SPECIAL_PIECES,
    SURROGATES,
    HuggingFaceTokenizer,
    as_text,
    with_added_tokens,
    with_special_tokens,
)
from albert.text.tokenizer import (
    BERT_CLASSES,
    CONFIG_NAME,
    MAXIMUM_LENGTH,
    VOCABULARY_NAME,
    read_flag,
    require_stated_cut_at_the_end,
    tokenizer_json,
    wordpiece_fingerprint,
)

# --------------------------------------------------------------------------------------------------------------------
# `vocab.txt`, and BERT's normalisation.


@dataclass(frozen=True)
class WordPieceNormalization:
    """The normalisation before WordPiece; `space_ideographs`: whether each ideograph is a word."""

    lower_case: bool = True
    keep_accents: bool = False
    space_ideographs: bool = True


def wordpiece_tokenizer(
    vocabulary: Sequence[str],
    normalization: WordPieceNormalization | None = None,
    source: str = VOCABULARY_NAME,
    config: Mapping[str, Any] | None = None,
) -> HuggingFaceTokenizer:
    """The tokenizer of a WordPiece vocabulary, with the ids of transformers' `BertTokenizer`.

    Args:
        vocabulary: the pieces in the order of their ids. Special pieces are found by their names.
        config: of `tokenizer_config.json`, whose further keys are kept.
    """
    check_vocabulary(vocabulary, source)
    normalization = normalization or WordPieceNormalization()
    ids = {piece: number for number, piece in enumerate(vocabulary)}
    lower_case = normalization.lower_case
    # None is BERT's default: strip accents if letters are lower-cased
    strips = None if normalization.keep_accents != lower_case else not normalization.keep_accents
    content = tokenizer_json(
        {number: piece for piece, number in ids.items() if piece in SPECIAL_PIECES},
        normalizer={
            "type": "BertNormalizer",
            "clean_text": True,
            "handle_chinese_chars": normalization.space_ideographs,
            "strip_accents": strips,
            "lowercase": lower_case,
        },
        pre_tokenizer={"type": "BertPreTokenizer"},
        decoder={"type": "WordPiece", "prefix": CONTINUATION_MARK, "cleanup": True},
        model={**_WORDPIECE, "vocab": ids},
    )
    settings = {
        "tokenizer_class": "BertTokenizer",  # else transformers assumes SentencePiece for ALBERT
        "model_max_length": MAXIMUM_LENGTH,
        **(config or {}),
        "do_lower_case": lower_case,
        "strip_accents": strips,
        "tokenize_chinese_chars": normalization.space_ideographs,
        **{f"{role}_token": piece for role, piece in zip(ROLES, SPECIAL_PIECES, strict=True)},
    }
    fingerprint = wordpiece_fingerprint(tuple(vocabulary), asdict(normalization))
    return HuggingFaceTokenizer(as_text(content), as_text(settings), fingerprint, source)


def read_vocabulary(file: Path) -> list[str]:
    """Read the pieces of `vocab.txt`, in the order of ids. Blank lines at the end are ignored."""
    try:
        with open_input(file) as opened:
            size = os.fstat(opened.fileno()).st_size
            if size > MAX_FILE:
                raise DamagedData(file, f"has {size:,} bytes, a vocabulary has at most {MAX_FILE:,}")
        text = read_input(file).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DamagedData(file, f"is not text in UTF-8 (byte {error.start:,})") from error
    return text.replace("\r\n", "\n").replace("\r", "\n").rstrip("\n").split("\n")


def load_wordpiece(file: Path, config: Mapping[str, Any]) -> HuggingFaceTokenizer:
    """The tokenizer of a `vocab.txt`, with the tokens that the files beside it add."""
    refuse_other_word_rules(file, config)
    tokenizer = wordpiece_tokenizer(read_vocabulary(file), read_normalization(file, config), str(file), config)
    content = with_added_tokens(tokenizer.content, file.parent, config)
    if content == tokenizer.content:
        return tokenizer
    return HuggingFaceTokenizer(as_text(content), as_text(tokenizer.config), None, str(file))


def check_vocabulary(pieces: Sequence[str], source: str) -> None:
    """Raise DamagedData for an invalid WordPiece vocabulary."""
    if len(pieces) > MAX_PIECES:
        raise DamagedData(source, f"has {len(pieces):,} pieces, no model has more than {MAX_PIECES:,}")
    ids: dict[str, int] = {}
    for number, piece in enumerate(pieces):
        if not piece or " " in piece or "\t" in piece or "\n" in piece:
            why = f"line {number + 1:,} is blank" if not piece else f"line {number + 1:,} holds a blank: {piece[:40]!r}"
            raise DamagedData(source, why, "a WordPiece vocabulary has one piece on each line")
        if piece in ids:
            why = f"has {piece[:40]!r} twice, in lines {ids[piece] + 1:,} and {number + 1:,}"
            raise DamagedData(source, why, "remove one; programs disagree on the ids of the pieces that follow")
        ids[piece] = number
    missing = [piece for piece in SPECIAL_PIECES if piece not in ids]
    if missing:
        remedy = "it seems to be SentencePiece's; give its spiece.model" if "<unk>" in ids or "▁" in ids else None
        raise DamagedData(source, "is not a WordPiece vocabulary, it lacks " + " ".join(missing), remedy)


def read_normalization(file: Path, config: Mapping[str, Any], normalizer: object = None) -> WordPieceNormalization:
    """The normalisation that `tokenizer_config.json` describes, with defaults from the normaliser of
    `tokenizer.json`."""
    path = file.parent / CONFIG_NAME
    defaults: dict[str, Any] = {"do_lower_case": True, "strip_accents": None, "tokenize_chinese_chars": True}
    if isinstance(normalizer, dict):
        names = zip(defaults, ("lowercase", "strip_accents", "handle_chinese_chars"), strict=True)
        defaults = {name: normalizer.get(other, defaults[name]) for name, other in names}
    lower_case, strip_accents, space_ideographs = (
        read_flag(config, name, default, path, name == "strip_accents") for name, default in defaults.items()
    )
    strip_accents = lower_case if strip_accents is None else strip_accents
    return WordPieceNormalization(lower_case, not strip_accents, space_ideographs)


_OTHER_CLASSES = ("BertJapanese", "Phobert", "Bertweet", "RoFormer")
"""How the names of classes begin that have a vocab.txt, too."""


def refuse_other_word_rules(file: Path, config: Mapping[str, Any]) -> None:
    """Refuse tokenizers of BERT that divide text into words by other rules (Japanese), or not at all."""
    class_name = str(config.get("tokenizer_class") or "")
    is_other = class_name.startswith(_OTHER_CLASSES) or config.get("word_tokenizer_type") not in (None, "basic")
    if is_other or config.get("do_basic_tokenize", True) is not True:
        path = file.parent / CONFIG_NAME
        what = f"{class_name} has" if class_name.startswith(_OTHER_CLASSES) else "has"
        raise InvalidConfiguration(path, f"{what} other rules for words than BERT", "such tokenizers are not supported")


# --------------------------------------------------------------------------------------------------------------------
# `tokenizer.json`.


def load_tokenizer_json(
    file: Path, content: Mapping[str, Any], config: Mapping[str, Any], changed: bool = False
) -> HuggingFaceTokenizer:
    """The tokenizer of a `tokenizer.json`; as in transformers, a class of BERT normalises as `tokenizer_config.json`
    says.

    Args:
        changed: whether case or accents were set by the caller, which only BERT's normalisation allows.
    """
    refuse_other_word_rules(file, config)
    described = content.get("model")
    if not isinstance(described, dict):
        raise DamagedData(file, "describes no tokenizer", SAVE_AGAIN)
    require_stated_cut_at_the_end(file, content, config)
    content = with_added_tokens(content, file.parent, config)
    is_wordpiece = described.get("type", "BPE" if "merges" in described else "WordPiece") == "WordPiece"
    normalizer = content.get("normalizer")
    of_bert = is_wordpiece and isinstance(normalizer, dict) and normalizer.get("type") == "BertNormalizer"
    class_of_bert = is_wordpiece and config.get("tokenizer_class") in BERT_CLASSES
    if changed and not (of_bert or class_of_bert):
        why = "has its own setting of case and accents, which cannot be changed"
        raise InvalidConfiguration(file, why)
    if not (of_bert or class_of_bert):
        return HuggingFaceTokenizer(as_text(content), as_text(with_special_tokens(file, config)), None, str(file))
    # A class of another name leaves the normaliser as it is; without a class the settings apply, as in BERT's.
    settings = config if class_of_bert or changed or not config.get("tokenizer_class") else {}
    normalization = read_normalization(file, settings, None if class_of_bert else normalizer)
    entries = described.get("vocab")
    if not isinstance(entries, dict) or not all(type(number) is int for number in entries.values()):
        raise DamagedData(file, "has no pieces with their ids")
    pieces = sorted(entries, key=lambda piece: entries[piece])
    if [entries[piece] for piece in pieces] != list(range(len(pieces))):
        raise DamagedData(file, "does not number its pieces from 0 without a gap", SAVE_AGAIN)
    unreadable = next((piece for piece in pieces if SURROGATES.search(piece)), None)
    if unreadable:
        raise DamagedData(file, f"has a piece that is not text: {unreadable[:40]!r}")
    check_vocabulary(pieces, str(file))
    usual = wordpiece_tokenizer(pieces, normalization, str(file), config)
    rules = {**content, "model": _WORDPIECE | described}
    if class_of_bert or (isinstance(normalizer, dict) and normalizer.get("clean_text") is True):
        rules["normalizer"] = usual.content["normalizer"]
    if class_of_bert:
        rules["pre_tokenizer"] = {"type": "BertPreTokenizer"}
    own = HuggingFaceTokenizer(as_text(rules), as_text(with_special_tokens(file, config)), None, str(file))
    return usual if _rules(rules) == _rules(usual.content) and own.separators == usual.separators else own


_WORDPIECE = {
    "type": "WordPiece",
    "unk_token": "[UNK]",
    "continuing_subword_prefix": CONTINUATION_MARK,
    "max_input_chars_per_word": MAX_WORD_LENGTH,
}
"""What older files leave out."""


def _rules(content: Mapping[str, Any]) -> dict[str, Any]:
    """What decides the ids of a WordPiece tokenizer."""
    added = content.get("added_tokens")
    return {
        "model": content["model"],
        "normalizer": content.get("normalizer"),
        "pre_tokenizer": content.get("pre_tokenizer"),
        "added_tokens": sorted(
            str(entry.get("content") if isinstance(entry, dict) else entry)
            for entry in (added if isinstance(added, list) else [])
        )
        or sorted(SPECIAL_PIECES),
    }
