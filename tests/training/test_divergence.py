"""Updates that would do harm: noticed by all, left out or rolled back, the same after every resume."""

import math
import os
import signal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reliability.runs import journal_of
from safetensors.torch import load_file
from tests.training.conftest import final_bytes

from albert.runtime.errors import Diverged
from albert.runtime.json_files import read_json_object
from albert.training.run_folder import RunFolder, Stopped
from albert.training.update import REMEMBERED, DivergenceHistory, Guard, Sums, UpdateMetrics, spike_limit


def poisoned(objective, bad, seen=None):
    """The objective, whose loss is not a number where the first point of a batch is among `bad`."""

    def wrapped(model, batch):
        if seen is not None:
            seen.append(batch.numbers[0])
        sums = objective(model, batch)
        factor = math.nan if batch.numbers[0] in bad else 1.0
        return Sums(losses={name: loss * factor for name, loss in sums.losses.items()}, correct=sums.correct)

    return wrapped


def incidents_of(run):
    return read_json_object(run.checkpoints()[-1][1] / "training_state.json")["incidents"]


def test_an_update_is_left_out_and_the_run_goes_on(learn, objective, run, capsys):
    seen = []
    _, result = learn(objective=poisoned(objective, {24}, seen), on_divergence="skip", dropout=0.2)
    assert seen == list(range(0, 80, 8))  # every batch once
    assert (result.steps, result.skipped, result.tokens) == (10, 1, 480)
    skips = [record for record in journal_of(run.path) if record["event"] == "skip"]
    assert skips == [{"event": "skip", "step": 4, "why": "class is nan", "skipped": 1}]
    assert "class is nan in step 4: update skipped" in capsys.readouterr().err
    first = next(record for record in journal_of(run.path) if record["event"] == "train")
    assert math.isfinite(first["loss"]) and first["tokens"] == 192
    assert incidents_of(run)["skipped"] == [3]


def test_ten_in_a_row_are_left_out_and_not_eleven(learn, objective, run):
    learn("ten", objective=poisoned(objective, set(range(8, 88, 8))), on_divergence="skip", total_steps=14)
    with pytest.raises(Diverged, match="10 updates before it were skipped") as failure:
        learn(objective=poisoned(objective, set(range(8, 96, 8))), on_divergence="skip", total_steps=14)
    assert failure.value.exit_code == 3
    assert not run.checkpoints()


