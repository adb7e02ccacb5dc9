"""Which pieces begin a word, for masking whole words.

The reference's rule (a piece begins a word when it starts with the blank mark, is a single sign, or holds
anything beyond ASCII letters and punctuation) makes a word of every accented letter; here letters of all
alphabets continue words, while ideographs and digits still begin one.
"""

import unicodedata

from albert.text.unigram.tokenizer_files import BLANK

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
