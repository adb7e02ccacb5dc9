"""Results of a table, the test of the paper's claims on them, and their export."""

import json
import math
import statistics
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from scipy.stats import t

from albert.model.cost import count_parameters
from albert.pretraining.evaluation import NORMAL_95
from albert.pretraining.saved_run import saved_recipe
from albert.recipes.architecture import EncoderConfig
from albert.runtime.errors import CannotCreate, MissingInput
from albert.runtime.files import write_bytes
from albert.runtime.json_files import read_journal, read_json_object
from albert.runtime.manifest import MANIFEST_NAME
from albert.training.run_folder import RESULTS_NAME, RunFolder
from experiments.grids import DOWNSTREAM, Claim, Column, Contrast, Grid, Relation, Row, Scale, Variant, variant_key
from experiments.jobs import (
    INTRINSIC_NAME,
    LAYERS_NAME,
    STUDY_NAME,
    Folders,
    has_corpora,
    list_jobs,
    task_seeds,
    training_hours,
)
from experiments.layers import SMOOTHNESS, cached_layers

# --------------------------------------------------------------------------------------------------------------------
# The difference between two variants, with an interval from the spread between seeds and the error of held-out items.
#
# Seeds: variants with the same seed see their data in the same order, so the effect of a seed on all variants is
# removed first. The rest, pooled over all variants of the table (a two-way layout of variants and seeds without
# interaction), is the spread. With two variants this is the paired t test; more variants give enough degrees of freedom
# even with few seeds. Items: the variants answer the same held-out items for every seed, so more seeds do not reduce
# that error. It is added as if the answers of two models were independent, which is too wide where they agree, and as
# if items were independent, which is not quite true of items from one document.

TWO_SIDED_95 = 0.975


@dataclass(frozen=True)
class RunScore:
    """The score of one run, in points.

    Args:
        error: its standard error from the held-out items (`held_out_error`).
        constant: the score of always giving the most frequent answer; None if that makes no sense.
    """

    score: float
    error: float = 0.0
    constant: float | None = None


Scores = Mapping[str, Mapping[int, RunScore]]
"""Of one column: row -> seed -> score of the run."""


@dataclass(frozen=True)
class Difference:
    """A difference in points, with its 95 % interval.

    Args:
        degrees: degrees of freedom of the spread between seeds; 0 with one seed, where only items count.
    """

    mean: float
    low: float
    high: float
    seeds: int
    degrees: int


def held_out_error(score: float, items: int) -> float:
    """The binomial standard error of an accuracy, in points of 100; for F1 and other means an upper bound."""
    share = min(max(score / 100, 0.0), 1.0)
    return 100 * math.sqrt(share * (1 - share) / items)


def difference(scores: Scores, first: str, second: str | None) -> Difference | None:
    """How much better the first row is than the second, or than the majority baseline if there is no second.

    Returns:
        None if the two have no seed in common.
    """
    firsts = scores.get(first, {})
    if second:
        seconds = scores.get(second, {})
    else:
        seconds = {seed: RunScore(run.constant) for seed, run in firsts.items() if run.constant is not None}
    seeds = sorted(firsts.keys() & seconds.keys())
    if not seeds:
        return None
    gaps = [firsts[seed].score - seconds[seed].score for seed in seeds]
    errors = [math.hypot(firsts[seed].error, seconds[seed].error) for seed in seeds]
    table = np.array([[row[seed].score for seed in seeds] for row in scores.values() if row.keys() >= set(seeds)])
    # residuals: scores of variants (rows) by seeds without the variant's mean and, of two variants, without the seed's
    residuals = table - table.mean(1, keepdims=True)
    degrees = len(table) * (len(seeds) - 1)
    if second:
        residuals = residuals - table.mean(0, keepdims=True) + table.mean()
        degrees = (len(table) - 1) * (len(seeds) - 1)
    half_width = 0.0
    if degrees:
        variance = float((residuals**2).sum()) / degrees
        runs = len(seeds) / 2 if second else len(seeds)
        half_width = float(t.ppf(TWO_SIDED_95, degrees)) * math.sqrt(variance / runs)
    mean = float(np.mean(gaps))
    half_width = math.hypot(half_width, NORMAL_95 * float(np.mean(errors)))
    return Difference(mean, mean - half_width, mean + half_width, len(seeds), degrees)


