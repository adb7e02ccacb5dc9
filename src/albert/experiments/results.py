"""Results of a table so far, and their export; the paper's claims judged on them by a statistical test."""

import json
import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from jaxtyping import Float
from scipy.stats import t

from albert.experiments.grids import DOWNSTREAM, Arm, Claim, Column, Contrast, Grid, Relation, Row, Scale, arm_key
from albert.experiments.jobs import (
    STUDY_NAME,
    Folders,
    has_text,
    hours_of,
    jobs_of,
    task_seeds,
)
from albert.experiments.layers import SMOOTHNESS, kept_layers
from albert.finetuning.run_record import RESULTS_NAME
from albert.model.cost import count_parameters
from albert.pretraining.evaluation import NORMAL_95
from albert.pretraining.recipe import PretrainingRecipe
from albert.pretraining.run_identity import RECORD_NAME
from albert.runtime.errors import MissingInput
from albert.runtime.files import write_bytes
from albert.runtime.json_files import load_json, read_journal, read_json_object
from albert.runtime.manifest import MANIFEST_NAME
from albert.training.run_folder import RunFolder

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
    """What an interval says about a contrast."""
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


# --------------------------------------------------------------------------------------------------------------------
# What the folders of runs hold of a table.


@dataclass(frozen=True)
class Cell:
    """A figure of a row: scores in points of 100, parameters in millions, hours, or times as fast."""

    values: Mapping[int, Scored]
    wanted: int

    @property
    def figures(self) -> tuple[float, ...]:
        """What the seeds that are done came to, in ascending order."""
        return tuple(sorted(one.score for one in self.values.values()))

    @property
    def median(self) -> float | None:
        """Over the seeds that are done; None: none is."""
        return statistics.median(self.figures) if self.values else None


@dataclass(frozen=True, kw_only=True)
class RowOutcome:
    """A row with what is known of it."""

    row: Row
    keys: Mapping[int, str]
    cells: Mapping[str, Cell]
    given_up: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """A table so far."""

    grid: Grid
    rows: tuple[RowOutcome, ...]
    done: Mapping[str, int]
    wanted: Mapping[str, int]

    @property
    def is_partial(self) -> bool:
        """Whether something of it is not done."""
        return self.done != self.wanted

    @property
    def scores(self) -> dict[str, Scores]:
        """Column -> row -> seed -> what was scored, as claims are judged on it."""
        return {
            column.name: {one.row.name: one.cells[column.name].values for one in self.rows if one.cells}
            for column in self.grid.columns
        }

    @property
    def constant(self) -> dict[str, float]:
        """By column, what the best constant answer scores on the same data."""
        found = {}
        for column in self.grid.columns:
            rows = self.scores[column.name].values() if column.kind != "layers" else ()
            told = [one.constant for seeds in rows for one in seeds.values() if one.constant is not None]
            if told:
                found[column.name] = told[0]
        return found


def outcome_of(grid: Grid, scale: Scale, corpora: Sequence[str], folders: Folders) -> Outcome:
    """Read what there is of a table."""
    jobs = jobs_of([grid], scale, corpora, [one.task for one in scale.tasks])
    kinds = {job.name: job.several for job in jobs}
    wanted = {kind: list(kinds.values()).count(kind) for kind in dict.fromkeys(kinds.values())}
    done = dict.fromkeys(wanted, 0)
    for job in jobs:
        done[kinds[job.name]] += job.is_done(folders)
    reading = _Reading(grid, scale, folders)
    rows = []
    for row in grid.rows:
        learns = row.arm is not None and has_text(row.arm, corpora)
        arms = {seed: row.arm.seeded(seed) for seed in scale.seeds} if row.arm is not None and learns else {}
        keys = {seed: arm_key(one, corpora) for seed, one in arms.items()}
        cells = {}
        for column in grid.columns:
            values = {seed: reading.figure(column, row, arm, keys[seed]) for seed, arm in arms.items()}
            known = {seed: value for seed, value in values.items() if value is not None}
            cells[column.name] = Cell(known, len(arms))
        failures = [read_json_object(path) for key in keys.values() for path in folders.failures(key)]
        given_up = tuple(f"{one['job']}: {one['why']}" for one in failures)
        rows.append(RowOutcome(row=row, keys=keys, cells=cells, given_up=given_up))
    return Outcome(grid=grid, rows=tuple(rows), done=done, wanted=wanted)


def average_of(scores: Mapping[str, float]) -> float:
    """The paper's Avg: the mean over five tasks, of which both SQuADs count by the mean of F1 and exact match."""
    squads = [(scores[f"squad-{v} f1"] + scores[f"squad-{v} exact"]) / 2 for v in ("1.1", "2.0")]
    return sum([*squads, scores["mnli"], scores["sst-2"], scores["race"]]) / 5


def hours_by_arm(folders: Folders) -> dict[str, float]:
    """Hours of training of every finished run, by its arm and seed."""
    found = {}
    for path in sorted(folders.root.glob("scores/*/arm.json")):
        arm, hours = read_json_object(path), hours_of(folders.pretraining(path.parent.name))
        if hours is not None:
            found[f"{arm['name']}, seed {arm['seed']}"] = hours
    return dict(sorted(found.items()))


