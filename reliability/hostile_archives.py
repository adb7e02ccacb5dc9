"""Archives and packed files made to do harm: names that lead out, links, devices, and bombs."""

import gzip
import io
import struct
import tarfile
import zipfile
from collections.abc import Callable

from reliability.hostile_case import Hostile, Place
from reliability.hostile_models import PICKLE

TAR = "convert {here}/a.tar.gz --output {here}/out"
ZIP = "convert {here}/a.zip --output {here}/out"
TRAIN = "tokenizer train {here}/text --output {here}/out --vocab-size 300"
AT_MOST = "--max-document-megabytes 1"
OUTSIDE = "a name outside of its own directory"


def _tar(*members: tuple[str, bytes, bytes, str]) -> Callable[[Place], object]:
    """Args: members: name, kind, content, what a link leads to."""

    def make(place: Place) -> None:
        stream = io.BytesIO()
        with tarfile.open(fileobj=stream, mode="w:gz") as archive:
            for name, kind, content, link in members:
                member = tarfile.TarInfo(name)
                member.type, member.size, member.linkname = kind, len(content), link
                archive.addfile(member, io.BytesIO(content))
        place.write("a.tar.gz", stream.getvalue())

    return make


def _file(name: str, content: bytes = b"index") -> tuple[str, bytes, bytes, str]:
    return name, tarfile.REGTYPE, content, ""


def _link(kind: bytes, to: str) -> tuple[str, bytes, bytes, str]:
    return "model.ckpt.index", kind, b"", to


def _zip(*names: str, content: bytes = b"index", mode: int = 0) -> Callable[[Place], object]:
    def make(place: Place) -> None:
        stream = io.BytesIO()
        with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
            for name in names:
                member = zipfile.ZipInfo(name)
                member.compress_type, member.external_attr = zipfile.ZIP_DEFLATED, mode << 16
                archive.writestr(member, content)
        place.write("a.zip", stream.getvalue())

    return make


def _claims(place: Place) -> None:
    """A member that says it is small, and is not."""
    _zip("model.ckpt.index", content=bytes(2**20))(place)
    data = (place.here / "a.zip").read_bytes()
    (place.here / "a.zip").write_bytes(data.replace(struct.pack("<I", 2**20), struct.pack("<I", 16)))


def _packed(name: str, content: bytes) -> Callable[[Place], object]:
    return lambda place: place.write(f"text/{name}", content)


def _bomb() -> bytes:
    return gzip.compress(gzip.compress(bytes(2**24)))


ARCHIVES: tuple[Hostile, ...] = (
    Hostile("tar with ..", _tar(_file("../../evil.index")), TAR, 65, OUTSIDE, ("../evil.index", "out")),
    Hostile("tar with an absolute name", _tar(_file("/tmp/evil.index")), TAR, 65, OUTSIDE, ("out",)),
    Hostile("tar with a symbolic link", _tar(_link(tarfile.SYMTYPE, "/etc/passwd")), TAR, 65, "holds a link", ("out",)),
    Hostile("tar with a hard link", _tar(_link(tarfile.LNKTYPE, "../x")), TAR, 65, "holds a link", ("out",)),
    Hostile("tar with a device", _tar(_link(tarfile.CHRTYPE, "")), TAR, 65, "holds a device", ("out",)),
    Hostile("tar with a pipe", _tar(_link(tarfile.FIFOTYPE, "")), TAR, 65, "holds a device", ("out",)),
    Hostile("tar with a name twice", _tar(_file("m.index"), _file("m.index", b"other")), TAR, 65, "twice", ("out",)),
    Hostile("tar of 10,001 files", _tar(*(_file(f"{n}.index", b"") for n in range(10_001))), TAR, 65, "10,000 files"),
    Hostile(
        "tar that unpacks to 80 MB", _tar(_file("m.index", bytes(80_000_000))), TAR, 65, "do not unpack it", ("out",)
    ),
    Hostile(
        "tar of pickles alone", _tar(_file("pytorch_model.bin", PICKLE)), TAR, 65, "holds no model files", ("out",)
    ),
    Hostile("tar that is a pickle", lambda p: p.write("a.tar.gz", PICKLE), TAR, 65, "not a whole archive", ("out",)),
    Hostile("zip with ..", _zip("../evil.index"), ZIP, 65, OUTSIDE, ("../evil.index", "out")),
    Hostile("zip with backslashes", _zip("..\\evil.index"), ZIP, 65, OUTSIDE, ("out",)),
    Hostile("zip with a drive", _zip("C:/evil.index"), ZIP, 65, OUTSIDE, ("out",)),
    Hostile("zip with a symbolic link", _zip("m.index", mode=0o120777), ZIP, 65, "holds a link", ("out",)),
    Hostile(
        "zip that unpacks to 80 MB", _zip("m.index", content=bytes(80_000_000)), ZIP, 65, "do not unpack it", ("out",)
    ),
    Hostile("zip whose sizes lie", _claims, ZIP, 65, "size|whole archive", ("out",)),
    Hostile(
        "7z under the name of zip",
        lambda p: p.write("a.zip", b"7z\xbc\xaf\x27\x1c" + bytes(99)),
        ZIP,
        65,
        "whole archive",
    ),
    Hostile("gzip in gzip as text", _packed("a.txt.gz", _bomb()), TRAIN, 65, "is not text: NUL byte", ("out",)),
    Hostile(
        "gzip of 150 MB of one line",
        lambda place: place.write("text/a.jsonl.gz", gzip.compress(b"x" * 150_000_000, 1)),
        TRAIN,
        65,
        "longer than 128 MB",
    ),
    Hostile("gzip that is a pickle", _packed("a.txt.gz", PICKLE), TRAIN, 65, "damaged gzip", ("out",)),
    Hostile("Parquet that is a pickle", _packed("a.parquet", PICKLE), TRAIN, 65, "damaged Parquet", ("out",)),
)
