"""Several runs with other seeds."""

from dataclasses import replace

import numpy as np
import pytest
from tests.finetuning.conftest import weights_of
from tests.refusals import refusal
from tests.tiny import short_task

import albert
from albert.finetuning import sweep
from albert.finetuning.sweep import failure_reason, run_sweep, seed_variants
from albert.finetuning.task_run import finetune
from albert.recipes.finetuning import FinetuningSettings
from albert.runtime.errors import CannotCreate, Diverged, InvalidConfiguration
from albert.runtime.json_files import read_json_object

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

        monkeypatch.setattr(sweep, "finetune", finetune_or_diverge)

    return diverge_if


def results_written(folder):
    return {path: path.stat().st_mtime_ns for path in folder.glob("*/results.json")}


def sweep_seeds(task, start, data, output, settings, seeds):
    return run_sweep("seed", task, seed_variants(task, None, settings, seeds), start, data, output)


def test_runs_of_seeds_equal_single_runs_and_finished_ones_are_kept(data, start, tmp_path):
    output, settings = tmp_path / "runs", replace(CPU, seed=7)
    result = sweep_seeds(SHORT, start, data / "choice", output, settings, 2)
    assert [run.name for run in result.runs] == ["seed 7", "seed 8"]
    alone = finetune(SHORT, start, data / "choice", tmp_path / "one", settings=replace(CPU, seed=8))
    assert result.runs[1].scores == alone.scores
    seven, eight = ((output / f"seed-{seed}/model/model.safetensors").read_bytes() for seed in (7, 8))
    assert eight == weights_of(alone) and eight != seven
    written = results_written(output)
    more = sweep_seeds(SHORT, start, data / "choice", output, settings, 3)
    assert results_written(output).items() >= written.items()
    assert more.runs[:2] == result.runs
    summary = read_json_object(output / "summary.json")
    assert [run["directory"] for run in summary["runs"]] == ["seed-7", "seed-8", "seed-9"]
    scores = [run.scores["accuracy"] for run in more.runs]
    assert summary["scores"]["accuracy"] == summary["median"]["accuracy"] == np.median(scores)
    assert summary["mean"]["accuracy"] == pytest.approx(np.mean(scores))
    assert summary["deviation"]["accuracy"] == pytest.approx(np.std(scores, ddof=1))
    assert summary["selection"] == "selection: the model after the last step"


def test_diverged_run_is_named_and_the_next_one_starts(data, start, tmp_path, diverging):
    diverging(lambda task, settings: settings.seed == 0)
    result = sweep_seeds(SHORT, start, data / "choice", tmp_path / "runs", CPU, 2)
    assert result.runs[0].failure == "diverged: the loss is nan"
    assert "accuracy" in result.runs[1].scores and "accuracy" not in result.scores
    assert read_json_object(tmp_path / "runs/summary.json")["runs"][0]["failure"] == "diverged: the loss is nan"
    diverging(lambda task, settings: True)
    with refusal(Diverged, "2 runs"):
        sweep_seeds(SHORT, start, data / "choice", tmp_path / "others", CPU, 2)


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


def test_directory_of_one_run_is_refused(data, start, tmp_path):
    finetune(SHORT, start, data / "choice", tmp_path / "run", settings=CPU)
    with refusal(CannotCreate):
        sweep_seeds(SHORT, start, data / "choice", tmp_path / "run", CPU, 2)
    (tmp_path / "run").rename(tmp_path / "seed-1")
    with refusal(CannotCreate):
        finetune(SHORT, start, data / "choice", tmp_path, settings=CPU)
    assert not (tmp_path / "recipe.json").exists()
    with refusal(InvalidConfiguration, "seeds", 0):
        sweep_seeds(SHORT, start, data / "choice", tmp_path / "new", CPU, 0)


def test_a_sweep_of_seeds_is_shown_in_python(pretrained, tmp_path, monkeypatch):
    monkeypatch.setattr("albert.finetuning.probe.UNTRAINED_DEVIATION", 0.0)  # the encoder has random weights
    rows = [{"text": f"the ship {n} " + ("sank" if n % 2 else "sailed"), "label": "ab"[n % 2]} for n in range(40)]
    result = albert.sweep(train=rows, model=pretrained, output=tmp_path / "runs", seeds=2, epochs=0.1)
    assert "frozen model with a linear head" in repr(result) and "2 seeds" in repr(result)
    assert result.baselines["frozen model with a linear head"].keys() == result.scores.keys()


def test_two_processes_make_several_runs_in_one_group(pretrained, tmp_path, fork_server):
    """A group for each run failed: processes met addresses of the group before."""
    rows = [f"the ship {n} {'sank' if n % 2 else 'sailed'},{'ab'[n % 2]}" for n in range(40)]
    (tmp_path / "rows.csv").write_text("text,label\n" + "\n".join(rows) + "\n")
    command = ["sweep", "--train", str(tmp_path / "rows.csv"), "--model", str(pretrained), "--device", "cpu", "steps=2"]
    command += ["--output", str(tmp_path / "runs"), "--seeds", "3"]
    for more in ([], ["--replace"]):
        processes = fork_server.start_world([[*command, *more]] * 2)
        assert [process.finish() for process in processes] == [0, 0], [process.printed for process in processes]
    assert len(results_written(tmp_path / "runs")) == 3
