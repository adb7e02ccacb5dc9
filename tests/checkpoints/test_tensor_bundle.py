"""TensorFlow's files: index, data and checksums."""

import functools
import json
import struct
import sys

import google_crc32c
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.refusals import refusal

from albert.checkpoints import tensor_bundle as module
from albert.checkpoints.tensor_bundle import TensorBundle, masked_crc32c
from albert.runtime.errors import AlbertError, DamagedData, MissingInput, Unavailable

# TensorFlow wrote the files in `formats`: they test the reader, and the reader tests the writer.

DTYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
DTYPES += (torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64)
NUMBERS = np.arange(6).reshape(2, 3)


@st.composite
def tensors(draw) -> dict[str, torch.Tensor]:
    """Tensors of any dtype, small shape and bits, with any printable names."""
    names = draw(st.lists(st.text(min_size=1, max_size=12).filter(str.isprintable), unique=True, max_size=6))
    result = {}
    for name in names:
        dtype = draw(st.sampled_from(DTYPES))
        shape = draw(st.lists(st.integers(1, 4), max_size=3))
        size = int(np.prod(shape)) * dtype.itemsize
        octets = bytearray(draw(st.binary(min_size=size, max_size=size)))
        result[name] = torch.frombuffer(octets, dtype=torch.uint8).view(dtype).reshape(shape)
    return result


def same(bundle: TensorBundle, written: dict[str, torch.Tensor], writer) -> bool:
    return set(bundle.entries) == set(written) and all(
        bundle.read(name).dtype == tensor.dtype
        and bundle.read(name).shape == tensor.shape
        and bytes(writer.octets(bundle.read(name))) == bytes(writer.octets(tensor))
        for name, tensor in written.items()
    )


@given(tensors(), st.integers(1, 3), st.integers(1, 400), st.integers(1, 17))
def test_round_trip_is_exact(writer, tmp_path_factory, written, shards, block_size, restart_every):
    prefix = tmp_path_factory.mktemp("bundle") / "any"
    writer.write_bundle(prefix, written, shards=shards, block_size=block_size, restart_every=restart_every)
    assert same(TensorBundle(prefix), written, writer)


@pytest.fixture(scope="module")
def small(writer, tmp_path_factory):
    """The prefix of a bundle with two shards and several blocks, its tensors, and the bytes of its three files."""
    prefix = tmp_path_factory.mktemp("small") / "model"
    written = {f"layer_{n}/kernel": torch.arange(n + 2, dtype=torch.float32) + 1 for n in range(5)}
    writer.write_bundle(prefix, written, shards=2, block_size=40, restart_every=2)
    return prefix, written, {file: file.read_bytes() for file in sorted(prefix.parent.iterdir())}


def refused_or_harmless(prefix, written, writer) -> bool:
    """Whether reading raises an error of one line, or returns the written values."""
    try:
        return same(TensorBundle(prefix), written, writer)
    except AlbertError as error:
        return "\n" not in str(error)


@settings(max_examples=200)
@given(st.data())
def test_damaged_byte_is_refused_or_harmless(writer, small, data):
    prefix, written, files = small
    file = data.draw(st.sampled_from(list(files)))
    index = data.draw(st.integers(0, len(files[file]) - 1))
    damaged = bytearray(files[file])
    damaged[index] = data.draw(st.integers(0, 255).filter(lambda value: value != damaged[index]))
    try:
        file.write_bytes(damaged)
        assert refused_or_harmless(prefix, written, writer)
    finally:
        file.write_bytes(files[file])


def test_every_truncation_is_refused(writer, small):
    prefix, written, files = small
    for file, content in files.items():
        try:
            for length in range(len(content)):
                file.write_bytes(content[:length])
                with pytest.raises(DamagedData):
                    same(TensorBundle(prefix), written, writer)
        finally:
            file.write_bytes(content)


@given(st.binary(max_size=200))
def test_arbitrary_bytes_are_refused(writer, tmp_path_factory, content):
    prefix = tmp_path_factory.mktemp("bytes") / "any"
    prefix.with_name("any.index").write_bytes(content)
    with pytest.raises(DamagedData):
        TensorBundle(prefix)
    prefix.with_name("any.index").write_bytes(content + writer.MAGIC)
    with pytest.raises(DamagedData):
        TensorBundle(prefix)


