"""From the network's outputs for the windows of a context to the answers to a question.

A span starts in the window where its first token has most context (Devlin et al. 2019), ends in the same window and has
a maximal number of tokens. With independent logits its score is the sum of both, unnormalised, so that windows can be
compared, and "no answer" is start and end at [CLS]. With a joint head (`JointSpanHead` in `albert.model.heads`) the
score is the logarithm of p(start) p(end | start), and "no answer" has a separate logit."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np

from albert.runtime.errors import InvalidConfiguration
from albert.runtime.random_streams import stream
from albert.tasks.answers import NullThreshold, OpenAnswer, choose_threshold
from albert.tasks.examples import Example
from albert.tasks.span_windows import SpanFeatures, Window

KEPT_BACK_SHARE = 0.05
"""Of the questions, to choose the threshold on; the reference chooses it on the questions that it then reports."""
NO_CANDIDATE_SCORE = 1e30
"""The no-answer score of a context without tokens."""
OWN_THRESHOLDS = NullThreshold(0.0, "nothing: each model's own was subtracted before the mean")


@dataclass(frozen=True)
class Candidate:
    """A possible answer: characters `start`..`end` of the context, with score and probability."""

    text: str
    start: int
    end: int
    score: float
    probability: float


@dataclass(frozen=True)
class Answers:
    """The possible answers to one question.

    Attributes:
        candidates: best first; empty only for a context without tokens.
        no_answer: the no-answer score, larger is less answerable; None if every question has an answer.
        no_answer_probability: sums to 1 with the probabilities of all spans, not only the candidates.
    """

    candidates: list[Candidate]
    no_answer: float | None
    no_answer_probability: float


def best_answers(
    features: SpanFeatures,
    rows: Iterable[Any],
    max_answer_tokens: int = 30,
    n_best: int = 20,
    may_be_absent: bool = False,
) -> list[Answers]:
    """The best answers of every example.

    Args:
        rows: output of the model for each window: [length, 2] logits of start and end, or a `SpanBeamRow` of a joint
            head (`albert.model.albert`).
    """
    windows: list[list[tuple[Window, Any]]] = [[] for _ in features.contexts]
    for window, row in zip(features.windows, rows, strict=True):
        windows[window.example].append((window, row))
    answers = []
    for context, character_spans, own in zip(features.contexts, features.character_spans, windows, strict=True):
        spans = zip(*(_spans_of(window, row, max_answer_tokens) for window, row in own), strict=True)
        first, last, score, best = map(np.concatenate, spans)
        if best.any():  # otherwise the beam of a joint head has no token with most context, and all spans count
            first = first[best]
            last = last[best]
            score = score[best]
        log_total = float(np.logaddexp.reduce(score)) if len(score) else -np.inf
        highest = float(score.max(initial=-np.inf))
        no_answer: float | None = None
        log_none = -np.inf
        if may_be_absent:
            no_answer, log_none = _no_answer([row for _, row in own], highest, log_total)
        log_all = float(np.logaddexp(log_total, log_none))
        spans = np.stack([character_spans[first, 0], character_spans[last, 1]], axis=1)
        candidates = _candidates(spans, score, context, log_all, n_best)
        none = float(np.exp(log_none - log_all)) if candidates else 1.0
        answers.append(Answers(candidates, no_answer, none))
    return answers


def _spans_of(window: Window, row: Any, max_tokens: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Spans of a window: first token, last token, score, and whether the first token has its most context there."""
    context = slice(window.offset, window.offset + window.n_tokens)
    if isinstance(row, np.ndarray):
        first = np.arange(window.n_tokens)
        starts, ends = row[context].astype(np.float64).T
        end_scores = _end_windows(ends[None], max_tokens)[0]
    else:
        positions, columns = np.unique(row.beam, return_index=True)
        beam = positions - window.offset
        inside = (beam >= 0) & (beam < window.n_tokens)
        first = beam[inside]
        starts = _log_softmax(row.starts)[context][first]
        ends = np.stack([_log_softmax(column)[context] for column in row.ends.T], axis=0)[columns[inside]]
        end_scores = np.take_along_axis(_end_windows(ends, max_tokens), first[:, None, None], axis=1)[:, 0]
    score = starts[:, None] + end_scores
    last = first[:, None] + np.arange(max_tokens)
    finite = np.isfinite(score)
    first, best = (np.broadcast_to(values[:, None], score.shape)[finite] for values in (first, window.best[first]))
    return first + window.first_token, last[finite] + window.first_token, score[finite], best


def _end_windows(ends: np.ndarray, max_tokens: int) -> np.ndarray:
    """[n, tokens] to [n, tokens, max_tokens]: the ends from each token on, minus infinity after the last."""
    padded = np.concatenate([ends, np.full((len(ends), max_tokens), -np.inf)], axis=1)
    return np.lib.stride_tricks.sliding_window_view(padded, max_tokens, axis=1)[:, : ends.shape[1]]


