"""ONNX files compute the model's outputs in ONNX Runtime and OpenVINO, and store shared weights once."""

import json
import re
import sys
from dataclasses import replace

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
import transformers

import albert
from albert.checkpoints.model_directory import save_model_directory
from albert.cli.main import run
from albert.inference import onnx_export as exporting
from albert.model.albert import AlbertForMaskedLM, AlbertForSequenceClassification, AlbertModel
from albert.model.packing import pack
from albert.runtime.devices import multiplies_int8
from albert.text.huggingface import SPECIAL_PIECES
from albert.text.wordpiece import wordpiece_tokenizer

LENGTHS = (3, 17, 9, 1)
OUTPUTS = {
    "pretraining": ["logits", "sentence_logits"],
    "masked_lm": ["logits"],
    "classification": ["logits"],
    "token_classification": ["logits"],
    "question_answering": ["start_logits", "end_logits"],
    "joint_question_answering": ["start_logits", "start_places", "end_logits", "unanswerable_logits"],
    "multiple_choice": ["logits"],
    "encoder": ["last_hidden_state", "pooler_output"],
}


THEIRS = {
    "masked_lm": "AlbertForMaskedLM",
    "classification": "AlbertForSequenceClassification",
    "question_answering": "AlbertForQuestionAnswering",
    "multiple_choice": "AlbertForMultipleChoice",
    "encoder": "AlbertModel",
}


def export(directory, output, *options):
    """Export a model with the command."""
    assert run(["export", "onnx", str(directory), "--output", str(output), *options]) == 0


def output_names(file):
    return [each.name for each in onnx.load(file).graph.output]


def differences_on(card):
    """The largest differences that a card states: runtime -> output -> number."""
    found = {}
    for output, runtime, number in re.findall(r"(\w+) in (\w+)[^:\n]*: largest difference\W+([\d.e+-]+)", card):
        found.setdefault(runtime, {})[output] = float(number)
    return found


