"""SQuAD's exact match and F1 as the official script defines them (Rajpurkar et al. 2016), in points of 100.

Lower case, no ASCII punctuation, no articles, single spaces; the best over the gold answers counts.
"""

import re
import string
from collections import Counter
from collections.abc import Iterable, Sequence

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
    return max((_overlap(answer, predicted) for answer in gold), default=0.0)


def _overlap(answer: str, predicted: str) -> float:
    answer_words, predicted_words = normalize_answer(answer).split(), normalize_answer(predicted).split()
    same = sum((Counter(answer_words) & Counter(predicted_words)).values())
    if same == 0:
        return 0.0
    precision, recall = same / len(predicted_words), same / len(answer_words)
    return (2 * precision * recall) / (precision + recall)


def span_exact_match(gold: Sequence[Sequence[str]], predicted: Sequence[str]) -> float | None:
    """SQuAD 1.1's exact match over questions. None without questions."""
    return _mean_points([answer_exact_match(answers, text) for answers, text in zip(gold, predicted, strict=True)])


def span_f1(gold: Sequence[Sequence[str]], predicted: Sequence[str]) -> float | None:
    """SQuAD 1.1's F1 over questions. None without questions."""
    return _mean_points([answer_f1(answers, text) for answers, text in zip(gold, predicted, strict=True)])


def _mean_points(values: list[float]) -> float | None:
    return None if not values else 100.0 * sum(values) / len(values)