# --------------------------------------------------------------------------------------------------------------------
# Whether a claim of the paper holds among our runs: reproduced at this scale, not reproduced, or inconclusive.
#
# Each contrast is tested by itself: the 95 % interval of the difference (`Difference`) is compared with 0 and with the
# smallest difference that counts, δ.
#
# - "higher" is reproduced if the interval is above 0 and reaches δ; not reproduced if it ends below δ.
# - "not higher" is the opposite: reproduced if it ends below δ, not reproduced if it is above 0 and reaches δ.
# - "alike" is reproduced if the interval lies between −δ and δ, not reproduced if it lies outside.
#
# Everything else is inconclusive, and so is every contrast of a single seed. A claim of several contrasts is reproduced
# if all are, and not reproduced if one is not. One in twenty intervals misses the truth, and the verdicts of a table
# are not corrected for that.

Verdict = Literal["reproduced", "not reproduced", "inconclusive", "not tested"]
"""A claim about columns or rows that a scale does not have is not tested."""
AGREEMENT = 0.1
"""The largest relative difference of two figures that should be equal (`Claim.equal`)."""


@dataclass(frozen=True)
class ContrastResult:
    """A contrast, the measured difference (None: not run) and the verdict."""

    contrast: Contrast
    difference: Difference | None
    verdict: Verdict

    def figures(self, labels: Mapping[str, str] | None = None) -> str:
        """The difference as text: "SOP against NSP: +12.3 points (95 %: +10.1 to +14.5; 2 seeds)".

        Args:
            labels: of rows at this scale (E = 128 may stand for the paper's 768); by default the paper's names.
        """
        first = self.contrast.first
        second = self.contrast.second or self.contrast.nothing
        sides = f"{(labels or {}).get(first, first)} against {(labels or {}).get(second, second)}"
        found = self.difference
        if found is None:
            return f"{sides}: not run"
        seeds = f"{found.seeds} seeds" if found.seeds > 1 else "one seed, so items alone"
        return f"{sides}: {found.mean:+.2f} points (95 %: {found.low:+.2f} to {found.high:+.2f}; {seeds})"


@dataclass(frozen=True)
class ClaimResult:
    """The verdict on a claim.

    Args:
        why: what prevented another verdict, other than the figures.
    """

    column: str | None
    contrasts: tuple[ContrastResult, ...]
    verdict: Verdict
    why: str | None = None

    @property
    def words(self) -> str:
        """The verdict as text, with the column that it is based on."""
        where = "" if self.verdict == "inconclusive" else " at this scale"
        where += f" (on {self.column})" if self.column else ""
        return self.verdict + where + (f": {self.why}" if self.why else "")


def check_claim(claim: Claim, columns: Mapping[str, Scores]) -> ClaimResult:
    """Test a claim on the scores of a table: column -> row -> seed -> score."""
    column = claim.column({name for name, scores in columns.items() if any(scores.values())})
    if column is None:
        return ClaimResult(None, (), "not tested", f"it needs {' or '.join(claim.columns)}")
    results = []
    for contrast in claim.contrasts:
        found = difference(columns[column], contrast.first, contrast.second)
        verdict = contrast_verdict(contrast.relation, found, claim.smallest) if found else "not tested"
        results.append(ContrastResult(contrast, found, verdict))
    verdicts = {result.verdict for result in results}
    verdict = "inconclusive"
    why = _unequal(claim, columns)
    if "not tested" in verdicts:
        verdict = "not tested"
        why = ", ".join(dict.fromkeys(result.figures() for result in results if result.verdict == "not tested"))
    elif why is None and "not reproduced" in verdicts:
        verdict = "not reproduced"
    elif why is None and verdicts == {"reproduced"}:
        verdict = "reproduced"
    elif why is None and any(result.difference and not result.difference.degrees for result in results):
        why = "one seed does not show the spread"
    return ClaimResult(column, tuple(results), verdict, why)


