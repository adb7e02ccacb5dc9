"""Start and end logits of windows to answers: the best spans, as exact slices of the context.

A span starts where its token has most context (Devlin et al. 2019), ends at or after its start in the same
window and is at most so many tokens long; its score is the sum of both logits, unnormalised, so that windows
compare.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from albert.tasks.examples import Example
from albert.tasks.windows import SpanFeatures, Window


@dataclass(frozen=True)
class Candidate:
    """A possible answer: a slice of the context, its characters `start`..`end`, and its score (sum of
    logits).
    """

    text: str
    start: int
    end: int
    score: float


def best_answers(
    examples: Sequence[Example],
    features: SpanFeatures,
    start_logits: Sequence[np.ndarray],
    end_logits: Sequence[np.ndarray],
    max_answer_tokens: int = 30,
    n_best: int = 20,
) -> list[list[Candidate]]:
    """The best answers of every example, best first; the list is empty only for a context without tokens.

    Args:
        examples: what `features` were made of.
        features: all windows.
        start_logits, end_logits: one array per window, [length of the sequence].
        max_answer_tokens: longest answer in tokens.
        n_best: how many starts and ends are tried per window, and how many answers are returned.
    """
    found: list[list[Candidate]] = [[] for _ in examples]
    for window, starts, ends in zip(features.windows, start_logits, end_logits, strict=True):
        context = slice(window.offset, window.offset + window.n_tokens)
        spans = features.character_spans[window.example]
        for first, last, score in _pairs(window, starts[context], ends[context], max_answer_tokens, n_best):
            begin, end = int(spans[first, 0]), int(spans[last, 1])
            text = examples[window.example].texts[1][begin:end]
            found[window.example].append(Candidate(text, begin, end, score))
    return [_distinct(candidates)[:n_best] for candidates in found]


def _pairs(window: Window, starts: np.ndarray, ends: np.ndarray, max_tokens: int, n_best: int):
    """(first token, last token, score) in context tokens, best first."""
    allowed = np.flatnonzero(window.best)
    first = allowed[np.argsort(-starts[allowed], kind="stable")[:n_best]]
    # Of every start its own best ends, not the window's best ends: otherwise a window may have no pair.
    pairs = []
    for start in first:
        reach = ends[start : start + max_tokens]
        for step in np.argsort(-reach, kind="stable")[:n_best]:
            score = float(starts[start]) + float(reach[step])
            pairs.append((window.first_token + int(start), window.first_token + int(start + step), score))
    pairs.sort(key=lambda pair: -pair[2])
    return pairs[:n_best]


def _distinct(candidates: list[Candidate]) -> list[Candidate]:
    """Best first, each place once."""
    best: dict[tuple[int, int], Candidate] = {}
    for candidate in sorted(candidates, key=lambda candidate: -candidate.score):
        best.setdefault((candidate.start, candidate.end), candidate)
    return list(best.values())
