"""Whatever stands in a model directory, opening it ends with a model or with one line."""

import json
import struct
from dataclasses import fields
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import load, save

from albert.checkpoints.model_directory import open_model, write_model
from albert.model.albert import AlbertForPreTraining
from albert.model.config import AlbertConfig
from albert.runtime.errors import AlbertError

KEYS = [field.name for field in fields(AlbertConfig)]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**20), 10**20) | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=5,
)
FUZZ = settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow])


class Victim:
    """A model directory, and what to put into it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.content: dict = json.loads((path / "config.json").read_text())
        self.weights = (path / "model.safetensors").read_bytes()

    def put(self, config: str, weights: bytes) -> None:
        (self.path / "config.json").write_text(config)
        (self.path / "model.safetensors").write_bytes(weights)

    def opens_or_is_refused(self) -> None:
        for kind in ("pretraining", "classification"):
            try:
                open_model(self.path, kind)
            except AlbertError as refusal:
                assert "\n" not in str(refusal)


@pytest.fixture(scope="module")
def victim(tmp_path_factory: pytest.TempPathFactory) -> Victim:
    path = tmp_path_factory.mktemp("victim")
    config = AlbertConfig(
        vocab_size=9, embedding_size=4, hidden_size=4, num_hidden_layers=1, num_attention_heads=2, intermediate_size=4
    )
    write_model(path, AlbertForPreTraining(config), None)
    return Victim(path)


@FUZZ
@given(
    key=st.sampled_from([*KEYS, "architectures", "model_type", "id2label", "dtype"]),
    value=JSON | st.sampled_from([0, -1, 10**9, 10**20, "all", "none", True, None, {"0": "a"}]),
)
def test_any_configuration_is_opened_or_refused(victim: Victim, key: str, value: object) -> None:
    victim.put(json.dumps({**victim.content, key: value}), victim.weights)
    victim.opens_or_is_refused()


@FUZZ
@given(place=st.floats(0, 1, exclude_max=True), value=st.integers(0, 255), in_header=st.booleans())
def test_any_byte_of_the_weights_may_be_wrong(victim: Victim, place: float, value: int, in_header: bool) -> None:
    (header,) = struct.unpack("<Q", victim.weights[:8])
    damaged = bytearray(victim.weights)
    damaged[int(place * (8 + header if in_header else len(damaged)))] = value
    victim.put(json.dumps(victim.content), damaged)
    victim.opens_or_is_refused()


@pytest.mark.parametrize("text", ["x" * 100, "[" * 100_000, '{"a": ' * 50_000])
def test_deep_or_empty_nonsense_is_refused(victim: Victim, text: str) -> None:
    victim.put(text, victim.weights)
    with pytest.raises(AlbertError):
        open_model(victim.path, "pretraining")


def test_integers_where_numbers_belong_are_refused(victim: Victim) -> None:
    tensors = load(victim.weights)
    tensors["albert.pooler.weight"] = tensors["albert.pooler.weight"].to(torch.int32)
    victim.put(json.dumps(victim.content), save(tensors))
    with pytest.raises(AlbertError, match=r"albert\.pooler\.weight holds torch\.int32"):
        open_model(victim.path, "pretraining")
