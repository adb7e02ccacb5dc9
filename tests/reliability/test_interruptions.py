"""The trials themselves, with the counts of the quick lane, and that what they look for would be found."""

import signal

import pytest
from reliability.interruptions import Interruption, random_kills, ranks, signals
from reliability.runs import damages
from reliability.trials import run_trial


@pytest.mark.parametrize("trial", [random_kills, signals, ranks], ids=lambda trial: trial.name)
def test_an_interrupted_run_ends_as_the_undisturbed_one(tmp_path, trial):
    entry = run_trial(trial, "quick", seed=0, scratch=tmp_path)
    assert (entry.tried, entry.failures) == (trial.counts["quick"], ())


def test_half_of_a_checkpoint_would_be_found(tmp_path):
    (tmp_path / "checkpoints" / "step-00000002").mkdir(parents=True)
    assert len(damages(tmp_path)) == 1


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
    assert bool(list(Interruption("save", code, 1.0, printed).what_is_wrong(signal.SIGTERM))) is broken
    assert list(Interruption("save", 143, 31.0, "").what_is_wrong(signal.SIGTERM))
