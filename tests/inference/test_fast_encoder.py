"""The fast encoder is the encoder: same numbers in fp32, near ones in bf16 and int8, whatever goes in beside them."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from tests.tiny import tiny_config

from albert.inference.engine import (
    FastEncoder,
    LinearMap,
    PackedModel,
    PrepackedMap,
    check_int8,
    dense_attention,
    make_map,
    quantize_rows,
)
from albert.model.albert import AlbertForSequenceClassification, AlbertModel
from albert.model.packing import pack
from albert.runtime.errors import Unavailable

CPU = torch.device("cpu")
LENGTHS = (20, 7, 33, 12, 5, 28, 9, 40, 16, 6, 24, 13)
CONFIG = tiny_config(
    60,
    hidden_size=32,
    num_hidden_layers=4,
    num_attention_heads=4,
    intermediate_size=80,
    max_position_embeddings=40,
    initializer_range=0.2,
)
VARIANTS = [
    {},
    {"sharing": "attention"},
    {"sharing": "ffn"},
    {"sharing": "none"},
    {"num_hidden_groups": 2},
    {"num_hidden_groups": 2, "inner_group_num": 2},
    {"attention_window": 4},
    {"hidden_act": "gelu"},
    {"hidden_act": "relu"},
    {"hidden_act": "tanh"},
    {"embedding_size": 32},
]
# Tolerances of states, which LayerNorm keeps at length √H: per mille of bfloat16 and per cent of 8 bits, over 4 layers.
NEAR = {"fp32": 1e-5, "bf16": 0.03, "int8": 0.1}


def has_int8() -> bool:
    try:
        check_int8(CPU)
    except Unavailable:
        return False
    return True


INT8 = pytest.param("int8", marks=pytest.mark.skipif(not has_int8(), reason="no 8-bit products on this processor"))
precisions = pytest.mark.parametrize("precision", ["fp32", "bf16", INT8])


def sequences(lengths=LENGTHS, seed=0):
    rng = np.random.default_rng(seed)
    ids = [rng.integers(0, CONFIG.vocab_size, length) for length in lengths]
    return ids, [(np.arange(length) > length // 2).astype(np.int64) for length in lengths]


def encoder_and_states(packed, **changes):
    torch.manual_seed(5)
    model = AlbertModel(replace(CONFIG, **changes)).eval()
    with torch.inference_mode():
        return model.encoder, model.embeddings(packed)


def distance(actual: torch.Tensor, expected: torch.Tensor) -> float:
    return float((actual - expected).norm() / expected.norm())


@precisions
@pytest.mark.parametrize("changes", VARIANTS, ids=str)
def test_every_architecture_gives_the_same_states(precision, changes) -> None:
    packed = pack(*sequences())
    encoder, hidden = encoder_and_states(packed, **changes)
    with torch.inference_mode():
        expected, states = encoder(hidden, packed), encoder.hidden_states(hidden, packed)
    fast = FastEncoder(encoder, precision)
    assert distance(fast(hidden, packed), expected) < NEAR[precision]
    for actual, state in zip(fast.hidden_states(hidden, packed), states, strict=True):
        assert actual.dtype == torch.float32
        assert distance(actual, state) < NEAR[precision]


@precisions
def test_layers_go_on_where_others_stopped(precision) -> None:
    packed = pack(*sequences())
    encoder, hidden = encoder_and_states(packed)
    fast = FastEncoder(encoder, precision)
    states = list(fast.each_layer(hidden, packed))
    assert torch.equal(states[-1], fast(hidden, packed))
    rest = list(fast.each_layer(states[1], packed, done=2))
    assert all(torch.equal(*pair) for pair in zip(rest, states[2:], strict=True))


@precisions
@pytest.mark.parametrize("micro_batch_tokens", [1, 60, 10_000])
def test_what_else_is_in_a_batch_changes_nothing(precision, micro_batch_tokens) -> None:
    torch.manual_seed(5)
    model = PackedModel(AlbertForSequenceClassification(CONFIG, 3), CPU, micro_batch_tokens, precision)
    ids, types = sequences()
    order = np.random.default_rng(1).permutation(len(ids))
    rows = model.rows([ids[index] for index in order], [types[index] for index in order])
    for index, row in zip(order, rows, strict=True):
        (alone,) = model.rows([ids[index]], [types[index]])
        # Attention at bf16 may round sums in another order beside longer sequences.
        np.testing.assert_allclose(row, alone, rtol=0, atol=1e-5 if precision == "fp32" else 0.02)


def test_fp32_predictions_are_those_of_the_model() -> None:
    torch.manual_seed(5)
    model = AlbertForSequenceClassification(CONFIG, 3).eval()
    ids, types = sequences()
    with torch.inference_mode():
        expected = model(pack(ids, types)).numpy()
    actual = PackedModel(model, CPU).rows(ids, types)
    np.testing.assert_allclose(np.stack(actual), expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_without_onednn_products_are_plain(monkeypatch: pytest.MonkeyPatch, precision) -> None:
    packed = pack(*sequences())
    encoder, hidden = encoder_and_states(packed)
    with torch.inference_mode():
        expected = encoder(hidden, packed)
    linear = encoder.feed_forwards[0].output
    prepacked = isinstance(make_map(linear.weight, linear.bias, "fp32", torch.float32), PrepackedMap)
    assert prepacked or not torch.backends.mkldnn.is_available()
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: False)
    plain = FastEncoder(encoder, precision)
    assert type(make_map(linear.weight, linear.bias, "fp32", torch.float32)) is LinearMap
    assert distance(plain(hidden, packed), expected) < NEAR[precision]
    with pytest.raises(Unavailable, match="needs oneDNN"):
        FastEncoder(encoder, "int8")


def test_rows_are_told_in_bytes_each_with_its_own_step() -> None:
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(50, 33, generator=generator) * torch.logspace(-4, 4, 50)[:, None]
    rows[7] = 0
    integers, steps = quantize_rows(rows)
    assert ((integers.float() - 128) * steps - rows).abs().le(steps * 0.501).all()
    assert integers[7].tolist() == [128] * 33
    assert int(integers.min()) == 1
    assert int(integers.max()) == 255


def test_a_model_is_made_fast_once_and_keeps_its_weights() -> None:
    model = AlbertForSequenceClassification(CONFIG, 3)
    names = set(model.state_dict())
    first = PackedModel(model, CPU, precision="bf16").model.albert.encoder
    assert PackedModel(model, CPU).model.albert.encoder is first
    assert set(model.state_dict()) == names


def test_attention_compiles_nothing_for_a_shape(capfd):
    """oneDNN keeps what it compiled for each number and length of sequences: memory that a server never gives back."""
    with torch.backends.mkldnn.verbose(torch.backends.mkldnn.VERBOSE_ON_CREATION):
        for sequences, length in [(1, 7), (2, 9), (3, 64), (1, 200)]:
            query, key, value = torch.randn(3, sequences, 4, length, 16).bfloat16()
            dense_attention(query, key, value, torch.ones(sequences, 1, 1, length, dtype=torch.bool))
    assert ",create" not in capfd.readouterr().out
