"""Devices: choice, precision, linear maps, speed of products, free memory."""

import csv
import json
import os
import time

import pytest
import torch
from tests.refusals import refusal
from torch.nn import functional

from albert.inference import engine
from albert.inference.engine import choose_precision
from albert.runtime import devices
from albert.runtime.devices import (
    autocast,
    default_precision,
    describe_machine,
    deterministic_kernels,
    fastest_precision,
    free_memory,
    linear,
    measured_matmul_rate,
    onednn_is_faster,
    pick_device,
    precision_advice,
    product,
    seed_torch,
)
from albert.runtime.errors import InvalidConfiguration, Unavailable

CPU, CUDA = torch.device("cpu"), torch.device("cuda")


def test_auto_is_a_gpu_if_there_is_one(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert pick_device("auto", local_rank=1) == pick_device(torch.device("cuda", 1)) == torch.device("cuda", 1)
    with refusal(Unavailable, "cuda:2"):
        pick_device("cuda:2")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert pick_device() == pick_device("cpu") == CPU
    with refusal(Unavailable, "--device cpu"):
        pick_device("cuda")
    for unknown in ("gpu", "cuda:first", "auto:1"):
        with refusal(InvalidConfiguration, "cuda:0"):
            pick_device(unknown)


def test_autocast_changes_only_matrix_products():
    layer, norm = torch.nn.Linear(4, 4), torch.nn.LayerNorm(4)
    with autocast(CPU, "bf16"):
        logits = layer(torch.ones(2, 4))
        loss = functional.cross_entropy(logits.float(), torch.tensor([0, 1]))
    assert logits.dtype == torch.bfloat16 and loss.dtype == torch.float32
    assert layer.weight.dtype == norm.weight.dtype == torch.float32
    with autocast(CPU, "fp32"):
        assert layer(torch.ones(2, 4)).dtype == torch.float32


@pytest.mark.parametrize(
    ("instruction", "onednn", "precision"),
    [("avx512_bf16", True, "bf16"), ("amx_bf16", True, "bf16"), ("bf16", True, "bf16"), ("avx512_f", True, "fp32"),
     ("avx512_bf16", False, "fp32")],
)  # fmt: skip
def test_pretraining_takes_bf16_where_a_cpu_has_it_and_answers_never(monkeypatch, instruction, onednn, precision):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {instruction: True, "architecture": "any"})
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: onednn)
    monkeypatch.setattr(time, "perf_counter", None)  # nothing is timed
    assert fastest_precision(CPU) == precision
    assert default_precision(CPU) == choose_precision("auto", CPU) == "fp32"
    description = describe_machine()
    assert (instruction in description["capabilities"].split()) is (instruction != "avx512_f")
    assert json.loads(json.dumps(description)) == description


@pytest.mark.parametrize(("supported", "precision"), [(True, "bf16"), (False, "fp32")])
def test_default_precision_of_a_gpu_depends_on_its_hardware(monkeypatch, supported, precision):
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: supported)
    assert default_precision(CUDA) == fastest_precision(CUDA) == choose_precision("auto", CUDA) == precision


@pytest.mark.parametrize(("instruction", "file"), [("avx512_bf16", "inference"), ("amx_bf16", "inference-amx")])
def test_the_advice_on_precision_has_the_measured_figures(monkeypatch, checkout, instruction, file):
    milliseconds = {}
    with open(checkout / f"results/benchmark-{file}.csv", newline="") as rows:
        for row in csv.DictReader(rows):
            if row["system"].startswith("albert ") and not row.get("busy"):
                milliseconds[row["load"], row["system"].removeprefix("albert ")] = float(row["milliseconds"])
    loads = {load for load, _ in milliseconds}

    def gain(precision):
        gains = [milliseconds[load, "fp32"] / milliseconds[load, precision] for load in loads]
        return f"{min(gains):.1f} to {max(gains):.1f} times"

    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: True)
    present = {"avx512_bf16": True, "avx512_vnni": True, instruction: True}
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: present)
    bf16 = f"--precision bf16 ({gain('bf16')} as fast for ALBERT-base with {instruction})"
    assert precision_advice(CPU) == f"{bf16} or int8 ({gain('int8')}); answers change a little"
    assert precision_advice(CUDA) is None


