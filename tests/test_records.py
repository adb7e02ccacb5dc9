"""Records of runs in `results/`."""

import csv
import json

import pytest
from dev.scripts import record_run
from dev.scripts.record_run import record_finetuning, record_pretraining

from albert.cli.main import run
from albert.runtime.errors import MissingInput


@pytest.fixture
def finished_run(tmp_path):
    run = tmp_path / "run"
    run.mkdir()
    (run / "recipe.json").write_text("{}", encoding="utf-8")
    records = [
        {"event": "train", "step": n, "tokens": 100 * n, "tokens_per_second": 50.0 + n, "masked_tokens_loss": 9.0 - n}
        for n in (1, 2, 3)
    ]
    figures = {"masked_tokens_accuracy": 0.25, "masked_tokens_baseline": 0.0625, "masked_tokens_loss": 5.5}
    records.append({"event": "evaluation", "step": 3, "tokens": 300, **figures})
    (run / "journal.jsonl").write_text("".join(json.dumps(r) + "\n" for r in records), encoding="utf-8")
    return run


@pytest.mark.usefixtures("drawn_pictures")
def test_pretraining_run_is_recorded(finished_run, tmp_path):
    results = tmp_path / "results"
    record_pretraining(finished_run, results, "tiny", "abc1234", "a machine", "albert pretrain tiny")
    with open(results / "results.csv", newline="", encoding="utf-8") as file:
        rows = {row["figure"]: row for row in csv.DictReader(file)}
    assert float(rows["masked_tokens_accuracy"]["value"]) == 0.25
    assert float(rows["masked_tokens_accuracy"]["baseline"]) == 0.0625
    assert float(rows["tokens_per_second_median"]["value"]) == 52.0
    assert {row["commit"] for row in rows.values()} == {"abc1234"}
    assert (results / "tiny" / "curves.png").stat().st_size > 1000
    assert len((results / "tiny" / "journal.jsonl").read_text(encoding="utf-8").splitlines()) == 4


def test_rows_are_appended(finished_run, tmp_path):
    results = tmp_path / "results"
    record_pretraining(finished_run, results, "tiny", "abc1234", "a machine", "albert pretrain tiny")
    report = {"scores": {"accuracy": 80.0, "f1": None}, "baseline": {"accuracy": 50.9}}
    (finished_run / "results.json").write_text(json.dumps(report), encoding="utf-8")
    record_finetuning(finished_run, results, "tiny-sst-2", "abc1234", "a machine", "albert finetune sst-2")
    lines = (results / "results.csv").read_text(encoding="utf-8").splitlines()
    assert sum(line.startswith("date,") for line in lines) == 1
    assert [line for line in lines if "tiny-sst-2" in line and ",80.0,50.9," in line]


def test_run_without_evaluation_is_not_recorded(finished_run, tmp_path):
    lines = (finished_run / "journal.jsonl").read_text(encoding="utf-8").splitlines()[:-1]
    (finished_run / "journal.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    with pytest.raises(MissingInput):
        record_pretraining(finished_run, tmp_path / "results", "tiny", "abc1234", "a machine", "")
    assert not (tmp_path / "results").exists()


def test_a_scripts_failure_is_one_line(capsys, monkeypatch):
    monkeypatch.setattr("sys.argv", ["record_run.py", "--nmae", "x"])
    assert run(command=record_run.main) == 2
    assert capsys.readouterr().err == "albert: error: record_run.py: --nmae: unknown option; did you mean --name x?\n"
    assert run([], record_run.main) == 2
    assert "--run: is missing; it is the finished run" in capsys.readouterr().err
