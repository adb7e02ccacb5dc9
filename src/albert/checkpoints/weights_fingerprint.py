"""What weights are known by: a hash of their numbers."""

import hashlib
from collections.abc import Mapping

import torch
from torch import Tensor


def weights_fingerprint(tensors: Mapping[str, Tensor]) -> str:
    """SHA-256 over the bytes of all tensors, in their order, in hexadecimal."""
    digest = hashlib.sha256()
    for tensor in tensors.values():
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
