"""Results of a table so far, and their export; the paper's claims judged on them by a statistical test."""

import json
import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from scipy.stats import t

from albert.experiments.grids import DOWNSTREAM, Arm, Claim, Column, Contrast, Grid, Relation, Row, Scale, arm_key
from albert.experiments.jobs import STUDY_NAME, Folders, has_corpora, list_jobs, task_seeds, training_hours
from albert.experiments.layers import SMOOTHNESS, cached_layers
from albert.finetuning.run_record import RESULTS_NAME
from albert.model.config import AlbertConfig
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
class RunScore:
    """What one run scored, in points.

    Args:
        error: its standard error from the held-out items (`held_out_error`).
        constant: what always giving the most frequent answer scores on them; None where that is no question.
    """

    score: float
    error: float = 0.0
    constant: float | None = None


Scores = Mapping[str, Mapping[int, RunScore]]
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
    """How much better a row is than another, or than the constant answer (no second); None: no seed has both."""
    own = scores.get(first, {})
    if second:
        other = scores.get(second, {})
    else:
        other = {seed: RunScore(one.constant) for seed, one in own.items() if one.constant is not None}
    seeds = sorted(own.keys() & other.keys())
    if not seeds:
        return None
    gaps = [own[seed].score - other[seed].score for seed in seeds]
    errors = [math.hypot(own[seed].error, other[seed].error) for seed in seeds]
    table = np.array([[row[seed].score for seed in seeds] for row in scores.values() if row.keys() >= set(seeds)])
    # what is left of scores of arms (rows) by seeds without the arm's mean and, between two arms, without the seed's
    left, degrees = table - table.mean(1, keepdims=True), len(table) * (len(seeds) - 1)
    if second:
        left, degrees = left - table.mean(0, keepdims=True) + table.mean(), (len(table) - 1) * (len(seeds) - 1)
    of_seeds = 0.0
    if degrees:
        variance, runs = float((left**2).sum()) / degrees, len(seeds) / 2 if second else len(seeds)
        of_seeds = float(t.ppf(TWO_SIDED_95, degrees)) * math.sqrt(variance / runs)
    mean, half = float(np.mean(gaps)), math.hypot(of_seeds, NORMAL_95 * float(np.mean(errors)))
    return Difference(mean, mean - half, mean + half, len(seeds), degrees)


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
AGREEMENT = 0.1
"""By which share of the larger one two figures may differ that should be equal (`Claim.equal`)."""


@dataclass(frozen=True)
class ContrastResult:
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
class ClaimResult:
    """A claim, judged.

    Args:
        why: what stood in the way of another verdict, where it was not the figures.
    """

    claim: Claim
    column: str | None
    contrasts: tuple[ContrastResult, ...]
    verdict: Verdict
    why: str | None = None

    @property
    def words(self) -> str:
        """The verdict for people, with where it was looked for."""
        where = "" if self.verdict == "inconclusive" else " at this scale"
        where += f" (on {self.column})" if self.column else ""
        return self.verdict + where + (f": {self.why}" if self.why else "")


def judge(claim: Claim, columns: Mapping[str, Scores]) -> ClaimResult:
    """Hold a claim against what runs scored.

    Args:
        columns: of that table, what was measured: column -> row -> seed -> score.
    """
    column = claim.column({name for name, scores in columns.items() if any(scores.values())})
    if column is None:
        return ClaimResult(claim, None, (), "not asked", f"it needs {' or '.join(claim.columns)}")
    found = tuple(_judged(contrast, columns[column], claim.smallest) for contrast in claim.contrasts)
    verdicts, unequal = {one.verdict for one in found}, _unequal(claim, columns)
    if "not asked" in verdicts:
        why = ", ".join(dict.fromkeys(one.figures() for one in found if one.verdict == "not asked"))
        return ClaimResult(claim, column, found, "not asked", why)
    if unequal is not None:
        return ClaimResult(claim, column, found, "inconclusive", unequal)
    if "not reproduced" in verdicts or verdicts == {"reproduced"}:
        return ClaimResult(claim, column, found, "not reproduced" if "not reproduced" in verdicts else "reproduced")
    single = any(one.difference is not None and not one.difference.degrees for one in found)
    return ClaimResult(claim, column, found, "inconclusive", "one seed tells nothing of the spread" if single else None)


def contrast_verdict(relation: Relation, found: Difference, smallest: float) -> Verdict:
    """What an interval says about a contrast."""
    if not found.degrees:
        return "inconclusive"
    better, no_better = found.low > 0 and found.high >= smallest, found.high < smallest
    holds, fails = {
        "higher": (better, no_better),
        "not higher": (no_better, better),
        "alike": (-smallest < found.low and no_better, found.low >= smallest or found.high <= -smallest),
    }[relation]
    return "reproduced" if holds else "not reproduced" if fails else "inconclusive"


