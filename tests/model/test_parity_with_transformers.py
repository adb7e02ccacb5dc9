"""Equal weights give equal results in transformers: logits, hidden states and gradients of every head.

transformers computes padded batches and saves the weights; `albert` opens them and computes packed batches.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

from albert.checkpoints.huggingface import Kind, to_transformers
from albert.checkpoints.model_directory import open_model
from albert.model.albert import AlbertModel
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


@dataclass(frozen=True)
class Head:
    """A kind of model, and the outputs of both implementations in the same form."""

    kind: Kind
    theirs: type[transformers.PreTrainedModel]
    our_outputs: Callable[[Any, PackedSequences], list[torch.Tensor]]
    their_outputs: Callable[[Any, Callable[[torch.Tensor], torch.Tensor]], list[torch.Tensor]]


def _all_positions(packed: PackedSequences) -> torch.Tensor:
    return torch.arange(packed.n_tokens)


def _states_and_pooled(model: AlbertModel, packed: PackedSequences) -> list[torch.Tensor]:
    states = model.hidden_states(packed)
    return [*states, model.pool(states[-1], packed)]


def _logits(model: torch.nn.Module, packed: PackedSequences) -> list[torch.Tensor]:
    return [model(packed)]


HEADS = {
    head.kind: head
    for head in (
        Head(
            "encoder",
            transformers.AlbertModel,
            _states_and_pooled,
            lambda out, unpad: [*map(unpad, out.hidden_states), out.pooler_output],
        ),
        Head(
            "pretraining",
            transformers.AlbertForPreTraining,
            lambda model, packed: list(model(packed, _all_positions(packed))),
            lambda out, unpad: [unpad(out.prediction_logits), out.sop_logits],
        ),
        Head(
            "masked_lm",
            transformers.AlbertForMaskedLM,
            lambda model, packed: [model(packed, _all_positions(packed))],
            lambda out, unpad: [unpad(out.logits)],
        ),
        Head(
            "question_answering",
            transformers.AlbertForQuestionAnswering,
            lambda model, packed: list(model(packed)),
            lambda out, unpad: [unpad(out.start_logits), unpad(out.end_logits)],
        ),
        Head("classification", transformers.AlbertForSequenceClassification, _logits, lambda out, _: [out.logits]),
        Head("multiple_choice", transformers.AlbertForMultipleChoice, _logits, lambda out, _: [out.logits[0]]),
        Head(
            "token_classification",
            transformers.AlbertForTokenClassification,
            _logits,
            lambda out, unpad: [unpad(out.logits)],
        ),
    )
}


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

    def unpad(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor[self.padded["attention_mask"].bool()]

    def outputs(self, head: Head, theirs: transformers.PreTrainedModel) -> list[torch.Tensor]:
        """Outputs of transformers; for multiple choice, the sequences are the options of one question."""
        options = isinstance(theirs, transformers.AlbertForMultipleChoice)
        inputs = {name: tensor[None] if options else tensor for name, tensor in self.padded.items()}
        return head.their_outputs(theirs(**inputs, output_hidden_states=True), self.unpad)


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("head", HEADS.values(), ids=HEADS)
@pytest.mark.parametrize("fields", THEIRS.values(), ids=THEIRS)
def test_outputs_and_gradients_are_equal(head: Head, fields: dict, dtype: torch.dtype, tmp_path: Path) -> None:
    theirs, ours = _both(head, {**SIZES, **fields}, dtype, tmp_path)
    batch = Batch()
    expected = batch.outputs(head, theirs)
    outputs = head.our_outputs(ours, batch.packed)
    _assert_all_close(outputs, expected)
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
    theirs, ours = _both(HEADS["pretraining"], sizes, torch.float32, tmp_path)
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
        their_logits = [batch.outputs(HEADS["pretraining"], theirs)[1] for _ in range(2)]
        our_logits = [ours(batch.packed, _all_positions(batch.packed)).sentence_order for _ in range(2)]
    assert torch.equal(*their_logits) == (location == "ffn output")
    assert torch.equal(*our_logits) == (location == "sentence order")


def _both(head: Head, sizes: dict, dtype: torch.dtype, directory: Path) -> tuple[Any, Any]:
    """A model of transformers with random weights, and ours opened from its directory."""
    theirs = head.theirs(transformers.AlbertConfig(**sizes)).to(dtype).eval()
    with torch.no_grad():
        for name, parameter in theirs.named_parameters():
            centre = 1.0 if "norm" in name.lower() and name.endswith("weight") else 0.0
            parameter.normal_(centre, 0.3 if parameter.ndim == 1 else 0.2)
    theirs.save_pretrained(directory)
    opened = open_model(directory, head.kind, dtype=dtype)
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
