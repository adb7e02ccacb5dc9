"""Factorised embeddings, tied output matrix, heads, initial values, mixed precision."""

from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.nn import functional

from albert.model.albert import (
    AlbertForPreTraining,
    AlbertForQuestionAnswering,
    AlbertForSequenceClassification,
    AlbertModel,
)
from albert.model.packing import pack
from albert.runtime.devices import autocast

LENGTHS = (9, 4, 12)


@pytest.fixture
def packed(sequences_of):
    return pack(*sequences_of(LENGTHS))


@pytest.mark.parametrize(
    ("changes", "present"),
    [
        ({}, True),
        ({"embedding_size": 16}, False),
        ({"embedding_size": 16, "embedding_projection": False}, False),
        ({"embedding_size": 16, "embedding_projection": True}, True),
        ({"embedding_size": 32}, True),
    ],
)
def test_the_map_from_e_to_h_is_there_exactly_when_they_differ_or_it_is_asked_for(config, packed, changes, present):
    model = AlbertModel(replace(config, **changes))
    assert (model.embeddings.projection is not None) == present
    assert any("projection" in name for name, _ in model.named_parameters()) == present
    assert model(packed).shape == (sum(LENGTHS), config.hidden_size)


def test_the_output_matrix_is_the_embedding_table(config, packed):
    model = AlbertForPreTraining(config)
    table = model.albert.embeddings.word_embeddings.weight
    assert [name for name, p in model.named_parameters() if config.vocab_size in p.shape] == [
        "albert.embeddings.word_embeddings.weight",
        "predictions.bias",
    ]
    positions = torch.tensor([2, 10])
    before = model(packed, positions).masked_tokens
    unseen = sorted(set(range(config.vocab_size)) - set(packed.token_ids.tolist()))[0]
    with torch.no_grad():
        table[unseen] += 1.0
    after = model(packed, positions).masked_tokens
    changed = (after != before).any(dim=0).nonzero().flatten().tolist()
    assert changed == [unseen]


def test_the_embedding_table_gets_a_gradient_from_both_of_its_uses(config, packed):
    model = AlbertForPreTraining(config).double()
    table = model.albert.embeddings.word_embeddings.weight
    positions, labels = torch.tensor([2, 10]), torch.tensor([3, 7])

    def gradient(as_input: bool, as_output: bool) -> torch.Tensor:
        model.zero_grad()
        model.albert.embeddings.word_embeddings.weight.requires_grad_()
        hidden = model.albert(packed)
        hidden = hidden if as_input else hidden.detach()
        words = table if as_output else table.detach()
        functional.cross_entropy(model.predictions(hidden[positions], words), labels).backward()
        return table.grad.clone()

    whole, below, above = gradient(True, True), gradient(True, False), gradient(False, True)
    assert below.abs().sum() > 0 and above.abs().sum() > 0
    torch.testing.assert_close(whole, below + above, rtol=1e-10, atol=1e-14)
    model.zero_grad()
    functional.cross_entropy(model(packed, positions).masked_tokens, labels).backward()
    torch.testing.assert_close(table.grad, whole, rtol=1e-10, atol=1e-14)


def test_masked_logits_are_computed_for_the_asked_positions_alone(config, packed):
    model = AlbertForPreTraining(config).eval()
    everywhere = model(packed, torch.arange(packed.n_tokens)).masked_tokens
    positions = torch.tensor([3, 3, 20, 0])
    torch.testing.assert_close(model(packed, positions).masked_tokens, everywhere[positions])
    assert model(packed, torch.tensor([], dtype=torch.long)).masked_tokens.shape == (0, config.vocab_size)


def test_the_pooler_reads_the_first_token_of_each_sequence(config, packed):
    model = AlbertModel(config)
    hidden = model(packed)
    expected = torch.tanh(model.pooler(hidden[[0, 9, 13]]))
    torch.testing.assert_close(model.pool(hidden, packed), expected)


def test_heads_have_the_shapes_of_their_tasks(config, packed):
    assert AlbertForSequenceClassification(config, num_labels=5)(packed).shape == (3, 5)
    assert AlbertForSequenceClassification(config, num_labels=1)(packed).shape == (3, 1)
    model = AlbertForQuestionAnswering(config)
    assert model.albert.pooler is None
    start, end = model(packed)
    assert start.shape == end.shape == (sum(LENGTHS),)
    assert not torch.equal(start, end)


@pytest.mark.parametrize("sharing", ["all", "none"])
def test_initial_values_are_a_normal_distribution_cut_at_two_deviations_and_biases_zero(config, sharing):
    shaped = replace(config, hidden_size=64, embedding_size=32, vocab_size=500, initializer_range=0.02, sharing=sharing)
    torch.manual_seed(3)
    for model in (AlbertForPreTraining(shaped), AlbertForSequenceClassification(shaped, 3)):
        matrices = []
        for module in model.modules():
            if isinstance(module, nn.LayerNorm):
                assert (module.weight == 1).all() and (module.bias == 0).all()
            elif isinstance(module, nn.Linear | nn.Embedding):
                matrices.append(module.weight.detach().flatten())
        for name, parameter in model.named_parameters():
            if name.endswith("bias"):
                assert (parameter == 0).all(), name
        values = torch.cat(matrices)
        assert float(values.abs().max()) <= 0.04
        assert float(values.abs().max()) > 0.0395
        # A normal distribution cut at two standard deviations has 0.8796 of the deviation.
        assert abs(float(values.std()) / 0.02 - 0.8796) < 0.01
        assert abs(float(values.mean())) < 0.0005
        assert all(float(matrix.std()) > 0.015 for matrix in matrices if len(matrix) > 200)


def test_equal_seeds_give_equal_initial_values(config):
    models = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        models.append(AlbertForPreTraining(config))
    weights = [model.albert.encoder.attentions[0].query.weight for model in models]
    assert torch.equal(weights[0], weights[1]) and not torch.equal(weights[0], weights[2])


def test_bf16_is_close_to_fp32(config, packed):
    model = AlbertForPreTraining(replace(config, initializer_range=0.1))
    positions, labels = torch.tensor([1, 10, 20]), torch.tensor([3, 7, 11])
    logits, gradients = {}, {}
    for precision in ("fp32", "bf16"):
        model.zero_grad()
        with autocast(torch.device("cpu"), precision):
            found = model(packed, positions)
        logits[precision] = found.masked_tokens.float().detach()
        (functional.cross_entropy(found.masked_tokens.float(), labels) + found.sentence_order.float().sum()).backward()
        gradients[precision] = torch.cat([parameter.grad.flatten() for parameter in model.parameters()])
        assert gradients[precision].dtype == torch.float32 and gradients[precision].isfinite().all()
    assert not torch.equal(logits["fp32"], logits["bf16"])
    error = (logits["bf16"] - logits["fp32"]).norm() / logits["fp32"].norm()
    assert error < 0.02
    assert functional.cosine_similarity(gradients["bf16"], gradients["fp32"], dim=0) > 0.999


def test_dropout_is_drawn_anew_while_training_and_absent_in_evaluation(config, packed):
    model = AlbertModel(replace(config, hidden_dropout_prob=0.3, attention_probs_dropout_prob=0.3))
    assert not torch.equal(model(packed), model(packed))
    model.eval()
    assert torch.equal(model(packed), model(packed))