@dataclass(frozen=True)
class _Reading:
    """Figures out of the folders of runs; None where there is none yet."""

    grid: Grid
    scale: Scale
    folders: Folders

    def figure(self, column: Column, row: Row, arm: Arm, key: str) -> Scored | None:
        match column.kind:
            case "parameters":
                return Scored(self._parameters(arm, key))
            case "intrinsic":
                return self._intrinsic(column, key)
            case "downstream":
                return self._downstream(column, arm, key)
            case "average":
                return self._average(arm, key)
            case "hours":
                hours = hours_of(self.folders.pretraining(key))
                return None if hours is None else Scored(hours)
            case "speed-up":
                return self._speed_up(row)
            case "layers":
                return self._layers(column, arm, key)

    def _parameters(self, arm: Arm, key: str) -> float:
        """In millions, counted as the paper does, with the vocabulary of the corpus where the run has begun."""
        kept = self.folders.pretraining(key).recipe_path
        model = load_json(PretrainingRecipe, kept).model if kept.is_file() else arm.recipe.model
        counted = count_parameters(model)
        return (counted.encoder if model.sharing == "none" else counted.model) / 1e6

    def _intrinsic(self, column: Column, key: str) -> Scored | None:
        path = self.folders.intrinsic(key)
        score = read_json_object(path)["models"][0]["scores"].get(column.source) if path.is_file() else None
        if score is None:
            return None
        accuracy = 100 * score["accuracy"]
        return Scored(accuracy, held_out_error(accuracy, score["count"]), 100 * score["baseline"])

    def _downstream(self, column: Column, arm: Arm, key: str) -> Scored | None:
        """The median over the seeds of fine-tuning that are done."""
        found = []
        for seed in task_seeds(self.scale, arm):
            path = self.folders.finetuning(key, column.source, seed).path / RESULTS_NAME
            report = read_json_object(path) if path.is_file() else None
            value = None if report is None else report["scores"].get(column.score)
            if report is not None and value is not None:
                constant = (report["baseline"] or {}).get(column.score)
                found.append(Scored(value, held_out_error(value, report["evaluation"]["examples"]), constant))
        if not found:
            return None
        return replace(found[0], score=statistics.median(one.score for one in found))

    def _average(self, arm: Arm, key: str) -> Scored | None:
        tasks = [column for column in self.grid.columns if column.kind == "downstream"]
        parts = {column.name: self._downstream(column, arm, key) for column in tasks}
        known = {name: one for name, one in parts.items() if one is not None}
        if not set(DOWNSTREAM) <= set(known):
            return None
        error = math.hypot(*(one.error for name, one in known.items() if name in DOWNSTREAM)) / 5
        return Scored(average_of({name: one.score for name, one in known.items()}), error)

    def _layers(self, column: Column, arm: Arm, key: str) -> Scored | None:
        """In percent; at a fixed point nothing would move."""
        model, kept = self.folders.pretraining(key).model_path, self.folders.layers(key)
        if not kept.is_file() and not (model / MANIFEST_NAME).is_file():
            return None
        layers = kept_layers(model, kept, arm.recipe.sequences.max_length)
        return Scored(SMOOTHNESS[column.name](layers), constant=0.0)

    def _speed_up(self, row: Row) -> Scored | None:
        """How many times as fast as the row that the paper takes for 1."""
        path = self.folders.speed(self.grid.table)
        one = next((each.name for each in self.grid.rows if each.scores.get("speed-up") == 1.0), None)
        if not path.is_file() or one is None:
            return None
        seconds = read_json_object(path)["seconds_a_token"]
        return Scored(seconds[one] / seconds[row.name]) if {one, row.name} <= set(seconds) else None


# --------------------------------------------------------------------------------------------------------------------
# Export of results: everything that tables are made from, without weights.
#
# The copy is a root like any other. Its tables are shown as before, and `albert tables run` goes on from it on
# another machine: what is finished counts, and weights that are wanted again are made again (`jobs.done_jobs`).

KEPT_LINES = 40
"""Training lines kept of a journal, enough for a curve; evaluations are all kept."""


def export_results(root: Path, destination: Path) -> int:
    """Copy what finished runs came to; how many files were written.

    Args:
        destination: another folder; what it holds of the same runs gives way.

    Raises:
        MissingInput: no table was run at `root`.
        WriteFailed: the disk is full or failed; what was written until then is whole.
    """
    if not (root / STUDY_NAME).is_file():
        raise MissingInput(root / STUDY_NAME, "no tables were run here", "name the --output of `albert tables run`")
    kept = dict(_kept(Folders(root)))
    below = {f"{place}/".encode() for place in (root, root.resolve())}  # where it lay is nobody's business
    for path, content in kept.items():
        for place in below:
            content = content.replace(place, b"")
        write_bytes(destination / path.relative_to(root), content)
    return len(kept)


def _kept(folders: Folders) -> Iterator[tuple[Path, bytes]]:
    """Files with what is to be kept of them."""
    root = folders.root
    names = [STUDY_NAME, "failures/*.json", "scores/*.json"]
    for path in (path for name in names for path in sorted(root.glob(name))):
        yield path, path.read_bytes()
    for path in sorted(root.glob("runs/*")):
        run = RunFolder(path)
        if hours_of(run) is None:  # it can go on from its checkpoint alone, which stays here
            continue
        records = thinned(read_journal(run.journal_path))
        yield run.journal_path, "".join(json.dumps(record) + "\n" for record in records).encode()
        scores = folders.arm(path.name).parent
        told = [*sorted(scores.glob("*.json")), *sorted(scores.glob(f"*/{RESULTS_NAME}"))]
        for file in (run.recipe_path, run.start_path, path / RECORD_NAME, *told):
            if file.is_file():
                yield file, file.read_bytes()


def thinned(journal: Sequence[dict[str, Any]], lines: int = KEPT_LINES) -> list[dict[str, Any]]:
    """A journal with so many training lines, evenly spread, the last among them."""
    updates = [record for record in journal if record["event"] == "train"]
    every = max(1, -(-len(updates) // lines))
    kept = {record["step"] for record in updates[::-1][::every]}
    return [record for record in journal if record["event"] != "train" or record["step"] in kept]
