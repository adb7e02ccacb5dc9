"""A model of one layer runs at any depth, as transformers would; one with layers of its own no deeper than it is."""

from dataclasses import replace

import pytest
import torch
import transformers

from albert.checkpoints.model_directory import save_model_directory
from albert.model.albert import AlbertForSequenceClassification, allowed_depths, plan_for_depth, set_depth
from albert.model.config import sharing_plan
from albert.model.packing import pack
from albert.runtime.errors import InvalidConfiguration


@pytest.mark.parametrize("inner", [1, 2])
@pytest.mark.parametrize("depth", [1, 2, 3, 7])
def test_a_shared_layer_at_any_depth_is_that_of_transformers(config, sequences_of, tmp_path, depth, inner):
    model = AlbertForSequenceClassification(replace(config, inner_group_num=inner), 3).eval()
    save_model_directory(tmp_path / "model", model, None)
    theirs = transformers.AlbertForSequenceClassification.from_pretrained(
        tmp_path / "model", num_hidden_layers=depth
    ).eval()
    set_depth(model, depth)
    (ids,), (types,) = sequences_of((20,))
    with torch.inference_mode():
        expected = theirs(input_ids=torch.from_numpy(ids)[None], token_type_ids=torch.from_numpy(types)[None]).logits
        torch.testing.assert_close(model(pack([ids], [types])), expected, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("changes", [{}, {"num_hidden_groups": 3}, {"sharing": "none"}, {"sharing": "attention"}])
def test_a_depth_is_the_first_layers(config, sequences_of, changes):
    model = AlbertForSequenceClassification(replace(config, **changes), 2).eval()
    packed = pack(*sequences_of((20, 11)))
    with torch.inference_mode():
        _, *states = model.albert.hidden_states(packed)
        for depth, state in enumerate(states, start=1):
            set_depth(model, depth)
            assert torch.equal(model(packed), model.head_outputs(state, packed))


def test_which_depths_a_sharing_plan_allows(config):
    assert allowed_depths(config) == range(1, 25)
    assert plan_for_depth(config, 5) == sharing_plan(replace(config, num_hidden_layers=5))
    for changes in ({"num_hidden_groups": 3}, {"sharing": "none"}, {"sharing": "ffn"}):
        own = replace(config, **changes)
        assert allowed_depths(own) == range(1, 4)
        with pytest.raises(InvalidConfiguration, match="is 4, the model has 3 layers, not all of them the same"):
            set_depth(AlbertForSequenceClassification(own, 2), 4)
    for depth in (0, -1, 25):
        with pytest.raises(InvalidConfiguration, match="choose one from 1 to 24"):
            set_depth(AlbertForSequenceClassification(config, 2), depth)
