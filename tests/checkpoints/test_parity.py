"""Every head of every family has the numbers of transformers, forwards and backwards, and goes there and back."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file
from tests.parity import (
    FAMILIES_AND_HEADS,
    IDS,
    TYPES,
    assert_same,
    assert_same_gradients,
    make,
    ours,
    outputs_of,
    theirs,
)
from tests.tiny import tiny_config
from torch import nn

from albert.checkpoints.config_json import read_config
from albert.checkpoints.huggingface import KINDS, MODELS
from albert.checkpoints.model_directory import open_model, write_model
from albert.model.packing import pack

VARIANTS = {
    "one group, erf": {"hidden_act": "gelu"},
    "one group, tanh form": {"hidden_act": "gelu_new"},
    "one group, relu": {"hidden_act": "relu"},
    "one group, tanh": {"hidden_act": "tanh", "num_attention_heads": 1},
    "two groups of two": {"num_hidden_layers": 4, "num_hidden_groups": 2, "inner_group_num": 2},
    "a group a layer": {"num_hidden_groups": 3},
    "E equals H": {"embedding_size": 16, "hidden_act": "gelu"},
    "another epsilon": {"layer_norm_eps": 1e-3},
}
"""Of ALBERT's configuration."""
CASES = [
    *(pytest.param(family, head, {}, id=family + head) for family, head in FAMILIES_AND_HEADS),
    *(pytest.param("Albert", "ForPreTraining", fields, id=name) for name, fields in VARIANTS.items()),
    *(pytest.param("Bert", "ForMaskedLM", {"hidden_act": name, "layer_norm_eps": 1e-3}, id=name)
      for name in ("gelu_new", "relu", "gelu_pytorch_tanh", "gelu_fast")),
]  # fmt: skip
IN_SINGLE_PRECISION = [case for case in CASES if case.values[0] == "Albert" or case.values[1] == "ForMaskedLM"]
HALVES = [torch.bfloat16, torch.float16]


@pytest.fixture
def folder(tmp_path: Path):
    """Returns a function that makes a folder."""

    def new(name: str) -> Path:
        (tmp_path / name).mkdir()
        return tmp_path / name

    return new


@pytest.mark.parametrize(
    ("family", "head", "fields", "dtype"),
    [
        *(pytest.param(*case.values, torch.float64, id=str(case.id)) for case in CASES),
        *(
            pytest.param(*case.values, torch.float32, id=f"{case.id} in single precision")
            for case in IN_SINGLE_PRECISION
        ),
    ],
)
def test_outputs_and_gradients_are_equal(family, head, fields, dtype, tmp_path):
    model = make(family, head, dtype, **fields)
    model.save_pretrained(tmp_path)
    without_gradients, opened = ours(tmp_path, dtype)  # other kernels
    assert not [name for name in opened.loading_report.drawn if "pooler" not in name]
    assert opened.loading_report.unexpected == ()
    expected = theirs(model, head)
    assert_same(without_gradients, expected)
    outputs = outputs_of(opened.model, pack(IDS, TYPES))
    assert_same(outputs, expected)

    weights = [torch.randn_like(tensor) / tensor.numel() ** 0.5 for tensor in expected]  # a loss of the logits' size
    for tensors in (outputs, expected):
        sum((weight * tensor).sum() for weight, tensor in zip(weights, tensors, strict=True)).backward()
    assert_same_gradients(opened, model)


@pytest.mark.parametrize("location", ["ffn output", "sentence order"])
def test_dropout_differs_from_transformers_as_documented(location, tmp_path):
    """transformers never applies its dropout after the feed-forward block, and has one before the sentence order."""
    shares = {"hidden_dropout_prob": 0.5, "classifier_dropout_prob": 0.5}
    model = make("Albert", "ForPreTraining", **shares)
    model.save_pretrained(tmp_path)
    mine = ours(tmp_path)[1].model
    layer = model.albert.encoder.albert_layer_groups[0].albert_layers[0]
    if location == "ffn output":
        active = (layer.dropout, mine.albert.encoder.feed_forwards[0].dropout)
    else:
        active = (model.sop_classifier.dropout,)
    for each in (model, mine):
        for part in each.train().modules():
            if isinstance(part, nn.Dropout) and part not in active:
                part.p = 0.0
    with torch.inference_mode():
        their_logits = [theirs(model, "ForPreTraining")[1] for _ in range(2)]
        our_logits = [outputs_of(mine, pack(IDS, TYPES))[1] for _ in range(2)]
    assert torch.equal(*their_logits) == (location == "ffn output")
    assert torch.equal(*our_logits) == (location == "sentence order")


