"""Divergence: detection, skipped updates and rollbacks, which are the same after every resume."""

import math
import os
import signal
import sys
from pathlib import Path

import pytest
import torch
from dev.reliability.runs import journal_of
from safetensors.torch import load_file
from tests.refusals import refusal
from tests.training.conftest import (
    PointModel,
    PointSource,
    checkpoint_steps,
    events,
    final_bytes,
    point_objective,
    point_work,
    scaled,
    weights_of,
)

from albert.optim.optimizer import OptimizerRecipe, build_optimizer
from albert.runtime.distributed import process_group, wait_for_all
from albert.runtime.errors import Diverged
from albert.runtime.json_files import read_json_object
from albert.training.logging import TrainingPlan
from albert.training.loop import train
from albert.training.run_folder import RunFolder, Stopped
from albert.training.same_run import Run
from albert.training.update import Sums

CPU = torch.device("cpu")
SKIP, ROLLBACK = {"on_divergence": "skip"}, {"on_divergence": "rollback"}


def nan_at(bad, factor=math.nan, calls=None):
    """An objective with a NaN loss for batches whose first point is in `bad`."""

    def wrapped(model, batch):
        if calls is not None:
            calls.append(batch.numbers[0])
        return scaled(point_objective(model, batch), factor if batch.numbers[0] in bad else 1.0)

    return wrapped


def divergences_of(run):
    return read_json_object(run.checkpoints()[-1][1] / "training_state.json")["divergences"]


# ---- skipping --------------------------------------------------------------------------------------------------------


def test_a_skipped_update_is_recorded_and_the_run_continues(train, run, capsys):
    calls = []
    _, result = train(objective=nan_at({24}, calls=calls), **SKIP, dropout=0.2)
    assert calls == list(range(0, 80, 8))  # every batch once
    assert (result.steps, result.skipped, result.tokens) == (10, 1, 480)
    assert [(r["step"], r["why"], r["skipped"]) for r in events(run, "skip")] == [(4, "class is nan", 1)]
    assert "class is nan in step 4: update skipped" in capsys.readouterr().err
    first = events(run, "train")[0]
    assert math.isfinite(first["loss"]) and first["tokens"] == 192
    assert divergences_of(run)["skipped"] == [3]


def test_more_than_ten_skipped_updates_in_a_row_end_the_run(train, run):
    train("ten", objective=nan_at(set(range(8, 88, 8))), **SKIP, total_steps=14)
    with refusal(Diverged, "10 updates") as failure:
        train(objective=nan_at(set(range(8, 96, 8))), **SKIP, total_steps=14)
    assert failure.value.exit_code == 3
    assert not run.checkpoints()


# ---- rollbacks -------------------------------------------------------------------------------------------------------


def test_a_rollback_skips_the_data_since_the_checkpoint(train, run, capsys):
    calls = []
    _, result = train(objective=nan_at({48}, calls=calls), **ROLLBACK, checkpoint_every=4, dropout=0.2)
    assert calls == list(range(0, 104, 8))  # batches 4 to 6 do not count
    assert (result.steps, result.rollbacks, result.tokens) == (10, 1, 480)
    assert "class is nan in step 7: back to step 4, skipping the data seen since then" in capsys.readouterr().err
    assert divergences_of(run)["rollbacks"] == [{"step": 4, "batches": 3}]
    assert [record["to_step"] for record in events(run, "rollback")] == [4]


def test_a_rollback_before_the_first_checkpoint_returns_to_step_0(train, run):
    _, result = train(objective=nan_at({16}), **ROLLBACK, kind="adamw")
    assert (result.steps, result.rollbacks) == (10, 1)
    assert divergences_of(run)["rollbacks"] == [{"step": 0, "batches": 3}]


def test_the_maximum_number_of_rollbacks_ends_the_run(train, run):
    with refusal(Diverged, "2 rollbacks"):
        train(objective=nan_at(set(range(32, 800, 8))), **ROLLBACK, max_rollbacks=2)
    assert checkpoint_steps(run) == [0]


# ---- resuming --------------------------------------------------------------------------------------------------------


def train_until_signal(train, objective, call, **settings):
    """A run that receives SIGTERM in one of its batches."""
    calls = []

    def signalled(model, batch):
        calls.append(batch)
        if len(calls) == call:
            os.kill(os.getpid(), signal.SIGTERM)
        return objective(model, batch)

    with pytest.raises(Stopped):
        train(objective=signalled, **settings)


