"""LAMB in chunks is LAMB: for every shape, any number of threads, at the ends of float32's range, and on other ways."""

import copy
import math
import os

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from albert.optim import lamb as chunked_updates
from albert.optim import lamb as slots
from albert.optim.lamb import FusedUpdates, Lamb
from albert.runtime.devices import parallel_map

CHUNK = 8


@pytest.fixture(scope="module", autouse=True)
def small_chunks():
    """Chunks of 8 numbers and batches of 24, so that small tensors have several."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chunked_updates, "CHUNK", CHUNK)
        patch.setattr(slots, "UPDATE_BUFFER", 3 * CHUNK)
        yield


@pytest.fixture(params=[1, 2, 3], ids="{} threads".format)
def threads(request):
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


OPTIONS = {"lr": 0.1, "weight_decay": 0.05}


def in_float64(weight, gradients, *, lr=0.1, weight_decay=0.05, eps=1e-6, adapt=True):
    """The weights after all steps, by the formula."""
    w, m, v = weight.double(), torch.zeros_like(weight).double(), torch.zeros_like(weight).double()
    for gradient in gradients:
        g = gradient.double()
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
        u = m / (v.sqrt() + eps) + weight_decay * w
        norms = w.norm().item(), u.norm().item()
        w = w - lr * (norms[0] / norms[1] if adapt and all(norms) else 1.0) * u
    return w


def after(weights, gradients, **options):
    """The weights that Lamb makes of some tensors, given their gradients of each step."""
    parameters = [nn.Parameter(weight.clone()) for weight in weights]
    optimizer = Lamb(parameters, **{**OPTIONS, **options})
    for of_step in gradients:
        for parameter, gradient in zip(parameters, of_step, strict=True):
            parameter.grad = gradient
        optimizer.step()
    return [parameter.detach() for parameter in parameters], optimizer


lengths = st.sampled_from([0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK, 3 * CHUNK - 1, 3 * CHUNK + 1, 50])
shapes = st.one_of(
    st.just(()),
    lengths.map(lambda n: (n,)),
    st.tuples(st.integers(0, 5), st.integers(0, 9)),
    st.tuples(st.integers(1, 3), st.integers(1, 4), st.integers(1, 5)),
)


@given(st.lists(shapes, min_size=1, max_size=6), st.integers(0, 2**32), st.booleans(), st.booleans())
def test_every_shape_moves_by_the_formula(many, seed, transposed, adapt):
    torch.manual_seed(seed)

    def random(shape):
        return torch.randn(shape[::-1]).permute([*reversed(range(len(shape)))]) if transposed else torch.randn(shape)

    weights = [torch.randn(shape) for shape in many]
    gradients = [[random(shape) for shape in many] for _ in range(3)]
    found, _ = after(weights, gradients, adapt=adapt)
    for number, weight in enumerate(found):
        expected = in_float64(weights[number], [of_step[number] for of_step in gradients], adapt=adapt)
        torch.testing.assert_close(weight.double(), expected, rtol=2e-6, atol=2e-6)


def test_a_weight_that_is_not_flat_moves_by_the_formula():
    weight, gradients = torch.randn(5, 7).T, [torch.randn(7, 5) for _ in range(3)]
    parameter = nn.Parameter(weight.clone())
    optimizer = Lamb([parameter], **OPTIONS)
    for gradient in gradients:
        parameter.grad = gradient
        optimizer.step()
    torch.testing.assert_close(parameter.detach().double(), in_float64(weight, gradients), rtol=2e-6, atol=2e-6)
    assert not parameter.is_contiguous()


@pytest.mark.parametrize("correct", [False, True])
@pytest.mark.parametrize("adapt", [False, True])
def test_the_way_of_a_gpu_is_the_same_update(monkeypatch, correct, adapt):
    weights = [torch.randn(shape) for shape in ((30, 3), (7,), (), (0, 4))]
    gradients = [[torch.randn_like(weight) for weight in weights] for _ in range(4)]
    options = {"bias_correction": correct, "adapt": adapt, "clamp": (0.0, 2.0)}
    chunked, optimizer = after(weights, gradients, **options)
    monkeypatch.setattr("albert.optim.lamb.ChunkedUpdates", FusedUpdates)
    plain, other = after(weights, gradients, **options)
    for one, same in zip(chunked, plain, strict=True):
        torch.testing.assert_close(one, same, rtol=1e-6, atol=1e-6)
    assert other.statistics() == pytest.approx(optimizer.statistics(), rel=1e-6)


@pytest.mark.parametrize("adapt", [False, True])
def test_a_step_that_the_device_skips_changes_nothing(adapt):
    """Whatever the gradient holds: nobody on the host has looked at it."""
    weights = [torch.randn(shape) for shape in ((30, 3), (7,), ())]
    parameters = [nn.Parameter(weight.clone()) for weight in weights]
    optimizer = Lamb(parameters, adapt=adapt, bias_correction=True, **OPTIONS)
    kept = []
    for skip in (0.0, 1.0, 0.0):
        optimizer.found_inf = torch.tensor(skip)
        for parameter in parameters:
            parameter.grad = torch.full_like(parameter, math.nan if skip else 1.0)
        optimizer.step()
        state = [value for each in optimizer.state.values() for value in each.values()]
        kept.append([tensor.detach().clone() for tensor in (*parameters, *state)])
    assert all(torch.equal(one, same) for one, same in zip(kept[0], kept[1], strict=True))
    assert not any(torch.equal(one, other) for one, other in zip(kept[0], kept[2], strict=True))
    assert all(tensor.isfinite().all() for tensor in kept[2])


def test_the_bits_are_those_of_one_thread_and_of_every_run(threads):
    weights = [torch.randn(shape) for shape in ((40, 9), (300,), (2, 3))]
    gradients = [[torch.randn_like(weight) for weight in weights] for _ in range(3)]
    found, _ = after(weights, gradients)
    again, _ = after(weights, gradients)
    torch.set_num_threads(1)
    alone, _ = after(weights, gradients)
    for one, two, three in zip(found, again, alone, strict=True):
        assert torch.equal(one, two) and torch.equal(one, three)


def test_work_is_shared_out_in_order_and_leaves_the_number_of_threads(threads):
    assert parallel_map(lambda item: item**2, range(100)) == [item**2 for item in range(100)]
    assert parallel_map(lambda item: item, []) == []
    assert set(parallel_map(lambda _: torch.get_num_threads(), range(20))) == {1}
    assert torch.get_num_threads() == threads


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork.*:DeprecationWarning")
def test_a_forked_process_has_threads_of_its_own():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    assert parallel_map(str, range(3)) == ["0", "1", "2"]
    child = os.fork()
    if not child:
        os._exit(parallel_map(str, range(3)) != ["0", "1", "2"])
    assert os.waitpid(child, 0)[1] == 0
    torch.set_num_threads(before)


@pytest.mark.parametrize("weight_scale", [0.0, 1e-38, 1.0, 1e38])
@pytest.mark.parametrize("gradient_scale", [0.0, 1e-38, 1e-15, 1.0, 1e15])
def test_float32_moves_by_the_formula_over_its_range(weight_scale, gradient_scale):
    """Squares of norms leave float32's range long before the numbers do."""
    weight = torch.randn(5, 7).clamp(-2, 2) * weight_scale
    gradients = [torch.randn(5, 7) * gradient_scale for _ in range(3)]
    (found,), _ = after([weight], [[gradient] for gradient in gradients])
    expected = in_float64(weight, gradients)
    assert torch.isfinite(found).all()
    torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-5 * max(expected.abs().max().item(), 1e-38))


