"""The best answers are the best of all allowed spans, with their share of all probability, or of none."""

from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from albert.tasks.answers import NOTHING_TO_GIVE, best_answers
from albert.tasks.examples import Example
from albert.tasks.features import SpanFeatures, Window, best_windows, cut_windows, join_sequences

OFFSET = 3
DRAWN = {
    "n_tokens": st.integers(1, 16),
    "room": st.integers(2, 8),
    "stride": st.integers(1, 4),
    "longest": st.integers(1, 6),
    "seed": st.integers(0, 99),
    "may_be_absent": st.booleans(),
}


class Row(NamedTuple):
    starts: np.ndarray
    beam: np.ndarray
    ends: np.ndarray
    unanswerable: np.ndarray


def windows_over(n_tokens, room, stride):
    """A context of so many one-letter tokens, in windows."""
    pieces = cut_windows(n_tokens, room, min(stride, room))
    best = best_windows(pieces, n_tokens)
    windows = [Window(0, OFFSET, a, b - a, mask) for (a, b), mask in zip(pieces, best, strict=True)]
    places = np.stack([np.arange(n_tokens), np.arange(n_tokens) + 1], axis=1)
    features = SpanFeatures(join_sequences([]), windows, [places], np.zeros((0, 2), np.int64), {})
    return [Example("q", "here", ("who", "abcdefghijklmnop"[:n_tokens]))], features


@given(**DRAWN)
def test_independent_logits_give_every_allowed_span_its_share(n_tokens, room, stride, longest, seed, may_be_absent):
    examples, features = windows_over(n_tokens, room, stride)
    generator = np.random.default_rng(seed)
    rows = [generator.normal(0, 3, (OFFSET + w.n_tokens + 1, 2)).astype(np.float32) for w in features.windows]
    expected = {}
    for window, row in zip(features.windows, rows, strict=True):
        for first in np.flatnonzero(window.best):
            for last in range(first, min(first + longest, window.n_tokens)):
                place = (window.first_token + first, window.first_token + last + 1)
                expected[place] = float(row[OFFSET + first, 0]) + float(row[OFFSET + last, 1])
    found = best_answers(examples, features, rows, longest, 10_000, may_be_absent)[0]
    assert {(each.start, each.end): each.score for each in found.candidates} == pytest.approx(expected)
    total = sum(each.probability for each in found.candidates) + found.no_answer_probability
    assert total == pytest.approx(1)
    assert found.candidates == sorted(found.candidates, key=lambda each: -each.score)
    if may_be_absent:
        null = min(float(row[0].sum()) for row in rows)
        assert found.no_answer == pytest.approx(null - max(expected.values()), abs=1e-5)
        weight = np.exp(null) / (np.exp(null) + np.exp(list(expected.values())).sum())
        assert found.no_answer_probability == pytest.approx(weight, rel=1e-4)
    else:
        assert found.no_answer is None
        assert found.no_answer_probability == 0


@given(**DRAWN)
def test_a_beam_gives_the_spans_of_its_starts_and_a_decision(n_tokens, room, stride, longest, seed, may_be_absent):
    examples, features = windows_over(n_tokens, room, stride)
    generator = np.random.default_rng(seed)
    rows = []
    for window in features.windows:
        length = OFFSET + window.n_tokens + 1
        beam = generator.integers(OFFSET, OFFSET + window.n_tokens, 3)
        drawn = (generator.normal(0, 3, length), beam, generator.normal(0, 3, (length, 3)), generator.normal(0, 3))
        rows.append(Row(*(np.asarray(each) for each in drawn)))
    everywhere, judged = {}, {}
    for window, row in zip(features.windows, rows, strict=True):
        for column, start in enumerate(row.beam):
            if start in row.beam[:column]:
                continue  # a start that comes twice has the ends of its first column
            ends = row.ends[:, column] - np.log(np.exp(row.ends[:, column]).sum())
            for end in range(start, min(start + longest, OFFSET + window.n_tokens)):
                score = row.starts[start] - np.log(np.exp(row.starts).sum()) + ends[end]
                place = (window.first_token + start - OFFSET, window.first_token + end - OFFSET + 1)
                everywhere[place] = max(everywhere.get(place, -np.inf), score)
                if window.best[start - OFFSET]:
                    judged[place] = score
    found = best_answers(examples, features, rows, longest, 10_000, may_be_absent)[0]
    scores = {(each.start, each.end): each.score for each in found.candidates}
    assert scores == pytest.approx(judged or everywhere)
    if may_be_absent:
        lowest = min(float(row.unanswerable) for row in rows)
        assert found.no_answer == lowest
        assert found.no_answer_probability == pytest.approx(1 / (1 + np.exp(-lowest)))
    if judged:
        assert sum(each.probability for each in found.candidates) + found.no_answer_probability == pytest.approx(1)


@pytest.mark.parametrize("joint", [False, True])
def test_a_context_without_tokens_has_no_answer(joint):
    window = Window(0, OFFSET, 0, 0, np.zeros(0, bool))
    features = SpanFeatures(join_sequences([]), [window], [np.zeros((0, 2), int)], np.zeros((0, 2), np.int64), {})
    row = Row(np.zeros(4), np.zeros(5, int), np.zeros((4, 5)), np.array(-2.0)) if joint else np.zeros((4, 2))
    found = best_answers([Example("q", "here", ("who", ""))], features, [row], may_be_absent=True)[0]
    assert found.candidates == []
    assert found.no_answer_probability == 1
    assert found.no_answer == (-2.0 if joint else NOTHING_TO_GIVE)
