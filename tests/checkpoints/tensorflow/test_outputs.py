"""What TensorFlow's graph computes, its conversion computes: every layer, the pooled sequence, every head, to 1e-5."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers

from albert.checkpoints.convert import ConversionOptions, TokenizerOptions, convert
from albert.checkpoints.model_directory import open_model
from albert.checkpoints.tensor_bundle import TensorBundle
from albert.inference.int8 import quantize_directory
from albert.model.packing import PackedSequences, pack

TOLERANCE = 1e-5
CASES = ("shared", "groups", "unfactorised", "classifier", "hub_classifier", "squad_v1", "squad_v2")
PRETRAINED = ("shared", "groups", "unfactorised")


class Recorded:
    """Inputs and outputs of the source graph; the rows of real tokens are ours."""

    def __init__(self, directory: Path) -> None:
        with np.load(directory / "expected.npz") as content:
            self.values = {name: torch.from_numpy(content[name]) for name in content.files}
        self.real = self.values["input_mask"].bool()

    def packed(self) -> PackedSequences:
        ids, types = (self.values[name].numpy() for name in ("input_ids", "segment_ids"))
        rows = self.real.numpy()
        return pack([ids[n][row] for n, row in enumerate(rows)], [types[n][row] for n, row in enumerate(rows)])

    def masked_positions(self) -> torch.Tensor:
        """In the run of tokens, row by row."""
        first = torch.cat([torch.zeros(1, dtype=torch.long), self.real.sum(1).cumsum(0)[:-1]])
        return (self.values["masked_positions"] + first[:, None]).reshape(-1)


@pytest.fixture
def converted(checkpoints, tmp_path):
    def make(case: str) -> tuple[Path, Recorded]:
        output = tmp_path / case
        convert(str(checkpoints / case), output, ConversionOptions(), TokenizerOptions(without=True))
        return output, Recorded(checkpoints / case)

    return make


def close(found: torch.Tensor, expected: torch.Tensor) -> bool:
    return found.shape == expected.shape and float((found - expected).abs().max()) <= TOLERANCE


@pytest.mark.parametrize("case", CASES)
def test_every_layer_and_the_pooled_sequence(converted, case):
    directory, recorded = converted(case)
    model, packed = open_model(directory, "encoder").model, recorded.packed()
    with torch.inference_mode():
        states = model.encoder.hidden_states(model.embeddings(packed), packed)
        layers = recorded.values["layers"]
        assert len(states) - 1 == len(layers)
        for state, layer in zip(states[1:], layers, strict=True):
            assert close(state, layer[recorded.real])
        assert close(states[-1], recorded.values["sequence_output"][recorded.real])
        if case != "squad_v1":  # whose class has no pooler
            assert close(model.pool(states[-1], packed), recorded.values["pooled_output"])


@pytest.mark.parametrize("case", PRETRAINED)
def test_the_heads_of_pretraining(converted, case):
    directory, recorded = converted(case)
    opened = open_model(directory, "pretraining")
    assert not opened.loading_report.newly_initialised and not opened.loading_report.unexpected
    with torch.inference_mode():
        logits = opened.model(recorded.packed(), recorded.masked_positions())
    assert close(logits.masked_tokens.log_softmax(-1), recorded.values["masked_token_log_probs"])
    assert close(logits.sentence_order.log_softmax(-1), recorded.values["sentence_order_log_probs"])


@pytest.mark.parametrize("case", ["classifier", "hub_classifier"])
def test_the_head_of_a_classifier(converted, case):
    directory, recorded = converted(case)
    with torch.inference_mode():
        logits = open_model(directory, "classification").model(recorded.packed())
    assert close(logits, recorded.values["logits"])


def test_the_head_of_squad(converted):
    directory, recorded = converted("squad_v1")
    with torch.inference_mode():
        start, end = open_model(directory, "question_answering").model(recorded.packed())
    assert close(start, recorded.values["start_logits"][recorded.real])
    assert close(end, recorded.values["end_logits"][recorded.real])


@pytest.mark.parametrize("case", PRETRAINED)
def test_transformers_computes_it_too(converted, case):
    """From the same directory; but for the last layer norm of its masked language model, whose epsilon is 1e-5."""
    directory, recorded = converted(case)
    model, report = transformers.AlbertForPreTraining.from_pretrained(directory, output_loading_info=True)
    assert not report["missing_keys"] and not report["unexpected_keys"]
    with torch.inference_mode():
        outputs = model.eval()(
            input_ids=recorded.values["input_ids"].long(),
            token_type_ids=recorded.values["segment_ids"].long(),
            attention_mask=recorded.values["input_mask"].long(),
            output_hidden_states=True,
        )
    assert close(outputs.hidden_states[-1][recorded.real], recorded.values["sequence_output"][recorded.real])
    assert close(outputs.sop_logits.log_softmax(-1), recorded.values["sentence_order_log_probs"])
    rows = torch.arange(2)[:, None]
    masked = outputs.prediction_logits[rows, recorded.values["masked_positions"].long()].flatten(0, 1)
    difference = (masked.log_softmax(-1) - recorded.values["masked_token_log_probs"]).abs().max()
    assert float(difference) <= 1e-3


def test_a_converted_model_without_a_projection_is_quantised(writer, checkpoints, tmp_path):
    """Four times as wide as the recorded one, whose matrices are too small to be stored as integers."""
    source, wide = checkpoints / "unfactorised", tmp_path / "wide"
    wide.mkdir()
    config = json.loads((source / "albert_config.json").read_text())
    config |= {"embedding_size": 32, "hidden_size": 32, "intermediate_size": 48}
    (wide / "albert_config.json").write_text(json.dumps(config))
    bundle, widths = TensorBundle(source / "model.ckpt-best"), {8: 32, 12: 48}
    shapes = {name: bundle.read(name).shape for name in bundle.entries}
    tensors = {name: torch.randn([widths.get(size, size) for size in shape]) * 0.3 for name, shape in shapes.items()}
    writer.write_bundle(wide / "model", tensors)
    convert(str(wide), tmp_path / "converted", ConversionOptions(), TokenizerOptions(without=True))
    quantize_directory(tmp_path / "converted", tmp_path / "int8")
    packed = pack([np.arange(5, 17), np.arange(20, 29)], [np.zeros(12, int), np.ones(9, int)])
    before, after = (open_model(tmp_path / name, "pretraining").model for name in ("converted", "int8"))
    assert not after.config.projects_embeddings
    with torch.inference_mode():
        expected, found = (model(packed, torch.arange(21)) for model in (before, after))
    for one, other in zip(found, expected, strict=True):
        assert 0 < float((one - other).norm() / other.norm()) < 0.1
