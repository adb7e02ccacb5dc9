"""TensorFlow's checkpoint format, read without TensorFlow: an index, and tensors one after the other in data files.

`PREFIX.index` is a table (`leveldb_table.py`) from the name of a variable to a protocol message with its number type,
shape, place and checksum; the empty key has a header. `PREFIX.data-00000-of-00001` and so on hold the bytes. A tensor
is checked against its checksum when it is read, and everything that can be said without its bytes is checked before.
Source: TensorFlow, `core/protobuf/tensor_bundle.proto` and `core/util/tensor_bundle/`.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError
from torch import Tensor

from albert.checkpoints.tensorflow.crc32c import masked_crc32c
from albert.checkpoints.tensorflow.leveldb_table import FETCH_AGAIN, read_table
from albert.runtime.errors import DamagedData, MissingInput
from albert.runtime.input_files import open_unbuffered

INDEX_SUFFIX = ".index"
_NEWEST_VERSION = 1  # of the format, the only one since 2016
_MOST_SHARDS = 99_999  # their names have five digits
_SLICES_OF_VARIABLES = b"\0"  # what the keys of single slices begin with

# TensorFlow's DataType: its name, and the number type here where there is one that weights can have.
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

_Field = descriptor_pb2.FieldDescriptorProto
_SCHEMA: dict[str, dict[str, tuple[int, Any]]] = {
    "Version": {"producer": (1, _Field.TYPE_INT32), "min_consumer": (2, _Field.TYPE_INT32)},
    "Header": {
        "num_shards": (1, _Field.TYPE_INT32),
        "endianness": (2, _Field.TYPE_INT32),
        "version": (3, "Version"),
    },
    "Dimension": {"size": (1, _Field.TYPE_INT64)},
    "Shape": {"dim": (2, "*Dimension"), "unknown_rank": (3, _Field.TYPE_BOOL)},
    "Slice": {},
    "Entry": {
        "dtype": (1, _Field.TYPE_INT32),
        "shape": (2, "Shape"),
        "shard_id": (3, _Field.TYPE_INT32),
        "offset": (4, _Field.TYPE_INT64),
        "size": (5, _Field.TYPE_INT64),
        "crc32c": (6, _Field.TYPE_FIXED32),
        "slices": (7, "*Slice"),
    },
}
"""The messages as far as they are needed: field -> its number, and its type or its message (* for a list)."""


@dataclass(frozen=True, kw_only=True)
class StoredVariable:
    """What the index says about one variable.

    Args:
        type_name: TensorFlow's name of the number type, "float32" say.
        dtype: ours; None where there is none, as for strings.
        shape: the sizes of its axes.
        shard: which data file holds it.
        offset: of its first byte.
        size: in bytes.
        crc32c: the masked checksum of its bytes.
        sliced: whether it is stored in slices, by a partitioned variable.
    """

    type_name: str
    dtype: torch.dtype | None
    shape: tuple[int, ...]
    shard: int
    offset: int
    size: int
    crc32c: int
    sliced: bool


class TensorBundle:
    """A checkpoint: `entries` by the names of the variables, and their values one by one.

    Args:
        prefix: what the names of its files begin with: `model.ckpt-best` for `model.ckpt-best.index`.

    Raises:
        MissingInput: no index there.
        DamagedData: it is damaged, or contradicts itself.
    """

    def __init__(self, prefix: Path) -> None:
        self.prefix = prefix
        self.index = prefix.with_name(prefix.name + INDEX_SUFFIX)
        table = read_table(self.index)
        self.shards = self._shards(table.pop(b"", None))
        self.entries = {
            self._name(key): self._entry(key, value)
            for key, value in table.items()
            if not key.startswith(_SLICES_OF_VARIABLES)
        }

    def data_file(self, shard: int) -> Path:
        """Where the tensors of a shard are."""
        return self.prefix.with_name(f"{self.prefix.name}.data-{shard:05d}-of-{self.shards:05d}")

    def require(self, names: Iterable[str]) -> None:
        """Check, without reading them, that tensors are numbers and lie within their files.

        Raises:
            MissingInput: a data file is absent.
            DamagedData: it is too short, or a tensor is empty, in slices, or no numbers.
        """
        wanted = {name: self.entries[name] for name in names}
        for name, entry in wanted.items():
            if entry.sliced:
                remedy = "let TensorFlow save the checkpoint again without a partitioner"
                raise DamagedData(self.index, f"{name} is stored in slices, by a partitioned variable", remedy)
            if 0 in entry.shape:
                raise DamagedData(self.index, f"{name} of shape {entry.shape} is empty")
            if entry.dtype is None:
                raise DamagedData(self.index, f"{name} holds {entry.type_name}, not numbers that weights can have")
        for shard in sorted({entry.shard for entry in wanted.values()}):
            file = self.data_file(shard)
            if not file.is_file():
                why = "is missing: a checkpoint is its .index and every .data file"
                raise MissingInput(file, why, f"put it beside {self.index.name}")
            size = file.stat().st_size
            for name, entry in wanted.items():
                if entry.shard == shard and entry.offset + entry.size > size:
                    why = f"has {size:,} bytes, {name} ends at byte {entry.offset + entry.size:,}"
                    raise DamagedData(file, why, FETCH_AGAIN)

    def read(self, name: str) -> Tensor:
        """The value of a variable, its checksum verified, in memory of its own.

        Read, not mapped: a file that is cut meanwhile is an error then, and pages do not count twice.

        Raises:
            MissingInput, DamagedData: as for `require`, or the bytes are not those that were written.
        """
        self.require([name])
        entry = self.entries[name]
        assert entry.dtype is not None
        content = np.empty(entry.shape, f"<i{entry.dtype.itemsize}")
        octets = content.reshape(-1).view(np.uint8).data
        file = self.data_file(entry.shard)
        with open_unbuffered(file) as stream:
            stream.seek(entry.offset)
            filled = 0
            while filled < entry.size and (count := stream.readinto(octets[filled:])):
                filled += count
        if filled < entry.size or masked_crc32c(octets) != entry.crc32c:
            raise DamagedData(file, f"the checksum of {name} is wrong", FETCH_AGAIN)
        return torch.from_numpy(content).view(entry.dtype)

    def _shards(self, header: bytes | None) -> int:
        if header is None:
            raise DamagedData(self.index, "has no header: it is not the index of a TensorFlow checkpoint")
        found = self._parsed("Header", header, "its header")
        if found.endianness:
            why = "was written on a big-endian machine"
            raise DamagedData(self.index, why, "let TensorFlow save the checkpoint again on another")
        if found.version.min_consumer > _NEWEST_VERSION:
            raise DamagedData(self.index, f"is of version {found.version.producer}, {_NEWEST_VERSION} is known here")
        if not 1 <= found.num_shards <= _MOST_SHARDS:
            raise DamagedData(self.index, f"speaks of {found.num_shards} data files")
        return found.num_shards

    def _name(self, key: bytes) -> str:
        name = key.decode("utf-8", "replace")
        if not name.isprintable() or name.encode() != key:
            raise DamagedData(self.index, f"has a name that is no text: {key!r}")
        return name

    def _entry(self, key: bytes, value: bytes) -> StoredVariable:
        name = self._name(key)
        found = self._parsed("Entry", value, name)
        type_name, dtype = _TYPES.get(found.dtype, (f"type {found.dtype}", None))
        shape = tuple(axis.size for axis in found.shape.dim)
        sliced = len(found.slices) > 0
        if found.shape.unknown_rank or min(shape, default=0) < 0 or min(found.offset, found.size) < 0:
            raise DamagedData(self.index, f"{name} has an impossible shape or place")
        if not 0 <= found.shard_id < self.shards:
            raise DamagedData(self.index, f"{name} is in data file {found.shard_id} of {self.shards}")
        if dtype is not None and not sliced and found.size != math.prod(shape) * dtype.itemsize:
            why = f"{name} of shape {shape} and {type_name} has {found.size:,} bytes"
            raise DamagedData(self.index, why)
        return StoredVariable(
            type_name=type_name,
            dtype=dtype,
            shape=shape,
            shard=found.shard_id,
            offset=found.offset,
            size=found.size,
            crc32c=found.crc32c,
            sliced=sliced,
        )

    def _parsed(self, message: str, data: bytes, what: str) -> Any:
        found = _MESSAGES[message]()
        try:
            found.ParseFromString(data)
        except DecodeError as error:
            raise DamagedData(self.index, f"{what} is not the message that belongs there") from error
        return found


def _messages() -> dict[str, Any]:
    file = descriptor_pb2.FileDescriptorProto(name="tensor_bundle", package="albert", syntax="proto3")
    for message, fields in _SCHEMA.items():
        described = file.message_type.add(name=message)
        for name, (number, kind) in fields.items():
            field = described.field.add(name=name, number=number, label=_Field.LABEL_OPTIONAL)
            if not isinstance(kind, str):
                field.type = kind
                continue
            field.type, field.type_name = _Field.TYPE_MESSAGE, ".albert." + kind.removeprefix("*")
            if kind.startswith("*"):
                field.label = _Field.LABEL_REPEATED
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"albert.{name}")) for name in _SCHEMA}


_MESSAGES = _messages()
