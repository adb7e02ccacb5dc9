"""An archive's names, kinds and sizes are checked before anything is written, and nothing stays behind."""

import gzip
import io
import stat
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
    """Where archives are unpacked; empty again after every test."""
    place = tmp_path / "temporary"
    place.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    return place


def write_archive(path: Path, files: dict[str, bytes]) -> None:
    """An archive of files, name -> content, of the kind that its own name says."""
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


def test_the_files_of_a_model_are_written_and_vanish(pack, temporary):
    path = pack(FILES)
    assert is_archive(path)
    with unpacked(path) as directory:
        found = {str(file.relative_to(directory)): file.read_bytes() for file in directory.rglob("*") if file.is_file()}
    assert found == {name: content for name, content in FILES.items() if not name.endswith(".txt")}
    assert not list(temporary.iterdir())


def test_an_error_speaks_of_the_archive(pack):
    path = pack(FILES)
    with pytest.raises(MissingInput) as caught, unpacked(path) as directory:
        raise MissingInput(directory / "model", "is not enough")
    assert caught.value.subject == str(path / "model")


@pytest.mark.parametrize("name", ["/etc/model.index", "../model.index", "a/../../model.index", "C:/model.index"])
def test_a_name_outside_is_refused(pack, temporary, name):
    refused(pack({**FILES, name: b""}), temporary, "a name outside of its own directory")


def test_a_name_outside_is_refused_even_where_it_is_not_wanted(pack, temporary):
    refused(pack({**FILES, "../notes.txt": b""}), temporary, "a name outside")


def test_a_name_twice_is_refused(pack, temporary):
    refused(pack({**FILES, "model//model.index": b"other"}), temporary, "holds model//model.index twice")


def test_a_cut_archive_is_refused(pack, temporary):
    path = pack({"model.index": bytes(range(256)) * 40})
    content = path.read_bytes()
    for length in (0, 10, len(content) // 2):
        path.write_bytes(content[:length])
        refused(path, temporary, "is not a whole archive|holds no file of a model")


@given(st.data())
@settings(max_examples=60)
def test_a_damaged_byte_is_refused_or_harmless(tmp_path_factory, data):
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


def test_other_bytes_are_refused(pack, temporary):
    path = pack(FILES)
    path.write_bytes(b"not an archive at all" * 40)
    refused(path, temporary, "is not a whole archive")


def test_an_archive_without_a_model_is_refused(pack, temporary):
    refused(pack({"holiday.jpg": b"", "a/.hidden.index": b""}), temporary, "holds no model files among its 2")


@pytest.mark.parametrize("pack", [".tar.gz", ".zip"], indirect=True)
def test_a_bomb_is_refused_by_what_it_claims(pack, temporary, monkeypatch):
    path = pack({"model.index": b"", **{f"{n}.index": bytes(200_000) for n in range(5)}})
    monkeypatch.setattr(archives, "_ALWAYS_ALLOWED", 1000)
    refused(path, temporary, "weights do not compress like that")


def test_ten_thousand_files_are_refused(pack, temporary, monkeypatch):
    monkeypatch.setattr(archives, "_MOST_MEMBERS", 5)
    refused(pack({f"{number}.index": b"" for number in range(6)}), temporary, "more than 5 files")


def test_what_does_not_fit_on_the_disk_is_refused(pack, temporary, monkeypatch):
    monkeypatch.setattr(archives.shutil, "disk_usage", lambda _: type("usage", (), {"free": 3})())
    refused(pack(FILES), temporary, "set TMPDIR", OutOfResources)


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE])
def test_links_and_devices_in_a_tar_are_refused(tmp_path, temporary, kind):
    path = tmp_path / "archive.tar.gz"
    with tarfile.open(path, "w:gz") as file:
        member = tarfile.TarInfo("model.index")
        member.type, member.linkname = kind, "/etc/passwd"
        file.addfile(member)
    refused(path, temporary, "holds a link|holds a device")


def test_a_link_in_a_zip_is_refused(tmp_path, temporary):
    path = tmp_path / "archive.zip"
    with zipfile.ZipFile(path, "w") as file:
        member = zipfile.ZipInfo("model.index")
        member.external_attr = (stat.S_IFLNK | 0o777) << 16
        file.writestr(member, "/etc/passwd")
    refused(path, temporary, "holds a link or a device")


def test_a_tar_header_that_would_fill_the_memory_is_refused(tmp_path, temporary):
    member = tarfile.TarInfo("long")
    member.type, member.size = tarfile.GNUTYPE_LONGNAME, 2**33
    path = tmp_path / "archive.tar.gz"
    path.write_bytes(gzip.compress(member.tobuf(tarfile.GNU_FORMAT) + bytes(10_000)))
    refused(path, temporary, "is not a whole archive .a header of 8589934592 bytes")


def test_a_damaged_member_is_refused(tmp_path, temporary):
    path = tmp_path / "archive.zip"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("model.index", b"index" * 50)
    path.write_bytes(path.read_bytes().replace(b"index" * 9, b"other" * 9))
    refused(path, temporary, "is not a whole archive")