def contrast_verdict(relation: Relation, found: Difference, smallest: float) -> Verdict:
    """The verdict on one contrast from its interval."""
    if not found.degrees:
        return "inconclusive"
    better = found.low > 0 and found.high >= smallest
    no_better = found.high < smallest
    holds, fails = {
        "higher": (better, no_better),
        "not higher": (no_better, better),
        "alike": (-smallest < found.low and no_better, found.low >= smallest or found.high <= -smallest),
    }[relation]
    if holds:
        return "reproduced"
    return "not reproduced" if fails else "inconclusive"


def _unequal(claim: Claim, columns: Mapping[str, Scores]) -> str | None:
    """Why the rows of a claim cannot be compared; None if the column that should be equal is."""
    if claim.equal is None:
        return None
    scores = columns.get(claim.equal, {})
    means = {}
    for name in sorted({row for contrast in claim.contrasts for row in (contrast.first, contrast.second) if row}):
        if not scores.get(name):
            return f"{claim.equal} of {name} are not known"
        means[name] = statistics.fmean(run.score for run in scores[name].values())
    if max(means.values()) - min(means.values()) <= AGREEMENT * max(means.values()):
        return None
    return f"{claim.equal} are not equal: {', '.join(f'{name} {mean:.3g}' for name, mean in means.items())}"


# --------------------------------------------------------------------------------------------------------------------
# The results of a table, read from the folders of its runs.


@dataclass(frozen=True)
class Cell:
    """A figure of a row, by seed: scores in points of 100, parameters in millions, hours, or a speed ratio."""

    values: Mapping[int, RunScore]
    wanted: int

    @property
    def figures(self) -> tuple[float, ...]:
        """The figures of the finished seeds, ascending."""
        return tuple(sorted(run.score for run in self.values.values()))

    @property
    def median(self) -> float | None:
        """Median over the finished seeds; None if there are none."""
        return statistics.median(self.figures) if self.values else None


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The results of a table so far.

    Args:
        keys: keys of the runs of each row, by the row's name.
        cells: by the names of row and column.
        done, wanted: number of jobs of each kind.
        failed: failed jobs that are not tried again, each with its reason.
    """

    grid: Grid
    keys: Mapping[str, Sequence[str]]
    cells: Mapping[tuple[str, str], Cell]
    done: Mapping[str, int]
    wanted: Mapping[str, int]
    failed: tuple[str, ...]

    @property
    def is_partial(self) -> bool:
        return self.done != self.wanted

    @property
    def scores(self) -> dict[str, Scores]:
        """Column -> row -> seed -> score."""
        return {
            column.name: {row.name: self.cells[row.name, column.name].values for row in self.grid.rows}
            for column in self.grid.columns
        }

    @property
    def constant(self) -> dict[str, float]:
        """By column, the score of the majority baseline on the same data."""
        constants = {}
        for column in (column for column in self.grid.columns if column.kind != "layers"):
            for run in (run for seeds in self.scores[column.name].values() for run in seeds.values()):
                if run.constant is not None:
                    constants.setdefault(column.name, run.constant)
        return constants


def read_outcome(grid: Grid, scale: Scale, corpora: Sequence[str], folders: Folders) -> Outcome:
    """Read the results of a table from its runs."""
    jobs = list_jobs([grid], scale, corpora, [task.task for task in scale.tasks])
    wanted = Counter(job.kind for job in jobs)
    done = {kind: sum(job.is_done(folders) for job in jobs if job.kind == kind) for kind in wanted}
    all_keys = {}
    cells = {}
    failed = []
    for row in grid.rows:
        can_train = row.variant is not None and has_corpora(row.variant, corpora)
        variants = (
            {seed: row.variant.seeded(seed) for seed in scale.seeds} if row.variant is not None and can_train else {}
        )
        keys = {seed: variant_key(variant, corpora) for seed, variant in variants.items()}
        for column in grid.columns:
            values = {
                s: _figure(grid, scale, folders, column, row, variant, keys[s]) for s, variant in variants.items()
            }
            measured = {seed: value for seed, value in values.items() if value is not None}
            cells[row.name, column.name] = Cell(measured, len(variants))
        all_keys[row.name] = list(keys.values())
        failures = [read_json_object(path) for key in keys.values() for path in folders.failures(key)]
        failed += [f"{failure['job']}: {failure['why']}" for failure in failures]
    return Outcome(grid=grid, keys=all_keys, cells=cells, done=done, wanted=wanted, failed=tuple(failed))


def paper_average(scores: Mapping[str, float]) -> float:
    """The paper's Avg: the mean over five tasks, where each SQuAD counts as the mean of F1 and exact match."""
    squads = [(scores[f"squad-{v} f1"] + scores[f"squad-{v} exact"]) / 2 for v in ("1.1", "2.0")]
    return sum([*squads, scores["mnli"], scores["sst-2"], scores["race"]]) / 5


