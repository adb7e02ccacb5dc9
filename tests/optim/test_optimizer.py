"""The optimizers of a recipe: parameter groups, constants, LAMB, AdamW and Muon."""

import copy

import pytest
import torch
from tests.tiny import tiny_config
from torch import nn

from albert.model.albert import AlbertForPreTraining
from albert.optim.lamb import Lamb
from albert.optim.optimizer import OptimizerRecipe, build_optimizer, parameter_groups


@pytest.fixture
def model():
    return AlbertForPreTraining(tiny_config(30, num_hidden_layers=3, max_position_embeddings=10))


ATTENTION, FEED_FORWARD = "albert.encoder.attentions.0", "albert.encoder.feed_forwards.0"
LINEAR_MAPS = {
    *(f"{ATTENTION}.{part}.weight" for part in ("query", "key", "value", "dense")),
    *(f"{FEED_FORWARD}.{part}.weight" for part in ("intermediate", "output")),
    "albert.embeddings.projection.weight",
    "albert.pooler.weight",
    "predictions.dense.weight",
}
EMBEDDINGS = {f"albert.embeddings.{kind}_embeddings.weight" for kind in ("word", "position", "token_type")}


def is_plain(name: str) -> bool:
    """Whether a parameter has neither weight decay nor trust ratio."""
    return name.endswith("bias") or "layer_norm" in name


def test_layer_norm_and_biases_neither_decay_nor_adapt(model):
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    decaying, plain = parameter_groups(model, 0.01)
    assert decaying["weight_decay"] == 0.01 and decaying["adapt"] is True
    assert plain["weight_decay"] == 0.0 and plain["adapt"] is False
    decaying_names = [names[id(p)] for p in decaying["params"]]
    assert len(set(decaying_names)) == len(decaying_names)
    assert set(decaying_names) == LINEAR_MAPS | EMBEDDINGS | {"sop_classifier.classifier.weight"}
    plain_names = {names[id(p)] for p in plain["params"]}
    assert all(map(is_plain, plain_names)) and "predictions.bias" in plain_names


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
    groups = [
        {"params": [p for n, p in twin.named_parameters() if is_plain(n) == plain], "weight_decay": 0.1 * (not plain)}
        for plain in (False, True)
    ]
    expected = torch.optim.AdamW(groups, lr=1e-2, betas=(0.9, 0.98), eps=1e-6)
    for _ in range(4):
        for parameter, other in zip(model.parameters(), twin.parameters(), strict=True):
            parameter.grad = torch.randn_like(parameter)
            other.grad = parameter.grad.clone()
        optimizer.step()
        expected.step()
    for parameter, other in zip(model.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(parameter, other, rtol=1e-6, atol=1e-7)  # the fused kernel rounds differently


def test_muon_orthogonalises_the_updates_of_matrices_and_leaves_the_rest_to_adamw(model):
    adamw = {name: nn.Parameter(parameter.detach().clone()) for name, parameter in model.named_parameters()}
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    optimizer = build_optimizer(OptimizerRecipe(kind="muon", learning_rate=1e-2, weight_decay=0.0), model)
    expected = torch.optim.AdamW(adamw.values(), lr=1e-2, eps=1e-6, weight_decay=0.0)
    for name, parameter in model.named_parameters():
        parameter.grad = torch.randn_like(parameter)
        adamw[name].grad = parameter.grad.clone()
    optimizer.step()
    expected.step()
    by_muon = set()
    for name, parameter in model.named_parameters():
        if not torch.allclose(parameter, adamw[name], rtol=1e-5, atol=1e-6):
            by_muon.add(name)
            step = (parameter - before[name]).detach() / (1e-2 * 0.2 * max(parameter.shape) ** 0.5)
            assert torch.linalg.svdvals(step).sub(1).abs().max() < 0.6, name  # Newton-Schulz is approximate
    assert by_muon == LINEAR_MAPS
