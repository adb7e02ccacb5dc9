"""Several seeds, and a whole benchmark."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.finetuning.conftest import weights_of
from tests.refusals import refusal
from tests.tiny import short_task

import albert
from albert.cli.main import run
from albert.finetuning import several
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
from albert.finetuning.task_run import finetune
from albert.recipes.finetuning import FinetuningSettings, RecipeChanges
from albert.runtime.errors import CannotCreate, Diverged, InvalidConfiguration
from albert.runtime.json_files import read_json_object
from albert.tasks.submission import DECLARED, GLUE_AVERAGE

SHORT = short_task(steps=4)

CPU = FinetuningSettings(device="cpu")


@pytest.fixture
def diverging(monkeypatch):
    """Lets runs diverge for which a condition on task and settings holds."""

    def diverge_if(condition):
        def finetune_or_diverge(task, start, data, output, recipe, settings, *more):
            if condition(task, settings):
                raise Diverged("step 3", "the loss is nan")
            return finetune(task, start, data, output, recipe, settings, *more)

        monkeypatch.setattr(several, "finetune", finetune_or_diverge)

    return diverge_if


def results_written(folder, pattern):
    return {path: path.stat().st_mtime_ns for path in folder.glob(f"{pattern}/results.json")}


# --------------------------------------------------------------------------------------------------------------------
# Several seeds of one task.


def test_runs_of_seeds_equal_single_runs_and_finished_ones_are_kept(data, start, tmp_path):
    output, settings = tmp_path / "runs", replace(CPU, seed=7)
    result = finetune_seeds(SHORT, start, data / "choice", output, None, settings, 2)
    assert [run.seed for run in result.runs] == [7, 8]
    alone = finetune(SHORT, start, data / "choice", tmp_path / "one", settings=replace(CPU, seed=8))
    assert result.runs[1].scores == alone.scores
    seven, eight = ((output / f"seed-{seed}/model/model.safetensors").read_bytes() for seed in (7, 8))
    assert eight == weights_of(alone) and eight != seven
    written = results_written(output, "*")
    more = finetune_seeds(SHORT, start, data / "choice", output, None, settings, 3)
    assert results_written(output, "*").items() >= written.items()
    assert more.runs[:2] == result.runs
    summary = read_json_object(output / "summary.json")
    assert [run["directory"] for run in summary["runs"]] == ["seed-7", "seed-8", "seed-9"]
    assert summary["scores"]["accuracy"]["median"] == np.median([run.scores["accuracy"] for run in more.runs])
    assert summary["selection"] == "selection: the model after the last step"


def test_diverged_run_is_named_and_the_next_one_starts(data, start, tmp_path, diverging):
    diverging(lambda task, settings: settings.seed == 0)
    result = finetune_seeds(SHORT, start, data / "choice", tmp_path / "runs", None, CPU, 2)
    assert result.runs[0].failure == "diverged: the loss is nan"
    assert (result.spreads["accuracy"].runs, result.spreads["accuracy"].undefined) == (1, 1)
    assert "accuracy" not in result.medians
    assert read_json_object(tmp_path / "runs/summary.json")["failed_seeds"][0] == 0
    diverging(lambda task, settings: True)
    with refusal(Diverged, "2 runs"):
        finetune_seeds(SHORT, start, data / "choice", tmp_path / "others", None, CPU, 2)


@pytest.mark.parametrize(
    ("scores", "baseline", "reason"),
    [
        ({"accuracy": 52.7}, {"accuracy": 52.7}, "accuracy 52.70 is no better than the majority baseline's 52.70"),
        ({"accuracy": 52.8}, {"accuracy": 52.7}, None),
        ({"pearson": None}, {"pearson": None}, "pearson is undefined, every answer is the same"),
        ({"pearson": -1.0}, {"pearson": None}, "pearson -1.00 is no better than the majority baseline's 0.00"),
        ({"pearson": 1.0}, {"pearson": None}, None),
        ({"accuracy": 100.0}, {"accuracy": 100.0}, None),
        ({"mean_absolute_error": 0.0}, {"mean_absolute_error": 0.0}, None),
        ({"span_f1": 0.0}, None, None),
    ],
)
def test_run_no_better_than_the_constant_answer_has_failed(scores, baseline, reason):
    assert failure_reason(scores, baseline) == reason


@given(st.lists(st.one_of(st.none(), st.floats(-100, 100)), min_size=1, max_size=9))
def test_spread_is_of_the_defined_values(values):
    defined = [value for value in values if value is not None]
    spread = score_spread(values)
    if spread is None:
        assert not defined
        return
    order = [spread.lowest, spread.lower_quartile, spread.median, spread.upper_quartile, spread.highest]
    assert order == sorted(order)
    assert (spread.lowest, spread.highest) == (min(defined), max(defined))
    assert spread.median == pytest.approx(float(np.median(defined)))
    assert (spread.runs, spread.undefined) == (len(defined), len(values) - len(defined))


def test_directory_of_one_run_is_refused(data, start, tmp_path):
    finetune(SHORT, start, data / "choice", tmp_path / "run", settings=CPU)
    with refusal(CannotCreate):
        finetune_seeds(SHORT, start, data / "choice", tmp_path / "run", None, CPU, 2)
    (tmp_path / "run").rename(tmp_path / "seed-1")
    with refusal(CannotCreate):
        finetune(SHORT, start, data / "choice", tmp_path, settings=CPU)
    assert not (tmp_path / "recipe.json").exists()
    with refusal(InvalidConfiguration, "seeds", 0):
        finetune_seeds(SHORT, start, data / "choice", tmp_path / "new", None, CPU, 0)


# --------------------------------------------------------------------------------------------------------------------
# A whole benchmark.


SMALL = ["steps=3", "batch_size=4", "max_length=16", "--device", "cpu"]


@pytest.fixture
def glue(tmp_path):
    """RTE, MNLI with one development set, the diagnostic set, and SST-2; half of STS-B."""
    pairs, labels = "index\tsentence1\tsentence2", ("entailment", "neutral", "contradiction") * 3
    rte = "".join(f"{i}\ta\tb\t{label}\n" for i, label in enumerate(("entailment", "not_entailment") * 4))
    mnli = "".join(f"{i}\ta\tb\t{label}\n" for i, label in enumerate(labels))
    for names, content in {
        ("RTE/train", "RTE/dev"): f"{pairs}\tlabel\n{rte}",
        ("MNLI/train", "MNLI/dev_matched"): f"{pairs}\tgold_label\n{mnli}",
        ("AX/diagnostic-full",): f"index\tPremise\tHypothesis\tLabel\n{mnli}",
        ("AX/diagnostic",): pairs + "\n" + "".join(f"{i}\ta\tb\n" for i in range(5)),
        ("SST-2/train", "SST-2/dev"): "sentence\tlabel\n" + "good\t1\nbad\t0\n" * 4,
        ("STS-B/train",): "sentence1\tsentence2\tscore\na\tb\t1.0\n",
    }.items():
        for name in names:
            path = tmp_path / f"glue/{name}.tsv"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content)
    return tmp_path / "glue"


def test_whole_benchmark_from_the_command_line(glue, pretrained, tmp_path, capsys, monkeypatch):
    first_run = property(lambda outcome: outcome.result and str(outcome.result.runs[0].directory))
    monkeypatch.setattr(TaskOutcome, "best_model", first_run)  # as if no run had failed; tiny ones do
    output = tmp_path / "runs"
    command = ["sweep", "glue", "--model", str(pretrained), "--data", str(glue), "--output", str(output), *SMALL]
    assert run([*command, "--seeds", "2"]) == 0
    out = capsys.readouterr().out
    rows = [line.split() for line in out.splitlines()]
    assert list(dict.fromkeys(row[0] for row in rows if row and row[0] in GLUE_AVERAGE.parts)) == [*GLUE_AVERAGE.parts]
    by_score = {tuple(row[:2]): row[2:] for row in rows if len(row) == 7}
    assert by_score["mrpc", "accuracy"] == ["-", "-", "-", "-", "90.9"]
    assert by_score["rte", "accuracy"][2:] == ["2", "50.00", "89.2"]
    for text in (
        "missing: mnli: ",
        "has no dev_mismatched.tsv",
        "missing: sts-b: ",
        "it lacks cola, mrpc, sts-b, qqp, mnli, qnli, wnli",
        f"rte starts from {output / 'mnli/seed-0'}",
        "paper: albert-xxlarge-v1, arXiv:1909.11942v6 Table 9, dev",
        "89.4",
        f"ax, dev: matthews_correlation 0.00 (by {output / 'mnli/seed-0'})",
        "ax, test: answered, not scored",
    ):
        assert text in out
    for split, n in (("dev", 9), ("test", 5)):
        assert len((output / f"ax/predictions-{split}.jsonl").read_text().splitlines()) == n
    summary = read_json_object(output / "summary.json")
    assert summary["average"] is None
    assert [name for name, task in summary["tasks"].items() if "runs" in task] == ["sst-2", "mnli", "rte"]
    assert len(summary["tasks"]["rte"]["runs"]) == 2
    assert read_json_object(output / "rte/seed-1/recipe.json")["start"] == "mnli/seed-0"
    assert summary["diagnostics"]["ax"]["scores"] == {"dev": {"matthews_correlation": 0.0}, "test": {}}
    written = results_written(output, "*/*")
    assert len(written) == 6
    assert run([*command, "--seeds", "2"]) == 0
    assert results_written(output, "*/*") == written
    assert capsys.readouterr().out == out


def outcome(name, scores, directory, failure=None):
    runs = (SeedRun(seed=0, directory=directory, scores=scores, failure=failure),)
    result = SeedsResult(task=name, runs=runs, baseline=None, selection="selection: last")
    return TaskOutcome(task=DECLARED[name], result=result)


def test_average_is_that_of_the_leaderboard_and_needs_all_tasks(tmp_path):
    parts = GLUE_AVERAGE.parts.items()
    scores = {name: dict.fromkeys(metrics, 10.0 * number) for number, (name, metrics) in enumerate(parts)}
    outcomes = tuple(outcome(name, values, tmp_path) for name, values in scores.items())
    complete, partial = (BenchmarkResult("glue", GLUE_AVERAGE, some, ()) for some in (outcomes, outcomes[:-1]))
    assert complete.to_json()["average"] == pytest.approx(40)
    assert complete.missing_tasks == ()
    assert (partial.to_json()["average"], partial.missing_tasks) == (None, ("wnli",))


def test_failed_model_is_no_start(tmp_path):
    assert outcome("mnli", {"accuracy": 80.0}, tmp_path).best_model == str(tmp_path)
    assert outcome("mnli", {"accuracy": 30.0}, tmp_path, "failed").best_model is None
    assert TaskOutcome(task=DECLARED["mnli"], missing="no file").best_model is None


def test_benchmark_continues_after_a_diverged_task(glue, start, tmp_path, diverging):
    diverging(lambda task, settings: task.name == "mnli")
    small = RecipeChanges(steps=3, batch_size=4, max_length=16)
    runs = tmp_path / "runs"
    result = finetune_benchmark("glue", GLUE_AVERAGE, start, glue, runs, small, CPU, 1)
    outcomes = {outcome.task.name: outcome for outcome in result.outcomes}
    assert "all 1 runs diverged" in outcomes["mnli"].missing
    assert outcomes["rte"].started_from is None
    assert result.diagnostics["ax"]["missing"] == ["the model of its task is missing"]


def test_a_sweep_of_seeds_is_shown_in_python(pretrained, tmp_path, monkeypatch):
    monkeypatch.setattr("albert.finetuning.probe.UNTRAINED_DEVIATION", 0.0)  # the encoder has random weights
    rows = [{"text": f"the ship {n} " + ("sank" if n % 2 else "sailed"), "label": "ab"[n % 2]} for n in range(40)]
    result = albert.sweep(train=rows, model=pretrained, output=tmp_path / "runs", seeds=2, epochs=0.1)
    assert "frozen model with a linear head" in repr(result) and "the median of 2 seeds" in repr(result)
    assert result.report["frozen_head"]["scores"].keys() == result.scores.keys()
