"""The trial of crashes, the intercepted calls, and that damage is detected."""

import os

import pytest
from dev.reliability.disk_faults import contents, crash_points
from dev.reliability.durable_calls import watched
from dev.reliability.runs import find_damage
from dev.reliability.trials import run_trial

from albert.runtime.files import new_directory, remove_directory, write_text


@pytest.mark.trial
def test_crashes_leave_no_damage(tmp_path):
    entry = run_trial(crash_points, "quick", seed=0, scratch=tmp_path)
    assert (entry.tried, entry.failures) == (crash_points.counts["quick"], ())


def test_every_call_is_reported_before_and_after(tmp_path):
    seen = []
    with watched(tmp_path, lambda moment, name, place: seen.append((moment, name, os.path.basename(place)))):
        with new_directory(tmp_path / "made") as directory:
            (directory / "file").write_bytes(b"12345")
        remove_directory(tmp_path / "made")
        write_text(tmp_path.parent / "elsewhere", "unseen")
    done = [name for moment, name, _ in seen if moment == "after"]
    flushed = ["open", "write", "open", "fsync"]
    made = ["mkdir", "mkdir", *flushed, *flushed, "fsync", "rename", "fsync"]  # file, manifest, directory, parent
    made += ["unlink"]  # of the lock
    assert done[: len(made)] == made
    assert done[len(made)] == "rename" and done[-2:] == ["rmdir", "unlink"] and done.count("unlink") == 4
    begun = [name for moment, name, _ in seen if moment == "before"]
    assert begun == done


def test_a_short_write_is_continued(tmp_path):
    with watched(tmp_path, lambda moment, name, place: 2 if (moment, name) == ("before", "write") else None):
        (tmp_path / "file").write_bytes(bytes(range(100)))
    assert (tmp_path / "file").read_bytes() == bytes(range(100))


def test_damage_and_differences_are_detected(tmp_path):
    with new_directory(tmp_path / "out") as directory:
        (directory / "file").write_bytes(b"12345")
    before = contents(tmp_path / "out")
    (tmp_path / "out" / "file").write_bytes(b"12346")
    assert len(list(find_damage(tmp_path / "out"))) == 1
    assert contents(tmp_path / "out") != before
