"""A small writer of TensorFlow's checkpoint format, byte by byte, independent of the reader."""

from collections.abc import Iterable, Mapping
from pathlib import Path

import torch
from torch import Tensor

from albert.checkpoints.tensor_bundle import masked_crc32c

MAGIC = bytes.fromhex("57fb808b247547db")
TYPES = {
    torch.float32: 1,
    torch.float64: 2,
    torch.int32: 3,
    torch.uint8: 4,
    torch.int16: 5,
    torch.int8: 6,
    torch.int64: 9,
    torch.bfloat16: 14,
    torch.float16: 19,
}


def write_bundle(
    prefix: Path, tensors: Mapping[str, Tensor], *, shards: int = 1, block_size: int = 4096, restart_every: int = 16
) -> None:
    """Write tensors into `shards` data files, and their index."""
    names = sorted(tensors, key=lambda name: name.encode())
    offsets: dict[str, tuple[int, int]] = {}
    for shard in range(shards):
        offset = 0
        with open(f"{prefix}.data-{shard:05d}-of-{shards:05d}", "wb") as file:
            for name in names[shard::shards]:
                content = octets(tensors[name])
                file.write(content)
                offsets[name] = (shard, offset)
                offset += len(content)
    entries = {b"": header(shards)}
    for name in names:
        tensor, (shard, offset) = tensors[name], offsets[name]
        content = octets(tensor)
        entries[name.encode()] = entry(
            TYPES[tensor.dtype], tensor.shape, shard, offset, len(content), masked_crc32c(bytes(content))
        )
    index = prefix.with_name(prefix.name + ".index")
    index.write_bytes(table(entries.items(), block_size, restart_every))


def octets(tensor: Tensor) -> memoryview:
    """The bytes of a tensor."""
    if not tensor.numel():
        return memoryview(b"")
    return tensor.contiguous().reshape(-1).view(torch.uint8).numpy().data


def header(shards: int = 1, big_endian: bool = False, min_consumer: int = 0) -> bytes:
    """A BundleHeaderProto."""
    version = number(1, 1) + number(2, min_consumer)
    return number(1, shards) + number(2, int(big_endian)) + message(3, version)


def entry(dtype: int, shape: Iterable[int], shard: int, offset: int, size: int, crc: int, extra: bytes = b"") -> bytes:
    """A BundleEntryProto."""
    axes = b"".join(message(2, number(1, length)) for length in shape)
    position = number(3, shard) + number(4, offset) + number(5, size)
    return number(1, dtype) + message(2, axes) + position + b"\x35" + crc.to_bytes(4, "little") + extra


def number(field: int, value: int) -> bytes:
    """A varint field; zeros are omitted, as in TensorFlow."""
    return varint(field << 3) + varint(value & (2**64 - 1)) if value else b""


def message(field: int, content: bytes) -> bytes:
    """A field with a message."""
    return varint(field << 3 | 2) + varint(len(content)) + content


def varint(value: int) -> bytes:
    """Seven bits per byte, lowest first."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def table(
    entries: Iterable[tuple[bytes, bytes]], block_size: int = 4096, restart_every: int = 16, compression: int = 0
) -> bytes:
    """A LevelDB table of entries in this order."""
    file, index, pending = bytearray(), [], []

    def finish() -> None:
        if pending:
            index.append((pending[-1][0], add_block(file, block(pending, restart_every), compression)))
            pending.clear()

    for key, value in entries:
        pending.append((key, value))
        if sum(len(k) + len(v) for k, v in pending) >= block_size:
            finish()
    finish()
    meta = add_block(file, block([], 1), 0)
    top = add_block(file, block(index, 1), 0)
    return bytes(file) + (meta + top).ljust(40, b"\0") + MAGIC


def add_block(file: bytearray, content: bytes, compression: int) -> bytes:
    """Append a block with its trailer and return its handle."""
    handle = varint(len(file)) + varint(len(content))
    record = content + bytes([compression])
    file += record + masked_crc32c(bytes(record)).to_bytes(4, "little")
    return handle


def block(entries: Iterable[tuple[bytes, bytes]], restart_every: int) -> bytes:
    """Prefix-compressed entries and the restarts."""
    out, restarts, last = bytearray(), [0], b""
    for count, (key, value) in enumerate(entries):
        shared = 0
        if count % restart_every:
            while shared < min(len(key), len(last)) and key[shared] == last[shared]:
                shared += 1
        elif count:
            restarts.append(len(out))
        out += varint(shared) + varint(len(key) - shared) + varint(len(value)) + key[shared:] + value
        last = key
    return bytes(out) + b"".join(position.to_bytes(4, "little") for position in (*restarts, len(restarts)))
