"""Runs end by steps, tokens or minutes, and go on when they are given more."""

import time

import pytest
import torch
from tests.training.conftest import final_bytes

from albert.runtime.errors import InvalidConfiguration
from albert.runtime.json_files import read_journal
from albert.training.logging import TrainingPlan
from albert.training.run_folder import RunFolder
from albert.training.state import TrainingState

TOKENS_A_STEP = 48


def events(run, name):
    return [record for record in read_journal(run.journal_path) if record["event"] == name]


@pytest.fixture
def slow_clock(monkeypatch):
    """A clock that goes on by a second whenever it is asked: an update takes one."""
    ticks = iter(range(10**6))
    monkeypatch.setattr(time, "perf_counter", lambda: float(next(ticks)))


def test_tokens_end_a_run_with_the_step_that_reaches_them(learn, run):
    _, result = learn(total_steps=100, max_tokens=5 * TOKENS_A_STEP + 1, evaluate=lambda: {"score": 0.5})
    assert (result.steps, result.tokens, result.ended_by) == (6, 6 * TOKENS_A_STEP, "tokens")
    assert result.evaluation == {"score": 0.5}
    assert result.ending == "stopped after 288 tokens at step 6 of 100"
    assert [step for step, _ in run.checkpoints()] == [6]
    assert [record["why"] for record in events(run, "end")] == [result.ending]
    assert events(run, "train")[-1]["step"] == 6


def test_minutes_are_those_in_updates_over_all_parts_of_a_run(learn, run, slow_clock):
    _, first = learn(total_steps=1000, max_minutes=0.1, checkpoint_every=1)
    assert (first.ended_by, first.steps) == ("minutes", 7)  # six seconds are seen to be over in the seventh
    assert first.ending == "stopped after 0.117 minutes at step 7 of 1,000"
    _, again = learn(total_steps=1000, max_minutes=0.1)
    assert again.steps == 7
    _, more = learn(total_steps=1000, max_minutes=0.2)
    assert (more.ended_by, more.steps) == ("minutes", 13)
    assert [record["step"] for record in events(run, "end")] == [7, 13]


def test_a_run_that_is_given_more_ends_with_the_bytes_of_one_that_had_it_from_the_start(learn, run, tmp_path):
    learn(dropout=0.3, max_tokens=4 * TOKENS_A_STEP)
    assert [step for step, _ in run.checkpoints()] == [4]
    learn(dropout=0.3, max_tokens=7 * TOKENS_A_STEP)
    learn("reference", dropout=0.3, max_tokens=7 * TOKENS_A_STEP)
    assert final_bytes(run) == final_bytes(RunFolder(tmp_path / "reference"))


def test_a_limit_that_lies_behind_leaves_a_finished_run_as_it_is(learn, run):
    learn(max_tokens=4 * TOKENS_A_STEP)
    before = final_bytes(run)
    _, result = learn(max_tokens=2 * TOKENS_A_STEP)
    assert (result.steps, result.ended_by, final_bytes(run)) == (4, "tokens", before)


def test_all_steps_are_an_end_as_well(learn, run):
    _, result = learn(max_tokens=10**9, max_minutes=1e9)
    assert (result.ended_by, result.ending) == ("steps", "all 10 steps taken")
    assert events(run, "end")[0]["why"] == "all 10 steps taken"


def test_the_step_at_which_a_run_will_end_is_told_by_its_pace():
    state = TrainingState(step=50, tokens=5_000, seconds=60.0)
    for limits, steps in (({}, 1000), ({"max_tokens": 20_000}, 200), ({"max_minutes": 3.0}, 150)):
        assert TrainingPlan(total_steps=1000, **limits).likely_steps(state) == steps
    both = TrainingPlan(total_steps=1000, max_tokens=20_000, max_minutes=3.0)
    assert both.likely_steps(state) == 150
    assert both.likely_steps(TrainingState()) == 1000


@pytest.mark.parametrize(
    ("setting", "value", "needed"),
    [("max_tokens", 0, "at least 1"), ("max_minutes", 0.0, "above 0"), ("max_minutes", float("nan"), "above 0"),
     ("spike_deviations", -1.0, "above 0"), ("max_rollbacks", -1, "at least 0"),
     *((name, 0, "at least") for name in ("total_steps", "log_every", "checkpoint_every")),
     ("evaluate_every", -1, "at least"), ("workers", -1, "at least")],
)  # fmt: skip
def test_a_limit_that_cannot_be_is_refused(setting, value, needed):
    with pytest.raises(InvalidConfiguration, match=f"{setting}: is {value}, .*{needed}"):
        TrainingPlan(**{"total_steps": 1, setting: value})


def test_the_journal_tells_time_memory_and_the_share_of_the_machine(learn, run, objective):
    from albert.training.logging import Meter

    learn(meter=Meter(flops=lambda batch: 1e6, matmul_rate=lambda: 1e9))
    lines = events(run, "train")
    for line in lines:
        assert line["peak_memory_bytes"] > 10**7
        assert line["matmul_share"] == pytest.approx(line["tokens_per_second"] / TOKENS_A_STEP * 1e6 / 1e9)
    assert [line["seconds"] for line in lines] == sorted(line["seconds"] for line in lines)
    assert {"trust_ratio_min", "trust_ratio_median", "trust_ratio_max"} <= set(lines[0])
    assert torch.isfinite(torch.tensor(lines[-1]["trust_ratio_max"]))
