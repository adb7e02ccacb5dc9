"""Random contexts out of all of Unicode, with more of what breaks offsets than chance would bring."""

import random
import sys

FRAGMENTS = (
    *("the ", "ship ", "Lisbon", "It was, ", "1,234", "2010,", "a ", "I", ". ", "'s ", "—", "e\u0301"),
    *("é", "ñ", "Å", "İ", "ß", "ς", "Σ", "ŉ", "ǆ", "½", "\u338f", "\ufdfa", "\ufb01", "\ufb04"),
    *("\uff11\uff12", "Ⅷ", "™", "…", "……", "℡", "\uff0c", "\x00", "\x10", "\x7f", "\x85", "\xad"),
    *("\u200b", "\u200d", "\u200e", "\u202e", "\ufeff", "\ufffd", "\x1c", "\ue000", "\u0378", "\ud800"),
    *("\udfff", "\xa0", "\u2003", "\u3000", "\u2028", "\u1680", "\t", "\n", "\r", "  "),
    *("\U0001f469\u200d\U0001f467", "\U0001f469\U0001f3fd", "\U0001f1e8\U0001f1ed", "\u2764\ufe0f"),
    "z" + "\u0300\u0315\u0489" * 8,
    *("\u05e9\u05b8\u05c1", "\u0645\u064e", "\ufdfd", "\u0939\u093f\u0902", "\u0e17\u0e35\u0e48"),
    *("\u4e2d\u6587", "\uf900", "\u304c", "\u304b\u3099", "\uff76\uff9e", "\uac00", "각", "``", "''"),
    *("“", "▁", "▁a", "##s", "[MASK]", "[SEP]", "<unk>", "<pad>", "[CLS]", "[UNK]", "²", "\u0345"),
    *("\U0001d15e",),
)
"""Whole words, characters that grow, shrink, fold or vanish when they are normalised, and what tokenizers write."""
_ENDS = (0x80, 0x800, 0x3000, 0x10000, sys.maxunicode + 1)
"""Ranges of code points; each is drawn from as often."""


def random_context(numbers: random.Random) -> str:
    """0 to about 60 characters; one in a thousand is longer by far."""
    pieces = numbers.choices(FRAGMENTS, k=numbers.randrange(16))
    for _ in range(numbers.randrange(6)):
        pieces.insert(numbers.randrange(len(pieces) + 1), chr(numbers.randrange(numbers.choice(_ENDS))))
    text = "".join(pieces)
    return text if numbers.random() > 0.001 else text * 100
