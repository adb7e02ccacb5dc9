"""The trial itself, with the count of the quick lane."""

import signal

import pytest
from reliability.lanes import run_trial
from reliability.signals import TRIAL, what_is_wrong


def test_a_signal_saves_and_the_run_goes_on(tmp_path):
    entry = run_trial(TRIAL, "quick", seed=0, scratch=tmp_path)
    assert (entry.tried, entry.failures) == (TRIAL.counts["quick"], ())


@pytest.mark.parametrize(
    ("code", "printed", "broken"),
    [
        (143, "albert: error: stopped", False),
        (-15, "", False),  # before it could answer
        (0, "", True),
        (1, "", True),
        (130, "", True),
        (143, "Traceback (most recent call last)", True),
    ],
)
def test_another_exit_code_or_a_traceback_would_be_found(code, printed, broken):
    assert bool(list(what_is_wrong(signal.SIGTERM, code, 1.0, printed))) is broken
    assert list(what_is_wrong(signal.SIGTERM, 143, 31.0, ""))
