"""Warm start: layers, positions, embedding map, token types."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.tiny import tiny_config

from albert.checkpoints.warm_start import block_origins, layer_origins, resize_positions, warm_start
from albert.model.albert import AlbertForPreTraining
from albert.model.packing import pack
from albert.model.sharing import sharing_plan
from albert.runtime.errors import InvalidConfiguration

BASE = tiny_config(50, num_hidden_layers=6, max_position_embeddings=20, initializer_range=0.3)


def model_of(config, seed):
    """A model whose biases and LayerNorms do not have their initial values."""
    torch.manual_seed(seed)
    model = AlbertForPreTraining(config).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    return model.eval()


def started(source, target, **options):
    """The trained model, the model initialised from it, and the result of `warm_start`."""
    trained, model = model_of(source, 1), model_of(target, 2)
    result = warm_start(trained.state_dict(), source, model.state_dict(), target, **options)
    model.load_state_dict(result.tensors)
    return trained, model, result


def outputs(model):
    draws = np.random.default_rng(0)
    ids = [draws.integers(0, 50, length) for length in (13, 5, 9)]
    packed = pack(ids, [np.zeros_like(sequence) for sequence in ids])
    logits = model(packed, torch.tensor([2, 7, 20]))
    return logits.masked_tokens, logits.sentence_order


def assert_same_outputs(a, b):
    torch.testing.assert_close(outputs(a), outputs(b), rtol=0, atol=1e-12)


UNSHARED = [
    ({}, {"sharing": "attention"}),
    ({}, {"sharing": "ffn"}),
    ({}, {"sharing": "none"}),
    ({}, {"num_hidden_groups": 3}),
    ({"num_hidden_groups": 2}, {"num_hidden_groups": 6}),
    ({"num_hidden_groups": 2}, {"sharing": "none"}),
    ({"sharing": "attention"}, {"sharing": "none"}),
    ({"sharing": "ffn"}, {"sharing": "none"}),
    ({"num_hidden_layers": 3, "inner_group_num": 2}, {"num_hidden_layers": 6, "inner_group_num": 1, "sharing": "none"}),
]


@pytest.mark.parametrize(("before", "after"), UNSHARED)
def test_undoing_sharing_keeps_outputs_and_gradients_sum_to_the_shared_one(before, after):
    source = replace(BASE, **before)
    target = replace(BASE, **after)
    trained, model, result = started(source, target)
    assert_same_outputs(trained, model)
    assert not result.drawn and not result.unused
    for each in (trained, model):
        sum(logits.square().sum() for logits in outputs(each)).backward()
    parameters = dict(model.named_parameters())
    for blocks in ("attentions", "feed_forwards"):
        origins = block_origins(source, target, blocks)
        for name, parameter in trained.named_parameters():
            if not name.startswith(f"albert.encoder.{blocks}."):
                continue
            block, _, rest = name.removeprefix(f"albert.encoder.{blocks}.").partition(".")
            copies = [new for new, old in enumerate(origins) if old == [int(block)]]
            total = sum(parameters[f"albert.encoder.{blocks}.{new}.{rest}"].grad for new in copies)
            assert len(copies) >= 1
            torch.testing.assert_close(total, parameter.grad, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("after", [{"sharing": "attention"}, {"sharing": "none"}, {"num_hidden_groups": 3}])
def test_sharing_can_be_undone_and_redone(after):
    trained, model, _ = started(BASE, replace(BASE, **after))
    back = warm_start(model.state_dict(), model.config, model_of(BASE, 3).state_dict(), BASE)
    state = trained.state_dict()
    assert list(back.tensors) == list(state)
    assert all(torch.equal(back.tensors[name], state[name]) for name in state)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"sharing": "none"}, {"sharing": "all"}),
        ({"sharing": "none"}, {"sharing": "attention"}),
        ({"sharing": "attention"}, {"sharing": "ffn"}),
        ({"num_hidden_groups": 3}, {"num_hidden_groups": 1}),
        ({"num_hidden_groups": 2}, {"num_hidden_groups": 3}),
    ],
)
def test_different_layers_cannot_be_shared(before, after):
    with pytest.raises(InvalidConfiguration):
        started(replace(BASE, **before), replace(BASE, **after))


@pytest.mark.parametrize(
    ("depth", "origins"), [(12, [0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5]), (3, [0, 2, 4]), (4, [0, 1, 3, 4]), (1, [0])]
)
def test_depth_repeats_layers_in_place_or_takes_evenly_spaced_ones(depth, origins):
    source = replace(BASE, sharing="none")
    trained, model, _ = started(source, replace(source, num_hidden_layers=depth))
    for layer, origin in enumerate(origins):
        for blocks in ("attentions", "feed_forwards"):
            actual = getattr(model.albert.encoder, blocks)[layer].state_dict()
            expected = getattr(trained.albert.encoder, blocks)[origin].state_dict()
            assert all(torch.equal(actual[name], expected[name]) for name in actual)


@given(groups=st.integers(1, 6), few=st.integers(1, 8), many=st.integers(1, 8), inner=st.integers(1, 3))
def test_layers_stay_in_their_group_at_every_depth(groups, few, many, inner):
    shape = {"num_hidden_groups": groups, "inner_group_num": inner}
    source = replace(BASE, num_hidden_layers=groups * few, **shape)
    target = replace(BASE, num_hidden_layers=groups * many, **shape)
    before = sharing_plan(source)
    assert [before[step] for step in layer_origins(source, target)] == list(sharing_plan(target))


def test_inner_layers_and_depth_cannot_change_together():
    with pytest.raises(InvalidConfiguration):
        started(BASE, replace(BASE, inner_group_num=2))


def test_embedding_map_is_added_as_identity_and_removed_only_if_identity():
    equal = replace(BASE, embedding_size=16)
    mapped = replace(equal, embedding_projection=True)
    trained, model, _ = started(equal, mapped)
    assert_same_outputs(trained, model)
    back = warm_start(model.state_dict(), mapped, model_of(equal, 3).state_dict(), equal)
    assert all(torch.equal(tensor, trained.state_dict()[name]) for name, tensor in back.tensors.items())
    with pytest.raises(InvalidConfiguration):
        started(mapped, equal)


def test_token_types_are_added_or_cut():
    trained, model, result = started(BASE, replace(BASE, type_vocab_size=3))
    table = "albert.embeddings.token_type_embeddings.weight"
    before, after = trained.state_dict()[table], model.state_dict()[table]
    assert torch.equal(after[:2], before) and "2 → 3 token types" in result.notes
    back = warm_start(model.state_dict(), model.config, trained.state_dict(), BASE)
    assert torch.equal(back.tensors[table], before)


# ---- positions -----------------------------------------------------------------------------------------------------

TABLE = torch.randn(6, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
EXTENDED = "6 → {} positions, {} trained ones repeated"


@pytest.mark.parametrize(
    ("length", "trained", "extend", "rows", "note"),
    [
        *((6, 6, extend, [*range(6)], None) for extend in (False, True)),
        *((4, 6, extend, [0, 1, 2, 3], "6 → 4 positions, the first ones") for extend in (False, True)),
        *((14, 6, extend, [*range(6), *range(6), 0, 1], EXTENDED.format(14, 6)) for extend in (False, True)),
        (6, 2, False, list(range(6)), None),  # untrained rows are kept
        (6, 2, True, [0, 1, 0, 1, 0, 1], EXTENDED.format(6, 2)),
        (8, 2, False, [0, 1, 0, 1, 0, 1, 0, 1], EXTENDED.format(8, 2)),
    ],
)
def test_positions_are_cut_or_repeated(length, trained, extend, rows, note):
    resized, actual_note = resize_positions(TABLE, length, trained, extend)
    assert torch.equal(resized, TABLE[rows])
    assert actual_note == note
