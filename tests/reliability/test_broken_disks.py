"""The trial of broken disks, and that it detects failures."""

from types import SimpleNamespace

import pytest
from dev.reliability.disk_faults import broken_disks, check_error, faults
from dev.reliability.trials import run_trial


@pytest.mark.trial
@pytest.mark.long
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
def test_wrong_exit_codes_and_several_lines_are_detected(tmp_path, code, printed, broken):
    run = SimpleNamespace(finish=lambda: code, printed=printed)
    assert bool(list(check_error(run, tmp_path))) is broken


def test_a_read_only_disk_refuses_creating_but_not_flushing():
    assert "EROFS" in faults("mkdir") and "EROFS" not in faults("fsync")
    assert "short" in faults("write")
