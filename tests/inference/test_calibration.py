"""int8 computes with scales fixed beforehand: over random tokens or a user's texts, at every entry point the same."""

import json
import re
import shutil

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from onnx import numpy_helper
from tests.inference.conftest import has_int8
from torch import nn

import albert
from albert.checkpoints.model_directory import open_model
from albert.cli.main import run
from albert.inference import calibration
from albert.inference.calibration import compute_as_in_int8
from albert.inference.linears import FixedInt8Linear, Int8Linear, PlainLinear
from albert.model.albert import AlbertModel
from albert.model.encoder import InputScale
from albert.model.packing import pack
from albert.runtime.json_files import save_versioned

TEXTS = [f"The old captain saw the sea {'again ' * n}and the ship." for n in range(9)]
needs_int8 = pytest.mark.skipif(not has_int8(), reason="no 8-bit products on this processor")


def quantized(source, output, *options):
    assert run(["quantize", str(source), "--output", str(output), *map(str, options)]) == 0
    return json.loads((output / "config.json").read_text())["albert_quantization"]


@needs_int8
@pytest.mark.parametrize("kind", ["pretrain", "classify", "answer"])
def test_a_saved_model_answers_as_the_original_does_in_int8(kind, model_paths, predictors, tmp_path):
    """Not bit by bit: its embeddings and heads are in 8 bits, too."""
    quantized(model_paths(kind), tmp_path / "int8")
    exact = predictors(kind).embed(TEXTS, normalize=True)
    for path in (model_paths(kind), tmp_path / "int8"):
        near = albert.load(path, "cpu", precision="int8").embed(TEXTS, normalize=True)
        assert ((near * exact).sum(axis=1) > 0.99).all() and not np.array_equal(near, exact)
    again = albert.load(tmp_path / "int8", "cpu", precision="int8").embed(TEXTS, normalize=True)
    assert np.array_equal(near, again)


def test_each_application_of_a_shared_layer_has_its_own_scales(model_paths, tmp_path, capsys):
    stated = quantized(model_paths("classify"), tmp_path / "int8")
    assert stated["calibrated_on"] == "random tokens"
    first, second = stated["input_scales"]
    assert len(first) == len(second) == 4 and first != second
    said = " ".join(capsys.readouterr().out.split())
    assert "inputs of products as 8-bit integers, one scale, measured on random tokens beforehand, in 8 of 8" in said
    assert said.count("% of its standard deviation, on random tokens") == 2


@pytest.mark.parametrize("name", ["own.txt", "own.csv"])
def test_scales_are_measured_over_the_texts_of_a_file(name, model_paths, tmp_path, capsys):
    lines = [*(["text"] if name.endswith("csv") else []), *TEXTS, ""]
    (tmp_path / name).write_text("\n".join(lines))
    stated = quantized(model_paths("classify"), tmp_path / "texts", "--calibrate", tmp_path / name)
    said = f"one scale, measured on 9 texts of {name} beforehand"
    assert said in " ".join(capsys.readouterr().out.split())
    assert said in (tmp_path / "texts" / "README.md").read_text()
    assert stated["input_scales"] != quantized(model_paths("classify"), tmp_path / "random")["input_scales"]


@pytest.mark.parametrize("name", ["lines.txt", "trained.csv", "text.csv"])
def test_texts_are_lines_or_the_column_of_training_or_the_column_text(name, model_paths, tmp_path, refused, capsys):
    run_folder = tmp_path / "run"
    shutil.copytree(model_paths("classify"), run_folder / "model")
    save_versioned(run_folder / "task.json", {"name": "support", "text": "message", "label": "topic"})
    header = {"lines.txt": [], "trained.csv": ["text,message"], "text.csv": ["id,text"]}[name]
    before = "7," if header else ""
    many = [f"{before}{text}" for text in TEXTS * 60]
    (tmp_path / name).write_text("\n".join([*header, *many]))
    stated = quantized(run_folder, tmp_path / "int8", "--calibrate", tmp_path / name)
    read = int(
        re.fullmatch(rf"the first (\d+) texts of {name} \(4,096 tokens are enough\)", stated["calibrated_on"])[1]
    )
    assert 9 < read < len(many)
    assert f"the first {read} texts of {name}" in " ".join(capsys.readouterr().out.split())
    (tmp_path / "other.csv").write_text("id,review\n1,The sea\n")
    command = ["quantize", run_folder, "--output", tmp_path / "no", "--calibrate", tmp_path / "other.csv"]
    refused(command, 66, "other.csv", "a column named message or text")


