"""Scores of answers follow the official definition."""

import re
import string
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from albert.tasks.answers import answer_exact_match, answer_f1, normalize_answer, span_exact_match, span_f1


@pytest.mark.parametrize(
    ("gold", "predicted", "exact", "overlap"),
    [
        (["the Beatles"], "Beatles", 1, 1),
        (["Denver Broncos", "Broncos"], "the broncos!", 1, 1),
        (["the"], "a", 1, 0),  # articles only: equal as empty strings, but no word in common
        (["..."], "", 1, 0),
        (["1973"], "October 1973", 0, 2 / 3),
        (["a b c d"], "b c", 0, 0.8),
        (["“quoted”"], "quoted", 0, 0),  # only ASCII punctuation is stripped
        (["in\u00a0the  house"], "in house", 1, 1),
        ([], "something", 0, 0),
    ],
)
def test_span_scores_by_hand(gold, predicted, exact, overlap):
    assert answer_exact_match(gold, predicted) == exact
    assert answer_f1(gold, predicted) == pytest.approx(overlap)


WORDS = st.lists(st.sampled_from(["the", "a", "An", "Ship", "ship,", "1,000", "é", "–", "!", "sea"]), max_size=5)
PHRASES = WORDS.map(" ".join)


@given(st.lists(st.tuples(st.lists(PHRASES, min_size=1, max_size=3), PHRASES), min_size=1, max_size=8))
def test_span_scores_follow_the_definition(questions):
    gold, predicted = [g for g, _ in questions], [p for _, p in questions]
    exact = [max(plain(g) == plain(p) for g in golds) for golds, p in questions]
    overlap = [max(word_overlap(g, p) for g in golds) for golds, p in questions]
    assert span_exact_match(gold, predicted) == 100.0 * sum(exact) / len(exact)
    assert span_f1(gold, predicted) == 100.0 * sum(overlap) / len(overlap)


def plain(text):
    """The definition once more, written another way."""
    kept = "".join(letter for letter in text.lower() if letter not in set(string.punctuation))
    return " ".join(word for word in re.sub(r"\b(?:a|an|the)\b", " ", kept).split())


def word_overlap(gold, predicted):
    gold_words, predicted_words = plain(gold).split(), plain(predicted).split()
    both = Counter(gold_words) & Counter(predicted_words)
    if not both:
        return 0
    precision, recall = both.total() / len(predicted_words), both.total() / len(gold_words)
    return 2 * precision * recall / (precision + recall)


@given(st.text(max_size=30))
def test_normalisation_is_idempotent_for_plain_words(text):
    once = normalize_answer(text)
    assert "  " not in once
    assert once == once.strip()
