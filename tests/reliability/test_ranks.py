"""The trial itself, with the count of the quick lane."""

from reliability.lanes import run_trial
from reliability.ranks import TRIAL


def test_a_lost_rank_hangs_nobody(tmp_path):
    entry = run_trial(TRIAL, "quick", seed=0, scratch=tmp_path)
    assert (entry.tried, entry.failures) == (TRIAL.counts["quick"], ())
