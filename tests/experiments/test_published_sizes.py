"""What is published goes together with what is counted, or the table says why not."""

from dataclasses import replace
from itertools import product

import pytest

from albert.experiments.sizes import PUBLISHED_SIZES, REMARKS, PublishedSize, differences, preset_of_shape
from albert.model.config import PRESETS
from albert.model.cost import count_parameters

EVERY_SIZE = [(name, size) for name, sizes in PUBLISHED_SIZES.items() for size in sizes]
STATED = {
    # Tables 1 and 2
    **{"albert-base": "12M", "albert-large": "18M", "albert-xlarge": "60M", "albert-xxlarge": "235M"},
    **{"bert-base": "108M", "bert-large": "334M", "bert-xlarge": "1270M"},
    # Table 3
    **{"albert-base-E64": "10M", "albert-base-E256": "16M", "albert-base-E768": "31M"},
    **{
        "albert-base-E64-not-shared": "87M",
        "albert-base-not-shared": "89M",
        "albert-base-E256-not-shared": "93M",
    },
    # Table 4
    **{"albert-base-shared-attention": "64M", "albert-base-shared-ffn": "38M"},
    **{"albert-base-E768-shared-attention": "83M", "albert-base-E768-shared-ffn": "57M"},
    # Tables 11 and 12
    **{f"albert-large-L{depth}": "18M" for depth in (1, 3, 6, 12, 48)},
    **{"albert-large-L3-H2048": "60M", "albert-large-L3-H4096": "225M", "albert-large-L3-H6144": "499M"},
}


@pytest.mark.parametrize("name", STATED)
def test_every_row_of_the_papers_tables_is_stated_as_printed(name: str) -> None:
    assert PUBLISHED_SIZES[name][0].stated == STATED[name]


@pytest.mark.parametrize(("name", "size"), EVERY_SIZE, ids=lambda value: getattr(value, "stated", value))
def test_a_counting_that_is_named_gives_the_figure(name: str, size: PublishedSize) -> None:
    if size.counted is not None:
        assert round(size.exact / 1e6) == size.millions
    assert size.reason


@pytest.mark.parametrize(("name", "size"), EVERY_SIZE, ids=lambda value: getattr(value, "stated", value))
def test_where_no_counting_is_named_there_is_none_whatever_parts_are_counted(name: str, size: PublishedSize) -> None:
    count = count_parameters(PRESETS[name])
    parts = (count.pooler, count.masked_language_model_head, count.sentence_order_head)
    sums = {
        count.encoder + sum(part for part, counted in zip(parts, chosen, strict=True) if counted)
        for chosen in product((True, False), repeat=3)
    }
    assert (size.millions in {round(total / 1e6) for total in sums}) == (size.counted is not None)


def test_what_is_said_of_a_preset_is_said_of_one_that_exists() -> None:
    assert set(PUBLISHED_SIZES) <= set(PRESETS) and set(REMARKS) <= set(PRESETS)


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_has_its_own_shape(name: str) -> None:
    assert preset_of_shape(PRESETS[name]) == name
    assert differences(PRESETS[name], name) == {}


def test_a_model_has_the_shape_of_the_preset_it_differs_least_from() -> None:
    from_the_hub = replace(PRESETS["albert-base-v1"], hidden_act="gelu")
    assert preset_of_shape(from_the_hub) == "albert-base-v1"
    assert differences(from_the_hub, "albert-base-v1") == {"hidden_act": ("gelu", "gelu_new")}
    sixteen = replace(PRESETS["albert-xlarge"], num_attention_heads=16)
    assert differences(sixteen, "albert-xlarge") == {"num_attention_heads": (16, 32)}
    assert preset_of_shape(replace(PRESETS["albert-base"], num_hidden_layers=5)) is None
    assert preset_of_shape(replace(PRESETS["albert-base"], vocab_size=30_001)) is None


def test_a_group_for_each_layer_is_nothing_shared() -> None:
    grouped = replace(PRESETS["albert-base"], num_hidden_groups=12)
    assert preset_of_shape(grouped) == "albert-base-not-shared"
    assert differences(grouped, "albert-base-not-shared") == {}


def test_a_map_that_only_transformers_has_is_a_difference() -> None:
    mapped = replace(PRESETS["albert-base-E768"], embedding_projection=True)
    assert preset_of_shape(mapped) == "albert-base-E768"
    assert differences(mapped, "albert-base-E768") == {"embedding_projection": (True, False)}
