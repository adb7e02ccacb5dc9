"""Formulas for parameters, FLOPs and memory equal the paper's tables and what torch counts."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from tests.model.conftest import CPU, LiveTensors, pretraining_batch
from tests.tiny import tiny_config
from torch.utils.flop_counter import FlopCounterMode

from albert.model import cost, packing
from albert.model.albert import AlbertForPreTraining, AlbertModel
from albert.model.cost import (
    TrainingMemory,
    count_flops,
    count_parameters,
    count_training_memory,
    largest_batch,
    pretraining_flops,
)
from albert.model.packing import pack
from albert.optim import lamb
from albert.optim.optimizer import OptimizerRecipe, build_optimizer
from albert.pretraining.batches import pretraining_objective
from albert.pretraining.throughput import random_batch
from albert.recipes.architecture import PRESETS, EncoderConfig
from albert.runtime.devices import autocast

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
# preset -> without pooler, with pooler: the rows of the paper's tables and the releases, counted exactly
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
    # Tables 11 and 13: depth adds no parameters
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
DROPOUT = {"hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1}
WITHOUT_MAP = {"embedding_size": 16}


def changes_id(changes: dict) -> str:
    return " ".join(f"{name}={value}" for name, value in changes.items()) or "default"


def build_on_meta(kind: type[torch.nn.Module], config: EncoderConfig) -> torch.nn.Module:
    with torch.device("meta"):
        return kind(config)


# ---- parameters ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PRESETS)
def test_presets_have_the_exact_number_of_parameters(name):
    count = count_parameters(PRESETS[name])
    assert (count.encoder, count.model) == EXACT[name]
    assert count.pretraining == WITH_HEADS.get(name, count.pretraining)


SHARINGS = ("all", "attention", "ffn", "none")
CHANGES = [{"sharing": sharing, "embedding_size": size} for sharing in SHARINGS for size in (128, 768)]
CHANGES += [{"embedding_size": 768, "embedding_projection": True}]
CHANGES += [
    {"num_hidden_groups": groups, "inner_group_num": inner}
    for groups, inner in ((1, 1), (2, 1), (4, 1), (1, 2), (2, 2), (4, 3))
]


@pytest.mark.parametrize(
    "config",
    [*PRESETS.values(), *(replace(BASE, num_hidden_layers=4, **changes) for changes in CHANGES)],
    ids=[*PRESETS, *map(changes_id, CHANGES)],
)
def test_the_formula_counts_the_parameters_of_the_modules(config):
    count = count_parameters(config)
    assert count.model == sum(p.numel() for p in build_on_meta(AlbertModel, config).parameters())
    assert count.pretraining == sum(p.numel() for p in build_on_meta(AlbertForPreTraining, config).parameters())
    assert count.by_part()["pretraining"] == count.pretraining


# ---- floating-point operations ---------------------------------------------------------------------------------------


def test_sharing_does_not_change_flops():
    assert len({count_flops(replace(BASE, sharing=sharing)) for sharing in SHARINGS}) == 1
    assert count_flops(PRESETS["bert-base"]).feed_forward == count_flops(BASE).feed_forward


@pytest.mark.usefixtures("counted_products")
@pytest.mark.parametrize("embedding_size", [16, 32])
@pytest.mark.parametrize("inner", [1, 2])
def test_flops_of_the_forward_pass_equal_torchs_count(embedding_size, inner):
    sizes = {"embedding_size": embedding_size, "hidden_size": 32, "num_attention_heads": 4, "intermediate_size": 96}
    config = tiny_config(50, num_hidden_layers=3, inner_group_num=inner, **sizes)
    ids = np.arange(24) % config.vocab_size
    with FlopCounterMode(display=False) as counter:
        AlbertModel(config).eval()(pack([ids], [np.zeros_like(ids)]))
    flops = count_flops(config, sequence_length=24)
    assert counter.get_total_flops() == 24 * flops.forward
    assert flops.training == 3 * flops.forward


def flops_of_a_step(config, batch) -> int:
    with FlopCounterMode(display=False) as counter:
        sum(pretraining_objective(AlbertForPreTraining(config).train(), batch).losses.values()).backward()
    return counter.get_total_flops()


@pytest.mark.usefixtures("counted_products")
@pytest.mark.parametrize("lengths", [[24, 24], [12, 24, 36]])
@pytest.mark.parametrize("masked", [1, 4])
def test_flops_of_a_pretraining_step_equal_torchs_count(config, lengths, masked, monkeypatch):
    monkeypatch.setattr(packing, "FREE_PADDING", 0)
    batch = pretraining_batch(lengths, masked)
    assert all(group.padded is None for group in batch.packed.groups)
    recomputed = 2 * masked * len(lengths) * config.embedding_size * config.vocab_size  # logits, in the backward pass
    expected = pretraining_flops(config, lengths, masked * len(lengths))
    assert flops_of_a_step(config, batch) - recomputed == expected


# ---- training steps --------------------------------------------------------------------------------------------------


def test_training_state_has_four_floats_per_parameter(config):
    model = AlbertForPreTraining(config)
    optimizer = build_optimizer(OptimizerRecipe(), model)
    sum(pretraining_objective(model, pretraining_batch([12, 12], 2)).losses.values()).backward()
    optimizer.step()
    tensors = [tensor for parameter in model.parameters() for tensor in (parameter, parameter.grad)]
    tensors += [value for state in optimizer.state.values() for value in state.values() if torch.is_tensor(value)]
    memory = count_training_memory(config, batch_size=1, sequence_length=12)
    assert memory.weights + memory.gradients + memory.moments == sum(
        tensor.nbytes for tensor in tensors if tensor.dim()
    )


def live_in_training(config: EncoderConfig, precision: str, checkpointing: bool) -> int:
    """Peak in the second micro-batch, whose gradients are added to those of the first."""
    with LiveTensors() as live:
        model = AlbertForPreTraining(config).train()
        model.albert.encoder.checkpointing = checkpointing
        optimizer = build_optimizer(OptimizerRecipe(), model)
        for number in range(2):
            live.peak = 0
            with autocast(CPU, precision):
                losses = pretraining_objective(model, random_batch(config, 100, 4)).losses
            torch.stack(list(losses.values())).sum().backward()
            if number == 0:
                optimizer.step()
    return live.peak


@pytest.mark.parametrize(
    ("changes", "precision", "checkpointing"),
    [
        ({}, "fp32", False),
        ({}, "bf16", True),
        ({"sharing": "none"}, "fp32", True),
        ({"sharing": "none"}, "bf16", False),
        (DROPOUT, "fp32", False),
        (DROPOUT, "bf16", True),
        ({"vocab_size": 200}, "fp32", True),
    ],
)
def test_peak_of_a_training_step_is_within_a_tenth_of_the_formula(changes, precision, checkpointing):
    sizes = {"hidden_size": 128, "num_hidden_layers": 4, "num_attention_heads": 4, "intermediate_size": 512}
    config = replace(tiny_config(2000, embedding_size=32, max_position_embeddings=128, **sizes), **changes)
    planned = count_training_memory(
        config, batch_size=4, sequence_length=100, precision=precision, activation_checkpointing=checkpointing
    )
    assert planned.peak == pytest.approx(live_in_training(config, precision, checkpointing), rel=0.1)


@pytest.mark.parametrize("limit", [10**9, 8 * 10**9, 80 * 10**9])
def test_the_largest_batch_is_the_last_that_fits(limit):
    def memory_of(sequences: int) -> TrainingMemory:
        return count_training_memory(BASE, batch_size=sequences, sequence_length=512)

    largest = largest_batch(memory_of, limit)
    assert memory_of(largest).peak <= limit < memory_of(largest + 1).peak
    assert largest_batch(memory_of, memory_of(1).peak - 1) == 0


def test_lambs_update_buffer_holds_the_largest_tensor():
    """The 223 million parameters are not updated at once; the largest tensor is H x F."""
    assert cost.UPDATED_AT_ONCE == lamb.UPDATE_BUFFER
    xxlarge = PRESETS["albert-xxlarge"]
    memory = count_training_memory(xxlarge, batch_size=1, sequence_length=512)
    assert memory.update == 4 * xxlarge.hidden_size * xxlarge.intermediate_size < memory.weights
