"""The rate of matrix products is one that the device reaches, measured once."""

import pytest
import torch

from albert.runtime import devices as matmul_rate
from albert.runtime.devices import measured_matmul_rate

CPU = torch.device("cpu")


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_processor_reaches_a_plausible_rate(precision) -> None:
    assert 1e8 < measured_matmul_rate(CPU, precision) < 1e14


def test_it_is_measured_once_a_process(monkeypatch) -> None:
    first = measured_matmul_rate(CPU, "fp32")
    monkeypatch.setattr(matmul_rate, "_min_seconds", lambda *_: pytest.fail("measured again"))
    assert measured_matmul_rate(torch.device("cpu"), "fp32") == first


def test_the_fastest_product_counts_and_a_slow_one_is_the_last_of_its_shape(monkeypatch) -> None:
    products = []

    def seconds(rows: torch.Tensor, weight: torch.Tensor) -> float:
        products.append((*rows.shape, weight.shape[0]))
        return 1.0 if rows.shape[0] > 64 else 0.01

    monkeypatch.setattr(matmul_rate, "_min_seconds", seconds)
    measured = measured_matmul_rate.__wrapped__(CPU, "fp32")
    assert products == [(64, 768, 3072), (512, 768, 3072), (64, 1024, 4096), (512, 1024, 4096)]
    assert measured == pytest.approx(2 * 64 * 1024 * 4096 / 0.01)
