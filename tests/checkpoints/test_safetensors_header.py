"""A header is believed only where the file bears it out; what we accept, safetensors accepts and sees alike."""

import json
import struct
from pathlib import Path

import pytest
import torch
from hypothesis import event, given, settings
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.torch import load_file, save

from albert.checkpoints.tensor_files import DTYPES, StoredTensor, StoredTensors, read_header, stored_tensors
from albert.runtime.errors import AlbertError, DamagedData, MissingInput, OutOfResources

SHAPES = st.lists(st.integers(0, 4), max_size=3).map(tuple)
TENSORS = st.dictionaries(
    st.text("abc._é", min_size=1, max_size=6), st.tuples(SHAPES, st.sampled_from(sorted(DTYPES))), max_size=5
)
NUMBERS = st.integers(-3, 40) | st.sampled_from([2**31, 2**61, 2**63, 2**64, 10**30, -1, True, 1.0, None, "1"])
GOOD = {"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}


def file_of(header: object, data: bytes = b"", length: int | None = None) -> bytes:
    """A file with this header, in JSON unless it is bytes already."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


@pytest.fixture
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("header") / "model.safetensors"


@settings(max_examples=60)
@given(described=TENSORS)
def test_what_safetensors_wrote_is_seen_and_read_as_it_is(described: dict, tmp_path_factory) -> None:
    tensors = {
        name: torch.randint(0, 2, shape, dtype=torch.int64).to(DTYPES[kind])
        for name, (shape, kind) in described.items()
    }
    path = tmp_path_factory.mktemp("header") / "model.safetensors"
    path.write_bytes(save(tensors, metadata={"format": "pt"}))
    found = read_header(path)
    assert {name: (stored.shape, stored.dtype) for name, stored in found.items()} == {
        name: (tuple(tensor.shape), tensor.dtype) for name, tensor in tensors.items()
    }
    read = StoredTensors(str(path), found).read(found)
    for name, tensor in load_file(path).items():
        assert torch.equal(read[name], tensor) and read[name].dtype == tensor.dtype


@settings(max_examples=200)
@given(described=TENSORS, data=st.data())
def test_what_is_accepted_is_what_safetensors_sees(described: dict, data: st.DataObject, tmp_path_factory) -> None:
    """One entry of a whole file is changed, or the length of the file."""
    tensors = {name: torch.zeros(shape, dtype=DTYPES[kind]) for name, (shape, kind) in described.items()}
    whole = save(tensors)
    (length,) = struct.unpack("<Q", whole[:8])
    header, content = json.loads(whole[8 : 8 + length]), whole[8 + length :]
    if header and data.draw(st.booleans()):
        entry = header[data.draw(st.sampled_from(sorted(header)))]
        key = data.draw(st.sampled_from(["dtype", "shape", "data_offsets"]))
        changes = (
            st.sampled_from(["F32", "F16", "I8", "F8_E4M3", 3]) if key == "dtype" else st.lists(NUMBERS, max_size=3)
        )
        entry[key] = data.draw(changes)
    content = content[: data.draw(st.integers(0, len(content)))] if data.draw(st.booleans()) else content
    path = tmp_path_factory.mktemp("header") / "model.safetensors"
    path.write_bytes(file_of(header, content))
    try:
        found = read_header(path)
    except AlbertError as refusal:
        assert "\n" not in str(refusal)
        return
    event("accepted")
    assert StoredTensors(str(path), found).described().keys() == found.keys()
    with safe_open(path, framework="pt") as theirs:
        assert set(theirs.keys()) == found.keys()
        assert all(tuple(theirs.get_slice(name).get_shape()) == stored.shape for name, stored in found.items())


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "its header would have 0 bytes"),
        (b"\0" * 7, "its header would have 0 bytes"),
        (file_of(GOOD, length=2**63), "its header would have 9,223,372,036,854,775,808 bytes"),
        (file_of(b" " * (2**24 + 1)), "its header would have 16,777,217 bytes"),
        (file_of(b"[" * 100_000), "its header is not JSON"),
        (file_of(b'{"a": 1, "a": 2}'), "occurs twice"),
        (file_of(b"\xff\xff"), "its header is not JSON"),
        (file_of([1]), "its header is not a JSON object"),
        (file_of({"a": {"dtype": "F32"}}), "a is not described"),
        (file_of({"a\nb": GOOD["a"]}, b"\0" * 8), "a tensor is called"),
        (file_of(GOOD, b"\0" * 7), "end at byte"),
        (file_of(GOOD, b"\0" * 9), "end at byte"),
        (file_of({"a": {**GOOD["a"], "shape": [3]}}, b"\0" * 8), "does not lie where"),
        (file_of({"a": {**GOOD["a"], "shape": [-2]}}, b"\0" * 8), "sizes that are none"),
        (file_of({"a": {**GOOD["a"], "shape": [2**40, 2**40]}}, b"\0" * 8), "sizes that are none"),
        (file_of({"a": {**GOOD["a"], "shape": [2**30, 2**30]}}, b"\0" * 8), "does not lie where"),
        (file_of({"a": {"dtype": "F32", "shape": [0, 2**64], "data_offsets": [0, 0]}}), "sizes that are none"),
        (file_of({"a": {"dtype": "F32", "shape": [0, 2**40, 2**40], "data_offsets": [0, 0]}}), "sizes that are none"),
        (file_of({"a": GOOD["a"], "b": GOOD["a"]}, b"\0" * 8), "does not lie where"),
        (file_of({"a": {**GOOD["a"], "data_offsets": [4, 12]}}, b"\0" * 12), "does not lie where"),
        (file_of({"a": {**GOOD["a"], "dtype": "F8_E5M2"}}, b"\0" * 8), "holds numbers of type 'F8_E5M2'"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(path: Path, content: bytes, message: str) -> None:
    path.write_bytes(content)
    with pytest.raises(DamagedData, match=message) as refusal:
        read_header(path)
    assert "\n" not in str(refusal.value)
    assert str(refusal.value).startswith(f"{path}: ")


@pytest.mark.parametrize("protocol", ["zip", 2, 4])
def test_a_pickle_under_another_name_is_called_one(path: Path, protocol: object) -> None:
    if protocol == "zip":
        torch.save({"a": torch.zeros(3)}, path)
    else:
        torch.save({"a": torch.zeros(3)}, path, _use_new_zipfile_serialization=False, pickle_protocol=protocol)
    with pytest.raises(DamagedData, match="is a pickle under the name of safetensors, which can run any code"):
        read_header(path)


def test_a_directory_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(MissingInput, match="is a directory"):
        read_header(tmp_path)


def test_a_file_that_shrinks_after_its_header_was_read_is_refused(path: Path) -> None:
    path.write_bytes(save({"a": torch.zeros(1000)}))
    stored = stored_tensors(path.parent)
    with open(path, "r+b") as file:
        file.truncate(2000)
    with pytest.raises(DamagedData, match="became shorter while it was read"):
        stored.read(["a"])


def test_memory_that_is_not_there_is_one_line(path: Path) -> None:
    path.write_bytes(b"")
    huge = StoredTensors(str(path), {"a": StoredTensor(path, 0, torch.float32, (2**55,))})
    with pytest.raises(OutOfResources, match=r"144,115,188,075,855,872 bytes of memory are not to be had"):
        huge.read(["a"])
