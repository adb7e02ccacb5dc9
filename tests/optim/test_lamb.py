"""LAMB against its equations, transcribed independently in numpy; which tensors decay and adapt."""

import copy
import itertools

import numpy as np
import pytest
import torch
from tests.tiny import tiny_config
from torch import nn

from albert.model.albert import AlbertForPreTraining
from albert.optim.lamb import Lamb, trust_ratios
from albert.optim.optimizer import OptimizerRecipe, build_optimizer, parameter_groups
from albert.runtime.errors import InvalidConfiguration


class LambInNumpy:
    """You et al. (2019), algorithm 2, with the reference's leaving out of the bias correction as an option."""

    def __init__(self, w, *, lr, betas, eps, decay, correct=False, clamp=None, adapt=True):
        self.w = w.astype(np.float64)
        self.m, self.v, self.t = np.zeros_like(self.w), np.zeros_like(self.w), 0
        self.lr, self.betas, self.eps, self.decay = lr, betas, eps, decay
        self.correct, self.clamp, self.adapt = correct, clamp, adapt

    def step(self, g):
        first, second = self.betas
        self.t += 1
        self.m = first * self.m + (1.0 - first) * g
        self.v = second * self.v + (1.0 - second) * g * g
        m, v = self.m, self.v
        if self.correct:
            m, v = m / (1.0 - first**self.t), v / (1.0 - second**self.t)
        r = m / (np.sqrt(v) + self.eps) + self.decay * self.w
        ratio = 1.0
        if self.adapt:
            norm_w, norm_r = np.sqrt(np.sum(self.w**2)), np.sqrt(np.sum(r**2))
            if norm_w > 0.0 and norm_r > 0.0:
                phi = norm_w if self.clamp is None else min(max(norm_w, self.clamp[0]), self.clamp[1])
                ratio = phi / norm_r
        self.w = self.w - self.lr * ratio * r


def assert_follows(options, weight, gradients):
    """Take the same steps with both and compare every weight after every step."""
    expected = LambInNumpy(weight, **options)
    parameter = nn.Parameter(torch.tensor(weight, dtype=torch.float64))
    optimizer = Lamb(
        [parameter],
        lr=options["lr"],
        betas=options["betas"],
        eps=options["eps"],
        weight_decay=options["decay"],
        bias_correction=options.get("correct", False),
        clamp=options.get("clamp"),
        adapt=options.get("adapt", True),
    )
    largest = max(np.abs(weight).max(), np.finfo(np.float64).tiny)
    for gradient in gradients:
        parameter.grad = torch.tensor(gradient, dtype=torch.float64)
        optimizer.step()
        expected.step(gradient)
        found = parameter.detach().numpy()
        largest = max(largest, np.abs(expected.w).max())  # of the whole way: steps may cancel each other
        assert np.isfinite(found).all()
        assert np.abs(found - expected.w).max() <= 1e-12 * largest, options


USUAL = {"lr": 1e-2, "betas": (0.9, 0.999), "eps": 1e-6, "decay": 0.01}


def test_lamb_follows_its_equations_in_random_cases():
    for case in range(100):
        draws = np.random.default_rng(case)
        shape = tuple(draws.integers(1, 6, draws.integers(1, 4)))
        options = {
            "lr": float(10 ** draws.uniform(-5, 0)),
            "betas": (float(draws.choice([0.0, 0.5, 0.9, 0.95])), float(draws.choice([0.0, 0.9, 0.98, 0.999]))),
            "eps": float(draws.choice([1e-12, 1e-8, 1e-6, 1e-3])),
            "decay": float(draws.choice([0.0, 0.01, 0.5])),
            "correct": bool(draws.random() < 0.5),
            "clamp": (0.1, 10.0) if draws.random() < 0.3 else None,
            "adapt": bool(draws.random() < 0.8),
        }
        weight = draws.normal(size=shape) * 10 ** draws.uniform(-3, 3)
        gradients = draws.normal(size=(5, *shape)) * 10 ** draws.uniform(-6, 6)
        gradients[draws.random(5) < 0.2] = 0.0
        assert_follows(options, weight, gradients)


@pytest.mark.parametrize("weight_scale", [0.0, 1e-38, 1.0, 1e38])
@pytest.mark.parametrize("gradient_scale", [0.0, 1e-38, 1.0, 1e38])
def test_lamb_follows_its_equations_at_the_edges(weight_scale, gradient_scale):
    draws = np.random.default_rng(1)
    weight, gradients = draws.normal(size=(3, 4)) * weight_scale, draws.normal(size=(4, 3, 4)) * gradient_scale
    for correct, clamp, adapt, eps in itertools.product(
        (False, True), (None, (0.0, 10.0), (1e-3, 1e3)), (True, False), (1e-30, 1e-6, 1.0)
    ):
        options = {**USUAL, "eps": eps, "correct": correct, "clamp": clamp, "adapt": adapt}
        # A lower bound makes weights near 0 jump to and fro, and what is left of them is rounding: one step there.
        steps = 1 if clamp == (1e-3, 1e3) and weight_scale < 1 else 4
        assert_follows(options, weight, gradients[:steps])


