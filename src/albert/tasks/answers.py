"""Question answering: the best spans from logits, the scores of SQuAD 1.1 and 2.0, and the no-answer threshold.

A span starts where its token has most context (Devlin et al. 2019), ends at or after its start in the same window and
has a maximal number of tokens. With independent logits its score is the sum of both, unnormalised, so that windows
compare, and "no answer" is start and end at [CLS]. With a joint head (`JointSpanHead` in `albert.model.albert`) the
score is the logarithm of p(start) p(end | start), and "no answer" has a logit of its own."""

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
        rows: what the model gave for each window: [length, 2] logits of start and end, or a joint head's row.
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
    return at_first - best if np.isfinite(best) else NO_CANDIDATE_SCORE, at_first


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


# --------------------------------------------------------------------------------------------------------------------
# SQuAD's exact match and F1 as the official script defines them (Rajpurkar et al. 2016), in points of 100.
#
# Lower case, no ASCII punctuation, no articles, single spaces; the best over the gold answers counts.

_ARTICLES = re.compile(r"\b(a|an|the)\b", re.UNICODE)
_WITHOUT_PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalize_answer(text: str) -> str:
    """Lower case, without ASCII punctuation and articles, runs of whitespace made one space."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_WITHOUT_PUNCTUATION)).split())


def answer_exact_match(gold: Iterable[str], predicted: str) -> float:
    """1.0 when the prediction equals one gold answer after normalisation, else 0.0."""
    normal = normalize_answer(predicted)
    return max((float(normalize_answer(answer) == normal) for answer in gold), default=0.0)


def answer_f1(gold: Iterable[str], predicted: str) -> float:
    """The best word-overlap F1 (0..1) between the prediction and a gold answer, after normalisation."""
    best, found = 0.0, normalize_answer(predicted).split()
    for answer in gold:
        words = normalize_answer(answer).split()
        if same := sum((Counter(words) & Counter(found)).values()):
            precision, recall = same / len(found), same / len(words)
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
# SQuAD 2.0's official scores (Rajpurkar et al. 2018): answers, and the decision that there is none.
#
# The keys are those of the official script, and so are all definitions: an answer counts only with its decision, a
# question without an answer is right when left empty, `HasAns_` and `NoAns_` are the two halves, and `best_` is
# what the threshold would give that suits the scored questions best, which is no score to report.


@dataclass(frozen=True)
class OpenAnswer:
    """What is said to a question that may have no answer.

    Attributes:
        no_answer: how much speaks against any answer, in whatever unit.
    """

    text: str
    no_answer: float
    answered: bool


def open_question_scores(gold: Sequence[Sequence[str]], predicted: Sequence[OpenAnswer]) -> dict[str, float | None]:
    """The official script's scores in points of 100, f1 first; None for a half without questions.

    Args:
        gold: the answers of each question, none for one that has no answer.
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
    """Exact match and F1 (0..1) of each text, whatever was decided; "" is right where there is no answer."""
    exact, overlap = [], []
    for answers, text in zip(gold, texts, strict=True):
        known = [answer for answer in answers if normalize_answer(answer)] or [""]
        exact.append(answer_exact_match(known, text))
        nothing = not any(map(normalize_answer, known)) or not normalize_answer(text)  # then F1 is exact match
        overlap.append(exact[-1] if nothing else answer_f1(known, text))
    return exact, overlap


def best_threshold(
    predicted: Sequence[OpenAnswer], values: Sequence[float], has_answer: Sequence[bool]
) -> tuple[float, float] | None:
    """The best mean, in points, over all thresholds, and the official script's threshold for it; None without rows.

    Questions with the same `no_answer` are taken one by one, and 0 stands for "answer none", as the script has it.
    """
    if not predicted:
        return None
    current = best = float(has_answer.count(False))
    threshold = 0.0
    for place in sorted(range(len(predicted)), key=lambda place: predicted[place].no_answer):
        current += _gain(predicted[place].text, values[place], has_answer[place])
        if current > best:
            best, threshold = current, predicted[place].no_answer
    return 100.0 * best / len(predicted), threshold


def choose_threshold(gold: Sequence[Sequence[str]], predicted: Sequence[OpenAnswer]) -> float:
    """The threshold with the best F1: an answer is given where `no_answer` is not above it.

    It lies halfway between the two questions that it parts; of equal ones the lowest is taken. Where the best is to
    answer all questions, or none, it lies 1 above the highest or below the lowest.
    """
    _, overlap = raw_scores(gold, [answer.text for answer in predicted])
    order = sorted(range(len(predicted)), key=lambda place: predicted[place].no_answer)
    against = np.array([predicted[place].no_answer for place in order])
    gains = [_gain(predicted[place].text, overlap[place], bool(gold[place])) for place in order]
    totals = np.concatenate([np.zeros(1), np.cumsum(gains)])
    edges = np.concatenate([against[:1] - 1, (against[:-1] + against[1:]) / 2, against[-1:] + 1])
    parts = np.concatenate([[True], against[:-1] < against[1:], [True]])
    return float(edges[parts][np.argmax(totals[parts])])


def never_answered(gold: Sequence[Sequence[str]]) -> list[OpenAnswer]:
    """The best constant: no question has an answer."""
    return [OpenAnswer("", 0.0, answered=False) for _ in gold]


def _gain(text: str, value: float, has_answer: bool) -> float:
    """What answering changes against leaving the question empty."""
    if has_answer:
        return value
    return -1.0 if text else 0.0


# --------------------------------------------------------------------------------------------------------------------
# The no-answer threshold, as `config.json` of a model keeps it.

THRESHOLD_KEY, CHOSEN_ON_KEY = "no_answer_threshold", "no_answer_threshold_from"


@dataclass(frozen=True)
class NullThreshold:
    """A question is answered unless more than `value` speaks against an answer; `chosen_on` says why it is that."""

    value: float = 0.0
    chosen_on: str = "nothing: 0, where both are as likely"

    @property
    def keys(self) -> dict[str, Any]:
        return {THRESHOLD_KEY: self.value, CHOSEN_ON_KEY: self.chosen_on}

    @property
    def note(self) -> str:
        return f"no answer where {self.value:.4g} is exceeded, a threshold chosen on {self.chosen_on}"


def saved_threshold(extra: Mapping[str, Any], model: str) -> NullThreshold:
    """The threshold that a model directory says, 0 where it says none."""
    if THRESHOLD_KEY not in extra:
        return NullThreshold()
    value = extra[THRESHOLD_KEY]
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidConfiguration(f"{model}: {THRESHOLD_KEY}", f"is {value!r}, a number is needed")
    return NullThreshold(float(value), str(extra.get(CHOSEN_ON_KEY, "questions that are not named")))


def decide(answers: Sequence[Answers], threshold: NullThreshold) -> list[OpenAnswer]:
    """Answered or not, for answers that may be absent."""
    decided = []
    for each in answers:
        assert each.no_answer is not None, "decoded as if every question had an answer"
        text = each.candidates[0].text if each.candidates else ""
        decided.append(OpenAnswer(text, each.no_answer, answered=each.no_answer <= threshold.value))
    return decided