@pytest.mark.parametrize("precision", ["fp32", pytest.param("int8", marks=needs_int8)])
def test_the_note_on_stored_integers_does_not_contradict_the_precision(precision, model_paths, tmp_path, capsys):
    quantized(model_paths("classify"), tmp_path / "int8")
    capsys.readouterr()
    words = ["predict", str(tmp_path / "int8"), "--classify", TEXTS[0], "--device", "cpu", "--precision", precision]
    assert run(words) == 0
    said = capsys.readouterr().err
    assert "stored as 8-bit integers, one scale per row" in said and f"{precision} on cpu" in said
    assert "float32" not in said


@needs_int8
def test_texts_that_were_calibrated_on_decide_the_answers(model_paths, tmp_path):
    (tmp_path / "own.txt").write_text("\n".join(TEXTS))
    quantized(model_paths("classify"), tmp_path / "texts", "--calibrate", tmp_path / "own.txt")
    own, random = (
        albert.load(path, "cpu", precision="int8").embed(TEXTS, normalize=True)
        for path in (tmp_path / "texts", model_paths("classify"))
    )
    assert not np.array_equal(own, random) and ((own * random).sum(axis=1) > 0.99).all()


@pytest.mark.parametrize(
    ("name", "content", "code", "why"),
    [
        ("empty.txt", "\n \n", 66, "has no rows"),
        ("blank.csv", "text,label\n,good\n,bad\n", 66, "holds no texts"),
        (
            "other.csv",
            "label,review\ngood,The sea\n",
            66,
            "holds no texts; give a text on each line, or a table with a",
        ),
        ("foreign.txt", "猫は魚を食べる\nこんにちは世界\n", 2, "% of its pieces are unknown to the model's tokenizer"),
        ("missing.txt", None, 66, ""),
    ],
)
def test_a_file_that_no_scales_can_be_measured_on_is_refused(name, content, code, why, model_paths, tmp_path, refused):
    if content is not None:
        (tmp_path / name).write_text(content, encoding="utf-8")
    command = ["quantize", model_paths("classify"), "--output", tmp_path / "int8", "--calibrate", tmp_path / name]
    refused(command, code, name, why)
    assert not (tmp_path / "int8").exists()


def overflowing(config):
    model = AlbertModel(config).eval()
    with torch.no_grad():
        model.encoder.feed_forwards[0].intermediate.weight.fill_(3e38)
    return model


def test_a_model_whose_values_are_not_finite_is_refused(saved, config, tmp_path, refused):
    path = saved(overflowing(config))
    line = "layer 1 computes values that are not finite"
    refused(["quantize", path, "--output", tmp_path / "int8"], 78, line)
    refused(["export", "onnx", path, "--output", tmp_path / "onnx", "--precision", "int8"], 78, line)
    if has_int8():
        refused(lambda: albert.load(path, "cpu", precision="int8"), 78, line)


@pytest.mark.parametrize(
    "damage", [None, [], [[[0.1, 128]] * 5], [[[0.0, 128]] * 4], [[["a", 1]] * 4], [[[0.1, 300]] * 4]]
)
def test_damaged_scales_are_refused(damage, model_paths, tmp_path, refused):
    quantized(model_paths("classify"), tmp_path / "int8")
    config = tmp_path / "int8" / "config.json"
    content = json.loads(config.read_text())
    content["albert_quantization"]["input_scales"] = damage
    config.write_text(json.dumps(content))
    (tmp_path / "int8" / "MANIFEST.json").unlink()
    if damage == []:  # every layer keeps a scale for each row
        assert run(["predict", str(tmp_path / "int8"), "--classify", "A day."]) == 0
    else:
        refused(["predict", tmp_path / "int8", "--classify", "A day."], 65, "input_scales")


@needs_int8
def test_scales_for_each_row_stay_where_fixed_ones_lose_too_much(saved, config, tmp_path, capsys):
    """One output of GELU is thousands of times the others, which a step of its range makes zeros of."""
    torch.manual_seed(1)
    model = AlbertModel(config).eval()
    block = model.encoder.feed_forwards[0]
    with torch.no_grad():
        block.intermediate.weight[3] *= 3000
        block.output.weight[:, 3] /= 3000
    path = saved(model)
    stated = quantized(path, tmp_path / "int8")
    said = " ".join(capsys.readouterr().out.split())
    assert "a scale for each row; one measured on random tokens beforehand loses too much" in said
    assert stated["input_scales"] == [[None] * 4] * 2
    assert np.isfinite(albert.load(path, "cpu", precision="int8").embed(TEXTS)).all()


