"""The plan of a training step is what is live at the peak of real steps; the largest batch is the last that fits."""

from dataclasses import replace

import pytest
import torch
from tests.model.conftest import LiveTensors
from tests.tiny import tiny_config

from albert.experiments.sizes import random_batch
from albert.model import cost as training_memory
from albert.model import heads as streamed_cross_entropy
from albert.model.albert import AlbertForPreTraining
from albert.model.config import PRESETS, AlbertConfig
from albert.model.cost import count_training_memory, largest_batch
from albert.optim import lamb as slots
from albert.optim.optimizer import OptimizerRecipe, build_optimizer
from albert.pretraining.batches import pretraining_objective

CONFIG = tiny_config(
    2000,
    embedding_size=32,
    hidden_size=128,
    num_hidden_layers=4,
    num_attention_heads=4,
    intermediate_size=512,
    max_position_embeddings=128,
)


def live_in_training(config: AlbertConfig, sequences: int, length: int, precision: str, checkpointing: bool) -> int:
    """At the peak of a micro-batch after the first update, whose gradients are added to others."""
    with LiveTensors() as live:
        model = AlbertForPreTraining(config).train()
        model.albert.encoder.checkpointing = checkpointing
        optimizer = build_optimizer(OptimizerRecipe(), model)
        for number in range(2):
            live.peak = 0
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=precision == "bf16"):
                losses = pretraining_objective(model, random_batch(config, length, sequences)).losses
            torch.stack(list(losses.values())).sum().backward()
            if number == 0:
                optimizer.step()
    return live.peak


@pytest.mark.parametrize("checkpointing", [False, True])
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize(
    "changes",
    [{}, {"sharing": "none"}, {"hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1}, {"vocab_size": 200}],
    ids=lambda changes: " ".join(f"{name}={value}" for name, value in changes.items()) or "as it is",
)
@pytest.mark.parametrize("logits_at_once", [1 << 22, 40_000])
def test_the_plan_is_what_is_live_at_the_peak(changes, precision, checkpointing, logits_at_once, monkeypatch) -> None:
    for module in (streamed_cross_entropy, training_memory):
        monkeypatch.setattr(module, "LOGITS_AT_ONCE", logits_at_once)
    config = replace(CONFIG, **changes)
    planned = count_training_memory(
        config, batch_size=4, sequence_length=100, precision=precision, activation_checkpointing=checkpointing
    )
    assert planned.peak == pytest.approx(live_in_training(config, 4, 100, precision, checkpointing), rel=0.05)


def test_checkpointing_keeps_what_goes_into_layers_and_one_layer_more() -> None:
    config = PRESETS["albert-base"]
    kept, checkpointed = (
        count_training_memory(config, batch_size=8, sequence_length=512, activation_checkpointing=some)
        for some in (False, True)
    )
    assert checkpointed.layers == 8 * 12 * 512 * 768 * 4
    assert checkpointed.recomputed_layer == kept.layers // 12 and kept.recomputed_layer == 0
    assert checkpointed.peak < 0.4 * kept.peak


def test_layers_that_share_hold_their_gradients_and_moments_once() -> None:
    albert, bert = (
        count_training_memory(PRESETS[name], batch_size=1, sequence_length=128) for name in ("albert-base", "bert-base")
    )
    assert albert.layers == bert.layers
    for part in ("weights", "gradients", "moments"):
        assert 9 < getattr(bert, part) / getattr(albert, part) < 10


@pytest.mark.parametrize("limit", [10**9, 8 * 10**9, 80 * 10**9])
def test_one_sequence_more_than_the_largest_batch_is_too_much(limit) -> None:
    def memory_of(sequences: int) -> training_memory.TrainingMemory:
        return count_training_memory(PRESETS["albert-base"], batch_size=sequences, sequence_length=512)

    most = largest_batch(memory_of, limit)
    assert memory_of(most).peak <= limit < memory_of(most + 1).peak


def test_where_not_even_one_sequence_fits_the_largest_batch_is_none() -> None:
    def memory_of(sequences: int) -> training_memory.TrainingMemory:
        return count_training_memory(PRESETS["albert-xxlarge"], batch_size=sequences, sequence_length=512)

    assert largest_batch(memory_of, 10**9) == 0


def test_lamb_holds_the_update_of_one_batch_of_tensors() -> None:
    """223 million parameters are not updated at once: the largest tensor, H x F, is all there is room for."""
    assert training_memory.UPDATED_AT_ONCE == slots.UPDATE_BUFFER
    xxlarge = PRESETS["albert-xxlarge"]
    plan = count_training_memory(xxlarge, batch_size=1, sequence_length=512)
    assert plan.update == 4 * xxlarge.hidden_size * xxlarge.intermediate_size < plan.weights
