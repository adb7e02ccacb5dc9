"""Workers that share the work of an update: the same sums in a fixed order, and no thread left behind."""

import signal
import threading
import time

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.training.conftest import PointSource, events, final_bytes, weights_of
from tests.training.test_update import CPU, take
from torch import nn

from albert.runtime.devices import Dropout, parallel_map
from albert.runtime.environment import Ranks
from albert.training.run_folder import RunFolder
from albert.training.update import Sums, equal_parts, training_workers


@pytest.fixture
def train_with_workers(train, make_model, workers, monkeypatch):
    """Train with a number of workers and the package's dropout."""

    def train_with(number, name="run", **settings):
        workers(number)
        return train(name, compute_workers=number, **settings)

    monkeypatch.setattr(nn, "Dropout", Dropout)
    assert isinstance(make_model(0.3).dropout, Dropout)
    return train_with


@given(st.lists(st.integers(1, 512), min_size=1, max_size=40), st.integers(1, 9))
def test_equal_parts_are_consecutive_and_differ_by_less_than_the_longest_sequence(lengths, n_parts):
    parts = equal_parts(np.array(lengths), n_parts)
    assert [i for part in parts for i in range(part.start, part.stop)] == list(range(len(lengths)))
    assert 1 <= len(parts) <= min(n_parts, len(lengths))
    for part in parts:
        assert part.start < part.stop
        assert sum(lengths[part]) <= sum(lengths) / n_parts + max(lengths)
    assert equal_parts(np.array(lengths), 1) == [slice(0, len(lengths))]


@pytest.mark.parametrize("clip_norm", [1e9, 0.01])
def test_several_workers_compute_the_update_of_one(make_model, workers, clip_norm):
    batches, results = PointSource(batch_size=11, micro_batch_size=3).micro_batches(0, 0, 1), []
    for number in (1, 2, 3, 9):
        workers(number)
        model = make_model()
        metrics = take(model, batches, clip_norm=clip_norm, workers=number)
        assert all(parameter.grad is None for parameter in model.parameters())
        results.append((metrics, weights_of(model)))
    (expected, expected_weights), *others = results
    assert not torch.equal(expected_weights, weights_of(make_model()))
    for metrics, weights in others:
        torch.testing.assert_close(weights, expected_weights, rtol=1e-5, atol=1e-7)
        assert metrics.losses == pytest.approx(expected.losses)
        assert (metrics.counts, metrics.correct, metrics.tokens) == (expected.counts, expected.correct, expected.tokens)
        assert metrics.gradient_norm == pytest.approx(expected.gradient_norm)


class SharedGradient(nn.Module):
    """Two parameters have the same gradient tensor, two have views of it, and one has none."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Parameter(torch.ones(4)), nn.Parameter(torch.ones(4))
        self.halves = nn.ParameterList([torch.ones(2), torch.ones(2)])
        self.unused = nn.Parameter(torch.ones(3))

    def forward(self, inputs):
        return inputs[:, :4] @ (self.first + self.second + torch.cat(list(self.halves)))


def test_gradients_that_share_memory_are_summed_separately(workers):
    workers(2)
    batches, model = PointSource(batch_size=8, micro_batch_size=2).micro_batches(0, 0, 1), SharedGradient()
    take(model, batches, lambda m, batch: Sums({"class": m(batch.inputs).sum()}), learning_rate=1.0, workers=2)
    mean = torch.cat([batch.inputs for batch in batches])[:, :4].mean(0)
    torch.testing.assert_close(1 - weights_of(model), torch.cat((mean, mean, torch.zeros(3), mean)))


@pytest.mark.parametrize("kind", ["lamb", "adamw", "muon"])
@pytest.mark.parametrize("delayed", [False, True])
def test_runs_with_several_workers_are_bit_identical_also_after_a_resume(
    train_with_workers, run, tmp_path, kind, delayed
):
    settings = {"source": PointSource(batch_size=8, micro_batch_size=3), "dropout": 0.3, "kind": kind}
    settings |= {"delay_metrics": delayed, "checkpoint_every": 5}
    for name in ("first", "second"):
        train_with_workers(3, name, **settings)
    train_with_workers(3, total_steps=5, **settings)
    train_with_workers(3, **settings)
    first = final_bytes(RunFolder(tmp_path / "first"))
    assert final_bytes(RunFolder(tmp_path / "second")) == first
    assert final_bytes(run) == first
    train_with_workers(1, "one", **settings)
    assert final_bytes(RunFolder(tmp_path / "one")) != first  # other draws of dropout


def test_a_resume_with_another_number_of_workers_prints_a_note(train_with_workers, run, capsys):
    source = PointSource(batch_size=8, micro_batch_size=3)
    train_with_workers(1, source=source, total_steps=5, checkpoint_every=5)
    capsys.readouterr()
    train_with_workers(2, source=source)
    (line,) = [line for line in capsys.readouterr().err.splitlines() if "note" in line]
    assert "workers 1 → 2" in line
    assert "not be bit-identical" in line
    assert [event["now"]["workers"] for event in events(run, "environment")] == [1, 2]


def test_an_error_of_a_worker_is_raised_after_the_others_are_done(workers):
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


def test_an_interrupt_waits_for_running_work_and_starts_no_more(workers, request):
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
    request.addfinalizer(lambda: signal.signal(signal.SIGINT, before))
    workers(2)
    began, ended = [], []

    def work(number):
        began.append(number)
        if number == 1:
            signal.pthread_kill(threading.get_ident(), signal.SIGINT)  # this thread receives it, not the waiting one
            time.sleep(0.2)
        time.sleep(0.1)
        ended.append(number)

    with pytest.raises(KeyboardInterrupt):
        parallel_map(work, range(50))
    assert sorted(ended) == sorted(began)
    assert len(began) < 50


def test_only_a_single_process_on_a_cpu_has_workers(workers):
    workers(2)
    assert training_workers(CPU, Ranks()) == 2
    assert training_workers(CPU, Ranks(rank=0, size=2)) == 1
    assert training_workers(torch.device("cuda"), Ranks()) == 1
