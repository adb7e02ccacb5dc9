"""Counts equal the paper's tables to the last parameter, and the modules themselves."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from albert.model.albert import AlbertForPreTraining, AlbertModel
from albert.model.config import AlbertConfig
from albert.model.packed_sequences import pack
from albert.model.parameter_count import count_flops, count_parameters
from albert.model.presets import PRESETS

# preset -> without pooler, with pooler, with both heads (Table 1, counted exactly; V = 30,000)
TABLE_1 = {
    "albert-base": (11_092_992, 11_683_584, 11_813_810),
    "albert-large": (16_634_368, 17_683_968, 17_847_474),
    "albert-xlarge": (54_528_512, 58_724_864, 59_021_490),
    "albert-xxlarge": (205_814_272, 222_595_584, 223_158_450),
    "bert-base": (108_490_752, 109_081_344, 109_705_010),
    "bert-large": (333_557_760, 334_607_360, 335_691_058),
    "bert-xlarge": (1_271_095_296, 1_275_291_648, 1_279_526_194),
}
# embedding size -> not shared, all shared; each without and with pooler (Table 3)
TABLE_3 = {
    64: ((87_057_408, 87_648_000), (9_090_816, 9_681_408)),
    128: ((89_059_584, 89_650_176), (11_092_992, 11_683_584)),
    256: ((93_063_936, 93_654_528), (15_097_344, 15_687_936)),
    768: ((108_490_752, 109_081_344), (30_524_160, 31_114_752)),
}
# (embedding size, sharing) -> with pooler (Table 4)
TABLE_4 = {
    (768, "all"): 31_114_752,
    (768, "attention"): 83_078_400,
    (768, "ffn"): 57_117_696,
    (768, "none"): 109_081_344,
    (128, "all"): 11_683_584,
    (128, "attention"): 63_647_232,
    (128, "ffn"): 37_686_528,
    (128, "none"): 89_650_176,
}
BASE = PRESETS["albert-base"]


@pytest.mark.parametrize("name", TABLE_1)
def test_presets_have_the_sizes_of_table_1(name: str) -> None:
    count = count_parameters(PRESETS[name])
    assert (count.encoder, count.model, count.pretraining) == TABLE_1[name]


@pytest.mark.parametrize("embedding_size", TABLE_3)
def test_embedding_sizes_have_the_sizes_of_table_3(embedding_size: int) -> None:
    sizes = [
        count_parameters(replace(BASE, embedding_size=embedding_size, sharing=sharing)) for sharing in ("none", "all")
    ]
    assert tuple((size.encoder, size.model) for size in sizes) == TABLE_3[embedding_size]


@pytest.mark.parametrize(("embedding_size", "sharing"), TABLE_4)
def test_sharing_strategies_have_the_sizes_of_table_4(embedding_size: int, sharing: str) -> None:
    config = replace(BASE, embedding_size=embedding_size, sharing=sharing)
    assert count_parameters(config).model == TABLE_4[embedding_size, sharing]


@pytest.mark.parametrize(
    ("vocab_size", "name", "encoder", "model"),
    [
        (30_522, "bert-base", 108_891_648, 109_482_240),
        (30_522, "bert-large", 334_092_288, 335_141_888),
        (21_128, "albert-base", None, 10_547_968),
        (21_128, "albert-large", None, 16_548_352),
        (21_128, "albert-xlarge", None, 57_589_248),
        (21_128, "albert-xxlarge", None, 221_459_968),
    ],
)
def test_other_vocabularies_change_only_the_embedding(
    vocab_size: int, name: str, encoder: int | None, model: int
) -> None:
    count = count_parameters(replace(PRESETS[name], vocab_size=vocab_size))
    assert count.model == model
    assert encoder is None or count.encoder == encoder


def test_the_widest_model_of_table_12() -> None:
    config = replace(BASE, hidden_size=6144, num_hidden_layers=3, num_attention_heads=96, intermediate_size=4 * 6144)
    assert count_parameters(config).model == 495_518_208


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


@pytest.mark.parametrize("embedding_size", [16, 32])
@pytest.mark.parametrize("inner", [1, 2])
def test_the_work_equals_what_torch_counts(embedding_size: int, inner: int) -> None:
    config = AlbertConfig(
        vocab_size=50,
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
