"""Metrics that are read one update late, as on a GPU: training and the handling of divergence are the same."""

import math
import signal

import pytest
import torch
from tests.refusals import refusal
from tests.training.conftest import (
    Interrupting,
    PointSource,
    checkpoint_steps,
    events,
    final_bytes,
    point_objective,
    scaled,
)

from albert.runtime.errors import Diverged
from albert.runtime.json_files import read_journal
from albert.training.logging import MACHINE_METRICS
from albert.training.run_folder import RunFolder, Stopped

DELAYED = {"delay_metrics": True}


def journal_metrics(run: RunFolder) -> list[dict]:
    others = (*MACHINE_METRICS, "event", "now", "changes", "why")
    return [{key: value for key, value in r.items() if key not in others} for r in read_journal(run.journal_path)]


class NanInCalls:
    """An objective whose loss is NaN in some of its calls."""

    def __init__(self, *bad: int) -> None:
        self.bad, self.calls = bad, 0

    def __call__(self, model, batch):
        self.calls += 1
        return scaled(point_objective(model, batch), math.nan if self.calls in self.bad else 1.0)


def assert_weights_are_close(model, other):
    for parameter, expected in zip(model.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(parameter, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("kind", ["lamb", "adamw", "muon"])
def test_training_is_the_same(train, run, reference, kind):
    settings = {"kind": kind, "dropout": 0.3, "source": PointSource(micro_batch_size=3), "checkpoint_every": 3}
    expected_model, expected = train("reference", **settings)
    model, result = train(**settings, **DELAYED)
    assert (result.steps, result.tokens, result.ended_by) == (expected.steps, expected.tokens, expected.ended_by)
    assert_weights_are_close(model, expected_model)
    for record, expected_record in zip(journal_metrics(run), journal_metrics(reference), strict=True):
        assert record == pytest.approx(expected_record, rel=1e-6)


@pytest.mark.parametrize("bad", [1, 3, 6, 10])
def test_an_update_that_is_not_finite_is_skipped_and_counted(train, run, reference, bad):
    settings = {"on_divergence": "skip", "checkpoint_every": 3}
    expected_model, expected = train("reference", objective=NanInCalls(bad), **settings)
    model, result = train(objective=NanInCalls(bad), **settings, **DELAYED)
    assert (result.steps, result.skipped) == (expected.steps, expected.skipped) == (10, 1)
    assert_weights_are_close(model, expected_model)
    assert [[record["step"] for record in events(each, "skip")] for each in (reference, run)] == [[bad], [bad]]


def test_a_diverged_run_ends_one_update_late_with_a_good_checkpoint(train, run):
    settings = {"log_every": 100, "total_steps": 20, **DELAYED}
    for bad, every, calls in ((6, 2, 6), (3, 100, 4)):  # step 6 is to be saved, so its metrics are read at once
        diverging = NanInCalls(bad)
        with refusal(Diverged, "class", "nan"):
            train(objective=diverging, checkpoint_every=every, **settings)
        assert diverging.calls == calls
        assert checkpoint_steps(run) == [2, 4]


@pytest.mark.parametrize("limit", [95, 96, 97, 200])
def test_a_token_limit_ends_the_run_with_the_same_update(train, limit):
    (_, expected), (_, result) = (
        train(name, max_tokens=limit, log_every=100, **changes) for name, changes in (("a", {}), ("b", DELAYED))
    )
    assert (result.steps, result.tokens) == (expected.steps, expected.tokens)


def test_a_run_stopped_by_a_signal_resumes_bit_identically(train, run, reference):
    settings = {"dropout": 0.3, "log_every": 100, **DELAYED}
    train("reference", **settings)
    with pytest.raises(Stopped):
        train(source=Interrupting(PointSource(), 5, signal.SIGTERM), **settings)
    assert checkpoint_steps(run) == [7]  # the signal is seen with the metrics of update 6
    train(**settings)
    assert final_bytes(run) == final_bytes(reference)
