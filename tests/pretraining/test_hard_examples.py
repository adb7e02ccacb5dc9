"""Hard examples: the weights of masked tokens, and pairs of neighbouring sentences."""

from dataclasses import replace

import pytest
import torch
from tests.pretraining.conftest import model_bytes
from torch.nn import functional

from albert.model.albert import AlbertForPreTraining
from albert.pretraining.batches import PretrainingBatches, hardness, pretraining_objective
from albert.pretraining.evaluation import held_out_samples
from albert.pretraining.recipe import HardExamplesRecipe
from albert.pretraining.run import pretrain
from albert.text.shards import TokenCorpus

FOCUS = HardExamplesRecipe(focus=2.0)


@pytest.fixture
def model(tiny_recipe):
    torch.manual_seed(1)
    return AlbertForPreTraining(replace(tiny_recipe.model, initializer_range=0.2))


def masked_loss(model, *batches):
    return sum(pretraining_objective(model, batch).losses["masked_tokens"] for batch in batches)


def test_hardness_is_a_power_of_one_minus_the_probability():
    losses = -torch.tensor([0.9, 0.5, 0.1, 1e-9]).log()
    assert hardness(losses, 2.0).tolist() == pytest.approx([0.01, 0.25, 0.81, 1.0], rel=1e-5)
    assert hardness(losses, 0.0).tolist() == [1.0] * 4
    assert not hardness(losses.requires_grad_(), 2.0).requires_grad


def test_the_loss_is_a_weighted_sum_with_constant_weights(tiny_samples, model):
    (batch,) = PretrainingBatches(tiny_samples, 12, 12, FOCUS).micro_batches(0, 0, 1)
    logits = model(batch.packed, batch.masked_positions).masked_tokens
    losses = functional.cross_entropy(logits, batch.masked_labels, reduction="none")
    probability = logits.softmax(-1).gather(1, batch.masked_labels[:, None]).squeeze(1).detach()
    expected, loss = ((1 - probability) ** 2 * losses).sum(), masked_loss(model, batch)
    torch.testing.assert_close(loss, expected)
    bias = model.predictions.bias
    torch.testing.assert_close(*(torch.autograd.grad(value, bias)[0] for value in (loss, expected)))


def test_a_resumed_run_gives_the_same_bytes_and_evaluation_ignores_hard_examples(
    tiny_recipe, tiny_corpus, tmp_path, killed_at
):
    sequences = replace(tiny_recipe.sequences, max_length=64, neighbours_probability=0.5)
    hard = HardExamplesRecipe(focus=1.0, warmup_steps=5)
    recipe = replace(tiny_recipe, sequences=sequences, hard_examples=hard, checkpoint_every=4)
    pretrain(recipe, tiny_corpus, tmp_path / "reference", "cpu")
    with killed_at(15) as calls:
        pretrain(recipe, tiny_corpus, tmp_path / "resumed", "cpu")
    pretrain(recipe, tiny_corpus, tmp_path / "resumed", "cpu")
    assert [batch.focus for batch in calls[:14]] == [0.0] * 10 + [1.0] * 4
    assert model_bytes(tmp_path / "reference") == model_bytes(tmp_path / "resumed")
    plain = replace(
        recipe,
        sequences=replace(sequences, neighbours_probability=0.0),
        masking=replace(recipe.masking, share=0.4),  # evaluation always masks the paper's share
    )
    corpora = [TokenCorpus.open(tiny_corpus)]
    for hard, easy in zip(
        held_out_samples(recipe, corpora).batches, held_out_samples(plain, corpora).batches, strict=True
    ):
        assert hard.focus == 0.0 and torch.equal(hard.packed.token_ids, easy.packed.token_ids)
