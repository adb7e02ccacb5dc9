"""Whatever stands in a model directory, opening it ends with a model or with one line."""

import json
import os
import pickle
import shutil
import struct
from dataclasses import fields
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import load, save

from albert.checkpoints.model_directory import MODELS, open_model, write_model
from albert.checkpoints.tensor_files import StoredTensors
from albert.model.albert import AlbertForPreTraining
from albert.model.config import AlbertConfig
from albert.runtime.errors import AlbertError, DamagedData, InvalidConfiguration, MissingInput

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
        for kind in MODELS:
            try:
                open_model(self.path, kind)
            except AlbertError as refusal:
                assert "\n" not in str(refusal)


@pytest.fixture(scope="module")
def victim(tmp_path_factory: pytest.TempPathFactory) -> Victim:
    path = tmp_path_factory.mktemp("victim")
    config = AlbertConfig(
        vocab_size=9, embedding_size=4, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=4
    )
    write_model(path, AlbertForPreTraining(config), None)
    return Victim(path)


@FUZZ
@given(
    key=st.sampled_from(
        [*KEYS, "architectures", "model_type", "id2label", "num_labels", "dtype", "sentence_objective", "uneven_groups"]
    ),
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


@pytest.mark.parametrize(
    ("key", "value"),
    [("vocab_size", 10**12), ("hidden_size", 2**24 + 1), ("num_hidden_layers", 10**6), ("inner_group_num", 2**20)],
)
def test_sizes_that_no_model_has_are_refused_before_anything_is_made(victim: Victim, key: str, value: int) -> None:
    victim.put(json.dumps({**victim.content, key: value}), b"not opened")
    with pytest.raises(InvalidConfiguration, match=rf"{key}|gives \d+ layers, at most"):
        open_model(victim.path, "pretraining")


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"vocab_size": 2**24}, "word_embeddings"),
        ({"embedding_size": 2**20}, "word_embeddings"),
        ({"hidden_size": 2**20}, "embedding_hidden_mapping_in"),
        ({"intermediate_size": 2**24}, "ffn"),
        ({"max_position_embeddings": 2**24}, "position_embeddings"),
        ({"type_vocab_size": 2**24}, "token_type_embeddings"),
    ],
)
def test_a_configuration_that_contradicts_its_tensors_costs_no_memory(
    victim: Victim, changes: dict, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The shapes stand in the header: nothing of the data is read, and no tensor is made."""
    monkeypatch.setattr(StoredTensors, "read", lambda *_: pytest.fail("the data were read"))
    victim.put(json.dumps({**victim.content, **changes}), victim.weights)
    with pytest.raises(InvalidConfiguration, match=rf"{name}\S* has shape .*, the model asks for"):
        open_model(victim.path, "pretraining")


def test_more_labels_than_any_head_has_are_refused(victim: Victim) -> None:
    labels = {str(index): f"label {index}" for index in range(2**16 + 1)}
    victim.put(json.dumps({**victim.content, "id2label": labels}), victim.weights)
    with pytest.raises(InvalidConfiguration, match="num_labels"):
        open_model(victim.path, "classification")
    open_model(victim.path, "encoder")  # which has no use for them


@pytest.mark.parametrize("file", ["config.json", "model.safetensors"])
@pytest.mark.parametrize("kind", ["pipe", "device", "loop", "directory"])
def test_what_is_no_file_is_not_waited_for(victim: Victim, tmp_path: Path, file: str, kind: str) -> None:
    victim.put(json.dumps(victim.content), victim.weights)
    shutil.copytree(victim.path, tmp_path / "model")
    place = tmp_path / "model" / file
    place.unlink()
    match kind:
        case "pipe":
            os.mkfifo(place)
        case "device":
            place.symlink_to("/dev/zero")
        case "loop":
            place.symlink_to(place)
        case "directory":
            place.mkdir()
    with pytest.raises(MissingInput) as refusal:
        open_model(tmp_path / "model", "pretraining")
    assert "\n" not in str(refusal.value)


def test_links_to_files_are_followed_as_in_the_cache_of_the_hub(victim: Victim, tmp_path: Path) -> None:
    victim.put(json.dumps(victim.content), victim.weights)
    for file in ("config.json", "model.safetensors"):
        (tmp_path / file).symlink_to(victim.path / file)
    assert open_model(tmp_path, "pretraining").loading_report.missing == ()


@pytest.mark.parametrize(
    "name", ["../model.safetensors", "/etc/passwd", "a/b.safetensors", "..", ".", "", "model.safetensors/"]
)
def test_an_index_names_files_of_its_own_directory_alone(victim: Victim, tmp_path: Path, name: str) -> None:
    (tmp_path / "config.json").write_text(json.dumps(victim.content))
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": name}}))
    with pytest.raises(AlbertError, match=r"not a file of this directory|is named by .* but missing"):
        open_model(tmp_path, "pretraining")


def test_shards_that_hold_the_same_tensor_are_refused(victim: Victim, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(victim.content))
    names = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")
    for name in names:
        (tmp_path / name).write_bytes(victim.weights)
    index = {"weight_map": {str(place): name for place, name in enumerate(names)}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(DamagedData, match=r"00002-of-00002\.safetensors: holds .* which .*00001-of-00002"):
        open_model(tmp_path, "pretraining")


def test_a_pickle_under_the_name_of_safetensors_is_not_executed(victim: Victim) -> None:
    class Bomb:
        def __reduce__(self):
            return (pytest.fail, ("the pickle was executed",))

    for content in (pickle.dumps(Bomb(), protocol=4), b"PK\x03\x04" + pickle.dumps(Bomb())):
        victim.put(json.dumps(victim.content), content)
        with pytest.raises(DamagedData, match="model.safetensors: is a pickle"):
            open_model(victim.path, "pretraining")
