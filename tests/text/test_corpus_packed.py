"""Packed files: whole or refused, however they were packed; what is asked for at a time is bounded."""

import bz2
import gzip
import importlib
import io
import lzma
import os
import sys
import tracemalloc
import zlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from albert.runtime.errors import AlbertError, DamagedData, Unavailable
from albert.text.corpus import find_corpus_files
from albert.text.readers import COMPRESSIONS, DecompressedFile, open_corpus_file


def zstandard(data: bytes) -> bytes:
    library = pytest.importorskip("zstandard", reason="needs the extra [data]: zstandard")
    return library.ZstdCompressor(write_checksum=True).compress(data)


PACK = {".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress, ".zst": zstandard}
every_packing = pytest.mark.parametrize("suffix", PACK)


def unpacked(data, suffix):
    return DecompressedFile(io.BytesIO(data), Path("a"), COMPRESSIONS[suffix]).readall()


@pytest.fixture
def content(tmp_path):
    def read(suffix, data):
        path = tmp_path / f"a.txt{suffix}"
        path.write_bytes(data)
        with open_corpus_file(find_corpus_files([path]).files[0]) as (opened, raw):
            found = opened.read()
            assert raw.tell() == len(data)
        return found

    return read


@every_packing
@given(parts=st.lists(st.binary(max_size=300), min_size=1, max_size=4))
def test_streams_that_follow_one_another_are_one_text(suffix, parts):
    assert unpacked(b"".join(PACK[suffix](part) for part in parts), suffix) == b"".join(parts)


@every_packing
def test_a_large_file_is_read_whole(suffix, content):
    data = b"".join(f"{number} lines\n".encode() for number in range(200_000))
    assert content(suffix, PACK[suffix](data) + PACK[suffix](data[:999])) == data + data[:999]


@every_packing
def test_a_file_that_is_cut_anywhere_is_refused(suffix, content):
    whole = PACK[suffix](os.urandom(300).hex().encode())
    for end in range(len(whole)):
        with pytest.raises(DamagedData, match=rf"a\.txt\{suffix}: damaged .* file \(.*\); fetch or pack it again"):
            content(suffix, whole[:end])
    two = whole + whole
    for end in range(len(whole) + 1, len(two), 37):
        with pytest.raises(DamagedData):
            content(suffix, two[:end])


@every_packing
@pytest.mark.parametrize("junk", [b"junk", b"\x01" * 100, b"\n"])
def test_what_follows_the_last_stream_is_not_overlooked(suffix, junk, content):
    with pytest.raises(DamagedData, match="damaged"):
        content(suffix, PACK[suffix](b"text") + junk)


@pytest.mark.parametrize("suffix", [".gz", ".bz2", ".xz"])
def test_zeros_may_fill_a_block(suffix, content):
    packed = PACK[suffix](b"text")
    assert content(suffix, packed + bytes(512) + packed + bytes(70_000)) == b"texttext"
    with pytest.raises(DamagedData):
        content(suffix, bytes(512))


@every_packing
@given(data=st.binary(max_size=200))
def test_noise_is_an_error_of_ours(suffix, data):
    try:
        unpacked(data, suffix)
    except AlbertError as error:
        assert "\n" not in str(error)


@every_packing
@given(data=st.data())
def test_flipped_bits_are_found_by_the_checksum(suffix, data):
    text = b"The quick brown fox jumps over the lazy dog. " * 8
    packed = bytearray(PACK[suffix](text))
    packed[data.draw(st.integers(0, len(packed) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    try:
        assert unpacked(bytes(packed), suffix) == text  # a flag or a time in the head may differ
    except AlbertError as error:
        assert "damaged" in str(error)


@every_packing
def test_what_unpacks_to_much_more_is_not_held_whole(suffix, tmp_path):
    """Sixty megabytes of zeros in a few kilobytes."""
    path = tmp_path / f"a.txt{suffix}"
    path.write_bytes(PACK[suffix](bytes(60_000_000)))
    file = find_corpus_files([path]).files[0]
    size = 0
    tracemalloc.start()
    with open_corpus_file(file) as (opened, _):
        while part := opened.read(1 << 16):
            size += len(part)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert size == 60_000_000
    assert peak < 40_000_000


def test_a_skippable_frame_holds_nothing():
    frame = b"\x50\x2a\x4d\x18" + (8).to_bytes(4, "little") + b"metadata"
    assert unpacked(frame + zstandard(b"text") + frame + zstandard(b"more"), ".zst") == b"textmore"


def test_frames_with_a_window_of_two_gigabytes_are_read():
    """Some published corpora are packed so (`zstd --long=31`)."""
    library = pytest.importorskip("zstandard", reason="needs the extra [data]: zstandard")
    options = library.ZstdCompressionParameters(window_log=31, strategy=1)
    packer = library.ZstdCompressor(compression_params=options).compressobj()  # of unknown size: the window counts
    assert unpacked(packer.compress(b"text") + packer.flush(), ".zst") == b"text"


def test_without_zstandard_the_error_names_the_extra(content, monkeypatch):
    monkeypatch.setitem(sys.modules, "zstandard", None)
    with pytest.raises(Unavailable, match=r"zstandard: is not installed; pip install 'albert-encoder\[data\]'"):
        content(".zst", b"text")
    monkeypatch.undo()
    importlib.invalidate_caches()


def test_gzip_as_other_tools_write_it(content):
    head = gzip.GzipFile("name", "wb", fileobj=(file := io.BytesIO()))
    head.write(b"named ")
    head.close()
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    flushed = packer.compress(b"in ") + packer.flush(zlib.Z_FULL_FLUSH) + packer.compress(b"blocks") + packer.flush()
    assert content(".gz", file.getvalue() + flushed) == b"named in blocks"
