"""Damaged and hostile model directories are opened or refused in one line."""

import json
import os
import shutil
import struct
from dataclasses import fields
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import load, load_file, save
from tests.tiny import tiny_config

import albert
from albert.checkpoints.loading import DTYPES, StoredTensor, StoredTensors, read_header, stored_tensors
from albert.checkpoints.model_directory import write_model
from albert.model.albert import AlbertForPreTraining
from albert.recipes.architecture import EncoderConfig
from albert.runtime.errors import DamagedData, OutOfResources

KEYS = [field.name for field in fields(EncoderConfig)]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**20), 10**20) | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=5,
)
KINDS = (
    "encoder",
    "pretraining",
    "masked_lm",
    "classification",
    "token_classification",
    "question_answering",
    "multiple_choice",
)
FUZZ = settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow])


class Victim:
    """A model directory whose files tests replace."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.content: dict = json.loads((path / "config.json").read_text())
        self.weights = (path / "model.safetensors").read_bytes()

    def put(self, config: str, weights: bytes) -> None:
        (self.path / "config.json").write_text(config)
        (self.path / "model.safetensors").write_bytes(weights)

    def opens_or_is_refused(self) -> None:
        for kind in KINDS:
            try:
                albert.open_model(self.path, kind)
            except albert.AlbertError as refusal:
                assert "\n" not in str(refusal)


@pytest.fixture(scope="module")
def victim(tmp_path_factory: pytest.TempPathFactory) -> Victim:
    path = tmp_path_factory.mktemp("victim")
    config = tiny_config(9, embedding_size=4, hidden_size=8, num_hidden_layers=1, intermediate_size=4)
    write_model(path, AlbertForPreTraining(config), None)
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b", "c", "d"]
    (path / "vocab.txt").write_text("".join(f"{piece}\n" for piece in pieces))
    return Victim(path)


@FUZZ
@given(
    key=st.sampled_from(
        [*KEYS, "architectures", "model_type", "id2label", "num_labels", "dtype", "sentence_objective"]
    ),
    value=JSON | st.sampled_from([0, -1, 10**9, 10**20, "all", "none", True, None, {"0": "a"}]),
)
def test_any_configuration_is_opened_or_refused(victim, key, value):
    victim.put(json.dumps({**victim.content, key: value}), victim.weights)
    victim.opens_or_is_refused()


@FUZZ
@given(position=st.floats(0, 1, exclude_max=True), value=st.integers(0, 255), in_header=st.booleans())
def test_any_damaged_byte_is_opened_or_refused(victim, position, value, in_header):
    (header,) = struct.unpack("<Q", victim.weights[:8])
    damaged = bytearray(victim.weights)
    damaged[int(position * (8 + header if in_header else len(damaged)))] = value
    victim.put(json.dumps(victim.content), damaged)
    victim.opens_or_is_refused()


def test_integer_weights_are_refused(victim, refused):
    tensors = load(victim.weights)
    tensors["albert.pooler.weight"] = tensors["albert.pooler.weight"].to(torch.int32)
    victim.put(json.dumps(victim.content), save(tensors))
    refused(lambda: albert.open_model(victim.path), 65, "albert.pooler.weight", "torch.int32")


@pytest.mark.parametrize(
    ("key", "value"),
    [("vocab_size", 10**12), ("hidden_size", 2**24 + 1), ("num_hidden_layers", 10**6), ("inner_group_num", 2**20)],
)
def test_huge_sizes_are_refused_before_weights_are_read(victim, key, value, refused):
    victim.put(json.dumps({**victim.content, key: value}), b"not opened")
    refused(lambda: albert.open_model(victim.path), 78)


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
def test_contradicting_sizes_are_refused_before_weights_are_read(victim, changes, name, refused, monkeypatch):
    """By the shapes in the header, without reading or allocating tensors."""
    monkeypatch.setattr(StoredTensors, "read", lambda *_: pytest.fail("the data were read"))
    victim.put(json.dumps({**victim.content, **changes}), victim.weights)
    refused(lambda: albert.open_model(victim.path), 78, name)


def test_too_many_labels_are_refused(victim, refused):
    labels = {str(index): f"label {index}" for index in range(2**16 + 1)}
    victim.put(json.dumps({**victim.content, "id2label": labels}), victim.weights)
    refused(lambda: albert.open_model(victim.path, "classification"), 78, "num_labels")
    albert.open_model(victim.path, "encoder")  # has no labels


@pytest.mark.parametrize("file", ["config.json", "model.safetensors"])
@pytest.mark.parametrize("kind", ["pipe", "device", "loop", "directory"])
def test_special_files_are_refused_without_blocking(victim, tmp_path, file, kind, refused):
    victim.put(json.dumps(victim.content), victim.weights)
    shutil.copytree(victim.path, tmp_path / "model")
    path = tmp_path / "model" / file
    path.unlink()
    create = {"pipe": os.mkfifo, "device": lambda path: path.symlink_to("/dev/zero")}
    create |= {"loop": lambda path: path.symlink_to(path), "directory": os.mkdir}
    create[kind](path)
    refused(lambda: albert.open_model(tmp_path / "model"), 66, tmp_path / "model")


def test_symlinks_to_files_are_followed(victim, tmp_path):
    victim.put(json.dumps(victim.content), victim.weights)
    for file in ("config.json", "model.safetensors", "vocab.txt"):
        (tmp_path / file).symlink_to(victim.path / file)
    model, _ = albert.open_model(tmp_path, "pretraining")
    expected, _ = albert.open_model(victim.path, "pretraining")
    assert all(torch.equal(tensor, expected.state_dict()[name]) for name, tensor in model.state_dict().items())


@pytest.mark.parametrize(
    "name", ["../model.safetensors", "/etc/passwd", "a/b.safetensors", "..", ".", "", "model.safetensors/"]
)
def test_index_with_files_of_other_directories_is_refused(victim, tmp_path, name):
    (tmp_path / "config.json").write_text(json.dumps(victim.content))
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": name}}))
    with pytest.raises(albert.AlbertError) as refusal:
        albert.open_model(tmp_path)
    assert refusal.value.exit_code in (65, 66) and "model.safetensors.index.json" in str(refusal.value)


def test_shards_with_the_same_tensor_are_refused(victim, tmp_path, refused):
    (tmp_path / "config.json").write_text(json.dumps(victim.content))
    names = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")
    for name in names:
        (tmp_path / name).write_bytes(victim.weights)
    index = {"weight_map": {str(number): name for number, name in enumerate(names)}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    refused(lambda: albert.open_model(tmp_path), 65, *names)


# ---- headers of safetensors ----------------------------------------------------------------------------------------

SHAPES = st.lists(st.integers(1, 4), max_size=3).map(tuple)
TENSORS = st.dictionaries(
    st.text("abc._é", min_size=1, max_size=6), st.tuples(SHAPES, st.sampled_from(sorted(DTYPES))), max_size=5
)
GOOD = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}


@pytest.fixture
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("header") / "model.safetensors"


@settings(max_examples=60)
@given(specs=TENSORS)
def test_files_of_safetensors_are_read_exactly(specs, tmp_path_factory):
    tensors = {
        name: torch.randint(0, 2, shape, dtype=torch.int64).to(DTYPES[kind]) for name, (shape, kind) in specs.items()
    }
    path = tmp_path_factory.mktemp("header") / "model.safetensors"
    path.write_bytes(save(tensors, metadata={"format": "pt"}))
    header = read_header(path)
    expected = {name: (tuple(tensor.shape), tensor.dtype) for name, tensor in tensors.items()}
    assert {name: (stored.shape, stored.dtype) for name, stored in header.items()} == expected
    read = StoredTensors(str(path), header).read(header)
    for name, tensor in load_file(path).items():
        assert torch.equal(read[name], tensor) and read[name].dtype == tensor.dtype


@pytest.mark.parametrize(
    ("header", "size", "subject"),
    [
        ([1], 0, ""),
        ({"a": GOOD}, 7, ""),
        ({"a": GOOD}, 9, ""),
        ({"a": {**GOOD, "shape": [0, 2**40, 2**40], "data_offsets": [0, 0]}}, 0, "(0, "),
        ({"a": {**GOOD, "dtype": "F8_E5M2", "shape": [8]}}, 8, "'F8_E5M2'"),
    ],
)
def test_invalid_header_is_refused_in_one_line(victim, tmp_path, header, size, subject, refused):
    """dev/reliability/hostile_files.py has more such files, and pickles."""
    text = json.dumps(header).encode()
    (tmp_path / "config.json").write_text(json.dumps(victim.content))
    path = tmp_path / "model.safetensors"
    path.write_bytes(struct.pack("<Q", len(text)) + text + bytes(size))
    refused(lambda: albert.open_model(tmp_path), 65, path, subject)


def test_file_cut_after_its_header_was_read_is_refused(path):
    path.write_bytes(save({"a": torch.zeros(1000)}))
    stored = stored_tensors(path.parent)
    with open(path, "r+b") as file:
        file.truncate(2000)
    with pytest.raises(DamagedData):
        stored.read(["a"])


def test_failed_allocation_is_one_line(path):
    path.write_bytes(b"")
    huge = StoredTensors(str(path), {"a": StoredTensor(path, 0, torch.float32, (2**55,))})
    with pytest.raises(OutOfResources):
        huge.read(["a"])