@pytest.mark.parametrize(
    ("instructions", "choice"),
    [(("bf16",), "--precision bf16,"), (("avx512_vnni",), "--precision int8,"), (("avx2",), None)],
)
def test_the_advice_names_no_figure_that_was_not_measured(monkeypatch, instructions, choice):
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: True)
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: dict.fromkeys(instructions, True))
    advice = precision_advice(CPU)
    assert (advice is None) is (choice is None)
    assert advice is None or (advice.startswith(choice) and "times" not in advice)


@pytest.mark.parametrize(
    ("instructions", "slower"),
    [("avx512_bf16 avx512_vnni amx_bf16 amx_int8", True), ("avx512_bf16 avx512_vnni", False),
     ("avx512_vnni", False), ("bf16 avx_vnni", False)],
)  # fmt: skip
def test_int8_warns_once_where_bf16_is_faster(monkeypatch, caplog, instructions, slower):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: dict.fromkeys(instructions.split(), True))
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: True)
    engine._warn_slow_int8.cache_clear()
    assert choose_precision("bf16", CPU) == "bf16" and not caplog.messages
    for _ in range(2):
        assert choose_precision("int8", CPU) == "int8"
    assert [("int8 is slower than bf16" in message) for message in caplog.messages] == [True] * slower


def test_torch_seeds_are_a_function_of_name_seed_and_position():
    def draws(*args):
        seed_torch(*args)
        return torch.rand(4).tolist()

    assert draws("dropout", 0, 5, 1) == draws("dropout", 0, 5, 1)
    others = (("dropout", 0, 5), ("dropout", 0, 6), ("dropout", 1, 5), ("init", 0, 5))
    assert len({tuple(draws(*args)) for args in others}) == 4


def test_deterministic_kernels_are_for_gpus_and_end_with_the_block(monkeypatch):
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":16:8")  # the user's setting is kept
    with deterministic_kernels(CUDA, True):
        assert torch.are_deterministic_algorithms_enabled()
    for device, enabled in ((CPU, True), (CUDA, False)):
        with deterministic_kernels(device, enabled):
            assert not torch.are_deterministic_algorithms_enabled()
    assert os.environ["CUBLAS_WORKSPACE_CONFIG"] == ":16:8"
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG")
    with deterministic_kernels(CUDA, True):
        assert os.environ["CUBLAS_WORKSPACE_CONFIG"] == ":4096:8"
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", "")


# ---- linear maps ---------------------------------------------------------------------------------------------------

needs_onednn = pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="this build of torch has no oneDNN")


@pytest.fixture
def onednn(monkeypatch):
    """Use oneDNN, as on a processor where it is faster."""
    monkeypatch.setattr(devices, "onednn_is_faster", lambda: True)


