"""Several seeds, and a whole benchmark."""

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.tiny import short_task

from albert.cli.main import dispatch, run
from albert.finetuning import seeds
from albert.finetuning import seeds as benchmark
from albert.finetuning.model import PretrainedEncoder
from albert.finetuning.run import finetune
from albert.finetuning.run_record import FinetuningSettings
from albert.finetuning.seeds import (
    BenchmarkResult,
    SeedRun,
    SeedsResult,
    TaskOutcome,
    failure_reason,
    finetune_benchmark,
    finetune_seeds,
    score_spread,
)
from albert.runtime.errors import CannotCreate, Diverged, InvalidConfiguration
from albert.tasks.submission import DECLARED, GLUE_AVERAGE
from albert.tasks.table_task import RecipeChanges

# --------------------------------------------------------------------------------------------------------------------
# Several seeds: each run its own, failed ones named, and the spread that of all of them.


CPU = FinetuningSettings(device="cpu")


@pytest.fixture
def short(data):
    return short_task(steps=4)


def test_every_seed_is_the_run_that_it_is_alone_and_finished_ones_are_found(short, data, pretrained, tmp_path):
    start, place = PretrainedEncoder(str(pretrained)), tmp_path / "runs"
    found = finetune_seeds(short, start, data / "choice", place, None, replace(CPU, seed=7), 2)
    assert [run.seed for run in found.runs] == [7, 8]
    alone = finetune(short, start, data / "choice", tmp_path / "one", settings=replace(CPU, seed=8))
    assert found.runs[1].scores == alone.scores
    one, two = (path / "model/model.safetensors" for path in (place / "seed-8", tmp_path / "one"))
    assert one.read_bytes() == two.read_bytes()
    assert one.read_bytes() != (place / "seed-7/model/model.safetensors").read_bytes()
    stamps = {path: path.stat().st_mtime_ns for path in place.glob("*/results.json")}
    more = finetune_seeds(short, start, data / "choice", place, None, replace(CPU, seed=7), 3)
    assert all(path.stat().st_mtime_ns == stamp for path, stamp in stamps.items())
    assert more.runs[:2] == found.runs
    summary = json.loads((place / "summary.json").read_text())
    assert [run["directory"] for run in summary["runs"]] == ["seed-7", "seed-8", "seed-9"]
    scores = [run.scores["accuracy"] for run in more.runs]
    assert summary["scores"]["accuracy"]["median"] == np.median(scores)
    assert summary["selection"] == "selection: the model after the last step"


def test_a_run_that_diverges_is_named_and_ends_no_other(short, data, pretrained, tmp_path, monkeypatch):
    def fails_at(bad):
        def one(task, start, data, output, recipe, settings, *more):
            if settings.seed in bad:
                raise Diverged("step 3", "the loss is nan")
            return finetune(task, start, data, output, recipe, settings, *more)

        monkeypatch.setattr(seeds, "finetune", one)

    start = PretrainedEncoder(str(pretrained))
    fails_at({0})
    found = finetune_seeds(short, start, data / "choice", tmp_path / "runs", None, CPU, 2)
    assert found.runs[0].failure == "diverged: the loss is nan"
    assert found.spreads["accuracy"].runs == 1
    assert found.spreads["accuracy"].undefined == 1
    assert "accuracy" not in found.medians
    assert json.loads((tmp_path / "runs/summary.json").read_text())["failed_seeds"][0] == 0
    fails_at({0, 1})
    with pytest.raises(Diverged, match="all 2 runs diverged"):
        finetune_seeds(short, start, data / "choice", tmp_path / "others", None, CPU, 2)


def test_a_run_no_better_than_the_constant_answer_has_failed():
    assert failure_reason({"accuracy": 52.7}, {"accuracy": 52.7}) is not None
    assert failure_reason({"accuracy": 52.8}, {"accuracy": 52.7}) is None
    assert failure_reason({"pearson": None}, {"pearson": None}) == "pearson is undefined, every answer is the same"
    assert failure_reason({"pearson": -1.0}, {"pearson": None}) is not None
    assert failure_reason({"pearson": 1.0}, {"pearson": None}) is None
    assert failure_reason({"span_f1": 0.0}, None) is None


@given(st.lists(st.one_of(st.none(), st.floats(-100, 100)), min_size=1, max_size=9))
def test_a_spread_is_of_the_values_that_are_defined(values):
    known = [value for value in values if value is not None]
    spread = score_spread(values)
    if spread is None:
        assert not known
        return
    order = (spread.lowest, spread.lower_quartile, spread.median, spread.upper_quartile, spread.highest)
    assert list(order) == sorted(order)
    assert (spread.lowest, spread.highest) == (min(known), max(known))
    assert spread.median == pytest.approx(float(np.median(known)))
    assert (spread.runs, spread.undefined) == (len(known), len(values) - len(known))


