"""Scores at each depth are those of the model run there; work is counted by layers; patience leaves early."""

import csv
import json
from dataclasses import replace

import pytest
import torch
from tests.tiny import tiny_config

from albert.checkpoints.model_directory import save_model_directory
from albert.cli.main import dispatch
from albert.experiments.layers import depth_curve
from albert.finetuning.evaluation import evaluate_directory
from albert.model.albert import AlbertForMultipleChoice, AlbertForSequenceClassification
from albert.model.cost import count_flops
from albert.runtime.errors import InvalidConfiguration
from albert.tasks.submission import DECLARED

SENTENCES = [f"the {noun} was {kind}" for noun in ("ship", "storm", "captain", "letter") for kind in ("good", "bad")]


@pytest.fixture(scope="module")
def config():
    return tiny_config(
        400,
        embedding_size=16,
        hidden_size=32,
        num_hidden_layers=4,
        intermediate_size=64,
        max_position_embeddings=64,
        initializer_range=0.3,
    )


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    rows = "".join(f"{text}\t{place % 2}\n" for place, text in enumerate(SENTENCES))
    (folder / "dev.tsv").write_text("sentence\tlabel\n" + rows)
    passage = {"article": "the ship sailed", "questions": ["it was a _ ."] * 2, "answers": ["A", "C"]}
    passage |= {"options": [["ship", "storm", "letter", "captain"]] * 2}
    for level in ("middle", "high"):
        place = folder / "RACE/dev" / level / "1.txt"
        place.parent.mkdir(parents=True)
        place.write_text(json.dumps({"id": f"{level}1.txt", **passage}))
    return folder


@pytest.fixture(scope="module")
def any_depth(config, tokenizer_directory, tmp_path_factory):
    """A classifier that says it learnt at every depth; its weights are random."""
    torch.manual_seed(1)
    model = AlbertForSequenceClassification(config, 2)
    torch.nn.init.normal_(model.albert.pooler.weight)
    path = tmp_path_factory.mktemp("models") / "any-depth"
    extra = {"id2label": {0: "negative", 1: "positive"}, "exit_depths": [1, 2, 3, 4]}
    save_model_directory(path, model, tokenizer_directory, extra=extra)
    return str(path)


def test_each_depth_scores_as_the_model_run_there_and_costs_by_its_layers(any_depth, config, data):
    task = DECLARED["sst-2"]
    found = depth_curve(task, any_depth, data, depths=(1, 3, 6), patiences=(1, 5), device="cpu", rounds=2)
    fixed, patient = found.points[:3], found.points[3:]
    for point in fixed:
        alone = evaluate_directory(task, any_depth, data, device="cpu", depth=point.depth).evaluation
        assert point.scores == alone.scores
        assert point.mean_depth == point.depth and point.milliseconds > 0
    one, three, six = (point.gflops for point in fixed)
    assert six - three == pytest.approx(1.5 * (three - one))
    assert [point.patience for point in patient] == [1, 5]
    assert 2 <= patient[0].mean_depth <= 6 and patient[1].mean_depth == 6
    assert patient[1].scores == fixed[2].scores and patient[1].gflops == pytest.approx(six)
    assert found.baseline == {"accuracy": 50.0} and found.trained_depth == 4
    assert count_flops(replace(config, num_hidden_layers=1), 8).forward * 4 < one * 1e9 < 1e9


def test_options_of_a_question_leave_together(config, tokenizer_directory, data, tmp_path):
    torch.manual_seed(2)
    save_model_directory(
        tmp_path / "model", AlbertForMultipleChoice(config), tokenizer_directory, extra={"exit_depths": [1, 2, 3, 4]}
    )
    task = DECLARED["race"]
    task = replace(task, recipe=replace(task.recipe, max_length=32, question_length=8))
    found = depth_curve(task, str(tmp_path / "model"), data, depths=(4,), patiences=(9,), device="cpu", max_length=32)
    whole, patient = found.points
    assert patient.scores == whole.scores and patient.mean_depth == 4


def test_what_cannot_be_run_is_refused(any_depth, config, tokenizer_directory, data, tmp_path):
    task = DECLARED["sst-2"]
    with pytest.raises(InvalidConfiguration, match="no depth and no patience"):
        depth_curve(task, any_depth, data)
    with pytest.raises(InvalidConfiguration, match="depth: is 99"):
        depth_curve(task, any_depth, data, depths=(2, 99), device="cpu")
    plain = AlbertForSequenceClassification(config, 2)
    save_model_directory(tmp_path / "plain", plain, tokenizer_directory, extra={"id2label": {0: "0", 1: "1"}})
    with pytest.raises(InvalidConfiguration, match="was trained to answer only after its last layer"):
        depth_curve(task, str(tmp_path / "plain"), data, patiences=(1,), device="cpu")


def test_the_table_and_its_curve_from_the_command_line(any_depth, data, tmp_path, capsys):
    evaluate = ["evaluate", "sst-2", "--model", any_depth, "--data", str(data), "--device", "cpu"]
    picture, results = tmp_path / "curve.png", tmp_path / "curve.json"
    files = ["--curve", str(picture), "--results", str(results)]
    assert dispatch([*evaluate, "--depth", "1", "2", "4", "--patience", "1", "2", *files]) == 0
    said = capsys.readouterr().out
    assert all(row in said for row in ("depth 1", "depth 4", "patience 2", "constant answer", "GFLOPs"))
    assert picture.read_bytes().startswith(b"\x89PNG")
    rows = list(csv.DictReader((tmp_path / "curve.csv").read_text().splitlines()))
    points = json.loads(results.read_text())["points"]
    assert [row["depth"] for row in rows] == ["1", "2", "4", "4", "4"]
    assert [row["patience"] for row in rows] == ["", "", "", "1", "2"]
    for row, point in zip(rows, points, strict=True):
        assert float(row["accuracy"]) == pytest.approx(point["scores"]["accuracy"], abs=1e-3)
    assert dispatch([*evaluate, "--depth", "2"]) == 0
    assert "run at depth 2 of 4" in capsys.readouterr().out
    with pytest.raises(InvalidConfiguration, match="patience: is 0"):
        dispatch([*evaluate, "--patience", "0"])
