"""Batches of hundreds of sizes become few shapes, and nothing of that is seen in what comes out."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from albert.inference.fast_encoder import FastEncoder
from albert.model.albert import AlbertModel
from albert.model.config import AlbertConfig
from albert.model.packed_sequences import pack
from albert.model.spare_rows import EXACT, STEP, rows_for, with_spare_rows


def test_there_are_few_shapes_and_few_rows_in_vain():
    shapes = {rows_for(tokens) for tokens in range(1, 1025)}
    assert len(shapes) == EXACT + (1024 - EXACT) // STEP
    assert all(0 <= rows_for(tokens) - tokens < STEP for tokens in range(1, 5000))
    assert all(rows_for(tokens) == tokens for tokens in range(EXACT + 1))


def test_the_rows_behind_the_tokens_are_zeros():
    states = torch.randn(EXACT + 1, 3)
    padded = with_spare_rows(states)
    assert torch.equal(padded[: len(states)], states) and not padded[len(states) :].any()
    assert with_spare_rows(padded) is padded


@pytest.mark.parametrize("lengths", [(70,), (33, 33), (20, 41, 7)])
def test_states_are_the_models_own_whatever_their_number(lengths: tuple[int, ...], config: AlbertConfig):
    torch.manual_seed(0)
    model = AlbertModel(replace(config, max_position_embeddings=128)).eval()
    packed = pack([np.arange(5, 5 + n) % config.vocab_size for n in lengths], [np.zeros(n, np.int64) for n in lengths])
    assert rows_for(packed.n_tokens) > packed.n_tokens
    with torch.no_grad():
        hidden = model.embeddings(packed)
        expected = model.encoder.hidden_states(hidden, packed)
    fast = FastEncoder(model.encoder)
    found = fast.hidden_states(hidden, packed)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(fast(hidden, packed), expected[-1], atol=1e-5, rtol=1e-5)
