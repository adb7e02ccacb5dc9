"""Answers to questions: windows, spans, thresholds, and the scores of SQuAD."""

import string
import tracemalloc
from itertools import chain
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.refusals import refusal

from albert.runtime.errors import InvalidConfiguration
from albert.tables.table import Answer
from albert.tasks.answers import (
    OpenAnswer,
    answer_exact_match,
    answer_f1,
    choose_threshold,
    open_question_scores,
    span_exact_match,
)
from albert.tasks.examples import Example, best_windows, cut_windows, join_sequences
from albert.tasks.span_answers import NO_CANDIDATE_SCORE, best_answers
from albert.tasks.span_windows import SpanFeatures, Window, span_features, token_span
from albert.text.tokenizer import Tokenizer

# --------------------------------------------------------------------------------------------------------------------
# The best answers are those of a brute-force search.

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
    """The features of a context of one-letter tokens, in windows."""
    pieces = cut_windows(n_tokens, room, min(stride, room))
    best = best_windows(pieces, n_tokens)
    windows = [Window(0, OFFSET, a, b - a, mask) for (a, b), mask in zip(pieces, best, strict=True)]
    spans = np.stack([np.arange(n_tokens), np.arange(n_tokens) + 1], axis=1)
    return features_of(windows, "abcdefghijklmnop"[:n_tokens], spans)


def features_of(windows, context, spans):
    none = np.zeros(0, np.int64)
    return SpanFeatures(
        sequences=join_sequences([]),
        targets=np.zeros((0, 2), np.int64),
        counts={},
        example_of=none,
        slot_of=none,
        cut=none,
        windows=windows,
        contexts=[context],
        character_spans=[spans],
    )


def probabilities(answers):
    return sum(candidate.probability for candidate in answers.candidates) + answers.no_answer_probability


@given(**DRAWN)
def test_independent_logits_score_all_allowed_spans(n_tokens, room, stride, longest, seed, may_be_absent):
    features = windows_over(n_tokens, room, stride)
    generator = np.random.default_rng(seed)
    rows = [generator.normal(0, 3, (OFFSET + w.n_tokens + 1, 2)).astype(np.float32) for w in features.windows]
    expected = {}
    for window, row in zip(features.windows, rows, strict=True):
        for first in np.flatnonzero(window.best):
            for last in range(first, min(first + longest, window.n_tokens)):
                span = (window.first_token + first, window.first_token + last + 1)
                expected[span] = float(row[OFFSET + first, 0]) + float(row[OFFSET + last, 1])
    found = best_answers(features, rows, longest, 10_000, may_be_absent)[0]
    assert {(c.start, c.end): c.score for c in found.candidates} == pytest.approx(expected)
    assert found.candidates == sorted(found.candidates, key=lambda candidate: -candidate.score)
    assert probabilities(found) == pytest.approx(1)
    if may_be_absent:
        null = min(float(row[0].sum()) for row in rows)
        assert found.no_answer == pytest.approx(null - max(expected.values()), abs=1e-5)
        weight = np.exp(null) / (np.exp(null) + np.exp(list(expected.values())).sum())
        assert found.no_answer_probability == pytest.approx(weight, rel=1e-4)
    else:
        assert (found.no_answer, found.no_answer_probability) == (None, 0)


@given(**DRAWN)
def test_joint_head_scores_the_spans_of_its_beam(n_tokens, room, stride, longest, seed, may_be_absent):
    features = windows_over(n_tokens, room, stride)
    generator = np.random.default_rng(seed)
    rows = []
    for window in features.windows:
        length = OFFSET + window.n_tokens + 1
        beam = generator.integers(OFFSET, OFFSET + window.n_tokens, 3)
        values = (generator.normal(0, 3, length), beam, generator.normal(0, 3, (length, 3)), generator.normal(0, 3))
        rows.append(Row(*map(np.asarray, values)))
    in_any_window, in_best_window = {}, {}
    for window, row in zip(features.windows, rows, strict=True):
        for column, start in enumerate(row.beam):
            if start in row.beam[:column]:
                continue  # a repeated start has the ends of its first column
            ends = row.ends[:, column] - np.log(np.exp(row.ends[:, column]).sum())
            for end in range(start, min(start + longest, OFFSET + window.n_tokens)):
                score = row.starts[start] - np.log(np.exp(row.starts).sum()) + ends[end]
                span = (window.first_token + start - OFFSET, window.first_token + end - OFFSET + 1)
                in_any_window[span] = max(in_any_window.get(span, -np.inf), score)
                if window.best[start - OFFSET]:
                    in_best_window[span] = score
    found = best_answers(features, rows, longest, 10_000, may_be_absent)[0]
    scores = {(candidate.start, candidate.end): candidate.score for candidate in found.candidates}
    assert scores == pytest.approx(in_best_window or in_any_window)
    if may_be_absent:
        lowest = min(float(row.unanswerable) for row in rows)
        assert found.no_answer == lowest
        assert found.no_answer_probability == pytest.approx(1 / (1 + np.exp(-lowest)))
    if in_best_window:
        assert probabilities(found) == pytest.approx(1)


