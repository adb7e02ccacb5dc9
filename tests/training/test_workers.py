"""Workers of one thread that share the work of an update: the same sums in a fixed order, no thread left behind."""

import os
import signal
import threading
import time

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.training.conftest import final_bytes
from torch import nn

from albert.runtime.devices import Dropout, dropout, parallel_map
from albert.runtime.environment import Ranks
from albert.runtime.json_files import read_journal
from albert.training.run_folder import RunFolder
from albert.training.update import Sums, assign_batches, equal_parts, training_workers, update

CPU = torch.device("cpu")


def weights(model):
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


@pytest.fixture
def learn_with_dropout(learn, make_model, workers, monkeypatch):
    """Learns by so many workers; the model's dropout is the package's."""
    made = make_model

    def learn_by(number, name="run", **settings):
        workers(number)
        return learn(name, compute_workers=number, **settings)

    monkeypatch.setattr(nn, "Dropout", Dropout)
    assert isinstance(made(0.3).dropout, Dropout)
    return learn_by


@given(st.lists(st.integers(1, 512), min_size=1, max_size=40), st.integers(1, 9))
def test_parts_are_consecutive_and_differ_by_less_than_their_longest_sequences(lengths, parts):
    found = equal_parts(np.array(lengths), parts)
    assert [i for part in found for i in range(part.start, part.stop)] == list(range(len(lengths)))
    assert 1 <= len(found) <= min(parts, len(lengths))
    for part in found:
        assert part.start < part.stop
        assert sum(lengths[part]) <= sum(lengths) / parts + max(lengths)
    assert equal_parts(np.array(lengths), 1) == [slice(0, len(lengths))]


def test_micro_batches_are_dealt_out_by_tokens_whatever_their_order(source_of):
    batches = source_of(batch_size=9, micro_batch_size=4).micro_batches(0, 0, 1)
    assert [batch.n_tokens for batch in batches] == [24, 24, 6]
    assert [[number for number, _ in one] for one in assign_batches(batches, 2)] == [[0, 2], [1]]
    assert [[number for number, _ in one] for one in assign_batches(batches[::-1], 2)] == [[1, 0], [2]]
    assert len(assign_batches(batches, 7)) == 3


@pytest.mark.parametrize("clip_norm", [1e9, 0.01])
def test_several_workers_take_the_update_of_one(make_model, source_of, objective, workers, clip_norm):
    batches, found = source_of(batch_size=11, micro_batch_size=3).micro_batches(0, 0, 1), []
    for number in (1, 2, 3, 9):
        workers(number)
        model = make_model()
        optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
        how = {"clip_norm": clip_norm, "precision": "fp32", "device": CPU, "ranks": Ranks(), "workers": number}
        metrics = update(model, optimizer, batches, objective, learning_rate=0.1, **how)
        assert all(parameter.grad is None for parameter in model.parameters())
        found.append((metrics, weights(model)))
    (expected, weights_of_one), *others = found
    assert not torch.equal(weights_of_one, weights(make_model()))
    for metrics, each in others:
        torch.testing.assert_close(each, weights_of_one, rtol=1e-5, atol=1e-7)
        assert metrics.losses == pytest.approx(expected.losses)
        assert (metrics.counts, metrics.correct, metrics.tokens) == (expected.counts, expected.correct, expected.tokens)
        assert metrics.gradient_norm == pytest.approx(expected.gradient_norm)


class SharedGradient(nn.Module):
    """Autograd gives two parameters one tensor for a gradient, two more views of it, and one nothing."""

    def __init__(self):
        super().__init__()
        self.one, self.other = nn.Parameter(torch.ones(4)), nn.Parameter(torch.ones(4))
        self.halves = nn.ParameterList([torch.ones(2), torch.ones(2)])
        self.unused = nn.Parameter(torch.ones(3))

    def forward(self, inputs):
        return inputs[:, :4] @ (self.one + self.other + torch.cat(list(self.halves)))


