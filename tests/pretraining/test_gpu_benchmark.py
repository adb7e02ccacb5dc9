"""The benchmark for a GPU, run as it is on a CPU: another device, tiny models, nothing compiled to machine code."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from albert.pretraining.sampling import Sample

pytest.importorskip("transformers")


@pytest.fixture(scope="module")
def benchmark(script):
    """benchmarks/gpu_pretraining.py as a module."""
    return script("gpu_pretraining")


@pytest.fixture
def arguments(benchmark, tiny_corpus, tiny_recipe, tmp_path, monkeypatch) -> list[str]:
    """Of a run on a CPU over the tiny corpus, with a preset of its size."""
    monkeypatch.setitem(benchmark.PRESETS, "tiny", tiny_recipe.model)
    told = f"--device cpu --models tiny --max-length 32 --batch-size 3 --rounds 2 --compiler none --data {tiny_corpus}"
    return [*told.split(), "--output", str(tmp_path / "speeds.csv")]


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_both_systems_learn_in_turns_and_are_reported(benchmark, arguments, precision, tmp_path: Path) -> None:
    benchmark.main([*arguments, "--precision", precision])
    with open(tmp_path / "speeds.csv", newline="", encoding="utf-8") as file:
        ours, *theirs = csv.DictReader(file)
    forms = [f"transformers, {form}" for form in ("compiled", "sdpa", "eager")]
    assert ours["system"] == "albert" and [row["system"] for row in theirs] == forms
    for row in (ours, *theirs):
        assert row["precision"] == precision and row["peak_gb"] == ""
        assert float(row["tokens_per_second"]) > 0 and float(row["matmul_share"]) >= 0
    for row in theirs:
        assert float(row["least"]) <= float(row["times_transformers"]) <= float(row["most"])


def test_padded_rows_hold_what_packed_samples_hold(benchmark) -> None:
    sample = Sample(np.arange(5, 9), np.array([0, 0, 1, 1]), np.array([1, 3]), np.array([7, 2]), 1)
    rows = {name: some.tolist() for name, some in benchmark.padded([sample], 6).items()}
    assert rows == {
        "input_ids": [[5, 6, 7, 8, 0, 0]],
        "token_type_ids": [[0, 0, 1, 1, 0, 0]],
        "attention_mask": [[1, 1, 1, 1, 0, 0]],
        "labels": [[-100, 7, -100, 2, -100, -100]],
        "sentence_order_label": [1],
    }


def test_the_curve_of_a_run_is_its_training_lines(benchmark, tmp_path: Path) -> None:
    told = [{"event": "train", "step": 1, "loss": 9.5}, {"event": "saved"}, {"event": "train", "step": 2, "rate": 0.1}]
    (tmp_path / "journal.jsonl").write_text("\n".join(map(json.dumps, told)))
    benchmark.keep_curve(tmp_path / "journal.jsonl", tmp_path / "curve.csv")
    assert (tmp_path / "curve.csv").read_text() == "event,loss,rate,step\ntrain,9.5,,1\ntrain,,0.1,2\n"
