"""Bytes by formula are the bytes that autograd keeps, and those that live at the peak of a forward pass."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from tests.model.conftest import LiveTensors

from albert.model import attention as plain_attention
from albert.model.albert import AlbertForPreTraining, AlbertModel
from albert.model.config import PRESETS
from albert.model.cost import count_activation_memory, count_training_state
from albert.model.packing import pack
from albert.optim.optimizer import OptimizerRecipe, build_optimizer
from albert.pretraining.batches import PretrainingBatch, collate, pretraining_objective
from albert.pretraining.sampling import Sample

DIVISOR = 4
"""Bytes that each batch keeps once: what the cross-entropy of sentence order divides by."""
DROPOUT = {"hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1}
WITHOUT_MAP = {"embedding_size": 16}


def a_batch(sequences: int, length: int, masked: int) -> PretrainingBatch:
    ids = np.random.default_rng(0).integers(0, 60, (sequences, length))
    rows = (np.zeros(length, np.int64), np.arange(1, 1 + masked), np.arange(masked), 1)
    return collate([Sample(some, *rows) for some in ids])


def autocast(precision: str) -> torch.autocast:
    return torch.autocast("cpu", dtype=torch.bfloat16, enabled=precision == "bf16", cache_enabled=True)


def kept_by_autograd(model: AlbertForPreTraining, batch: PretrainingBatch, precision: str) -> int:
    """Bytes of the storages that the graph of the loss holds, parameters left out."""
    parameters = {p.untyped_storage().data_ptr() for p in model.parameters()}
    storages: dict[int, torch.UntypedStorage] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in parameters:
            storages[storage.data_ptr()] = storage
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor), autocast(precision):
        losses = pretraining_objective(model, batch).losses
    assert all(loss.requires_grad for loss in losses.values())
    return sum(storage.nbytes() for storage in storages.values())


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize(
    "changes",
    [
        {},
        DROPOUT,
        WITHOUT_MAP,
        WITHOUT_MAP | DROPOUT,
        {"hidden_act": "relu"},
        {"hidden_act": "tanh", "num_attention_heads": 2},
        {"hidden_dropout_prob": 0.1},
        {"attention_probs_dropout_prob": 0.1, "sharing": "attention"},
        {"sharing": "none", "num_hidden_layers": 2},
        {"sharing": "ffn", "intermediate_size": 24},
        {"num_hidden_groups": 3},
        {"inner_group_num": 2, "hidden_size": 32},
    ],
    ids=lambda changes: " ".join(f"{name}={value}" for name, value in changes.items()) or "as it is",
)
def test_training_keeps_what_the_formula_says_to_the_byte(config, changes, precision):
    config = replace(config, **changes)
    model = AlbertForPreTraining(config).train()
    for sequences, length, masked in ((2, 24, 4), (4, 33, 1)):  # 8 and 4 masked: no spare rows (`padded_rows`)
        memory = count_activation_memory(config, length, precision=precision, masked_tokens=masked)
        expected = sequences * memory.training + memory.weight_copies + DIVISOR
        assert kept_by_autograd(model, a_batch(sequences, length, masked), precision) == expected


def live_in_inference(model: AlbertModel, sequences: int, length: int, precision: str) -> int:
    ids = [np.arange(length) % 60] * sequences
    packed = pack(ids, [np.zeros_like(some) for some in ids])
    casts = torch.autocast("cpu", dtype=torch.bfloat16, enabled=precision == "bf16", cache_enabled=False)
    with torch.no_grad(), casts, LiveTensors() as live:  # inference mode would hide what is inside a product
        model(packed)
    return live.peak


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("changes", [{}, WITHOUT_MAP, {"num_attention_heads": 2}, {"sharing": "none"}])
@pytest.mark.parametrize(("sequences", "length"), [(2, 40), (3, 100)])
@pytest.mark.parametrize("heads_at_once", [100, 2, 1])
def test_inference_peaks_where_the_formula_says(
    config, changes, precision, sequences, length, heads_at_once, monkeypatch
):
    monkeypatch.setattr(plain_attention, "SCORES_AT_ONCE", heads_at_once * length**2)
    config = replace(config, max_position_embeddings=100, **changes)
    memory = count_activation_memory(config, length, precision=precision)
    found = live_in_inference(AlbertModel(config).eval(), sequences, length, precision)
    assert found == memory.inference_peak(sequences)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_wide_feed_forward_block_is_the_peak_of_inference(config, precision):
    config = replace(config, intermediate_size=800)
    memory = count_activation_memory(config, 40, precision=precision)
    assert live_in_inference(AlbertModel(config).eval(), 3, 40, precision) == memory.inference_peak(3)
    assert memory.inference_feed_forward > memory.inference_attention + memory.inference_scores


def test_sharing_saves_no_activations_and_depth_costs_them():
    base = PRESETS["albert-base"]
    models = [replace(base, sharing=sharing) for sharing in ("all", "attention", "ffn", "none")]
    assert len({(memory.training, memory.inference) for memory in map(count_activation_memory, models)}) == 1
    shallow, deep = (count_activation_memory(PRESETS[name]) for name in ("albert-large-L12", "albert-large"))
    assert deep.attention == 2 * shallow.attention and deep.feed_forward == 2 * shallow.feed_forward
    assert deep.inference == shallow.inference


def test_a_gpu_keeps_no_probabilities_and_dropout_as_truth_values():
    base = PRESETS["albert-base"]
    on_gpu, on_cpu = (count_activation_memory(base, device=device) for device in ("cuda", "cpu"))
    assert on_gpu.attention_probabilities == 0
    assert on_cpu.attention_probabilities == 12 * 12 * 512 * 512 * 4
    dropped = count_activation_memory(PRESETS["albert-base-v1"], device="cuda")
    assert dropped.feed_forward - on_gpu.feed_forward == 12 * 512 * 768


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU: its kernels decide what they keep")
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_on_a_gpu_the_formula_is_within_five_per_cent_of_what_is_allocated(precision):
    device = torch.device("cuda")
    config = replace(PRESETS["albert-base"], num_hidden_layers=4, vocab_size=5000)
    model = AlbertForPreTraining(config).train().to(device)
    batch = a_batch(8, 256, 38).to(device)
    before = torch.cuda.memory_allocated()
    with torch.autocast("cuda", dtype=torch.bfloat16, enabled=precision == "bf16"):
        losses = pretraining_objective(model, batch).losses
        kept = torch.cuda.memory_allocated() - before
    memory = count_activation_memory(config, 256, device="cuda", precision=precision, masked_tokens=38)
    assert sum(losses.values()).requires_grad
    assert kept == pytest.approx(8 * memory.training + memory.weight_copies, rel=0.05)


def test_training_state_is_four_floats_a_parameter(config):
    model = AlbertForPreTraining(config)
    optimizer = build_optimizer(OptimizerRecipe(), model)
    losses = pretraining_objective(model, a_batch(2, 12, 2)).losses
    sum(losses.values()).backward()
    optimizer.step()
    held = [p for p in model.parameters()] + [p.grad for p in model.parameters()]
    held += [value for state in optimizer.state.values() for value in state.values() if torch.is_tensor(value)]
    assert count_training_state(config) == sum(tensor.nbytes for tensor in held if tensor.dim())