def test_gradients_that_share_memory_are_added_up_apart(source_of, workers):
    def objective(model, batch):
        return Sums({"class": model(batch.inputs).sum()})

    workers(2)
    batches, model = source_of(batch_size=8, micro_batch_size=2).micro_batches(0, 0, 1), SharedGradient()
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    how = {"clip_norm": 1e9, "precision": "fp32", "device": CPU, "ranks": Ranks(), "workers": 2}
    update(model, optimizer, batches, objective, learning_rate=1.0, **how)
    each = torch.cat([batch.inputs for batch in batches])[:, :4].mean(0)
    torch.testing.assert_close(1 - weights(model), torch.cat((each, each, torch.zeros(3), each)))


@pytest.mark.parametrize("kind", ["lamb", "adamw", "muon"])
@pytest.mark.parametrize("late", [False, True])
def test_a_run_of_several_workers_is_the_same_every_time_and_goes_on_bit_identical(
    learn_with_dropout, run, tmp_path, source_of, kind, late
):
    settings = {"source": source_of(batch_size=8, micro_batch_size=3), "dropout": 0.3, "kind": kind}
    settings |= {"delay_metrics": late, "checkpoint_every": 5}
    for name in ("first", "second"):
        learn_with_dropout(3, name, **settings)
    learn_with_dropout(3, total_steps=5, **settings)
    learn_with_dropout(3, **settings)
    first = final_bytes(RunFolder(tmp_path / "first"))
    assert final_bytes(RunFolder(tmp_path / "second")) == first
    assert final_bytes(run) == first
    learn_with_dropout(1, "one", **settings)
    assert final_bytes(RunFolder(tmp_path / "one")) != first  # other draws


def test_a_run_that_goes_on_with_other_workers_says_so_in_one_line(learn_with_dropout, run, source_of, capsys):
    source = source_of(batch_size=8, micro_batch_size=3)
    learn_with_dropout(1, source=source, total_steps=5, checkpoint_every=5)
    capsys.readouterr()
    learn_with_dropout(2, source=source)
    (line,) = [line for line in capsys.readouterr().err.splitlines() if "note" in line]
    assert "workers 1 → 2" in line
    assert "not bit for bit as before" in line
    events = [record for record in read_journal(run.journal_path) if record["event"] == "circumstances"]
    assert [event["now"]["workers"] for event in events] == [1, 2]


def test_what_a_worker_raises_is_raised_once_the_others_are_done(workers):
    workers(3)
    running, ended = threading.Barrier(3), []

    def work(number):
        running.wait()
        if number == 1:
            raise MemoryError
        time.sleep(0.05)
        ended.append(number)

    with pytest.raises(MemoryError):
        parallel_map(work, [0, 1, 2])
    assert sorted(ended) == [0, 2]


def test_an_interrupt_waits_for_what_workers_hold_and_begins_nothing_more(workers, request):
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
    request.addfinalizer(lambda: signal.signal(signal.SIGINT, before))
    workers(2)
    began, ended = [], []

    def work(number):
        began.append(number)
        if number == 1:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.2)
        time.sleep(0.1)
        ended.append(number)

    with pytest.raises(KeyboardInterrupt):
        parallel_map(work, range(50))
    assert sorted(ended) == sorted(began)
    assert len(began) < 50


def test_one_worker_draws_what_torch_draws():
    ones = torch.ones(300)
    torch.manual_seed(3)
    expected = nn.functional.dropout(ones, 0.3)
    torch.manual_seed(3)
    assert torch.equal(dropout(ones, 0.3, True), expected)
    assert dropout(ones, 0.3, False) is ones


def test_only_a_single_process_on_a_processor_has_workers(workers):
    workers(2)
    assert training_workers(CPU, Ranks()) == 2
    assert training_workers(CPU, Ranks(rank=0, size=2)) == 1
    assert training_workers(torch.device("cuda"), Ranks()) == 1
