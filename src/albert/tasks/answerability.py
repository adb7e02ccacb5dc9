"""SQuAD 2.0's official scores (Rajpurkar et al. 2018): answers, and the decision that there is none.

The keys are those of the official script, and so are all definitions: an answer counts only with its decision, a
question without an answer is right when left empty, `HasAns_` and `NoAns_` are the two halves, and `best_` is what the
threshold would give that suits the scored questions best, which is no score to report.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from albert.tasks.answer_metrics import answer_exact_match, answer_f1, normalize_answer


@dataclass(frozen=True)
class OpenAnswer:
    """What is said to a question that may have no answer.

    Attributes:
        text: the best answer; empty when there is none to give.
        no_answer: how much speaks against any answer, in whatever unit.
        answered: the decision.
    """

    text: str
    no_answer: float
    answered: bool


def open_question_scores(gold: Sequence[Sequence[str]], predicted: Sequence[OpenAnswer]) -> dict[str, float | None]:
    """The official script's scores in points of 100, f1 first; None for a half without questions.

    Args:
        gold: the answers of each question, none for one that has no answer.
        predicted: what is said to each.
    """
    has_answer = [bool(answers) for answers in gold]
    exact, overlap = raw_scores(gold, [answer.text for answer in predicted])
    decided = {
        name: [
            value if answer.answered else float(not has)
            for value, answer, has in zip(values, predicted, has_answer, strict=True)
        ]
        for name, values in (("f1", overlap), ("exact", exact))
    }
    scores: dict[str, float | None] = {name: _mean(values) for name, values in decided.items()}
    for prefix, wanted in (("HasAns", True), ("NoAns", False)):
        for name, values in decided.items():
            scores[f"{prefix}_{name}"] = _mean([v for v, has in zip(values, has_answer, strict=True) if has == wanted])
    for name, values in (("f1", overlap), ("exact", exact)):
        best = best_on_these(predicted, values, has_answer)
        scores[f"best_{name}"], scores[f"best_{name}_thresh"] = best if best else (None, None)
    return scores


def raw_scores(gold: Sequence[Sequence[str]], texts: Sequence[str]) -> tuple[list[float], list[float]]:
    """Exact match and F1 (0..1) of each text, whatever was decided; "" is right where there is no answer."""
    exact, overlap = [], []
    for answers, text in zip(gold, texts, strict=True):
        known = [answer for answer in answers if normalize_answer(answer)] or [""]
        exact.append(answer_exact_match(known, text))
        overlap.append(max(_open_f1(answer, text) for answer in known))
    return exact, overlap


def best_on_these(
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


def _open_f1(answer: str, text: str) -> float:
    if not normalize_answer(answer) or not normalize_answer(text):
        return float(normalize_answer(answer) == normalize_answer(text))
    return answer_f1([answer], text)


def _mean(values: Sequence[float]) -> float | None:
    return 100.0 * sum(values) / len(values) if values else None
