"""A quantised directory is a quarter of the size; albert opens it like any other, transformers does not."""

import json
import re
from dataclasses import replace

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

import albert
from albert.checkpoints.huggingface import MODELS, build_model
from albert.checkpoints.model_directory import open_model, save_model_directory
from albert.cli.main import run

INT8_WEIGHTS_NAME, QUANTIZATION_KEY = "model.int8.safetensors", "albert_quantization"


@pytest.fixture
def quantized(saved, tmp_path):
    """Save a model and quantise it with the command: both directories."""

    def quantize(*model, **extra):
        source, output = saved(*model, **extra), tmp_path / "int8"
        assert run(["quantize", str(source), "--output", str(output)]) == 0
        return source, output

    return quantize


def largest_difference(directory):
    """That of any output, as the model card says."""
    card = (directory / "README.md").read_text()
    return max(float(number) for number in re.findall(r"at most ([\d.e+-]+)", card))


@pytest.mark.parametrize("projection", [True, False])
@pytest.mark.parametrize(("kind", "sharing"), [*((kind, "all") for kind in MODELS), ("encoder", "attention")])
def test_restored_weights_of_every_head_err_by_half_a_step(kind, sharing, projection, config, quantized):
    config = replace(config, sharing=sharing)
    if not projection:
        config = replace(config, embedding_size=config.hidden_size, embedding_projection=False)
    model = build_model(kind, config, 20 if "classification" in kind else None).eval()
    source, directory = quantized(model)
    opened = open_model(directory, kind)
    assert not opened.loading_report.newly_initialised and not opened.loading_report.unexpected
    for name, weight in model.state_dict().items():
        restored = opened.model.state_dict()[name]
        if weight.ndim == 2 and min(weight.shape) >= 16:
            step = weight.abs().amax(1, keepdim=True) / 127
            assert ((restored - weight).abs() <= 0.51 * step).all() and not torch.equal(restored, weight)
        else:
            assert torch.equal(restored, weight)
    before, after = source / "model.safetensors", directory / INT8_WEIGHTS_NAME
    assert after.stat().st_size < 0.5 * before.stat().st_size and 0 < largest_difference(directory) < 2
    assert run(["info", str(directory), "--verify"]) == 0


def test_size_and_differences_are_reported(quantized, config, capsys):
    large = replace(config, embedding_size=128, hidden_size=256, intermediate_size=1024)
    source, directory = quantized("pretraining", config=large)
    size = (directory / INT8_WEIGHTS_NAME).stat().st_size
    assert size < 0.27 * (source / "model.safetensors").stat().st_size
    capsys.readouterr()
    assert run(["info", str(directory), "--json"]) == 0
    described = json.loads(capsys.readouterr().out)["model"]
    assert described["weight_bytes"] == size and described["verified"]
    assert any("8-bit integers" in note for note in described["tensors"]["notes"])
    card = (directory / "README.md").read_text()
    assert "library_name: albert" in card and "transformers cannot open this" in card
    assert largest_difference(directory) > 0


def test_predictions_are_close_and_transformers_finds_no_weights(quantized):
    directories = quantized("classification", 2, id2label={0: "bad", 1: "good"})
    predictors = [albert.load(path, "cpu", precision="fp32") for path in directories]
    answers = [predictor.classify("It was a dark and stormy night.") for predictor in predictors]
    before, after = ({answer["label"]: answer["score"] for answer in ranked} for ranked in answers)
    assert before["good"] == pytest.approx(after["good"], abs=0.1) and before != after
    openers = (transformers.AutoModel, transformers.AlbertModel, transformers.AlbertForSequenceClassification)
    for opener in openers:
        with pytest.raises(OSError):
            opener.from_pretrained(directories[1])


def test_integers_have_no_name_of_a_weight_in_transformers(quantized):
    source, directory = quantized("encoder")
    theirs = transformers.AlbertModel.from_pretrained(source).state_dict()
    common = {name: tensor for name, tensor in load_file(directory / INT8_WEIGHTS_NAME).items() if name in theirs}
    assert all(tensor.is_floating_point() for tensor in common.values())
    assert not [name for name in common if theirs[name].ndim == 2 and min(theirs[name].shape) >= 16]


def test_saving_it_again_gives_an_ordinary_model(quantized, tmp_path, refused):
    source, directory = quantized("pretraining", sentence_objective="none")
    opened = open_model(directory, "pretraining")
    untrained = open_model(source, "pretraining").loading_report.newly_initialised
    assert opened.loading_report.newly_initialised == untrained != ()
    save_model_directory(tmp_path / "again", opened.model, None, extra=opened.extra)
    assert QUANTIZATION_KEY not in json.loads((tmp_path / "again" / "config.json").read_text())
    assert open_model(tmp_path / "again", "pretraining").model.state_dict().keys() == opened.model.state_dict().keys()
    refused(["quantize", directory, "--output", tmp_path / "twice"], 2, directory)


NAME = "embeddings.word_embeddings.weight"


@pytest.mark.parametrize(
    ("change", "subject"),
    [
        (lambda tensors: tensors.pop(f"{NAME}.scale"), "word_embeddings.weight"),
        (lambda tensors: tensors.pop(f"{NAME}.int8"), "word_embeddings.weight"),
        (lambda tensors: tensors.update({f"{NAME}.scale": torch.ones(3)}), "word_embeddings.weight"),
        (lambda tensors: tensors.update(more=torch.zeros(3, dtype=torch.int8)), "more"),
        (None, "layout version 2"),
    ],
    ids=["no scales", "no integers", "short scales", "integers without scales", "another layout"],
)
def test_inconsistent_tensors_are_refused(change, subject, quantized, refused):
    _, directory = quantized("encoder")
    (directory / "MANIFEST.json").unlink()
    if change is None:
        content = json.loads((directory / "config.json").read_text())
        (directory / "config.json").write_text(json.dumps(content | {QUANTIZATION_KEY: {"layout": 2}}))
    else:
        tensors = load_file(directory / INT8_WEIGHTS_NAME)
        change(tensors)
        save_file(tensors, directory / INT8_WEIGHTS_NAME)
    refused(lambda: albert.open_model(directory), 65, directory, subject)
