"""Whether a claim of the paper holds among our runs: reproduced at this scale, not reproduced, or inconclusive.

The test, of each contrast by itself: a 95 % interval of the difference (`spread.py`) is held against 0 and against the
smallest difference that counts, δ.

- "higher" is reproduced when the whole interval is above 0 and reaches δ; not reproduced when it ends below δ.
- "not higher" is the other way round: reproduced when it ends below δ, not when it is above 0 and reaches δ.
- "alike" is reproduced when it lies between −δ and δ, not when it lies wholly outside.

Everything else is inconclusive, and so is every contrast of a single seed. A claim of several contrasts is reproduced
when all are, and not reproduced when one is not. Of twenty intervals one misses the truth: a table of claims is a set
of readings, not one test.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from albert.experiments.tables.claims import Claim, Contrast, Relation
from albert.experiments.tables.spread import Difference, Scores, difference

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
