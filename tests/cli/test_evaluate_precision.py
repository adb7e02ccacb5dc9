"""`albert evaluate --precision fp32 int8` shows what a precision costs, and fails where the score moves."""

import io
import json

import pytest
import torch
from rich.console import Console

import albert
from albert.api.results import precision_rows
from albert.api.tasks import check_precisions
from albert.cli.main import run
from albert.cli.render import table_of_rows
from albert.experiments.layers import PrecisionScore
from albert.finetuning.evaluation import Evaluation
from albert.inference.engine import check_int8
from albert.runtime.errors import CheckFailed, Unavailable

try:
    check_int8(torch.device("cpu"))
    LACKS_INT8 = False
except Unavailable:
    LACKS_INT8 = True


def command(scene, *flags: str) -> list[str]:
    dev = ["--dev", str(scene.tables / "dev.csv"), "--text", "review", "--label", "stars", "--device", "cpu"]
    return ["evaluate", *dev, "--model", str(scene.classifier), *flags]


@pytest.mark.skipif(LACKS_INT8, reason="no 8-bit products on this processor")
def test_one_table_has_every_precision_and_results_say_what_moved(scene, tmp_path, capsys) -> None:
    results = tmp_path / "scores.json"
    flags = ("--precision", "bf16", "int8", "--tolerance", "100", "--results", str(results))
    assert run(command(scene, *flags)) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines if line.split()[:1] in (["fp32"], ["bf16"], ["int8"])] == [
        "fp32",
        "bf16",
        "int8",
    ]
    written = json.loads(results.read_text())
    assert list(written["precisions"]) == ["fp32", "bf16", "int8"]
    assert written["precisions"]["fp32"]["answers_changed"] == 0
    assert all(row["holds"] for row in written["precisions"].values())


def scored(precision: str, score: float, said: str) -> PrecisionScore:
    predictions = [{"id": str(number), "prediction": letter} for number, letter in enumerate(said)]
    evaluation = Evaluation({"accuracy": score}, None, predictions, {}, 1.0)
    return PrecisionScore(precision, evaluation, "accuracy", score, score - 90, said.count("b"), abs(score - 90) <= 0.5)


def test_a_score_that_moves_is_not_claimed() -> None:
    found = [scored("fp32", 90.0, "aaaa"), scored("bf16", 90.4, "aaab"), scored("int8", 88.0, "abba")]
    screen = Console(width=120, file=io.StringIO())
    screen.print(table_of_rows(precision_rows(found)))
    rows = [line.split() for line in screen.file.getvalue().splitlines()]
    assert ["bf16", "90.40", "+0.40", "1", "of", "4", "1.0", "yes"] in rows
    assert ["int8", "88.00", "-2.00", "2", "of", "4", "1.0", "NO"] in rows
    with pytest.raises(CheckFailed, match="accuracy: moves with int8 by -2.00, more than 0.50; use fp32 or bf16"):
        check_precisions(found, 0.5)
    check_precisions(found[:2], 0.5)


@pytest.mark.parametrize(("capabilities", "precision"), [({"avx512_bf16": True}, "bf16"), ({"avx2": True}, "fp32")])
def test_by_default_a_model_is_scored_as_predict_answers(
    scene, tmp_path, capsys, monkeypatch, capabilities, precision
) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: capabilities)
    results, predictions = tmp_path / "scores.json", tmp_path / "predictions.jsonl"
    assert run(command(scene, "--results", str(results), "--predictions", str(predictions))) == 0
    assert f" s, in {precision}" in capsys.readouterr().out
    assert json.loads(results.read_text())["precision"] == precision
    model = albert.load(scene.classifier, "cpu")
    assert model.precision == precision
    rows = [line.split(",")[0] for line in (scene.tables / "dev.csv").read_text().splitlines()[1:]]
    scored = [json.loads(line)["probabilities"] for line in predictions.read_text().splitlines()]
    for answers, mine in zip(model.classify_batch(rows), scored, strict=True):
        assert mine == pytest.approx({answer["label"]: answer["score"] for answer in answers}, abs=1e-5)


def test_bf16_moves_no_figure_of_a_trained_model_by_more_than_the_tolerance(scene, tmp_path) -> None:
    results = tmp_path / "scores.json"
    assert run(command(scene, "--precision", "fp32", "bf16", "auto", "--results", str(results))) == 0
    written = json.loads(results.read_text())
    assert set(written["precisions"]) == {"fp32", "bf16"}
    assert abs(written["precisions"]["bf16"]["difference"]) <= written["tolerance"]


def test_pretraining_figures_say_their_precision_and_hardly_depend_on_it(scene, capsys) -> None:
    found = {}
    places = ["--model", str(scene.pretrained), "--data", str(scene.corpus), "--device", "cpu"]
    for precision in ("fp32", "bf16"):
        assert run(["evaluate", "pretraining", *places, "--json", "--precision", precision]) == 0
        found[precision] = json.loads(capsys.readouterr().out)
        assert found[precision]["precision"] == precision
    exact, cheap = (found[each]["models"][0]["scores"]["masked_tokens"] for each in ("fp32", "bf16"))
    assert cheap["loss"] == pytest.approx(exact["loss"], abs=5e-3) and cheap["loss"] != exact["loss"]
