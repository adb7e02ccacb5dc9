import json
import math
import subprocess
import sys

import pytest

from albert.runtime.errors import DamagedData
from albert.runtime.json_files import Journal, read_journal


@pytest.fixture
def path(tmp_path):
    journal = Journal(tmp_path / "run" / "journal.jsonl")
    for step in (1, 2, 3):
        journal.write("train", step=step, loss=1 / step)
    journal.write("note", text="ähm\nzwei")
    journal.close()
    return journal.path


def steps(records) -> list[int | None]:
    return [record.get("step") for record in records]


def test_events_are_read_in_order(path):
    records = read_journal(path)
    assert [(r["event"], r.get("step"), r.get("loss"), r.get("text")) for r in records] == [
        ("train", 1, 1.0, None),
        ("train", 2, 0.5, None),
        ("train", 3, 1 / 3, None),
        ("note", None, None, "ähm\nzwei"),
    ]
    assert all(record["time"] > 1.6e9 for record in records)


def test_a_line_can_be_read_as_soon_as_it_is_written(tmp_path):
    journal = Journal(tmp_path / "journal.jsonl")
    journal.write("train", step=1)
    assert steps(read_journal(journal.path)) == [1]
    journal.close()


@pytest.mark.parametrize("kept", [1, 10, -2, -1])
def test_a_torn_last_line_is_dropped(path, kept):
    whole = path.read_bytes()
    line = b'{"event": "train", "time": 1.0, "step": 4, "loss": 0.2}\n'
    path.write_bytes(whole + line[:kept])
    assert steps(read_journal(path))[:4] == [1, 2, 3, None]
    Journal(path).close()
    assert path.read_bytes() == whole
    journal = Journal(path)
    journal.write("train", step=4)
    journal.close()
    assert steps(read_journal(path)) == [1, 2, 3, None, 4]


def test_of_a_step_told_twice_the_last_telling_counts(path):
    journal = Journal(path)
    journal.write("train", step=2, loss=7.0)
    journal.write("evaluation", step=2, loss=8.0)
    journal.write("note", text="again")
    journal.close()
    records = read_journal(path)
    assert [(r["event"], r.get("step")) for r in records] == [
        ("train", 1),
        ("train", 3),
        ("note", None),
        ("train", 2),
        ("evaluation", 2),
        ("note", None),
    ]
    assert records[3]["loss"] == 7.0


@pytest.mark.parametrize("line", [b"{", b"3", b"[]", b'"text"', b'{"step": 2}', b'{"event": "\xff"}', b"\0\0\0\0"])
def test_a_damaged_line_in_the_middle_is_named_by_its_number(path, line):
    lines = path.read_bytes().splitlines()
    lines[1] = line
    path.write_bytes(b"\n".join(lines) + b"\n")
    with pytest.raises(DamagedData, match=rf"{path.name}:2: "):
        read_journal(path)


def test_a_number_that_is_not_finite_is_kept_in_lines_that_any_program_reads(tmp_path):
    journal = Journal(tmp_path / "journal.jsonl")
    journal.write("train", step=1, loss=math.nan, more={"up": [math.inf], "down": -math.inf})
    journal.close()

    def refuse(name):
        raise AssertionError(f"{name} is not JSON")

    json.loads(journal.path.read_text(), parse_constant=refuse)
    record = read_journal(journal.path)[0]
    assert math.isnan(record["loss"]) and record["more"]["down"] == -math.inf
    journal.path.write_text('{"event": "train", "step": 2, "loss": NaN}\n')  # as earlier versions wrote it
    assert math.isnan(read_journal(journal.path)[0]["loss"])


FULL_DISK = """
import resource, sys
from pathlib import Path
from albert.runtime.errors import WriteFailed
from albert.runtime.json_files import Journal

resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
journal = Journal(Path(sys.argv[1]))
try:
    try:
        for step in range(100):
            journal.write("train", step=step)
    finally:
        journal.close()
except WriteFailed as failure:
    print(step, failure.exit_code, failure)
"""


def test_a_full_disk_is_one_error_and_costs_the_last_line_alone(tmp_path):
    path = tmp_path / "journal.jsonl"
    done = subprocess.run([sys.executable, "-c", FULL_DISK, str(path)], capture_output=True, text=True, timeout=60)
    step, code, message = done.stdout.strip().split(" ", 2)
    assert (code, message) == ("74", f"{path}: File too large"), done.stderr
    assert steps(read_journal(path)) == list(range(int(step)))
