"""The model of a run that is its result, and the scores that are shown beside its own."""

import re
import shutil
from dataclasses import replace
from functools import partial

import pytest
from tests.refusals import refusal
from tests.tiny import short_task

from albert.cli.main import run
from albert.finetuning.evaluation import evaluate_directory
from albert.finetuning.selection import BestModel
from albert.finetuning.task_run import finetune
from albert.recipes.finetuning import FinetuningSettings
from albert.report.advice import FROZEN, advice
from albert.runtime.errors import CannotCreate, DamagedData
from albert.runtime.files import new_directory
from albert.runtime.json_files import read_journal, read_json_object
from albert.runtime.manifest import verify_directory
from albert.tasks.metrics import mean_absolute_error, pearson
from albert.tasks.submission import DECLARED
from albert.tasks.task import MAJORITY

SHORT = short_task("sts-b", steps=14, batch_size=8, learning_rate=2e-2)
"""A task whose scores rise and fall again: the rate is far too high."""

# --------------------------------------------------------------------------------------------------------------------
# The best of all evaluations.


BEST = FinetuningSettings(encode_pairs="together", device="cpu", select="best", evaluate_every=2, checkpoint_every=3)


def evaluations(run_path):
    return [event for event in read_journal(run_path / "journal.jsonl") if event["event"] == "evaluation"]


def test_result_is_the_first_of_the_best_evaluations(data, start, tmp_path):
    again = partial(finetune, SHORT, start, data / "score", tmp_path / "run", settings=BEST)
    result, events = again(), evaluations(tmp_path / "run")
    scores = [event["pearson"] for event in events]
    assert len(scores) == 7
    assert max(scores) > scores[-1]  # otherwise this test could not tell the best from the last
    assert result.scores["pearson"] == max(scores)
    selection = result.report["selection"]
    assert (selection["by"], selection["evaluations"]) == ("best", 7)
    assert selection["step"] == events[scores.index(max(scores))]["step"]
    verify_directory(result.model_directory)
    evaluated = evaluate_directory(SHORT, str(tmp_path / "run"), data / "score", device="cpu")
    assert evaluated.scores == result.scores
    assert "is somewhat high" in (result.model_directory / "README.md").read_text()
    assert not (tmp_path / "run/best").exists()
    (tmp_path / "run/best").mkdir()  # as if the run had died before it removed it
    assert again().scores == result.scores
    assert not (tmp_path / "run/best").exists()


def test_lowest_error_is_the_best(data, start, tmp_path):
    task = short_task("sts-b", steps=6, learning_rate=3e-3)
    task = replace(task, metrics=(mean_absolute_error, pearson))
    settings = FinetuningSettings(device="cpu", select="best", evaluate_every=1)
    result = finetune(task, start, data / "score", tmp_path / "run", settings=settings)
    errors = {event["step"]: event["mean_absolute_error"] for event in evaluations(tmp_path / "run")}
    assert len(set(errors.values())) > 1
    assert result.scores["mean_absolute_error"] == pytest.approx(min(errors.values()))
    assert errors[result.report["selection"]["step"]] == min(errors.values())


@pytest.mark.parametrize("step", [5, 8])
def test_resumed_run_has_the_same_best_model(step, data, start, complete_and_resumed):
    complete, resumed = complete_and_resumed(SHORT, start, data / "score", BEST, step)
    assert resumed.report["selection"] == complete.report["selection"]


@pytest.fixture
def stopped(data, start, tmp_path, interrupted):
    """Stops a run after some steps, and returns the function that resumes it, and the development file."""

    def stop_after(step):
        shutil.copytree(data / "score", tmp_path / "data")
        resume = partial(finetune, SHORT, start, tmp_path / "data", settings=BEST)
        with interrupted(step):
            resume(tmp_path / "run")
        return resume, tmp_path / "data/dev.tsv"

    return stop_after


def drop_rows(path):
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:-3]))


def test_run_is_not_resumed_with_another_development_set(stopped, tmp_path):
    resume, dev = stopped(5)
    original = dev.read_text()
    drop_rows(dev)
    with refusal(CannotCreate, "holds another run with another development set"):
        resume(tmp_path / "run")
    dev.write_text(original)
    resume(tmp_path / "run")
    drop_rows(dev)
    with refusal(CannotCreate, "holds a finished run with another development set"):
        resume(tmp_path / "run")


def test_another_development_set_is_refused_before_the_first_checkpoint(stopped, tmp_path):
    resume, dev = stopped(2)
    assert not (tmp_path / "run/checkpoints").exists()
    drop_rows(dev)
    with refusal(CannotCreate, "holds another run with another development set: 16 examples", "now 13 examples"):
        resume(tmp_path / "run")


def test_undefined_score_is_worst_and_a_changed_file_is_refused(tmp_path):
    best = BestModel(tmp_path / "best")
    saved = []
    for score in (None, None, 1.0, 1.0, None, 0.5, 2.0):
        scores = {"pearson": score, "spearman": 99.0}
        if best.is_improved_by(scores):
            saved.append(score)
            with new_directory(best.directory, replace=True) as directory:
                (directory / "weights").write_text(str(score))
                best.write_score(directory, scores)
    assert saved == [None, 1.0, 2.0]
    (tmp_path / "best/weights").write_text("changed")
    with pytest.raises(DamagedData):
        best.tensors(DECLARED["sts-b"].target)


