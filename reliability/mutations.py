"""Valid samples made wrong: bytes anywhere, and, knowing the form, values, lines, headers and checksums.

Bytes alone find the outer door of a parser; what stands behind a checksum or a bracket is reached only by a sample that
is still of its form. All draws come from one generator, so a number is a sample.
"""

import gzip
import json
import random
import struct
import zlib
from collections.abc import Callable, Sequence
from typing import Any, Literal

from albert.checkpoints.tensor_bundle import masked_crc32c

Form = Literal["bytes", "text", "table", "json", "json lines", "safetensors", "gzip", "tensorflow index"]
LONGEST = 1 << 20
"""Bytes of a mutated sample."""
_RAW = "raw-token-"
_NUMBERS = ("1e999", "-1e999", "NaN", "-Infinity", "9" * 5000, "1" + "0" * 12, "-1", "0", "1.5", "2147483648", "-0.0")
_TEXTS = ("", "\ud800", "\0", "../../x", "/etc/passwd", "a\nb", "\x1b[31m", "0" * 3000, "éﬁ½İ\u202e", "[MASK]", "nan")
_DEEP = "[" * 3000 + "]" * 3000, '{"a":' * 3000 + "1" + "}" * 3000
_CHUNKS = (
    *(b"", b"\0", b"\xff", b"\xff\xfe", b"\xef\xbb\xbf", b"\xed\xa0\x80", b"\xc0\x80", b"\xe2\x80\xa8", b"\r", b"\r\n"),
    *(b"\n", b"\n\n", b"\t", b",", b'"', b"'", b"{", b"[", b"]" * 99, b"\x80\x05", b"PK\x03\x04", b"\x1f\x8b", b"-1"),
    *(struct.pack("<q", number) for number in (-1, 0, 2**31, 2**62, 2**63 - 1)),
    *(struct.pack("<i", number) for number in (-1, 2**31 - 1)),
    b"\xff" * 10,  # a protocol buffer's number without an end
)


def mutated(samples: Sequence[bytes], form: Form, numbers: random.Random) -> bytes:
    """One of the samples, made wrong in one to four places."""
    sample = numbers.choice(samples)
    for _ in range(numbers.choice((1, 1, 1, 2, 4))):
        change = _bytes_changed if numbers.random() < 0.3 else _BY_FORM[form]
        sample = change(sample, samples, numbers)[:LONGEST]
    return sample


def _bytes_changed(sample: bytes, samples: Sequence[bytes], numbers: random.Random) -> bytes:
    """Bytes set, put in, taken out, doubled, cut, zeroed, or taken from another sample."""
    begin, end = sorted(numbers.randrange(len(sample) + 1) for _ in range(2))
    if numbers.random() < 0.6:
        end = min(end, begin + numbers.choice((1, 2, 8, 64)))
    match numbers.randrange(8):
        case 0 if sample:
            place = min(begin, len(sample) - 1)
            return sample[:place] + bytes([sample[place] ^ 1 << numbers.randrange(8)]) + sample[place + 1 :]
        case 1:
            return sample[:begin] + numbers.choice(_CHUNKS) + sample[begin:]
        case 2:
            return sample[:begin] + numbers.choice(_CHUNKS) + sample[end:]
        case 3:
            return sample[:begin] + sample[end:]
        case 4:
            return sample[:end] + sample[begin:end] * numbers.choice((1, 3, 50)) + sample[end:]
        case 5:
            return sample[:begin]
        case 6:
            return sample[:begin] + bytes(end - begin) + sample[end:]
        case _:
            other = numbers.choice(samples)
            return sample[:begin] + other[numbers.randrange(len(other) + 1) :]


def _lines_changed(sample: bytes, samples: Sequence[bytes], numbers: random.Random) -> bytes:
    """Lines left out, doubled, swapped, joined, or of another kind."""
    lines = sample.split(b"\n")
    place = numbers.randrange(len(lines))
    match numbers.randrange(6):
        case 0:
            del lines[place]
        case 1:
            lines[place:place] = [lines[place]] * numbers.choice((1, 3, 300))
        case 2:
            other = numbers.randrange(len(lines))
            lines[place], lines[other] = lines[other], lines[place]
        case 3:
            lines[place : place + 2] = [b"".join(lines[place : place + 2])]
        case 4:
            lines[place] = numbers.choice((b"", b" ", b"\t" * 9, b'"', b"\0", "ſ\u2028".encode(), b"x" * 99_999))
        case _:
            lines[place] += numbers.choice(_CHUNKS)
    return b"\n".join(lines)


def _fields_changed(sample: bytes, samples: Sequence[bytes], numbers: random.Random) -> bytes:
    """A field of one row is another, or missing, or there twice."""
    if numbers.random() < 0.4:
        return _lines_changed(sample, samples, numbers)
    lines = sample.split(b"\n")
    place = numbers.randrange(len(lines))
    separator = b"\t" if b"\t" in sample else b"," if b"," in sample else b" "
    fields = lines[place].split(separator)
    column = numbers.randrange(len(fields))
    value = numbers.choice(_TEXTS + _NUMBERS).encode("utf-8", "surrogatepass")
    fields[column : column + 1] = numbers.choice(([], [value], [fields[column]] * 2, [b'"' + value], [b'"%b"' % value]))
    lines[place] = separator.join(fields)
    return b"\n".join(lines)


