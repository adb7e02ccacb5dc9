"""The probability of an answer span among all spans that could have been chosen."""

from collections.abc import Callable, Sequence

import numpy as np

from albert.tasks.windows import SpanFeatures


def probability_of_spans(
    features: SpanFeatures,
    start_logits: Sequence[np.ndarray],
    end_logits: Sequence[np.ndarray],
    max_answer_tokens: int,
) -> Callable[[float], float]:
    """A function from a span's score (the sum of its two logits) to its probability.

    The spans are those that decoding chooses from: a start where its token has most context, an end in the
        same
    window at most `max_answer_tokens` tokens on. Their probabilities sum to 1 over all windows.

    Args:
        features: the windows of one example.
        start_logits, end_logits: one array a window, [length of the sequence].
        max_answer_tokens: longest answer in tokens.
    """
    scores = []
    for window, starts, ends in zip(features.windows, start_logits, end_logits, strict=True):
        context = slice(window.offset, window.offset + window.n_tokens)
        starts, ends = starts[context].astype(np.float64), ends[context].astype(np.float64)
        for reach in range(min(max_answer_tokens, window.n_tokens)):
            pairs = starts[: window.n_tokens - reach] + ends[reach:]
            scores.append(pairs[window.best[: window.n_tokens - reach]])
    flat = np.concatenate(scores) if scores else np.zeros(0)
    if not len(flat):
        return lambda score: 0.0
    highest = float(flat.max())
    log_total = highest + float(np.log(np.exp(flat - highest).sum()))
    return lambda score: float(np.exp(score - log_total))