def count_as_paper(config: EncoderConfig) -> int:
    """Parameters as the paper counts them: without the pooler if no layers are shared."""
    counted = count_parameters(config)
    return counted.encoder if config.sharing == "none" else counted.model


def hours_by_variant(folders: Folders) -> dict[str, float]:
    """Hours of training of every finished run, by its variant and seed."""
    found = {}
    for path in sorted(folders.root.glob("scores/*/arm.json")):
        variant = read_json_object(path)
        hours = training_hours(folders.pretraining(path.parent.name))
        if hours is not None:
            found[f"{variant['name']}, seed {variant['seed']}"] = hours
    return dict(sorted(found.items()))


def _figure(
    grid: Grid, scale: Scale, folders: Folders, column: Column, row: Row, variant: Variant, key: str
) -> RunScore | None:
    """A figure from the folders of a variant's runs; None if there is none yet."""
    match column.kind:
        case "parameters":  # in millions, with the vocabulary of the corpus if the run has begun
            run = folders.pretraining(key)
            model = saved_recipe(run).model if run.recipe_path.is_file() else variant.recipe.model
            return RunScore(count_as_paper(model) / 1e6)
        case "intrinsic":
            report = _read_if_present(folders.score(key, INTRINSIC_NAME))
            score = report["models"][0]["scores"].get(column.source) if report else None
            if score is None:
                return None
            accuracy = 100 * score["accuracy"]
            return RunScore(accuracy, held_out_error(accuracy, score["count"]), 100 * score["baseline"])
        case "downstream":  # the median over the finished seeds of fine-tuning
            runs = []
            for seed in task_seeds(scale, variant):
                report = _read_if_present(folders.finetuning(key, column.source, seed).path / RESULTS_NAME)
                value = report["scores"].get(column.score) if report else None
                if report and value is not None:
                    constant = (report["baseline"] or {}).get(column.score)
                    runs.append(RunScore(value, held_out_error(value, report["evaluation"]["examples"]), constant))
            return replace(runs[0], score=statistics.median(run.score for run in runs)) if runs else None
        case "average":
            of_tasks = [column for column in grid.columns if column.name in DOWNSTREAM]
            found = {each.name: _figure(grid, scale, folders, each, row, variant, key) for each in of_tasks}
            scores = {name: run for name, run in found.items() if run is not None}
            if len(scores) < len(DOWNSTREAM):
                return None
            error = math.hypot(*(run.error for run in scores.values())) / 5
            return RunScore(paper_average({name: run.score for name, run in scores.items()}), error)
        case "hours":
            hours = training_hours(folders.pretraining(key))
            return None if hours is None else RunScore(hours)
        case "speed-up":  # relative to the row that is 1 in the paper
            seconds = (_read_if_present(folders.speed(grid.table)) or {}).get("seconds_a_token", {})
            reference = next((other.name for other in grid.rows if other.scores.get("speed-up") == 1.0), None)
            known = {reference, row.name} <= seconds.keys()
            return RunScore(seconds[reference] / seconds[row.name]) if known else None
        case "layers":  # in percent; the constant 0 is a fixed point
            model = folders.pretraining(key).model_path
            cache = folders.score(key, LAYERS_NAME)
            if not cache.is_file() and not (model / MANIFEST_NAME).is_file():
                return None
            layers = cached_layers(model, cache, variant.recipe.sequences.max_length)
            return RunScore(SMOOTHNESS[column.name](layers), constant=0.0)


