"""Scores and cost at several depths and patiences."""

import csv
import json
from dataclasses import replace

import pytest
import torch
from tests.tiny import tiny_config

from albert.checkpoints.model_directory import save_model_directory
from albert.cli.main import run
from albert.model.albert import AlbertForMultipleChoice, AlbertForSequenceClassification
from albert.model.cost import count_flops

CONFIG = tiny_config(400, hidden_size=32, num_hidden_layers=4, initializer_range=0.3)
EXIT_DEPTHS = {"exit_depths": [1, 2, 3, 4]}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    texts = [f"the {noun} was {kind}" for noun in ("ship", "storm", "captain", "letter") for kind in ("good", "bad")]
    rows = "".join(f"{text}\t{number % 2}\n" for number, text in enumerate(texts))
    (folder / "dev.tsv").write_text("sentence\tlabel\n" + rows)
    passage = {"article": "the ship sailed", "questions": ["it was a _ ."] * 2, "answers": ["A", "C"]}
    passage |= {"options": [["ship", "storm", "letter", "captain"]] * 2}
    for level in ("middle", "high"):
        path = folder / "RACE/dev" / level / "1.txt"
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps({"id": f"{level}1.txt", **passage}))
    return folder


@pytest.fixture(scope="module")
def early_exit_model(tokenizer_directory, tmp_path_factory):
    """A classifier with random weights, marked as trained at every depth."""
    torch.manual_seed(1)
    model = AlbertForSequenceClassification(CONFIG, 2)
    torch.nn.init.normal_(model.albert.pooler.weight)
    path = tmp_path_factory.mktemp("models") / "any-depth"
    labels = {"id2label": {0: "negative", 1: "positive"}}
    save_model_directory(path, model, tokenizer_directory, extra=labels | EXIT_DEPTHS)
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


def test_depths_score_like_single_evaluations_and_cost_by_layers(early_exit_model, evaluated):
    depths, patiences = ["--depth", "1", "3", "6"], ["--patience", "1", "5"]
    curve = evaluated("sst-2", early_exit_model, *depths, *patiences, "--rounds", "2")
    fixed, patient = curve["points"][:3], curve["points"][3:]
    for point in fixed:
        single = evaluated("sst-2", early_exit_model, "--depth", str(point["depth"]))
        assert point["scores"] == single["scores"]
        assert point["mean_depth"] == point["depth"] and point["milliseconds"] > 0
    one, three, six = (point["gflops"] for point in fixed)
    assert six - three == pytest.approx(1.5 * (three - one))
    assert [point["patience"] for point in patient] == [1, 5]
    assert 2 <= patient[0]["mean_depth"] <= 6 and patient[1]["mean_depth"] == 6
    assert patient[1]["scores"] == fixed[2]["scores"] and patient[1]["gflops"] == pytest.approx(six)
    assert curve["baseline"] == {"accuracy": 50.0} and curve["trained_depth"] == 4
    assert count_flops(replace(CONFIG, num_hidden_layers=1), 8).forward * 4 < one * 1e9 < 1e9


def test_options_of_a_question_exit_together(tokenizer_directory, evaluated, tmp_path):
    torch.manual_seed(2)
    save_model_directory(tmp_path / "model", AlbertForMultipleChoice(CONFIG), tokenizer_directory, extra=EXIT_DEPTHS)
    settings = ["--depth", "4", "--patience", "9"]
    fixed, patient = evaluated("race", tmp_path / "model", *settings)["points"]
    assert patient["scores"] == fixed["scores"] and patient["mean_depth"] == 4


@pytest.mark.parametrize(
    ("options", "exits", "subject"),
    [
        (("--depth", "2", "99"), EXIT_DEPTHS, "depth: is 99"),
        (("--patience", "1"), {}, "last layer"),
        (("--patience", "0"), EXIT_DEPTHS, "patience: is 0"),
    ],
)
def test_unsupported_depths_are_refused(options, exits, subject, tokenizer_directory, data, tmp_path, refused):
    extra = {"id2label": {0: "0", 1: "1"}} | exits
    save_model_directory(tmp_path / "m", AlbertForSequenceClassification(CONFIG, 2), tokenizer_directory, extra=extra)
    refused(["evaluate", "sst-2", "--model", tmp_path / "m", "--data", data, "--device", "cpu", *options], 78, subject)


@pytest.mark.usefixtures("drawn_pictures")
def test_command_line_writes_table_and_curve(early_exit_model, data, tmp_path, refused, capsys):
    evaluate = ["evaluate", "sst-2", "--model", early_exit_model, "--data", str(data), "--device", "cpu"]
    picture, results = tmp_path / "curve.png", tmp_path / "curve.json"
    files = ["--curve", str(picture), "--results", str(results)]
    assert run([*evaluate, "--depth", "1", "2", "4", "--patience", "1", "2", *files]) == 0
    shown = capsys.readouterr().out
    assert all(text in shown for text in ("depth 1", "depth 4", "patience 2", "majority baseline", "GFLOPs"))
    assert picture.read_bytes().startswith(b"\x89PNG")
    rows = list(csv.DictReader((tmp_path / "curve.csv").read_text().splitlines()))
    points = json.loads(results.read_text())["points"]
    assert [row["depth"] for row in rows] == ["1", "2", "4", "4", "4"]
    assert [row["patience"] for row in rows] == ["", "", "", "1", "2"]
    for row, point in zip(rows, points, strict=True):
        assert float(row["accuracy"]) == pytest.approx(point["scores"]["accuracy"], abs=1e-3)
    assert run([*evaluate, "--depth", "2"]) == 0
    assert "run at depth 2 of 4" in capsys.readouterr().out
    refused([*evaluate, "--depth", "1", "2", "--curve", "curve.csv"], 2, "--curve curve.csv")
