"""Logits of windows to answers: the best spans as exact slices of the context, and what speaks for no answer.

A span starts where its token has most context (Devlin et al. 2019), ends at or after its start in the same window and
is at most so many tokens long. With independent logits its score is the sum of both, unnormalised, so that windows
compare, and "no answer" is start and end at [CLS]. With a joint head (`model/joint_question_answering.py`) the score is
the logarithm of p(start) p(end | start), and "no answer" has a logit of its own.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np

from albert.tasks.examples import Example
from albert.tasks.windows import SpanFeatures, Window

NOTHING_TO_GIVE = 1e30
"""What speaks against an answer from a context without tokens."""


@runtime_checkable
class BeamRow(Protocol):
    """A joint head's logits for one window: starts [length], beam [n], ends [length, n], unanswerable []."""

    @property
    def starts(self) -> np.ndarray: ...
    @property
    def beam(self) -> np.ndarray: ...
    @property
    def ends(self) -> np.ndarray: ...
    @property
    def unanswerable(self) -> np.ndarray: ...


@dataclass(frozen=True)
class Candidate:
    """A possible answer: a slice of the context, its characters `start`..`end`, its score and its probability."""

    text: str
    start: int
    end: int
    score: float
    probability: float


@dataclass(frozen=True)
class Answers:
    """What is said to one question.

    Attributes:
        candidates: best first; none only for a context without tokens.
        no_answer: the larger, the more speaks against any answer; None where every question has one.
        no_answer_probability: with those of all spans, not only the candidates, it sums to 1.
    """

    candidates: list[Candidate]
    no_answer: float | None
    no_answer_probability: float


@dataclass(frozen=True)
class _Spans:
    """Spans of a context: first token, last token, score, and whether their window is the one to judge the start."""

    first: np.ndarray
    last: np.ndarray
    score: np.ndarray
    judged: np.ndarray


def best_answers(
    examples: Sequence[Example],
    features: SpanFeatures,
    rows: Sequence[np.ndarray | BeamRow],
    max_answer_tokens: int = 30,
    n_best: int = 20,
    may_be_absent: bool = False,
) -> list[Answers]:
    """The best answers of every example.

    Args:
        examples: what `features` were made of.
        features: all windows.
        rows: what the model gave for each window: [length, 2] logits of start and end, or a joint head's row.
        max_answer_tokens: longest answer in tokens.
        n_best: how many answers are returned at most.
        may_be_absent: whether a question may have no answer.
    """
    windows: list[list[tuple[Window, np.ndarray | BeamRow]]] = [[] for _ in examples]
    for window, row in zip(features.windows, rows, strict=True):
        windows[window.example].append((window, row))
    found = []
    for example, places, own in zip(examples, features.character_spans, windows, strict=True):
        spans = _judged([_spans_of(window, row, max_answer_tokens) for window, row in own])
        log_total = float(np.logaddexp.reduce(spans.score)) if len(spans.score) else -np.inf
        best = float(spans.score.max()) if len(spans.score) else -np.inf
        no_answer, log_none = _no_answer([row for _, row in own], best, log_total) if may_be_absent else (None, -np.inf)
        log_all = float(np.logaddexp(log_total, log_none))
        candidates = _candidates(spans, places, example.texts[1], log_all, n_best)
        none = float(np.exp(log_none - log_all)) if candidates else 1.0
        found.append(Answers(candidates, no_answer, none))
    return found


def _spans_of(window: Window, row: np.ndarray | BeamRow, max_tokens: int) -> _Spans:
    """Every span that may be chosen in a window."""
    context = slice(window.offset, window.offset + window.n_tokens)
    if isinstance(row, BeamRow):
        beam = np.unique(row.beam) - window.offset
        columns = np.array([np.flatnonzero(row.beam == place)[0] for place in np.unique(row.beam)], np.int64)
        inside = (beam >= 0) & (beam < window.n_tokens)
        first = beam[inside]
        starts = _log_softmax(row.starts)[context][first]
        ends = np.stack([_log_softmax(column)[context] for column in row.ends.T], axis=0)[columns[inside]]
        reach = np.take_along_axis(_reaches(ends, max_tokens), first[:, None, None], axis=1)[:, 0]
    else:
        first = np.arange(window.n_tokens)
        starts, ends = row[context].astype(np.float64).T
        reach = _reaches(ends[None], max_tokens)[0]
    score = starts[:, None] + reach
    last = first[:, None] + np.arange(max_tokens)
    there = np.isfinite(score)
    first, judged = (np.broadcast_to(each[:, None], score.shape)[there] for each in (first, window.best[first]))
    return _Spans(first + window.first_token, last[there] + window.first_token, score[there], judged)


def _reaches(ends: np.ndarray, max_tokens: int) -> np.ndarray:
    """[n, tokens] to [n, tokens, max_tokens]: the ends from each token on, minus infinity beyond the last."""
    beyond = np.full((len(ends), max_tokens), -np.inf)
    padded = np.concatenate([ends, beyond], axis=1)
    return np.lib.stride_tricks.sliding_window_view(padded, max_tokens, axis=1)[:, : ends.shape[1]]


def _judged(windows: Sequence[_Spans]) -> _Spans:
    """The spans of all windows, each where it is to be judged.

    A beam may have gone past all tokens that its window is to judge, in every window; then what it found counts.
    """
    first, last, score, judged = (
        np.concatenate([getattr(spans, name) for spans in windows]) for name in ("first", "last", "score", "judged")
    )
    if judged.any():
        first, last, score = first[judged], last[judged], score[judged]
    return _Spans(first, last, score, np.ones(len(score), bool))


def _no_answer(rows: Sequence[np.ndarray | BeamRow], best: float, log_total: float) -> tuple[float, float]:
    """What speaks against any answer, and the logarithm of its weight beside those of the spans.

    The window that most believes in an answer decides.
    """
    joint = [float(row.unanswerable) for row in rows if isinstance(row, BeamRow)]
    if joint:
        return min(joint), min(joint) + log_total  # a logit: none against all spans together
    at_first = min(float(row[0, 0]) + float(row[0, 1]) for row in rows if isinstance(row, np.ndarray))
    return at_first - best if np.isfinite(best) else NOTHING_TO_GIVE, at_first


def _candidates(spans: _Spans, places: np.ndarray, context: str, log_all: float, n_best: int) -> list[Candidate]:
    """Best first, each place of the context once."""
    found: dict[tuple[int, int], Candidate] = {}
    for chosen in np.argsort(-spans.score, kind="stable"):
        start, end = int(places[spans.first[chosen], 0]), int(places[spans.last[chosen], 1])
        score = float(spans.score[chosen])
        probability = float(np.exp(score - log_all))
        found.setdefault((start, end), Candidate(context[start:end], start, end, score, probability))
        if len(found) == n_best:
            break
    return list(found.values())


def _log_softmax(logits: np.ndarray) -> np.ndarray:
    logits = logits.astype(np.float64)
    return logits - np.logaddexp.reduce(logits)
