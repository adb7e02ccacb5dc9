"""The paper's claims as contrasts between rows, and the statistical test that judges them.

A claim is judged on the first of its columns that a scale has: the paper's average where all five tasks are learnt,
else held-out figures or a task that asks for the same. Rows have the names of `albert.experiments.published`."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
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
        sentence: what is claimed, in one plain sentence.
        contrasts: all of them must hold.
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


def _chain(*rows: str) -> tuple[Contrast, ...]:
    """Every row better than the one before."""
    return tuple(Contrast(later, "higher", former) for former, later in pairwise(rows))


_HELD_OUT = ("masked tokens",)
_SEVERAL_SENTENCES = ("average", "qnli")

CLAIMS: dict[str, tuple[Claim, ...]] = {
    "2": (
        Claim(
            sentence="ALBERT gets better with every size.",
            contrasts=_chain("albert-base", "albert-large", "albert-xlarge", "albert-xxlarge"),
        ),
        Claim(
            sentence="ALBERT-xxlarge is better than BERT-large, of fewer parameters.",
            contrasts=(Contrast("albert-xxlarge", "higher", "bert-large"),),
        ),
        Claim(
            sentence="At the same depth and width BERT is better than ALBERT, which shares its layers.",
            contrasts=(
                Contrast("bert-base", "higher", "albert-base"),
                Contrast("bert-large", "higher", "albert-large"),
            ),
        ),
    ),
    "3": (
        Claim(
            sentence="Where nothing is shared, larger embeddings are better.",
            contrasts=(Contrast("not shared, E = 768", "higher", "not shared, E = 64"),),
        ),
        Claim(
            sentence="Where all is shared, the default E is better than a smaller one; larger ones bring nothing.",
            contrasts=(
                Contrast("all shared, E = 128", "higher", "all shared, E = 64"),
                Contrast("all shared, E = 256", "not higher", "all shared, E = 128"),
                Contrast("all shared, E = 768", "not higher", "all shared, E = 128"),
            ),
        ),
    ),
    "4": (
        Claim(
            sentence="Sharing all parameters costs something.",
            contrasts=(
                Contrast("E = 768, none", "higher", "E = 768, all"),
                Contrast("E = 128, none", "higher", "E = 128, all"),
            ),
        ),
        Claim(
            sentence="Sharing the attention blocks alone costs next to nothing.",
            contrasts=(
                Contrast("E = 768, attention", "alike", "E = 768, none"),
                Contrast("E = 128, attention", "alike", "E = 128, none"),
            ),
            smallest=1.0,
        ),
        Claim(
            sentence="It is sharing the feed-forward blocks that costs.",
            contrasts=(
                Contrast("E = 768, attention", "higher", "E = 768, ffn"),
                Contrast("E = 128, attention", "higher", "E = 128, ffn"),
            ),
        ),
    ),
    "5": (
        Claim(
            sentence="NSP training does not help sentence order: the model stays near chance.",
            contrasts=(Contrast("nsp", "not higher", None),),
            columns=("sop",),
            smallest=3.0,
        ),
        Claim(
            sentence="SOP training helps next-sentence prediction, which was never asked of it.",
            contrasts=(Contrast("sop", "higher", None),),
            columns=("nsp",),
            smallest=3.0,
        ),
        Claim(
            sentence="SOP training teaches sentence order, and NSP training does not.",
            contrasts=(Contrast("sop", "higher", "nsp"),),
            columns=("sop",),
            smallest=3.0,
        ),
        Claim(
            sentence="Predicting sentences costs hardly any masked tokens.",
            contrasts=(Contrast("nsp", "alike", "none"), Contrast("sop", "alike", "none")),
            columns=_HELD_OUT,
            smallest=1.0,
        ),
        Claim(
            sentence="SOP training helps tasks of several sentences, more than NSP training or none.",
            contrasts=(Contrast("sop", "higher", "none"), Contrast("sop", "higher", "nsp")),
            columns=_SEVERAL_SENTENCES,
        ),
    ),
    "6": (
        Claim(
            sentence="In the same time of training ALBERT-xxlarge becomes better than BERT-large.",
            contrasts=(Contrast("albert-xxlarge, 125k steps", "higher", "bert-large, 400k steps"),),
            equal="hours",
        ),
    ),
    "7": (
        Claim(
            sentence="Additional text helps.",
            contrasts=(Contrast("additional text", "higher", "no additional text"),),
        ),
        Claim(
            sentence="Additional text does not help questions on Wikipedia.",
            contrasts=(Contrast("additional text", "not higher", "no additional text"),),
            columns=("squad-1.1 f1",),
        ),
    ),
    "8": (
        Claim(
            sentence="A model that does not fit its text too well is better without dropout.",
            contrasts=(Contrast("without dropout", "higher", "with dropout"),),
            smallest=0.2,
        ),
    ),
    "9": (
        Claim(
            sentence="Half as much training again helps a little.",
            contrasts=(Contrast("albert-xxlarge, 1.5M steps", "higher", "albert-xxlarge, 1M steps"),),
            columns=("mnli", "masked tokens"),
            smallest=0.2,
        ),
    ),
    "10": (
        Claim(
            sentence="Half as much training again helps a little.",
            contrasts=(Contrast("albert-xxlarge, 1.5M steps", "higher", "albert-xxlarge, 1M steps"),),
            columns=("race", "masked tokens"),
            smallest=0.2,
        ),
    ),
    "11": (
        Claim(
            sentence="More layers are better, up to half of ALBERT-large's.",
            contrasts=_chain("1", "6", "12"),
        ),
        Claim(
            sentence="Twice the layers of ALBERT-large are no better than its own.",
            contrasts=(Contrast("48", "not higher", "24"),),
        ),
    ),
    "12": (
        Claim(
            sentence="Wider is better, up to a point.",
            contrasts=_chain("1024", "2048", "4096"),
        ),
        Claim(
            sentence="Beyond that point wider is no better.",
            contrasts=(Contrast("6144", "not higher", "4096"),),
        ),
    ),
    "13": (
        Claim(
            sentence="A wide model need not be deep: twice the layers bring nothing.",
            contrasts=(Contrast("24", "not higher", "12"),),
        ),
    ),
    "figure-1": (
        Claim(
            sentence="From layer to layer the distance of input and output changes less in ALBERT than in BERT.",
            contrasts=(Contrast("bert-large", "higher", "albert-large"),),
            columns=("unevenness of distances",),
            smallest=5.0,
        ),
        Claim(
            sentence="So does the angle between them.",
            contrasts=(Contrast("bert-large", "higher", "albert-large"),),
            columns=("unevenness of angles",),
            smallest=5.0,
        ),
        Claim(
            sentence="ALBERT's layers do not come to rest: the last one still moves its input.",
            contrasts=(Contrast("albert-large", "higher", None, "a fixed point"),),
            columns=("movement of the last layer",),
            smallest=5.0,
        ),
    ),
    "figure-2a": (
        Claim(
            sentence="With additional text more held-out masked tokens are right.",
            contrasts=(Contrast("additional text", "higher", "no additional text"),),
            columns=_HELD_OUT,
        ),
    ),
    "figure-2b": (
        Claim(
            sentence="Without dropout more held-out masked tokens are right.",
            contrasts=(Contrast("without dropout", "higher", "with dropout"),),
            columns=_HELD_OUT,
        ),
    ),
    "degradation": (
        Claim(
            sentence="A BERT twice as wide as BERT-large is worse.",
            contrasts=(Contrast("bert-large", "higher", "bert-xlarge"),),
            columns=("race", "masked tokens"),
        ),
    ),
    "v2": (
        Claim(
            sentence="The second release gets better with every size.",
            contrasts=_chain("albert-base-v2", "albert-large-v2", "albert-xlarge-v2", "albert-xxlarge-v2"),
        ),
        Claim(
            sentence="The second release of ALBERT-xxlarge is no better than the first.",
            contrasts=(Contrast("albert-xxlarge-v2", "not higher", "albert-xxlarge-v1"),),
        ),
    ),
}
"""Table -> its claims. Claims about sizes are figures, exact at every scale: `albert.experiments.published_sizes`."""


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
        claim: the claim.
        column: where; None: this scale has none of its columns.
        contrasts: each by itself.
        verdict: of all together.
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
        claim: of a table.
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
        relation: what is claimed.
        found: the difference, first less second.
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
