"""`albert info --verify` finds and names damage."""

import shlex
import shutil

import pytest

from albert.cli.main import run
from albert.runtime.files import new_directory


@pytest.fixture
def written(tmp_path):
    for name in ("one", "runs/mine/model", "runs/mine/checkpoints/step-00000010"):
        with new_directory(tmp_path / name) as directory:
            (directory / "part").mkdir()
            (directory / "part" / "numbers.bin").write_bytes(bytes(range(200)))
    (tmp_path / "runs/mine/journal.jsonl").write_text('{"event": "start"}\n')
    return tmp_path


def test_intact_directories_are_reported(written, capsys):
    assert run(["info", str(written / "one"), "--verify"]) == 0
    assert capsys.readouterr().out.replace(str(written), "").count(" intact ") == 1
    assert run(["info", str(written / "runs/mine"), "--verify"]) == 0
    printed = capsys.readouterr().out
    assert printed.replace(str(written), "").count(" intact ") == 2
    assert "1 records" in printed


def test_a_model_of_the_package_is_checked(capsys):
    assert run(["info", "tiny", "--verify"]) == 0
    assert " intact " in capsys.readouterr().out


def test_what_belongs_to_a_corpus_is_checked(scene, tmp_path, refused):
    corpus = shutil.copytree(scene.corpus, tmp_path / "corpus")
    assert run(["info", str(corpus), "--verify"]) == 0
    (corpus / "train-99.tokens").write_bytes(b"more")
    refused(["info", str(corpus), "--verify"], 65, "train-99.tokens", "1 of 1 directories are damaged")


@pytest.mark.parametrize("directory", ["runs/mine/model", "runs/mine/checkpoints/step-00000010"])
@pytest.mark.parametrize("file", ["part/numbers.bin", "MANIFEST.json"])
def test_a_flipped_bit_is_found_and_other_directories_are_checked(written, capsys, directory, file):
    damaged = written / directory / file
    data = bytearray(damaged.read_bytes())
    data[len(data) // 2] ^= 1
    damaged.write_bytes(bytes(data))
    assert run(["info", str(written / "runs/mine"), "--verify"]) == 65
    printed = capsys.readouterr()
    assert printed.out.count(" intact ") == 1
    assert "1 of 2 directories are damaged" in printed.err
    assert damaged.name in printed.err


def test_the_command_that_export_names_next_checks_its_files(scene, tmp_path, capsys):
    assert run(["export", "onnx", str(scene.pretrained), "--output", str(tmp_path / "onnx")]) == 0
    line = capsys.readouterr().out.rstrip().rpartition("\n")[2]
    assert line.startswith("next: ")
    assert run(shlex.split(line)[2:]) == 0
