"""Micro-batches of one shape give the losses and gradients of packed ones, in one graph that is compiled once."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from albert.checkpoints.loading import WEIGHTS_NAME
from albert.model.albert import AlbertForPreTraining
from albert.model.attention import plain_attention, varlen_attention
from albert.model.packing import pack
from albert.pretraining.batches import MixedSamples, PretrainingBatches, pretraining_objective
from albert.pretraining.fixed_shape import (
    TERMS,
    FixedBatches,
    FixedShape,
    PretrainingLoss,
    choose_shape,
    fixed_objective,
)
from albert.pretraining.masking import MaskingRecipe
from albert.pretraining.recipe import HardExamplesRecipe
from albert.pretraining.run import pretrain
from albert.pretraining.sampling import PretrainingSamples, SequenceRecipe
from albert.runtime.devices import autocast
from albert.runtime.errors import InvalidConfiguration, Unavailable
from albert.runtime.json_files import read_journal
from albert.text.shards import TokenCorpus
from albert.training.logging import MACHINE_METRICS


@pytest.fixture(scope="module")
def samples(tiny_corpus):
    corpus = TokenCorpus.open(tiny_corpus, "train", verify=False)
    return PretrainingSamples(corpus, SequenceRecipe(max_length=32), MaskingRecipe(), 0)


@pytest.fixture(scope="module")
def shape(samples):
    return choose_shape(samples, MaskingRecipe().budgets, 24, 12, 1, 32)


def summed(model, called, objective, batches):
    """Sums of losses and right answers, counts, and all gradients as one vector."""
    model.zero_grad()
    sums, counts = {}, {}
    for batch in batches:
        found = objective(called, batch)
        torch.stack([found.losses[name] for name in TERMS]).sum().backward()
        for name in TERMS:
            loss, right = found.losses[name].item(), int(found.correct[name])
            sums[name] = [a + b for a, b in zip(sums.get(name, (0.0, 0)), (loss, right), strict=True)]
            counts[name] = counts.get(name, 0) + batch.counts[name]
    gradients = torch.cat([parameter.grad.flatten() for parameter in model.parameters()])
    return sums, counts, sum(batch.n_tokens for batch in batches), gradients


@pytest.mark.parametrize("focus", [0.0, 2.0])
@pytest.mark.parametrize("window", [None, 4])
def test_losses_and_gradients_are_those_of_packed_batches(samples, shape, tiny_recipe, window, focus):
    torch.manual_seed(0)
    model = AlbertForPreTraining(replace(tiny_recipe.model, attention_window=window))
    called, hard = PretrainingLoss(model, shape), HardExamplesRecipe(focus=focus)
    fixed = FixedBatches(samples, 24, shape, hard)
    for step in range(3):
        expected = summed(
            model, model, pretraining_objective, PretrainingBatches(samples, 24, 12, hard).micro_batches(step, 0, 1)
        )
        found = summed(model, called, fixed_objective, fixed.micro_batches(step, 0, 1))
        for name in TERMS:
            assert found[0][name] == pytest.approx(expected[0][name], rel=1e-5)
        assert found[1:3] == expected[1:3]
        assert (found[3] - expected[3]).norm() < 1e-5 * expected[3].norm()


def test_dropout_in_attention_takes_the_way_that_has_it(samples, shape, tiny_recipe):
    torch.manual_seed(0)
    model = AlbertForPreTraining(replace(tiny_recipe.model, attention_probs_dropout_prob=0.5)).train()
    batch = FixedBatches(samples, 24, shape).micro_batches(0, 0, 1)[0]
    called = PretrainingLoss(model, shape)
    dropped, again = called(batch.buffer)[0], called(batch.buffer)[0]
    assert not torch.equal(dropped, again) and dropped.isfinite().all()
    model.eval()
    assert torch.equal(called(batch.buffer)[0], called(batch.buffer)[0])


def test_every_sample_of_a_step_is_dealt_out_once(samples, shape):
    for step in range(4):
        whole = PretrainingBatches(samples, 24, 24).micro_batches(step, 0, 1)[0].packed
        sequences = sorted(tuple(ids.tolist()) for ids in whole.token_ids.split(list(whole.lengths)))
        for ranks in (1, 2):
            dealt = []
            for rank in range(ranks):
                for batch in FixedBatches(samples, 24, shape).micro_batches(step, rank, ranks):
                    tokens = shape.parts(batch.buffer).token_ids[: batch.n_tokens]
                    dealt += [tuple(ids.tolist()) for ids in tokens.split(list(batch.lengths))]
            assert sorted(dealt) == sequences


def test_what_fills_empty_rows_is_short_and_counts_for_nothing(samples, shape):
    for batch in FixedBatches(samples, 24, shape).micro_batches(0, 0, 1):
        parts, n = shape.parts(batch.buffer), len(batch.lengths)
        lengths = parts.boundaries.diff()
        assert lengths[:n].tolist() == list(batch.lengths) and parts.boundaries[-1] == shape.rows
        assert lengths.min() >= 0 and lengths.max() <= shape.longest
        assert (parts.order_labels[n:] == -100).all() and (
            parts.masked_labels[batch.counts["masked_tokens"] :] == -100
        ).all()
        assert (parts.masked_labels != -100).sum() == batch.counts["masked_tokens"]
        places = torch.cat([torch.arange(length) for length in lengths.tolist()])
        assert torch.equal(parts.position_ids, places)


def test_rows_are_filled_and_the_shape_is_a_function_of_the_data(tiny_corpus):
    corpus = TokenCorpus.open(tiny_corpus, "train", verify=False)
    samples = PretrainingSamples(corpus, SequenceRecipe(max_length=32), MaskingRecipe(), 0)
    chosen = [choose_shape(samples, MaskingRecipe().budgets, 2048, 256, ranks, 32) for ranks in (1, 1, 2)]
    assert chosen[0] == chosen[1] and max(shape.rows for shape in chosen) <= 256 * 32
    source = FixedBatches(samples, 2048, chosen[0])
    steps = [source.micro_batches(step, 0, 1) for step in range(3)]
    assert sum(batch.n_tokens for step in steps for batch in step) >= 0.97 * chosen[0].rows * sum(map(len, steps))


class Lengths:
    """Lengths spread as those of English text in sequences of 512 tokens are."""

    def __init__(self, seed: int) -> None:
        drawn = np.random.default_rng(seed).normal(340, 105, 1 << 18)
        self._all = drawn.astype(np.int64).clip(16, 512)
        self.per_epoch, self.preferred_batch = len(drawn), 64

    def lengths(self, numbers):
        return self._all[numbers]

    def batch(self, numbers):
        raise AssertionError("a shape is chosen by lengths alone")


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("batch_size", [256, 4096])
def test_rows_of_steps_that_were_not_looked_at_are_filled_too(seed, batch_size):
    """Batches of 512 tokens as those of the recipes "one-gpu" and "base"."""
    source, masks = Lengths(seed), MaskingRecipe().budgets
    shape = choose_shape(source, masks, batch_size, 64, 1, 512)
    later = source.lengths(np.arange(1 << 17, 1 << 18)).reshape(-1, batch_size)[:256]
    rows = sum(len(shape.assign(step, masks(step))) for step in later) * shape.rows
    assert shape.rows <= 64 * 512
    assert int(later.sum()) >= 0.97 * rows


def test_a_small_batch_is_not_cut_into_tiny_micro_batches():
    """Of 64 sequences fewer than 97 % of the rows are filled, unless micro-batches have a few sequences each."""
    shape = choose_shape(Lengths(0), MaskingRecipe().budgets, 64, 64, 1, 512)
    assert 4096 <= shape.rows <= 64 * 512


def test_lengths_of_a_mixture_are_those_of_its_samples(samples):
    mixture = MixedSamples([samples, samples], [1, 2])
    numbers = np.arange(40)
    assert mixture.lengths(numbers).tolist() == mixture.batch(numbers).lengths.tolist()


def test_a_shape_that_holds_no_sequence_is_refused():
    with pytest.raises(InvalidConfiguration, match="holds no sequence of 40 tokens"):
        FixedShape(32, 4, 8, 32).assign(np.array([40]), np.array([6]))


def test_attention_by_boundaries_is_attention_of_each_sequence():
    lengths = [5, 0, 1, 7, 3]
    boundaries = torch.tensor(np.cumsum([0, *lengths]), dtype=torch.int32)
    rows = torch.randn(3, sum(lengths), 2, 4, dtype=torch.float64, requires_grad=True)
    mixed, _ = varlen_attention(*rows, boundaries, 7, 0.5)
    apart = [
        plain_attention(*(each.transpose(0, 1)[None] for each in rows[:, first:last]), None)[0].transpose(0, 1)
        for first, last in zip(boundaries[:-1].tolist(), boundaries[1:].tolist(), strict=True)
        if first < last
    ]
    torch.testing.assert_close(mixed, torch.cat(apart))
    weights = torch.randn_like(mixed)
    (mine,) = torch.autograd.grad((mixed * weights).sum(), rows)
    (theirs,) = torch.autograd.grad((torch.cat(apart) * weights).sum(), rows)
    torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-6)


def test_on_another_device_a_batch_has_boundaries_for_groups(tiny_recipe):
    packed = pack([np.arange(5), np.arange(9)], [np.zeros(5), np.zeros(9)])
    there = packed.to(torch.device("meta"))
    assert packed.has_groups and not there.has_groups and there.longest == 9
    assert packed.boundaries.tolist() == [0, 5, 14]
    model = AlbertForPreTraining(tiny_recipe.model)
    expected = model.albert(packed)
    torch.testing.assert_close(model.albert(packed.without_groups(torch.device("cpu"))), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU: there, attention is a kernel")
@pytest.mark.parametrize(("precision", "tolerance"), [("fp32", 1e-4), ("bf16", 2e-2)])
@pytest.mark.parametrize("window", [None, 4])
def test_on_a_gpu_losses_and_gradients_are_those_of_a_cpu(samples, shape, tiny_recipe, precision, tolerance, window):
    torch.manual_seed(0)
    config = replace(tiny_recipe.model, attention_window=window, hidden_size=64)
    model, gpu = AlbertForPreTraining(config), torch.device("cuda")
    batches = FixedBatches(samples, 24, shape).micro_batches(0, 0, 1)
    expected = summed(model, PretrainingLoss(model, shape), fixed_objective, batches)
    called = PretrainingLoss(model.to(gpu), shape)
    with autocast(gpu, precision):
        found = summed(model, called, fixed_objective, [batch.to(gpu) for batch in batches])
    for name in TERMS:
        assert found[0][name][0] == pytest.approx(expected[0][name][0], rel=tolerance)
    assert (found[3].cpu() - expected[3]).norm() < 10 * tolerance * expected[3].norm()


def told(run):
    return [
        {key: value for key, value in record.items() if key not in (*MACHINE_METRICS, "event")}
        for record in read_journal(run / "journal.jsonl")
        if record["event"] in ("train", "evaluation")
    ]


def test_a_run_of_fixed_shape_learns_what_one_of_packed_batches_does(tiny_corpus, tiny_recipe, tmp_path):
    """And checkpoints go from one to the other."""
    recipe = replace(tiny_recipe, checkpoint_every=6)
    for name, fixed in (("packed", False), ("fixed", True)):
        pretrain(replace(recipe, fixed_shape=fixed), tiny_corpus, tmp_path / name, "cpu")
    packed, fixed = (told(tmp_path / name) for name in ("packed", "fixed"))
    assert len(packed) == len(fixed)
    for one, other in zip(packed, fixed, strict=True):
        assert one == pytest.approx(other, rel=1e-3)
    first = replace(recipe, fixed_shape=True, max_tokens=600)
    assert pretrain(first, tiny_corpus, tmp_path / "both", "cpu").training.steps < 12
    pretrain(replace(recipe, fixed_shape=False), tiny_corpus, tmp_path / "both", "cpu")
    assert (tmp_path / "both" / "model" / WEIGHTS_NAME).is_file()


@pytest.mark.parametrize("own", [True, False])
def test_a_machine_that_cannot_compile_is_told_what_to_do(samples, shape, tiny_recipe, monkeypatch, own):
    """Other failures of a compiled step stay what they are."""
    of_torch = type("InductorError", (RuntimeError,), {"__module__": "torch._inductor.exc"})
    error = of_torch("no C++ compiler\nmore") if own else ValueError("another")

    def failing(*_):
        raise error

    monkeypatch.setattr(torch, "compile", lambda *_, **__: failing)
    called = PretrainingLoss(AlbertForPreTraining(tiny_recipe.model), shape)
    called.compile_graph()
    expected, why = (
        (Unavailable, "^compile: .*no C.. compiler; use --compile False$") if own else (ValueError, "another")
    )
    with pytest.raises(expected, match=why):
        called(FixedBatches(samples, 24, shape).micro_batches(0, 0, 1)[0].buffer)
