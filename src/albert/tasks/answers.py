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
from typing import Any

import numpy as np

from albert.runtime.errors import InvalidConfiguration
from albert.tasks.examples import Example, SpanFeatures, Window

NO_CANDIDATE_SCORE = 1e30
"""The no-answer score of a context without tokens."""


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
    examples: Sequence[Example],
    features: SpanFeatures,
    rows: Sequence[Any],
    max_answer_tokens: int = 30,
    n_best: int = 20,
    may_be_absent: bool = False,
) -> list[Answers]:
    """The best answers of every example.

    Args:
        rows: output of the model for each window: [length, 2] logits of start and end, or a `SpanBeamRow` of a joint
            head (`albert.model.albert`).
    """
    windows: list[list[tuple[Window, Any]]] = [[] for _ in examples]
    for window, row in zip(features.windows, rows, strict=True):
        windows[window.example].append((window, row))
    answers = []
    for example, character_spans, own in zip(examples, features.character_spans, windows, strict=True):
        spans = zip(*(_spans_of(window, row, max_answer_tokens) for window, row in own), strict=True)
        first, last, score, best = map(np.concatenate, spans)
        if best.any():  # otherwise the beam of a joint head has no token with most context, and all spans count
            first = first[best]
            last = last[best]
            score = score[best]
        log_total = float(np.logaddexp.reduce(score)) if len(score) else -np.inf
        highest = float(score.max(initial=-np.inf))
        no_answer, log_none = (
            _no_answer([row for _, row in own], highest, log_total) if may_be_absent else (None, -np.inf)
        )
        log_all = float(np.logaddexp(log_total, log_none))
        spans = np.stack([character_spans[first, 0], character_spans[last, 1]], axis=1)
        candidates = _candidates(spans, score, example.texts[1], log_all, n_best)
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
        start, end, score = *map(int, spans[index]), float(scores[index])
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
    best = 0.0
    predicted_words = normalize_answer(predicted).split()
    for answer in gold:
        words = normalize_answer(answer).split()
        if same := sum((Counter(words) & Counter(predicted_words)).values()):
            precision = same / len(predicted_words)
            recall = same / len(words)
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
        scores[f"best_{name}"], scores[f"best_{name}_thresh"] = best_threshold(predicted, values, has_answer)
    return scores


def raw_scores(gold: Sequence[Sequence[str]], texts: Sequence[str]) -> tuple[list[float], list[float]]:
    """Exact match and F1 (0..1) of each text, without the no-answer decision; "" is right if there is no answer."""
    exact = []
    overlap = []
    for answers, text in zip(gold, texts, strict=True):
        answers = [answer for answer in answers if normalize_answer(answer)] or [""]
        exact.append(answer_exact_match(answers, text))
        either_empty = answers == [""] or not normalize_answer(text)  # then F1 is exact match
        overlap.append(exact[-1] if either_empty else answer_f1(answers, text))
    return exact, overlap


def best_threshold(
    predicted: Sequence[OpenAnswer], values: Sequence[float], has_answer: Sequence[bool]
) -> tuple[float, float] | tuple[None, None]:
    """The best mean over all thresholds in points, and the official script's threshold for it; None without rows.

    As in the script, questions with equal `no_answer` are counted one by one, and 0 stands for "answer none".
    """
    if not predicted:
        return None, None
    scores, totals = _by_threshold(predicted, values, has_answer, float(has_answer.count(False)))
    best = int(totals.argmax())
    return 100.0 * float(totals[best]) / len(predicted), float(scores[best - 1]) if best else 0.0


def choose_threshold(gold: Sequence[Sequence[str]], predicted: Sequence[OpenAnswer]) -> float:
    """The lowest threshold with the best F1; a question is answered if its `no_answer` is not above it.

    It is halfway between two questions, or 1 above the highest (all are answered) or below the lowest (none is).
    """
    _, overlap = raw_scores(gold, [answer.text for answer in predicted])
    scores, totals = _by_threshold(predicted, overlap, [bool(answers) for answers in gold], 0.0)
    thresholds = np.concatenate([scores[:1] - 1, (scores[:-1] + scores[1:]) / 2, scores[-1:] + 1])
    distinct = np.concatenate([[True], scores[:-1] < scores[1:], [True]])
    return float(thresholds[distinct][np.argmax(totals[distinct])])


def _by_threshold(
    predicted: Sequence[OpenAnswer], values: Sequence[float], has_answer: Sequence[bool], none_answered: float
) -> tuple[np.ndarray, np.ndarray]:
    """The no-answer scores in order, and the total score if none, the first, the first two … questions are answered."""
    rows = sorted(zip(predicted, values, has_answer, strict=True), key=lambda row: row[0].no_answer)
    gains = [value if has else -float(bool(answer.text)) for answer, value, has in rows]
    return np.array([answer.no_answer for answer, _, _ in rows]), np.cumsum([none_answered, *gains])


def never_answered(gold: Sequence[Sequence[str]]) -> list[OpenAnswer]:
    """The prediction that no question has an answer."""
    return [OpenAnswer("", 0.0, answered=False) for _ in gold]


# --------------------------------------------------------------------------------------------------------------------
# The no-answer threshold in `config.json` of a model.

THRESHOLD_KEY = "no_answer_threshold"
CHOSEN_ON_KEY = "no_answer_threshold_from"


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
