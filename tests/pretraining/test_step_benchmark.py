"""The benchmark of the pre-training step: all systems get the same samples, and older rows stay readable."""

import csv
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.refusals import refusal
from tests.tiny import tiny_config

from albert.pretraining.batches import Sample
from albert.runtime.errors import UsageError

pytest.importorskip("transformers")


@pytest.fixture(scope="module")
def benchmark(script):
    """dev/benchmarks/pretraining_step.py as a module."""
    return script("pretraining_step")


def run(benchmark, corpus, rows, *words):
    """Run a minimal measurement; returns the rows."""
    benchmark.main(["--data", str(corpus), "--hidden-size", "64", "--layers", "1", "--batch-size", "3", "--rounds", "1",
                    "--precisions", "fp32", "--memory=false", "--output", str(rows), *words])  # fmt: skip
    with open(rows, encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_rows_are_appended_to_older_ones(benchmark, tiny_corpus, tmp_path):
    rows = tmp_path / "rows.csv"
    rows.write_text("date,shape,precision,ratio\n2026-01-01,H1,fp32,3.2\n", encoding="utf-8")
    words = ("--lengths", "16", "32", "--systems", "sdpa", "eager", "gathered")
    older, *new = run(benchmark, tiny_corpus, rows, *words)
    assert older["ratio"] == "3.2" and older["fastest"] == older["albert_tokens_per_second"] == ""
    assert [row["shape"] for row in new] == [f"H64 L1 length {length} batch 3" for length in (16, 32)]
    for row in new:
        assert row["fastest"] in ("sdpa", "eager") and float(row["ratio"]) > 0 and float(row["gathered_ratio"]) > 0
        assert 0 < float(row["real_tokens_share"]) <= 1


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_the_systems_for_gpus_run_on_a_cpu(benchmark, tiny_corpus, tmp_path, precision):
    words = ("--fixed-shape=true", "--compiler", "none", "--lengths", "32", "--systems", "compiled", "sdpa", "eager")
    (row,) = run(benchmark, tiny_corpus, tmp_path / "rows.csv", *words, "--precisions", precision)
    assert row["fastest"] in ("compiled", "sdpa", "eager") and row["precision"] == precision
    assert float(row["albert_tokens_per_second"]) > 0 and float(row["ratio"]) > 0 and float(row["matmul_share"]) >= 0


def test_cuda_graphs_need_a_gpu(benchmark, tiny_corpus, tmp_path):
    with refusal(UsageError, "GPU"):
        run(benchmark, tiny_corpus, tmp_path / "rows.csv", "--systems", "cuda-graphs")


def test_all_systems_have_the_same_loss(benchmark):
    config = tiny_config(50, intermediate_size=32)
    case = benchmark.Case(Path(), config, 16, 2, "fp32", torch.device("cpu"), is_fixed=False, compiler="none")
    rng = np.random.default_rng(0)
    batch = [
        Sample(rng.integers(5, 50, length), np.zeros(length, np.int64), np.array([1, 3]), rng.integers(5, 50, 2), 1)
        for length in (12, 7)
    ]
    losses = []
    for name in ("sdpa", "eager", "gathered"):
        torch.manual_seed(0)
        losses.append(float(benchmark.build(name, case).loss(batch).detach()))
    assert losses[1:] == pytest.approx(losses[:1] * 2, rel=1e-5)
