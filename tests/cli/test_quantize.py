"""`albert quantize` on models without a projection between embeddings and layers: predictions stay close."""

from pathlib import Path

import pytest

import albert
from albert.cli.main import run
from albert.runtime.manifest import verify_directory

TEXTS = ["The capital of France is [MASK].", "She opened the [MASK] and went into the house.", "He was born in [MASK]."]


def test_a_quantised_or_converted_classifier_keeps_its_examples_and_answers_alike(checkout, scene, tmp_path, capsys):
    model = tmp_path / "run" / "model"
    rows = ("--train", str(scene.tables / "train.csv"), "--dev", str(scene.tables / "dev.csv"))
    flags = ("--text", "review", "--label", "stars", "--device", "cpu", "epochs=2", "batch_size=4")
    base = ("--model", str(checkout / "models" / "tiny"), "--output", str(tmp_path / "run"))
    assert run(["finetune", *base, *rows, *flags]) == 0
    assert run(["quantize", str(model), "--output", str(tmp_path / "int8")]) == 0
    assert run(["convert", str(model), "--output", str(tmp_path / "copy")]) == 0
    for name in ("int8", "copy"):
        assert (tmp_path / name / "examples.json").read_bytes() == (model / "examples.json").read_bytes()
        verify_directory(tmp_path / name)
    assert run(["evaluate", "--model", str(tmp_path / "int8"), *rows[2:], *flags[:6]]) == 0
    assert "accuracy" in capsys.readouterr().out
    for name in ("int8", "copy"):  # the columns of the training file are known
        assert run(["predict", str(tmp_path / name), "--input", str(scene.tables / "dev.csv"), "--device", "cpu"]) == 0
        assert run(["evaluate", "--model", str(tmp_path / name), "--dev", str(scene.tables / "dev.csv")]) == 0
    original, quantised = (albert.load(path, "cpu", precision="fp32") for path in (model, tmp_path / "int8"))
    for before, after in zip(original.classify_batch(TEXTS), quantised.classify_batch(TEXTS), strict=True):
        expected = {answer["label"]: answer["score"] for answer in before}
        assert {answer["label"]: answer["score"] for answer in after} == pytest.approx(expected, abs=0.02)


def test_a_damaged_quantised_directory_is_refused(scene, tmp_path: Path, capsys):
    assert run(["quantize", str(scene.pretrained), "--output", str(tmp_path / "int8")]) == 0
    with open(tmp_path / "int8/model.int8.safetensors", "r+b") as file:
        file.seek(-10, 2)
        file.write(b"\xff")
    capsys.readouterr()
    for command in (["info", str(tmp_path / "int8")], ["info", str(tmp_path / "int8"), "--verify"]):
        assert run(command) == 65
        assert "SHA-256 differs" in capsys.readouterr().err


def test_predict_refuses_an_onnx_directory(scene, tmp_path: Path, capsys):
    assert run(["export", "onnx", str(scene.classifier), "--output", str(tmp_path / "onnx")]) == 0
    capsys.readouterr()
    assert run(["predict", str(tmp_path / "onnx"), "--classify", "It was a day."]) == 66
    assert (
        "holds an ONNX file and no model.safetensors; name the model that it was exported from"
        in capsys.readouterr().err
    )
