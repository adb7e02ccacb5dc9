"""Windows hold every token, every gold answer is reachable, and an answer is a slice of its context."""

import string
import tracemalloc

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from albert.runtime.errors import InvalidConfiguration
from albert.tasks.answers import best_answers, span_exact_match, span_f1
from albert.tasks.examples import Example, to_examples
from albert.tasks.features import best_windows, cut_windows, span_features, token_span
from albert.tasks.squad import SQUAD_1
from albert.tasks.task import Answer
from albert.text.tokenizer import Tokenizer
from albert.text.tokenizer_loading import load_tokenizer


@given(n_tokens=st.integers(0, 60), room=st.integers(1, 24), stride=st.integers(1, 24))
def test_every_token_is_in_a_window_and_is_judged_in_exactly_one(n_tokens, room, stride):
    pieces = cut_windows(n_tokens, room, stride)
    assert all(stop - start <= room for start, stop in pieces)
    judged = np.zeros(n_tokens, int)
    for (start, stop), best in zip(pieces, best_windows(pieces, n_tokens), strict=True):
        judged[start:stop] += best
    assert (judged == 1).all()
    assert len(pieces) >= 1


def test_a_token_is_judged_where_it_has_most_context():
    pieces = cut_windows(10, 6, 4)
    assert pieces == [(0, 6), (4, 10)]
    first, second = best_windows(pieces, 10)
    assert first.tolist() == [True] * 5 + [False]  # token 4 has one to its right there, none to its left here
    assert second.tolist() == [False, True, True, True, True, True]


@given(n_tokens=st.integers(1, 60), room=st.integers(1, 24), stride=st.integers(1, 24))
def test_the_window_with_most_context_is_the_first_of_the_best_of_all(n_tokens, room, stride):
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


def test_a_long_context_of_short_windows_takes_memory_in_proportion_to_its_length():
    """Windows times tokens would be 4 GB, asked for by one request of a server."""
    pieces = cut_windows(50_000, 20, 5)
    tracemalloc.start()
    best_windows(pieces, 50_000)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 10e6


def test_a_stride_that_would_skip_tokens_is_refused(tokenizer):
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
def test_gold_answers_are_reachable_and_answers_are_slices(drawn, room, stride, tokenizer: Tokenizer):
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


def test_sequences_are_cls_question_sep_context_sep(tokenizer):
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


def test_the_best_allowed_span_wins(tokenizer):
    question = Example("q", "here", ("who", "old sailors sang of storms"))
    features = span_features([question], tokenizer, 64, 16, 8)
    n, offset = int(features.sequences.lengths[0]), features.windows[0].offset
    starts, ends = np.zeros(n), np.zeros(n)
    starts[0] = ends[0] = 99.0  # [CLS] is no answer
    starts[offset + 2], ends[offset + 1] = 5.0, 9.0  # an end before its start is no answer
    starts[offset + 1] = 3.0
    rows = [np.stack([starts, ends], axis=1)]
    best = best_answers([question], features, rows, max_answer_tokens=1)[0].candidates[0]
    assert best.score == 12.0
    assert (best.start, best.end) == tuple(features.character_spans[0][1])


def test_gold_tokens_of_the_official_dev_set_are_the_gold_answers(shared):
    """Containment is complete, and choosing the gold tokens scores what the tokenizer allows at best."""
    tokenizer = load_tokenizer(shared / "data/checkpoints/spiece.model")
    examples = to_examples(SQUAD_1, SQUAD_1.source.read(shared / "data/squad", "dev").rows)[::60]
    features = span_features(examples, tokenizer, 384, 64, 128)
    assert features.counts["answers_not_aligned"] == 0
    predicted, held = [], {w.example for w, t in zip(features.windows, features.targets, strict=True) if t[0] >= 0}
    assert held == set(range(len(examples)))
    for index, question in enumerate(examples):
        gold, spans = question.answers[0], features.character_spans[index]
        first, last = token_span(spans, gold)
        assert spans[first, 0] <= gold.start
        assert spans[last, 1] >= gold.start + len(gold.text.rstrip())
        predicted.append(question.texts[1][spans[first, 0] : spans[last, 1]])
    golds = [[answer.text for answer in question.answers[:1]] for question in examples]
    assert span_exact_match(golds, predicted) > 98.5
    assert span_f1(golds, predicted) > 99.4
