"""On a GPU, models give the vectors and labels that they give on a CPU, and are fine-tuned."""

import json

import numpy as np
import pytest
import torch

import albert
from albert.cli.main import run

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
TEXTS = ["the old house", "a", "rain in the night and the long road home", "a bright day"]
TOLERANCES = {"fp32": 1e-4, "bf16": 3e-2}


@pytest.mark.parametrize("precision", TOLERANCES)
def test_vectors_on_a_gpu_equal_those_on_a_cpu(model_paths, precision):
    for kind in ("pretrain", "classify"):
        path = model_paths(kind)
        expected = albert.load(path, device="cpu", precision="fp32").embed(TEXTS)
        vectors = albert.load(path, device="cuda", precision=precision).embed(TEXTS)
        differences = np.linalg.norm(vectors - expected, axis=1) / np.linalg.norm(expected, axis=1)
        assert differences.max() < TOLERANCES[precision]


@pytest.mark.parametrize("precision", TOLERANCES)
def test_a_model_learns_and_predicts_on_a_gpu(model_paths, tmp_path, precision):
    rows = [{"text": f"{word} {other}", "label": word} for word in ("good", "bad") for other in "abcdefghijklmnop"]
    table = tmp_path / "table.jsonl"
    table.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    words = ["--model", str(model_paths("pretrain")), "--train", str(table), "steps=20"]
    words += ["--device", "cuda", f"precision={precision}", "--output", str(tmp_path / "run")]
    assert run(["finetune", *words]) == 0
    model = str(tmp_path / "run" / "model")
    assert run(["predict", model, "--classify", "good a", "--device", "cuda", "--precision", precision]) == 0