def _judged(contrast: Contrast, scores: Scores, smallest: float) -> ContrastResult:
    found = difference(scores, contrast.first, contrast.second)
    verdict = "not asked" if found is None else contrast_verdict(contrast.relation, found, smallest)
    return ContrastResult(contrast, found, verdict)


def _unequal(claim: Claim, columns: Mapping[str, Scores]) -> str | None:
    """Why the rows cannot be compared, where what should be equal between them is not."""
    if claim.equal is None:
        return None
    scores, means = columns.get(claim.equal, {}), {}
    for name in sorted({row for contrast in claim.contrasts for row in (contrast.first, contrast.second) if row}):
        if not scores.get(name):
            return f"{claim.equal} of {name} are not known"
        means[name] = statistics.fmean(one.score for one in scores[name].values())
    if max(means.values()) - min(means.values()) <= AGREEMENT * max(means.values()):
        return None
    return f"{claim.equal} are not equal: {', '.join(f'{name} {mean:.3g}' for name, mean in means.items())}"


# --------------------------------------------------------------------------------------------------------------------
# What the folders of runs hold of a table.


@dataclass(frozen=True)
class Cell:
    """A figure of a row: scores in points of 100, parameters in millions, hours, or times as fast."""

    values: Mapping[int, RunScore]
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
class Outcome:
    """A table so far.

    Args:
        keys: of the runs of each row, by its name.
        cells: what is known, by the names of row and column.
        done, wanted: how many jobs of each kind.
        given_up: jobs that are not tried again, each with its reason.
    """

    grid: Grid
    keys: Mapping[str, Sequence[str]]
    cells: Mapping[tuple[str, str], Cell]
    done: Mapping[str, int]
    wanted: Mapping[str, int]
    given_up: tuple[str, ...]

    @property
    def is_partial(self) -> bool:
        """Whether something of it is not done."""
        return self.done != self.wanted

    @property
    def scores(self) -> dict[str, Scores]:
        """Column -> row -> seed -> what was scored, as claims are judged on it."""
        return {
            column.name: {row.name: self.cells[row.name, column.name].values for row in self.grid.rows}
            for column in self.grid.columns
        }

    @property
    def constant(self) -> dict[str, float]:
        """By column, what the best constant answer scores on the same data."""
        found = {}
        for column in (column for column in self.grid.columns if column.kind != "layers"):
            scored = (one for seeds in self.scores[column.name].values() for one in seeds.values())
            if (constant := next((one.constant for one in scored if one.constant is not None), None)) is not None:
                found[column.name] = constant
        return found


def read_outcome(grid: Grid, scale: Scale, corpora: Sequence[str], folders: Folders) -> Outcome:
    """Read what there is of a table."""
    jobs = list_jobs([grid], scale, corpora, [one.task for one in scale.tasks])
    wanted, done = dict.fromkeys((job.several for job in jobs), 0), dict.fromkeys((job.several for job in jobs), 0)
    for job in jobs:
        wanted[job.several] += 1
        done[job.several] += job.is_done(folders)
    reading, all_keys, cells, given_up = _Reading(grid, scale, folders), {}, {}, []
    for row in grid.rows:
        learns = row.arm is not None and has_corpora(row.arm, corpora)
        arms = {seed: row.arm.seeded(seed) for seed in scale.seeds} if row.arm is not None and learns else {}
        keys = {seed: arm_key(one, corpora) for seed, one in arms.items()}
        for column in grid.columns:
            values = {seed: reading.figure(column, row, arm, keys[seed]) for seed, arm in arms.items()}
            known = {seed: one for seed, one in values.items() if one is not None}
            cells[row.name, column.name] = Cell(known, len(arms))
        all_keys[row.name] = list(keys.values())
        failures = [read_json_object(path) for key in keys.values() for path in folders.failures(key)]
        given_up += [f"{one['job']}: {one['why']}" for one in failures]
    return Outcome(grid=grid, keys=all_keys, cells=cells, done=done, wanted=wanted, given_up=tuple(given_up))


def paper_average(scores: Mapping[str, float]) -> float:
    """The paper's Avg: the mean over five tasks, of which both SQuADs count by the mean of F1 and exact match."""
    squads = [(scores[f"squad-{v} f1"] + scores[f"squad-{v} exact"]) / 2 for v in ("1.1", "2.0")]
    return sum([*squads, scores["mnli"], scores["sst-2"], scores["race"]]) / 5


def count_as_paper(config: AlbertConfig) -> int:
    """Parameters as the paper counts them: of what shares nothing without its pooler."""
    counted = count_parameters(config)
    return counted.encoder if config.sharing == "none" else counted.model


def hours_by_arm(folders: Folders) -> dict[str, float]:
    """Hours of training of every finished run, by its arm and seed."""
    found = {}
    for path in sorted(folders.root.glob("scores/*/arm.json")):
        arm, hours = read_json_object(path), training_hours(folders.pretraining(path.parent.name))
        if hours is not None:
            found[f"{arm['name']}, seed {arm['seed']}"] = hours
    return dict(sorted(found.items()))


