"""Measured throughput: medians over alternating rounds; models that do not fit."""

import pytest
import torch
from tests.tiny import tiny_config

from albert.pretraining import throughput
from albert.pretraining.throughput import MIN_ROUNDS, measure_throughput
from albert.recipes.architecture import PRESETS, EncoderConfig
from albert.runtime.errors import OutOfResources

CPU = torch.device("cpu")


def test_throughput_is_the_median_over_alternating_rounds(monkeypatch):
    small = tiny_config(60, intermediate_size=32, max_position_embeddings=40, hidden_dropout_prob=0.1)
    ran: list[str] = []

    def passes(config: EncoderConfig, *_):
        name = "a" if config is small else "b"
        return {"inference": lambda: ran.append(f"{name} inference"), "training": lambda: None}

    times = iter(range(1, 1000))
    monkeypatch.setattr(throughput, "_passes", passes)
    monkeypatch.setattr(throughput, "_seconds", lambda run, *_: (run(), float(next(times)))[1])
    options = {"sequence_length": 16, "batch_size": 1, "device": CPU, "precision": "fp32", "seconds": 0}
    results = measure_throughput({"a": small, "b": EncoderConfig(vocab_size=61)}, **options).results
    assert [results[name].inference_seconds for name in "ab"] == [5.0, 7.0]  # of 1 5 9 and 3 7 11
    assert [results[name].training_seconds for name in "ab"] == [6.0, 8.0]
    assert ran == ["a inference", "b inference"] * (1 + MIN_ROUNDS)


def test_too_large_models_are_refused_before_allocation(monkeypatch):
    monkeypatch.setattr(throughput, "free_memory", lambda device: 10_000_000_000)
    monkeypatch.setattr(throughput, "_passes", lambda *_: pytest.fail("was built"))
    with pytest.raises(OutOfResources):
        measure_throughput({"x": PRESETS["bert-xlarge"]}, sequence_length=512, device=CPU, precision="fp32")
