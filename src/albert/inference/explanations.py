"""Which words moved a prediction: each word is left out in turn, and the score is computed again (occlusion; Li, Monroe
and Jurafsky 2016, "Understanding neural networks through representation erasure", arXiv 1612.08220)."""

from collections.abc import Callable, Sequence
from typing import NamedTuple, NotRequired, TypedDict

import numpy as np

TEXTS_AT_ONCE = 1024
"""Texts that lack a word are scored in groups of about so many."""

Scores = Callable[[list[str], list[str] | None], np.ndarray]
"""The scores of texts, or of pairs of texts: [texts, labels]."""


class WordOfText(TypedDict):
    """A word and its characters; of a pair also `part`, "text" or "pair"."""

    word: str
    start: int
    end: int
    part: NotRequired[str]


class ExplainedWord(WordOfText):
    """A word, and by how much the score is higher with it than without it."""

    change: float


class _Shortened(NamedTuple):
    """A row without one word, and the word."""

    row: int
    word: WordOfText
    text: str
    pair: str | None


def explain(
    scores_of: Scores,
    texts: Sequence[str],
    pairs: Sequence[str] | None,
    scores: np.ndarray,
    chosen: Sequence[Sequence[int]],
) -> list[list[list[ExplainedWord]]]:
    """The words of each text, for each chosen label, in the order of their influence.

    Args:
        scores_of: computes scores.
        pairs: second texts, whose words are left out, too.
        scores: of the texts as they are.
        chosen: the columns of `scores` that are explained, for each text.

    Returns:
        For each text and label a list of words: `word`, `start` and `end` in characters, and `change`, the score minus
        the score without the word. Words of pairs have `part`, "text" or "pair".
    """
    explained: list[list[list[ExplainedWord]]] = [[[] for _ in labels] for labels in chosen]
    waiting: list[_Shortened] = []
    for number, text in enumerate(texts):
        if chosen[number]:
            pair = None if pairs is None else pairs[number]
            for word, shorter in _without_each_word(text):
                if pair is not None:
                    word["part"] = "text"
                waiting.append(_Shortened(number, word, shorter, pair))
            for word, shorter in _without_each_word(pair or ""):
                word["part"] = "pair"
                waiting.append(_Shortened(number, word, text, shorter))
        is_last = number == len(texts) - 1
        if not waiting or (len(waiting) < TEXTS_AT_ONCE and not is_last):
            continue
        others = None if pairs is None else [each.pair or "" for each in waiting]
        without = scores_of([each.text for each in waiting], others)
        for each, row in zip(waiting, without, strict=True):
            for label, words in zip(chosen[each.row], explained[each.row], strict=True):
                change = float(scores[each.row, label]) - float(row[label])
                words.append({**each.word, "change": change})
        waiting.clear()
    for labels in explained:
        for words in labels:
            words.sort(key=lambda word: -abs(word["change"]))
    return explained


def _without_each_word(text: str) -> list[tuple[WordOfText, str]]:
    """Each word of a text, and the text without it."""
    from albert.text.word_split import word_spans

    shortened: list[tuple[WordOfText, str]] = []
    for start, end in word_spans(text):
        before = text[:start]
        after = text[end:]
        if after[:1].isspace() and (not before or before[-1].isspace()):
            after = after[1:]
        elif before[-1:].isspace() and not after[:1].isalnum():
            before = before[:-1]  # "a film, long" without "film" is "a, long"
        shortened.append(({"word": text[start:end], "start": start, "end": end}, before + after))
    return shortened