@needs_int8
def test_some_products_may_keep_scales_for_each_row(predictors, model_paths, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(calibration, "MOST_ERROR", 0.007)
    stated = quantized(model_paths("classify"), tmp_path / "int8")
    rows = [scale for layer in stated["input_scales"] for scale in layer].count(None)
    assert 0 < rows < 8
    assert f"in {8 - rows} of 8 products, a scale for each row in {rows}" in " ".join(capsys.readouterr().out.split())
    exact = predictors("classify").embed(TEXTS, normalize=True)
    near = albert.load(tmp_path / "int8", "cpu", precision="int8").embed(TEXTS, normalize=True)
    assert ((exact * near).sum(axis=1) > 0.99).all()


@needs_int8
@pytest.mark.parametrize("activation", [nn.GELU(), nn.GELU("tanh"), nn.ReLU(), nn.Tanh()])
def test_fused_products_are_those_of_rounded_inputs(activation):
    generator = torch.Generator().manual_seed(0)
    weight, bias, rows, residual = (
        torch.randn(*shape, generator=generator) for shape in ((24, 16), (24,), (37, 16), (37, 24))
    )
    by_row = Int8Linear(weight, bias, torch.float32, activation)
    inputs = InputScale(0.04, 128)
    outputs = InputScale(0.1, 40)
    linear = FixedInt8Linear(by_row, inputs, outputs)
    bytes_of_rows = (rows / 0.04 + 128).round().clamp(0, 255)
    plain = PlainLinear(weight, bias, torch.float32, activation)
    rounded = (bytes_of_rows - 128) * 0.04
    for given in (rows, bytes_of_rows.to(torch.uint8)):
        torch.testing.assert_close(linear(given), plain(rounded), atol=0.1, rtol=0)
        torch.testing.assert_close(
            linear.with_residual(given, residual), plain.with_residual(rounded, residual), atol=0.1, rtol=0
        )
        activated = linear.with_activation(given)
        if activated.dtype == torch.uint8:
            activated = (activated.float() - 40) * 0.1
        torch.testing.assert_close(activated, plain.with_activation(rounded), atol=0.15, rtol=0)


@needs_int8
def test_what_quantize_says_of_int8_is_what_int8_computes(model_paths, tmp_path):
    quantized(model_paths("pretrain"), tmp_path / "int8")
    opened = open_model(tmp_path / "int8", "encoder")
    compute_as_in_int8(opened.model)
    near = albert.load(tmp_path / "int8", "cpu", precision="int8")
    ids = [np.array([near.tokenizer.cls_id, *near.tokenizer.encode(text), near.tokenizer.sep_id]) for text in TEXTS]
    packed = pack(ids, [np.zeros(len(row), np.int64) for row in ids])
    with torch.inference_mode():
        said = opened.model(packed)
        computed = near.network.albert(packed)
    assert (said - computed).norm() < 0.02 * said.norm()


def test_an_onnx_file_has_the_scales_of_the_quantised_model(model_paths, tmp_path):
    (tmp_path / "own.txt").write_text("\n".join(TEXTS))
    stated = quantized(model_paths("classify"), tmp_path / "int8", "--calibrate", tmp_path / "own.txt")
    command = ["export", "onnx", str(tmp_path / "int8"), "--output", str(tmp_path / "onnx"), "--precision", "int8"]
    assert run(command) == 0
    graph = onnx.load(tmp_path / "onnx" / "model.onnx").graph
    constants = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    scales = [
        (constants[node.input[1]].item(), constants[node.input[2]].item())
        for node in graph.node
        if node.op_type == "QuantizeLinear"
    ]
    expected = [(scale, zero_point) for layer in stated["input_scales"] for scale, zero_point in layer]
    np.testing.assert_allclose(scales, expected, rtol=1e-6)
    assert "9 texts of own.txt" in (tmp_path / "onnx" / "README.md").read_text()


@needs_int8
def test_onnx_runtime_answers_as_precision_int8(model_paths, tmp_path):
    """ONNX Runtime also computes the pooler and the embeddings' projection in 8 bits."""
    quantized(model_paths("classify"), tmp_path / "int8")
    command = ["export", "onnx", str(tmp_path / "int8"), "--output", str(tmp_path / "onnx"), "--precision", "int8"]
    assert run(command) == 0
    model = albert.load(tmp_path / "int8", "cpu", precision="int8")
    exact = albert.load(model_paths("classify"), "cpu", precision="fp32")
    session = onnxruntime.InferenceSession(str(tmp_path / "onnx" / "model.onnx"), providers=["CPUExecutionProvider"])
    for text in TEXTS:
        ids = np.array([[model.tokenizer.cls_id, *model.tokenizer.encode(text), model.tokenizer.sep_id]])
        given = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}
        (logits,) = session.run(None, {each.name: given[each.name] for each in session.get_inputs()})[0]
        theirs = np.exp(logits) / np.exp(logits).sum()
        ours, original = ({row["label"]: row["score"] for row in each.classify(text)} for each in (model, exact))
        for label, probability in zip(model.labels, theirs, strict=True):
            assert ours[label] == pytest.approx(probability, abs=0.05)
            assert original[label] == pytest.approx(probability, abs=0.1)
