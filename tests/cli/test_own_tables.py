"""`albert finetune` on your table: statistics first, and a saved task for `albert evaluate`."""

import json
from pathlib import Path

import pytest

from albert.cli.main import run
from albert.finetuning.fill_in import rate_for_width

WIDTH = 32
"""Hidden size of the model of the scene."""
SMALL = ["steps=2", "batch_size=4", "max_length=32", "--device", "cpu"]


@pytest.fixture
def reviews(tmp_path: Path) -> Path:
    rows = "".join(f"it was {word} {n},{n % 3 + 1}\n" for n, word in enumerate(("good", "bad", "long") * 8))
    (tmp_path / "my.csv").write_text("review,stars\n" + rows)
    return tmp_path / "my.csv"


def test_statistics_only_shows_rows_and_writes_nothing(scene, reviews, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")
    columns = ["--text", "review", "--label", "stars", "--model", str(scene.pretrained)]
    assert run(["finetune", "--train", str(reviews), *columns]) == 0
    output = capsys.readouterr().out
    for words in ("3 different numbers", "--kind number", "kept back for dev", "tokens, median", "33.3%"):
        assert words in output
    assert [path.name for path in tmp_path.iterdir()] == ["my.csv"]


def test_a_run_saves_its_task_for_evaluation(scene, reviews, tmp_path, capsys):
    saved = tmp_path / "run"
    (tmp_path / "ask.json").write_text('{"train": "my.csv", "text": "review", "learning_rate": 0.001}')
    options = [str(tmp_path / "ask.json"), "--label", "stars", "--model", str(scene.pretrained)]
    assert run(["finetune", *options, "--output", str(saved), *SMALL]) == 0
    report = json.loads((saved / "results.json").read_text())
    assert report["recipe"]["learning_rate"] == 0.001 and report["training"]["kept_back_for_dev"] == 3
    evaluate = ["evaluate", "--model", str(saved), "--device", "cpu", "--results", str(tmp_path / "scores.json")]
    assert run(evaluate) == 0
    assert json.loads((tmp_path / "scores.json").read_text())["scores"] == report["scores"]
    before = reviews.read_text()
    assert run([*evaluate, "--predictions", str(reviews.parent / "run/../my.csv")]) == 73
    assert "my.csv: is an input, which would be replaced" in capsys.readouterr().err and reviews.read_text() == before
    (tmp_path / "new.csv").write_text("text,stars\nit was good,1\nit was bad,2\n")
    assert run([*evaluate, "--dev", str(tmp_path / "new.csv"), "--text", "text"]) == 0
    assert json.loads((tmp_path / "scores.json").read_text())["counts"]["rows"] == 2
    assert run([*evaluate, "--dev", str(tmp_path / "new.csv")]) == 65
    assert "has no column 'review'" in capsys.readouterr().err


def test_labels_that_all_differ_are_explained(scene, tmp_path, capsys):
    (tmp_path / "t.csv").write_text("review,stars\n" + "".join(f'it was {n},"1,{n}"\n' for n in range(30)))
    columns = ["--text", "review", "--label", "stars", "--model", str(scene.pretrained)]
    assert run(["finetune", "--train", str(tmp_path / "t.csv"), *columns]) == 2
    assert "column 'stars': holds numbers with a comma, such as '1,0'; say reading.decimal=," in capsys.readouterr().err


@pytest.mark.parametrize(("flags", "rate"), [((), rate_for_width(2e-5, WIDTH)), (("learning_rate=3e-5",), 3e-5)])
def test_the_default_learning_rate_depends_on_the_width(scene, reviews, tmp_path, capsys, flags, rate):
    columns = ["--train", str(reviews), "--text", "review", "--label", "stars", "--model", str(scene.pretrained)]
    assert run(["finetune", *columns, "--output", str(tmp_path / "run"), *SMALL, *flags]) == 0
    assert json.loads((tmp_path / "run" / "results.json").read_text())["recipe"]["learning_rate"] == pytest.approx(rate)
    card = (tmp_path / "run" / "model" / "README.md").read_text(encoding="utf-8")
    assert f"| learning_rate | {rate:.6g} |" in card and "Predicts `stars` (1, 2, 3) from `review`" in card
    assert "null" not in card and "| None" not in card and "custom" not in card
    output = capsys.readouterr().out
    assert f"learning rate {rate:.3g}" in output
    assert (
        f"{rate_for_width(2e-5, WIDTH) / 2e-5:.3g} times the recipe's, as the model is narrower than 768" in output
    ) == (not flags)