@pytest.mark.parametrize("call", [3, 5, 6, 8])
def test_skipped_updates_are_the_same_after_a_resume(train, run, reference, call):
    bad = nan_at({40, 48, 64})
    settings = {**SKIP, "dropout": 0.3, "log_every": 3}
    train("reference", objective=bad, **settings)
    train_until_signal(train, bad, call, **settings)
    train(objective=bad, **settings)
    assert final_bytes(run) == final_bytes(reference)
    assert journal_of(run.path) == journal_of(reference.path)
    assert divergences_of(run) == divergences_of(reference)


@pytest.mark.parametrize("call", [3, 5, 6, 8, None])
def test_the_weights_after_rollbacks_depend_on_the_skipped_batches_only(train, run, tmp_path, call):
    """A checkpoint that was saved for a signal may be the newest one; then fewer batches are skipped."""
    bad, settings = nan_at({40, 56}), {"checkpoint_every": 2, "dropout": 0.3}
    if call is not None:
        train_until_signal(train, bad, call, **ROLLBACK, **settings)
    _, result = train(objective=bad, **ROLLBACK, **settings)
    assert result.rollbacks == 2
    rollbacks = divergences_of(run)["rollbacks"]

    class WithoutSkipped:
        def micro_batches(self, step, rank, world_size):
            offset = sum(rollback["batches"] for rollback in rollbacks if rollback["step"] <= step)
            return PointSource().micro_batches(step + offset, rank, world_size)

    train("expected", source=WithoutSkipped(), objective=bad, **settings)
    assert final_bytes(run) == final_bytes(RunFolder(tmp_path / "expected"))


@pytest.mark.parametrize("reaction", ["stop", "skip", "rollback"])
def test_weights_that_are_not_finite_are_not_saved(train, run, reaction):
    """Also in a weight that no loss depends on."""
    changed = []

    def set_nan(step):
        if step == 5 and not changed:
            changed.append(step)
            train.model.measure.weight.data[0, 0] = math.nan
        return {}

    def without_size(model, batch):
        return Sums(losses={"class": point_objective(model, batch).losses["class"]})

    settings = {"before_step": set_nan, "objective": without_size, "on_divergence": reaction, "checkpoint_every": 3}
    if reaction == "rollback":
        _, result = train(**settings)
        assert (result.steps, result.rollbacks) == (10, 1)
        assert divergences_of(run)["rollbacks"] == [{"step": 3, "batches": 3}]
    else:
        with refusal(Diverged, "measure.weight"):
            train(**settings)
        assert checkpoint_steps(run) == [3]
    for _, checkpoint in run.checkpoints():
        tensors = load_file(checkpoint / "training_state.safetensors")
        assert all(tensor.isfinite().all() for tensor in tensors.values())


# ---- two ranks -------------------------------------------------------------------------------------------------------

OUTCOMES = {"stop": "Diverged class", "skip": "8 1 0", "rollback": "8 0 1", "delayed": "8 1 0"}
"""Name of a run -> error, or numbers of steps, skipped updates and rollbacks."""


def run_one_rank(directory: Path) -> None:
    """Train with a NaN loss in step 5 of the second rank."""
    with process_group(CPU) as ranks:
        for name in OUTCOMES:
            torch.manual_seed(0)
            model = PointModel(dropout=0.0)
            delayed = {"on_divergence": "skip", "delay_metrics": True}
            reaction = delayed if name == "delayed" else {"on_divergence": name}
            plan = TrainingPlan(total_steps=8, precision="fp32", checkpoint_every=3, log_every=20, **reaction)
            try:
                optimizer = build_optimizer(OptimizerRecipe(kind="adamw", learning_rate=0.05), model)
                work = point_work(model, optimizer, nan_at({5 * 8 + 1}), learning_rate=lambda step, used: 0.05)
                result = train(work, plan, Run(folder=RunFolder(directory / name), record={}, identity={}))
                outcome = f"{result.steps} {result.skipped} {result.rollbacks}"
            except Diverged as error:
                outcome = f"Diverged {error.subject}"
            (directory / f"{name}-{ranks.rank}").write_text(f"{outcome}|{weights_of(model).tolist()}")
        wait_for_all(ranks)


def test_all_ranks_react_alike_to_a_loss_that_is_not_finite_on_one(fork_server, tmp_path):
    for rank in fork_server.start_world([["python", __file__, str(tmp_path)]] * 2):
        assert rank.finish() == 0, rank.printed
    for name, expected in OUTCOMES.items():
        first, second = ((tmp_path / f"{name}-{rank}").read_text() for rank in (0, 1))
        assert first == second
        outcome, weights = first.split("|")
        assert outcome == expected and "nan" not in weights


if __name__ == "__main__":
    run_one_rank(Path(sys.argv[1]))
