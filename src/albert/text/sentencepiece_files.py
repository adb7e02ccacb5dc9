"""A SentencePiece tokenizer as files of the Hugging Face libraries, and which pieces begin a word.

Written by hand from the SentencePiece model, so that nothing of theirs is needed at run time.
`AlbertTokenizer` of transformers 5 rebuilds the normaliser from `do_lower_case` and `keep_accents` and
takes only vocabulary and character map from `tokenizer.json`; both descriptions below say the same thing."""

import base64
import unicodedata
from collections.abc import Mapping
from typing import Any

SPECIAL_PIECES = ("<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]")
MAXIMUM_LENGTH = 512
BLANK = "▁"


def tokenizer_json(
    vocabulary: list[tuple[str, float]], character_map: bytes, lower_case: bool, keep_accents: bool
) -> dict[str, Any]:
    """The content of `tokenizer.json`: unigram model, normaliser, template with segment ids."""
    metaspace = {"type": "Metaspace", "replacement": BLANK, "prepend_scheme": "always", "split": True}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [added_token(number, piece) for number, piece in enumerate(SPECIAL_PIECES)],
        "normalizer": {
            "type": "Sequence",
            "normalizers": _normalizers(character_map, lower_case, keep_accents),
        },
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"}, metaspace]},
        "post_processor": pair_template({piece: SPECIAL_PIECES.index(piece) for piece in ("[CLS]", "[SEP]")}),
        "decoder": metaspace,
        "model": {
            "type": "Unigram",
            "unk_id": 1,
            "vocab": [list(entry) for entry in vocabulary],
            "byte_fallback": False,
        },
    }


def tokenizer_config(lower_case: bool, keep_accents: bool) -> dict[str, Any]:
    """The content of `tokenizer_config.json`.

    `model_input_names` is spelled out because `AlbertTokenizer` of transformers 5 otherwise returns no
    segment ids.
    """
    return {
        "tokenizer_class": "AlbertTokenizer",
        "model_max_length": MAXIMUM_LENGTH,
        "model_input_names": ["input_ids", "token_type_ids", "attention_mask"],
        "do_lower_case": lower_case,
        "keep_accents": keep_accents,
        **special_tokens_map(),
    }


def special_tokens_map() -> dict[str, str]:
    """The content of `special_tokens_map.json`."""
    pad, unknown, first, separator, mask = SPECIAL_PIECES
    return {
        "bos_token": first,
        "eos_token": separator,
        "unk_token": unknown,
        "sep_token": separator,
        "pad_token": pad,
        "cls_token": first,
        "mask_token": mask,
    }


def added_token(number: int, piece: str) -> dict[str, Any]:
    """A special piece as `tokenizer.json` lists it: cut out of the text as it stands."""
    return {
        "id": number,
        "content": piece,
        "single_word": False,
        "lstrip": False,
        "rstrip": False,
        "normalized": False,
        "special": True,
    }


def pair_template(ids: Mapping[str, int]) -> dict[str, Any]:
    """`[CLS] A [SEP]` with segment 0, and `B [SEP]` behind it with segment 1."""

    def special(piece: str, segment: int) -> dict[str, Any]:
        return {"SpecialToken": {"id": piece, "type_id": segment}}

    def sequence(name: str, segment: int) -> dict[str, Any]:
        return {"Sequence": {"id": name, "type_id": segment}}

    single = [special("[CLS]", 0), sequence("A", 0), special("[SEP]", 0)]
    return {
        "type": "TemplateProcessing",
        "single": single,
        "pair": [*single, sequence("B", 1), special("[SEP]", 1)],
        "special_tokens": {piece: {"id": piece, "ids": [number], "tokens": [piece]} for piece, number in ids.items()},
    }


def _normalizers(character_map: bytes, lower_case: bool, keep_accents: bool) -> list[dict[str, Any]]:
    steps: list[dict[str, Any]] = [
        {"type": "Replace", "pattern": {"String": pair}, "content": '"'} for pair in ("``", "''")
    ]
    if not keep_accents:
        steps += [{"type": "NFKD"}, {"type": "StripAccents"}]
    if lower_case:
        steps.append({"type": "Lowercase"})
    if character_map:
        encoded = base64.b64encode(character_map).decode("ascii")
        steps.append({"type": "Precompiled", "precompiled_charsmap": encoded})
    return steps


# --------------------------------------------------------------------------------------------------------------------
# Which pieces begin a word, for masking whole words.
#
# The reference's rule (a piece begins a word when it starts with the blank mark, is a single sign, or holds
# anything beyond ASCII letters and punctuation) makes a word of every accented letter; here letters of all
# alphabets continue words, while ideographs and digits still begin one.

_IDEOGRAPHIC = ("CJK UNIFIED", "CJK COMPATIBILITY", "HIRAGANA", "KATAKANA", "HANGUL SYLLABLE", "YI SYLLABLE")


def begins_word(piece: str) -> bool:
    """Whether a piece is the first of a word: "▁the", ".", "7", "語"; not "ing", "'s", "é"."""
    if piece.startswith((BLANK, "<")) or (len(piece) == 1 and not _continues(piece)):
        return True
    return any((not character.isascii() and not _continues(character)) or character.isdigit() for character in piece)


def _continues(character: str) -> bool:
    kind = unicodedata.category(character)
    if kind[0] == "M":
        return True
    return kind[0] == "L" and not unicodedata.name(character, "").startswith(_IDEOGRAPHIC)