@given(st.dictionaries(st.binary(max_size=8), st.binary(max_size=30), max_size=6))
def test_table_of_arbitrary_messages_is_refused_in_one_line(writer, tmp_path_factory, content):
    prefix = tmp_path_factory.mktemp("messages") / "any"
    prefix.with_name("any.index").write_bytes(writer.table(sorted({b"": writer.header(), **content}.items())))
    try:
        assert {name.encode() for name in TensorBundle(prefix).entries} <= content.keys()
    except AlbertError as error:
        assert "\n" not in str(error)


ENTRY = {"dtype": 1, "shape": (2, 3), "shard": 0, "offset": 0, "size": 24, "crc": 0}
INVALID_ENTRIES = {
    "another size than its shape": ({"size": 20}, "20"),
    "larger than memory": ({"shape": (10**12, 10**6)}, "24"),
    "larger than the file": ({"shape": (10**9, 10**6), "size": 4 * 10**15}, "24 w"),
    "offset beyond the file": ({"offset": 2**40}, "1,099,511,627,800"),
    "negative offset": ({"offset": -1}, "shape offset"),
    "negative axis": ({"shape": (-2, -3)}, "shape offset"),
    "empty": ({"shape": (0, 3), "size": 0}, "empty"),
    "another data file": ({"shard": 1}, "file 1"),
    "strings": ({"dtype": 7}, "string"),
    "unknown dtype": ({"dtype": 77}, "77"),
    "slices": ({"extra": b"\x3a\x00"}, "slices"),
    "wrong checksum": ({}, "checksum w"),
}


@pytest.mark.parametrize("case", INVALID_ENTRIES)
def test_invalid_entry_is_refused(writer, tmp_path, case):
    change, subjects = INVALID_ENTRIES[case]
    prefix = tmp_path / "model"
    entries = {b"": writer.header(), b"w": writer.entry(**{**ENTRY, **change})}
    prefix.with_name("model.index").write_bytes(writer.table(entries.items()))
    prefix.with_name("model.data-00000-of-00001").write_bytes(bytes(24))
    with refusal(DamagedData, *subjects.split()):
        TensorBundle(prefix).read("w")


COMPRESSED = "compressed {}"
TABLES = {
    "big-endian": (lambda writer: [(b"", writer.header(big_endian=True))], {}, "big-endian"),
    "newer format": (lambda writer: [(b"", writer.header(min_consumer=2))], {}, "version"),
    "no shards": (lambda writer: [(b"", writer.header(shards=0))], {}, "0 files"),
    "too many shards": (lambda writer: [(b"", writer.header(shards=10**9))], {}, "1000000000 files"),
    "no header": (lambda writer: [(b"w", b"")], {}, "header"),
    "unsorted keys": (lambda writer: [(b"b", b""), (b"a", b"")], {"block_size": 1}, "keys"),
    "repeated key": (lambda writer: [(b"a", b""), (b"a", b"")], {"block_size": 1}, "keys"),
    **{
        name: (lambda writer: [(b"", writer.header())], {"compression": number}, COMPRESSED.format(name))
        for number, name in ((1, "snappy"), (2, "zstandard"), (9, "method 9"))
    },
}


@pytest.mark.parametrize("kind", TABLES)
def test_unsupported_table_is_refused(writer, tmp_path, kind):
    entries, layout, subjects = TABLES[kind]
    tmp_path.joinpath("model.index").write_bytes(writer.table(entries(writer), **layout))
    with refusal(DamagedData, *subjects.split()):
        TensorBundle(tmp_path / "model")


def test_huge_index_is_refused_unread(tmp_path):
    with open(tmp_path / "model.index", "wb") as file:
        file.truncate(2**30)
    with pytest.raises(DamagedData):
        TensorBundle(tmp_path / "model")


def test_missing_data_file_is_named(writer, small):
    prefix, _, files = small
    lost = prefix.with_name("model.data-00001-of-00002")
    lost.unlink()
    try:
        with pytest.raises(MissingInput):
            TensorBundle(prefix).require(TensorBundle(prefix).entries)
    finally:
        lost.write_bytes(files[lost])


def test_tensorflows_dtypes_are_read(checkpoints):
    bundle = TensorBundle(checkpoints / "formats" / "types" / "model.ckpt-best")
    for dtype in DTYPES:
        tensor = bundle.read(str(dtype).removeprefix("torch."))
        assert tensor.dtype == dtype
        assert torch.equal(tensor.to(torch.float64), torch.tensor(NUMBERS, dtype=torch.float64))
    assert bundle.read("scalar") == 7.0
    assert bundle.entries["string"].dtype is None and bundle.entries["bool"].dtype is None