def test_a_directory_of_one_run_takes_no_seeds(short, data, pretrained, tmp_path):
    start = PretrainedEncoder(str(pretrained))
    finetune(short, start, data / "choice", tmp_path / "run", settings=CPU)
    with pytest.raises(CannotCreate, match="holds one run, not those of several seeds"):
        finetune_seeds(short, start, data / "choice", tmp_path / "run", None, CPU, 2)
    with pytest.raises(InvalidConfiguration, match="seeds: are 0"):
        finetune_seeds(short, start, data / "choice", tmp_path / "new", None, CPU, 0)


# --------------------------------------------------------------------------------------------------------------------
# A whole benchmark: what is there is learnt, what is missing is said, and RTE goes on from MNLI.


SMALL = ["--steps", "3", "--batch-size", "4", "--max-length", "16", "--device", "cpu"]
PAIR = "index\tsentence1\tsentence2\t{}\n"


def write(folder, name, header, rows, splits=("train", "dev")):
    folder = folder / name
    folder.mkdir(parents=True)
    for split in splits:
        (folder / f"{split}.tsv").write_text(header + rows)


@pytest.fixture
def glue(tmp_path):
    """RTE, MNLI with one development set, the diagnostic set, and SST-2; half of STS-B."""
    labels = ("entailment", "not_entailment") * 4
    write(tmp_path / "glue", "RTE", PAIR.format("label"), "".join(f"{i}\ta\tb\t{x}\n" for i, x in enumerate(labels)))
    three = ("entailment", "neutral", "contradiction") * 3
    rows = "".join(f"{i}\ta\tb\t{label}\n" for i, label in enumerate(three))
    write(tmp_path / "glue", "MNLI", PAIR.format("gold_label"), rows, ("train", "dev_matched"))
    diagnostic = "index\tPremise\tHypothesis\tLabel\n" + "".join(f"{i}\ta\tb\t{x}\n" for i, x in enumerate(three))
    unlabelled = PAIR.removesuffix("\t{}\n") + "\n" + "".join(f"{i}\ta\tb\n" for i in range(5))
    (tmp_path / "glue/AX").mkdir()
    (tmp_path / "glue/AX/diagnostic-full.tsv").write_text(diagnostic)
    (tmp_path / "glue/AX/diagnostic.tsv").write_text(unlabelled)
    write(tmp_path / "glue", "SST-2", "sentence\tlabel\n", "good\t1\nbad\t0\n" * 4)
    write(tmp_path / "glue", "STS-B", "sentence1\tsentence2\tscore\n", "a\tb\t1.0\n", ("train",))
    return tmp_path / "glue"