def test_a_gradient_whose_square_is_beyond_float32_only_decays_the_weights():
    weight = torch.randn(5, 7)
    (found,), _ = after([weight], [[torch.full((5, 7), 1e38)]])
    torch.testing.assert_close(found, weight * 0.9)  # u = λ w, so lr · ratio · u = lr · w


def test_zero_weights_and_zero_gradients_stay():
    (found,), optimizer = after([torch.zeros(20)], [[torch.zeros(20)]] * 2)
    assert torch.equal(found, torch.zeros(20))
    assert optimizer.statistics() == {"trust_ratio_min": 1.0, "trust_ratio_median": 1.0, "trust_ratio_max": 1.0}


def test_half_precision_gradients_move_full_precision_weights_and_moments():
    weight, gradients = torch.randn(30), [torch.randn(30).bfloat16() for _ in range(3)]
    parameter = nn.Parameter(weight.clone())
    parameter.grad_dtype = None  # any
    optimizer = Lamb([parameter], **OPTIONS)
    for gradient in gradients:
        parameter.grad = gradient
        optimizer.step()
    assert {value.dtype for value in optimizer.state[parameter].values()} == {torch.float32}
    torch.testing.assert_close(parameter.detach().double(), in_float64(weight, gradients), rtol=2e-6, atol=2e-6)


