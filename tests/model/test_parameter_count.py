"""Counts equal the paper's tables to the last parameter, and the modules themselves."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from tests.tiny import tiny_config
from torch.utils.flop_counter import FlopCounterMode

from albert.model.albert import AlbertForPreTraining, AlbertModel
from albert.model.config import PRESETS, AlbertConfig
from albert.model.cost import count_flops, count_parameters
from albert.model.packing import pack

# preset -> with pooler and both pre-training heads (Table 1, counted exactly; V = 30,000)
WITH_HEADS = {
    "albert-base": 11_813_810,
    "albert-large": 17_847_474,
    "albert-xlarge": 59_021_490,
    "albert-xxlarge": 223_158_450,
    "bert-base": 109_705_010,
    "bert-large": 335_691_058,
    "bert-xlarge": 1_279_526_194,
}
# preset -> without pooler, with pooler: every row of the paper's tables, and the releases, counted exactly
EXACT = {
    # Table 1
    "albert-base": (11_092_992, 11_683_584),
    "albert-large": (16_634_368, 17_683_968),
    "albert-xlarge": (54_528_512, 58_724_864),
    "albert-xxlarge": (205_814_272, 222_595_584),
    "bert-base": (108_490_752, 109_081_344),
    "bert-large": (333_557_760, 334_607_360),
    "bert-xlarge": (1_271_095_296, 1_275_291_648),
    # Table 3
    "albert-base-E64": (9_090_816, 9_681_408),
    "albert-base-E256": (15_097_344, 15_687_936),
    "albert-base-E768": (30_524_160, 31_114_752),
    "albert-base-E64-not-shared": (87_057_408, 87_648_000),
    "albert-base-not-shared": (89_059_584, 89_650_176),
    "albert-base-E256-not-shared": (93_063_936, 93_654_528),
    # Table 4
    "albert-base-shared-attention": (63_056_640, 63_647_232),
    "albert-base-shared-ffn": (37_095_936, 37_686_528),
    "albert-base-E768-shared-attention": (82_487_808, 83_078_400),
    "albert-base-E768-shared-ffn": (56_527_104, 57_117_696),
    # Tables 11 and 13: depth costs nothing
    **dict.fromkeys([f"albert-large-L{depth}" for depth in (1, 3, 6, 12, 48)], (16_634_368, 17_683_968)),
    "albert-xxlarge-L24": (205_814_272, 222_595_584),
    # Table 12
    "albert-large-L3-H2048": (54_528_512, 58_724_864),
    "albert-large-L3-H4096": (205_814_272, 222_595_584),
    "albert-large-L3-H6144": (457_763_328, 495_518_208),
    # Releases
    "albert-base-v1": (11_092_992, 11_683_584),
    "albert-large-v1": (16_634_368, 17_683_968),
    "albert-xlarge-v1": (54_528_512, 58_724_864),
    "albert-base-zh": (9_957_376, 10_547_968),
    "albert-large-zh": (15_498_752, 16_548_352),
    "albert-xlarge-zh": (53_392_896, 57_589_248),
    "albert-xxlarge-zh": (204_678_656, 221_459_968),
    "bert-base-uncased": (108_891_648, 109_482_240),
    "bert-large-uncased": (334_092_288, 335_141_888),
}
BASE = PRESETS["albert-base"]


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_has_its_exact_size(name: str) -> None:
    count = count_parameters(PRESETS[name])
    assert (count.encoder, count.model) == EXACT[name]


@pytest.mark.parametrize("name", WITH_HEADS)
def test_both_heads_are_counted_exactly(name: str) -> None:
    assert count_parameters(PRESETS[name]).pretraining == WITH_HEADS[name]


@pytest.mark.parametrize("width", [768, 1024])
def test_a_forced_projection_adds_what_transformers_adds(width: int) -> None:
    config = replace(
        BASE,
        embedding_size=width,
        hidden_size=width,
        num_attention_heads=width // 64,
        intermediate_size=4 * width,
    )
    extra = count_parameters(replace(config, embedding_projection=True)).model - count_parameters(config).model
    assert extra == {768: 590_592, 1024: 1_049_600}[width]


@pytest.mark.parametrize("name", PRESETS)
def test_the_formula_counts_every_preset_as_its_modules_do(name: str) -> None:
    _assert_equals_modules(PRESETS[name])


@pytest.mark.parametrize("sharing", ["all", "attention", "ffn", "none"])
@pytest.mark.parametrize("projected", [True, False])
def test_the_formula_counts_every_sharing_as_its_modules_do(sharing: str, projected: bool) -> None:
    _assert_equals_modules(
        replace(BASE, sharing=sharing, embedding_size=128 if projected else 768, num_hidden_layers=4)
    )


@pytest.mark.parametrize(("groups", "inner"), [(1, 1), (2, 1), (4, 1), (1, 2), (2, 2), (4, 3)])
def test_the_formula_counts_groups_as_their_modules_do(groups: int, inner: int) -> None:
    config = replace(BASE, num_hidden_layers=4, num_hidden_groups=groups, inner_group_num=inner)
    _assert_equals_modules(config)
    one = count_parameters(replace(config, num_hidden_groups=1, inner_group_num=1))
    assert count_parameters(config).attention == groups * inner * one.attention


@pytest.mark.parametrize(
    ("name", "millions"),
    [("albert-base", 84.9), ("albert-large", 302.0), ("albert-xlarge", 1208.0), ("albert-xxlarge", 2415.9)],
)
def test_blocks_cost_the_known_multiplications(name: str, millions: float) -> None:
    flops = count_flops(PRESETS[name])
    assert round((flops.attention_weights + flops.feed_forward) / 2 / 1e6, 1) == millions


def test_sharing_never_changes_the_work() -> None:
    costs = {count_flops(replace(BASE, sharing=sharing)) for sharing in ("all", "attention", "ffn", "none")}
    assert len(costs) == 1
    assert count_flops(PRESETS["bert-base"]).feed_forward == count_flops(BASE).feed_forward


@pytest.mark.usefixtures("counted_products")
@pytest.mark.parametrize("embedding_size", [16, 32])
@pytest.mark.parametrize("inner", [1, 2])
def test_the_work_equals_what_torch_counts(embedding_size: int, inner: int) -> None:
    config = tiny_config(
        50,
        embedding_size=embedding_size,
        hidden_size=32,
        num_hidden_layers=3,
        inner_group_num=inner,
        num_attention_heads=4,
        intermediate_size=96,
    )
    length = 24
    ids = np.arange(length) % config.vocab_size
    with FlopCounterMode(display=False) as counter:
        AlbertModel(config).eval()(pack([ids], [np.zeros_like(ids)]))
    flops = count_flops(config, sequence_length=length)
    assert counter.get_total_flops() == length * flops.forward
    assert flops.training == 3 * flops.forward


def _on_meta(kind: type[torch.nn.Module], config: AlbertConfig) -> torch.nn.Module:
    with torch.device("meta"):
        return kind(config)


def _assert_equals_modules(config: AlbertConfig) -> None:
    count = count_parameters(config)
    assert count.model == sum(p.numel() for p in _on_meta(AlbertModel, config).parameters())
    assert count.pretraining == sum(p.numel() for p in _on_meta(AlbertForPreTraining, config).parameters())
    assert count.by_part()["pretraining"] == count.pretraining
