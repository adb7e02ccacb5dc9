"""A quantised directory is a quarter of the size; albert opens it like any other, transformers does not."""

import json
from dataclasses import replace

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from albert.checkpoints.huggingface import MODELS, build_model
from albert.checkpoints.loading import INT8_WEIGHTS_NAME, QUANTIZATION_KEY
from albert.checkpoints.model_directory import open_model, read_config, save_model_directory
from albert.inference.inspection import model_report
from albert.inference.int8 import quantize_directory
from albert.inference.predictor import Predictor
from albert.runtime.errors import DamagedData, UsageError
from albert.runtime.manifest import MANIFEST_NAME, verify_directory


@pytest.fixture
def quantized(saved, tmp_path):
    """Save a model and quantise it: both directories, and the report."""

    def quantize(*model, **extra):
        source, output = saved(*model, **extra), tmp_path / "int8"
        return source, output, quantize_directory(source, output)

    return quantize


@pytest.mark.parametrize("projection", [True, False])
@pytest.mark.parametrize(("kind", "sharing"), [*((kind, "all") for kind in MODELS), ("encoder", "attention")])
def test_restored_weights_of_every_head_err_by_half_a_step(kind, sharing, projection, config, quantized):
    config = replace(config, sharing=sharing)
    if not projection:
        config = replace(config, embedding_size=config.hidden_size, embedding_projection=False)
    model = build_model(kind, config, 20 if "classification" in kind else None).eval()
    _, directory, report = quantized(model)
    opened = open_model(directory, kind)
    assert not opened.loading_report.newly_initialised and not opened.loading_report.unexpected
    for name, weight in model.state_dict().items():
        restored = opened.model.state_dict()[name]
        if weight.ndim == 2 and min(weight.shape) >= 16:
            step = weight.abs().amax(1, keepdim=True) / 127
            assert ((restored - weight).abs() <= 0.51 * step).all() and not torch.equal(restored, weight)
        else:
            assert torch.equal(restored, weight)
    assert report.bytes_after < 0.5 * report.bytes_before and 0 < max(report.moved.largest.values()) < 2
    verify_directory(directory)


def test_size_and_differences_are_reported(quantized, config):
    large = replace(config, embedding_size=128, hidden_size=256, intermediate_size=1024)
    _, directory, report = quantized("pretraining", config=large)
    assert report.bytes_after == (directory / INT8_WEIGHTS_NAME).stat().st_size < 0.27 * report.bytes_before
    opened = model_report(directory)
    assert opened.weight_bytes == report.bytes_after and opened.verified
    assert any("8-bit integers" in note for note in opened.tensors.notes)
    card = (directory / "README.md").read_text()
    assert "library_name: albert" in card and "transformers cannot open this" in card
    assert f"{max(report.moved.largest.values()):.3g} at most" in card


def test_predictions_are_close_and_transformers_finds_no_weights(quantized):
    *directories, _ = quantized("classification", 2, id2label={0: "bad", 1: "good"})
    predictors = [Predictor.open(path, "cpu", precision="fp32") for path in directories]
    answers = [predictor.classify("It was a dark and stormy night.") for predictor in predictors]
    before, after = ({answer["label"]: answer["score"] for answer in ranked} for ranked in answers)
    assert before["good"] == pytest.approx(after["good"], abs=0.1) and before != after
    openers = (transformers.AutoModel, transformers.AlbertModel, transformers.AlbertForSequenceClassification)
    for opener in openers:
        with pytest.raises(OSError, match=r"no file named .*model\.safetensors"):
            opener.from_pretrained(directories[1])


def test_integers_have_no_name_of_a_weight_in_transformers(quantized):
    source, directory, _ = quantized("encoder")
    theirs = transformers.AlbertModel.from_pretrained(source).state_dict()
    common = {name: tensor for name, tensor in load_file(directory / INT8_WEIGHTS_NAME).items() if name in theirs}
    assert all(tensor.is_floating_point() for tensor in common.values())
    assert not [name for name in common if theirs[name].ndim == 2 and min(theirs[name].shape) >= 16]


def test_saving_it_again_gives_an_ordinary_model(quantized, tmp_path):
    source, directory, _ = quantized("pretraining", sentence_objective="none")
    opened = open_model(directory, "pretraining")
    untrained = open_model(source, "pretraining").loading_report.newly_initialised
    assert opened.loading_report.newly_initialised == untrained != ()
    save_model_directory(tmp_path / "again", opened.model, None, extra=opened.extra)
    assert QUANTIZATION_KEY not in read_config(tmp_path / "again")[1]
    assert open_model(tmp_path / "again", "pretraining").model.state_dict().keys() == opened.model.state_dict().keys()
    with pytest.raises(UsageError, match="quantised already"):
        quantize_directory(directory, tmp_path / "twice")


NAME = "embeddings.word_embeddings.weight"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda tensors: tensors.pop(f"{NAME}.scale"), r"word_embeddings\.weight"),
        (lambda tensors: tensors.pop(f"{NAME}.int8"), r"word_embeddings\.weight"),
        (lambda tensors: tensors.update({f"{NAME}.scale": torch.ones(3)}), r"word_embeddings\.weight"),
        (lambda tensors: tensors.update(more=torch.zeros(3, dtype=torch.int8)), "more is"),
        (None, "format 'int3'"),
    ],
    ids=["no scales", "no integers", "short scales", "integers without scales", "unknown format"],
)
def test_inconsistent_tensors_are_refused(change, message, quantized):
    _, directory, _ = quantized("encoder")
    (directory / MANIFEST_NAME).unlink()
    if change is None:
        content = json.loads((directory / "config.json").read_text())
        (directory / "config.json").write_text(json.dumps(content | {QUANTIZATION_KEY: {"format": "int3"}}))
    else:
        tensors = load_file(directory / INT8_WEIGHTS_NAME)
        change(tensors)
        save_file(tensors, directory / INT8_WEIGHTS_NAME)
    with pytest.raises(DamagedData, match=message):
        open_model(directory, "encoder")
