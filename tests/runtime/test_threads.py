"""Worker threads, and the thread settings made before torch is imported."""

import ast
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.tiny import tiny_config

from albert.inference.engine import BETWEEN_BATCHES, PackedModel
from albert.model.albert import AlbertForMaskedLM, AlbertForSequenceClassification
from albert.runtime.devices import parallel_map
from albert.runtime.threads import SPINS, configure_threads, cores_of_quota

SMALL = tiny_config(50, intermediate_size=32)


def sequences(count: int) -> tuple[list[np.ndarray], list[np.ndarray]]:
    random = np.random.default_rng(0)
    ids = [random.integers(5, 50, int(length)) for length in random.integers(2, 60, count)]
    return ids, [np.zeros_like(sequence) for sequence in ids]


def test_workers_compute_the_same_as_for_single_sequences(workers):
    workers(2)
    model = PackedModel(AlbertForSequenceClassification(SMALL, 3), torch.device("cpu"))
    masked = PackedModel(AlbertForMaskedLM(SMALL), torch.device("cpu"))
    ids, types = sequences(70)
    positions = [np.arange(len(sequence)) for sequence in ids]
    tokens = {index: logits for index, logits, _ in masked.at(ids, types, positions)}
    rows = model.rows(ids, types)
    assert len(tokens) == len(rows) == 70
    for i, row in enumerate(rows):
        np.testing.assert_allclose(row, model.rows([ids[i]], [types[i]])[0], rtol=0, atol=1e-5)
        ((_, expected, _),) = masked.at([ids[i]], [types[i]], [positions[i]])
        torch.testing.assert_close(tokens[i], expected, rtol=0, atol=1e-5)


def test_callback_between_batches_can_stop_the_workers(workers):
    workers(2)
    model = PackedModel(AlbertForSequenceClassification(SMALL, 3), torch.device("cpu"), micro_batch_tokens=64)
    calls = []

    def stop_at_the_third() -> None:
        calls.append(len(calls))
        if len(calls) == 3:
            raise TimeoutError

    token = BETWEEN_BATCHES.set(stop_at_the_third)
    try:
        with pytest.raises(TimeoutError):
            model.rows(*sequences(70))
    finally:
        BETWEEN_BATCHES.reset(token)
    assert calls == [0, 1, 2]


def test_failing_worker_raises_and_no_further_item_starts(workers):
    workers(2)
    started = []

    def fail(item: int) -> None:
        started.append(item)
        raise MemoryError

    with pytest.raises(MemoryError):
        parallel_map(fail, range(100))
    assert len(started) <= 2
    assert parallel_map(str, [1, 2]) == ["1", "2"]


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, {"GOMP_SPINCOUNT": SPINS}),
        ({"GOMP_SPINCOUNT": "5"}, {"GOMP_SPINCOUNT": "5"}),
        ({"OMP_WAIT_POLICY": "PASSIVE"}, {"OMP_WAIT_POLICY": "PASSIVE"}),
    ],
)
def test_spin_count_is_set_unless_the_user_set_it(environment, expected, tmp_path, monkeypatch):
    monkeypatch.delitem(sys.modules, "torch")
    configure_threads(environment, tmp_path)
    assert environment == expected


def test_package_sets_the_spin_count_before_torch_is_imported():
    code = "import albert, os, sys; assert 'torch' not in sys.modules; print(os.environ['GOMP_SPINCOUNT'])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env={}, check=True)
    assert result.stdout.split() == [SPINS]


@pytest.mark.parametrize(
    ("name", "first"),
    [("harness", "albert"), *((name, "harness") for name in (
        "inference", "workers", "finetuning_speed", "pretraining_step", "server_load", "latency", "lamb_step"))],
)  # fmt: skip
def test_benchmarks_import_the_package_before_torch(name, first):
    """The harness imports the package, and every benchmark the harness, before all third-party libraries."""
    tree = ast.parse((Path(__file__).parents[2] / "dev" / "benchmarks" / f"{name}.py").read_text())
    imports = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    modules = [node.module if isinstance(node, ast.ImportFrom) else node.names[0].name for node in imports]
    packages = (module.split(".")[0] for module in modules)
    assert next(package for package in packages if package not in sys.stdlib_module_names) == first


@pytest.mark.parametrize(
    ("files", "group", "cores"),
    [
        ({"cpu.max": "150000 100000"}, "0::/", 1.5),
        ({"a/cpu.max": "max 100000", "cpu.max": "300000 100000"}, "0::/a", 3.0),
        ({"a/b/cpu.max": "50000 100000", "a/cpu.max": "200000 100000"}, "0::/a/b", 0.5),
        ({"cpu.max": "max 100000"}, "0::/not/mounted", None),
        ({"cpu/cpu.cfs_quota_us": "250000", "cpu/cpu.cfs_period_us": "100000"}, "4:cpu,cpuacct:/docker/x", 2.5),
        ({"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, "4:cpu,cpuacct:/", None),
        ({"cpu.max": "not a number"}, "0::/", None),
        ({}, "7:memory:/", None),
    ],
)
def test_cpu_quota_of_a_container_is_read(files, group, cores, tmp_path):
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text + "\n")
    (tmp_path / "own").write_text(group + "\n")
    assert cores_of_quota(tmp_path, tmp_path / "own") == cores
