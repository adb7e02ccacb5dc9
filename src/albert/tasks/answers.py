"""Question answering: the best spans from logits, the scores of SQuAD 1.1 and 2.0, and the no-answer threshold.

A span starts in the window where its first token has most context (Devlin et al. 2019), ends in the same window and has
a maximal number of tokens. With independent logits its score is the sum of both, unnormalised, so that windows can be
compared, and "no answer" is start and end at [CLS]. With a joint head (`JointSpanHead` in `albert.model.albert`) the
score is the logarithm of p(start) p(end | start), and "no answer" has a separate logit."""

import re
import string
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np

from albert.runtime.errors import InvalidConfiguration
from albert.tasks.examples import Example, SpanFeatures, Window

NO_CANDIDATE_SCORE = 1e30
"""The no-answer score of a context without tokens."""


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


@dataclass(frozen=True)
class _Spans:
    """Spans of a window: first token, last token, score, and whether the first token has its most context there."""

    first: np.ndarray
    last: np.ndarray
    score: np.ndarray
    best: np.ndarray


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
        rows: output of the model for each window: [length, 2] logits of start and end, or the row of a joint head.
    """
    windows: list[list[tuple[Window, np.ndarray | BeamRow]]] = [[] for _ in examples]
    for window, row in zip(features.windows, rows, strict=True):
        windows[window.example].append((window, row))
    answers = []
    for example, character_spans, own in zip(examples, features.character_spans, windows, strict=True):
        first, last, score = _merge([_spans_of(window, row, max_answer_tokens) for window, row in own])
        log_total = float(np.logaddexp.reduce(score)) if len(score) else -np.inf
        best = float(score.max()) if len(score) else -np.inf
        no_answer, log_none = _no_answer([row for _, row in own], best, log_total) if may_be_absent else (None, -np.inf)
        log_all = float(np.logaddexp(log_total, log_none))
        spans = np.stack([character_spans[first, 0], character_spans[last, 1]], axis=1)
        candidates = _candidates(spans, score, example.texts[1], log_all, n_best)
        none = float(np.exp(log_none - log_all)) if candidates else 1.0
        answers.append(Answers(candidates, no_answer, none))
    return answers


def _spans_of(window: Window, row: np.ndarray | BeamRow, max_tokens: int) -> _Spans:
    context = slice(window.offset, window.offset + window.n_tokens)
    if isinstance(row, BeamRow):
        positions, columns = np.unique(row.beam, return_index=True)
        beam = positions - window.offset
        inside = (beam >= 0) & (beam < window.n_tokens)
        first = beam[inside]
        starts = _log_softmax(row.starts)[context][first]
        ends = np.stack([_log_softmax(column)[context] for column in row.ends.T], axis=0)[columns[inside]]
        end_scores = np.take_along_axis(_end_windows(ends, max_tokens), first[:, None, None], axis=1)[:, 0]
    else:
        first = np.arange(window.n_tokens)
        starts, ends = row[context].astype(np.float64).T
        end_scores = _end_windows(ends[None], max_tokens)[0]
    score = starts[:, None] + end_scores
    last = first[:, None] + np.arange(max_tokens)
    finite = np.isfinite(score)
    first, best = (np.broadcast_to(values[:, None], score.shape)[finite] for values in (first, window.best[first]))
    return _Spans(first + window.first_token, last[finite] + window.first_token, score[finite], best)


def _end_windows(ends: np.ndarray, max_tokens: int) -> np.ndarray:
    """[n, tokens] to [n, tokens, max_tokens]: the ends from each token on, minus infinity after the last."""
    padded = np.concatenate([ends, np.full((len(ends), max_tokens), -np.inf)], axis=1)
    return np.lib.stride_tricks.sliding_window_view(padded, max_tokens, axis=1)[:, : ends.shape[1]]


def _merge(windows: Sequence[_Spans]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """First tokens, last tokens and scores of the spans of all windows, each from its best window.

    If the beam of a joint head contains no token with most context in any window, all its spans count.
    """
    first, last, score, best = (
        np.concatenate([getattr(spans, name) for spans in windows]) for name in ("first", "last", "score", "best")
    )
    return (first[best], last[best], score[best]) if best.any() else (first, last, score)


def _no_answer(rows: Sequence[np.ndarray | BeamRow], best: float, log_total: float) -> tuple[float, float]:
    """The no-answer score and the logarithm of its weight relative to the spans, from the window with the smallest."""
    logits = [float(row.unanswerable) for row in rows if isinstance(row, BeamRow)]
    if logits:
        return min(logits), min(logits) + log_total  # the logit of no answer against all spans together
    at_cls = min(float(row[0, 0]) + float(row[0, 1]) for row in rows if isinstance(row, np.ndarray))
    return at_cls - best if np.isfinite(best) else NO_CANDIDATE_SCORE, at_cls


def _candidates(spans: np.ndarray, scores: np.ndarray, context: str, log_all: float, n_best: int) -> list[Candidate]:
    """The best candidates, each span of characters once."""
    candidates: dict[tuple[int, int], Candidate] = {}
    for index in np.argsort(-scores, kind="stable"):
        start, end, score = *map(int, spans[index]), float(scores[index])
        probability = float(np.exp(score - log_all))
        candidates.setdefault((start, end), Candidate(context[start:end], start, end, score, probability))
        if len(candidates) == n_best:
            break
    return list(candidates.values())


def _log_softmax(logits: np.ndarray) -> np.ndarray:
    logits = logits.astype(np.float64)
    return logits - np.logaddexp.reduce(logits)


# --------------------------------------------------------------------------------------------------------------------
# SQuAD's exact match and F1 as the official script defines them (Rajpurkar et al. 2016), in points of 100.
#
# Texts are normalised, and the best score over the gold answers counts.

_ARTICLES = re.compile(r"\b(a|an|the)\b", re.UNICODE)
_WITHOUT_PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalize_answer(text: str) -> str:
    """The text in lower case, without ASCII punctuation and articles, with single spaces."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_WITHOUT_PUNCTUATION)).split())


