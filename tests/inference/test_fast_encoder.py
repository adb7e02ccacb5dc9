"""The encoder for inference gives the trained encoder's numbers in every precision; weights and rows in 8 bits."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from tests.inference.conftest import has_int8
from tests.tiny import tiny_config
from torch import nn

from albert.inference import linears
from albert.inference.engine import PackedModel, choose_precision
from albert.inference.fast_encoder import FastEncoder, dense_attention
from albert.inference.linears import (
    MklLinear,
    PlainLinear,
    PrepackedLinear,
    make_linear,
    quantize_matrix,
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
    *({"sharing": sharing} for sharing in ("all", "attention", "ffn", "none")),
    *({"hidden_act": activation} for activation in ("gelu", "relu", "tanh")),
    {"num_hidden_groups": 2},
    {"num_hidden_groups": 2, "inner_group_num": 2},
    {"embedding_size": 32},
]
# Tolerances of states, which LayerNorm keeps at length √H: per mille of bfloat16 and per cent of 8 bits, over 4 layers.
NEAR = {"fp32": 1e-5, "bf16": 0.03, "int8": 0.1}


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
def test_states_equal_those_of_the_encoder(precision, changes):
    packed = pack(*sequences())
    encoder, hidden = encoder_and_states(packed, **changes)
    with torch.inference_mode():
        expected, states = encoder(hidden, packed), list(encoder.each_layer(hidden, packed))
    fast = FastEncoder(encoder, precision)
    assert distance(fast(hidden, packed), expected) < NEAR[precision]
    for actual, state in zip(fast.each_layer(hidden, packed), states, strict=True):
        assert actual.dtype == torch.float32
        assert distance(actual, state) < NEAR[precision]


@precisions
@pytest.mark.parametrize("micro_batch_tokens", [1, 60, 10_000])
def test_rows_do_not_depend_on_the_batch(precision, micro_batch_tokens):
    torch.manual_seed(5)
    model = PackedModel(AlbertForSequenceClassification(CONFIG, 3), CPU, micro_batch_tokens, precision)
    ids, types = sequences()
    order = np.random.default_rng(1).permutation(len(ids))
    rows = model.rows([ids[index] for index in order], [types[index] for index in order])
    for index, row in zip(order, rows, strict=True):
        (alone,) = model.rows([ids[index]], [types[index]])
        # Attention at bf16 may round sums in another order beside longer sequences.
        np.testing.assert_allclose(row, alone, rtol=0, atol=1e-5 if precision == "fp32" else 0.04)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_without_onednn_products_are_plain(monkeypatch, precision):
    packed = pack(*sequences())
    encoder, hidden = encoder_and_states(packed)
    with torch.inference_mode():
        expected = encoder(hidden, packed)
    linear = encoder.feed_forwards[0].output
    monkeypatch.setattr(linears, "multiplies_faster_by_mkl", lambda: False)
    prepacked = isinstance(make_linear(linear.weight, linear.bias, "fp32", torch.float32), PrepackedLinear)
    assert prepacked or not torch.backends.mkldnn.is_available()
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: False)
    plain = FastEncoder(encoder, precision)
    assert type(make_linear(linear.weight, linear.bias, "fp32", torch.float32)) is PlainLinear
    assert distance(plain(hidden, packed), expected) < NEAR[precision]
    with pytest.raises(Unavailable):
        PackedModel(AlbertModel(CONFIG), CPU, precision="int8")


@pytest.mark.parametrize("n_rows", [5, MklLinear.FEW_ROWS, MklLinear.FEW_ROWS + 1])
@pytest.mark.parametrize("activation", [nn.GELU(), nn.GELU("tanh"), nn.ReLU()])
def test_a_product_by_mkl_is_a_plain_one(activation, n_rows):
    generator = torch.Generator().manual_seed(0)
    weight, bias, rows, residual = (
        torch.randn(*shape, generator=generator) for shape in ((24, 16), (24,), (n_rows, 16), (n_rows, 24))
    )
    plain, by_mkl = (kind(weight, bias, torch.float32, activation) for kind in (PlainLinear, MklLinear))
    torch.testing.assert_close(by_mkl(rows), plain(rows))
    torch.testing.assert_close(by_mkl.with_activation(rows), plain.with_activation(rows))
    torch.testing.assert_close(by_mkl.with_residual(rows, residual), plain.with_residual(rows, residual))


@pytest.mark.parametrize("by_mkl", [False, True])
def test_both_kinds_of_products_give_the_states_of_the_trained_encoder(monkeypatch, by_mkl):
    monkeypatch.setattr(linears, "multiplies_faster_by_mkl", lambda: by_mkl)
    packed = pack(*sequences())
    encoder, hidden = encoder_and_states(packed)
    with torch.inference_mode():
        expected = encoder(hidden, packed)
    assert distance(FastEncoder(encoder)(hidden, packed), expected) < NEAR["fp32"]


def test_each_row_is_quantised_with_its_own_scale():
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(50, 33, generator=generator) * torch.logspace(-4, 4, 50)[:, None]
    rows[7] = 0
    integers, steps = quantize_rows(rows)
    assert ((integers.float() - 128) * steps - rows).abs().le(steps * 0.501).all()
    assert integers[7].tolist() == [128] * 33
    assert int(integers.min()) == 1
    assert int(integers.max()) == 255


def test_encoder_is_replaced_once_and_weights_are_kept():
    model = AlbertForSequenceClassification(CONFIG, 3)
    names = set(model.state_dict())
    first = PackedModel(model, CPU, precision="bf16").model.albert.encoder
    assert PackedModel(model, CPU).model.albert.encoder is first
    assert set(model.state_dict()) == names


def test_attention_compiles_nothing_per_shape(capfd):
    """oneDNN keeps what it compiles for each shape: a server's memory would grow."""
    with torch.backends.mkldnn.verbose(torch.backends.mkldnn.VERBOSE_ON_CREATION):
        for sequences, length in [(1, 7), (2, 9), (3, 64), (1, 200)]:
            query, key, value = torch.randn(3, sequences, 4, length, 16).bfloat16()
            dense_attention(query, key, value, torch.ones(sequences, 1, 1, length, dtype=torch.bool))
    assert ",create" not in capfd.readouterr().out


