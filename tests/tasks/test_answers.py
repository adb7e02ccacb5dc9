"""Answers to questions: windows, spans, thresholds, and the scores of SQuAD."""

import re
import string
import tracemalloc
from collections import Counter
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from albert.runtime.errors import InvalidConfiguration
from albert.tasks.answers import (
    NO_CANDIDATE_SCORE,
    OpenAnswer,
    answer_exact_match,
    answer_f1,
    best_answers,
    choose_threshold,
    never_answered,
    open_question_scores,
    span_exact_match,
    span_f1,
)
from albert.tasks.examples import (
    Example,
    SpanFeatures,
    Window,
    best_windows,
    cut_windows,
    join_sequences,
    span_features,
    token_span,
)
from albert.tasks.task import Answer
from albert.text.tokenizer import Tokenizer

# --------------------------------------------------------------------------------------------------------------------
# The best answers are the best of all allowed spans, with their share of all probability, or of none.


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
    features = SpanFeatures(
        join_sequences([]), np.zeros((0, 2), np.int64), {}, windows=windows, character_spans=[places]
    )
    return [Example("q", "here", ("who", "abcdefghijklmnop"[:n_tokens]))], features


@given(**DRAWN)
def test_independent_logits_score_all_allowed_spans(n_tokens, room, stride, longest, seed, may_be_absent):
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
def test_joint_head_scores_the_spans_of_its_beam(n_tokens, room, stride, longest, seed, may_be_absent):
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
def test_context_without_tokens_has_no_answer(joint):
    window = Window(0, OFFSET, 0, 0, np.zeros(0, bool))
    features = SpanFeatures(
        join_sequences([]), np.zeros((0, 2), np.int64), {}, windows=[window], character_spans=[np.zeros((0, 2), int)]
    )
    row = Row(np.zeros(4), np.zeros(5, int), np.zeros((4, 5)), np.array(-2.0)) if joint else np.zeros((4, 2))
    found = best_answers([Example("q", "here", ("who", ""))], features, [row], may_be_absent=True)[0]
    assert found.candidates == []
    assert found.no_answer_probability == 1
    assert found.no_answer == (-2.0 if joint else NO_CANDIDATE_SCORE)


# --------------------------------------------------------------------------------------------------------------------
# Scores of answers follow the official definition.


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


# --------------------------------------------------------------------------------------------------------------------
# SQuAD 2.0's scores by hand, and the threshold between answering and not.
# Equality with the official script is in `test_official_scores.py`.


QUESTIONS = st.lists(
    st.tuples(st.booleans(), st.sampled_from(["", "old ship", "ship", "sea"]), st.integers(-3, 3)),
    min_size=1,
    max_size=12,
)


def test_never_answering_scores_the_share_without_answers():
    gold = [("Paris",), (), (), ("a ship", "ships")]
    scores = open_question_scores(gold, never_answered(gold))
    assert (scores["f1"], scores["exact"]) == (50.0, 50.0)
    assert (scores["HasAns_f1"], scores["NoAns_f1"]) == (0.0, 100.0)
    assert next(iter(scores)) == "f1"


def test_scores_use_the_decision_and_report_the_best_threshold():
    gold = [("Paris",), ()]
    said = [OpenAnswer("Paris", 3.0, answered=False), OpenAnswer("Rome", 5.0, answered=True)]
    scores = open_question_scores(gold, said)
    assert (scores["f1"], scores["HasAns_exact"], scores["NoAns_exact"]) == (0.0, 0.0, 0.0)
    assert (scores["best_f1"], scores["best_f1_thresh"]) == (100.0, 3.0)


def test_scores_without_questions_are_undefined():
    assert open_question_scores([("a",)], [OpenAnswer("a", 0.0, answered=True)])["NoAns_f1"] is None
    assert set(open_question_scores([], []).values()) == {None}


@given(QUESTIONS)
def test_chosen_threshold_is_optimal(questions):
    gold = [("ship",) if has else () for has, _, _ in questions]

    def f1_with(threshold):
        said = [OpenAnswer(text, float(score), answered=score <= threshold) for _, text, score in questions]
        return open_question_scores(gold, said)["f1"]

    said = [OpenAnswer(text, float(score), answered=True) for _, text, score in questions]
    best = f1_with(choose_threshold(gold, said))
    assert best == pytest.approx(max(f1_with(threshold) for threshold in range(-4, 5)))


# --------------------------------------------------------------------------------------------------------------------
# Windows hold every token, every gold answer is reachable, and an answer is a slice of its context.


@given(n_tokens=st.integers(0, 60), room=st.integers(1, 24), stride=st.integers(1, 24))
def test_every_token_is_best_in_exactly_one_window(n_tokens, room, stride):
    pieces = cut_windows(n_tokens, room, stride)
    assert all(stop - start <= room for start, stop in pieces)
    judged = np.zeros(n_tokens, int)
    for (start, stop), best in zip(pieces, best_windows(pieces, n_tokens), strict=True):
        judged[start:stop] += best
    assert (judged == 1).all()
    assert len(pieces) >= 1


