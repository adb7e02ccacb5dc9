"""Equal weights give equal results in transformers: logits, hidden states and gradients of every head.

transformers computes padded batches and saves the weights; `albert` opens them and computes packed batches.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

from albert.checkpoints.huggingface import MODELS, Kind, to_transformers
from albert.checkpoints.model_directory import open_model
from albert.model.packing import PackedSequences, pack

SIZES = {
    "vocab_size": 90,
    "embedding_size": 16,
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 72,
    "max_position_embeddings": 24,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
    "classifier_dropout_prob": 0.0,
}
THEIRS = {
    "one group, erf": {"hidden_act": "gelu"},
    "one group, tanh form": {"hidden_act": "gelu_new"},
    "one group, relu": {"hidden_act": "relu"},
    "one group, tanh": {"hidden_act": "tanh", "num_attention_heads": 1},
    "two groups of two": {"num_hidden_layers": 4, "num_hidden_groups": 2, "inner_group_num": 2},
    "a group a layer": {"num_hidden_groups": 3},
    "E equals H": {"embedding_size": 32, "hidden_act": "gelu"},
    "another epsilon": {"layer_norm_eps": 1e-3},
}
TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-10}
LENGTHS = (11, 24, 3, 8)


KINDS = [kind for kind in MODELS if kind not in ("pair_classification", "joint_question_answering")]


def _our_outputs(kind: Kind, model: Any, packed: PackedSequences) -> list[torch.Tensor]:
    if kind == "encoder":
        states = model.hidden_states(packed)
        return [*states, model.pool(states[-1], packed)]
    positions = (torch.arange(packed.n_tokens),) if kind in ("pretraining", "masked_lm") else ()
    outputs = model(packed, *positions)
    return list(outputs) if isinstance(outputs, tuple) else [outputs]


class Batch:
    """Random sequences, packed and padded."""

    def __init__(self) -> None:
        generator = np.random.default_rng(3)
        # Without the padding token, which has no gradient in transformers.
        ids = [generator.integers(1, SIZES["vocab_size"], length) for length in LENGTHS]
        types = [(np.arange(length) > length // 2).astype(np.int64) for length in LENGTHS]
        self.packed: PackedSequences = pack(ids, types)
        longest = max(LENGTHS)
        self.padded = {
            "input_ids": torch.tensor([[*row, *[0] * (longest - len(row))] for row in ids]),
            "token_type_ids": torch.tensor([[*row, *[0] * (longest - len(row))] for row in types]),
            "attention_mask": torch.tensor([[int(i < length) for i in range(longest)] for length in LENGTHS]),
        }

    def outputs(self, kind: Kind, theirs: transformers.PreTrainedModel) -> list[torch.Tensor]:
        """Outputs of transformers; for multiple choice, the sequences are the options of one question."""
        is_choice, mask = kind == "multiple_choice", self.padded["attention_mask"]
        inputs = {name: tensor[None] if is_choice else tensor for name, tensor in self.padded.items()}
        outputs = theirs(**inputs, output_hidden_states=True)
        tensors = [tensor for name, tensor in outputs.items() if name.endswith("logits")]
        if kind == "encoder":
            tensors = [*outputs.hidden_states, outputs.pooler_output]
        tensors = [tensor[0] if is_choice else tensor for tensor in tensors]
        return [tensor[mask.bool()] if tensor.shape[:2] == mask.shape else tensor for tensor in tensors]


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        *(pytest.param("pretraining", fields, id=name) for name, fields in THEIRS.items()),
        *(pytest.param(kind, THEIRS["two groups of two"], id=kind) for kind in KINDS if kind != "pretraining"),
    ],
)
def test_outputs_and_gradients_are_equal(kind: Kind, fields: dict, dtype: torch.dtype, tmp_path: Path) -> None:
    theirs, ours = _both(kind, {**SIZES, **fields}, dtype, tmp_path)
    batch = Batch()
    expected = batch.outputs(kind, theirs)
    outputs = _our_outputs(kind, ours, batch.packed)
    _assert_all_close(outputs, expected)
    with torch.no_grad():  # other kernels than with gradients
        _assert_all_close(_our_outputs(kind, ours, batch.packed), expected)
    weights = [torch.randn_like(tensor) / tensor.numel() ** 0.5 for tensor in expected]  # a loss of the logits' size
    for tensors in (outputs, expected):
        sum((weight * tensor).sum() for weight, tensor in zip(weights, tensors, strict=True)).backward()
    gradients = {name: parameter.grad for name, parameter in theirs.named_parameters()}
    parameters = _by_their_names(ours)
    assert gradients.keys() == parameters.keys()
    for name, parameter in parameters.items():
        _assert_close(parameter.grad, gradients[name])


@pytest.mark.parametrize("location", ["ffn output", "sentence order"])
def test_dropout_differs_from_transformers_as_documented(location: str, tmp_path: Path) -> None:
    """transformers never applies its dropout after the feed-forward block, and has one before the sentence order."""
    sizes = {**SIZES, "hidden_dropout_prob": 0.5, "classifier_dropout_prob": 0.5}
    theirs, ours = _both("pretraining", sizes, torch.float32, tmp_path)
    batch = Batch()
    layer = theirs.albert.encoder.albert_layer_groups[0].albert_layers[0]
    if location == "ffn output":
        active = (layer.dropout, ours.albert.encoder.feed_forwards[0].dropout)
    else:
        active = (theirs.sop_classifier.dropout,)
    for model in (theirs, ours):
        for part in model.train().modules():
            if isinstance(part, torch.nn.Dropout) and part not in active:
                part.p = 0.0
    with torch.inference_mode():
        their_logits = [batch.outputs("pretraining", theirs)[1] for _ in range(2)]
        our_logits = [_our_outputs("pretraining", ours, batch.packed)[1] for _ in range(2)]
    assert torch.equal(*their_logits) == (location == "ffn output")
    assert torch.equal(*our_logits) == (location == "sentence order")


def _both(kind: Kind, sizes: dict, dtype: torch.dtype, directory: Path) -> tuple[Any, Any]:
    """A model of transformers with random weights, and ours opened from its directory."""
    theirs = getattr(transformers, MODELS[kind].__name__)(transformers.AlbertConfig(**sizes)).to(dtype).eval()
    with torch.no_grad():
        for name, parameter in theirs.named_parameters():
            centre = 1.0 if "norm" in name.lower() and name.endswith("weight") else 0.0
            parameter.normal_(centre, 0.3 if parameter.ndim == 1 else 0.2)
    theirs.save_pretrained(directory)
    opened = open_model(directory, kind, dtype=dtype)
    assert opened.loading_report.missing == opened.loading_report.unexpected == ()
    return theirs, opened.model


def _by_their_names(ours: torch.nn.Module) -> dict[str, torch.nn.Parameter]:
    """Our parameters by their names in transformers, from what `to_transformers` does to numbered tensors."""
    parameters = dict(ours.named_parameters())
    numbered = {name: torch.tensor([float(number)]) for number, name in enumerate(parameters)}
    return {
        name: list(parameters.values())[int(number)]
        for name, number in to_transformers(numbered, ours.config).items()
        if name != "predictions.decoder.bias"  # tied to `predictions.bias`
    }


def _assert_all_close(tensors: list[torch.Tensor], expected: list[torch.Tensor]) -> None:
    for pair in zip(tensors, expected, strict=True):
        _assert_close(*pair)


def _assert_close(tensor: torch.Tensor | None, expected: torch.Tensor | None) -> None:
    assert tensor is not None and expected is not None
    assert (tensor.dtype, tensor.shape) == (expected.dtype, expected.shape)
    scale = max(1.0, float(expected.detach().abs().max()))
    assert float((tensor - expected).detach().abs().max()) <= TOLERANCE[tensor.dtype] * scale
