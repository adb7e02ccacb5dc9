"""LAMB equals its equations for every shape, precision and number of threads, on a CPU and as on a GPU."""

import copy
import math
import os

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from albert.optim import lamb
from albert.optim.lamb import FusedUpdates, Lamb, trust_ratios
from albert.runtime.devices import parallel_map

CHUNK = 8
OPTIONS = {"lr": 0.1, "weight_decay": 0.05}


@pytest.fixture(scope="module", autouse=True)
def small_chunks():
    """Chunks of 8 numbers and batches of 24, so that small tensors have several."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lamb, "CHUNK", CHUNK)
        patch.setattr(lamb, "UPDATE_BUFFER", 3 * CHUNK)
        yield


@pytest.fixture(params=[1, 2, 3], ids="{} threads".format)
def threads(request, workers):
    workers(request.param)
    return request.param


def reference_steps(
    weight, gradients, *, lr, weight_decay, betas=(0.9, 0.999), eps=1e-6, bias_correction=False, clamp=None, adapt=True
):
    """The weights after each step in float64 (You et al. 2019, algorithm 2; bias correction is optional)."""
    w = np.asarray(weight, np.float64)
    m, v = np.zeros_like(w), np.zeros_like(w)
    for t, gradient in enumerate(gradients, start=1):
        g = np.asarray(gradient, np.float64)
        m = betas[0] * m + (1.0 - betas[0]) * g
        v = betas[1] * v + (1.0 - betas[1]) * g * g
        m_hat, v_hat = (m / (1.0 - betas[0] ** t), v / (1.0 - betas[1] ** t)) if bias_correction else (m, v)
        u = m_hat / (np.sqrt(v_hat) + eps) + weight_decay * w
        norm_w, norm_u, ratio = np.sqrt(np.sum(w**2)), np.sqrt(np.sum(u**2)), 1.0
        if adapt and norm_w > 0.0 and norm_u > 0.0:
            ratio = (norm_w if clamp is None else min(max(norm_w, clamp[0]), clamp[1])) / norm_u
        w = w - lr * ratio * u
        yield w


def lamb_steps(weights, gradients, **options):
    """The parameters after `Lamb` took a step for each list of gradients, and the optimizer."""
    parameters = [nn.Parameter(weight.clone()) for weight in weights]
    for parameter in parameters:
        parameter.grad_dtype = None  # any
    optimizer = Lamb(parameters, **{**OPTIONS, **options})
    for step_gradients in gradients:
        for parameter, gradient in zip(parameters, step_gradients, strict=True):
            parameter.grad = gradient
        optimizer.step()
    return [parameter.detach() for parameter in parameters], optimizer


def assert_equals_reference(result, weight, gradients, **options):
    *_, expected = reference_steps(weight, [gradient.double() for gradient in gradients], **{**OPTIONS, **options})
    torch.testing.assert_close(result.double(), torch.as_tensor(expected), rtol=2e-6, atol=2e-6)


# ---- the equations in float64 ----------------------------------------------------------------------------------------


def assert_follows_the_equations(options, weight, gradients):
    """Compare the weights after every step."""
    parameter = nn.Parameter(torch.tensor(weight, dtype=torch.float64))
    optimizer = Lamb([parameter], **options)
    largest = max(np.abs(weight).max(), np.finfo(np.float64).tiny)
    for gradient, expected in zip(gradients, reference_steps(weight, gradients, **options), strict=True):
        parameter.grad = torch.tensor(gradient, dtype=torch.float64)
        optimizer.step()
        largest = max(largest, np.abs(expected).max())  # over all steps, which may cancel each other
        error = np.abs(parameter.detach().numpy() - expected).max()
        assert error <= 1e-12 * largest and math.isfinite(error), options


def test_lamb_follows_its_equations_in_random_cases():
    for case in range(100):
        rng = np.random.default_rng(case)
        shape = tuple(rng.integers(1, 6, rng.integers(1, 4)))
        options = {
            "lr": float(10 ** rng.uniform(-5, 0)),
            "betas": (float(rng.choice([0.0, 0.5, 0.9, 0.95])), float(rng.choice([0.0, 0.9, 0.98, 0.999]))),
            "eps": float(rng.choice([1e-12, 1e-8, 1e-6, 1e-3])),
            "weight_decay": float(rng.choice([0.0, 0.01, 0.5])),
            "bias_correction": bool(rng.random() < 0.5),
            "clamp": (0.1, 10.0) if rng.random() < 0.3 else None,
            "adapt": bool(rng.random() < 0.8),
        }
        weight = rng.normal(size=shape) * 10 ** rng.uniform(-3, 3)
        gradients = rng.normal(size=(5, *shape)) * 10 ** rng.uniform(-6, 6)
        gradients[rng.random(5) < 0.2] = 0.0
        assert_follows_the_equations(options, weight, gradients)


def test_the_trust_ratio_is_one_where_a_norm_is_zero():
    squares = torch.tensor([[0.0, 25.0], [25.0, 0.0], [0.0, 0.0], [25.0, 100.0]], dtype=torch.float64)
    assert trust_ratios(squares).tolist() == [1.0, 1.0, 1.0, 0.5]
    assert trust_ratios(squares, (1.0, 2.0)).tolist() == [1.0, 1.0, 1.0, 0.2]
    (zeros,), optimizer = lamb_steps([torch.zeros(20)], [[torch.zeros(20)]] * 2)
    assert torch.equal(zeros, torch.zeros(20))
    assert set(optimizer.statistics().values()) == {1.0}


# ---- shapes, precisions and the range of float32 ---------------------------------------------------------------------

lengths = st.sampled_from([0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK, 3 * CHUNK - 1, 3 * CHUNK + 1, 50])
shapes = st.one_of(
    st.just(()),
    lengths.map(lambda n: (n,)),
    st.tuples(st.integers(0, 5), st.integers(0, 9)),
    st.tuples(st.integers(1, 3), st.integers(1, 4), st.integers(1, 5)),
)


@given(st.lists(shapes, min_size=1, max_size=6), st.integers(0, 2**32), st.booleans(), st.booleans())
def test_tensors_of_every_shape_follow_the_equations(shapes, seed, transposed, adapt):
    torch.manual_seed(seed)

    def random(shape):
        return torch.randn(shape[::-1]).permute([*reversed(range(len(shape)))]) if transposed else torch.randn(shape)

    weights = [torch.randn(shape) for shape in shapes]
    gradients = [[random(shape) for shape in shapes] for _ in range(3)]
    results, _ = lamb_steps(weights, gradients, adapt=adapt)
    for result, weight, own_gradients in zip(results, weights, zip(*gradients, strict=True), strict=True):
        assert_equals_reference(result, weight, own_gradients, adapt=adapt)


def test_a_weight_that_is_not_contiguous_follows_the_equations():
    weight, gradients = torch.randn(5, 7).T, [torch.randn(7, 5) for _ in range(3)]
    (result,), _ = lamb_steps([weight], [[gradient] for gradient in gradients])
    assert_equals_reference(result, weight, gradients)
    assert not result.is_contiguous()


@pytest.mark.parametrize("weight_scale", [0.0, 1e-38, 1.0, 1e38])
@pytest.mark.parametrize("gradient_scale", [0.0, 1e-38, 1e-15, 1.0, 1e15])
def test_float32_follows_the_equations_over_its_range(weight_scale, gradient_scale):
    """Squares of norms exceed the range of float32 long before the numbers do."""
    weight = torch.randn(5, 7).clamp(-2, 2) * weight_scale
    gradients = [torch.randn(5, 7) * gradient_scale for _ in range(3)]
    (result,), _ = lamb_steps([weight], [[gradient] for gradient in gradients])
    *_, expected = reference_steps(weight, gradients, **OPTIONS)
    assert torch.isfinite(result).all()
    tolerance = 1e-5 * max(np.abs(expected).max(), 1e-38)
    torch.testing.assert_close(result.double(), torch.from_numpy(expected), rtol=1e-5, atol=tolerance)


def test_bfloat16_gradients_update_float32_weights_and_moments():
    weight, gradients = torch.randn(30), [torch.randn(30).bfloat16() for _ in range(3)]
    (result,), optimizer = lamb_steps([weight], [[gradient] for gradient in gradients])
    assert {value.dtype for state in optimizer.state.values() for value in state.values()} == {torch.float32}
    assert_equals_reference(result, weight, gradients)


def test_tensors_of_several_dtypes_are_updated_and_gradients_only_read():
    weights = [torch.randn(20), torch.randn(20).double(), torch.randn(20).bfloat16(), torch.randn(20)]
    gradients = [torch.randn_like(weight) for weight in weights]
    before = [gradient.clone() for gradient in gradients]
    results, _ = lamb_steps(weights, [gradients])
    assert [weight.dtype for weight in results] == [weight.dtype for weight in weights]
    assert not any(map(torch.equal, results, weights))
    assert all(map(torch.equal, gradients, before))


# ---- GPUs and threads ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("correct", [False, True])
@pytest.mark.parametrize("adapt", [False, True])
def test_fused_and_chunked_updates_are_the_same(monkeypatch, correct, adapt):
    weights = [torch.randn(shape) for shape in ((30, 3), (7,), (), (0, 4))]
    gradients = [[torch.randn_like(weight) for weight in weights] for _ in range(4)]
    options = {"bias_correction": correct, "adapt": adapt, "clamp": (0.0, 2.0)}
    chunked, optimizer = lamb_steps(weights, gradients, **options)
    monkeypatch.setattr(lamb, "ChunkedUpdates", FusedUpdates)
    fused, fused_optimizer = lamb_steps(weights, gradients, **options)
    for weight, expected in zip(fused, chunked, strict=True):
        torch.testing.assert_close(weight, expected, rtol=1e-6, atol=1e-6)
    assert fused_optimizer.statistics() == pytest.approx(optimizer.statistics(), rel=1e-6)


@pytest.mark.parametrize("adapt", [False, True])
def test_a_step_skipped_by_the_device_changes_nothing(adapt):
    """The host does not know that the gradient is not finite."""
    parameters = [nn.Parameter(torch.randn(shape)) for shape in ((30, 3), (7,), ())]
    optimizer = Lamb(parameters, adapt=adapt, bias_correction=True, **OPTIONS)
    snapshots = []
    for skip in (0.0, 1.0, 0.0):
        optimizer.found_inf = torch.tensor(skip)
        for parameter in parameters:
            parameter.grad = torch.full_like(parameter, math.nan if skip else 1.0)
        optimizer.step()
        values = [value for state in optimizer.state.values() for value in state.values()]
        snapshots.append([tensor.detach().clone() for tensor in (*parameters, *values)])
    first, skipped, last = snapshots
    assert all(map(torch.equal, first, skipped))
    assert not any(map(torch.equal, first, last))
    assert all(tensor.isfinite().all() for tensor in last)


def test_results_are_bit_identical_for_any_number_of_threads(threads, workers):
    weights = [torch.randn(shape) for shape in ((40, 9), (300,), (2, 3))]
    gradients = [[torch.randn_like(weight) for weight in weights] for _ in range(3)]
    results, repeated = (lamb_steps(weights, gradients)[0] for _ in range(2))
    workers(1)
    single, _ = lamb_steps(weights, gradients)
    assert all(map(torch.equal, results, repeated)) and all(map(torch.equal, results, single))


def test_parallel_map_keeps_the_order_and_the_number_of_threads(threads):
    assert parallel_map(lambda item: item**2, range(100)) == [item**2 for item in range(100)]
    assert parallel_map(lambda item: item, []) == []
    assert set(parallel_map(lambda _: torch.get_num_threads(), range(20))) == {1}
    assert torch.get_num_threads() == threads


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork.*:DeprecationWarning")
def test_parallel_map_works_in_a_forked_process(workers):
    workers(2)
    assert parallel_map(str, range(3)) == ["0", "1", "2"]
    child = os.fork()
    if not child:
        os._exit(parallel_map(str, range(3)) != ["0", "1", "2"])
    assert os.waitpid(child, 0)[1] == 0


# ---- the optimizer's interface ---------------------------------------------------------------------------------------


def test_a_loaded_or_copied_optimizer_continues_bit_identically():
    gradients = [[torch.randn(4, 3)] for _ in range(10)]
    (expected,), _ = lamb_steps([torch.ones(4, 3)], gradients, bias_correction=True)
    (half,), optimizer = lamb_steps([torch.ones(4, 3)], gradients[:5], bias_correction=True)
    loaded = Lamb([nn.Parameter(half.clone())], bias_correction=True, **OPTIONS)
    loaded.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    for continued in (loaded, copy.deepcopy(optimizer)):
        (parameter,) = continued.param_groups[0]["params"]
        for (gradient,) in gradients[5:]:
            parameter.grad = gradient
            continued.step()
        assert torch.equal(parameter, expected)


def test_statistics_are_the_trust_ratios_of_the_last_step():
    parameters = [nn.Parameter(torch.full((9,), size)) for size in (3.0, 1.0, 2.0)]
    bias = nn.Parameter(torch.ones(9))
    optimizer = Lamb([{"params": parameters}, {"params": [bias], "adapt": False}], weight_decay=0.0, eps=0.0)
    assert optimizer.statistics() == {}
    for parameter in (*parameters, bias):
        parameter.grad = torch.ones(9)
    optimizer.add_param_group({"params": [without_gradient := nn.Parameter(torch.ones(9))]})
    optimizer.step()
    assert (without_gradient == 1).all() and without_gradient not in optimizer.state
    update = 0.1 / math.sqrt(0.001)
    expected = {"trust_ratio_min": 1 / update, "trust_ratio_median": 2 / update, "trust_ratio_max": 3 / update}
    assert optimizer.statistics() == pytest.approx(expected)
    for parameter in parameters:
        parameter.grad = None
    optimizer.step()
    assert optimizer.statistics() == {}
