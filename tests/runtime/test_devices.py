import json

import pytest
import torch

from albert.runtime import devices
from albert.runtime.devices import autocast, describe_machine, pick_device, seed_torch
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


@pytest.mark.parametrize(("seconds", "precision"), [(0.5, "bf16"), (0.79, "bf16"), (0.81, "fp32"), (3.0, "fp32")])
def test_bf16_is_taken_where_it_is_faster_by_a_clear_margin(monkeypatch, seconds, precision):
    monkeypatch.setattr(
        devices, "_seconds_of_product", lambda left, right: seconds if left.dtype == torch.bfloat16 else 1.0
    )
    assert devices.fastest_precision(CPU) == precision


def test_the_precision_is_measured_in_no_time():
    assert devices.fastest_precision(CPU) in ("fp32", "bf16")


def test_torch_draws_the_same_for_the_same_place_in_a_run():
    def drawn(*place):
        seed_torch(*place)
        return torch.rand(4).tolist()

    assert drawn("dropout", 0, 5, 1) == drawn("dropout", 0, 5, 1)
    assert len({tuple(drawn(*place)) for place in (("dropout", 0, 5), ("dropout", 1, 5), ("init", 0, 5))}) == 3


def test_a_machine_is_described_in_words_that_a_report_can_keep():
    description = describe_machine()
    assert {"processor", "cores", "threads", "torch", "python"} <= set(description)
    assert json.loads(json.dumps(description)) == description
