"""The loss is one graph that is compiled once, and a step needs no synchronisation with the GPU."""

import csv
import subprocess
import sys

import pytest


@pytest.fixture(scope="module")
def rows(checkout, tiny_corpus, tmp_path_factory):
    """The benchmark's counts, from a process without the hook on annotations, which prevents compilation."""
    output = tmp_path_factory.mktemp("counted") / "counted.csv"
    words = "--toy --batch-size 64 --micro-batch-size 16 --max-length 32"
    command = [sys.executable, str(checkout / "dev" / "benchmarks" / "cuda_without_gpu.py"), "--data", str(tiny_corpus)]
    compiled = ["--compiled-batches", "30"]
    subprocess.run([*command, *words.split(), *compiled, "--output", str(output)], check=True, timeout=300)
    with open(output, newline="", encoding="utf-8") as file:
        return {(row["what"], row["of"]): row["value"] for row in csv.DictReader(file)}


def test_the_loss_is_compiled_once_for_all_batches(rows):
    assert [rows[what, "loss"] for what in ("graphs", "graph breaks", "recompilations")] == ["1", "0", "0"]


def test_no_operation_of_an_update_waits_for_the_device(rows):
    for what in ("read back", "indexed from the CPU"):
        assert rows[f"{what}, micro-batch", "after"] == rows[f"{what}, update", "clipping and LAMB"] == "0"
    assert rows["copied from the CPU, micro-batch", "after"] == "1"


def test_fixed_shapes_give_the_losses_and_gradients_of_packed_batches(rows):
    assert int(rows["operations, micro-batch", "after"]) > 0
    assert all(float(rows[f"difference of {what}", "fixed shape"]) < 1e-5 for what in ("losses", "gradients"))
