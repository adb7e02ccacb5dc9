"""Whether a model suits texts: the share of pieces that its vocabulary does not know, and whether they are English."""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable
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
_MIN_ENGLISH = 0.03
"""Of the words. Measured: English questions, posts and reviews have 0.06 to 0.2, German posts 0.002."""


def is_english(texts: Iterable[str]) -> bool:
    """Return whether the first texts are English; also if they have too few words to tell."""
    words = [word for text in islice(texts, 500) for word in re.findall(r"[^\W\d_]+", text.lower())]
    if not words:
        return True
    if sum(not word.isascii() for word in words) > len(words) / 2:
        return False
    return len(words) < 50 or sum(word in _ENGLISH_WORDS for word in words) >= _MIN_ENGLISH * len(words)