def test_two_data_files_of_tensorflow_are_read(checkpoints):
    bundle = TensorBundle(checkpoints / "formats" / "two_shards" / "model.ckpt-best")
    for number in range(2):
        assert torch.equal(bundle.read(f"shard_{number}"), torch.tensor(NUMBERS + number, dtype=torch.float32))


def test_partitioned_variable_is_refused(checkpoints):
    bundle = TensorBundle(checkpoints / "formats" / "partitioned" / "model.ckpt-best")
    assert list(bundle.entries) == ["sliced"]
    with pytest.raises(DamagedData):
        bundle.read("sliced")


def test_writer_gives_tensorflows_bytes(writer, checkpoints, tmp_path):
    """For one block of entries."""
    theirs = checkpoints / "formats" / "two_shards"
    tensors = {f"shard_{number}": torch.tensor(NUMBERS + number, dtype=torch.float32) for number in range(2)}
    writer.write_bundle(tmp_path / "model.ckpt-best", tensors, shards=2)
    for file in sorted(theirs.iterdir()):
        ours, expected = (tmp_path / file.name).read_bytes(), file.read_bytes()
        if file.suffix == ".index":
            ours, expected = table_content(ours), table_content(expected)
        assert ours == expected


def table_content(data: bytes) -> bytes:
    """A table up to its second block; keys in the third are any that separate two blocks."""
    offset, size = struct.unpack_from("<BB", data, len(data) - 48)
    return data[: offset + size]


def test_released_index_is_read(shared):
    """Names, types, shapes, offsets and checksums of the TF-Hub release of ALBERT-base."""
    folder = shared / "data" / "checkpoints" / "tfhub_albert_en_base_3"
    bundle = TensorBundle(folder / "variables")
    entries = {
        name: {
            "dtype": 1 if entry.dtype is torch.float32 else None,
            "shape": list(entry.shape),
            "bytes": entry.size,
            "offset": entry.offset,
            "crc32c": entry.crc32c,
        }
        for name, entry in bundle.entries.items()
    }
    assert entries == json.loads((folder / "variables.index.json").read_text())


# ---- CRC-32C -------------------------------------------------------------------------------------------------------

# RFC 3720, B.4, and the check value of the catalogue of CRCs.
KNOWN = {
    b"": 0,
    b"123456789": 0xE3069283,
    bytes(32): 0x8A9136AA,
    b"\xff" * 32: 0x62A8AB43,
    bytes(range(32)): 0x46DD794E,
    bytes(range(31, -1, -1)): 0x113FDB5C,
}


def bit_by_bit(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def masked(crc: int) -> int:
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) % 2**32


@pytest.mark.parametrize("data", KNOWN, ids=lambda data: f"{len(data)} bytes")
def test_crc_of_known_values(data):
    assert KNOWN[data] == bit_by_bit(data)
    assert masked_crc32c(data) == masked(KNOWN[data])
    assert masked_crc32c(np.frombuffer(data, np.uint8)) == masked(KNOWN[data])


@given(st.binary(max_size=700))
def test_crc_of_every_length(data):
    assert masked_crc32c(data) == masked_crc32c(np.frombuffer(bytearray(data), np.uint8)) == masked(bit_by_bit(data))


def test_the_slow_form_of_the_library_gives_the_same_and_says_so(monkeypatch, capsys):
    from google_crc32c import python

    monkeypatch.setattr(google_crc32c, "value", python.value)
    monkeypatch.setattr(google_crc32c, "implementation", "python")
    monkeypatch.setattr(module, "_crc32c", functools.cache(module._crc32c.__wrapped__))
    for data in (*KNOWN, bytes(range(256)) * 4):
        assert masked_crc32c(np.frombuffer(data, np.uint8)) == masked(bit_by_bit(data))
    assert capsys.readouterr().err.count("albert: note: google-crc32c is installed without its compiled part") == 1


def test_without_the_library_the_command_that_installs_it_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "google_crc32c", None)
    monkeypatch.setattr(module, "_crc32c", functools.cache(module._crc32c.__wrapped__))
    with refusal(Unavailable, "google_crc32c", "is not installed", "install", "tensorflow]"):
        masked_crc32c(b"1")


def test_mask_is_that_of_leveldb():
    assert masked_crc32c(b"123456789") == ((0xE3069283 >> 15 | 0xE3069283 << 17) + 0xA282EAD8) % 2**32