def _json_changed(sample: bytes, samples: Sequence[bytes], numbers: random.Random) -> bytes:
    """A value of the tree is another, or its key is another, missing, or there twice."""
    try:
        tree = json.loads(sample)
    except (ValueError, RecursionError):  # an earlier change left no JSON
        return _bytes_changed(sample, samples, numbers)
    places = list(_places(tree))
    if not places:
        return _bytes_changed(sample, samples, numbers)
    holder, key = numbers.choice(places)
    match numbers.randrange(5):
        case 0:
            del holder[key]
        case 1 if isinstance(holder, dict):
            holder[numbers.choice((*_TEXTS, key + "x", "_target_"))] = holder.pop(key)
        case 2 if isinstance(holder, dict):
            holder[f"{_RAW}twice-{key}"] = _any_value(numbers)
        case 3 if isinstance(holder, list):
            holder *= numbers.choice((2, 50))
        case _:
            holder[key] = _any_value(numbers)
    try:
        text = json.dumps(tree)
    except (ValueError, RecursionError):
        return _bytes_changed(sample, samples, numbers)
    for number, token in enumerate((*_NUMBERS, *_DEEP)):
        text = text.replace(f'"{_RAW}{number}"', token)
    return text.replace(f"{_RAW}twice-", "").encode()


def _places(tree: Any) -> list[tuple[Any, Any]]:
    """Every value by what holds it and its key there; of long lists the first and the last."""
    found, waiting = [], [tree]
    while waiting:
        holder = waiting.pop()
        keys = list(holder) if isinstance(holder, dict) else range(len(holder)) if isinstance(holder, list) else []
        if len(keys) > 40:
            keys = [*keys[:20], *keys[-20:]]
        found += [(holder, key) for key in keys]
        waiting += [holder[key] for key in keys]
    return found


def _any_value(numbers: random.Random) -> Any:
    tokens = [f"{_RAW}{number}" for number in range(len(_NUMBERS) + len(_DEEP))]
    plain = [None, True, False, {}, [], [None], {"a": 1}, [[1, 2], "x"], "x" * 50_000]
    return numbers.choice(numbers.choice((tokens, _TEXTS, plain)))


def _json_line_changed(sample: bytes, samples: Sequence[bytes], numbers: random.Random) -> bytes:
    if numbers.random() < 0.3:
        return _lines_changed(sample, samples, numbers)
    lines = sample.split(b"\n")
    place = numbers.randrange(len(lines))
    lines[place] = _json_changed(lines[place], [lines[place]], numbers)
    return b"\n".join(lines)


def _header_changed(sample: bytes, samples: Sequence[bytes], numbers: random.Random) -> bytes:
    """The header of a safetensors file changed as JSON, its length right, or nearly."""
    if len(sample) < 8:
        return _bytes_changed(sample, samples, numbers)
    length = int.from_bytes(sample[:8], "little")
    header, data = sample[8 : 8 + length], sample[8 + length :]
    changed = _json_changed(header, [header], numbers)
    said = len(changed) + numbers.choice((0, 0, 0, 0, 1, -1, 2**24, 2**62))
    return struct.pack("<Q", max(said, 0)) + changed + data


def _content_changed(sample: bytes, samples: Sequence[bytes], numbers: random.Random) -> bytes:
    """What is packed is changed, and packed again."""
    try:
        content = gzip.decompress(sample)
    except (OSError, EOFError, zlib.error):
        return _bytes_changed(sample, samples, numbers)
    return gzip.compress(_lines_changed(content, samples, numbers), 1, mtime=0)


def _block_changed(sample: bytes, samples: Sequence[bytes], numbers: random.Random) -> bytes:
    """Bytes of the first block of a LevelDB table, where the entries are, under a checksum that is right again."""
    end = _first_block(sample)
    if end is None:
        return _bytes_changed(sample, samples, numbers)
    content = bytearray(sample[:end])
    for _ in range(numbers.choice((1, 2, 8))):
        chunk = numbers.choice(_CHUNKS) or bytes([numbers.randrange(256)])
        place = numbers.randrange(end)
        content[place : place + len(chunk)] = chunk[: end - place]
    whole = bytes(content) + sample[end : end + 1]
    return whole + masked_crc32c(whole).to_bytes(4, "little") + sample[end + 5 :]


def _first_block(sample: bytes) -> int | None:
    """Where the content of the first block ends, as footer and index say; None where they do not say it any more."""
    try:
        place = len(sample) - 48
        for _ in range(2):  # the place of a block that is empty
            _, place = _varint(sample, place)
        place, _ = _varint(sample, place)  # of the index
        _, place = _varint(sample, place)  # what its first key shares with none
        added, place = _varint(sample, place)
        _, place = _varint(sample, place)
        _, place = _varint(sample, place + added)
        end, _ = _varint(sample, place)
    except IndexError:
        return None
    return end if 0 < end < len(sample) - 53 else None


def _varint(data: bytes, place: int) -> tuple[int, int]:
    """A number in groups of seven bits, and where it ends."""
    value = shift = 0
    while True:
        byte = data[place]
        value, shift, place = value | (byte & 0x7F) << shift, shift + 7, place + 1
        if byte < 0x80:
            return value, place


Change = Callable[[bytes, Sequence[bytes], random.Random], bytes]
_BY_FORM: dict[Form, Change] = {
    "bytes": _bytes_changed,
    "text": _lines_changed,
    "table": _fields_changed,
    "json": _json_changed,
    "json lines": _json_line_changed,
    "safetensors": _header_changed,
    "gzip": _content_changed,
    "tensorflow index": _block_changed,
}
