"""A small architecture and batches of sequences of given lengths; `albert` is imported late, after the hook."""

import weakref

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

VOCABULARY = 60


@pytest.fixture
def config():
    """Three layers of 16, embeddings of 8, no dropout; initial values large enough for attention to matter."""
    from tests.tiny import tiny_config

    return tiny_config(
        VOCABULARY,
        num_hidden_layers=3,
        num_attention_heads=4,
        intermediate_size=40,
        max_position_embeddings=40,
        initializer_range=0.3,
    )


@pytest.fixture
def sequences_of():
    """Makes random sequences of these lengths: a list of token ids and a list of token types."""

    def make(lengths, seed=0):
        draws = np.random.default_rng(seed)
        ids = [draws.integers(0, VOCABULARY, length) for length in lengths]
        return ids, [(np.arange(length) > length // 2).astype(np.int64) for length in lengths]

    return make


@pytest.fixture
def counted_products(monkeypatch):
    """Products that torch's counter of operations knows, oneDNN's not being among them, and no row without a token."""
    from albert.model import packing as spare_rows
    from albert.runtime import devices as linear_product

    monkeypatch.setattr(linear_product, "onednn_is_faster", lambda: False)
    monkeypatch.setattr(spare_rows, "pads_rows", lambda device: False)


class LiveTensors(TorchDispatchMode):
    """Bytes of all storages that came into being and are still held, at their peak."""

    def __init__(self) -> None:
        super().__init__()
        self.peak, self._now, self._held = 0, 0, set()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        given = {s.untyped_storage()._cdata for s in tree_leaves((args, kwargs)) if isinstance(s, torch.Tensor)}
        result = function(*args, **(kwargs or {}))
        for tensor in tree_leaves(result):
            if isinstance(tensor, torch.Tensor):
                storage = tensor.untyped_storage()
                if storage._cdata not in self._held and storage._cdata not in given:
                    self._held.add(storage._cdata)
                    self._now += storage.nbytes()
                    weakref.finalize(storage, self._forget, storage._cdata, storage.nbytes())
        self.peak = max(self.peak, self._now)
        return result

    def _forget(self, storage: int, size: int) -> None:
        self._held.remove(storage)
        self._now -= size
