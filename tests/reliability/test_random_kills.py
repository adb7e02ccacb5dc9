"""The trial itself, with the count of the quick lane."""

from reliability.lanes import run_trial
from reliability.random_kills import TRIAL, damaged


def test_no_kill_is_lost(tmp_path):
    entry = run_trial(TRIAL, "quick", seed=0, scratch=tmp_path)
    assert (entry.tried, entry.failures) == (TRIAL.counts["quick"], ())


def test_half_of_a_checkpoint_would_be_found(tmp_path):
    (tmp_path / "checkpoints" / "step-00000002").mkdir(parents=True)
    assert len(damaged(tmp_path)) == 1
