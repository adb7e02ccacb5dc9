"""A WordPiece vocabulary and its settings from `tokenizer.json`: what transformers 5 leaves of a BERT tokenizer."""

from pathlib import Path
from typing import Any

from albert.runtime.errors import DamagedData, InvalidConfiguration
from albert.text.tokenizer import CONFIG_NAME
from albert.text.wordpiece.wordpiece_matching import CONTINUES
from albert.text.wordpiece.wordpiece_vocabulary import SPECIAL_PIECES, UNKNOWN, check_vocabulary

BERT_CLASSES = ("BertTokenizer", "BertTokenizerFast")
ORIGINAL = "put the vocab.txt that the model was trained with beside it"


def vocabulary_from_json(file: Path, content: dict[str, Any]) -> list[str]:
    """The pieces in a `tokenizer.json` whose model is WordPiece, in the order of their ids.

    Raises:
        DamagedData: not BERT's kind of WordPiece, or its ids have gaps, or it cuts further tokens out of the text.
    """
    model = content["model"]
    entries = model.get("vocab")
    if not isinstance(entries, dict) or not all(type(number) is int for number in entries.values()):
        raise DamagedData(file, "has no pieces with their ids")
    pieces = sorted(entries, key=lambda piece: entries[piece])
    if [entries[piece] for piece in pieces] != list(range(len(pieces))):
        raise DamagedData(file, "does not number its pieces from 0 without a gap", ORIGINAL)
    check_vocabulary(pieces, str(file))
    if unreadable := next((piece for piece in pieces if any("\ud800" <= c <= "\udfff" for c in piece)), None):
        raise DamagedData(file, f"has a piece that is no text: {unreadable[:40]!r}")
    stated = (model.get("unk_token", UNKNOWN), model.get("continuing_subword_prefix", CONTINUES))
    if stated != (UNKNOWN, CONTINUES):
        raise DamagedData(file, f"marks unknown words and continuing pieces with {stated}, BERT with [UNK] and ##")
    added = content.get("added_tokens") or []
    for entry in added if isinstance(added, list) else [added]:
        token = entry.get("content") if isinstance(entry, dict) else entry
        if token not in SPECIAL_PIECES:
            why = f"cuts added tokens out of the text ({token}), which ALBERT's tokenizer does not"
            raise DamagedData(file, why, ORIGINAL)
    return pieces


def normalization_settings(file: Path, config: dict[str, Any], normalizer: object) -> dict[str, bool | None]:
    """`do_lower_case`, `strip_accents` (None: as letters are lower-cased) and `tokenize_chinese_chars`.

    BERT's classes of transformers take them from `tokenizer_config.json` alone; where that names none of them, the
    normaliser of `tokenizer.json` says it.

    Raises:
        DamagedData: a normaliser that is not BERT's.
        InvalidConfiguration: a setting of another kind, or another class than BERT's.
    """
    place = file.parent / CONFIG_NAME
    stated: dict[str, Any] = {"do_lower_case": True, "strip_accents": None, "tokenize_chinese_chars": True}
    named = str(config.get("tokenizer_class") or "")
    if named.startswith("BertJapanese") or config.get("do_basic_tokenize", True) is not True:
        raise InvalidConfiguration(place, "asks for another way to find words than BERT's", "it cannot be opened here")
    if isinstance(normalizer, dict) and named not in BERT_CLASSES:
        if normalizer.get("type") != "BertNormalizer" or normalizer.get("clean_text") is not True:
            raise DamagedData(file, "does not normalise as BERT's tokenizer does", ORIGINAL)
        names = zip(stated, ("lowercase", "strip_accents", "handle_chinese_chars"), strict=True)
        stated = {ours: normalizer.get(theirs, stated[ours]) for ours, theirs in names}
    for name, value in stated.items():
        stated[name] = config.get(name, value)
        if not isinstance(stated[name], bool) and not (name == "strip_accents" and stated[name] is None):
            raise InvalidConfiguration(f"{place}: {name}", f"is {stated[name]!r}, true or false is expected")
    return stated