FLOATS = st.floats(-1e6, 1e6, width=32)


@given(
    arrays.arrays(np.float32, st.tuples(st.integers(1, 9), st.integers(1, 33)), elements=FLOATS),
    st.sampled_from([1e-25, 1.0, 1e20]),
)
def test_a_restored_matrix_quantises_to_the_same_values_and_scales(numbers, scale):
    values, scales = quantize_matrix(torch.from_numpy(numbers * np.float32(scale)))
    again, scales_again = quantize_matrix(values * scales[:, None])
    assert torch.equal(again, values) and torch.equal(scales_again, scales)


def test_each_output_uses_the_whole_range_and_errs_by_half_a_step():
    weight = torch.randn(64, 128) * torch.logspace(-3, 3, 64)[:, None]
    weight[7] = 0
    values, scales = quantize_matrix(weight)
    assert values.abs().amax(dim=1).tolist() == [127] * 7 + [0] + [127] * 56 and scales[7] == 1
    assert ((values * scales[:, None] - weight).abs() <= scales[:, None] * 0.501).all()


@pytest.mark.parametrize(
    ("choice", "capabilities", "expected"),
    [
        *((choice, {"avx512_vnni": True}, choice) for choice in ("fp32", "bf16", "int8")),
        ("auto", {"amx_bf16": True, "architecture": "x86_64"}, "fp32"),
        ("auto", {"avx2": True, "architecture": "x86_64"}, "fp32"),
    ],
)
def test_auto_precision_of_a_cpu_is_fp32(choice, capabilities, expected, monkeypatch):
    monkeypatch.delenv("ONEDNN_MAX_CPU_ISA", raising=False)
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: capabilities)
    assert choose_precision(choice, CPU) == expected


def test_int8_is_refused_without_instructions_and_on_gpus(monkeypatch):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx512_f": True})
    with pytest.raises(Unavailable):
        choose_precision("int8", CPU)
    with pytest.raises(Unavailable):
        choose_precision("int8", torch.device("cuda"))


def test_int8_is_refused_where_the_environment_hides_its_instructions(monkeypatch):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx512_vnni": True})
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_VNNI")
    assert choose_precision("int8", CPU) == "int8"
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "avx2")
    with pytest.raises(Unavailable, match="no instructions for it"):
        choose_precision("int8", CPU)
