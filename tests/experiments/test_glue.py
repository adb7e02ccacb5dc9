"""GLUE as a whole: every task whose files exist, files to submit, and the average of the leaderboard."""

import csv

import pytest
import torch
from experiments.glue import AVERAGED, average, main
from tests.tiny import tiny_config

from albert.checkpoints.model_directory import save_model_directory
from albert.model.albert import AlbertForPreTraining
from albert.runtime.json_files import read_json_object
from albert.text.tokenizer_loading import load_tokenizer

KEYS = ["steps=3", "batch_size=4", "max_length=16"]


@pytest.fixture
def model(tokenizer_directory, tmp_path):
    """A model directory with random weights."""
    torch.manual_seed(1)
    config = tiny_config(load_tokenizer(tokenizer_directory).vocab_size)
    save_model_directory(tmp_path / "model", AlbertForPreTraining(config), tokenizer_directory)
    return tmp_path / "model"


@pytest.fixture
def files(tmp_path):
    """RTE, MNLI with one development set, the diagnostic set, and SST-2 with its test set; half of STS-B."""
    pairs, labels = "index\tsentence1\tsentence2", ("entailment", "neutral", "contradiction") * 3
    rte = "".join(f"{i}\ta\tb\t{label}\n" for i, label in enumerate(("entailment", "not_entailment") * 4))
    mnli = "".join(f"{i}\ta\tb\t{label}\n" for i, label in enumerate(labels))
    for names, content in {
        ("RTE/train", "RTE/dev"): f"{pairs}\tlabel\n{rte}",
        ("MNLI/train", "MNLI/dev_matched"): f"{pairs}\tgold_label\n{mnli}",
        ("AX/diagnostic-full",): f"index\tPremise\tHypothesis\tLabel\n{mnli}",
        ("AX/diagnostic",): pairs + "\n" + "".join(f"{i}\ta\tb\n" for i in range(5)),
        ("SST-2/train", "SST-2/dev"): "sentence\tlabel\n" + "good\t1\nbad\t0\n" * 4,
        ("SST-2/test",): "index\tsentence\n0\tgood\n1\tbad\n",
        ("STS-B/train",): "sentence1\tsentence2\tscore\na\tb\t1.0\n",
    }.items():
        for name in names:
            path = tmp_path / f"glue/{name}.tsv"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content)
    return tmp_path / "glue"


def test_every_task_with_files_is_trained_scored_and_answered(files, model, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("albert.finetuning.sweep.failure_reason", lambda *about: None)  # runs of three updates fail
    output = tmp_path / "runs"
    command = ["--model", str(model), "--data", str(files), "--output", str(output), "--device", "cpu", *KEYS]
    assert main([*command, "--seeds", "2"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    summary = read_json_object(output / "summary.json")
    assert list(summary["tasks"]) == ["mnli", "sst-2", "rte"]
    assert [len(task["runs"]) for task in summary["tasks"].values()] == [2, 2, 2]
    assert summary["average"] is None and "Avg needs the scores of all tasks" in out
    assert summary["tasks"]["rte"]["started_from"].startswith(str(output / "mnli/seed-"))
    assert summary["tasks"]["sst-2"]["started_from"] == str(model)
    assert summary["diagnostic"]["scores"].keys() == {"matthews_correlation"}
    assert set(summary["missing"]) >= {"cola", "sts-b", "mnli, test"}
    for shown in ("rte accuracy", "89.2", "Avg - 89.4", "ax: matthews_correlation", "missing: cola: "):
        assert shown in out
    with (output / "submission/SST-2.tsv").open() as file:
        assert [row["index"] for row in csv.DictReader(file, delimiter="\t")] == ["0", "1"]
    assert (output / "submission/AX.tsv").is_file()
    written = {path: path.stat().st_mtime_ns for path in output.glob("*/seed-*/results.json")}
    assert len(written) == 6
    assert main([*command, "--seeds", "2"]) == 0
    assert {path: path.stat().st_mtime_ns for path in output.glob("*/seed-*/results.json")} == written


def test_a_failed_model_of_mnli_is_no_start(files, model, tmp_path, monkeypatch):
    monkeypatch.setattr("albert.finetuning.sweep.failure_reason", lambda *about: "no better than a constant")
    output = tmp_path / "runs"
    assert main(["--model", str(model), "--data", str(files), "--output", str(output), "--device", "cpu", *KEYS]) == 0
    summary = read_json_object(output / "summary.json")
    assert summary["tasks"]["rte"]["started_from"] == str(model)
    assert summary["diagnostic"] == {}


def test_a_folder_without_tasks_is_refused_in_one_line(model, tmp_path, capsys):
    output = str(tmp_path / "runs")
    assert main(["--model", str(model), "--data", str(tmp_path), "--output", output, "--device", "cpu"]) == 66
    assert "has no task of GLUE" in capsys.readouterr().err.splitlines()[-1]
    assert main(["--model", str(model), "--data", str(tmp_path), "--output", output, "epochs"]) == 2


def test_glue_average_equals_the_leaderboard():
    """ALBERT's row: pairs of scores as on gluebenchmark.com (from memory); Table 9 shows one of each, and the Avg."""
    scores = {
        "cola": {"matthews_correlation": 69.1},
        "sst-2": {"accuracy": 97.1},
        "mrpc": {"f1": 93.4, "accuracy": 91.2},
        "sts-b": {"pearson": 92.5, "spearman": 92.0},
        "qqp": {"f1": 74.2, "accuracy": 90.5},
        "mnli": {"accuracy": 91.3, "accuracy/dev_mismatched": 91.0},
        "qnli": {"accuracy": 99.2},
        "rte": {"accuracy": 89.2},
        "wnli": {"accuracy": 91.8},
    }
    assert average(scores) == pytest.approx(89.4, abs=0.05)
    del scores["wnli"]
    assert average(scores) is None
    assert scores.keys() == AVERAGED.keys() - {"wnli"}
