"""LevelDB's table file, in which TensorFlow keeps the index of a checkpoint: sorted keys with their values.

A table is a run of blocks, and at its end 48 bytes that say where the block of blocks is. In a block a key leaves out
what it shares with the key before. Behind each block stand its compression and a CRC-32C of both.
Source: LevelDB, `doc/table_format.md`; TensorFlow writes such files with `tsl/lib/io/table_builder.cc`.
"""

from collections.abc import Iterator
from pathlib import Path

from albert.checkpoints.tensorflow.crc32c import masked_crc32c
from albert.runtime.errors import DamagedData, MissingInput
from albert.runtime.input_files import open_input

MAGIC = (0xDB4775248B80FB57).to_bytes(8, "little")
_FOOTER, _TRAILER = 48, 5
_LARGEST = 2**26  # bytes; the index of an ALBERT has a few thousand
_COMPRESSIONS = {1: "snappy", 2: "zstandard"}
FETCH_AGAIN = "the file is damaged or cut: fetch it again"


def is_table(path: Path) -> bool:
    """Whether a file ends as such tables do."""
    with open_input(path) as file:
        size = file.seek(0, 2)
        file.seek(max(0, size - len(MAGIC)))
        return file.read() == MAGIC


def read_table(path: Path) -> dict[bytes, bytes]:
    """All keys and values, in the order of the file.

    Raises:
        MissingInput: no such file, or it cannot be read.
        DamagedData: not such a table, damaged, cut, compressed, or far larger than an index is.
    """
    try:
        with open_input(path) as file:
            data = file.read(_LARGEST + 1)
    except OSError as error:
        raise MissingInput(path, error.strerror or "cannot be read") from error
    if len(data) > _LARGEST:
        raise DamagedData(path, f"has more than {_LARGEST:,} bytes, the index of no ALBERT has so many")
    if len(data) < _FOOTER or data[-len(MAGIC) :] != MAGIC:
        raise DamagedData(path, "is not the index of a TensorFlow checkpoint, or not all of it", FETCH_AGAIN)
    try:
        return _entries(data)
    except _Malformed as error:
        raise DamagedData(path, str(error), error.remedy) from error


class _Malformed(ValueError):
    """A table that breaks the rules of its format."""

    def __init__(self, why: str, remedy: str = FETCH_AGAIN) -> None:
        super().__init__(why)
        self.remedy = remedy


def _entries(data: bytes) -> dict[bytes, bytes]:
    footer = len(data) - _FOOTER
    _, position = _handle(data, footer)  # of a block that TensorFlow leaves empty
    index, _ = _handle(data, position)
    entries: dict[bytes, bytes] = {}
    last = None
    for _, place in _block_entries(_block(data, index)):
        block, end = _handle(place, 0)
        if end != len(place):
            raise _Malformed("names a block in more bytes than it takes")
        for key, value in _block_entries(_block(data, block)):
            if last is not None and key <= last:
                raise _Malformed("has keys that are not in order")
            entries[key], last = value, key
    return entries


def _block(data: bytes, handle: tuple[int, int]) -> bytes:
    """The content of a block, its checksum verified."""
    offset, size = handle
    if offset + size + _TRAILER > len(data) - _FOOTER:
        raise _Malformed("names a block beyond its end")
    content, trailer = data[offset : offset + size + 1], data[offset + size : offset + size + _TRAILER]
    if masked_crc32c(content) != int.from_bytes(trailer[1:], "little"):
        raise _Malformed(f"the checksum of its block at byte {offset} is wrong")
    if trailer[0]:
        kind = _COMPRESSIONS.get(trailer[0], f"method {trailer[0]}")
        raise _Malformed(
            f"is compressed ({kind})", "TensorFlow writes it uncompressed: let it save the checkpoint again"
        )
    return content[:-1]


def _block_entries(block: bytes) -> Iterator[tuple[bytes, bytes]]:
    restarts = int.from_bytes(block[-4:], "little")
    end = len(block) - 4 * (restarts + 1)
    if len(block) < 4 or end < 0:
        raise _Malformed("has a block without an end")
    position, key = 0, b""
    while position < end:
        shared, position = _number(block, position)
        added, position = _number(block, position)
        size, position = _number(block, position)
        if shared > len(key) or position + added + size > end:
            raise _Malformed("has an entry that runs over its block")
        key = key[:shared] + block[position : position + added]
        position += added
        yield key, block[position : position + size]
        position += size


def _handle(data: bytes, position: int) -> tuple[tuple[int, int], int]:
    """Offset and size of a block, and where reading goes on."""
    offset, position = _number(data, position)
    size, position = _number(data, position)
    return (offset, size), position


def _number(data: bytes, position: int) -> tuple[int, int]:
    """A number in groups of 7 bits, the lowest first, and where reading goes on."""
    value = 0
    for shift in range(0, 64, 7):
        if position >= len(data):
            break
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
    raise _Malformed("has a number without an end")
