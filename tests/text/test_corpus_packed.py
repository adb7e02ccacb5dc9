"""Compressed files: read completely or refused, in bounded memory."""

import bz2
import gzip
import io
import lzma
import os
import sys
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.refusals import refusal

from albert.runtime.errors import AlbertError, DamagedData
from albert.tables.files import COMPRESSIONS, DecompressedFile, open_input_file
from albert.text.corpus import find_corpus_files


def zstandard(data: bytes, **options: int) -> bytes:
    name = "compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd"
    library = pytest.importorskip(name, reason=f"needs the extra [data]: {name}")
    names = library.CompressionParameter
    compressor = library.ZstdCompressor(
        options={names.checksum_flag: 1, **{names[key]: options[key] for key in options}}
    )
    return compressor.compress(data) + compressor.flush()


COMPRESS = {".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress, ".zst": zstandard}
every_format = pytest.mark.parametrize("suffix", COMPRESS)


def decompress(data, suffix):
    return DecompressedFile(io.BytesIO(data), Path("a"), COMPRESSIONS[suffix]).readall()


@pytest.fixture
def read(tmp_path):
    def read(suffix, data):
        path = tmp_path / f"a.txt{suffix}"
        path.write_bytes(data)
        with open_input_file(find_corpus_files([path]).files[0]) as (content, raw):
            result = content.read()
            assert raw.tell() == len(data)
        return result

    return read


@every_format
@given(parts=st.lists(st.binary(max_size=300), min_size=1, max_size=4))
def test_consecutive_streams_are_joined(suffix, parts):
    assert decompress(b"".join(COMPRESS[suffix](part) for part in parts), suffix) == b"".join(parts)


@every_format
def test_truncated_file_is_refused(suffix, read):
    stream = COMPRESS[suffix](os.urandom(300).hex().encode())
    for end in [*range(len(stream)), *range(len(stream) + 1, 2 * len(stream), 37)]:
        with refusal(DamagedData, f"a.txt{suffix}"):
            read(suffix, (stream + stream)[:end])


@every_format
@pytest.mark.parametrize("junk", [b"junk", b"\x01" * 100, b"\n"])
def test_data_after_the_last_stream_is_refused(suffix, junk, read):
    with refusal(DamagedData):
        read(suffix, COMPRESS[suffix](b"text") + junk)


@pytest.mark.parametrize("suffix", [".gz", ".bz2", ".xz"])
def test_zero_padding_after_a_stream_is_ignored(suffix, read):
    stream = COMPRESS[suffix](b"text")
    assert read(suffix, stream + bytes(512) + stream + bytes(70_000)) == b"texttext"
    with pytest.raises(DamagedData):
        read(suffix, bytes(512))


@every_format
@given(data=st.data())
def test_noise_and_flipped_bits_are_detected(suffix, data):
    text = b"The quick brown fox jumps over the lazy dog. " * 8
    flipped = bytearray(COMPRESS[suffix](text))
    flipped[data.draw(st.integers(0, len(flipped) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    try:
        assert decompress(bytes(flipped), suffix) == text  # a flag or a time in the header may differ
    except AlbertError as error:
        assert "damaged" in str(error)
    try:
        decompress(data.draw(st.binary(max_size=200)), suffix)
    except AlbertError as error:
        assert "\n" not in str(error)


@every_format
def test_highly_compressed_file_is_read_in_bounded_memory(suffix, tmp_path):
    """Sixty megabytes of zeros in a few kilobytes."""
    path = tmp_path / f"a.txt{suffix}"
    path.write_bytes(COMPRESS[suffix](bytes(60_000_000)))
    size = 0
    tracemalloc.start()
    with open_input_file(find_corpus_files([path]).files[0]) as (content, _):
        while part := content.read(1 << 16):
            size += len(part)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert size == 60_000_000
    assert peak < 40_000_000


def test_skippable_zstandard_frame_holds_no_data():
    frame = b"\x50\x2a\x4d\x18" + (8).to_bytes(4, "little") + b"metadata"
    assert decompress(frame + zstandard(b"text") + frame + zstandard(b"more"), ".zst") == b"textmore"


def test_zstandard_window_of_two_gigabytes_is_read():
    """Some published corpora are compressed so (`zstd --long=31`)."""
    stream = zstandard(b"text", window_log=31, strategy=1)
    assert stream[4] & 0b11100000 == 0  # of unknown size, and no single segment: the window counts
    assert decompress(stream, ".zst") == b"text"
