"""Beside every score stands what a constant and a linear model reach on the same rows, from the command and Python."""

import json
from dataclasses import replace

import pytest

from albert.cli.main import run
from albert.finetuning.evaluation import advice
from albert.finetuning.model import PretrainedEncoder
from albert.finetuning.run import finetune
from albert.finetuning.run_record import FinetuningSettings
from albert.tasks.metrics import mean_absolute_error, pearson
from albert.tasks.submission import DECLARED

LINEAR = "TF-IDF with logistic regression"


@pytest.fixture
def reviews(tmp_path):
    words = ("good", "fine", "bad", "long") * 10
    rows = "".join(f"it was {word} {n},{int(word in ('bad', 'long'))}\n" for n, word in enumerate(words))
    (tmp_path / "my.csv").write_text("review,poor\n" + rows)
    return tmp_path / "my.csv"


def test_a_run_says_how_it_learns_first_and_what_it_did_not_beat_last(
    reviews, pretrained, tmp_path, capsys, monkeypatch
):
    monkeypatch.setattr("albert.cli.tasks.default_precision", lambda device: "bf16")
    command = ["finetune", "--train", str(reviews), "--text", "review", "--label", "poor", "--model", str(pretrained)]
    small = ["--learning-rate", "1e-9", "--steps", "9", "--batch-size", "4", "--max-length", "32", "--device", "cpu"]
    assert run([*command, "--output", str(tmp_path / "run"), *small]) == 0
    said = capsys.readouterr().out
    figures = "learning rate 1e-09, batch size 4, 1 epochs of 36 examples: 9 updates; at most 32 tokens, fp32 on cpu"
    assert figures in said and said.index(figures) < said.index("selection")
    report = json.loads((tmp_path / "run/results.json").read_text())
    linear = report["linear_baseline"]
    assert linear["method"] == LINEAR and linear["scores"]["accuracy"] == 100.0 and linear["train_examples"] == 36
    assert report["baseline"] == pytest.approx({"accuracy": 50.0, "f1": 200 / 3})
    assert f"(best constant answer: 50.00; {LINEAR}: 100.00)" in said
    assert report["computed_in"] == "fp32" and "scores computed in fp32; albert evaluate, predict and serve" in said
    assert report["advice"] in said and f"that of {LINEAR}, 100.00: try more --epochs" in report["advice"]
    card = (tmp_path / "run/model/README.md").read_text()
    assert f"accuracy, {LINEAR} | 100 |" in card and "f1, the best constant answer | 66.67 |" in card
    assert run([*command, "--output", str(tmp_path / "seeds"), *small, "--seeds", "2"]) == 0
    said = capsys.readouterr().out
    assert said.count("9 updates") == 1 and "median: accuracy" in said and LINEAR in said
    assert json.loads((tmp_path / "seeds/summary.json").read_text())["linear_baseline"]["scores"] == linear["scores"]


def test_advice_is_given_where_a_rival_is_not_beaten_and_no_more():
    linear = {"method": LINEAR, "scores": {"accuracy": 77.3}, "left_out": None}
    assert advice({"accuracy": 78.0}, {"accuracy": 50.0}, linear) is None
    assert advice({"accuracy": 69.6}, {"accuracy": 50.0}, linear) == (
        f"accuracy 69.60 is not better than that of {LINEAR}, 77.30: "
        "try more --epochs, another --learning-rate, or a larger --model"
    )
    assert "the best constant answer's 50.00 and that of" in str(advice({"accuracy": 50.0}, {"accuracy": 50.0}, linear))
    assert "pearson undefined is not better than the best constant answer's 0.00" in str(
        advice({"pearson": None}, {"pearson": None})
    )
    assert advice({"mean_absolute_error": 2.0}, {"mean_absolute_error": 8.0}) is None
    assert "8.50 is not better" in str(advice({"mean_absolute_error": 8.5}, {"mean_absolute_error": 8.0}))
    assert advice({}, None) is None


def test_where_less_is_better_the_least_error_is_selected(data, pretrained, tmp_path):
    task = DECLARED["sts-b"]
    recipe = replace(task.recipe, steps=6, examples=None, batch_size=4, learning_rate=3e-3, max_length=32)
    task = replace(task, recipe=recipe, metrics=(mean_absolute_error, pearson))
    settings = FinetuningSettings(device="cpu", select="best", evaluate_every=1)
    found = finetune(task, PretrainedEncoder(str(pretrained)), data / "score", tmp_path / "run", settings=settings)
    lines = [json.loads(line) for line in (tmp_path / "run/journal.jsonl").read_text().splitlines()]
    errors = {line["step"]: line["mean_absolute_error"] for line in lines if line["event"] == "evaluation"}
    assert len(set(errors.values())) > 1
    assert found.scores["mean_absolute_error"] == pytest.approx(min(errors.values()))
    assert errors[found.report["selection"]["step"]] == min(errors.values())
