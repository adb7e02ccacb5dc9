"""The one comparison with transformers: a model of each family with each head, computed there and here.

`make` makes a model of transformers with random weights; `theirs` are its outputs for sequences, one by one; `ours`
those of a directory, in one packed batch. `from_texts` begins with texts, by the tokenizer of a directory.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers

from albert.checkpoints.config_json import read_config
from albert.checkpoints.huggingface import kind_of, to_transformers
from albert.checkpoints.model_directory import OpenedModel, open_model
from albert.model.albert import AlbertModel
from albert.model.families import family_of
from albert.model.packing import PackedSequences, pack

SIZES = {
    "vocab_size": 60,
    "hidden_size": 16,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 24,
    "max_position_embeddings": 32,
    "initializer_range": 0.5,
}
AFTER_PADDING = SIZES | {"max_position_embeddings": 34, "type_vocab_size": 1, "layer_norm_eps": 1e-5}
DISTIL = {
    "vocab_size": 60,
    "dim": 16,
    "n_layers": 3,
    "n_heads": 4,
    "hidden_dim": 24,
    "max_position_embeddings": 32,
    "initializer_range": 0.5,
}
FAMILIES: dict[str, dict[str, Any]] = {
    "Albert": SIZES | {"embedding_size": 8},
    "Bert": SIZES,
    "DistilBert": DISTIL,
    "Roberta": AFTER_PADDING,
    "XLMRoberta": AFTER_PADDING,
    "Camembert": AFTER_PADDING,
    "Electra": SIZES | {"embedding_size": 8},
}
"""How the names of the classes of transformers begin -> a small configuration."""
HEADS = (
    "Model",
    "ForMaskedLM",
    "ForSequenceClassification",
    "ForTokenClassification",
    "ForQuestionAnswering",
    "ForMultipleChoice",
)
"""How the names of those classes end that every family has."""
FAMILIES_AND_HEADS = [(family, head) for family in FAMILIES for head in HEADS]
FAMILIES_AND_HEADS += [("Albert", "ForPreTraining"), ("Bert", "ForPreTraining")]
IDS = [np.arange(5, 37), np.array([7, 8, 9, 10, 3])]
TYPES = [np.repeat([0, 1], [10, 22]), np.array([0, 0, 1, 1, 1])]
TOLERANCE = {torch.float64: 1e-11, torch.float32: 2e-5}
"""The largest difference, as a share of the largest value."""
OF_GRADIENTS = 10
"""Gradients are sums of many more numbers."""


def make(family: str, head: str, dtype: torch.dtype = torch.float64, **changes: Any) -> Any:
    """A model of transformers with random weights, biases included."""
    torch.manual_seed(0)
    config = getattr(transformers, family + "Config")(**FAMILIES[family] | changes)
    model = getattr(transformers, family + head)(config).to(dtype).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    return model


def theirs(
    model: Any, head: str, ids: Sequence[np.ndarray] = IDS, types: Sequence[np.ndarray] = TYPES
) -> list[torch.Tensor]:
    """Every output of transformers: logits, or of an encoder the states after each layer and the pooled ones."""
    rows = []
    for own_ids, own_types in zip(ids, types, strict=True):
        inputs = {"input_ids": torch.tensor(own_ids)[None]}
        if getattr(model.config, "type_vocab_size", 1) > 1:
            inputs["token_type_ids"] = torch.tensor(own_types)[None]
        if head == "ForMultipleChoice":
            inputs = {name: value[None] for name, value in inputs.items()}
        outputs = model(**inputs, output_hidden_states=True)
        if head == "Model":
            pooled = outputs.get("pooler_output")
            values = [*outputs.hidden_states, *([] if pooled is None else [pooled])]
        else:
            values = [value for name, value in outputs.items() if name.endswith("logits")]
        if head == "ForMultipleChoice":
            values = [value[:, 0] for value in values]
        rows.append([value[0] if value.shape[:2] == (1, len(own_ids)) else value for value in values])
    return [torch.cat(values) for values in zip(*rows, strict=True)]


def outputs_of(model: Any, packed: PackedSequences) -> list[torch.Tensor]:
    """The same outputs of a model of ours."""
    if isinstance(model, AlbertModel):
        states = model.hidden_states(packed)
        return [*states, *([model.pool(states[-1], packed)] if family_of(model.config).has_pooler else [])]
    masked = (torch.arange(packed.n_tokens),) if hasattr(model, "predictions") else ()
    outputs = model(packed, *masked)
    return list(outputs) if isinstance(outputs, tuple) else [outputs]


def ours(
    directory: Path,
    dtype: torch.dtype = torch.float64,
    ids: Sequence[np.ndarray] = IDS,
    types: Sequence[np.ndarray] = TYPES,
) -> tuple[list[torch.Tensor], OpenedModel]:
    """Our outputs for the model in a directory, in one packed batch, and the opened model."""
    opened = open_model(directory, kind_of(read_config(directory)[1]), dtype=dtype)
    with torch.no_grad():
        return outputs_of(opened.model, pack(ids, types)), opened


def assert_same(actual: Sequence[torch.Tensor], expected: Sequence[torch.Tensor], factor: float = 1) -> None:
    """The tensors are equal but for rounding; `factor` multiplies the tolerance."""
    for tensor, other in zip(actual, expected, strict=True):
        assert (tensor.dtype, tensor.shape) == (other.dtype, other.shape)
        scale = max(1.0, float(other.detach().abs().max()))
        torch.testing.assert_close(tensor, other, rtol=0, atol=TOLERANCE[tensor.dtype] * factor * scale)


def assert_same_gradients(opened: OpenedModel, model: Any) -> None:
    """After both have gone backwards, every parameter of transformers has the gradient of ours."""
    family = family_of(opened.config)
    ours: dict[str, torch.Tensor] = {}
    for name, parameter in opened.model.named_parameters():
        is_absent = parameter.grad is None or (family.name == "distilbert" and "token_type" in name)
        ours[name] = torch.zeros_like(parameter) if is_absent else parameter.grad
    named = to_transformers(ours, opened.config, family.our_class(type(model).__name__))
    for name, parameter in model.named_parameters():
        actual = named[name if name in named else family.copies[name]]
        assert_same([actual], [torch.zeros_like(parameter) if parameter.grad is None else parameter.grad], OF_GRADIENTS)


def assert_transformers_opens(directory: Path | str, ids: Sequence[np.ndarray], types: Sequence[np.ndarray]) -> Any:
    """The class that `config.json` names has our outputs; of a head that transformers lacks the states of its encoder.

    Returns the model that transformers opened.
    """
    directory = Path(directory)
    (name,) = json.loads((directory / "config.json").read_text())["architectures"]
    is_known = hasattr(transformers, name)
    kind = getattr(transformers, name) if is_known else transformers.AlbertModel
    model = kind.from_pretrained(directory, **({} if is_known else {"add_pooling_layer": False})).eval()
    with torch.no_grad():
        expected = theirs(model, kind.__name__.removeprefix("Albert"), ids, types)
        actual, opened = ours(directory, torch.float32, ids, types)
        if not is_known:
            actual = opened.model.albert.hidden_states(pack(ids, types))
    assert_same(actual, expected)
    return model


def from_texts(path: Path | str, kind: Any, *texts: Any, **settings: Any) -> tuple[Any, Any]:
    """Inputs and outputs of transformers for a text or a pair, by the tokenizer of the directory.

    Args:
        kind: a class that opens the directory, or an open model; of multiple choice the texts belong to one question.
        settings: of the tokenizer.
    """
    model = (kind if isinstance(kind, torch.nn.Module) else kind.from_pretrained(path)).eval()
    inputs = transformers.AutoTokenizer.from_pretrained(path)(*texts, return_tensors="pt", **settings)
    if getattr(model.config, "type_vocab_size", 1) < 2:
        inputs.pop("token_type_ids", None)
    is_choice = "MultipleChoice" in type(model).__name__
    with torch.inference_mode():
        return inputs, model(**{name: tensor[None] if is_choice else tensor for name, tensor in inputs.items()})
