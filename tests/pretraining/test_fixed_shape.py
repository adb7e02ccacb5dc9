"""Micro-batches of a fixed shape give the losses and gradients of packed ones."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from tests.pretraining.conftest import events
from tests.refusals import refusal

from albert.checkpoints.loading import WEIGHTS_NAME
from albert.model.albert import AlbertForPreTraining
from albert.model.attention import plain_attention, varlen_attention
from albert.pretraining.batches import pretraining_objective
from albert.pretraining.fixed_shape import (
    TERMS,
    FixedBatches,
    FixedShape,
    PretrainingLoss,
    choose_shape,
    fixed_objective,
)
from albert.pretraining.run import pretrain
from albert.pretraining.sampling import PretrainingBatches
from albert.recipes.pretraining import MaskingRecipe
from albert.runtime.devices import autocast
from albert.runtime.errors import InvalidConfiguration, Unavailable
from albert.training.logging import MACHINE_METRICS


@pytest.fixture(scope="module")
def shape(tiny_samples):
    return choose_shape(tiny_samples, MaskingRecipe().budgets, 24, 12, 1, 32)


def total(model, loss, objective, batches):
    """Sums of losses and correct predictions, counts, tokens, and all gradients as one vector."""
    model.zero_grad()
    sums, counts = {name: np.zeros(2) for name in TERMS}, dict.fromkeys(TERMS, 0)
    for batch in batches:
        result = objective(loss, batch)
        torch.stack([result.losses[name] for name in TERMS]).sum().backward()
        for name in TERMS:
            sums[name] += result.losses[name].item(), int(result.correct[name])
            counts[name] += batch.counts[name]
    gradients = torch.cat([parameter.grad.flatten() for parameter in model.parameters()])
    return sums, counts, sum(batch.n_tokens for batch in batches), gradients


def test_losses_and_gradients_equal_those_of_packed_batches(tiny_samples, shape, tiny_recipe):
    torch.manual_seed(0)
    model = AlbertForPreTraining(tiny_recipe.model)
    loss = PretrainingLoss(model, shape)
    packed, fixed = PretrainingBatches(tiny_samples, 24, 12), FixedBatches(tiny_samples, 24, shape)
    for step in range(3):
        expected = total(model, model, pretraining_objective, packed.micro_batches(step, 0, 1))
        result = total(model, loss, fixed_objective, fixed.micro_batches(step, 0, 1))
        for name in TERMS:
            assert result[0][name] == pytest.approx(expected[0][name], rel=1e-5)
        assert result[1:3] == expected[1:3]
        assert (result[3] - expected[3]).norm() < 1e-5 * expected[3].norm()


def test_attention_dropout_is_applied_in_training_only(tiny_samples, shape, tiny_recipe):
    torch.manual_seed(0)
    model = AlbertForPreTraining(replace(tiny_recipe.model, attention_probs_dropout_prob=0.5)).train()
    buffer = FixedBatches(tiny_samples, 24, shape).micro_batches(0, 0, 1)[0].buffer
    loss = PretrainingLoss(model, shape)
    first, second = loss(buffer)[0], loss(buffer)[0]
    assert not torch.equal(first, second) and first.isfinite().all()
    model.eval()
    assert torch.equal(loss(buffer)[0], loss(buffer)[0])


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_step_has_every_sample_once(tiny_samples, shape, ranks):
    for step in range(4):
        whole = PretrainingBatches(tiny_samples, 24, 24).micro_batches(step, 0, 1)[0].packed
        expected = [ids.tolist() for ids in whole.token_ids.split(list(whole.lengths))]
        sequences = []
        for rank in range(ranks):
            for batch in FixedBatches(tiny_samples, 24, shape).micro_batches(step, rank, ranks):
                tokens = shape.parts(batch.buffer).token_ids[: batch.n_tokens]
                sequences += [ids.tolist() for ids in tokens.split(list(batch.lengths))]
        assert sorted(sequences) == sorted(expected)


def test_fillers_of_empty_rows_are_short_and_have_no_labels(tiny_samples, shape):
    for batch in FixedBatches(tiny_samples, 24, shape).micro_batches(0, 0, 1):
        parts, n, masked = shape.parts(batch.buffer), len(batch.lengths), batch.counts["masked_tokens"]
        lengths = parts.cu_seqlens.diff()
        assert lengths[:n].tolist() == list(batch.lengths) and parts.cu_seqlens[-1] == shape.rows
        assert lengths.min() >= 0 and lengths.max() <= shape.max_seqlen
        assert (parts.order_labels[n:] == -100).all() and (parts.masked_labels[masked:] == -100).all()
        assert (parts.masked_labels != -100).sum() == masked
        assert torch.equal(parts.position_ids, torch.cat([torch.arange(length) for length in lengths.tolist()]))


def test_rows_are_filled_and_the_shape_depends_on_the_data_only(tiny_samples):
    shapes = [choose_shape(tiny_samples, MaskingRecipe().budgets, 2048, 256, ranks, 32) for ranks in (1, 1, 2)]
    assert shapes[0] == shapes[1] and max(shape.rows for shape in shapes) <= 256 * 32
    source = FixedBatches(tiny_samples, 2048, shapes[0])
    batches = [batch for step in range(3) for batch in source.micro_batches(step, 0, 1)]
    assert sum(batch.n_tokens for batch in batches) >= 0.97 * shapes[0].rows * len(batches)


class RandomLengths:
    """Lengths distributed as those of English text in sequences of 512 tokens."""

    def __init__(self, seed: int) -> None:
        drawn = np.random.default_rng(seed).normal(340, 105, 1 << 18)
        self._lengths = drawn.astype(np.int64).clip(16, 512)
        self.per_epoch, self.preferred_batch = len(drawn), 64

    def lengths(self, numbers):
        return self._lengths[numbers]

    def batch(self, numbers):
        raise AssertionError("a shape is chosen by lengths alone")


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    ("batch_size", "micro_batch_size", "ranks", "filled"),
    [(256, 64, 1, 0.97), (4096, 64, 1, 0.97), (1024, 256, 8, 0.9)],
)
def test_rows_of_later_steps_are_filled_too(seed, batch_size, micro_batch_size, ranks, filled):
    """For batches of 512 tokens, as in the recipes "one-gpu" and "base"; steps above the usual size fit as well."""
    source, masks = RandomLengths(seed), MaskingRecipe().budgets
    shape = choose_shape(source, masks, batch_size, micro_batch_size, ranks, 512)
    later = source.lengths(np.arange(1 << 17, 1 << 18)).reshape(-1, batch_size)[:256]
    shares = [step[rank::ranks] for step in later for rank in range(ranks)]
    rows = sum(len(shape.assign(share, masks(share))) for share in shares) * shape.rows
    assert shape.rows <= micro_batch_size * 512
    assert int(later.sum()) >= filled * rows


def test_a_small_batch_is_not_cut_into_tiny_micro_batches():
    """With 64 sequences, 97 % of the rows are filled only if micro-batches have a few sequences each."""
    shape = choose_shape(RandomLengths(0), MaskingRecipe().budgets, 64, 64, 1, 512)
    assert 4096 <= shape.rows <= 64 * 512


def test_a_sequence_too_long_for_the_shape_is_refused():
    with refusal(InvalidConfiguration, 40):
        FixedShape(32, 4, 8, 32).assign(np.array([40]), np.array([6]))


def test_attention_by_boundaries_equals_attention_of_each_sequence():
    lengths = [5, 0, 1, 7, 3]
    cu_seqlens = torch.tensor(np.cumsum([0, *lengths]), dtype=torch.int32)
    qkv = torch.randn(3, sum(lengths), 2, 4, dtype=torch.float64, requires_grad=True)
    result, _ = varlen_attention(*qkv, cu_seqlens, 7, 0.5)
    expected = torch.cat(
        [
            plain_attention(*(part.transpose(0, 1)[None] for part in qkv[:, first:last]), None)[0].transpose(0, 1)
            for first, last in pairwise(cu_seqlens.tolist())
            if first < last
        ]
    )
    torch.testing.assert_close(result, expected)
    weights = torch.randn_like(result)
    gradients = [torch.autograd.grad((value * weights).sum(), qkv)[0] for value in (result, expected)]
    torch.testing.assert_close(*gradients, rtol=1e-5, atol=1e-6)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU with its attention kernel")
@pytest.mark.parametrize(("precision", "tolerance"), [("fp32", 1e-4), ("bf16", 2e-2)])
def test_losses_and_gradients_on_a_gpu_equal_those_on_a_cpu(tiny_samples, shape, tiny_recipe, precision, tolerance):
    torch.manual_seed(0)
    config = replace(tiny_recipe.model, hidden_size=64)
    model, gpu = AlbertForPreTraining(config), torch.device("cuda")
    batches = FixedBatches(tiny_samples, 24, shape).micro_batches(0, 0, 1)
    expected = total(model, PretrainingLoss(model, shape), fixed_objective, batches)
    loss = PretrainingLoss(model.to(gpu), shape)
    with autocast(gpu, precision):
        result = total(model, loss, fixed_objective, [batch.to(gpu) for batch in batches])
    for name in TERMS:
        assert result[0][name][0] == pytest.approx(expected[0][name][0], rel=tolerance)
    assert (result[3].cpu() - expected[3]).norm() < 10 * tolerance * expected[3].norm()


def test_a_run_of_fixed_shape_learns_the_same_and_can_switch(tiny_corpus, tiny_recipe, tmp_path):
    recipe = replace(tiny_recipe, checkpoint_every=6)
    records = []
    for name, fixed in (("packed", False), ("fixed", True)):
        run = pretrain(replace(recipe, fixed_shape=fixed), tiny_corpus, tmp_path / name, "cpu").run
        figures = [*events(run, "train"), *events(run, "evaluation")]
        records.append([{k: v for k, v in r.items() if k not in (*MACHINE_METRICS, "event")} for r in figures])
    for packed, fixed in zip(*records, strict=True):
        assert packed == pytest.approx(fixed, rel=1e-3)
    first = replace(recipe, fixed_shape=True, max_tokens=600)
    assert pretrain(first, tiny_corpus, tmp_path / "both", "cpu").training.steps < 12
    pretrain(replace(recipe, fixed_shape=False), tiny_corpus, tmp_path / "both", "cpu")
    assert (tmp_path / "both" / "model" / WEIGHTS_NAME).is_file()


@pytest.mark.parametrize(
    ("module", "expected", "message"),
    [
        ("torch._inductor.exc", Unavailable, "^compile: .*no C.. compiler; use compile=false$"),
        ("builtins", RuntimeError, "^no C.. compiler\nmore$"),
    ],
)
def test_failed_compilation_names_the_remedy(tiny_samples, shape, tiny_recipe, monkeypatch, module, expected, message):
    """Other errors of a compiled step are raised unchanged."""
    error = type("CompilerError", (RuntimeError,), {"__module__": module})("no C++ compiler\nmore")

    def fail(*_):
        raise error

    monkeypatch.setattr(torch, "compile", lambda *_, **__: fail)
    loss = PretrainingLoss(AlbertForPreTraining(tiny_recipe.model), shape)
    loss.compile_graph()
    with pytest.raises(expected, match=message):
        loss(FixedBatches(tiny_samples, 24, shape).micro_batches(0, 0, 1)[0].buffer)