def test_one_step_by_hand():
    """w (3, 4), g (1, 1), no decay: m/√v = 0.1/√0.001 for both, so both move by lr·5/√2."""
    parameter = nn.Parameter(torch.tensor([3.0, 4.0], dtype=torch.float64))
    parameter.grad = torch.ones(2, dtype=torch.float64)
    Lamb([parameter], lr=0.1, eps=0.0, weight_decay=0.0).step()
    moved = 0.1 * 5 / 2**0.5
    torch.testing.assert_close(parameter.detach(), torch.tensor([3 - moved, 4 - moved], dtype=torch.float64))


def test_the_trust_ratio_is_one_where_a_norm_is_zero():
    squares = torch.tensor([[0.0, 25.0], [25.0, 0.0], [0.0, 0.0], [25.0, 100.0]], dtype=torch.float64)
    assert trust_ratios(squares).tolist() == [1.0, 1.0, 1.0, 0.5]
    assert trust_ratios(squares, (1.0, 2.0)).tolist() == [1.0, 1.0, 1.0, 0.2]


def test_the_closure_is_called_and_a_tensor_without_gradient_stays():
    used, unused = nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(2))
    optimizer = Lamb([used, unused], lr=0.1)

    def closure() -> float:
        optimizer.zero_grad()
        loss = used.square().sum()
        loss.backward()
        return loss.item()

    assert optimizer.step(closure) == 2.0
    assert (used < 1).all() and (unused == 1).all()
    assert unused not in optimizer.state


def test_the_state_survives_a_round_trip():
    """Half of the steps, saved and loaded into new objects, and the other half: equal to all in one go, bit for bit."""
    gradients = torch.randn(10, 4, 3)

    def take(parameter, optimizer, some):
        for gradient in some:
            parameter.grad = gradient.clone()
            optimizer.step()

    def new(value):
        parameter = nn.Parameter(value.clone())
        return parameter, Lamb([{"params": [parameter], "weight_decay": 0.1}], lr=0.01, bias_correction=True)

    begin = torch.randn(4, 3)
    whole, optimizer = new(begin)
    take(whole, optimizer, gradients)
    half, optimizer = new(begin)
    take(half, optimizer, gradients[:5])
    saved = copy.deepcopy(optimizer.state_dict())
    resumed, optimizer = new(half.detach())
    optimizer.load_state_dict(saved)
    take(resumed, optimizer, gradients[5:])
    assert torch.equal(resumed, whole)


@pytest.mark.parametrize(
    "options",
    [
        {"betas": (1.0, 0.999)},
        {"betas": (0.9, 1.0)},
        {"betas": (-0.1, 0.999)},
        {"betas": (0.9, float("nan"))},
        {"eps": -1e-6},
        {"lr": -1.0},
        {"lr": float("nan")},
        {"weight_decay": -0.01},
    ],
    ids=str,
)
def test_impossible_constants_are_refused(options):
    with pytest.raises(InvalidConfiguration, match="needed"):
        Lamb([nn.Parameter(torch.ones(1))], **options)


@pytest.fixture
def model():
    config = tiny_config(30, num_hidden_layers=3, max_position_embeddings=10)
    return AlbertForPreTraining(config)


def test_layer_norm_and_biases_neither_decay_nor_adapt(model):
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    decaying, plain = parameter_groups(model, 0.01)
    assert decaying["weight_decay"] == 0.01 and decaying["adapt"] is True
    assert plain["weight_decay"] == 0.0 and plain["adapt"] is False
    block = "albert.encoder"
    assert sorted(names[id(p)] for p in decaying["params"]) == sorted(
        [
            "albert.embeddings.word_embeddings.weight",
            "albert.embeddings.position_embeddings.weight",
            "albert.embeddings.token_type_embeddings.weight",
            "albert.embeddings.projection.weight",
            *(f"{block}.attentions.0.{part}.weight" for part in ("query", "key", "value", "dense")),
            *(f"{block}.feed_forwards.0.{part}.weight" for part in ("intermediate", "output")),
            "albert.pooler.weight",
            "predictions.dense.weight",
            "sop_classifier.classifier.weight",
        ]
    )
    assert all("layer_norm" in names[id(p)] or names[id(p)].endswith("bias") for p in plain["params"])
    assert "predictions.bias" in {names[id(p)] for p in plain["params"]}


