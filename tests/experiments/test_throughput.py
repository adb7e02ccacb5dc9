"""Measuring: both kinds of passes, in turns, within the memory that there is."""

import pytest
import torch
from tests.tiny import tiny_config

from albert.experiments import sizes as throughput
from albert.experiments.sizes import FEWEST_ROUNDS, measure_throughput
from albert.model.config import PRESETS, AlbertConfig
from albert.runtime.errors import OutOfResources

CPU = torch.device("cpu")
SMALL = tiny_config(60, intermediate_size=32, max_position_embeddings=40, hidden_dropout_prob=0.1)


def test_architectures_take_turns_and_medians_are_over_the_rounds(monkeypatch) -> None:
    ran: list[str] = []

    def passes(config: AlbertConfig, *_):
        name = "a" if config is SMALL else "b"
        return {"inference": lambda: ran.append(f"{name} inference"), "training": lambda: None}

    times = iter(range(1, 1000))
    monkeypatch.setattr(throughput, "_passes", passes)
    monkeypatch.setattr(throughput, "_seconds", lambda run, *_: (run(), float(next(times)))[1])
    other = AlbertConfig(vocab_size=61)
    measured = measure_throughput(
        {"a": SMALL, "b": other}, sequence_length=16, batch_size=1, device=CPU, precision="fp32", seconds=0
    )
    assert [measured.results[name].inference_seconds for name in "ab"] == [5.0, 7.0]  # of 1 5 9 and 3 7 11
    assert [measured.results[name].training_seconds for name in "ab"] == [6.0, 8.0]
    assert ran == ["a inference", "b inference"] * (1 + FEWEST_ROUNDS)


def test_what_does_not_fit_is_refused_before_anything_is_allocated(monkeypatch) -> None:
    monkeypatch.setattr(throughput, "free_memory", lambda device: 10_000_000_000)
    monkeypatch.setattr(throughput, "_passes", lambda *_: pytest.fail("was built"))
    with pytest.raises(OutOfResources, match=r"^x: training on 1 × 512 tokens needs 24\.9 GB, 10\.0 GB are free; "):
        measure_throughput({"x": PRESETS["bert-xlarge"]}, sequence_length=512, device=CPU, precision="fp32")
