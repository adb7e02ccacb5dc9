import json
import os
import time

import pytest
import torch

from albert.inference import engine
from albert.inference.engine import choose_precision
from albert.runtime.devices import (
    autocast,
    default_precision,
    describe_machine,
    deterministic_kernels,
    finetuning_precision,
    pick_device,
    seed_torch,
)
from albert.runtime.errors import InvalidConfiguration, Unavailable

CPU = torch.device("cpu")


def test_auto_is_a_gpu_where_there_is_one(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert pick_device() == CPU
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert pick_device("auto", local_rank=1) == torch.device("cuda", 1)
    assert pick_device("cpu") == CPU


def test_a_device_that_is_not_there_is_refused(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(Unavailable, match="use --device cpu") as refusal:
        pick_device("cuda")
    assert refusal.value.exit_code == 69
    with pytest.raises(InvalidConfiguration, match="use auto, cpu or cuda"):
        pick_device("gpu")


def test_only_matrix_products_lose_precision():
    layer, norm = torch.nn.Linear(4, 4), torch.nn.LayerNorm(4)
    with autocast(CPU, "bf16"):
        product = layer(torch.ones(2, 4))
        loss = torch.nn.functional.cross_entropy(product.float(), torch.tensor([0, 1]))
    assert product.dtype == torch.bfloat16 and loss.dtype == torch.float32
    assert layer.weight.dtype == norm.weight.dtype == torch.float32
    with autocast(CPU, "fp32"):
        assert layer(torch.ones(2, 4)).dtype == torch.float32


@pytest.mark.parametrize(
    ("instruction", "onednn", "precision"),
    [("avx512_bf16", True, "bf16"), ("amx_bf16", True, "bf16"), ("bf16", True, "bf16"), ("avx512_f", True, "fp32"),
     ("avx512_bf16", False, "fp32")],
)  # fmt: skip
def test_bf16_is_taken_by_every_door_where_the_processor_multiplies_it(monkeypatch, instruction, onednn, precision):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {instruction: True, "architecture": "any"})
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: onednn)
    monkeypatch.setattr(time, "perf_counter", None)  # nothing is timed
    assert default_precision(CPU) == choose_precision("auto", CPU) == precision
    assert (instruction in describe_machine()["capabilities"].split()) is (instruction != "avx512_f")


@pytest.mark.parametrize(("supported", "precision"), [(True, "bf16"), (False, "fp32")])
def test_bf16_is_taken_where_the_gpu_multiplies_it(monkeypatch, supported, precision):
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: supported)
    assert default_precision(torch.device("cuda")) == finetuning_precision(torch.device("cuda")) == precision
    assert finetuning_precision(CPU) == "fp32"


@pytest.mark.parametrize(
    ("instructions", "slower"),
    [("avx512_bf16 avx512_vnni amx_bf16 amx_int8", True), ("avx512_bf16 avx512_vnni", False),
     ("avx512_vnni", False), ("bf16 avx_vnni", False)],
)  # fmt: skip
def test_int8_is_not_offered_as_faster_where_bf16_is(monkeypatch, caplog, instructions, slower):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: dict.fromkeys(instructions.split(), True))
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: True)
    engine._warn_slow_int8.cache_clear()
    assert choose_precision("bf16", CPU) == "bf16" and not caplog.messages
    for _ in range(2):
        assert choose_precision("int8", CPU) == "int8"
    assert [("int8 is slower than bf16" in said) for said in caplog.messages] == [True] * slower
    assert choose_precision("auto", CPU) == default_precision(CPU) != "int8"


def test_torch_draws_the_same_for_the_same_place_in_a_run():
    def drawn(*place):
        seed_torch(*place)
        return torch.rand(4).tolist()

    assert drawn("dropout", 0, 5, 1) == drawn("dropout", 0, 5, 1)
    others = (("dropout", 0, 5), ("dropout", 0, 6), ("dropout", 1, 5), ("init", 0, 5))
    assert len({tuple(drawn(*place)) for place in others}) == 4


def test_a_machine_is_described_in_words_that_a_report_can_keep():
    description = describe_machine()
    assert {"processor", "capabilities", "fp32_products", "cores", "threads", "torch", "python"} <= set(description)
    assert json.loads(json.dumps(description)) == description


def test_the_deterministic_flag_is_for_gpus_and_ends_with_the_run(monkeypatch):
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":16:8")  # the user's own stays
    with deterministic_kernels(torch.device("cuda"), True):
        assert torch.are_deterministic_algorithms_enabled()
    for device, wanted in (("cpu", True), ("cuda", False)):
        with deterministic_kernels(torch.device(device), wanted):
            assert not torch.are_deterministic_algorithms_enabled()
    assert os.environ["CUBLAS_WORKSPACE_CONFIG"] == ":16:8"
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG")
    with deterministic_kernels(torch.device("cuda"), True):
        assert os.environ["CUBLAS_WORKSPACE_CONFIG"] == ":4096:8"
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", "")
