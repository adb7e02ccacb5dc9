"""The same weights give the same numbers in transformers and here: logits, hidden states and gradients of every head.

transformers is given padded batches, ours packed ones; it saves, ours opens.
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
LENGTHS = {"one": (1,), "two": (2, 1), "many": (11, 24, 3, 8), "longest": (24,)}


@dataclass(frozen=True)
class Head:
    """A kind of model, what it gives for packed sequences, and what theirs gives for padded ones, as runs alike."""

    kind: Kind
    theirs: type[transformers.PreTrainedModel]
    ours_gives: Callable[[Any, PackedSequences], list[torch.Tensor]]
    theirs_gives: Callable[[Any, Callable[[torch.Tensor], torch.Tensor]], list[torch.Tensor]]


def _everywhere(packed: PackedSequences) -> torch.Tensor:
    return torch.arange(packed.n_tokens)


def _states_and_pooled(model: AlbertModel, packed: PackedSequences) -> list[torch.Tensor]:
    states = model.hidden_states(packed)
    return [*states, model.pool(states[-1], packed)]


HEADS = {
    "encoder": Head(
        "encoder",
        transformers.AlbertModel,
        _states_and_pooled,
        lambda out, run: [*map(run, out.hidden_states), out.pooler_output],
    ),
    "pretraining": Head(
        "pretraining",
        transformers.AlbertForPreTraining,
        lambda model, packed: list(model(packed, _everywhere(packed))),
        lambda out, run: [run(out.prediction_logits), out.sop_logits],
    ),
    "masked_lm": Head(
        "masked_lm",
        transformers.AlbertForMaskedLM,
        lambda model, packed: [model(packed, _everywhere(packed))],
        lambda out, run: [run(out.logits)],
    ),
    "classification": Head(
        "classification",
        transformers.AlbertForSequenceClassification,
        lambda model, packed: [model(packed)],
        lambda out, run: [out.logits],
    ),
    "token_classification": Head(
        "token_classification",
        transformers.AlbertForTokenClassification,
        lambda model, packed: [model(packed)],
        lambda out, run: [run(out.logits)],
    ),
    "question_answering": Head(
        "question_answering",
        transformers.AlbertForQuestionAnswering,
        lambda model, packed: list(model(packed)),
        lambda out, run: [run(out.start_logits), run(out.end_logits)],
    ),
    "multiple_choice": Head(
        "multiple_choice",
        transformers.AlbertForMultipleChoice,
        lambda model, packed: [model(packed)],
        lambda out, run: [out.logits[0]],
    ),
}


class Batch:
    """Sequences of several lengths, as a padded rectangle and packed."""

    def __init__(self, lengths: tuple[int, ...]) -> None:
        generator = np.random.default_rng(3)
        # Not the pad piece: transformers gives it no gradient from looking it up, and no text holds it.
        ids = [generator.integers(1, SIZES["vocab_size"], length) for length in lengths]
        types = [(np.arange(length) > length // 2).astype(np.int64) for length in lengths]
        self.packed: PackedSequences = pack(ids, types)
        longest = max(lengths)
        self.padded = {
            "input_ids": torch.tensor([[*row, *[0] * (longest - len(row))] for row in ids]),
            "token_type_ids": torch.tensor([[*row, *[0] * (longest - len(row))] for row in types]),
            "attention_mask": torch.tensor([[int(i < length) for i in range(longest)] for length in lengths]),
        }

    def run(self, tensor: torch.Tensor) -> torch.Tensor:
        """The cells of a padded result that are no padding, as one run."""
        return tensor[self.padded["attention_mask"].bool()]

    def through(self, theirs: transformers.PreTrainedModel) -> Any:
        """What transformers makes of it; all sequences are options of one question where it asks for such."""
        options = isinstance(theirs, transformers.AlbertForMultipleChoice)
        inputs = {name: tensor[None] if options else tensor for name, tensor in self.padded.items()}
        return theirs(**inputs, output_hidden_states=True)


@pytest.fixture(params=HEADS.values(), ids=HEADS)
def head(request: pytest.FixtureRequest) -> Head:
    return request.param


@pytest.fixture(params=TOLERANCE, ids=str)
def dtype(request: pytest.FixtureRequest) -> torch.dtype:
    return request.param


@pytest.mark.parametrize("fields", THEIRS.values(), ids=THEIRS)
def test_outputs_and_gradients_are_equal(head: Head, fields: dict, dtype: torch.dtype, tmp_path: Path) -> None:
    theirs, ours = _both(head, {**SIZES, **fields}, dtype, tmp_path)
    batch = Batch(LENGTHS["many"])
    expected = head.theirs_gives(batch.through(theirs), batch.run)
    found = head.ours_gives(ours, batch.packed)
    assert len(found) == len(expected)
    weights = [torch.randn_like(tensor) / tensor.numel() ** 0.5 for tensor in expected]  # a loss of the logits' size
    for mine, other in zip(found, expected, strict=True):
        _assert_close(mine, other)
    for outputs in (found, expected):
        sum((weight * output).sum() for weight, output in zip(weights, outputs, strict=True)).backward()
    gradients = {name: parameter.grad for name, parameter in theirs.named_parameters()}
    compared = _by_their_names(ours)
    assert gradients.keys() == compared.keys()
    for name, parameter in compared.items():
        _assert_close(parameter.grad, gradients[name])


@pytest.mark.parametrize("lengths", LENGTHS.values(), ids=LENGTHS)
def test_every_length_gives_the_same(head: Head, lengths: tuple[int, ...], dtype: torch.dtype, tmp_path: Path) -> None:
    theirs, ours = _both(head, SIZES, dtype, tmp_path)
    batch = Batch(lengths)
    with torch.inference_mode():
        found = head.ours_gives(ours, batch.packed)
        for mine, other in zip(found, head.theirs_gives(batch.through(theirs), batch.run), strict=True):
            _assert_close(mine, other)


@pytest.mark.parametrize("kind", ["classification", "token_classification"])
@pytest.mark.parametrize(
    ("problem", "labels"),
    [("regression", 1), ("regression", 3), ("single_label_classification", 2), ("multi_label_classification", 5)],
)
def test_every_problem_type_has_the_same_logits(kind: str, problem: str, labels: int, tmp_path: Path) -> None:
    sizes = {**SIZES, "num_labels": labels, "problem_type": problem}
    theirs, ours = _both(HEADS[kind], sizes, torch.float32, tmp_path)
    batch = Batch(LENGTHS["many"])
    with torch.inference_mode():
        (found,) = HEADS[kind].ours_gives(ours, batch.packed)
        (expected,) = HEADS[kind].theirs_gives(batch.through(theirs), batch.run)
    assert found.shape[1] == labels
    _assert_close(found, expected)
    assert open_model(tmp_path, HEADS[kind].kind).extra["problem_type"] == problem


def test_the_last_hidden_state_is_what_forward_gives(tmp_path: Path) -> None:
    _, ours = _both(HEADS["encoder"], {**SIZES, "inner_group_num": 2}, torch.float32, tmp_path)
    batch = Batch(LENGTHS["many"])
    states = ours.hidden_states(batch.packed)
    assert len(states) == 1 + 2 * SIZES["num_hidden_layers"]
    assert torch.equal(states[0], ours.embeddings(batch.packed))
    assert torch.equal(states[-1], ours(batch.packed))


@pytest.mark.parametrize("place", ["ffn output", "sentence order"])
def test_dropout_differs_in_two_places_as_documented(place: str, tmp_path: Path) -> None:
    """transformers declares dropout after the feed-forward block and never applies it, and has one before the order."""
    sizes = {**SIZES, "hidden_dropout_prob": 0.5, "classifier_dropout_prob": 0.5}
    theirs, ours = _both(HEADS["pretraining"], sizes, torch.float32, tmp_path)
    batch = Batch(LENGTHS["many"])
    layer = theirs.albert.encoder.albert_layer_groups[0].albert_layers[0]
    kept = {"ffn output": (layer.dropout, ours.albert.encoder.feed_forwards[0].dropout),
            "sentence order": (theirs.sop_classifier.dropout, None)}[place]  # fmt: skip
    for model in (theirs, ours):
        for part in model.train().modules():
            if isinstance(part, torch.nn.Dropout) and part not in kept:
                part.p = 0.0
    with torch.inference_mode():
        draws = [batch.through(theirs).sop_logits for _ in range(2)]
        mine = [ours(batch.packed, _everywhere(batch.packed)).sentence_order for _ in range(2)]
    assert torch.equal(*draws) == (place == "ffn output")
    assert torch.equal(*mine) == (place == "sentence order")


def _both(head: Head, sizes: dict, dtype: torch.dtype, directory: Path) -> tuple[Any, Any]:
    """A model of theirs with random values everywhere, and ours opened from what it saved."""
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
    """Our parameters under their names, found by what `to_transformers` does to marked tensors."""
    parameters = dict(ours.named_parameters())
    marked = {name: torch.tensor([float(place)]) for place, name in enumerate(parameters)}
    return {
        theirs: list(parameters.values())[int(mark)]
        for theirs, mark in to_transformers(marked, ours.config).items()
        if theirs != "predictions.decoder.bias"  # another name of `predictions.bias`, which they tie to it
    }


def _assert_close(found: torch.Tensor | None, expected: torch.Tensor | None) -> None:
    assert found is not None and expected is not None
    found, expected = found.detach(), expected.detach()
    assert found.dtype == expected.dtype
    assert found.shape == expected.shape
    scale = max(1.0, float(expected.abs().max()))
    assert float((found - expected).abs().max()) <= TOLERANCE[found.dtype] * scale
