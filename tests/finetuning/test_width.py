"""The rates of the paper are for its models: they stay, and a narrower model gets more."""

import pytest

from albert.finetuning.width import rate_for_width
from albert.model.presets import PRESETS


@pytest.mark.parametrize("preset", ["albert-base", "albert-large", "albert-xlarge", "albert-xxlarge", "bert-base"])
def test_published_models_learn_at_published_rates(preset):
    assert rate_for_width(PRESETS[preset].hidden_size) == 1.0


@pytest.mark.parametrize(("hidden_size", "factor"), [(384, 2.0), (256, 3.0), (128, 6.0)])
def test_half_the_width_is_twice_the_rate(hidden_size, factor):
    assert rate_for_width(hidden_size) == factor