def test_a_rolled_back_run_passes_over_the_data_that_led_astray(learn, objective, run, capsys):
    seen = []
    settings = {"on_divergence": "rollback", "checkpoint_every": 4, "dropout": 0.2}
    _, result = learn(objective=poisoned(objective, {48}, seen), **settings)
    assert [number // 8 for number in seen] == [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]  # 4 to 6 count for nothing
    assert (result.steps, result.rollbacks) == (10, 1)
    assert "class is nan in step 7: back to step 4, skipping the data seen since then" in capsys.readouterr().err
    assert incidents_of(run)["rollbacks"] == [{"step": 4, "batches": 3}]
    assert [record["to_step"] for record in journal_of(run.path) if record["event"] == "rollback"] == [4]
    assert result.tokens == 480


def test_without_a_checkpoint_a_run_goes_back_to_its_beginning(learn, objective, run):
    _, result = learn(objective=poisoned(objective, {16}), on_divergence="rollback", kind="adamw")
    assert (result.steps, result.rollbacks) == (10, 1)
    assert incidents_of(run)["rollbacks"] == [{"step": 0, "batches": 3}]


def test_rollbacks_that_do_not_help_end_the_run(learn, objective, run):
    with pytest.raises(Diverged, match="2 rollbacks did not help"):
        learn(objective=poisoned(objective, set(range(32, 800, 8))), on_divergence="rollback", max_rollbacks=2)
    assert [step for step, _ in run.checkpoints()] == [0]


def stopped(learn, objective, call, **settings):
    """A run that hears SIGTERM at one of its batches."""
    calls = []

    def stopping(model, batch):
        calls.append(batch)
        if len(calls) == call:
            os.kill(os.getpid(), signal.SIGTERM)
        return objective(model, batch)

    with pytest.raises(Stopped):
        learn(objective=stopping, **settings)


@pytest.mark.parametrize("call", [3, 5, 6, 8])
def test_what_is_left_out_is_the_same_after_a_resume(learn, objective, run, tmp_path, call):
    bad = poisoned(objective, {40, 48, 64})
    settings = {"on_divergence": "skip", "dropout": 0.3, "log_every": 3}
    learn("reference", objective=bad, **settings)
    stopped(learn, bad, call, **settings)
    learn(objective=bad, **settings)
    reference = RunFolder(tmp_path / "reference")
    assert final_bytes(run) == final_bytes(reference)
    assert journal_of(run.path) == journal_of(reference.path)
    assert incidents_of(run) == incidents_of(reference)


@pytest.mark.parametrize("call", [3, 5, 6, 8, None])
def test_a_rolled_back_run_is_a_function_of_what_it_passed_over(learn, objective, run, source_of, tmp_path, call):
    """Whenever it was stopped: a checkpoint saved for a signal may be the newest, and less is passed over."""
    bad, settings = poisoned(objective, {40, 56}), {"checkpoint_every": 2, "dropout": 0.3}
    if call is not None:
        stopped(learn, bad, call, on_divergence="rollback", **settings)
    _, result = learn(objective=bad, on_divergence="rollback", **settings)
    assert result.rollbacks == 2
    rollbacks = incidents_of(run)["rollbacks"]

    class Spared:
        def micro_batches(self, step, rank, world_size):
            ahead = sum(rollback["batches"] for rollback in rollbacks if rollback["step"] <= step)
            return source_of().micro_batches(step + ahead, rank, world_size)

    learn("spared", source=Spared(), objective=bad, **settings)
    assert final_bytes(run) == final_bytes(RunFolder(tmp_path / "spared"))


@pytest.mark.parametrize("reaction", ["stop", "skip", "rollback"])
def test_numbers_that_are_not_finite_reach_no_checkpoint(learn, objective, run, reaction):
    """However they came into a weight that no loss asks."""
    spoilt = []

    def spoil(step):
        if step == 5 and not spoilt:
            spoilt.append(step)
            learn.model.measure.weight.data[0, 0] = math.nan
        return {}

    def without_size(model, batch):
        return Sums(losses={"class": objective(model, batch).losses["class"]})

    settings = {"before_step": spoil, "objective": without_size, "on_divergence": reaction, "checkpoint_every": 3}
    if reaction == "rollback":
        _, result = learn(**settings)
        assert (result.steps, result.rollbacks) == (10, 1)
        assert incidents_of(run)["rollbacks"] == [{"step": 3, "batches": 3}]
    else:
        with pytest.raises(Diverged, match="measure.weight: holds numbers that are not finite: .*it was not saved"):
            learn(**settings)
        assert [step for step, _ in run.checkpoints()] == [3]
    for _, checkpoint in run.checkpoints():
        tensors = load_file(checkpoint / "training_state.safetensors")
        assert all(tensor.isfinite().all() for tensor in tensors.values())


def metrics(loss: float, norm: float) -> UpdateMetrics:
    return UpdateMetrics({"some": 2 * loss}, {"some": 2}, {}, 10, norm, ())


def test_a_spike_is_one_of_the_loss_or_of_the_norm_after_enough_quiet_updates():
    numbers = np.random.default_rng(0)
    guard = Guard(DivergenceHistory(), deviations=10.0)
    assert guard(metrics(1e9, 1.0)) is None  # nothing to compare with yet
    guard = Guard(DivergenceHistory(), deviations=10.0)
    for step in range(300):
        assert guard(metrics(6.0 * 0.999**step * numbers.lognormal(0, 0.02), numbers.lognormal(0, 0.2))) is None
    assert len(guard.incidents.log_losses) == REMEMBERED
    before = guard.incidents.log_losses
    assert "loss is 40, above the limit of" in str(guard(metrics(40.0, 1.0)))
    assert str(guard(metrics(4.5, 50.0))).startswith("gradient norm is 50")
    assert str(guard(metrics(4.5, math.inf))) == "gradient norm is inf"
    assert guard.incidents.log_losses == before  # an alarm moves no limit


@given(st.lists(st.floats(-20, 20), min_size=64, max_size=200), st.floats(0.1, 50))
def test_a_limit_lies_above_the_median(logarithms, deviations):
    assert spike_limit(logarithms, deviations) >= math.exp(np.median(logarithms)) * (1 - 1e-9)
    assert spike_limit(logarithms[:63], deviations) == math.inf


def test_spikes_are_left_out_where_that_is_asked_for(learn, objective, run):
    def spiking(model, batch):
        sums = objective(model, batch)
        factor = 1e6 if batch.numbers[0] == 8 * 90 else 1.0
        return Sums(losses={name: loss * factor for name, loss in sums.losses.items()}, correct=sums.correct)

    learn(objective=spiking, on_divergence="skip", spike_deviations=12.0, total_steps=95)
    assert incidents_of(run)["skipped"] == [90]  # and none of the others


TWO_RANKS = """
import os, sys
from dataclasses import dataclass
from pathlib import Path
import torch
from torch import nn
from albert.optim.optimizer import OptimizerRecipe, build_optimizer
from albert.runtime.devices import seed_torch
from albert.runtime.distributed import process_group, wait_for_all
from albert.runtime.errors import AlbertError
from albert.training.loop import Training
from albert.training.update import Sums
from albert.training.logging import TrainingPlan
from albert.training.run_folder import RunFolder

@dataclass(frozen=True)
class Rows:
    rows: torch.Tensor
    number: int
    rank: int
    @property
    def counts(self): return {"size": len(self.rows)}
    @property
    def n_tokens(self): return len(self.rows)
    def to(self, device): return self

class Source:
    def micro_batches(self, step, rank, world_size):
        seed_torch("rows", 0, step, rank)
        return [Rows(torch.randn(4, 3), step, rank)]

def objective(model, batch):
    loss = (model(batch.rows)[:, 0] - batch.rows.sum(1)).square().sum()
    return Sums(losses={"size": loss * float("nan") if (batch.number, batch.rank) == (5, 1) else loss})

place = Path(sys.argv[1])
with process_group(torch.device("cpu")) as here:
    for reaction in ("stop", "skip", "rollback", "late"):
        torch.manual_seed(0)
        model = nn.Linear(3, 1)
        optimizer = build_optimizer(OptimizerRecipe(kind="adamw", learning_rate=0.05), model)
        late = {"delay_metrics": True, "on_divergence": "skip"} if reaction == "late" else {"on_divergence": reaction}
        plan = TrainingPlan(total_steps=8, precision="fp32", checkpoint_every=3, log_every=20, **late)
        try:
            result = Training(
                model, optimizer, lambda step, used: 0.05, Source(), objective, plan, RunFolder(place / reaction),
                device=torch.device("cpu"), identity={}, save_model=lambda directory: None,
            ).complete()
            said = f"{result.steps} {result.skipped} {result.rollbacks}"
        except AlbertError as error:
            said = f"{type(error).__name__} {error.subject}"
        weights = " ".join(str(value) for value in torch.cat([p.flatten() for p in model.parameters()]).tolist())
        (place / f"{reaction}-{here.rank}").write_text(f"{said}|{weights}")
    wait_for_all(here)
"""


def test_a_number_that_is_not_finite_on_one_rank_is_answered_alike_by_both(fork_server, tmp_path):
    (tmp_path / "two_ranks.py").write_text(TWO_RANKS, encoding="utf-8")
    ranks = fork_server.start_world([["python", str(tmp_path / "two_ranks.py"), str(tmp_path)]] * 2)
    for rank in ranks:
        assert rank.finish() == 0, rank.printed
    reactions = (("stop", "Diverged size"), ("skip", "8 1 0"), ("rollback", "8 0 1"), ("late", "8 1 0"))
    for reaction, expected in reactions:
        first, second = ((tmp_path / f"{reaction}-{rank}").read_text().split("|") for rank in (0, 1))
        assert first == second
        assert first[0] == expected
        weights = [float(value) for value in first[1].split()]
        assert all(math.isfinite(value) for value in weights) and any(weights)
