"""TensorFlow's checkpoint format, read without TensorFlow: index table, data files, CRC-32C checksums.

`PREFIX.index` is a LevelDB table from the name of a variable to a protocol message with its type, shape, offset and
checksum; the empty key has a header. `PREFIX.data-00000-of-00001` and so on hold the bytes. Checksums of tensors are
checked when they are read, everything else before.
Source: TensorFlow, `core/protobuf/tensor_bundle.proto` and `core/util/tensor_bundle/`."""

import math
import sys
import warnings
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import UInt8
from torch import Tensor

from albert.runtime.environment import lazy_import
from albert.runtime.errors import DamagedData, MissingInput
from albert.runtime.manifest import open_input

# --------------------------------------------------------------------------------------------------------------------
# CRC-32C (Castagnoli), the checksum of TensorFlow's files.

_MASK_DELTA = 0xA282EAD8


@cache
def _crc32c() -> ModuleType:
    """The library `google-crc32c`; a note where only its slow form in Python is installed."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # says the same as the note
        library = lazy_import("google_crc32c", "tensorflow")
    if library.implementation == "python":
        why = "google-crc32c is installed without its compiled part, so checksums take about a second for each megabyte"
        print(f"albert: note: {why}", file=sys.stderr)
    return library


def masked_crc32c(data: bytes | UInt8[np.ndarray, " bytes"]) -> int:
    """The CRC-32C as TensorFlow stores it: rotated, plus a constant."""
    crc = _crc32c().value(data)
    return ((crc >> 15 | crc << 17) + _MASK_DELTA) & 0xFFFFFFFF


# --------------------------------------------------------------------------------------------------------------------
# LevelDB's table file, the index of a TensorFlow checkpoint: sorted keys with values.
#
# A table is a sequence of blocks and a footer of 48 bytes with the position of the block of blocks. In a block, a key
# is stored without the prefix that it shares with the previous key. Each block is followed by its compression method
# and a CRC-32C of both. Source: LevelDB, `doc/table_format.md`; TensorFlow, `tsl/lib/io/table_builder.cc`.

MAGIC = (0xDB4775248B80FB57).to_bytes(8, "little")
_FOOTER = 48
_TRAILER = 5
_MAX_BYTES = 2**26  # bytes; the index of an ALBERT has a few thousand
_COMPRESSIONS = {1: "snappy", 2: "zstandard"}
DOWNLOAD_AGAIN = "the file is damaged or cut: fetch it again"


def is_table(path: Path) -> bool:
    """Return whether a file ends like a table."""
    with open_input(path) as file:
        size = file.seek(0, 2)
        file.seek(max(0, size - len(MAGIC)))
        return file.read() == MAGIC


def read_table(path: Path) -> dict[bytes, bytes]:
    """All keys and values, in file order; `DamagedData` if it is not a table, or damaged, compressed or too large."""
    try:
        with open_input(path) as file:
            data = file.read(_MAX_BYTES + 1)
    except OSError as error:
        raise MissingInput(path, error.strerror or "cannot be read") from error
    if len(data) > _MAX_BYTES:
        raise DamagedData(path, f"has more than {_MAX_BYTES:,} bytes, an index of ALBERT has far fewer")
    if len(data) < _FOOTER or data[-len(MAGIC) :] != MAGIC:
        raise DamagedData(path, "is not the index of a TensorFlow checkpoint, or is incomplete", DOWNLOAD_AGAIN)
    try:
        return _entries(data)
    except ValueError as error:
        why, remedy, *_ = (*error.args, DOWNLOAD_AGAIN)
        raise DamagedData(path, why, remedy) from error


def _entries(data: bytes) -> dict[bytes, bytes]:
    footer = len(data) - _FOOTER
    _, position = _handle(data, footer)  # of the metaindex block, which is empty in TensorFlow
    index, _ = _handle(data, position)
    entries: dict[bytes, bytes] = {}
    last = None
    for _, handle in _block_entries(_block(data, index)):
        block, end = _handle(handle, 0)
        if end != len(handle):
            raise ValueError("has a block handle with extra bytes")
        for key, value in _block_entries(_block(data, block)):
            if last is not None and key <= last:
                raise ValueError("has unsorted keys")
            entries[key] = value
            last = key
    return entries


def _block(data: bytes, handle: tuple[int, int]) -> bytes:
    """The content of a block, after checking its checksum."""
    offset, size = handle
    if offset + size + _TRAILER > len(data) - _FOOTER:
        raise ValueError("has a block beyond its end")
    content = data[offset : offset + size + 1]
    trailer = data[offset + size : offset + size + _TRAILER]
    if masked_crc32c(content) != int.from_bytes(trailer[1:], "little"):
        raise ValueError(f"the checksum of its block at byte {offset} is wrong")
    if trailer[0]:
        kind = _COMPRESSIONS.get(trailer[0], f"method {trailer[0]}")
        raise ValueError(f"is compressed ({kind})", "save the checkpoint again with TensorFlow, uncompressed")
    return content[:-1]


def _block_entries(block: bytes) -> Iterator[tuple[bytes, bytes]]:
    restarts = int.from_bytes(block[-4:], "little")
    end = len(block) - 4 * (restarts + 1)
    if len(block) < 4 or end < 0:
        raise ValueError("has a block without an end")
    position = 0
    key = b""
    while position < end:
        shared, position = _number(block, position)
        added, position = _number(block, position)
        size, position = _number(block, position)
        if shared > len(key) or position + added + size > end:
            raise ValueError("has an entry beyond the end of its block")
        key = key[:shared] + block[position : position + added]
        position += added
        yield key, block[position : position + size]
        position += size


def _handle(data: bytes, position: int) -> tuple[tuple[int, int], int]:
    """Offset and size of a block, and the next position."""
    offset, position = _number(data, position)
    size, position = _number(data, position)
    return (offset, size), position


def _number(data: bytes, position: int) -> tuple[int, int]:
    """A varint (7 bits per byte, lowest first), and the next position."""
    value = 0
    for shift in range(0, 64, 7):
        if position >= len(data):
            break
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
    raise ValueError("has a number without an end")


def _fields(message: bytes) -> tuple[dict[int, int], dict[int, list[bytes]]]:
    """The numbers and the contents (text, messages) of a protocol message by the numbers of their fields."""
    numbers: dict[int, int] = {}
    contents: dict[int, list[bytes]] = {}
    position = 0
    while position < len(message):
        tag, position = _number(message, position)
        field, kind = divmod(tag, 8)
        if kind == 0:
            numbers[field], position = _number(message, position)
            continue
        if kind == 1:
            size = 8
        elif kind == 2:
            size, position = _number(message, position)
        elif kind == 5:
            size = 4
        else:
            size = _NEGATIVE
        content = message[position : position + size]
        position += size
        if len(content) < size:
            raise ValueError("has a field without an end")
        if kind == 2:
            contents.setdefault(field, []).append(content)
        else:
            numbers[field] = int.from_bytes(content, "little")
    return numbers, contents


INDEX_SUFFIX = ".index"
_NEWEST_VERSION = 1  # of the format, the only one since 2016
_MAX_SHARDS = 99_999  # their names have five digits
_NEGATIVE = 2**63  # negative numbers are stored as their complement
_SLICE_PREFIX = b"\0"  # of the keys of slices of variables

# TensorFlow's DataType: its name, and torch's type if weights can have it.
_TYPES: dict[int, tuple[str, torch.dtype | None]] = {
    1: ("float32", torch.float32),
    2: ("float64", torch.float64),
    3: ("int32", torch.int32),
    4: ("uint8", torch.uint8),
    5: ("int16", torch.int16),
    6: ("int8", torch.int8),
    7: ("string", None),
    9: ("int64", torch.int64),
    10: ("bool", None),
    14: ("bfloat16", torch.bfloat16),
    19: ("float16", torch.float16),
}


class StoredVariable(NamedTuple):
    """A variable according to the index."""

    type_name: str
    dtype: torch.dtype | None
    shape: tuple[int, ...]
    shard: int
    offset: int
    size: int
    crc32c: int
    sliced: bool


class TensorBundle:
    """A checkpoint with its `entries` by the names of the variables; `prefix` is that of `PREFIX.index`."""

    def __init__(self, prefix: Path) -> None:
        self.prefix = prefix
        self.index = prefix.with_name(prefix.name + INDEX_SUFFIX)
        table = read_table(self.index)
        self.shards = self._shards(table.pop(b"", None))
        self.entries = {
            self._name(key): self._entry(key, value)
            for key, value in table.items()
            if not key.startswith(_SLICE_PREFIX)
        }

    def data_file(self, shard: int) -> Path:
        return self.prefix.with_name(f"{self.prefix.name}.data-{shard:05d}-of-{self.shards:05d}")

    def require(self, names: Iterable[str]) -> None:
        """Check, without reading them, that tensors are numbers and within their files."""
        entries = {name: self.entries[name] for name in names}
        for name, entry in entries.items():
            if entry.sliced:
                remedy = "save the checkpoint again with TensorFlow without a partitioner"
                raise DamagedData(self.index, f"{name} is stored in slices, by a partitioned variable", remedy)
            if 0 in entry.shape:
                raise DamagedData(self.index, f"{name} of shape {entry.shape} is empty")
            if entry.dtype is None:
                raise DamagedData(self.index, f"{name} holds {entry.type_name}, not a type of weights")
        for shard in sorted({entry.shard for entry in entries.values()}):
            file = self.data_file(shard)
            if not file.is_file():
                why = "is missing: a checkpoint is its .index and every .data file"
                raise MissingInput(file, why, f"put it beside {self.index.name}")
            size = file.stat().st_size
            for name, entry in entries.items():
                if entry.shard == shard and entry.offset + entry.size > size:
                    why = f"has {size:,} bytes, {name} ends at byte {entry.offset + entry.size:,}"
                    raise DamagedData(file, why, DOWNLOAD_AGAIN)

    def read(self, name: str) -> Tensor:
        """Read a variable and check its checksum.

        Read, not memory-mapped: a file that is cut meanwhile is an error then, and pages do not count twice.
        """
        self.require([name])
        entry = self.entries[name]
        assert entry.dtype is not None
        content = np.empty(entry.shape, f"<i{entry.dtype.itemsize}")
        octets = content.reshape(-1).view(np.uint8)
        file = self.data_file(entry.shard)
        with open_input(file) as stream:
            stream.seek(entry.offset)
            filled = stream.readinto(octets.data)
        if filled < entry.size or masked_crc32c(octets) != entry.crc32c:
            raise DamagedData(file, f"the checksum of {name} is wrong", DOWNLOAD_AGAIN)
        return torch.from_numpy(content).view(entry.dtype)

    def _shards(self, header: bytes | None) -> int:
        if header is None:
            raise DamagedData(self.index, "has no header: it is not the index of a TensorFlow checkpoint")
        numbers, contents = self._parse(header, "its header")
        version, _ = self._parse(b"".join(contents.get(3, [])), "its version")
        if numbers.get(2):
            why = "was written on a big-endian machine"
            raise DamagedData(self.index, why, "save the checkpoint again on a little-endian machine")
        oldest_reader = version.get(2, 0)
        if oldest_reader > _NEWEST_VERSION:
            raise DamagedData(self.index, f"needs version {oldest_reader}, only {_NEWEST_VERSION} is supported")
        shards = numbers.get(1, 0)
        if not 1 <= shards <= _MAX_SHARDS:
            raise DamagedData(self.index, f"lists {shards} data files")
        return shards

    def _name(self, key: bytes) -> str:
        name = key.decode("utf-8", "replace")
        if not name.isprintable() or name.encode() != key:
            raise DamagedData(self.index, f"has a name that is not text: {key!r}")
        return name

    def _entry(self, key: bytes, value: bytes) -> StoredVariable:
        name = self._name(key)
        numbers, contents = self._parse(value, name)
        unknown_rank, axes = self._parse(b"".join(contents.get(2, [])), name)
        shape = tuple(self._parse(axis, name)[0].get(1, 0) for axis in axes.get(2, []))
        number, shard, offset, size, checksum = (numbers.get(field, 0) for field in (1, 3, 4, 5, 6))
        type_name, dtype = _TYPES.get(number, (f"type {number}", None))
        sliced = 7 in contents
        if unknown_rank.get(3) or max(*shape, offset, size) >= _NEGATIVE:
            raise DamagedData(self.index, f"{name} has an impossible shape or offset")
        if shard >= self.shards:
            raise DamagedData(self.index, f"{name} is in data file {shard} of {self.shards}")
        if dtype is not None and not sliced and size != math.prod(shape) * dtype.itemsize:
            raise DamagedData(self.index, f"{name} of shape {shape} and {type_name} has {size:,} bytes")
        return StoredVariable(type_name, dtype, shape, shard, offset, size, checksum, sliced)

    def _parse(self, message: bytes, subject: str) -> tuple[dict[int, int], dict[int, list[bytes]]]:
        try:
            return _fields(message)
        except ValueError as error:
            raise DamagedData(self.index, f"{subject} is not a valid message") from error
