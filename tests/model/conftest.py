"""A small architecture, batches of sequences of given lengths, and counters of memory.

`albert` is imported late, after the hook on annotations.
"""

import weakref
from contextlib import contextmanager

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

VOCABULARY = 60
CPU = torch.device("cpu")


@pytest.fixture
def config():
    """Three layers of 16, embeddings of 8, no dropout; initial values are large, so that attention is not uniform."""
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
    """Make random sequences of these lengths: a list of token ids and a list of token types."""

    def make(lengths, seed=0):
        generator = np.random.default_rng(seed)
        ids = [generator.integers(0, VOCABULARY, length) for length in lengths]
        return ids, [(np.arange(length) > length // 2).astype(np.int64) for length in lengths]

    return make


@pytest.fixture
def packed_of(sequences_of):
    """Make a packed batch of random sequences of these lengths."""
    from albert.model.packing import pack

    return lambda lengths: pack(*sequences_of(lengths))


@pytest.fixture
def counted_products(monkeypatch):
    """Only products that torch's FLOP counter sees, and no padding rows."""
    from albert.model import packing
    from albert.runtime import devices

    monkeypatch.setattr(devices, "onednn_is_faster", lambda: False)
    monkeypatch.setattr(packing, "pads_rows", lambda device: False)


def pretraining_batch(lengths, masked):
    """A pre-training batch with `masked` masked tokens in each sequence."""
    from albert.pretraining.batches import Sample, collate

    rows = (np.arange(1, 1 + masked), np.arange(masked), 1)
    return collate([Sample(np.arange(length) % VOCABULARY, np.zeros(length, np.int64), *rows) for length in lengths])


@contextmanager
def saved_by_autograd(model):
    """Storage address -> bytes of the tensors that are saved for the backward pass, without parameters."""
    parameters = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
    storages = {}

    def pack_hook(tensor):
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in parameters:
            storages[storage.data_ptr()] = storage  # keeps the address from being reused
        return tensor

    sizes = {}
    with torch.autograd.graph.saved_tensors_hooks(pack_hook, lambda tensor: tensor):
        yield sizes
    sizes.update({address: storage.nbytes() for address, storage in storages.items()})


class LiveTensors(TorchDispatchMode):
    """Peak number of bytes of the live storages that were created in the block."""

    def __init__(self) -> None:
        super().__init__()
        self.peak, self._now, self._live = 0, 0, set()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        inputs = {x.untyped_storage()._cdata for x in tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor)}
        result = function(*args, **(kwargs or {}))
        for tensor in tree_leaves(result):
            if isinstance(tensor, torch.Tensor):
                storage = tensor.untyped_storage()
                if storage._cdata not in self._live and storage._cdata not in inputs:
                    self._live.add(storage._cdata)
                    self._now += storage.nbytes()
                    weakref.finalize(storage, self._release, storage._cdata, storage.nbytes())
        self.peak = max(self.peak, self._now)
        return result

    def _release(self, storage: int, size: int) -> None:
        self._live.remove(storage)
        self._now -= size