def answer_exact_match(gold: Iterable[str], predicted: str) -> float:
    """1.0 when the prediction equals one gold answer after normalisation, else 0.0."""
    normal = normalize_answer(predicted)
    return max((float(normalize_answer(answer) == normal) for answer in gold), default=0.0)


def answer_f1(gold: Iterable[str], predicted: str) -> float:
    """The best word-overlap F1 (0..1) between the prediction and a gold answer, after normalisation."""
    best, predicted_words = 0.0, normalize_answer(predicted).split()
    for answer in gold:
        words = normalize_answer(answer).split()
        if same := sum((Counter(words) & Counter(predicted_words)).values()):
            precision, recall = same / len(predicted_words), same / len(words)
            best = max(best, (2 * precision * recall) / (precision + recall))
    return best


def span_exact_match(gold: Sequence[Sequence[str]], predicted: Sequence[str]) -> float | None:
    """SQuAD 1.1's exact match over questions. None without questions."""
    return _mean([answer_exact_match(answers, text) for answers, text in zip(gold, predicted, strict=True)])


def span_f1(gold: Sequence[Sequence[str]], predicted: Sequence[str]) -> float | None:
    """SQuAD 1.1's F1 over questions. None without questions."""
    return _mean([answer_f1(answers, text) for answers, text in zip(gold, predicted, strict=True)])


def _mean(values: Sequence[float]) -> float | None:
    return 100.0 * sum(values) / len(values) if values else None


# --------------------------------------------------------------------------------------------------------------------
# SQuAD 2.0's official scores (Rajpurkar et al. 2018), for questions that may have no answer.
#
# Keys and definitions are those of the official script: an unanswered question is right if it has no gold answer,
# `HasAns_` and `NoAns_` are the two halves, and `best_` uses the threshold that is best for the scored questions, so it
# should not be reported.


@dataclass(frozen=True)
class OpenAnswer:
    """The prediction for a question that may have no answer; `no_answer` is the no-answer score in any unit."""

    text: str
    no_answer: float
    answered: bool


def open_question_scores(gold: Sequence[Sequence[str]], predicted: Sequence[OpenAnswer]) -> dict[str, float | None]:
    """The official script's scores in points of 100, f1 first; None for a half without questions.

    Args:
        gold: the answers of each question, empty if it has none.
    """
    has_answer = [bool(answers) for answers in gold]
    exact, overlap = raw_scores(gold, [answer.text for answer in predicted])
    raw = {"f1": overlap, "exact": exact}
    scores: dict[str, float | None] = {}
    for prefix, halves in (("", (True, False)), ("HasAns_", (True,)), ("NoAns_", (False,))):
        for name, values in raw.items():
            decided = [
                value if answer.answered else float(not has)
                for value, answer, has in zip(values, predicted, has_answer, strict=True)
                if has in halves
            ]
            scores[prefix + name] = _mean(decided)
    for name, values in raw.items():
        best = best_threshold(predicted, values, has_answer)
        scores[f"best_{name}"], scores[f"best_{name}_thresh"] = best if best else (None, None)
    return scores