@dataclass(frozen=True)
class _Reading:
    """Figures out of the folders of runs; None where there is none yet."""

    grid: Grid
    scale: Scale
    folders: Folders

    def figure(self, column: Column, row: Row, arm: Arm, key: str) -> RunScore | None:
        match column.kind:
            case "parameters":  # in millions, with the vocabulary of the corpus where the run has begun
                kept = self.folders.pretraining(key).recipe_path
                model = load_json(PretrainingRecipe, kept).model if kept.is_file() else arm.recipe.model
                return RunScore(count_as_paper(model) / 1e6)
            case "intrinsic":
                found = _kept(self.folders.intrinsic(key))
                score = found["models"][0]["scores"].get(column.source) if found else None
                if score is None:
                    return None
                accuracy = 100 * score["accuracy"]
                return RunScore(accuracy, held_out_error(accuracy, score["count"]), 100 * score["baseline"])
            case "downstream":
                return self._downstream(column, arm, key)
            case "average":
                return self._average(arm, key)
            case "hours":
                hours = training_hours(self.folders.pretraining(key))
                return None if hours is None else RunScore(hours)
            case "speed-up":  # over the row that the paper takes for 1
                seconds = (_kept(self.folders.speed(self.grid.table)) or {}).get("seconds_a_token", {})
                one = next((each.name for each in self.grid.rows if each.scores.get("speed-up") == 1.0), None)
                return RunScore(seconds[one] / seconds[row.name]) if {one, row.name} <= seconds.keys() else None
            case "layers":  # in percent; at a fixed point nothing would move
                model, kept = self.folders.pretraining(key).model_path, self.folders.layers(key)
                if not kept.is_file() and not (model / MANIFEST_NAME).is_file():
                    return None
                layers = cached_layers(model, kept, arm.recipe.sequences.max_length)
                return RunScore(SMOOTHNESS[column.name](layers), constant=0.0)

    def _downstream(self, column: Column, arm: Arm, key: str) -> RunScore | None:
        """The median over the seeds of fine-tuning that are done."""
        found = []
        for seed in task_seeds(self.scale, arm):
            report = _kept(self.folders.finetuning(key, column.source, seed).path / RESULTS_NAME)
            value = report["scores"].get(column.score) if report else None
            if report and value is not None:
                constant = (report["baseline"] or {}).get(column.score)
                found.append(RunScore(value, held_out_error(value, report["evaluation"]["examples"]), constant))
        return replace(found[0], score=statistics.median(one.score for one in found)) if found else None

    def _average(self, arm: Arm, key: str) -> RunScore | None:
        columns = [column for column in self.grid.columns if column.name in DOWNSTREAM]
        parts = {column.name: self._downstream(column, arm, key) for column in columns}
        known = {name: one for name, one in parts.items() if one is not None}
        if len(known) < len(DOWNSTREAM):
            return None
        error = math.hypot(*(one.error for one in known.values())) / 5
        return RunScore(paper_average({name: one.score for name, one in known.items()}), error)


def _kept(path: Path) -> dict[str, Any] | None:
    return read_json_object(path) if path.is_file() else None


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
    files = dict(_exported(Folders(root)))
    below = {f"{place}/".encode() for place in (root, root.resolve())}  # where it lay is nobody's business
    for path, content in files.items():
        for place in below:
            content = content.replace(place, b"")
        write_bytes(destination / path.relative_to(root), content)
    return len(files)


def _exported(folders: Folders) -> Iterator[tuple[Path, bytes]]:
    """Files with what is to be kept of them."""
    root = folders.root
    names = [STUDY_NAME, "failures/*.json", "scores/*.json"]
    for path in (path for name in names for path in sorted(root.glob(name))):
        yield path, path.read_bytes()
    for path in sorted(root.glob("runs/*")):
        run = RunFolder(path)
        if training_hours(run) is None:  # it can go on from its checkpoint alone, which stays here
            continue
        records = thin_journal(read_journal(run.journal_path))
        yield run.journal_path, "".join(json.dumps(record) + "\n" for record in records).encode()
        scores = folders.arm(path.name).parent
        told = [*sorted(scores.glob("*.json")), *sorted(scores.glob(f"*/{RESULTS_NAME}"))]
        for file in (run.recipe_path, run.start_path, path / RECORD_NAME, *told):
            if file.is_file():
                yield file, file.read_bytes()


def thin_journal(journal: Sequence[dict[str, Any]], lines: int = KEPT_LINES) -> list[dict[str, Any]]:
    """A journal with so many training lines, evenly spread, the last among them."""
    updates = [record for record in journal if record["event"] == "train"]
    every = max(1, -(-len(updates) // lines))
    kept = {record["step"] for record in updates[::-1][::every]}
    return [record for record in journal if record["event"] != "train" or record["step"] in kept]
