"""The benchmark of the pre-training step: all systems learn from the same samples, and older rows stay readable."""

import csv
import importlib

import pytest


def test_rows_are_added_to_those_that_are_there(checkout, tiny_corpus, tmp_path, monkeypatch, capsys):
    monkeypatch.syspath_prepend(str(checkout / "benchmarks"))
    benchmark = importlib.import_module("pretraining_step")
    rows = tmp_path / "rows.csv"
    rows.write_text("date,shape,precision,ratio\n2026-01-01,H1,fp32,3.2\n", encoding="utf-8")
    benchmark.main(["--data", str(tiny_corpus), "--hidden-size", "64", "--layers", "1", "--lengths", "16", "32",
                    "--batch-size", "3", "--rounds", "1", "--precisions", "fp32", "--no-memory",
                    "--systems", "sdpa", "eager", "gathered", "--output", str(rows)])  # fmt: skip
    with open(rows, encoding="utf-8") as file:
        older, *new = csv.DictReader(file)
    assert older["ratio"] == "3.2" and older["fastest"] == older["albert_tokens_per_second"] == ""
    assert [row["shape"] for row in new] == [f"H64 L1 length {length} batch 3" for length in (16, 32)]
    for row in new:
        assert row["fastest"] in ("sdpa", "eager") and float(row["ratio"]) > 0 and float(row["gathered_ratio"]) > 0
        assert 0 < float(row["real_tokens_share"]) <= 1


def test_what_is_compared_has_the_same_loss(checkout, monkeypatch):
    """With the same weights, that is: padded everywhere, or gathered."""
    monkeypatch.syspath_prepend(str(checkout / "benchmarks"))
    systems = importlib.import_module("pretraining_systems")
    import numpy as np
    import torch

    from albert.model.config import AlbertConfig
    from albert.pretraining.sampling import Sample

    config = AlbertConfig(vocab_size=50, embedding_size=8, hidden_size=16, num_hidden_layers=2, num_attention_heads=2,
                          intermediate_size=32)  # fmt: skip
    draw = np.random.default_rng(0)
    batch = [
        Sample(draw.integers(5, 50, length), np.zeros(length, np.int64), np.array([1, 3]), draw.integers(5, 50, 2), 1)
        for length in (12, 7)
    ]
    losses = []
    for name in ("sdpa", "eager", "gathered"):
        torch.manual_seed(0)
        losses.append(float(systems.build(name, config, 16).loss(batch).detach()))
    assert losses[1:] == pytest.approx(losses[:1] * 2, rel=1e-5)
