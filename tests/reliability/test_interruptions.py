"""The trials of interrupted runs, and that they detect failures."""

import signal

import pytest
from dev.reliability.interruptions import Interruption, random_kills, ranks, signals
from dev.reliability.runs import find_damage
from dev.reliability.trials import run_trial


@pytest.mark.trial
@pytest.mark.long
@pytest.mark.parametrize("trial", [random_kills, signals, ranks], ids=lambda trial: trial.name)
def test_interrupted_runs_give_the_same_bytes(tmp_path, trial):
    entry = run_trial(trial, "quick", seed=0, scratch=tmp_path)
    assert (entry.tried, entry.failures) == (trial.counts["quick"], ())


def test_an_incomplete_checkpoint_is_detected(tmp_path):
    (tmp_path / "checkpoints" / "step-00000002").mkdir(parents=True)
    assert len(find_damage(tmp_path)) == 1


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
def test_wrong_exit_codes_and_tracebacks_are_detected(code, printed, broken):
    assert bool(list(Interruption("save", code, 1.0, printed).failures(signal.SIGTERM))) is broken
    assert list(Interruption("save", 143, 31.0, "").failures(signal.SIGTERM))
