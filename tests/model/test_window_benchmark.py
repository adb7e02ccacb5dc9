"""The benchmark of long sequences: every system takes its steps, and the window is what transformers takes it for."""

import pytest
import torch

pytest.importorskip("transformers")


@pytest.fixture(scope="module")
def benchmark(script):
    """benchmarks/window_attention.py as a module."""
    return script("window_attention")


@pytest.mark.parametrize(("name", "window"), [("albert", None), ("albert", 8), ("longformer", 8)])
def test_every_system_takes_a_step(benchmark, name, window):
    case = benchmark.Case(benchmark.System(name, window), 64, 64, 1, "bf16", "cpu")
    benchmark.step(case)()
    row = benchmark._row(case, "wall", [1.0, 2.0, 3.0], [2.0, 2.0, 2.0], 10**6)
    assert dict(zip(benchmark.COLUMNS, row, strict=True))["times_dense"] == "1.000"


def test_a_window_is_as_wide_in_longformer(benchmark):
    window, place, length = 8, 30, 64
    model = benchmark._longformer(benchmark.Case(benchmark.System("longformer", window), length, 64, 1, "fp32", "cpu"))
    ids = torch.arange(length)[None] % 50 + 5
    other = ids.clone()
    other[0, place] += 1
    is_global = (torch.arange(length) == 0)[None].long()
    with torch.inference_mode():
        one, changed = (
            model.eval()(input_ids=each, global_attention_mask=is_global).last_hidden_state for each in (ids, other)
        )
    found = ((one - changed).abs() > 1e-7).any(dim=2).nonzero()[:, 1].tolist()
    assert found == [0, *range(place - window, place + window + 1)]