def test_a_frozen_parameter_is_in_no_group(model):
    model.albert.embeddings.requires_grad_(False)
    grouped = {id(p) for group in parameter_groups(model, 0.01) for p in group["params"]}
    assert grouped == {id(p) for p in model.parameters() if p.requires_grad}


def test_the_lamb_of_a_recipe_has_its_constants(model):
    recipe = OptimizerRecipe(
        learning_rate=0.5, weight_decay=0.2, beta1=0.8, beta2=0.9, eps=1e-3, bias_correction=True, clamp=(0.0, 10.0)
    )
    optimizer = build_optimizer(recipe, model)
    assert isinstance(optimizer, Lamb)
    assert [group["weight_decay"] for group in optimizer.param_groups] == [0.2, 0.0]
    for group in optimizer.param_groups:
        assert (group["lr"], group["betas"], group["eps"]) == (0.5, (0.8, 0.9), 1e-3)
        assert group["bias_correction"] is True and group["clamp"] == (0.0, 10.0)


def test_the_adamw_of_a_recipe_is_torchs(model):
    recipe = OptimizerRecipe(kind="adamw", learning_rate=1e-2, weight_decay=0.1, beta2=0.98)
    twin = copy.deepcopy(model)
    optimizer = build_optimizer(recipe, model)
    assert type(optimizer) is torch.optim.AdamW
    names = {name for name, _ in twin.named_parameters()}
    plain = {name for name in names if name.endswith("bias") or "layer_norm" in name}
    theirs = torch.optim.AdamW(
        [
            {"params": [p for n, p in twin.named_parameters() if n not in plain], "weight_decay": 0.1},
            {"params": [p for n, p in twin.named_parameters() if n in plain], "weight_decay": 0.0},
        ],
        lr=1e-2,
        betas=(0.9, 0.98),
        eps=1e-6,
    )
    for _ in range(4):
        for mine, other in zip(model.parameters(), twin.parameters(), strict=True):
            mine.grad = torch.randn_like(mine)
            other.grad = mine.grad.clone()
        optimizer.step()
        theirs.step()
    for mine, other in zip(model.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-6, atol=1e-7)  # its fused kernel rounds elsewhere


def test_a_layer_norm_moves_by_lamb_as_by_plain_adam_and_a_matrix_by_its_own_norm(model):
    optimizer = build_optimizer(OptimizerRecipe(learning_rate=0.1, weight_decay=0.0), model)
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    for parameter in model.parameters():
        parameter.grad = torch.full_like(parameter, 1.0)
    optimizer.step()
    plain_move = 0.1 * 0.1 / (0.001**0.5 + 1e-6)
    for name, parameter in model.named_parameters():
        moved = (before[name] - parameter.detach()).norm()
        if name.endswith("bias") or "layer_norm" in name:
            assert float(moved) == pytest.approx(plain_move * parameter.numel() ** 0.5, rel=1e-4), name
        else:
            assert float(moved) == pytest.approx(0.1 * float(before[name].norm()), rel=1e-4), name


def test_muon_moves_matrices_by_orthogonal_steps_and_leaves_the_rest_to_adamw(model):
    recipe = OptimizerRecipe(kind="muon", learning_rate=1e-2, weight_decay=0.0)
    adamw = {name: nn.Parameter(parameter.detach().clone()) for name, parameter in model.named_parameters()}
    optimizer = build_optimizer(recipe, model)
    theirs = torch.optim.AdamW(adamw.values(), lr=1e-2, eps=1e-6, weight_decay=0.0)
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    for name, parameter in model.named_parameters():
        parameter.grad = torch.randn_like(parameter)
        adamw[name].grad = parameter.grad.clone()
    optimizer.step()
    theirs.step()
    by_muon = set()
    for name, parameter in model.named_parameters():
        if not torch.allclose(parameter, adamw[name], rtol=1e-5, atol=1e-6):
            by_muon.add(name)
            step = (parameter - before[name]).detach() / (1e-2 * 0.2 * max(parameter.shape) ** 0.5)
            assert torch.linalg.svdvals(step).sub(1).abs().max() < 0.6, name  # Newton and Schulz stop near 1
    layer = "albert.encoder.attentions.0.", "albert.encoder.feed_forwards.0."
    assert by_muon == {
        *(f"{layer[0]}{part}.weight" for part in ("query", "key", "value", "dense")),
        *(f"{layer[1]}{part}.weight" for part in ("intermediate", "output")),
        "albert.embeddings.projection.weight",
        "albert.pooler.weight",
        "predictions.dense.weight",
    }