def _no_answer(rows: Sequence[Any], best: float, log_total: float) -> tuple[float, float]:
    """The no-answer score and the logarithm of its weight relative to the spans, from the window with the smallest."""
    if isinstance(rows[0], np.ndarray):
        at_cls = min(float(row[0, 0]) + float(row[0, 1]) for row in rows)
        return at_cls - best if np.isfinite(best) else NO_CANDIDATE_SCORE, at_cls
    logit = min(float(row.unanswerable) for row in rows)
    return logit, logit + log_total  # the logit of no answer against all spans together


def _candidates(spans: np.ndarray, scores: np.ndarray, context: str, log_all: float, n_best: int) -> list[Candidate]:
    """The best candidates, each span of characters once; a blank piece alone has none."""
    candidates: dict[tuple[int, int], Candidate] = {}
    for index in np.argsort(-scores, kind="stable"):
        start = int(spans[index, 0])
        end = int(spans[index, 1])
        score = float(scores[index])
        if start == end:
            continue
        probability = float(np.exp(score - log_all))
        candidates.setdefault((start, end), Candidate(context[start:end], start, end, score, probability))
        if len(candidates) == n_best:
            break
    return list(candidates.values())


def _log_softmax(logits: np.ndarray) -> np.ndarray:
    logits = logits.astype(np.float64)
    return logits - np.logaddexp.reduce(logits)


def decide(answers: Sequence[Answers], threshold: NullThreshold) -> list[OpenAnswer]:
    """The best answers, and by a threshold whether they are given."""
    decided = []
    for answer in answers:
        assert answer.no_answer is not None, "decoded as if every question had an answer"
        text = answer.candidates[0].text if answer.candidates else ""
        decided.append(OpenAnswer(text, answer.no_answer, answered=answer.no_answer <= threshold.value))
    return decided


def best_null_threshold(examples: Sequence[Example], answers: Sequence[Answers], chosen_on: str) -> NullThreshold:
    """The threshold with the best F1 on these questions."""
    gold = [[answer.text for answer in example.answers] for example in examples]
    return NullThreshold(choose_threshold(gold, decide(answers, NullThreshold())), chosen_on)


# --------------------------------------------------------------------------------------------------------------------
# The answers of several models, averaged as in the paper (section 4.9): the mean over the models that proposed a span,
# so that a span of a single confident model may win; and the mean no-answer score over all models.


def average_answers(models: Sequence[tuple[Sequence[Answers], NullThreshold]]) -> list[Answers]:
    """The averaged answers of several models to the same questions, for the threshold `OWN_THRESHOLDS`.

    Each model's threshold is subtracted from its no-answer scores. Probabilities are means over models, scaled so that
    they sum to 1 with the mean no-answer probability.
    """
    averaged = []
    for answers in zip(*(own for own, _ in models), strict=True):
        proposed: dict[tuple[int, int], list[Candidate]] = {}
        for candidate in chain.from_iterable(each.candidates for each in answers):
            proposed.setdefault((candidate.start, candidate.end), []).append(candidate)
        means = {span: float(np.mean([candidate.probability for candidate in own])) for span, own in proposed.items()}
        none = float(np.mean([each.no_answer_probability for each in answers]))
        scale = (1 - none) / (sum(means.values()) or 1.0)
        ranked = sorted(proposed, key=lambda span: (-means[span], -len(proposed[span]), span))
        candidates = [Candidate(proposed[s][0].text, *s, score=means[s], probability=means[s] * scale) for s in ranked]
        scores = [
            each.no_answer - threshold.value
            for each, (_, threshold) in zip(answers, models, strict=True)
            if each.no_answer is not None
        ]
        averaged.append(Answers(candidates, float(np.mean(scores)) if scores else None, none))
    return averaged


def keep_back_questions(examples: Sequence[Example], seed: int) -> tuple[list[Example], list[Example]]:
    """Split off a twentieth of the examples, by whole contexts, to choose the threshold on.

    More are kept back until there are questions with and without an answer.
    """
    by_context: dict[str, list[Example]] = {}
    for example in examples:
        by_context.setdefault(example.texts[1], []).append(example)
    contexts = list(by_context)
    held: set[str] = set()
    are_answered: set[bool] = set()
    questions = 0
    for index in stream("finetuning.held_out", seed).permutation(len(contexts)).tolist():
        held.add(contexts[index])
        questions += len(by_context[contexts[index]])
        are_answered |= {bool(example.answers) for example in by_context[contexts[index]]}
        if questions >= KEPT_BACK_SHARE * len(examples) and len(are_answered) == 2:
            break
    train = [example for example in examples if example.texts[1] not in held]
    remedy = "give more data, or null_threshold=dev"
    if len(are_answered) < 2:
        which = "every question has an answer" if True in are_answered else "no question has an answer"
        why = f"{which} in the training set"
        raise InvalidConfiguration("null threshold", why, remedy)
    if not train:
        raise InvalidConfiguration("null threshold", "too few contexts to hold some out of training for it", remedy)
    return train, [example for example in examples if example.texts[1] in held]
