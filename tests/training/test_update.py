import math

import pytest
import torch
from torch import nn

from albert.runtime.environment import Ranks
from albert.training.update import Sums, update

CPU = torch.device("cpu")


def take(model, batches, objective, *, learning_rate=0.1, clip_norm=1e9, flags=()):
    """One update by plain gradient descent."""
    optimizer = torch.optim.SGD(model.parameters(), lr=123.0)
    return update(
        model,
        optimizer,
        batches,
        objective,
        learning_rate=learning_rate,
        clip_norm=clip_norm,
        precision="fp32",
        device=CPU,
        ranks=Ranks(),
        flags=flags,
    )


def weights(model) -> torch.Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


def by_hand(model, batches):
    """The gradient of mean cross-entropy plus mean squared error over all points at once."""
    inputs = torch.cat([batch.inputs for batch in batches])
    classes = torch.cat([batch.classes for batch in batches])
    sizes = torch.cat([batch.sizes for batch in batches])
    logits, found = model(inputs)
    measured = sizes.isfinite()
    loss = nn.functional.cross_entropy(logits, classes) + nn.functional.mse_loss(found[measured], sizes[measured])
    return loss, torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(model.parameters()))])


def test_unequal_counts_are_divided_once_by_the_count_of_all(make_model, source_of, objective):
    batches = source_of(batch_size=8, micro_batch_size=3).micro_batches(0, 0, 1)
    assert [batch.counts for batch in batches] == [
        {"class": 3, "size": 1},
        {"class": 3, "size": 1},
        {"class": 2, "size": 1},
    ]
    model = make_model()
    before = weights(model)
    loss, gradient = by_hand(model, batches)
    metrics = take(model, batches, objective)
    torch.testing.assert_close(weights(model), before - 0.1 * gradient, rtol=1e-5, atol=1e-7)
    assert sum(metrics.losses[name] / metrics.counts[name] for name in metrics.losses) == pytest.approx(loss.item())
    assert metrics.gradient_norm == pytest.approx(gradient.norm().item(), rel=1e-5)
    assert (metrics.counts, metrics.tokens) == ({"class": 8, "size": 3}, 48)


@pytest.mark.parametrize("kind", ["lamb", "adamw", "muon"])
def test_accumulation_does_not_change_the_weights(learn, source_of, kind):
    whole = weights(learn("1x8", kind=kind)[0])
    for size, name in ((4, "2x4"), (2, "4x2"), (3, "3+3+2"), (1, "8x1")):
        model, _ = learn(name, source=source_of(micro_batch_size=size), kind=kind)
        torch.testing.assert_close(weights(model), whole, rtol=0, atol=1e-6)


def test_clipping_bounds_the_global_norm(make_model, source_of, objective):
    batches = source_of().micro_batches(0, 0, 1)
    model = make_model()
    before = weights(model)
    _, gradient = by_hand(model, batches)
    metrics = take(model, batches, objective, clip_norm=0.01)
    torch.testing.assert_close(weights(model), before - 0.1 * gradient * 0.01 / gradient.norm(), rtol=1e-3, atol=1e-8)
    assert metrics.gradient_norm == pytest.approx(gradient.norm().item(), rel=1e-5)


def test_a_term_without_items_is_nothing_but_reaches_every_weight(make_model, source_of, objective):
    """Data parallelism waits for the gradient of every tensor."""
    batch = source_of(batch_size=2).micro_batches(0, 0, 1)[0]
    batch.sizes.fill_(math.nan)
    model = make_model()
    before = weights(model.measure)
    reached = []
    for parameter in model.parameters():
        parameter.register_hook(lambda gradient: reached.append(gradient.shape))
    metrics = take(model, [batch], objective)
    assert metrics.counts == {"class": 2, "size": 0} and metrics.losses["size"] == 0.0
    assert torch.equal(weights(model.measure), before)
    assert len(reached) == len(list(model.parameters()))


def test_flags_are_counted_over_the_ranks(make_model, source_of, objective):
    batches = source_of().micro_batches(0, 0, 1)
    assert take(make_model(), batches, objective, flags=(True, False)).flags == (1, 0)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_loss_that_is_not_finite_leaves_the_weights_untouched(make_model, source_of, objective, value):
    def broken(model, batch):
        sums = objective(model, batch)
        return Sums(losses=sums.losses | {"size": sums.losses["size"] + value}, correct=sums.correct)

    model = make_model()
    before = weights(model)
    metrics = take(model, source_of(micro_batch_size=4).micro_batches(0, 0, 1), broken)
    assert str(metrics.alarm) in ("size is nan", "size is inf")
    assert torch.equal(weights(model), before)
    assert all(parameter.grad is None for parameter in model.parameters())


def test_a_gradient_that_is_not_finite_leaves_the_weights_untouched(make_model, source_of, objective):
    model = make_model()
    before = weights(model)
    model.classifier.weight.register_hook(lambda gradient: gradient / 0)
    metrics = take(model, source_of().micro_batches(0, 0, 1), objective)
    assert str(metrics.alarm) in ("gradient norm is nan", "gradient norm is inf")
    assert torch.equal(weights(model), before)
