"""Workers of one thread, and what is settled before torch is loaded: promises about busy cores and containers."""

import ast
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.tiny import tiny_config

import albert
from albert.inference.engine import BETWEEN_BATCHES, PackedModel
from albert.model.albert import AlbertForMaskedLM, AlbertForSequenceClassification
from albert.runtime.devices import parallel_map
from albert.runtime.threads import SPINS, configure_threads, cores_of_quota

SMALL = tiny_config(50, intermediate_size=32)


@pytest.fixture
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def sequences(count: int) -> tuple[list[np.ndarray], list[np.ndarray]]:
    random = np.random.default_rng(0)
    ids = [random.integers(5, 50, int(length)) for length in random.integers(2, 60, count)]
    return ids, [np.zeros_like(one) for one in ids]


def test_workers_give_every_sequence_what_it_gets_alone(two_threads):
    model = PackedModel(AlbertForSequenceClassification(SMALL, 3), torch.device("cpu"))
    ids, types = sequences(70)
    together = model.rows(ids, types)
    for row, one, kind in zip(together, ids, types, strict=True):
        np.testing.assert_allclose(row, model.rows([one], [kind])[0], rtol=0, atol=1e-5)


def test_workers_give_masked_tokens_of_every_sequence(two_threads):
    model = PackedModel(AlbertForMaskedLM(SMALL), torch.device("cpu"))
    ids, types = sequences(40)
    places = [np.arange(len(one)) for one in ids]
    found = {number: logits for number, logits, _ in model.at(ids, types, places)}
    assert sorted(found) == list(range(40))
    for number in (0, 7, 39):
        ((_, alone, _),) = model.at([ids[number]], [types[number]], [places[number]])
        torch.testing.assert_close(found[number], alone, rtol=0, atol=1e-5)


def test_a_server_is_asked_between_the_batches_of_its_workers_and_can_stop_them(two_threads):
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


def test_a_worker_that_fails_ends_the_work_with_its_error_and_begins_nothing_more(two_threads):
    begun = []

    def fail(item: int) -> None:
        begun.append(item)
        raise MemoryError

    with pytest.raises(MemoryError):
        parallel_map(fail, range(100))
    assert len(begun) <= 2
    assert parallel_map(str, [1, 2]) == ["1", "2"]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, {"GOMP_SPINCOUNT": SPINS}),
        ({"GOMP_SPINCOUNT": "5"}, {"GOMP_SPINCOUNT": "5"}),
        ({"OMP_WAIT_POLICY": "PASSIVE"}, {"OMP_WAIT_POLICY": "PASSIVE"}),
    ],
)
def test_waiting_threads_sleep_soon_unless_the_user_says_otherwise(given, expected, tmp_path, monkeypatch):
    monkeypatch.delitem(sys.modules, "torch")
    configure_threads(given, tmp_path)
    assert given == expected


def test_both_doors_settle_it_before_torch_is_loaded():
    code = "import albert, os, sys; assert 'torch' not in sys.modules; print(os.environ['GOMP_SPINCOUNT'])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env={}, check=True)
    assert done.stdout.split() == [SPINS]
    assert albert.__version__


@pytest.mark.parametrize(
    ("name", "first"),
    [("harness", "albert"), *((name, "harness") for name in (
        "inference", "workers", "finetuning_speed", "pretraining_step", "server_load", "latency", "lamb_step"))],
)  # fmt: skip
def test_benchmarks_of_speed_wait_as_users_threads_do(name, first):
    """The harness imports the package, and every benchmark the harness, before anything but the standard library."""
    tree = ast.parse((Path(__file__).parents[2] / "benchmarks" / f"{name}.py").read_text())
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
        ({"cpu.max": "max 100000"}, "0::/elsewhere/of/the/host", None),
        ({"cpu/cpu.cfs_quota_us": "250000", "cpu/cpu.cfs_period_us": "100000"}, "4:cpu,cpuacct:/docker/x", 2.5),
        ({"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, "4:cpu,cpuacct:/", None),
        ({"cpu.max": "what is this"}, "0::/", None),
        ({}, "7:memory:/", None),
    ],
)
def test_the_quota_of_a_container_is_read(files, group, cores, tmp_path):
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text + "\n")
    (tmp_path / "own").write_text(group + "\n")
    assert cores_of_quota(tmp_path, tmp_path / "own") == cores
