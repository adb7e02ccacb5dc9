"""Scores and cost at several depths and patiences."""

import csv
import json
from dataclasses import replace

import pytest
import torch
from tests.tiny import tiny_config

from albert.checkpoints.model_directory import save_model_directory
from albert.cli.main import run
from albert.model.albert import AlbertForSequenceClassification
from albert.model.cost import count_flops

CONFIG = tiny_config(400, hidden_size=32, num_hidden_layers=4, initializer_range=0.3)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    texts = [f"the {noun} was {kind}" for noun in ("ship", "storm", "captain", "letter") for kind in ("good", "bad")]
    rows = "".join(f"{text}\t{number % 2}\n" for number, text in enumerate(texts))
    (folder / "dev.tsv").write_text("sentence\tlabel\n" + rows)
    return folder


@pytest.fixture(scope="module")
def classifier(tokenizer_directory, tmp_path_factory):
    """A classifier with random weights."""
    torch.manual_seed(1)
    model = AlbertForSequenceClassification(CONFIG, 2)
    torch.nn.init.normal_(model.albert.pooler.weight)
    path = tmp_path_factory.mktemp("models") / "any-depth"
    save_model_directory(path, model, tokenizer_directory, extra={"id2label": {0: "negative", 1: "positive"}})
    return str(path)


@pytest.fixture
def evaluated(data, tmp_path):
    """What `albert evaluate` writes with --results."""

    def evaluate(task, model, *words):
        results = tmp_path / "results.json"
        command = ["evaluate", task, "--model", str(model), "--data", str(data), "--device", "cpu", *words]
        assert run([*command, "--results", str(results)]) == 0
        return json.loads(results.read_text())

    return evaluate


def test_depths_score_like_single_evaluations_and_cost_by_layers(classifier, evaluated):
    curve = evaluated("sst-2", classifier, "--depth", "1", "3", "6", "--rounds", "2")
    for point in curve["points"]:
        single = evaluated("sst-2", classifier, "--depth", str(point["depth"]))
        assert point["scores"] == single["scores"] and point["milliseconds"] > 0
    one, three, six = (point["gflops"] for point in curve["points"])
    assert six - three == pytest.approx(1.5 * (three - one))
    assert curve["baseline"] == {"accuracy": 50.0} and curve["trained_depth"] == 4
    assert count_flops(replace(CONFIG, num_hidden_layers=1), 8).forward * 4 < one * 1e9 < 1e9


def test_unsupported_depths_are_refused(classifier, data, refused):
    evaluate = ["evaluate", "sst-2", "--model", classifier, "--data", data, "--device", "cpu"]
    refused([*evaluate, "--depth", "2", "99"], 78, "depth: is 99")


@pytest.mark.usefixtures("drawn_pictures")
def test_command_line_writes_table_and_curve(classifier, data, tmp_path, refused, capsys):
    evaluate = ["evaluate", "sst-2", "--model", classifier, "--data", str(data), "--device", "cpu"]
    picture, results = tmp_path / "curve.png", tmp_path / "curve.json"
    files = ["--curve", str(picture), "--results", str(results)]
    assert run([*evaluate, "--depth", "1", "2", "4", *files]) == 0
    shown = capsys.readouterr().out
    assert all(text in shown for text in ("depth", "majority baseline", "GFLOPs"))
    assert picture.read_bytes().startswith(b"\x89PNG")
    rows = list(csv.DictReader((tmp_path / "curve.csv").read_text().splitlines()))
    points = json.loads(results.read_text())["points"]
    assert [row["depth"] for row in rows] == ["1", "2", "4"]
    for row, point in zip(rows, points, strict=True):
        assert float(row["accuracy"]) == pytest.approx(point["scores"]["accuracy"], abs=1e-3)
    assert run([*evaluate, "--depth", "2"]) == 0
    assert "run at depth 2 of 4" in capsys.readouterr().out
    refused([*evaluate, "--depth", "1", "2", "--curve", "curve.csv"], 2, "--curve curve.csv")
