"""Pre-training by several worker threads: one worker's results up to rounding, the same bytes every time."""

import threading
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file
from tests.pretraining.conftest import events

from albert.cli.main import run
from albert.pretraining import task as pretraining_task
from albert.pretraining.batches import pretraining_objective
from albert.runtime.json_files import save_versioned
from albert.training.run_folder import RunFolder


@pytest.fixture
def pretrain(tiny_recipe, tiny_corpus, tmp_path, workers):
    """Pre-train with a number of workers by the command; returns its exit code."""

    def pretrain(name, number, dropout=0.0, **changes):
        model = replace(tiny_recipe.model, hidden_dropout_prob=dropout, attention_probs_dropout_prob=dropout)
        changes["schedule"] = replace(tiny_recipe.schedule, total_steps=6)
        recipe = tmp_path / "recipe.json"
        save_versioned(recipe, replace(tiny_recipe, model=model, **changes))
        workers(number)
        return run(["pretrain", str(recipe), "--data", str(tiny_corpus), "--output", str(tmp_path / name)])

    return pretrain


@pytest.fixture
def in_worker(monkeypatch):
    """Call a function with the number of calls so far before each micro-batch that a worker computes."""

    def patch(function):
        calls = []

        def objective(model, batch):
            if threading.current_thread() is not threading.main_thread():
                calls.append(batch)
                function(len(calls))
            return pretraining_objective(model, batch)

        monkeypatch.setattr(pretraining_task, "pretraining_objective", objective)

    return patch


def final_state(run):
    return (RunFolder(run).checkpoints()[-1][1] / "training_state.safetensors").read_bytes()


@pytest.mark.parametrize(("precision", "tolerance", "several"), [("fp32", 2e-4, (2,)), ("bf16", 2e-2, (3,))])
def test_several_workers_learn_what_one_learns(pretrain, tmp_path, precision, tolerance, several):
    runs = {number: tmp_path / str(number) for number in (1, *several)}
    for number in runs:
        assert pretrain(str(number), number, precision=precision) == 0
        assert events(runs[number], "environment")[0]["now"]["workers"] == number
    expected = load_file(runs[1] / "model" / "model.safetensors")
    for number in several:
        for name, tensor in load_file(runs[number] / "model" / "model.safetensors").items():
            torch.testing.assert_close(tensor, expected[name], rtol=tolerance, atol=tolerance)
        for event, field in (("train", "loss"), ("evaluation", "masked_tokens_loss"), ("train", "tokens")):
            values, reference = ([record[field] for record in events(runs[n], event)] for n in (number, 1))
            assert values == pytest.approx(reference, rel=0 if field == "tokens" else tolerance)


@pytest.mark.parametrize("checkpointing", [False, True])
def test_dropout_of_several_workers_is_the_same_in_every_run(pretrain, tmp_path, checkpointing):
    for name in ("first", "second"):
        assert pretrain(name, 2, dropout=0.2, activation_checkpointing=checkpointing) == 0
    assert final_state(tmp_path / "first") == final_state(tmp_path / "second")


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("DefaultCPUAllocator: can't allocate memory: 9 bytes")])
def test_a_worker_without_memory_is_reported_in_one_line(pretrain, in_worker, capsys, error):
    def fail(call):
        raise error

    in_worker(fail)
    assert pretrain("run", 2) not in (0, 1)
    (line,) = [line for line in capsys.readouterr().err.splitlines() if "memory" in line]
    assert "not enough for this" in line and "smaller batch" in line
