"""Archives: names, types and sizes are checked before writing, and no temporary files stay behind."""

import gzip
import io
import tarfile
import tempfile
import zipfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from albert.checkpoints import hub as archives
from albert.checkpoints.hub import is_archive, unpacked
from albert.runtime.errors import AlbertError, DamagedData, MissingInput, OutOfResources

FILES = {"model/model.index": b"index", "model/albert_config.json": b"{}", "model/notes.txt": b"not needed"}


@pytest.fixture(autouse=True)
def temporary(tmp_path, monkeypatch) -> Path:
    """The directory for unpacking, which must be empty after every test."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def write_archive(path: Path, files: dict[str, bytes]) -> None:
    """Write files (name -> content) as an archive of the type of its suffix."""
    if path.suffix == ".zip":
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
            for name, content in files.items():
                file.writestr(name, content)
        return
    with tarfile.open(path, "w" if path.suffix == ".tar" else "w:gz") as file:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            file.addfile(member, io.BytesIO(content))


@pytest.fixture(params=[".tar.gz", ".tgz", ".tar", ".zip"])
def pack(request, tmp_path):
    """Write an archive of files: name -> content."""

    def write(files: dict[str, bytes]) -> Path:
        path = tmp_path / f"archive{request.param}"
        write_archive(path, files)
        return path

    return write


def refused(path: Path, temporary: Path, why: str, kind: type[AlbertError] = DamagedData) -> None:
    with pytest.raises(kind, match=why), unpacked(path):
        pass
    assert not list(temporary.iterdir())


def test_model_files_are_unpacked_temporarily(pack, temporary):
    path = pack(FILES)
    assert is_archive(path)
    with unpacked(path) as directory:
        files = {str(file.relative_to(directory)): file.read_bytes() for file in directory.rglob("*") if file.is_file()}
    assert files == {name: content for name, content in FILES.items() if not name.endswith(".txt")}
    assert not list(temporary.iterdir())


def test_error_names_the_archive(pack):
    path = pack(FILES)
    with pytest.raises(MissingInput) as caught, unpacked(path) as directory:
        raise MissingInput(directory / "model", "is not enough")
    assert caught.value.subject == str(path / "model")


@pytest.mark.parametrize(
    ("files", "why"),
    [
        *(
            ({**FILES, name: b""}, "a name outside of its own directory")
            for name in ("/etc/model.index", "../model.index", "a/../../model.index", "C:/model.index", "../notes.txt")
        ),
        ({**FILES, "model//model.index": b"other"}, "holds model//model.index twice"),
        ({"holiday.jpg": b"", "a/.hidden.index": b""}, "has 2 files, none of which belongs to a model"),
        ({f"{number}.index": b"" for number in range(9)}, "more than 8 files"),
    ],
)
def test_unexpected_content_is_refused(pack, temporary, monkeypatch, files, why):
    monkeypatch.setattr(archives, "_MOST_MEMBERS", 8)
    refused(pack(files), temporary, why)


def test_archive_larger_than_the_disk_is_refused(pack, temporary, monkeypatch):
    monkeypatch.setattr(archives.shutil, "disk_usage", lambda _: type("usage", (), {"free": 3})())
    refused(pack(FILES), temporary, "set TMPDIR", OutOfResources)


def test_incomplete_archive_is_refused(pack, temporary):
    path = pack({"model.index": bytes(range(256)) * 40})
    content = path.read_bytes()
    for damaged in (*(content[:length] for length in (0, 10, len(content) // 2)), b"not an archive at all" * 40):
        path.write_bytes(damaged)
        refused(path, temporary, "is not a complete archive|none of which")


@given(st.data())
@settings(max_examples=60)
def test_damaged_byte_is_refused_or_harmless(tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("damaged")
    content = {"model/é.index": bytes(range(200)), "model/albert_config.json": b"{}"}
    path = folder / data.draw(st.sampled_from(["a.zip", "a.tar", "a.tar.gz"]))
    write_archive(path, content)
    damaged = bytearray(path.read_bytes())
    damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(damaged)
    try:
        with unpacked(path):
            pass
    except AlbertError as error:
        assert str(path) in str(error)


@pytest.mark.parametrize("pack", [".tar.gz", ".zip"], indirect=True)
def test_archive_bomb_is_refused(pack, temporary, monkeypatch):
    path = pack({"model.index": b"", **{f"{n}.index": bytes(200_000) for n in range(5)}})
    monkeypatch.setattr(archives, "_ALWAYS_ALLOWED", 1000)
    refused(path, temporary, "weights do not compress that much")


def tar_of(kind: bytes, **fields: object) -> bytes:
    member = tarfile.TarInfo("model.index")
    member.type = kind
    for name, value in fields.items():
        setattr(member, name, value)
    return gzip.compress(member.tobuf(tarfile.GNU_FORMAT) + bytes(10_000), mtime=0)  # pytest names cases by their bytes


def damaged_zip() -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as file:
        file.writestr(zipfile.ZipInfo("model.index"), b"index" * 50)
    return content.getvalue().replace(b"index" * 9, b"other" * 9)


@pytest.mark.parametrize(
    ("name", "content", "why"),
    [
        ("a.tar.gz", tar_of(tarfile.BLKTYPE), "holds a link, a device"),
        (
            "a.tar.gz",
            tar_of(tarfile.GNUTYPE_LONGNAME, size=2**33),
            "not a complete archive .a header of 8589934592 bytes",
        ),
        ("a.zip", damaged_zip(), "is not a complete archive"),
    ],
)
def test_devices_and_damaged_members_are_refused(tmp_path, temporary, name, content, why):
    """reliability/hostile_files.py has links and other devices."""
    (tmp_path / name).write_bytes(content)
    refused(tmp_path / name, temporary, why)
