"""Whether a model suits texts: the share of pieces that its vocabulary does not know, and whether they are English."""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import islice

from albert.text.tokenizer import Tokenizer

WARN_FROM = 0.05
"""Share of unknown pieces from which a warning is given."""
UNREADABLE_FROM = 0.25
MAX_TEXTS = 2_000
"""The share is that of the first texts."""
_SHOWN = 4


def unknown_warning(tokenizer: Tokenizer, texts: Iterable[str], model: str) -> str | None:
    """A line that says which share of the pieces the vocabulary of `model` does not know, and why; None below 5 %."""
    sample = [text[:2_000] for text in islice(texts, MAX_TEXTS) if text]
    encoded = tokenizer.encode_batch(sample)
    unknown = sum(ids.count(tokenizer.unk_id) for ids in map(list, encoded))
    total = sum(map(len, encoded))
    if total == 0 or unknown / total < WARN_FROM:
        return None
    frequent = Counter(character for text in sample for character in text if not character.isspace())
    characters = [character for character, _ in frequent.most_common(2_000) if not character.isascii()]
    characters = [each for each in characters if tokenizer.unk_id in list(tokenizer.encode(each))][:_SHOWN]
    why = f"{unknown / total:.0%} of the pieces are unknown to the vocabulary of {model}"
    if not characters:
        return f"warning: {why}: take a model that was trained on such text"
    letters = [character for character in characters if unicodedata.category(character).startswith("L")]
    scripts = [unicodedata.name(letter, "?").partition(" ")[0].capitalize() for letter in letters]
    script = Counter(scripts).most_common(1)[0][0] if 2 * len(letters) >= len(characters) else "signs"
    shown = " ".join(characters)
    remedy = "a model that was trained on such text will do better"
    if unknown / total >= UNREADABLE_FROM:
        remedy = "the model cannot read this text, take one that was trained on its language"
    return f"warning: {why}, such as {shown} ({script}): {remedy}"


_FREQUENT = """the and that with this you are were has not from your what how which who they their there it he she would
been when about my"""
_ENGLISH_WORDS = frozenset(_FREQUENT.split())
"""Frequent English words that no other large language has."""
_OTHER = """und der das nicht ist ich ein eine auf wir sie zu den dem für les une dans pas vous nous avec sont los las
una por como pero más che di il sono gli della não uma os het een niet och att det som ikke på nie się jest bir ve"""
_OTHER_WORDS = frozenset(_OTHER.split())
"""Frequent words of other large languages in Latin letters that are not English."""
_MIN_ENGLISH = 0.03
"""Of the words. Measured: English questions, posts and reviews have 0.06 to 0.2, German posts 0.002."""
_MAX_OTHER = 0.25
"""Frequent words of other languages for each English one; of texts half of which are German: about 1."""
_MAX_NOT_ASCII = 0.2
"""Of the words."""
_TEXTS = 500


def is_english(texts: Sequence[str]) -> bool:
    """Return whether the texts, of which some at equal distances are read, are all English; also if they have too few
    words to tell."""
    some = texts[:: max(1, len(texts) // _TEXTS)]
    words = [word for text in some for word in re.findall(r"[^\W\d_]+", text.lower())]
    if not words:
        return True
    if sum(not word.isascii() for word in words) > _MAX_NOT_ASCII * len(words):
        return False
    if len(words) < 50:
        return True
    english = sum(word in _ENGLISH_WORDS for word in words)
    other = sum(word in _OTHER_WORDS for word in words)
    return english >= _MIN_ENGLISH * len(words) and other <= _MAX_OTHER * english
