"""The paper's claims as contrasts between rows, and the statistical test that judges them.

A claim is judged on the first of its columns that a scale has: the paper's average where all five tasks are learnt,
else held-out figures or a task that asks for the same. Rows have the names of `paper.toml`."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float
from scipy.stats import t

from albert.pretraining.evaluation import NORMAL_95

Relation = Literal["higher", "not higher", "alike"]
"""What the first row is beside the second: better; no better by as much as counts; within as much as counts."""


@dataclass(frozen=True)
class Contrast:
    """Two rows of a table, or (`second` None) a row and what can be had for nothing, as `nothing` calls it."""

    first: str
    relation: Relation
    second: str | None
    nothing: str = "the constant answer"


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A sentence that the paper's table bears out.

    Args:
        columns: where it can be seen, the paper's own place first.
        smallest: the smallest difference, in points, that counts as one.
        equal: a column in which the rows must agree to a tenth for the comparison to be one (Table 6: hours).
    """

    sentence: str
    contrasts: tuple[Contrast, ...]
    columns: tuple[str, ...] = ("average", "masked tokens")
    smallest: float = 0.5
    equal: str | None = None

    def column(self, available: frozenset[str]) -> str | None:
        """The column that it is judged on; None: this scale has none of them."""
        return next((name for name in self.columns if name in available), None)


# --------------------------------------------------------------------------------------------------------------------
# How far apart two arms are, and how sure that is: an interval from the spread between seeds and from held-out
# items.
#
# Seeds: arms with the same seed see their data in the same order, so what a seed does to all arms alike is taken
# out first; what is left, pooled over all arms of the table (a two-way layout of arms and seeds without
# interaction), is the spread. With two arms this is the paired t test; with more, few seeds still leave enough
# degrees of freedom. Items: the arms answer the same held-out items for every seed, so more seeds do not make that
# error smaller. It is added as if the answers of two models were independent, which is too wide where they agree,
# and as if items were, which those of one document are not quite.

TWO_SIDED_95 = 0.975