def test_tensors_of_other_precision_have_their_own_batches():
    weights = [torch.randn(20), torch.randn(20).double(), torch.randn(20).bfloat16(), torch.randn(20)]
    found, _ = after(weights, [[torch.randn_like(weight) for weight in weights]])
    assert [weight.dtype for weight in found] == [weight.dtype for weight in weights]
    assert all(not torch.equal(new, old) for new, old in zip(found, weights, strict=True))


def test_gradients_are_only_read():
    gradient = torch.randn(30)
    kept = gradient.clone()
    after([torch.randn(30)], [[gradient]])
    assert torch.equal(gradient, kept)


def test_the_statistics_are_the_trust_ratios_of_the_last_step():
    weights = [torch.full((9,), size) for size in (3.0, 1.0, 2.0)]
    gradient = torch.ones(9)
    parameters = [nn.Parameter(weight) for weight in weights]
    bias = nn.Parameter(torch.ones(9))
    optimizer = Lamb([{"params": parameters}, {"params": [bias], "adapt": False}], weight_decay=0.0, eps=0.0)
    assert optimizer.statistics() == {}
    for parameter in (*parameters, bias):
        parameter.grad = gradient
    optimizer.step()
    update = 0.1 / math.sqrt(0.001)
    expected = {"trust_ratio_min": 1 / update, "trust_ratio_median": 2 / update, "trust_ratio_max": 3 / update}
    assert optimizer.statistics() == pytest.approx(expected)
    for parameter in parameters:
        parameter.grad = None
    optimizer.step()
    assert optimizer.statistics() == {}


def test_a_copy_of_the_optimizer_goes_on_alike():
    weights = [torch.randn(30)]
    gradients = [[torch.randn(30)] for _ in range(2)]
    (found,), optimizer = after(weights, gradients)
    twin = copy.deepcopy(optimizer)
    assert twin.statistics() == {}
    (parameter,) = twin.param_groups[0]["params"]
    for one, own in ((optimizer, optimizer.param_groups[0]["params"][0]), (twin, parameter)):
        own.grad = gradients[0][0]
        one.step()
    assert torch.equal(found, parameter.detach())


def test_a_batch_holds_no_more_than_its_room_or_one_tensor():
    parameters = [nn.Parameter(torch.zeros(size)) for size in (10, 10, 10, 40, 1, 0, 3)]
    made = [
        slots.Slot(parameter, *[parameter.detach()] * 4, step=torch.zeros(()))  # only sizes matter
        for parameter in parameters
    ]

    def sizes(some):
        return [[slot.weight.numel() for slot in batch] for batch in slots.batches(some)]

    assert sizes(made) == [[10, 10, 10], [40], [1, 0, 3]]
    assert sizes(made[:3]) == [[10, 10], [10]]
    assert sizes([]) == []
