"""The checksum is CRC-32C, for every length, and however the buffer is cut into streams."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from albert.checkpoints import tensor_bundle as module
from albert.checkpoints.tensor_bundle import crc32c, masked_crc32c

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


@pytest.mark.parametrize("data", KNOWN, ids=lambda data: f"{len(data)} bytes")
def test_known_values(data):
    assert crc32c(data) == KNOWN[data] == bit_by_bit(data)


@given(st.binary(max_size=700))
def test_every_length_is_the_crc_bit_by_bit(data):
    assert crc32c(data) == bit_by_bit(data)


def test_a_buffer_of_several_parts_is_the_crc_bit_by_bit(monkeypatch):
    monkeypatch.setattr(module, "_STREAMS", 8)
    monkeypatch.setattr(module, "_STEPS", 5)
    monkeypatch.setattr(module, "_PART", 8 * 5 * 4)
    data = np.random.default_rng(0).bytes(3 * 160 + 77)
    for size in (159, 160, 161, 320, len(data)):
        assert crc32c(memoryview(data)[:size]) == bit_by_bit(data[:size])


def test_a_large_buffer_is_the_crc_of_its_halves_joined():
    data = np.random.default_rng(1).bytes(module._PART)
    half = len(data) // 2
    joined = module._apply(module._zero_bytes(len(data) - half), np.array([crc32c(data[:half])], np.uint32))[0]
    assert crc32c(data) == int(joined) ^ crc32c(data[half:])


def test_the_mask_is_that_of_leveldb():
    assert masked_crc32c(b"123456789") == ((0xE3069283 >> 15 | 0xE3069283 << 17) + 0xA282EAD8) % 2**32
