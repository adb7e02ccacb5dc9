"""Hard examples: what they weigh, that nothing but their own loss decides it, and where they stay out."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn import functional

from albert.model.albert import AlbertForPreTraining
from albert.optim.optimizer import build_optimizer
from albert.pretraining.batches import PretrainingBatches, hardness, pretraining_objective
from albert.pretraining.evaluation import held_out_samples
from albert.pretraining.masking import MaskingRecipe
from albert.pretraining.recipe import HardExamplesRecipe
from albert.pretraining.run import pretrain
from albert.pretraining.sampling import PretrainingSamples, SequenceRecipe
from albert.runtime.environment import world
from albert.text.shards import TokenCorpus
from albert.training.update import update

FOCUS = HardExamplesRecipe(focus=2.0)


@pytest.fixture(scope="module")
def samples(tiny_corpus):
    return PretrainingSamples(TokenCorpus.open(tiny_corpus), SequenceRecipe(max_length=32), MaskingRecipe(), 0)


@pytest.fixture
def model(tiny_recipe):
    torch.manual_seed(1)
    return AlbertForPreTraining(replace(tiny_recipe.model, initializer_range=0.2))


def test_a_weight_is_a_power_of_what_the_model_does_not_believe():
    losses = -torch.tensor([0.9, 0.5, 0.1, 1e-9]).log()
    assert hardness(losses, 2.0).tolist() == pytest.approx([0.01, 0.25, 0.81, 1.0], rel=1e-5)
    assert hardness(losses, 0.0).tolist() == [1.0] * 4
    assert not hardness(losses.requires_grad_(), 2.0).requires_grad


def test_the_loss_is_the_weighted_sum_and_the_weights_are_constants_to_the_gradient(samples, model):
    (batch,) = PretrainingBatches(samples, 12, 12, FOCUS).micro_batches(0, 0, 1)
    sums = pretraining_objective(model, batch)
    logits = model(batch.packed, batch.masked_positions).masked_tokens
    each = functional.cross_entropy(logits, batch.masked_labels, reduction="none")
    right = logits.softmax(-1).gather(1, batch.masked_labels[:, None]).squeeze(1).detach()
    by_hand = ((1 - right) ** 2 * each).sum()
    torch.testing.assert_close(sums.losses["masked_tokens"], by_hand)
    for loss in (sums.losses["masked_tokens"], by_hand):
        model.predictions.bias.grad = None
        loss.backward()
        if loss is not by_hand:
            found = model.predictions.bias.grad
    torch.testing.assert_close(found, model.predictions.bias.grad)


def test_neither_micro_batches_nor_ranks_change_the_weighted_sums(samples, model):
    def total(parts):
        return sum(float(pretraining_objective(model, batch).losses["masked_tokens"].detach()) for batch in parts)

    whole = total(PretrainingBatches(samples, 12, 12, FOCUS).micro_batches(0, 0, 1))
    small = PretrainingBatches(samples, 12, 5, FOCUS)
    assert total(small.micro_batches(0, 0, 1)) == pytest.approx(whole, rel=1e-6)
    assert sum(total(small.micro_batches(0, rank, 3)) for rank in range(3)) == pytest.approx(whole, rel=1e-6)


def test_until_the_warm_up_is_over_all_tokens_count_alike(samples, model):
    late = PretrainingBatches(samples, 4, 4, HardExamplesRecipe(focus=1.0, warmup_steps=3))
    plain = PretrainingBatches(samples, 4, 4)
    for step in range(5):
        (one,), (other,) = late.micro_batches(step, 0, 1), plain.micro_batches(step, 0, 1)
        assert torch.equal(one.packed.token_ids, other.packed.token_ids) and one.counts == other.counts
        with torch.inference_mode():
            losses = [pretraining_objective(model, batch).losses for batch in (one, other)]
        assert (float(losses[0]["masked_tokens"]) == float(losses[1]["masked_tokens"])) == (step < 3)
        assert float(losses[0]["sentence_order"]) == float(losses[1]["sentence_order"])


def test_tokens_that_are_known_stop_to_count(samples, tiny_recipe):
    """After some updates on one batch its weighted mean loss is far below its mean loss."""
    model = AlbertForPreTraining(replace(tiny_recipe.model, embedding_size=32, hidden_size=64))
    optimizer = build_optimizer(replace(tiny_recipe.optimizer, kind="adamw", learning_rate=5e-3), model)
    batches = PretrainingBatches(samples, 6, 6, HardExamplesRecipe(focus=1.0)).micro_batches(0, 0, 1)
    for _ in range(60):
        update(
            model,
            optimizer,
            batches,
            pretraining_objective,
            learning_rate=5e-3,
            clip_norm=1.0,
            precision="fp32",
            device=torch.device("cpu"),
            ranks=world(),
        )
    with torch.inference_mode():
        weighted, plain = (
            float(pretraining_objective(model, replace(batches[0], focus=focus)).losses["masked_tokens"])
            for focus in (1.0, 0.0)
        )
    assert 0 < weighted < 0.8 * plain


def test_a_killed_run_with_hard_examples_ends_with_the_same_bytes_and_is_scored_plainly(
    tiny_recipe, tiny_corpus, tmp_path, killed_at
):
    sequences = replace(tiny_recipe.sequences, max_length=64, neighbours_probability=0.5)
    hard = HardExamplesRecipe(focus=1.0, warmup_steps=5)
    recipe = replace(tiny_recipe, sequences=sequences, hard_examples=hard, checkpoint_every=4)
    whole = pretrain(recipe, tiny_corpus, tmp_path / "whole", "cpu")
    with killed_at(15) as calls:
        pretrain(recipe, tiny_corpus, tmp_path / "cut", "cpu")
    cut = pretrain(recipe, tiny_corpus, tmp_path / "cut", "cpu")
    assert [batch.focus for batch in calls[:14]] == [0.0] * 10 + [1.0] * 4
    one, two = ((run.model / "model.safetensors").read_bytes() for run in (whole, cut))
    assert one == two
    held_out = held_out_samples(recipe, [TokenCorpus.open(tiny_corpus)])
    other = replace(
        recipe,
        sequences=replace(sequences, neighbours_probability=0.0),
        masking=replace(recipe.masking, share=0.4),  # what a run masks in training does not change what it is asked
    )
    plain = held_out_samples(other, [TokenCorpus.open(tiny_corpus)])
    assert {batch.focus for batch in held_out.batches} == {0.0}
    for one, other in zip(held_out.batches, plain.batches, strict=True):
        assert torch.equal(one.packed.token_ids, other.packed.token_ids)


def test_with_neighbours_a_run_sees_shorter_sequences_of_the_same_text(samples, tiny_corpus):
    corpus = TokenCorpus.open(tiny_corpus)

    def made(share):
        recipe = SequenceRecipe(max_length=128, neighbours_probability=share)
        return PretrainingSamples(corpus, recipe, MaskingRecipe(), 0)

    plain, pairs = made(0.0), made(1.0)
    assert pairs.per_epoch > plain.per_epoch
    tokens = []
    for source in (plain, pairs):
        first, second, _ = source.segments(np.arange(source.per_epoch))
        tokens.append(int(first.length.sum() + second.length.sum()))
    assert tokens[0] == tokens[1] == corpus.n_tokens