# --------------------------------------------------------------------------------------------------------------------
# The scores of a constant answer and of a linear model on the same rows.


LINEAR = "TF-IDF with logistic regression"


def test_command_shows_the_plan_and_compared_scores(pretrained, tmp_path, capsys, monkeypatch):
    rows = "".join(f"it was {word} {n},{n // 2 % 2}\n" for n, word in enumerate(("good", "fine", "bad", "long") * 10))
    (tmp_path / "my.csv").write_text("review,poor\n" + rows)
    command = ["finetune", "--train", str(tmp_path / "my.csv"), "--text", "review", "--label", "poor"]
    command += ["--model", str(pretrained), "learning_rate=1e-9", "epochs=1", "batch_size=8"]
    command += ["max_length=32", "--device", "cpu", "solve_head=false"]
    assert run([*command, "--output", str(tmp_path / "run")]) == 0
    out = capsys.readouterr().out
    figures = "learning rate 1e-09, batch size 8, 1 epoch of 36 examples: 4 updates; at most 32 tokens, fp32 on cpu"
    assert "4 steps over 36 of 36 training rows (1 epoch) in " in out  # 0.89 epochs of whole batches
    assert figures in out and out.index(figures) < out.index("selection")
    report = read_json_object(tmp_path / "run/results.json")
    linear = report["linear_baseline"]
    assert linear["method"] == LINEAR and linear["scores"]["accuracy"] == 100.0 and linear["train_examples"] == 36
    assert list(report["baseline"].values()) == pytest.approx([50.0, 200 / 3, 100 / 3])
    _, f1, _ = report["baseline"]
    assert f"majority baseline  {LINEAR}" in out
    assert re.search(r"^accuracy +[\d.]+ +50\.00 +100\.00$", out, re.M)
    assert report["computed_in"] == "fp32" and "scores computed in" not in out
    assert report["advice"] is None and report["next_step"] is None
    assert "the development set has 4 rows: scores on it prove nothing" in out and "try " not in out
    card = (tmp_path / "run/model/README.md").read_text()
    assert f"accuracy, {LINEAR} | 100 |" in card and f"{f1}, majority baseline | 66.67 |" in card
    assert run([*command, "--output", str(tmp_path / "bf16"), "precision=bf16"]) == 0
    assert read_json_object(tmp_path / "bf16/results.json")["computed_in"] == "bf16"
    others = "albert evaluate, predict and serve compute in fp32, with --precision bf16 as here"
    assert f"scores computed in bf16; {others}" in capsys.readouterr().out
    assert run(["sweep", *command[1:], "--output", str(tmp_path / "seeds"), "--seeds", "2"]) == 0
    out = capsys.readouterr().out
    assert out.count("4 updates") == 1 and "median: accuracy" not in out and LINEAR in out
    assert read_json_object(tmp_path / "seeds/summary.json")["simpler_models"][LINEAR] == linear["scores"]


@pytest.mark.parametrize(
    ("scores", "baseline", "linear", "text"),
    [
        ({"accuracy": 78.0}, {"accuracy": 50.0}, 77.3, None),
        ({"accuracy": 100.0}, {"accuracy": 50.0}, 100.0, None),
        (
            {"accuracy": 69.6},
            {"accuracy": 50.0},
            77.3,
            f"accuracy 69.60 does not beat {LINEAR} (77.30): use {LINEAR} for such rows, or "
            "try more epochs, another learning_rate, or a larger --model",
        ),
        ({"accuracy": 50.0}, {"accuracy": 50.0}, 77.3, "does not beat the majority baseline (50.00) or TF-IDF"),
        ({"pearson": None}, {"pearson": None}, None, "pearson undefined does not beat the majority"),
        ({"mean_absolute_error": 2.0}, {"mean_absolute_error": 8.0}, None, None),
        ({"mean_absolute_error": 8.5}, {"mean_absolute_error": 8.0}, None, "8.50 does not beat"),
        ({}, None, None, None),
    ],
)
def test_advice_is_given_if_a_compared_score_is_not_beaten(scores, baseline, linear, text):
    simpler = {MAJORITY: baseline} if baseline else {}
    if linear is not None:
        simpler[LINEAR] = {"accuracy": linear}
    result = advice(scores, simpler)
    assert result is None if text is None else text in result


def test_advice_names_the_frozen_model_where_it_is_best():
    simpler = {MAJORITY: {"accuracy": 50.0}, LINEAR: {"accuracy": 60.0}, FROZEN: {"accuracy": 64.0}}
    text = advice({"accuracy": 59.0}, simpler)
    assert text is not None
    assert f"{FROZEN} (64.00)" in text
    assert f"use the {FROZEN} for such rows (--frozen), or try" in text
    equal = {LINEAR: {"accuracy": 64.0}, FROZEN: {"accuracy": 64.0}}
    assert f"use {LINEAR} for such rows, or try" in (advice({"accuracy": 64.0}, equal) or "")
    assert f"use {LINEAR} for such rows, or" in (
        advice({"accuracy": 64.0}, {LINEAR: equal[LINEAR]}, is_frozen=True) or ""
    )
    assert advice({"accuracy": 59.0}, simpler, rows=29) is None
    assert advice({"accuracy": 49.0}, simpler, rows=29, is_frozen=True) is None
    alone = advice({"accuracy": 49.0}, {MAJORITY: {"accuracy": 50.0}}, is_frozen=True)
    assert alone is not None
    assert "without --frozen" in alone
