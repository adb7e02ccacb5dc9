import torch
from hypothesis import given
from hypothesis import strategies as st

from albert.inference.engine import quantize_matrix


def matrix(rows: int, columns: int, spread: float, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(rows, columns, generator=generator) * spread


@given(
    rows=st.integers(1, 9),
    columns=st.integers(1, 33),
    spread=st.sampled_from([1e-20, 0.02, 1.0, 1e20]),
    seed=st.integers(0, 999),
)
def test_a_restored_matrix_quantises_to_the_same_values_and_scales(
    rows: int, columns: int, spread: float, seed: int
) -> None:
    values, scales = quantize_matrix(matrix(rows, columns, spread, seed))
    again, scales_again = quantize_matrix(values * scales[:, None])
    assert torch.equal(again, values)
    assert torch.equal(scales_again, scales)


def test_each_row_uses_the_whole_range_and_errs_by_half_a_step() -> None:
    weight = matrix(64, 128, 0.05, 0) * torch.logspace(-3, 3, 64)[:, None]
    values, scales = quantize_matrix(weight)
    assert values.abs().amax(dim=1).tolist() == [127] * 64
    assert ((values * scales[:, None] - weight).abs() <= scales[:, None] * 0.501).all()


def test_a_row_of_zeros_stays_zero() -> None:
    values, scales = quantize_matrix(torch.tensor([[0.0, 0.0], [1.0, -2.0]]))
    assert values[0].tolist() == [0, 0]
    assert scales[0] == 1
