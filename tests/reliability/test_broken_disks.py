"""The trial itself, with the count of the quick lane, and that what it looks for would be found."""

from types import SimpleNamespace

import pytest
from reliability.disk_faults import broken_disks, faults, what_is_wrong
from reliability.trials import run_trial


def test_a_broken_disk_loses_nothing(tmp_path):
    entry = run_trial(broken_disks, "quick", seed=0, scratch=tmp_path)
    assert entry.failures == ()
    assert entry.tried > broken_disks.counts["quick"] / 2


@pytest.mark.parametrize(
    ("code", "printed", "broken"),
    [
        (74, "albert: error: checkpoint: No space left on device\n", False),
        (73, "albert: error: checkpoint: Read-only file system\n", False),
        (0, "done\n", False),
        (1, "albert: error: internal error: OSError\n", True),
        (74, "", True),
        (74, "Traceback (most recent call last)\nalbert: error: x\n", True),
        (0, "albert: error: x\n", True),
    ],
)
def test_another_exit_code_or_more_than_one_line_would_be_found(tmp_path, code, printed, broken):
    run = SimpleNamespace(finish=lambda: code, printed=printed)
    assert bool(list(what_is_wrong(run, tmp_path))) is broken


def test_a_disk_mounted_to_be_read_refuses_to_make_and_not_to_flush():
    assert "EROFS" in faults("mkdir") and "EROFS" not in faults("fsync")
    assert "short" in faults("write")
