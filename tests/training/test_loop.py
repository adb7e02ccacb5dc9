"""The loop: journal, evaluations, checkpoints, and the limits that end a run."""

import time

import pytest
import torch
from tests.training.conftest import checkpoint_steps, events, final_bytes

from albert.training.logging import TrainingPlan
from albert.training.state import TrainingState

TOKENS_PER_STEP = 48


@pytest.fixture
def slow_clock(monkeypatch):
    """A clock that advances by a second with each call; an update takes one second."""
    ticks = iter(range(10**6))
    monkeypatch.setattr(time, "perf_counter", lambda: float(next(ticks)))


# ---- journal, evaluations, checkpoints -------------------------------------------------------------------------------


def test_the_journal_has_means_memory_and_utilisation(train, run):
    train(flops=lambda batch: 1e6, matmul_rate=lambda: 1e9)
    lines = events(run, "train")
    assert [(line["step"], line["tokens"]) for line in lines] == [(4, 192), (8, 384), (10, 480)]
    for line in lines:
        assert line["loss"] == pytest.approx(line["class_loss"] + line["size_loss"])
        assert 0 <= line["class_accuracy"] <= 1
        assert line["learning_rate"] == 0.01 / line["step"]
        assert line["peak_memory_bytes"] > 10**7
        assert line["matmul_share"] == pytest.approx(line["tokens_per_second"] / TOKENS_PER_STEP * 1e6 / 1e9)
    assert "size_accuracy" not in lines[0]
    assert [line["seconds"] for line in lines] == sorted(line["seconds"] for line in lines)
    assert {"trust_ratio_min", "trust_ratio_median", "trust_ratio_max"} <= set(lines[0])


def test_evaluations_are_at_their_interval_and_at_the_end(train, run):
    _, result = train(evaluate=lambda: {"score": 0.5}, evaluate_every=4)
    assert result.evaluation == {"score": 0.5}
    assert list(run.tensorboard_path.glob("events.out.tfevents.*"))
    assert [record["step"] for record in events(run, "evaluation")] == [4, 8, 10]


def test_checkpoints_are_saved_by_time(train, run):
    train(checkpoint_minutes=0.0, keep_checkpoints=100)
    assert checkpoint_steps(run) == list(range(1, 11))


# ---- limits ----------------------------------------------------------------------------------------------------------


def test_a_token_limit_ends_the_run_with_the_update_that_reaches_it(train, run):
    _, result = train(total_steps=100, max_tokens=5 * TOKENS_PER_STEP + 1, evaluate=lambda: {"score": 0.5})
    assert (result.steps, result.tokens, result.ended_by) == (6, 6 * TOKENS_PER_STEP, "tokens")
    assert result.evaluation == {"score": 0.5}
    assert result.ending == "stopped after 288 tokens at step 6 of 100"
    assert checkpoint_steps(run) == [6]
    assert [record["why"] for record in events(run, "end")] == [result.ending]
    assert events(run, "train")[-1]["step"] == 6


def test_a_time_limit_counts_the_updates_of_all_parts_of_a_run(train, run, slow_clock):
    _, result = train(total_steps=1000, max_minutes=0.1, checkpoint_every=1)
    assert (result.ended_by, result.steps) == ("minutes", 7)  # the seventh update sees that six seconds are used
    assert result.ending == "stopped after 0.117 minutes at step 7 of 1,000"
    _, result = train(total_steps=1000, max_minutes=0.1)
    assert result.steps == 7
    _, result = train(total_steps=1000, max_minutes=0.2)
    assert (result.ended_by, result.steps) == ("minutes", 13)
    assert [record["step"] for record in events(run, "end")] == [7, 13]


def test_a_run_continues_if_its_limit_is_raised_and_not_if_lowered(train, run, reference):
    train(dropout=0.3, max_tokens=4 * TOKENS_PER_STEP)
    assert checkpoint_steps(run) == [4]
    train(dropout=0.3, max_tokens=7 * TOKENS_PER_STEP)
    train("reference", dropout=0.3, max_tokens=7 * TOKENS_PER_STEP)
    assert final_bytes(run) == final_bytes(reference)
    _, result = train(max_tokens=2 * TOKENS_PER_STEP)
    assert (result.steps, result.ended_by, final_bytes(run)) == (7, "tokens", final_bytes(reference))


def test_the_number_of_steps_is_a_limit(train, run):
    _, result = train(max_tokens=10**9, max_minutes=1e9)
    assert (result.ended_by, result.ending) == ("steps", "all 10 steps taken")
    assert events(run, "end")[0]["why"] == "all 10 steps taken"


def test_the_expected_last_step_depends_on_the_speed():
    state = TrainingState(step=50, tokens=5_000, seconds=60.0)
    limits = {"max_tokens": 20_000, "max_minutes": 3.0}
    for changes, steps in (({}, 1000), ({"max_tokens": 20_000}, 200), ({"max_minutes": 3.0}, 150), (limits, 150)):
        assert TrainingPlan(total_steps=1000, **changes).likely_steps(state) == steps
    assert TrainingPlan(total_steps=1000, **limits).likely_steps(TrainingState()) == 1000


def test_metrics_are_delayed_on_a_gpu_unless_they_are_checked_before_the_step():
    cuda = torch.device("cuda")
    assert TrainingPlan(total_steps=1).delays_metrics(cuda)
    assert not TrainingPlan(total_steps=1).delays_metrics(torch.device("cpu"))
    assert not TrainingPlan(total_steps=1, on_divergence="rollback").delays_metrics(cuda)
