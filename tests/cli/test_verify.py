"""`albert verify` finds and names damage."""

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
    assert run(["verify", str(written / "one"), str(written / "runs/mine")]) == 0
    printed = capsys.readouterr().out
    assert printed.replace(str(written), "").count(" intact ") == 3
    assert "1 records" in printed


@pytest.mark.parametrize("directory", ["one", "runs/mine/model", "runs/mine/checkpoints/step-00000010"])
@pytest.mark.parametrize("file", ["part/numbers.bin", "MANIFEST.json"])
def test_a_flipped_bit_is_found_and_other_directories_are_checked(written, capsys, directory, file):
    damaged = written / directory / file
    data = bytearray(damaged.read_bytes())
    data[len(data) // 2] ^= 1
    damaged.write_bytes(bytes(data))
    assert run(["verify", str(written / "one"), str(written / "runs/mine")]) == 65
    printed = capsys.readouterr()
    assert printed.out.count(" intact ") == 2
    assert "1 of 3 directories are damaged" in printed.err
    assert damaged.name in printed.err