def padded_batch(lengths=LENGTHS):
    """Random tokens, padded on the right, under the names that transformers' tokenizers give them."""
    rng = np.random.default_rng(0)
    ids, mask, types = (np.zeros((len(lengths), max(lengths)), np.int64) for _ in range(3))
    for row, length in enumerate(lengths):
        ids[row, :length], mask[row, :length] = rng.integers(5, 100, length), 1
        types[row, length // 2 : length] = 1
    return {"input_ids": ids, "attention_mask": mask, "token_type_ids": types}


def runtime_outputs(file, inputs):
    session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
    assert [each.name for each in session.get_inputs()] == ["input_ids", "attention_mask", "token_type_ids"]
    names = [each.name for each in session.get_outputs()]
    return dict(zip(names, session.run(names, inputs), strict=True))


@pytest.mark.parametrize("kind", OUTPUTS)
def test_outputs_of_every_head_equal_ours_in_both_runtimes(kind, saved, tmp_path):
    export(saved(kind, 3 if "classification" in kind else None), tmp_path / "onnx")
    assert output_names(tmp_path / "onnx/model.onnx") == OUTPUTS[kind]
    assert run(["info", str(tmp_path / "onnx"), "--verify"]) == 0
    config_json = json.loads((tmp_path / "onnx/config.json").read_text())
    assert config_json["architectures"] and config_json["albert_onnx"]["opset"] == 20
    assert (tmp_path / "onnx/spiece.model").is_file()
    card = (tmp_path / "onnx/README.md").read_text()
    assert "opset 20" in card
    differences = differences_on(card)
    assert differences.keys() == {"ONNX", "OpenVINO"}
    for largest in differences.values():
        assert max(largest.values()) <= 1e-4 and largest.keys() == set(OUTPUTS[kind]) - {"start_places"}


@pytest.mark.parametrize("kind", THEIRS)
def test_inputs_and_outputs_are_those_of_transformers(kind, saved, tmp_path):
    directory = saved(kind, 3 if kind == "classification" else None)
    export(directory, tmp_path / "model.onnx")
    inputs = padded_batch()
    if kind == "multiple_choice":
        inputs = {name: values.reshape(2, 2, -1) for name, values in inputs.items()}
    outputs = runtime_outputs(tmp_path / "model.onnx", inputs)
    model = getattr(transformers, THEIRS[kind]).from_pretrained(directory).eval()
    with torch.inference_mode():
        expected = model(**{name: torch.from_numpy(values) for name, values in inputs.items()})
    mask = inputs["attention_mask"].astype(bool)
    for name, values in outputs.items():
        other = expected[name].numpy()
        per_token = other.shape[:2] == mask.shape and kind != "multiple_choice"
        np.testing.assert_allclose(*((each[mask] if per_token else each) for each in (values, other)), atol=1e-4)


def test_shared_weights_are_stored_once(config, tmp_path):
    large = replace(config, embedding_size=64, hidden_size=128, intermediate_size=512, num_hidden_layers=6)
    save_model_directory(tmp_path / "model", AlbertForMaskedLM(large), None)
    export(tmp_path / "model", tmp_path / "model.onnx")
    size = (tmp_path / "model.onnx").stat().st_size
    assert size <= 1.1 * (tmp_path / "model/model.safetensors").stat().st_size
    graph = onnx.load(tmp_path / "model.onnx").graph
    contents = [tensor.raw_data for tensor in graph.initializer if len(tensor.raw_data) > 1000]
    assert len(contents) == len(set(contents))
    assert not [node for node in graph.node if node.op_type == "Transpose" and node.input[0] in {
        tensor.name for tensor in graph.initializer}]  # fmt: skip
    export(tmp_path / "model", tmp_path / "int8.onnx", "--precision", "int8")
    assert (tmp_path / "int8.onnx").stat().st_size <= 0.4 * size


def test_int8_outputs_do_not_depend_on_the_batch(saved, tmp_path):
    directory = saved("encoder")
    export(directory, tmp_path / "onnx", "--precision", "int8")
    most = 1 if multiplies_int8(torch.device("cpu")) else 4  # without such products ONNX Runtime cuts sums at 16 bits
    stated = differences_on((tmp_path / "onnx/README.md").read_text())
    assert 1e-4 < stated["ONNX"]["last_hidden_state"] < most
    together, alone = (
        runtime_outputs(
            tmp_path / "onnx/model.onnx", {name: values[:rows, :3] for name, values in padded_batch().items()}
        )
        for rows in (4, 1)
    )
    np.testing.assert_allclose(together["last_hidden_state"][0], alone["last_hidden_state"][0], atol=1e-5)


@pytest.mark.parametrize("opset", [17, 24])
@pytest.mark.parametrize("act", ["gelu", "gelu_new", "relu", "tanh"])
def test_every_opset_and_activation(opset, act, config, tmp_path):
    save_model_directory(tmp_path / "model", AlbertModel(replace(config, hidden_act=act)), None)
    export(tmp_path / "model", tmp_path / "model.onnx", "--opset", str(opset))
    assert onnx.load(tmp_path / "model.onnx").opset_import[0].version == opset


@pytest.mark.parametrize(
    ("extra", "meaning"),
    [
        ({}, "bad, good, in this order; their softmax is the probability of each"),
        ({"problem_type": "multi_label_classification"}, "bad, good, in this order; the sigmoid of each"),
    ],
)
def test_the_card_says_what_the_logits_are(extra, meaning, config, tokenizer_directory, tmp_path):
    names = {"id2label": {"0": "bad", "1": "good"}, "label2id": {"bad": 0, "good": 1}}
    model = AlbertForSequenceClassification(config, 2).eval()
    save_model_directory(tmp_path / "model", model, tokenizer_directory, extra=names | extra)
    export(tmp_path / "model", tmp_path / "onnx")
    assert meaning in (tmp_path / "onnx/README.md").read_text()
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "onnx")
    inputs = dict(tokenizer(["He came."], return_tensors="np"))
    (logits,) = runtime_outputs(tmp_path / "onnx/model.onnx", inputs)["logits"]
    probabilities = 1 / (1 + np.exp(-logits)) if extra else np.exp(logits) / np.exp(logits).sum()
    scores = {
        answer["label"]: answer["score"] for answer in albert.load(tmp_path / "model", "cpu").classify("He came.")
    }
    assert [scores["bad"], scores["good"]] == pytest.approx(probabilities.tolist(), abs=1e-5)