def test_a_blank_piece_alone_is_no_answer():
    features = windows_over(3, room=8, stride=1)
    features.character_spans[0][1] = 2
    at_the_blank = 9 * np.eye(OFFSET + 4, dtype=np.float32)[:, [OFFSET + 1] * 2]
    found = best_answers(features, [at_the_blank])[0]
    assert {candidate.text for candidate in found.candidates} == {"a", "ab", "abc", "c"}


@pytest.mark.parametrize("joint", [False, True])
def test_context_without_tokens_has_no_answer(joint):
    window = Window(0, OFFSET, 0, 0, np.zeros(0, bool))
    features = features_of([window], "", np.zeros((0, 2), int))
    row = Row(np.zeros(4), np.zeros(5, int), np.zeros((4, 5)), np.array(-2.0)) if joint else np.zeros((4, 2))
    found = best_answers(features, [row], may_be_absent=True)[0]
    assert (found.candidates, found.no_answer_probability) == ([], 1)
    assert found.no_answer == (-2.0 if joint else NO_CANDIDATE_SCORE)


# --------------------------------------------------------------------------------------------------------------------
# Scores of SQuAD 1.1 and 2.0; for equality with the official scripts see `test_official_scores.py`.


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
    assert span_exact_match([gold, gold], [predicted, "none"]) == 50 * exact
    assert answer_exact_match(gold, predicted) == exact
    assert answer_f1(gold, predicted) == pytest.approx(overlap)


QUESTIONS = st.lists(
    st.tuples(st.booleans(), st.sampled_from(["", "old ship", "ship", "sea"]), st.integers(-3, 3)),
    min_size=1,
    max_size=12,
)


@pytest.mark.parametrize(
    ("gold", "predicted", "expected"),
    [
        (
            [("Paris",), (), (), ("a ship", "ships")],
            [OpenAnswer("", 0.0, answered=False)] * 4,
            {"f1": 50.0, "exact": 50.0, "HasAns_f1": 0.0, "NoAns_f1": 100.0},
        ),
        (
            [("Paris",), ()],
            [OpenAnswer("Paris", 3.0, answered=False), OpenAnswer("Rome", 5.0, answered=True)],
            {"f1": 0.0, "HasAns_exact": 0.0, "NoAns_exact": 0.0, "best_f1": 100.0, "best_f1_thresh": 3.0},
        ),
        ([("a",)], [OpenAnswer("a", 0.0, answered=True)], {"f1": 100.0, "NoAns_f1": None}),
        ([], [], {"f1": None, "HasAns_f1": None, "best_exact": None, "best_exact_thresh": None}),
    ],
)
def test_scores_of_questions_without_answers(gold, predicted, expected):
    scores = open_question_scores(gold, predicted)
    assert {name: scores[name] for name in expected} == expected
    assert next(iter(scores)) == "f1"


@given(QUESTIONS)
def test_chosen_threshold_is_optimal(questions):
    gold = [("ship",) if has else () for has, _, _ in questions]

    def predicted(threshold=np.inf):
        return [OpenAnswer(text, float(score), answered=score <= threshold) for _, text, score in questions]

    def f1_with(threshold):
        return open_question_scores(gold, predicted(threshold))["f1"]

    best = f1_with(choose_threshold(gold, predicted()))
    assert best == pytest.approx(max(f1_with(threshold) for threshold in range(-4, 5)))


# --------------------------------------------------------------------------------------------------------------------
# Windows


