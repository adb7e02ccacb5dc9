"""One update: sums divided once by global counts, clipping, and refusal of numbers that are not finite."""

import math

import pytest
import torch
from tests.training.conftest import PointSource, point_objective, scaled, weights_of
from torch import nn

from albert.runtime.environment import Ranks
from albert.training.update import update

CPU = torch.device("cpu")


def take(model, batches, objective=point_objective, *, learning_rate=0.1, clip_norm=1e9, flags=(), workers=1):
    """One update by gradient descent."""
    optimizer = torch.optim.SGD(model.parameters(), lr=123.0)
    settings = {"clip_norm": clip_norm, "precision": "fp32", "device": CPU, "ranks": Ranks(), "workers": workers}
    return update(model, optimizer, batches, objective, learning_rate=learning_rate, flags=flags, **settings)


def expected_gradient(model, batches):
    """Mean cross-entropy plus mean squared error over all points, and its gradient."""
    inputs, classes, sizes = (torch.cat([getattr(b, name) for b in batches]) for name in ("inputs", "classes", "sizes"))
    logits, predicted = model(inputs)
    has_size = sizes.isfinite()
    loss = nn.functional.cross_entropy(logits, classes) + nn.functional.mse_loss(predicted[has_size], sizes[has_size])
    return loss, torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(model.parameters()))])


def test_unequal_counts_are_divided_once_by_the_count_of_all(make_model):
    batches = PointSource(batch_size=8, micro_batch_size=3).micro_batches(0, 0, 1)
    assert [batch.counts["class"] for batch in batches] == [3, 3, 2]
    assert [batch.counts["size"] for batch in batches] == [1, 1, 1]
    model = make_model()
    before = weights_of(model)
    loss, gradient = expected_gradient(model, batches)
    metrics = take(model, batches)
    torch.testing.assert_close(weights_of(model), before - 0.1 * gradient, rtol=1e-5, atol=1e-7)
    assert metrics.loss == pytest.approx(loss.item())
    assert metrics.gradient_norm == pytest.approx(gradient.norm().item(), rel=1e-5)
    assert (metrics.counts, metrics.tokens) == ({"class": 8, "size": 3}, 48)


@pytest.mark.parametrize("kind", ["lamb", "adamw", "muon"])
def test_accumulation_does_not_change_the_weights(train, kind):
    expected = weights_of(train("8", kind=kind)[0])
    for size in (4, 2, 3, 1):
        model, _ = train(str(size), source=PointSource(micro_batch_size=size), kind=kind)
        torch.testing.assert_close(weights_of(model), expected, rtol=0, atol=1e-6)


def test_clipping_bounds_the_global_norm(make_model):
    batches, model = PointSource().micro_batches(0, 0, 1), make_model()
    before = weights_of(model)
    _, gradient = expected_gradient(model, batches)
    metrics = take(model, batches, clip_norm=0.01)
    expected = before - 0.1 * gradient * 0.01 / gradient.norm()
    torch.testing.assert_close(weights_of(model), expected, rtol=1e-3, atol=1e-8)
    assert metrics.gradient_norm == pytest.approx(gradient.norm().item(), rel=1e-5)


def test_a_term_without_items_is_zero_but_every_weight_has_a_gradient(make_model):
    """Data parallelism waits for the gradient of every tensor."""
    batch = PointSource(batch_size=2).micro_batches(0, 0, 1)[0]
    batch.sizes.fill_(math.nan)
    model = make_model()
    before = weights_of(model.measure)
    shapes = []
    for parameter in model.parameters():
        parameter.register_hook(lambda gradient: shapes.append(gradient.shape))
    metrics = take(model, [batch])
    assert metrics.counts == {"class": 2, "size": 0} and metrics.losses["size"] == 0.0
    assert torch.equal(weights_of(model.measure), before)
    assert len(shapes) == len(list(model.parameters()))


@pytest.mark.parametrize("factor", [math.nan, math.inf])
@pytest.mark.parametrize("term", ["loss", "gradient"])
def test_numbers_that_are_not_finite_leave_the_weights_unchanged(make_model, factor, term):
    model = make_model()
    before = weights_of(model)

    def broken(model, batch):
        return scaled(point_objective(model, batch), factor if term == "loss" else 1.0)

    if term == "gradient":
        model.classifier.weight.register_hook(lambda gradient: gradient * factor)
    metrics = take(model, PointSource(micro_batch_size=4).micro_batches(0, 0, 1), broken)
    subject = "class" if term == "loss" else "gradient norm"
    assert str(metrics.non_finite) in (f"{subject} is nan", f"{subject} is inf")
    assert torch.equal(weights_of(model), before)
    assert all(parameter.grad is None for parameter in model.parameters())