def raw_scores(gold: Sequence[Sequence[str]], texts: Sequence[str]) -> tuple[list[float], list[float]]:
    """Exact match and F1 (0..1) of each text, without the no-answer decision; "" is right if there is no answer."""
    exact, overlap = [], []
    for answers, text in zip(gold, texts, strict=True):
        answers = [answer for answer in answers if normalize_answer(answer)] or [""]
        exact.append(answer_exact_match(answers, text))
        either_empty = answers == [""] or not normalize_answer(text)  # then F1 is exact match
        overlap.append(exact[-1] if either_empty else answer_f1(answers, text))
    return exact, overlap


def best_threshold(
    predicted: Sequence[OpenAnswer], values: Sequence[float], has_answer: Sequence[bool]
) -> tuple[float, float] | None:
    """The best mean over all thresholds in points, and the official script's threshold for it; None without rows.

    As in the script, questions with equal `no_answer` are counted one by one, and 0 stands for "answer none".
    """
    if not predicted:
        return None
    current = best = float(has_answer.count(False))
    threshold = 0.0
    for answer, value, has in sorted(zip(predicted, values, has_answer, strict=True), key=lambda row: row[0].no_answer):
        current += _gain(answer.text, value, has)
        if current > best:
            best, threshold = current, answer.no_answer
    return 100.0 * best / len(predicted), threshold


def choose_threshold(gold: Sequence[Sequence[str]], predicted: Sequence[OpenAnswer]) -> float:
    """The lowest threshold with the best F1; a question is answered if its `no_answer` is not above it.

    It is halfway between two questions, or 1 above the highest (all are answered) or below the lowest (none is).
    """
    _, overlap = raw_scores(gold, [answer.text for answer in predicted])
    order = sorted(range(len(predicted)), key=lambda index: predicted[index].no_answer)
    scores = np.array([predicted[index].no_answer for index in order])
    gains = [_gain(predicted[index].text, overlap[index], bool(gold[index])) for index in order]
    totals = np.concatenate([np.zeros(1), np.cumsum(gains)])
    thresholds = np.concatenate([scores[:1] - 1, (scores[:-1] + scores[1:]) / 2, scores[-1:] + 1])
    distinct = np.concatenate([[True], scores[:-1] < scores[1:], [True]])
    return float(thresholds[distinct][np.argmax(totals[distinct])])


def never_answered(gold: Sequence[Sequence[str]]) -> list[OpenAnswer]:
    """The prediction that no question has an answer."""
    return [OpenAnswer("", 0.0, answered=False) for _ in gold]


def _gain(text: str, value: float, has_answer: bool) -> float:
    """Change of the total score if a question is answered."""
    if has_answer:
        return value
    return -1.0 if text else 0.0


# --------------------------------------------------------------------------------------------------------------------
# The no-answer threshold in `config.json` of a model.

THRESHOLD_KEY, CHOSEN_ON_KEY = "no_answer_threshold", "no_answer_threshold_from"


@dataclass(frozen=True)
class NullThreshold:
    """A question is answered if its no-answer score is at most `value`; `chosen_on` describes how it was chosen."""

    value: float = 0.0
    chosen_on: str = "nothing: 0, where both are as likely"

    @property
    def keys(self) -> dict[str, Any]:
        return {THRESHOLD_KEY: self.value, CHOSEN_ON_KEY: self.chosen_on}

    @property
    def note(self) -> str:
        return f"no answer where {self.value:.4g} is exceeded, a threshold chosen on {self.chosen_on}"


def saved_threshold(extra: Mapping[str, Any], model: str) -> NullThreshold:
    """The threshold in the `config.json` of a model directory, 0 if it has none."""
    if THRESHOLD_KEY not in extra:
        return NullThreshold()
    value = extra[THRESHOLD_KEY]
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidConfiguration(f"{model}: {THRESHOLD_KEY}", f"is {value!r}, a number is needed")
    return NullThreshold(float(value), str(extra.get(CHOSEN_ON_KEY, "questions that are not named")))


def decide(answers: Sequence[Answers], threshold: NullThreshold) -> list[OpenAnswer]:
    """The best answers, and by a threshold whether they are given."""
    decided = []
    for answer in answers:
        assert answer.no_answer is not None, "decoded as if every question had an answer"
        text = answer.candidates[0].text if answer.candidates else ""
        decided.append(OpenAnswer(text, answer.no_answer, answered=answer.no_answer <= threshold.value))
    return decided
