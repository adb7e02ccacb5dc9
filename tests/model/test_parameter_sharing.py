"""Which layers are one layer, for every strategy (paper §3.1, Table 4)."""

from dataclasses import replace

import pytest
import torch

from albert.model.albert import AlbertForPreTraining, AlbertModel
from albert.model.config import n_attention_blocks, n_feed_forward_blocks, sharing_plan
from albert.model.packing import pack

LAYERS = 6


def blocks_in_order(config, sequences):
    """Run a model and say which attention and which feed-forward block (by identity) each application used."""
    model = AlbertModel(replace(config, num_hidden_layers=LAYERS) if config.num_hidden_layers == 3 else config)
    attentions, feed_forwards = [], []
    for block in model.encoder.attentions:
        block.register_forward_hook(lambda module, *_: attentions.append(id(module)))
    for block in model.encoder.feed_forwards:
        block.register_forward_hook(lambda module, *_: feed_forwards.append(id(module)))
    model(pack(*sequences))
    return numbered(attentions), numbered(feed_forwards)


def numbered(identities):
    """Identities as small numbers in the order in which they first appear."""
    seen = list(dict.fromkeys(identities))
    return [seen.index(identity) for identity in identities]


@pytest.fixture
def sequences(sequences_of):
    return sequences_of([5, 3])


ONE, OWN = [0] * LAYERS, list(range(LAYERS))


@pytest.mark.parametrize(
    ("changes", "attentions", "feed_forwards"),
    [
        ({}, ONE, ONE),
        ({"sharing": "attention"}, ONE, OWN),
        ({"sharing": "ffn"}, OWN, ONE),
        ({"sharing": "none"}, OWN, OWN),
        ({"num_hidden_groups": 3, "num_hidden_layers": 6}, [0, 0, 1, 1, 2, 2], [0, 0, 1, 1, 2, 2]),
        # inner layers of a group are applied in turn at every visit
        ({"num_hidden_groups": 2, "inner_group_num": 2, "num_hidden_layers": 4}, [0, 1, 0, 1, 2, 3, 2, 3], None),
    ],
)
def test_layers_use_the_blocks_that_the_strategy_says(config, sequences, changes, attentions, feed_forwards):
    assert blocks_in_order(replace(config, **changes), sequences) == (attentions, feed_forwards or attentions)


@pytest.mark.parametrize("layers", [*range(1, 13), 22, 23, 24, 26, 39, 43, 44, 45, 48])
def test_layer_i_belongs_to_group_i_times_groups_over_layers_for_every_number_of_layers(config, layers):
    """In floating point, as the reference has it, some groups would stay empty for 22, 23, 26, … layers."""
    for groups in (g for g in range(1, layers + 1) if layers % g == 0):
        shaped = replace(config, num_hidden_layers=layers, num_hidden_groups=groups)
        expected = [group for group in range(groups) for _ in range(layers // groups)]
        assert [step.attention for step in sharing_plan(shaped)] == expected
        assert [step.feed_forward for step in sharing_plan(shaped)] == expected
        assert n_attention_blocks(shaped) == n_feed_forward_blocks(shaped) == groups


@pytest.mark.parametrize("sharing", ["all", "attention", "ffn", "none"])
def test_a_shared_parameter_appears_once_among_the_parameters(config, sharing):
    model = AlbertForPreTraining(replace(config, sharing=sharing))
    parameters = list(model.parameters())
    assert len({id(parameter) for parameter in parameters}) == len(parameters)
    assert len({parameter.data_ptr() for parameter in parameters}) == len(parameters)
    attentions = 1 if sharing in ("all", "attention") else 3
    feed_forwards = 1 if sharing in ("all", "ffn") else 3
    names = [name for name, _ in model.named_parameters()]
    assert sum(name.endswith("query.weight") for name in names) == attentions
    assert sum(name.endswith("intermediate.weight") for name in names) == feed_forwards


def test_the_gradient_of_a_shared_layer_is_the_sum_over_its_uses(config, sequences):
    """The same values in layers of their own give gradients that add up to the shared one."""
    shared = AlbertModel(config).double()
    apart = AlbertModel(replace(config, sharing="none")).double()
    apart.embeddings.load_state_dict(shared.embeddings.state_dict())
    for own, common in ((apart.encoder.attentions, shared.encoder.attentions[0]),
                        (apart.encoder.feed_forwards, shared.encoder.feed_forwards[0])):  # fmt: skip
        for block in own:
            block.load_state_dict(common.state_dict())
    packed = pack(*sequences)
    weights = torch.randn(packed.n_tokens, config.hidden_size, dtype=torch.float64)
    for model in (shared, apart):
        (model(packed) * weights).sum().backward()
    summed = sum(block.query.weight.grad for block in apart.encoder.attentions)
    torch.testing.assert_close(shared.encoder.attentions[0].query.weight.grad, summed, rtol=1e-10, atol=1e-12)
    summed = sum(block.output.weight.grad for block in apart.encoder.feed_forwards)
    torch.testing.assert_close(shared.encoder.feed_forwards[0].output.weight.grad, summed, rtol=1e-10, atol=1e-12)
