"""Batches of hundreds of sizes become few shapes, and nothing of that is seen in what comes out."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn import functional

from albert.inference.engine import FastEncoder
from albert.model import packing as spare_rows
from albert.model.albert import AlbertForPreTraining, AlbertModel
from albert.model.config import AlbertConfig
from albert.model.packing import SMALL_BATCH, SMALL_STEP, STEP, pack, pad_rows, padded_rows


def test_there_are_few_shapes_and_few_rows_in_vain():
    shapes = {padded_rows(tokens) for tokens in range(1, 4097)}
    assert len(shapes) <= 100
    assert all(0 <= padded_rows(tokens) - tokens < SMALL_STEP for tokens in range(SMALL_BATCH + 1))
    assert all(0 <= padded_rows(tokens) - tokens < max(STEP, tokens / 16) for tokens in range(1, 5000))


def test_the_rows_behind_the_tokens_are_zeros():
    states = torch.randn(SMALL_BATCH + 1, 3)
    padded = pad_rows(states)
    assert torch.equal(padded[: len(states)], states) and not padded[len(states) :].any()
    assert pad_rows(padded) is padded


@pytest.mark.parametrize("lengths", [(70,), (33, 33), (20, 41, 7)])
def test_states_are_the_models_own_whatever_their_number(lengths: tuple[int, ...], config: AlbertConfig):
    torch.manual_seed(0)
    model = AlbertModel(replace(config, max_position_embeddings=128)).eval()
    packed = pack([np.arange(5, 5 + n) % config.vocab_size for n in lengths], [np.zeros(n, np.int64) for n in lengths])
    assert padded_rows(packed.n_tokens) > packed.n_tokens
    with torch.no_grad():
        hidden = model.embeddings(packed)
        expected = model.encoder.hidden_states(hidden, packed)
    fast = FastEncoder(model.encoder)
    found = fast.hidden_states(hidden, packed)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(fast(hidden, packed), expected[-1], atol=1e-5, rtol=1e-5)


def gradients(model: AlbertForPreTraining, lengths: tuple[int, ...]) -> list[torch.Tensor]:
    """Of a batch, three tokens of each of whose sequences are masked."""
    ids = [np.arange(n) % 37 + 5 for n in lengths]
    packed = pack(ids, [np.zeros(n, np.int64) for n in lengths])
    masked = torch.cat([first + torch.tensor([1, 3, 4]) for first in packed.first_positions])
    losses = model(packed, masked, torch.arange(len(masked)) % 11)
    order = functional.cross_entropy(losses.sentence_order, torch.zeros(len(lengths), dtype=torch.long))
    model.zero_grad()
    (losses.masked_tokens.sum() + order).backward()
    return [losses.masked_tokens.detach(), *(one.grad.clone() for one in model.parameters())]


@pytest.mark.parametrize("lengths", [(40, 31, 7), tuple(range(5, 30))])
def test_spare_rows_take_no_part_in_what_is_learnt(config, monkeypatch, lengths):
    torch.manual_seed(0)
    model = AlbertForPreTraining(config)
    with_them = gradients(model, lengths)
    monkeypatch.setattr(spare_rows, "pads_rows", lambda device: False)
    without = gradients(model, lengths)
    for one, other in zip(with_them, without, strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-4)