@dataclass(frozen=True)
class Scored:
    """What one run scored, in points.

    Args:
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


# --------------------------------------------------------------------------------------------------------------------
# Whether a claim of the paper holds among our runs: reproduced at this scale, not reproduced, or inconclusive.
#
# The test, of each contrast by itself: a 95 % interval of the difference (`Difference`) is held against 0 and
# against the smallest difference that counts, δ.
#
# - "higher" is reproduced when the whole interval is above 0 and reaches δ; not reproduced when it ends below δ.
# - "not higher" is the other way round: reproduced when it ends below δ, not when it is above 0 and reaches δ.
# - "alike" is reproduced when it lies between −δ and δ, not when it lies wholly outside.
#
# Everything else is inconclusive, and so is every contrast of a single seed. A claim of several contrasts is
# reproduced when all are, and not reproduced when one is not. Of twenty intervals one misses the truth: a table of
# claims is a set of readings, not one test.

Verdict = Literal["reproduced", "not reproduced", "inconclusive", "not asked"]
"""Of the fourth kind are claims about columns or rows that a scale does not have."""
WORDS: dict[Verdict, str] = {
    "reproduced": "reproduced at this scale",
    "not reproduced": "not reproduced at this scale",
    "inconclusive": "inconclusive",
    "not asked": "not asked at this scale",
}
AGREEMENT = 0.1
"""By which share of the larger one two figures may differ that should be equal (`Claim.equal`)."""


@dataclass(frozen=True)
class JudgedContrast:
    """A contrast, how large it came out, and what that says; without a difference there was no run to ask."""

    contrast: Contrast
    difference: Difference | None
    verdict: Verdict

    def figures(self, labels: Mapping[str, str] | None = None) -> str:
        """In words: "SOP against NSP: +12.3 points (95 %: +10.1 to +14.5; 2 seeds)".

        Args:
            labels: what rows are called at this scale, where E = 128 may stand for the paper's 768; by default as the
                paper calls them.
        """
        one, other = self.contrast.first, self.contrast.second or self.contrast.nothing
        sides = f"{(labels or {}).get(one, one)} against {(labels or {}).get(other, other)}"
        found = self.difference
        if found is None:
            return f"{sides}: not run"
        seeds = f"{found.seeds} seeds" if found.seeds > 1 else "one seed, so items alone"
        return f"{sides}: {found.mean:+.2f} points (95 %: {found.low:+.2f} to {found.high:+.2f}; {seeds})"


@dataclass(frozen=True)
class Judged:
    """A claim, judged.

    Args:
        column: where; None: this scale has none of its columns.
        why: what stood in the way of another verdict, where it was not the figures.
    """

    claim: Claim
    column: str | None
    contrasts: tuple[JudgedContrast, ...]
    verdict: Verdict
    why: str | None = None

    @property
    def words(self) -> str:
        """The verdict for people, with where it was looked for."""
        where = f" (on {self.column})" if self.column else ""
        return WORDS[self.verdict] + where + (f": {self.why}" if self.why else "")


def judge(claim: Claim, columns: Mapping[str, Scores]) -> Judged:
    """Hold a claim against what runs scored.

    Args:
        columns: of that table, what was measured: column -> row -> seed -> score.
    """
    measured = frozenset(name for name, scores in columns.items() if any(scores.values()))
    column = claim.column(measured)
    if column is None:
        return Judged(claim, None, (), "not asked", f"it needs {' or '.join(claim.columns)}")
    scores = columns[column]
    found = tuple(_judged(contrast, scores, claim.smallest) for contrast in claim.contrasts)
    verdicts = {one.verdict for one in found}
    if "not asked" in verdicts:
        missing = ", ".join(dict.fromkeys(one.figures() for one in found if one.verdict == "not asked"))
        return Judged(claim, column, found, "not asked", missing)
    unequal = _unequal(claim, columns)
    if unequal is not None:
        return Judged(claim, column, found, "inconclusive", unequal)
    if "not reproduced" in verdicts:
        return Judged(claim, column, found, "not reproduced")
    if "inconclusive" not in verdicts:
        return Judged(claim, column, found, "reproduced")
    single = any(one.difference is not None and not one.difference.degrees for one in found)
    return Judged(claim, column, found, "inconclusive", "one seed tells nothing of the spread" if single else None)


def verdict_of(relation: Relation, found: Difference, smallest: float) -> Verdict:
    """What an interval says about a contrast.

    Args:
        smallest: the smallest difference that counts, above 0.
    """
    if not found.degrees:
        return "inconclusive"
    better = found.low > 0 and found.high >= smallest
    no_better = found.high < smallest
    if relation == "alike":
        if -smallest < found.low and found.high < smallest:
            return "reproduced"
        return "not reproduced" if found.low >= smallest or found.high <= -smallest else "inconclusive"
    if relation == "not higher":
        better, no_better = no_better, better
    return "reproduced" if better else "not reproduced" if no_better else "inconclusive"


def _judged(contrast: Contrast, scores: Scores, smallest: float) -> JudgedContrast:
    found = difference(scores, contrast.first, contrast.second)
    verdict = "not asked" if found is None else verdict_of(contrast.relation, found, smallest)
    return JudgedContrast(contrast, found, verdict)


def _unequal(claim: Claim, columns: Mapping[str, Scores]) -> str | None:
    """Why the rows cannot be compared, where what should be equal between them is not."""
    if claim.equal is None:
        return None
    rows = {name for contrast in claim.contrasts for name in (contrast.first, contrast.second) if name}
    scores = columns.get(claim.equal, {})
    figures = {name: [one.score for one in scores.get(name, {}).values()] for name in sorted(rows)}
    missing = [name for name, values in figures.items() if not values]
    if missing:
        return f"{claim.equal} of {missing[0]} are not known"
    means = {name: sum(values) / len(values) for name, values in figures.items()}
    if max(means.values()) - min(means.values()) <= AGREEMENT * max(means.values()):
        return None
    told = ", ".join(f"{name} {mean:.3g}" for name, mean in means.items())
    return f"{claim.equal} are not equal: {told}"
