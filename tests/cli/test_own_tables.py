"""A table becomes a model in one command, what it is like is shown first, and the model knows its task afterwards."""

import json
from pathlib import Path

import pytest

from albert.cli.main import run
from albert.finetuning.options import rate_for_width

WIDTH = 32
"""Of the model of the scene."""
SMALL = ["--steps", "2", "--batch-size", "4", "--max-length", "32", "--device", "cpu"]


@pytest.fixture
def reviews(tmp_path: Path) -> Path:
    rows = "".join(f"it was {word} {n},{n % 3 + 1}\n" for n, word in enumerate(("good", "bad", "long") * 8))
    (tmp_path / "my.csv").write_text("review,stars\n" + rows)
    return tmp_path / "my.csv"


def test_rows_are_shown_before_anything_is_written(scene, reviews, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")
    columns = ["--text", "review", "--label", "stars", "--model", str(scene.pretrained), "--statistics-only"]
    assert run(["finetune", "--train", str(reviews), *columns]) == 0
    said = capsys.readouterr().out
    for words in ("3 different numbers", "--regression", "kept back for dev", "tokens, median", "33.3%"):
        assert words in said
    assert [path.name for path in tmp_path.iterdir()] == ["my.csv"]


def test_a_run_keeps_its_task_and_is_evaluated_by_it(scene, reviews, tmp_path, capsys):
    output = tmp_path / "run"
    (tmp_path / "ask.json").write_text('{"train": "my.csv", "text": "review", "recipe": {"learning_rate": 0.001}}')
    asked = ["--task-file", str(tmp_path / "ask.json"), "--label", "stars", "--model", str(scene.pretrained)]
    assert run(["finetune", *asked, "--output", str(output), *SMALL]) == 0
    report = json.loads((output / "results.json").read_text())
    assert report["recipe"]["learning_rate"] == 0.001 and report["training"]["kept_back_for_dev"] == 3
    evaluate = ["evaluate", "--model", str(output), "--device", "cpu", "--results", str(tmp_path / "scores.json")]
    assert run(evaluate) == 0
    assert json.loads((tmp_path / "scores.json").read_text())["scores"] == report["scores"]
    (tmp_path / "new.csv").write_text("text,stars\nit was good,1\nit was bad,2\n")
    assert run([*evaluate, "--dev", str(tmp_path / "new.csv"), "--text", "text"]) == 0
    assert json.loads((tmp_path / "scores.json").read_text())["counts"]["rows"] == 2
    assert run([*evaluate, "--dev", str(tmp_path / "new.csv")]) == 65
    assert "has no column 'review'" in capsys.readouterr().err


@pytest.mark.parametrize(("flags", "rate"), [((), rate_for_width(2e-5, WIDTH)), (("--learning-rate", "3e-5"), 3e-5)])
def test_a_narrow_model_learns_at_a_rate_for_its_width_unless_told_otherwise(
    scene, reviews, tmp_path, capsys, flags, rate
):
    columns = ["--train", str(reviews), "--text", "review", "--label", "stars", "--model", str(scene.pretrained)]
    assert run(["finetune", *columns, "--output", str(tmp_path / "run"), *SMALL, *flags]) == 0
    assert json.loads((tmp_path / "run" / "results.json").read_text())["recipe"]["learning_rate"] == pytest.approx(rate)
    card = (tmp_path / "run" / "model" / "README.md").read_text(encoding="utf-8")
    assert f"| learning_rate | {rate:.6g} |" in card and "Predicts `stars` (1, 2, 3) from `review`" in card
    assert "null" not in card and "None" not in card and "custom" not in card
    said = capsys.readouterr().out
    assert f"learning rate {rate:.3g}" in said
    assert (f"{rate_for_width(2e-5, WIDTH) / 2e-5:.3g} times the recipe's for H below 768" in said) == (not flags)