def test_the_whole_benchmark_from_the_command_line(glue, pretrained, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(benchmark, "_best_model", first_run)
    output = tmp_path / "runs"
    command = ["finetune", "glue", "--model", str(pretrained), "--data", str(glue), "--output", str(output), *SMALL]
    assert dispatch([*command, "--seeds", "2"]) == 0
    said = capsys.readouterr().out
    rows = [line.split() for line in said.splitlines()]
    assert list(dict.fromkeys(row[0] for row in rows if row and row[0] in GLUE_AVERAGE.parts)) == [*GLUE_AVERAGE.parts]
    by_score = {tuple(row[:2]): row[2:] for row in rows if len(row) == 7}
    assert by_score["mrpc", "accuracy"] == ["-", "-", "-", "-", "90.9"]
    assert by_score["rte", "accuracy"][2:] == ["2", "50.00", "89.2"]
    assert "missing: mnli: " in said and "has no dev_mismatched.tsv" in said
    assert "missing: sts-b: " in said
    assert "Avg is of all 9 tasks; it lacks cola, mrpc, sts-b, qqp, mnli, qnli, wnli" in said
    assert f"rte starts from {output / 'mnli/seed-0'}" in said
    assert "paper: albert-xxlarge-v1, arXiv:1909.11942v6 Table 9, dev" in said
    assert "89.4" in said
    assert f"ax, dev: matthews_correlation 0.00 (by {output / 'mnli/seed-0'})" in said
    assert "ax, test: answered, not scored" in said
    assert [len((output / f"ax/predictions-{split}.jsonl").read_text().splitlines()) for split in ("dev", "test")] == [
        9,
        5,
    ]
    summary = json.loads((output / "summary.json").read_text())
    assert summary["average"] is None
    assert [name for name, task in summary["tasks"].items() if "runs" in task] == ["sst-2", "mnli", "rte"]
    assert len(summary["tasks"]["rte"]["runs"]) == 2
    assert json.loads((output / "rte/seed-1/recipe.json").read_text())["start"] == "mnli/seed-0"
    assert summary["diagnostics"]["ax"]["scores"] == {"dev": {"matthews_correlation": 0.0}, "test": {}}
    stamps = {path: path.stat().st_mtime_ns for path in output.glob("*/*/results.json")}
    assert len(stamps) == 6
    assert dispatch([*command, "--seeds", "2"]) == 0
    assert {path: path.stat().st_mtime_ns for path in stamps} == stamps
    assert capsys.readouterr().out == said


def first_run(outcome):
    """As if no run had failed; tiny ones do."""
    return None if outcome.result is None else str(outcome.result.runs[0].directory)


def outcome(name, scores, failure=None, place=None):
    runs = (SeedRun(seed=0, directory=place, scores=scores, failure=failure),)
    return TaskOutcome(
        task=DECLARED[name], result=SeedsResult(task=name, runs=runs, baseline=None, selection="selection: last")
    )


def test_the_average_is_the_leaderboards_and_of_nothing_less(tmp_path):
    scores = {
        "cola": {"matthews_correlation": 60.0},
        "sst-2": {"accuracy": 90.0},
        "mrpc": {"f1": 90.0, "accuracy": 80.0},
        "sts-b": {"pearson": 90.0, "spearman": 88.0},
        "qqp": {"f1": 70.0, "accuracy": 90.0},
        "mnli": {"accuracy": 85.0, "accuracy/dev_mismatched": 83.0},
        "qnli": {"accuracy": 91.0},
        "rte": {"accuracy": 70.0},
        "wnli": {"accuracy": 56.0},
    }
    outcomes = [outcome(name, each, place=tmp_path) for name, each in scores.items()]
    whole = BenchmarkResult("glue", GLUE_AVERAGE, tuple(outcomes), ())
    assert whole.to_json()["average"] == pytest.approx((60 + 90 + 85 + 89 + 80 + 84 + 91 + 70 + 56) / 9)
    assert whole.missing_tasks == ()
    without = BenchmarkResult("glue", GLUE_AVERAGE, tuple(outcomes[:-1]), ())
    assert (without.to_json()["average"], without.missing_tasks) == (None, ("wnli",))


def test_a_failed_model_begins_no_other(tmp_path):
    good, bad = (
        outcome("mnli", {"accuracy": 80.0}, place=tmp_path),
        outcome("mnli", {"accuracy": 30.0}, "why", tmp_path),
    )
    assert benchmark._best_model(good) == str(tmp_path)
    assert benchmark._best_model(bad) is None
    assert benchmark._best_model(TaskOutcome(task=DECLARED["mnli"], missing="no file")) is None


def test_a_task_that_diverges_ends_no_other_and_another_model_may_be_given(glue, pretrained, tmp_path, monkeypatch):
    def diverges(task, start, data, output, recipe, settings, *more):
        if task.name == "mnli":
            raise Diverged("step 3", "the loss is nan")
        return finetune(task, start, data, output, recipe, settings, *more)

    monkeypatch.setattr(seeds, "finetune", diverges)
    settings, small = FinetuningSettings(device="cpu"), RecipeChanges(steps=3, batch_size=4, max_length=16)
    start = PretrainedEncoder(str(pretrained))
    result = finetune_benchmark(
        "glue", GLUE_AVERAGE, start, glue, tmp_path / "runs", small, settings, 1, str(pretrained)
    )
    found = {each.task.name: each for each in result.outcomes}
    assert "all 1 runs diverged" in found["mnli"].missing
    assert found["rte"].started_from == str(pretrained)
    assert found["sst-2"].started_from is None
    assert result.diagnostics[0].missing == ("no model has learnt the task that it belongs to",)


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["glue"], 2, "--data: is missing; the tasks' files are looked for there"),
        (["glue", "--data", "EMPTY"], 66, "has no task of glue with training and development files"),
        (["glue", "--data", "EMPTY", "--text", "a"], 2, "--text: goes with one task, glue has many"),
        (["glue", "--data", "EMPTY", "--keep-head"], 2, "--keep-head: goes with one task"),
        (["sst-2", "--data", "EMPTY", "--intermediate", "m"], 2, "--intermediate: goes with a benchmark"),
    ],
)
def test_mistakes_are_one_line(arguments, code, message, pretrained, tmp_path, capsys):
    (tmp_path / "empty").mkdir()
    given = [str(tmp_path / "empty") if each == "EMPTY" else each for each in arguments]
    assert run(["finetune", *given, "--model", str(pretrained), "--output", str(tmp_path / "out")]) == code
    said = capsys.readouterr().err.strip()
    assert message in said and said.count("\n") == 0
    assert not (tmp_path / "out").exists()