def test_best_window_has_most_context():
    pieces = cut_windows(10, 6, 4)
    assert pieces == [(0, 6), (4, 10)]
    first, second = best_windows(pieces, 10)
    assert first.tolist() == [True] * 5 + [False]  # token 4 has one to its right there, none to its left here
    assert second.tolist() == [False, True, True, True, True, True]


@given(n_tokens=st.integers(1, 60), room=st.integers(1, 24), stride=st.integers(1, 24))
def test_best_windows_equal_brute_force(n_tokens, room, stride):
    pieces = cut_windows(n_tokens, room, stride)
    context = np.array(
        [
            [
                min(at - start, stop - 1 - at) + 0.01 * (stop - start) if start <= at < stop else -1.0
                for at in range(n_tokens)
            ]
            for start, stop in pieces
        ]
    )
    for row, ((start, stop), best) in enumerate(zip(pieces, best_windows(pieces, n_tokens), strict=True)):
        assert best.tolist() == (context.argmax(axis=0)[start:stop] == row).tolist()


def test_best_windows_need_linear_memory():
    """Windows times tokens would be 4 GB, asked for by one request of a server."""
    pieces = cut_windows(50_000, 20, 5)
    tracemalloc.start()
    best_windows(pieces, 50_000)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 10e6


def test_stride_that_skips_tokens_is_refused(tokenizer):
    with pytest.raises(InvalidConfiguration, match="stride: 10 exceeds the 7 context tokens"):
        span_features([], tokenizer, max_length=20, question_length=10, stride=10)


CONTEXTS = st.text(
    st.sampled_from(string.ascii_letters + "  ..\n\t'\"-éﬁ½İ\u0301\u200d\u00a0가ト[]" + "the ship"), max_size=80
)


@st.composite
def contexts_and_places(draw):
    context = draw(CONTEXTS)
    start = draw(st.integers(0, max(0, len(context) - 1)))
    end = draw(st.integers(start, min(len(context), start + 20)))
    return context, start, end


@given(drawn=contexts_and_places(), room=st.integers(6, 30), stride=st.integers(1, 6))
@example(drawn=("", 0, 0), room=6, stride=1)
def test_gold_answers_are_in_windows_and_answers_are_slices(drawn, room, stride, tokenizer: Tokenizer):
    context, start, end = drawn
    question = Example("q", "here", ("the ship", context), None, (Answer(context[start:end], start),))
    n_question = len(tokenizer.encode(question.texts[0]))
    features = span_features([question], tokenizer, room + n_question + 3, n_question, stride)
    gold = question.answers[0]
    spans = features.character_spans[0]
    place = token_span(spans, gold)
    reachable = place is not None and place[1] - place[0] < room
    held = [w for w, target in zip(features.windows, features.targets, strict=True) if target[0] >= 0]
    if reachable and stride + (place[1] - place[0]) <= room:
        assert held, "the overlap is longer than the answer, and yet no window holds it"
    if place is not None:
        # The tokens of the answer cover all of it that the tokenizer can see.
        covered = context[spans[place[0], 0] : spans[place[1], 1]]
        assert visible(gold.text, tokenizer) in visible(covered, tokenizer)
    for index, target in enumerate(features.targets):
        if target[0] >= 0:
            window = features.windows[index]
            first, last = target - window.offset + window.first_token
            assert (first, last) == place
    rng = np.random.default_rng(len(context))
    rows = [rng.normal(size=(int(n), 2)) for n in features.sequences.lengths]
    found = best_answers([question], features, rows, max_answer_tokens=3)[0].candidates
    assert bool(found) == (len(spans) > 0)
    for candidate in found:
        assert candidate.text == context[candidate.start : candidate.end]
    scores = [candidate.score for candidate in found]
    assert scores == sorted(scores, reverse=True)


def visible(text, tokenizer):
    return tokenizer.normalize(text).replace(" ", "").strip()


def test_span_sequences(tokenizer):
    question = Example("q", "here", ("who sang", "old sailors sang of storms"), None, (Answer("storms", 20),))
    features = span_features([question], tokenizer, 64, 16, 8)
    ids, types = features.sequences.token_ids(0), features.sequences.token_type_ids(0)
    first, second = tokenizer.encode("who sang"), tokenizer.encode("old sailors sang of storms")
    assert ids.tolist() == [tokenizer.cls_id, *first, tokenizer.sep_id, *second, tokenizer.sep_id]
    assert types.tolist() == [0] * (len(first) + 2) + [1] * (len(second) + 1)
    start, end = features.targets[0]
    assert tokenizer.decode(ids[start : end + 1].tolist()) == "storms"
    assert features.counts == {
        "windows": 1,
        "windows_without_answer": 0,
        "questions_truncated": 0,
        "contexts_in_several_windows": 0,
        "answers_not_aligned": 0,
    }
