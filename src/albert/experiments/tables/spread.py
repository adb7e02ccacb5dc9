"""How far apart two arms are, and how sure that is: an interval from the spread between seeds and from held-out items.

Seeds: arms with the same seed see their data in the same order, so what a seed does to all arms alike is taken out
first; what is left, pooled over all arms of the table (a two-way layout of arms and seeds without interaction), is the
spread. With two arms this is the paired t test; with more, few seeds still leave enough degrees of freedom.
Items: the arms answer the same held-out items for every seed, so more seeds do not make that error smaller. It is added
as if the answers of two models were independent, which is too wide where they agree, and as if items were, which those
of one document are not quite.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy.stats import t

from albert.pretraining.cross_evaluation import NORMAL_95

TWO_SIDED_95 = 0.975


@dataclass(frozen=True)
class Scored:
    """What one run scored, in points.

    Args:
        score: the figure.
        error: its standard error from the held-out items (`held_out_error`).
        constant: what always giving the most frequent answer scores on them; None where that is no question.
    """

    score: float
    error: float = 0.0
    constant: float | None = None


Scores = Mapping[str, Mapping[int, Scored]]
"""Of one column: row -> seed -> what the run scored."""


@dataclass(frozen=True)
class Difference:
    """A difference in points, with its 95 % interval.

    Args:
        mean: over seeds.
        low, high: the interval.
        seeds: how many runs of each arm.
        degrees: of freedom of the spread between seeds; 0: one seed, the interval is that of the items alone.
    """

    mean: float
    low: float
    high: float
    seeds: int
    degrees: int


def held_out_error(score: float, items: int) -> float:
    """The binomial standard error of a share of right answers, in points; of F1 and such means an upper bound.

    Args:
        score: in points of 100.
        items: how many were asked, at least 1.
    """
    share = min(max(score / 100, 0.0), 1.0)
    return 100 * math.sqrt(share * (1 - share) / items)


def difference(scores: Scores, first: str, second: str | None) -> Difference | None:
    """How much better a row is than another, or than the constant answer (`second` None); None: no seed has both."""
    own = scores.get(first, {})
    if second is None:
        seeds = sorted(seed for seed, scored in own.items() if scored.constant is not None)
        gaps = [own[seed].score - (own[seed].constant or 0.0) for seed in seeds]
        errors = [own[seed].error for seed in seeds]
    else:
        other = scores.get(second, {})
        seeds = sorted(own.keys() & other.keys())
        gaps = [own[seed].score - other[seed].score for seed in seeds]
        errors = [math.hypot(own[seed].error, other[seed].error) for seed in seeds]
    if not seeds:
        return None
    table = np.array([[row[seed].score for seed in seeds] for row in scores.values() if row.keys() >= set(seeds)])
    variance, degrees = _within_rows(table) if second is None else _residuals(table)
    of_seeds = 0.0
    if degrees:
        runs = len(seeds) if second is None else len(seeds) / 2
        of_seeds = float(t.ppf(TWO_SIDED_95, degrees)) * math.sqrt(variance / runs)
    of_items = NORMAL_95 * float(np.mean(errors))
    mean, half = float(np.mean(gaps)), math.hypot(of_seeds, of_items)
    return Difference(mean, mean - half, mean + half, len(seeds), degrees)


def _residuals(table: Float[np.ndarray, "arms seeds"]) -> tuple[float, int]:
    """Variance of what is left when arms and seeds have had their means, and its degrees of freedom."""
    arms, seeds = table.shape
    left = table - table.mean(1, keepdims=True) - table.mean(0, keepdims=True) + table.mean()
    degrees = (arms - 1) * (seeds - 1)
    return (float((left**2).sum()) / degrees, degrees) if degrees else (0.0, 0)


def _within_rows(table: Float[np.ndarray, "arms seeds"]) -> tuple[float, int]:
    """Variance between the seeds of an arm, pooled over arms, and its degrees of freedom."""
    arms, seeds = table.shape
    degrees = arms * (seeds - 1)
    left = table - table.mean(1, keepdims=True)
    return (float((left**2).sum()) / degrees, degrees) if degrees else (0.0, 0)
