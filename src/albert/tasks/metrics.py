"""Scores as pure functions of (gold, predicted), in points of 100 as papers print them.

`accuracy`, `f1`, `matthews_correlation` are scikit-learn's, `pearson` and `spearman` SciPy's, times 100; an
undefined value (no rows, a constant column in a correlation) is None and never NaN. Those of answers in words stand
apart (answer_metrics.py): a model is used without scikit-learn and SciPy, which take longer to import than to open it.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from albert.runtime.errors import DamagedData
from albert.runtime.late_modules import load_by_name

_NO_DIVISION: Any = 0.0  # F1 of a class that is nowhere; scikit-learn's stubs know only its "warn"


def accuracy(gold: Any, predicted: Any) -> float | None:
    """Share of equal label ids. None without rows."""
    return None if len(gold) == 0 else 100.0 * float(_scikit_learn().accuracy_score(gold, predicted))


def f1(gold: Any, predicted: Any) -> float | None:
    """F1 of the class with id 1, as GLUE scores paraphrases; 0 when it is neither gold nor predicted."""
    if len(gold) == 0:
        return None
    return 100.0 * float(
        _scikit_learn().f1_score(gold, predicted, pos_label=1, average="binary", zero_division=_NO_DIVISION)
    )


def macro_f1(gold: Any, predicted: Any) -> float | None:
    """Mean over the classes seen (gold or predicted) of their F1."""
    if len(gold) == 0:
        return None
    return 100.0 * float(_scikit_learn().f1_score(gold, predicted, average="macro", zero_division=_NO_DIVISION))


def matthews_correlation(gold: Any, predicted: Any) -> float | None:
    """Matthews correlation; 0 by convention when gold or predicted is one class only."""
    if len(gold) == 0:
        return None
    if len(np.unique(np.concatenate([np.asarray(gold), np.asarray(predicted)]))) < 2:
        return 0.0  # scikit-learn's convention, without its warning about a single label
    return 100.0 * float(_scikit_learn().matthews_corrcoef(gold, predicted))


def pearson(gold: Any, predicted: Any) -> float | None:
    """Linear correlation. None with fewer than two rows or when a side is constant (to 13 digits, SciPy's
    limit).
    """
    gold, predicted = np.asarray(gold, np.float64), np.asarray(predicted, np.float64)
    if len(gold) < 2 or any(
        np.linalg.norm(side - side.mean()) <= 1e-13 * abs(side.mean()) for side in (gold, predicted)
    ):
        return None
    return _finite_points(_scipy_stats().pearsonr(gold, predicted)[0])


def spearman(gold: Any, predicted: Any) -> float | None:
    """Rank correlation (mean rank for ties). None with fewer than two rows or when a side is constant."""
    gold, predicted = np.asarray(gold, np.float64), np.asarray(predicted, np.float64)
    if len(gold) < 2 or np.ptp(gold) == 0 or np.ptp(predicted) == 0:
        return None
    return _finite_points(_scipy_stats().spearmanr(gold, predicted)[0])


def multi_label_scores(gold: Any, predicted: Any) -> dict[str, float | None]:
    """Scores of sets of labels (bool [examples, labels]), scikit-learn's in points of 100; None without rows.

    `micro_f1` over all decisions; `macro_f1`, the mean over all labels, of which one that is neither gold nor predicted
    counts 0; `exact_match`, the share of examples whose set is right; `hamming_loss`, the share of wrong decisions.
    """
    names = ("micro_f1", "macro_f1", "exact_match", "hamming_loss")
    if len(gold) == 0:
        return dict.fromkeys(names)
    gold, predicted = np.asarray(gold, np.int64), np.asarray(predicted, np.int64)
    each = [score for column in zip(gold.T, predicted.T, strict=True) if (score := f1(*column)) is not None]
    wrong = 100.0 * float(_scikit_learn().hamming_loss(gold, predicted))
    values = (f1(gold.ravel(), predicted.ravel()), float(np.mean(each)), accuracy(gold, predicted), wrong)
    return dict(zip(names, values, strict=True))


def mean_absolute_error(gold: Any, predicted: Any) -> float | None:
    """Mean distance between gold and predicted numbers, in the target's own unit (not points)."""
    return None if len(gold) == 0 else float(_scikit_learn().mean_absolute_error(gold, predicted))


def _finite_points(value: Any) -> float | None:
    return 100.0 * float(value) if math.isfinite(value) else None


def in_order(identifiers: Sequence[str], predictions: Mapping[str, Any], where: str) -> list[Any]:
    """Predictions in the order of the rows; DamagedData when one is missing: no subset is scored."""
    missing = [identifier for identifier in identifiers if identifier not in predictions]
    if missing:
        raise DamagedData(
            where,
            f"{len(missing):,} of {len(identifiers):,} rows have no prediction, the first is {missing[0]!r}",
            "predict every row; a subset is not scored",
        )
    return [predictions[identifier] for identifier in identifiers]


def _scikit_learn() -> Any:
    return load_by_name("sklearn.metrics")


def _scipy_stats() -> Any:
    return load_by_name("scipy.stats")
