"""Starting from a trained model: layers and positions."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.tiny import tiny_config

from albert.checkpoints.warm_start import block_origins, layer_origins, positions_note, resize_positions, warm_start
from albert.model.albert import AlbertForPreTraining
from albert.model.config import sharing_plan
from albert.model.packing import pack
from albert.runtime.errors import InvalidConfiguration

# --------------------------------------------------------------------------------------------------------------------
# What a warm start keeps: outputs where sharing is undone, tensors where depth changes; what it refuses.


BASE = tiny_config(50, num_hidden_layers=6, max_position_embeddings=20, initializer_range=0.3)


def model_of(config, seed):
    """A model whose biases and LayerNorms are not at their initial values either."""
    torch.manual_seed(seed)
    model = AlbertForPreTraining(config).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    return model.eval()


def started(source, target, **options):
    """The trained model, the one that begins from it, and what was said."""
    trained, fresh = model_of(source, 1), model_of(target, 2)
    result = warm_start(trained.state_dict(), source, fresh.state_dict(), target, **options)
    fresh.load_state_dict(result.tensors)
    return trained, fresh, result


def outputs(model):
    draws = np.random.default_rng(0)
    ids = [draws.integers(0, 50, length) for length in (13, 5, 9)]
    packed = pack(ids, [np.zeros_like(some) for some in ids])
    logits = model(packed, torch.tensor([2, 7, 20]))
    return logits.masked_tokens, logits.sentence_order


def same_outputs(one, two):
    for a, b in zip(outputs(one), outputs(two), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-12)


UNSHARED = [
    ({}, {"sharing": "attention"}),
    ({}, {"sharing": "ffn"}),
    ({}, {"sharing": "none"}),
    ({}, {"num_hidden_groups": 3}),
    ({"num_hidden_groups": 2}, {"num_hidden_groups": 6}),
    ({"num_hidden_groups": 2}, {"sharing": "none"}),
    ({"sharing": "attention"}, {"sharing": "none"}),
    ({"sharing": "ffn"}, {"sharing": "none"}),
    (
        {"num_hidden_layers": 3, "inner_group_num": 2},
        {"num_hidden_layers": 6, "inner_group_num": 1, "sharing": "none"},
    ),
]


@pytest.mark.parametrize(("before", "after"), UNSHARED)
def test_undoing_sharing_changes_no_output_and_gradients_sum_to_the_shared_one(before, after):
    source = replace(BASE, **before)
    target = replace(BASE, **after)
    trained, model, result = started(source, target)
    same_outputs(trained, model)
    assert not result.drawn and not result.unused
    for some in (trained, model):
        sum(part.square().sum() for part in outputs(some)).backward()
    gradients = dict(model.named_parameters())
    for room in ("attentions", "feed_forwards"):
        origins = block_origins(source, target, room)
        for name, parameter in trained.named_parameters():
            if not name.startswith(f"albert.encoder.{room}."):
                continue
            block, _, rest = name.removeprefix(f"albert.encoder.{room}.").partition(".")
            copies = [new for new, old in enumerate(origins) if old == [int(block)]]
            summed = sum(gradients[f"albert.encoder.{room}.{new}.{rest}"].grad for new in copies)
            assert len(copies) >= 1
            torch.testing.assert_close(summed, parameter.grad, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("after", [{"sharing": "attention"}, {"sharing": "none"}, {"num_hidden_groups": 3}])
def test_sharing_is_undone_and_done_again_without_loss(after):
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
def test_layers_that_differ_never_become_one(before, after):
    with pytest.raises(InvalidConfiguration, match="layers that differ would have to be one"):
        started(replace(BASE, **before), replace(BASE, **after))


@pytest.mark.parametrize(
    ("depth", "origins"),
    [(12, [0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5]), (3, [0, 2, 4]), (4, [0, 1, 3, 4]), (1, [0])],
)
def test_unshared_layers_repeat_in_place_and_are_left_out_evenly(depth, origins):
    source = replace(BASE, sharing="none")
    trained, model, _ = started(source, replace(source, num_hidden_layers=depth))
    for layer, origin in enumerate(origins):
        for room in ("attentions", "feed_forwards"):
            ours = getattr(model.albert.encoder, room)[layer].state_dict()
            theirs = getattr(trained.albert.encoder, room)[origin].state_dict()
            assert all(torch.equal(ours[name], theirs[name]) for name in ours)


@given(groups=st.integers(1, 6), few=st.integers(1, 8), many=st.integers(1, 8), inner=st.integers(1, 3))
def test_a_layer_stays_in_its_group_at_every_depth(groups, few, many, inner):
    shape = {"num_hidden_groups": groups, "inner_group_num": inner}
    source = replace(BASE, num_hidden_layers=groups * few, **shape)
    target = replace(BASE, num_hidden_layers=groups * many, **shape)
    before = sharing_plan(source)
    assert [before[step] for step in layer_origins(source, target)] == list(sharing_plan(target))


def test_inner_layers_and_depth_do_not_change_together():
    with pytest.raises(InvalidConfiguration, match="inner_group_num: is 1 in the trained model and 2 here"):
        started(BASE, replace(BASE, inner_group_num=2))


def test_a_map_of_embeddings_appears_as_the_identity_and_vanishes_only_then():
    equal = replace(BASE, embedding_size=16)
    mapped = replace(equal, embedding_projection=True)
    trained, model, _ = started(equal, mapped)
    same_outputs(trained, model)
    back = warm_start(model.state_dict(), mapped, model_of(equal, 3).state_dict(), equal)
    assert all(torch.equal(tensor, trained.state_dict()[name]) for name, tensor in back.tensors.items())
    with pytest.raises(InvalidConfiguration, match="map from E to H is not the identity"):
        started(mapped, equal)


def test_a_third_token_type_is_drawn_and_fewer_are_the_first():
    trained, model, result = started(BASE, replace(BASE, type_vocab_size=3))
    table = "albert.embeddings.token_type_embeddings.weight"
    before, after = trained.state_dict()[table], model.state_dict()[table]
    assert torch.equal(after[:2], before) and "2 → 3 token types" in result.notes
    back = warm_start(model.state_dict(), model.config, trained.state_dict(), BASE)
    assert torch.equal(back.tensors[table], before)


# --------------------------------------------------------------------------------------------------------------------
# More positions by tiling or interpolation, fewer by cutting; rows that training never reached are not built on.


TABLE = torch.randn(6, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
BETWEEN = [0, 0.5, 1, 1.5, 2, 2.5, 3, 3.5, 4, 4.5, 5]


@pytest.mark.parametrize(
    ("wanted", "trained", "how", "rows"),
    [
        *((4, 6, how, [0, 1, 2, 3]) for how in (None, "tile", "interpolate")),  # fewer are the first
        *((14, 6, how, [*range(6), *range(6), 0, 1]) for how in (None, "tile")),
        (11, 6, "interpolate", BETWEEN),
        (6, 2, None, list(range(6))),  # rows that were never trained stay unless they are asked for
        (6, 2, "tile", [0, 1, 0, 1, 0, 1]),
        (8, 2, None, [0, 1, 0, 1, 0, 1, 0, 1]),
        (3, 2, "interpolate", [0, 0.5, 1]),
        (3, 1, "interpolate", [0, 0, 0]),
    ],
)
def test_positions_are_cut_repeated_or_interpolated(wanted, trained, how, rows):
    """A half is the row between two neighbours."""
    expected = [(TABLE[int(row)] + TABLE[int(row + 0.5)]) / 2 for row in rows]
    torch.testing.assert_close(resize_positions(TABLE, wanted, trained, how), torch.stack(expected))


@pytest.mark.parametrize(
    ("arguments", "note"),
    [
        ((512, 512, 512, None), None),
        ((512, 512, 512, "tile"), None),
        ((512, 128, 512, None), "512 → 128 positions, the first ones"),
        ((512, 1024, 512, None), "512 → 1,024 positions, 512 trained ones extended by tile"),
        ((512, 512, 128, "interpolate"), "512 → 512 positions, 128 trained ones extended by interpolate"),
    ],
)
def test_the_change_in_words(arguments, note):
    assert positions_note(*arguments) == note
