"""The probability of a span is its share among every span that decoding may choose."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from albert.inference.spans import probability_of_spans
from albert.tasks.features import join_sequences
from albert.tasks.windows import SpanFeatures, Window, best_windows, cut_windows


@given(
    n_tokens=st.integers(1, 20),
    room=st.integers(2, 8),
    stride=st.integers(1, 4),
    longest=st.integers(1, 6),
    seed=st.integers(0, 99),
)
def test_all_probabilities_sum_to_one(n_tokens: int, room: int, stride: int, longest: int, seed: int) -> None:
    pieces = cut_windows(n_tokens, room, min(stride, room))
    offset = 3
    windows = [
        Window(0, offset, start, stop - start, best)
        for (start, stop), best in zip(pieces, best_windows(pieces, n_tokens), strict=True)
    ]
    generator = np.random.default_rng(seed)
    starts, ends = (
        [generator.normal(0, 3, offset + window.n_tokens + 1).astype(np.float32) for window in windows]
        for _ in range(2)
    )
    features = SpanFeatures(join_sequences([]), windows, [], np.zeros((0, 2), np.int64), {})
    probability = probability_of_spans(features, starts, ends, longest)
    total = 0.0
    for window, start, end in zip(windows, starts, ends, strict=True):
        for first in np.flatnonzero(window.best):
            for last in range(first, min(first + longest, window.n_tokens)):
                total += probability(float(start[offset + first]) + float(end[offset + last]))
    assert total == pytest.approx(1)


def test_a_context_without_tokens_has_no_answer() -> None:
    window = Window(0, 3, 0, 0, np.zeros(0, bool))
    features = SpanFeatures(join_sequences([]), [window], [], np.zeros((0, 2), np.int64), {})
    assert probability_of_spans(features, [np.zeros(4)], [np.zeros(4)], 5)(0.0) == 0
