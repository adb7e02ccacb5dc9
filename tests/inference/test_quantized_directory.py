"""A quantised directory is small, is opened by ours like any other, and by transformers not at all."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from safetensors.torch import load_file, save_file

from albert.checkpoints.huggingface import MODELS, Kind, build_model
from albert.checkpoints.loading import INT8_WEIGHTS_NAME, QUANTIZATION_KEY
from albert.checkpoints.model_directory import open_model, read_config, save_model_directory
from albert.inference.engine import quantize_matrix
from albert.inference.inspection import model_report
from albert.inference.int8 import quantize_directory
from albert.inference.predictor import Predictor
from albert.model.albert import AlbertForPreTraining, AlbertForSequenceClassification, AlbertModel
from albert.model.config import AlbertConfig
from albert.runtime.errors import DamagedData, UsageError
from albert.runtime.manifest import MANIFEST_NAME, verify_directory

Save = Callable[..., Path]
NUMBERS = st.floats(-1e6, 1e6, width=32)


@given(arrays.arrays(np.float32, st.tuples(st.integers(1, 5), st.integers(1, 9)), elements=NUMBERS))
def test_restored_weights_quantise_to_the_same_numbers(numbers):
    values, scales = quantize_matrix(torch.from_numpy(numbers))
    again, scales_again = quantize_matrix(values * scales[:, None])
    assert torch.equal(again, values) and torch.equal(scales_again, scales)


@pytest.mark.parametrize("projection", [True, False])
@pytest.mark.parametrize(("kind", "sharing"), [*((kind, "all") for kind in MODELS), ("encoder", "attention")])
def test_every_head_comes_back_with_weights_half_a_step_away(
    kind: Kind, sharing, projection: bool, config: AlbertConfig, saved: Save, tmp_path: Path
):
    config = replace(config, sharing=sharing)
    if not projection:
        config = replace(config, embedding_size=config.hidden_size, embedding_projection=False)
    model = build_model(kind, config, 20 if "classification" in kind else None).eval()
    directory = saved(model)
    report = quantize_directory(directory, tmp_path / "int8")
    opened = open_model(tmp_path / "int8", kind)
    assert not opened.loading_report.newly_initialised and not opened.loading_report.unexpected
    for name, weight in model.state_dict().items():
        restored = opened.model.state_dict()[name]
        if weight.ndim == 2 and min(weight.shape) >= 16:
            step = weight.abs().amax(1, keepdim=True) / 127
            assert ((restored - weight).abs() <= 0.51 * step).all() and not torch.equal(restored, weight)
        else:
            assert torch.equal(restored, weight)
    assert report.bytes_after < 0.5 * report.bytes_before and 0 < max(report.moved.largest.values()) < 2
    verify_directory(tmp_path / "int8")


def test_it_is_a_quarter_of_the_size_and_says_so(saved: Save, config: AlbertConfig, tmp_path: Path):
    large = replace(config, embedding_size=128, hidden_size=256, intermediate_size=1024)
    directory = saved(AlbertForPreTraining(large))
    report = quantize_directory(directory, tmp_path / "int8")
    assert report.bytes_after == (tmp_path / "int8" / INT8_WEIGHTS_NAME).stat().st_size < 0.27 * report.bytes_before
    opened = model_report(tmp_path / "int8")
    assert opened.weight_bytes == report.bytes_after and opened.verified
    assert any("8-bit integers" in note for note in opened.tensors.notes)
    card = (tmp_path / "int8" / "README.md").read_text()
    assert "library_name: albert" in card and "transformers cannot open this" in card
    assert f"{max(report.moved.largest.values()):.3g} at most" in card


def test_a_predictor_opens_it_and_answers_nearly_alike(saved: Save, config: AlbertConfig, tmp_path: Path):
    model = AlbertForSequenceClassification(config, 2)
    directory = saved(model, id2label={0: "bad", 1: "good"})
    quantize_directory(directory, tmp_path / "int8")
    original, quantized = (Predictor.open(path, "cpu", precision="fp32") for path in (directory, tmp_path / "int8"))
    answers = [predictor.classify("It was a dark and stormy night.") for predictor in (original, quantized)]
    scores = [{answer["label"]: answer["score"] for answer in each} for each in answers]
    assert scores[0]["good"] == pytest.approx(scores[1]["good"], abs=0.1) and scores[0] != scores[1]


@pytest.mark.parametrize(
    "opener", [transformers.AutoModel, transformers.AlbertModel, transformers.AlbertForSequenceClassification]
)
def test_transformers_finds_no_weights_in_it(opener, saved: Save, config: AlbertConfig, tmp_path: Path):
    directory = saved(AlbertForSequenceClassification(config, 2))
    quantize_directory(directory, tmp_path / "int8")
    with pytest.raises(OSError, match=r"no file named .*model\.safetensors"):
        opener.from_pretrained(tmp_path / "int8")


def test_no_integer_has_the_name_of_a_weight(saved: Save, config: AlbertConfig, tmp_path: Path):
    directory = saved(AlbertModel(config))
    quantize_directory(directory, tmp_path / "int8")
    theirs = transformers.AlbertModel.from_pretrained(directory).state_dict()
    ours = load_file(tmp_path / "int8" / INT8_WEIGHTS_NAME)
    assert not [name for name, tensor in ours.items() if name in theirs and not tensor.is_floating_point()]
    assert {name for name in ours if name in theirs} <= {
        n for n, t in theirs.items() if t.ndim < 2 or min(t.shape) < 16
    }


def test_what_is_made_of_it_is_an_ordinary_model(saved: Save, config: AlbertConfig, tmp_path: Path):
    directory = saved(AlbertForPreTraining(config))
    quantize_directory(directory, tmp_path / "int8")
    opened = open_model(tmp_path / "int8", "pretraining")
    save_model_directory(tmp_path / "again", opened.model, None, extra=opened.extra)
    assert QUANTIZATION_KEY not in read_config(tmp_path / "again")[1]
    assert open_model(tmp_path / "again", "pretraining").model.state_dict().keys() == opened.model.state_dict().keys()


def test_an_untrained_head_is_not_written_as_a_trained_one(saved: Save, config: AlbertConfig, tmp_path: Path):
    directory = saved(AlbertForPreTraining(config), sentence_objective="none")
    quantize_directory(directory, tmp_path / "int8")
    initialised = open_model(tmp_path / "int8", "pretraining").loading_report.newly_initialised
    assert initialised == open_model(directory, "pretraining").loading_report.newly_initialised != ()


def test_twice_is_refused(saved: Save, config: AlbertConfig, tmp_path: Path):
    quantize_directory(saved(AlbertModel(config)), tmp_path / "int8")
    with pytest.raises(UsageError, match="quantised already"):
        quantize_directory(tmp_path / "int8", tmp_path / "twice")


@pytest.mark.parametrize("damage", ["no scales", "no integers", "short scales", "other format", "integers of nothing"])
def test_what_does_not_go_together_is_refused(damage: str, saved: Save, config: AlbertConfig, tmp_path: Path):
    quantize_directory(saved(AlbertModel(config)), tmp_path / "int8")
    (tmp_path / "int8" / MANIFEST_NAME).unlink()
    file, name = tmp_path / "int8" / INT8_WEIGHTS_NAME, "embeddings.word_embeddings.weight"
    tensors = load_file(file)
    if damage == "no scales":
        del tensors[f"{name}.scale"]
    elif damage == "no integers":
        del tensors[f"{name}.int8"]
    elif damage == "short scales":
        tensors[f"{name}.scale"] = tensors[f"{name}.scale"][1:].clone()
    elif damage == "integers of nothing":
        tensors["more"] = torch.zeros(3, dtype=torch.int8)
    else:
        config_file = tmp_path / "int8" / "config.json"
        content = json.loads(config_file.read_text())
        config_file.write_text(json.dumps(content | {QUANTIZATION_KEY: {"format": "int3"}}))
    save_file(tensors, file)
    with pytest.raises(DamagedData, match=r"format 'int3'|word_embeddings\.weight|more is"):
        open_model(tmp_path / "int8", "encoder")
