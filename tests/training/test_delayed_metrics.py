"""Figures read one update late, as on a GPU: the same training, and divergence is answered as it is elsewhere."""

import signal

import pytest
import torch
from tests.training.conftest import Interrupting, final_bytes

from albert.runtime.errors import Diverged, InvalidConfiguration
from albert.runtime.json_files import read_journal
from albert.training.logging import MACHINE_METRICS, TrainingPlan
from albert.training.run_folder import RunFolder, Stopped
from albert.training.update import Sums

LATE = {"delay_metrics": True}


def told(run: RunFolder) -> list[dict]:
    return [
        {key: value for key, value in record.items() if key not in (*MACHINE_METRICS, "event", "now", "changes", "why")}
        for record in read_journal(run.journal_path)
    ]


class Counting:
    """An objective that does not find a number in some of its calls."""

    def __init__(self, objective, *bad: int) -> None:
        self.objective, self.bad, self.calls = objective, bad, 0

    def __call__(self, model, batch):
        self.calls += 1
        sums = self.objective(model, batch)
        if self.calls not in self.bad:
            return sums
        return Sums({name: loss * float("nan") for name, loss in sums.losses.items()}, sums.correct)


@pytest.mark.parametrize("kind", ["lamb", "adamw", "muon"])
def test_training_is_the_same(learn, source_of, run, tmp_path, kind):
    settings = {"kind": kind, "dropout": 0.3, "source": source_of(micro_batch_size=3), "checkpoint_every": 3}
    model, result = learn("now", **settings)
    late, same = learn(**settings, **LATE)
    assert (same.steps, same.tokens, same.ended_by) == (result.steps, result.tokens, result.ended_by)
    for one, other in zip(model.parameters(), late.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-6)
    for one, other in zip(told(RunFolder(tmp_path / "now")), told(run), strict=True):
        assert one == pytest.approx(other, rel=1e-6)


@pytest.mark.parametrize("bad", [1, 3, 6, 10])
def test_an_update_that_is_not_finite_is_left_out_and_counted(learn, objective, run, tmp_path, bad):
    """Wherever it lies: nothing of it is in the weights, and the journal says which it was."""
    settings = {"on_divergence": "skip", "checkpoint_every": 3}
    model, result = learn("now", objective=Counting(objective, bad), **settings)
    late, same = learn(objective=Counting(objective, bad), **settings, **LATE)
    assert (same.steps, same.skipped) == (result.steps, result.skipped) == (10, 1)
    for one, other in zip(model.parameters(), late.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-6)
    skips = [[line["step"] for line in read_journal(each.journal_path) if line["event"] == "skip"]
             for each in (RunFolder(tmp_path / "now"), run)]  # fmt: skip
    assert skips == [[bad], [bad]]


def test_a_run_that_diverged_ends_one_update_later_with_a_good_checkpoint(learn, objective, run):
    counting = Counting(objective, 6)
    with pytest.raises(Diverged, match="class: is nan"):
        learn(objective=counting, checkpoint_every=2, log_every=100, total_steps=20, **LATE)
    assert counting.calls == 6  # update 6 is saved, so its metrics are read at once
    assert [step for step, _ in run.checkpoints()] == [2, 4]
    counting = Counting(objective, 3)
    with pytest.raises(Diverged, match="class: is nan"):
        learn(objective=counting, checkpoint_every=100, log_every=100, total_steps=20, **LATE)
    assert counting.calls == 4 and [step for step, _ in run.checkpoints()] == [2, 4]


@pytest.mark.parametrize("limit", [95, 96, 97, 200])
def test_tokens_end_a_run_with_the_update_that_reaches_them(learn, limit):
    ended = [learn(f"{name}", max_tokens=limit, log_every=100, **late)[1] for name, late in (("a", {}), ("b", LATE))]
    assert ended[0].steps == ended[1].steps and ended[0].tokens == ended[1].tokens


def test_a_signal_saves_what_was_taken_and_the_run_goes_on_bit_identical(learn, source_of, run, tmp_path):
    learn("whole", dropout=0.3, log_every=100, **LATE)
    with pytest.raises(Stopped):
        learn(source=Interrupting(source_of(), 5, signal.SIGTERM), dropout=0.3, log_every=100, **LATE)
    assert [step for step, _ in run.checkpoints()] == [7]  # the signal is seen with the metrics of update 6
    learn(dropout=0.3, log_every=100, **LATE)
    assert final_bytes(run) == final_bytes(RunFolder(tmp_path / "whole"))


def test_what_is_judged_before_the_step_is_read_at_once():
    assert TrainingPlan(total_steps=1).delays_metrics(torch.device("cuda"))
    assert not TrainingPlan(total_steps=1).delays_metrics(torch.device("cpu"))
    for judged in ({"on_divergence": "rollback"}, {"spike_deviations": 6.0}):
        assert not TrainingPlan(total_steps=1, **judged).delays_metrics(torch.device("cuda"))
        with pytest.raises(InvalidConfiguration, match="cannot be combined"):
            TrainingPlan(total_steps=1, delay_metrics=True, **judged)
