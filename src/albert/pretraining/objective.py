"""The pre-training loss: masked tokens plus sentence order, and what is answered right of each (paper §3.1)."""

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from albert.pretraining.batches import PretrainingBatch
from albert.pretraining.sentence_order import NO_LABEL
from albert.training.objective import Batch, Sums


def pretraining_objective(model: nn.Module, batch: Batch, right: list[np.ndarray] | None = None) -> Sums:
    """Sums of both cross-entropies, in float32, over a micro-batch.

    Args:
        model: an `AlbertForPreTraining`, wrapped or not.
        batch: a `PretrainingBatch`.
        right: is given, bool [masked], which masked tokens are answered right.
    """
    assert isinstance(batch, PretrainingBatch)
    found = model(batch.packed, batch.masked_positions, batch.masked_labels)
    if right is not None:
        right.append(found.masked_tokens_right.cpu().numpy())
    each, order = found.masked_tokens, found.sentence_order.float()
    return Sums(
        losses={
            "masked_tokens": (hardness(each, batch.focus) * each).sum() if batch.focus else each.sum(),
            "sentence_order": functional.cross_entropy(
                order, batch.order_labels, reduction="sum", ignore_index=NO_LABEL
            ),
        },
        correct={
            "masked_tokens": found.masked_tokens_right.sum(),
            "sentence_order": (order.argmax(-1) == batch.order_labels).sum(),
        },
    )


def hardness(losses: Float[Tensor, " items"], focus: float) -> Float[Tensor, " items"]:
    """(1 − p)^focus of each item, without a gradient.

    Args:
        losses: −log p.
        focus: 0 gives ones.
    """
    return (-torch.expm1(-losses.detach())).pow(focus)
