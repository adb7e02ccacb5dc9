"""Pre-training by several workers of one thread: the run of one up to rounding, the same bytes every time."""

import os
import signal
import threading
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file

from albert.cli.main import run
from albert.pretraining import run as pretraining_run
from albert.pretraining.batches import PretrainingBatches, pretraining_objective
from albert.pretraining.sampling import PretrainingSamples
from albert.runtime.json_files import read_journal, save_json
from albert.text.shards import TokenCorpus
from albert.training.run_folder import RunFolder


@pytest.fixture
def pretrain(tiny_recipe, tiny_corpus, tmp_path, workers):
    """Pre-trains by a number of workers with the command; returns its exit code."""

    def start(name, number, dropout=0.0, **changes):
        model = replace(tiny_recipe.model, hidden_dropout_prob=dropout, attention_probs_dropout_prob=dropout)
        recipe = tmp_path / "recipe.json"
        save_json(recipe, replace(tiny_recipe, model=model, **changes))
        workers(number)
        return run(["pretrain", str(recipe), "--data", str(tiny_corpus), "--output", str(tmp_path / name)])

    return start


def weights(directory):
    return load_file(directory / "model" / "model.safetensors")


def state(directory):
    return (RunFolder(directory).checkpoints()[-1][1] / "training_state.safetensors").read_bytes()


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_several_workers_learn_what_one_learns(pretrain, tmp_path, precision):
    for number in (1, 2, 3):
        assert pretrain(f"by {number}", number, precision=precision) == 0
    expected, tolerance = weights(tmp_path / "by 1"), {"fp32": 2e-4, "bf16": 2e-2}[precision]
    for number in (2, 3):
        for name, tensor in weights(tmp_path / f"by {number}").items():
            torch.testing.assert_close(tensor, expected[name], rtol=tolerance, atol=tolerance)
    told = [read_journal(tmp_path / f"by {number}" / "journal.jsonl") for number in (1, 2, 3)]
    losses = [[line["loss"] for line in lines if line["event"] == "train"] for lines in told]
    assert losses[1] == pytest.approx(losses[0], rel=tolerance)
    scores = [[line["masked_tokens_loss"] for line in lines if line["event"] == "evaluation"] for lines in told]
    assert scores[1] == pytest.approx(scores[0], rel=tolerance)
    tokens = [[line["tokens"] for line in lines if line["event"] == "train"] for lines in told]
    assert tokens[0] == tokens[1] == tokens[2]
    recorded = [next(line for line in lines if line["event"] == "circumstances")["now"]["workers"] for lines in told]
    assert recorded == [1, 2, 3]


@pytest.mark.parametrize("checkpointing", [False, True])
def test_dropout_of_several_workers_is_the_same_in_every_run(pretrain, tmp_path, checkpointing):
    for name in ("first", "second"):
        assert pretrain(name, 2, dropout=0.2, activation_checkpointing=checkpointing) == 0
    assert state(tmp_path / "first") == state(tmp_path / "second")


def test_a_signal_while_workers_compute_saves_and_the_run_goes_on_bit_identical(pretrain, tmp_path, monkeypatch):
    assert pretrain("whole", 2, dropout=0.2) == 0
    calls = []

    def interrupted(model, batch):
        if threading.current_thread() is not threading.main_thread():
            calls.append(batch)
            if len(calls) == 9:
                os.kill(os.getpid(), signal.SIGTERM)
        return pretraining_objective(model, batch)

    monkeypatch.setattr(pretraining_run, "pretraining_objective", interrupted)
    assert pretrain("stopped", 2, dropout=0.2) == 128 + signal.SIGTERM
    steps = [step for step, _ in RunFolder(tmp_path / "stopped").checkpoints()]
    assert len(steps) == 1
    assert 0 < steps[0] < 12
    assert pretrain("stopped", 2, dropout=0.2) == 0
    assert state(tmp_path / "stopped") == state(tmp_path / "whole")


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("DefaultCPUAllocator: can't allocate memory: 9 bytes")])
def test_a_worker_without_memory_is_one_line(pretrain, tmp_path, monkeypatch, capsys, error):
    def without_memory(model, batch):
        if threading.current_thread() is not threading.main_thread():
            raise error
        return pretraining_objective(model, batch)

    monkeypatch.setattr(pretraining_run, "pretraining_objective", without_memory)
    assert pretrain("run", 2) not in (0, 1)
    (line,) = [line for line in capsys.readouterr().err.splitlines() if "memory" in line]
    assert "not enough for this" in line
    assert "smaller batch" in line


def test_every_worker_gets_a_part_of_each_micro_batch(tiny_recipe, tiny_corpus):
    corpus = TokenCorpus.open(tiny_corpus, "train", verify=False)
    samples = PretrainingSamples(corpus, tiny_recipe.sequences, tiny_recipe.masking, 3)
    (whole,) = PretrainingBatches(samples, 8, 8).micro_batches(1, 0, 1)
    parts = PretrainingBatches(samples, 8, 8, workers=2).micro_batches(1, 0, 1)
    assert len(parts) == 2
    assert torch.equal(torch.cat([part.packed.token_ids for part in parts]), whole.packed.token_ids)
    assert torch.equal(torch.cat([part.masked_labels for part in parts]), whole.masked_labels)
    assert abs(parts[0].n_tokens - parts[1].n_tokens) <= max(whole.lengths)
    single = PretrainingBatches(samples, 8, 1, workers=2).micro_batches(1, 0, 1)
    assert [batch.packed.n_sequences for batch in single] == [1] * 8