def operands(rows: int, dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    torch.manual_seed(rows)
    return [torch.randn(*shape, dtype=dtype, requires_grad=True) for shape in ((rows, 24), (40, 24), (40,))]


@needs_onednn
@pytest.mark.parametrize("rows", [0, 1, 7, 64, 333])
def test_onednn_gives_torchs_values_and_gradients(onednn, rows):
    ours, theirs = operands(rows), operands(rows)
    result, expected = linear(*ours), functional.linear(*theirs)
    assert (type(result.grad_fn).__name__ == "_OneDnnLinearBackward") is (rows > 0)
    torch.testing.assert_close(result, expected, atol=1e-5, rtol=1e-5)
    weights = torch.randn_like(expected)
    (result * weights).sum().backward()
    (expected * weights).sum().backward()
    for our, their in zip(ours, theirs, strict=True):
        torch.testing.assert_close(our.grad, their.grad, atol=1e-4, rtol=1e-5)


@needs_onednn
def test_operands_may_be_transposed_views_and_need_no_gradient(onednn):
    left, right = torch.randn(30, 50), torch.randn(50, 20)
    torch.testing.assert_close(product(left, right.t()), left @ right, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(product(right.t(), left), right.t() @ left.t(), atol=1e-5, rtol=1e-5)
    rows, weight, bias = operands(5)
    linear(rows.detach(), weight, bias.detach()).sum().backward()
    assert weight.grad is not None and rows.grad is None and bias.grad is None


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_other_dtypes_and_autocast_do_not_use_onednn(onednn, dtype):
    assert torch.equal(linear(*operands(9, dtype)), functional.linear(*operands(9, dtype)))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert linear(*operands(9)).dtype is torch.bfloat16


@pytest.mark.parametrize(
    ("capability", "mkl", "uses", "library"),
    [("AVX512", True, False, "oneDNN"), ("AVX512", True, True, "MKL"), ("AVX2", True, False, "MKL"),
     ("AVX512", False, True, "BLAS")],
)  # fmt: skip
def test_library_depends_on_processor_and_mkl(monkeypatch, capability, mkl, uses, library):
    monkeypatch.setattr(devices, "mkl_uses_every_kernel", lambda: uses)
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: capability)
    monkeypatch.setattr(torch.backends.mkl, "is_available", lambda: mkl)
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: True)
    monkeypatch.setattr(devices, "onednn_is_faster", onednn_is_faster.__wrapped__)
    assert devices.fp32_library() == library


@pytest.mark.parametrize("answer", [0, 1])
def test_mkl_reports_whether_it_uses_its_fastest_kernels(monkeypatch, answer):
    class Library:
        mkl_serv_intel_cpu_true = staticmethod(lambda: answer)

    monkeypatch.setattr(devices.ctypes, "CDLL", lambda name: Library())
    assert devices.mkl_uses_every_kernel.__wrapped__() is bool(answer)
    monkeypatch.setattr(devices.ctypes, "CDLL", lambda name: object())
    assert devices.mkl_uses_every_kernel.__wrapped__() is True


# ---- speed and memory ----------------------------------------------------------------------------------------------


def test_matmul_rate_is_that_of_the_fastest_product_and_a_slow_one_ends_its_shape(monkeypatch):
    products = []

    def min_seconds(rows: torch.Tensor, weight: torch.Tensor) -> float:
        products.append((*rows.shape, weight.shape[0]))
        return 1.0 if rows.shape[0] > 64 else 0.01

    monkeypatch.setattr(devices, "_min_seconds", min_seconds)
    rate = measured_matmul_rate.__wrapped__(CPU, "fp32")
    assert products == [(64, 768, 3072), (512, 768, 3072), (64, 1024, 4096), (512, 1024, 4096)]
    assert rate == pytest.approx(2 * 64 * 1024 * 4096 / 0.01)
    monkeypatch.undo()
    rows = torch.ones(8, 16)
    assert 0 < devices._min_seconds(rows, torch.ones(4, 16)) < 1


GROUP = "sys/fs/cgroup/slurm"


@pytest.mark.parametrize(
    ("outer", "inner", "free"),
    [("max", "max", 4_096_000), ("max", "1500", 1500 - 1000 + 300), ("900", "1500", 900 - 600), ("10", "1500", 0)],
)
def test_free_memory_is_limited_by_all_control_groups(outer, inner, free, tmp_path, monkeypatch):
    free_here = free_memory(CPU)
    assert free_here is None or 10_000_000 < free_here < 10**15
    monkeypatch.setattr(devices, "ROOT", tmp_path)
    assert free_memory(CPU) is None
    for name, content in {
        "proc/meminfo": "MemTotal: 9000 kB\nMemAvailable: 4000 kB\n",
        "proc/self/cgroup": "4:memory:/old\n0::/slurm/job\n",
        f"{GROUP}/memory.max": f"{outer}\n",
        f"{GROUP}/memory.current": "600\n",
        f"{GROUP}/job/memory.max": f"{inner}\n",
        f"{GROUP}/job/memory.current": "1000\n",
        f"{GROUP}/job/memory.stat": "anon 700\ninactive_file 300\n",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(content)
    assert free_memory(CPU) == free