def test_depth(config, tmp_path):
    model = AlbertModel(config).eval()
    save_model_directory(tmp_path / "model", model, None)
    export(tmp_path / "model", tmp_path / "onnx", "--depth", "1")
    assert "1 layer." in (tmp_path / "onnx/README.md").read_text()
    inputs = padded_batch()
    packed = pack([inputs["input_ids"][1]], [inputs["token_type_ids"][1]])
    with torch.inference_mode():
        expected = model.hidden_states(packed)[1].numpy()
    outputs = runtime_outputs(tmp_path / "onnx/model.onnx", inputs)["last_hidden_state"][1]
    np.testing.assert_allclose(outputs, expected, atol=1e-4)


def test_untrained_head_is_left_out(saved, tmp_path):
    directory = saved("pretraining", sentence_objective="none")
    export(directory, tmp_path / "model.onnx")
    assert output_names(tmp_path / "model.onnx") == ["logits"]
    following = saved("pretraining", sentence_objective="nsp")
    export(following, tmp_path / "onnx")
    assert "0 the next segment, 1 a foreign one" in (tmp_path / "onnx/README.md").read_text()


def test_nothing_is_written_if_outputs_differ(saved, tmp_path, refused, monkeypatch):
    monkeypatch.setattr(exporting, "TOLERANCE", -1.0)
    directory, before = saved("encoder"), set(tmp_path.rglob("*"))
    for output in ("onnx", "model.onnx"):
        refused(["export", "onnx", directory, "--output", tmp_path / output], 4, "last_hidden_state")
    assert {path for path in tmp_path.rglob("*") if directory not in path.parents} <= before | {directory}


def test_example_on_the_card_runs(saved, tmp_path, capsys):
    directory = saved("classification", 3)
    export(directory, tmp_path / "onnx")
    card = (tmp_path / "onnx/README.md").read_text()
    example = card.split("```python\n")[1].split("```")[0].replace("path/to/this/directory", str(tmp_path / "onnx"))
    exec(compile(example, "card", "exec"), {})
    out = capsys.readouterr().out
    assert all(label in out for label in albert.load(directory).labels)


def test_missing_extra_is_named(saved, tmp_path, monkeypatch, capsys):
    for module in [name for name in sys.modules if name.startswith("albert.inference.onnx_")]:
        monkeypatch.delitem(sys.modules, module)
        monkeypatch.delattr(module)
    monkeypatch.setitem(sys.modules, "onnx", None)
    code = run(["export", "onnx", str(saved("encoder")), "--output", str(tmp_path / "onnx")])
    assert code == 69
    assert "onnx: is not installed; " in capsys.readouterr().err


@pytest.mark.parametrize("family", ["Roberta", "DistilBert", "Bert"])
def test_a_file_has_the_inputs_that_transformers_gives(family, tmp_path):
    """A model without token types has no input for them, and the example of the card runs."""
    sizes = {"vocab_size": 40, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    sizes |= {"intermediate_size": 24, "max_position_embeddings": 34}
    if family == "DistilBert":
        sizes = {"vocab_size": 40, "dim": 16, "n_layers": 1, "n_heads": 2, "hidden_dim": 24}
    if family == "Roberta":
        sizes |= {"type_vocab_size": 1, "pad_token_id": 1}
    model = getattr(transformers, family + "ForSequenceClassification")
    model(getattr(transformers, family + "Config")(**sizes)).save_pretrained(tmp_path / "model")
    wordpiece_tokenizer([*SPECIAL_PIECES, "short", "text", "a", "."]).save(tmp_path / "model")
    config = json.loads((tmp_path / "model" / "tokenizer_config.json").read_text())
    names = ["input_ids", "attention_mask", *(["token_type_ids"] if family == "Bert" else [])]
    config["model_input_names"] = names
    (tmp_path / "model" / "tokenizer_config.json").write_text(json.dumps(config))
    export(tmp_path / "model", tmp_path / "onnx")
    assert sorted(each.name for each in onnx.load(tmp_path / "onnx" / "model.onnx").graph.input) == sorted(names)
    card = (tmp_path / "onnx" / "README.md").read_text()
    assert ", ".join(names) + ": int64" in card
    (example,) = re.findall(r"```python\n(.*?)```", card, re.DOTALL)
    exec(example.replace("path/to/this/directory", str(tmp_path / "onnx")), {})