def test_the_last_of_512_positions(tmp_path):
    model = make("Roberta", "Model", torch.float32, max_position_embeddings=514)
    model.save_pretrained(tmp_path)
    ids = [np.random.default_rng(0).integers(5, 60, 512)]
    with torch.no_grad():
        assert_same(ours(tmp_path, torch.float32, ids, [np.zeros(512, np.int64)])[0], theirs(model, "Model", ids, ids))


# --------------------------------------------------------------------------------------------------------------------
# There and back.


@pytest.mark.parametrize(
    ("family", "head", "fields", "dtype"),
    [
        *((family, head, {}, torch.float32) for family, head in FAMILIES_AND_HEADS),
        *(("Albert", "ForPreTraining", {}, dtype) for dtype in HALVES),
        ("Albert", "ForPreTraining", {"num_hidden_groups": 3}, torch.float32),
        ("Albert", "ForMaskedLM", {"inner_group_num": 2}, torch.float32),
        ("Albert", "Model", {"embedding_size": 16}, torch.float32),
    ],
    ids=str,
)
def test_what_transformers_wrote_is_written_again(family, head, fields, dtype, tmp_path, folder):
    first, third = tmp_path / "theirs", tmp_path / "theirs-again"
    second = folder("ours")
    stated = {} if family in ("Albert", "DistilBert") else {"classifier_dropout": 0.1}  # None would be written so
    model = make(family, head, dtype, bos_token_id=7, **stated, **fields)
    model.save_pretrained(first)
    opened = open_model(first, KINDS["Albert" + head], dtype=None)
    write_model(second, opened.model, None, extra=opened.extra)
    again, info = type(model).from_pretrained(second, output_loading_info=True, dtype=dtype)
    assert not any(info.values())
    again.save_pretrained(third)
    before, after = (json.loads((path / "config.json").read_text()) for path in (first, third))
    assert before.items() <= after.items()
    for name, tensor in model.state_dict().items():
        unused = 2 if family in ("Roberta", "XLMRoberta", "Camembert") and "position_embeddings" in name else 0
        assert torch.equal(again.state_dict()[name][unused:], tensor[unused:]), name
    if dtype == torch.float32:
        with torch.no_grad():
            assert_same(theirs(again.eval(), head), theirs(model, head))


BASE = tiny_config(
    40, num_hidden_layers=3, num_attention_heads=4, max_position_embeddings=16, classifier_dropout_prob=0.0
)
CONFIGS = {
    "all shared": BASE,
    "erf": replace(BASE, hidden_act="gelu"),
    "two groups of two": replace(BASE, num_hidden_layers=4, num_hidden_groups=2, inner_group_num=2),
    "attention shared": replace(BASE, sharing="attention"),
    "feed-forward shared": replace(BASE, sharing="ffn"),
    "nothing shared": replace(BASE, sharing="none", embedding_size=16),
    "E equals H, no map": replace(BASE, embedding_size=16, hidden_act="tanh"),
    "E equals H, a map": replace(BASE, embedding_size=16, embedding_projection=True, hidden_act="relu"),
}
ONLY_OURS = {"AlbertForJointQuestionAnswering", "AlbertForPairClassification"}
SHARED_KEYS = {"vocab_size", "embedding_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "hidden_act",
              "intermediate_size", "inner_group_num", "max_position_embeddings", "layer_norm_eps", "type_vocab_size",
              "initializer_range", "classifier_dropout_prob", "hidden_dropout_prob"}  # fmt: skip
SHORT_IDS = [np.arange(5, 14), np.array([7, 8, 9, 3])]
SHORT_TYPES = [np.repeat([0, 1], [4, 5]), np.array([0, 0, 1, 1])]


def _is_only_ours(model: type[nn.Module]) -> bool:
    return model.__name__ in ONLY_OURS