@given(n_tokens=st.integers(0, 60), room=st.integers(1, 24), stride=st.integers(1, 24))
@example(n_tokens=10, room=6, stride=4)
def test_best_window_of_each_token_is_that_with_most_context(n_tokens, room, stride):
    pieces = cut_windows(n_tokens, room, stride)
    assert pieces and all(stop - start <= room for start, stop in pieces)
    assert {*chain.from_iterable(range(*piece) for piece in pieces)} == set(range(n_tokens))
    position = np.arange(n_tokens)
    context = np.array([np.minimum(position - a, b - 1 - position) + 0.01 * (b - a) for a, b in pieces])
    outside = np.array([(position < a) | (position >= b) for a, b in pieces])
    context[outside] = -1.0
    for row, ((start, stop), best) in enumerate(zip(pieces, best_windows(pieces, n_tokens), strict=True)):
        assert best.tolist() == (context.argmax(axis=0)[start:stop] == row).tolist()


def test_best_windows_need_linear_memory():
    """A matrix of windows by tokens would be 4 GB for one request of a server."""
    pieces = cut_windows(50_000, 20, 5)
    tracemalloc.start()
    best_windows(pieces, 50_000)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 10e6


def test_stride_that_skips_tokens_is_refused(tokenizer):
    with refusal(InvalidConfiguration, "stride", 10, 7):
        span_features([], tokenizer, max_length=20, question_length=10, stride=10)


CONTEXTS = st.text(
    st.sampled_from(string.ascii_letters + "  ..\n\t'\"-éﬁ½İ\u0301\u200d\u00a0가ト[]" + "the ship"), max_size=80
)


@st.composite
def contexts_and_answers(draw):
    context = draw(CONTEXTS)
    start = draw(st.integers(0, max(0, len(context) - 1)))
    end = draw(st.integers(start, min(len(context), start + 20)))
    return context, Answer(context[start:end], start)


@given(drawn=contexts_and_answers(), room=st.integers(6, 30), stride=st.integers(1, 6))
@example(drawn=("", Answer("", 0)), room=6, stride=1)
def test_gold_answers_are_in_windows_and_answers_are_slices(drawn, room, stride, tokenizer: Tokenizer):
    context, gold = drawn
    question = Example("q", "file:1", ("the ship", context), None, (gold,))
    n_question = len(tokenizer.encode(question.texts[0]))
    features = span_features([question], tokenizer, room + n_question + 3, n_question, stride)
    spans = features.character_spans[0]
    span = token_span(spans, gold)
    answered = [(w, target) for w, target in zip(features.windows, features.targets, strict=True) if target[0] >= 0]
    for window, target in answered:
        assert tuple(target - window.offset + window.first_token) == span
    if span is not None:
        assert answered or stride + (span[1] - span[0]) > room, "the overlap is longer than the answer"
        # the tokens of the answer cover all of it that the tokenizer can see
        covered = context[spans[span[0], 0] : spans[span[1], 1]]
        assert visible(gold.text, tokenizer) in visible(covered, tokenizer)
    rng = np.random.default_rng(len(context))
    rows = [rng.normal(size=(int(n), 2)) for n in features.sequences.lengths]
    candidates = best_answers(features, rows, max_answer_tokens=3)[0].candidates
    assert bool(candidates) == (len(spans) > 0)
    assert all(candidate.text == context[candidate.start : candidate.end] for candidate in candidates)
    scores = [candidate.score for candidate in candidates]
    assert scores == sorted(scores, reverse=True)


def visible(text, tokenizer):
    """What the tokenizer sees of a text; `''` and ```` `` ````, which become one quote, may be divided by an answer."""
    return tokenizer.normalize(text).replace(" ", "").strip().replace('"', "''").replace("`", "'")


def test_span_sequences(tokenizer):
    question = Example("q", "file:1", ("who sang", "old sailors sang of storms"), None, (Answer("storms", 20),))
    features = span_features([question], tokenizer, 64, 16, 8)
    ids, types = features.sequences.token_ids(0), features.sequences.token_type_ids(0)
    first, second = tokenizer.encode("who sang"), tokenizer.encode("old sailors sang of storms")
    assert ids.tolist() == [tokenizer.cls_id, *first, tokenizer.sep_id, *second, tokenizer.sep_id]
    assert types.tolist() == [0] * (len(first) + 2) + [1] * (len(second) + 1)
    start, end = features.targets[0]
    assert tokenizer.decode(ids[start : end + 1].tolist()) == "storms"
    assert {name: count for name, count in features.counts.items() if count} == {"windows": 1}