def _read_if_present(path: Path) -> dict[str, Any] | None:
    return read_json_object(path) if path.is_file() else None


# --------------------------------------------------------------------------------------------------------------------
# Export of results without weights: everything that tables are made from.
#
# The copy is a root like any other: its tables look the same, and `python -m experiments run` continues it on another
# machine. Finished runs count; weights that are needed again are trained again (`jobs.done_jobs`).

KEPT_LINES = 40
"""Training records kept of a journal, enough for a curve; evaluations are all kept."""


def export_results(root: Path, destination: Path) -> int:
    """Copy the results of finished runs, and return the number of files written.

    Args:
        destination: another folder; files of the same runs in it are replaced.

    Raises:
        MissingInput: no table was run at `root`.
        CannotCreate: the destination is `root`, whose journals would be thinned.
        WriteFailed: the disk is full or failed; files written before are complete.
    """
    if not (root / STUDY_NAME).is_file():
        raise MissingInput(
            root / STUDY_NAME, "no tables were run here", "name the --output of `python -m experiments run`"
        )
    if destination.resolve() == root.resolve():
        raise CannotCreate(destination, "holds the runs themselves", "name another folder for the copy")
    files = dict(_exported(Folders(root)))
    for path, content in files.items():
        for prefix in {f"{folder}/".encode() for folder in (root, root.resolve())}:  # no paths of this machine
            content = content.replace(prefix, b"")
        write_bytes(destination / path.relative_to(root), content)
    return len(files)


def _exported(folders: Folders) -> Iterator[tuple[Path, bytes]]:
    """The files of an export with their contents."""
    root = folders.root
    for path in (path for name in (STUDY_NAME, "failures/*.json", "scores/*.json") for path in sorted(root.glob(name))):
        yield path, path.read_bytes()
    for path in sorted(root.glob("runs/*")):
        run = RunFolder(path)
        if training_hours(run) is None:  # unfinished: it can only continue from its checkpoint, which is not copied
            continue
        records = thin_journal(read_journal(run.journal_path))
        yield run.journal_path, "".join(json.dumps(record) + "\n" for record in records).encode()
        scores = root / "scores" / path.name
        results = [*sorted(scores.glob("*.json")), *sorted(scores.glob(f"*/{RESULTS_NAME}"))]
        for file in (run.recipe_path, run.start_path, run.inputs_path, *results):
            if file.is_file():
                yield file, file.read_bytes()


def thin_journal(journal: Sequence[dict[str, Any]], lines: int = KEPT_LINES) -> list[dict[str, Any]]:
    """A journal with at most `lines` training records, evenly spaced and ending with the last."""
    updates = [record for record in journal if record["event"] == "train"]
    every = max(1, -(-len(updates) // lines))
    kept = {record["step"] for record in updates[::-1][::every]}
    return [record for record in journal if record["event"] != "train" or record["step"] in kept]