def _make_ours(kind: Any, config: Any) -> nn.Module:
    """A model of ours with random weights, biases included."""
    model = MODELS[kind](config, 3) if kind.endswith("classification") else MODELS[kind](config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.normal_(1.0 if name.endswith("norm.weight") else 0.0, 0.3 if parameter.ndim == 1 else 0.2)
    return model.eval()


# Every head on one architecture, and every architecture with one head: they are independent.
@pytest.mark.parametrize(
    ("kind", "config", "dtype"),
    [
        *(
            pytest.param(kind, BASE, torch.float32, id=kind)
            for kind in MODELS
            if MODELS[kind].__name__ not in ONLY_OURS
        ),
        *(pytest.param("pretraining", config, torch.float32, id=name) for name, config in CONFIGS.items()),
        *(pytest.param("pretraining", BASE, dtype, id=str(dtype)) for dtype in HALVES),
    ],
)
def test_what_we_wrote_comes_back_from_transformers(kind, config, dtype, tmp_path, folder):
    first, third = folder("ours"), folder("ours-again")
    second = tmp_path / "theirs"
    mine = _make_ours(kind, config).to(dtype)
    write_model(first, mine, None, extra={"data": ["a corpus"], "max_sequence_length": 12})
    assert read_config(first)[0] == config
    model, info = getattr(transformers, MODELS[kind].__name__).from_pretrained(
        first, output_loading_info=True, dtype=dtype
    )
    assert not any(info.values())
    for field in SHARED_KEYS:
        assert getattr(model.config, field) == getattr(config, field)
    groups = config.num_hidden_groups if config.sharing == "all" else config.num_hidden_layers
    assert model.config.num_hidden_groups == groups
    assert (model.config.pad_token_id, model.config.bos_token_id, model.config.eos_token_id) == (0, 2, 3)
    if dtype == torch.float32:
        with torch.no_grad():
            expected = theirs(model.eval(), MODELS[kind].__name__.removeprefix("Albert"), SHORT_IDS, SHORT_TYPES)
            assert_same(outputs_of(mine, pack(SHORT_IDS, SHORT_TYPES)), expected)
    model.save_pretrained(second)
    opened = open_model(second, kind, dtype=None)
    assert opened.config == config
    assert opened.extra["data"] == ["a corpus"] and opened.extra["max_sequence_length"] == 12
    assert opened.loading_report.missing == opened.loading_report.unexpected == ()
    _assert_equal_tensors(mine.state_dict(), opened.model.state_dict())
    write_model(third, opened.model, None, extra=opened.extra)
    _assert_equal_tensors(*(_tensors_of(path) for path in (first, second)))
    _assert_equal_tensors(*(_tensors_of(path) for path in (first, third)))
    contents = [json.loads((path / "config.json").read_text()) for path in (first, second, third)]
    assert {content["dtype"] for content in contents} == {str(dtype).removeprefix("torch.")}
    assert contents[0].items() <= contents[2].items()


def _tensors_of(directory: Path) -> dict[str, torch.Tensor]:
    """The tensors of a file; transformers 5 writes a tied tensor once."""
    tensors = load_file(directory / "model.safetensors")
    tensors.pop("predictions.decoder.bias", None)
    return tensors


def _assert_equal_tensors(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor]) -> None:
    assert first.keys() == second.keys()
    for name, tensor in first.items():
        assert tensor.dtype == second[name].dtype and torch.equal(tensor, second[name]), name


# --------------------------------------------------------------------------------------------------------------------
# Heads that transformers lacks.


def test_architectures_are_those_of_transformers_and_two_more():
    known = set(transformers.models.albert.modeling_albert.__all__) - {"AlbertPreTrainedModel"}
    assert KINDS.keys() == known | ONLY_OURS


@pytest.mark.parametrize(("kind", "head"), [("joint_question_answering", "joint_"), ("pair_classification", "pair_")])
def test_transformers_opens_the_encoder_under_a_head_of_ours(kind, head, tmp_path):
    mine: Any = _make_ours(kind, BASE)
    write_model(tmp_path, mine, None)
    again = open_model(tmp_path, kind)
    assert not again.loading_report.newly_initialised and not again.loading_report.unexpected
    _assert_equal_tensors(mine.state_dict(), again.model.state_dict())
    model, report = transformers.AlbertModel.from_pretrained(
        tmp_path, add_pooling_layer=False, output_loading_info=True
    )
    assert not report["missing_keys"]
    assert set(report["unexpected_keys"]) == {name for name in mine.state_dict() if name.startswith(head)}
    with torch.inference_mode():
        last = theirs(model.eval(), "Model", SHORT_IDS, SHORT_TYPES)[-1]
        assert_same([mine.albert(pack(SHORT_IDS, SHORT_TYPES))], [last])
