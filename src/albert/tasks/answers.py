"""Question answering: the scores of SQuAD 1.1 and 2.0, and the no-answer threshold."""

import re
import string
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from albert.runtime.errors import InvalidConfiguration

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
        same = sum((Counter(words) & Counter(predicted_words)).values())
        if same:
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
