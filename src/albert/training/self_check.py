"""A run on a GPU tests what only a GPU has, before its first update.

The attention kernel, micro-batches of a fixed shape and the compiled loss are compared with the plain path on one real
batch: dense attention, packed sequences, nothing compiled. One that fails, or gives other losses or gradients, is left
out of this run, with a note and a line in the journal.
"""

import math
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from albert.model.attention import AttentionKernel
from albert.runtime.devices import autocast
from albert.runtime.distributed import sum_over_ranks
from albert.runtime.environment import Precision, Ranks
from albert.runtime.errors import AlbertError
from albert.training.update import Batch, Objective, Sums

LOSS_TOLERANCES: Mapping[Precision, float] = {"fp32": 1e-4, "bf16": 1e-2}
GRADIENT_TOLERANCES: Mapping[Precision, float] = {"fp32": 1e-3, "bf16": 1e-1}
"""Largest relative differences that rounding may cause."""
ATTENTION_KERNEL = "attention kernel"
FIXED_SHAPE = "fixed shape"
COMPILED_LOSS = "compiled loss"
_SMALL_GRADIENT = 1e-2
"""A tensor's gradient is compared with its own norm, but with at least this share of the norm of all gradients: some,
as that of the bias of the keys, are zero but for rounding."""


@dataclass(frozen=True)
class LossAndGradients:
    """What a path gives for one batch."""

    loss: float
    gradients: Sequence[Tensor | None]
    """Of each parameter, in their order; None: it has none."""


@dataclass(frozen=True, kw_only=True)
class SelfCheck:
    """The result of the comparison of one path with the plain path."""

    path: str
    loss_difference: float | None = None
    """Relative; None: the path failed."""
    gradient_difference: float | None = None
    """The largest relative difference of a parameter's gradient."""
    why_left_out: str | None = None
    """None: the path is used."""


def loss_and_gradients(
    parameters: Sequence[nn.Parameter], counts: Mapping[str, int], micro_batches: Iterable[Sums]
) -> LossAndGradients:
    """The loss of a batch and its gradients, which are not left in the parameters.

    Args:
        counts: items of each loss term in the whole batch.
        micro_batches: the sums of losses of each micro-batch, computed as they are taken.
    """
    for parameter in parameters:
        parameter.grad = None
    total = 0.0
    for sums in micro_batches:
        loss = torch.stack([term / max(1, counts[name]) for name, term in sums.losses.items()]).sum()
        loss.backward()
        total += loss.item()
    gradients = [None if parameter.grad is None else parameter.grad.detach().clone() for parameter in parameters]
    for parameter in parameters:
        parameter.grad = None
    return LossAndGradients(total, gradients)


def compare(path: str, plain: LossAndGradients, other: LossAndGradients, precision: Precision) -> SelfCheck:
    """The differences of a path from the plain one, and whether they are larger than rounding allows."""
    loss_difference = abs(other.loss - plain.loss) / max(abs(plain.loss), 1e-12)
    norms = [0.0 if gradient is None else gradient.double().norm().item() for gradient in plain.gradients]
    least = _SMALL_GRADIENT * math.hypot(*norms)
    gradient_difference = 0.0
    for expected, found, norm in zip(plain.gradients, other.gradients, norms, strict=True):
        if expected is None and found is None:
            continue
        difference = math.inf
        if expected is not None and found is not None:
            difference = (found.double() - expected.double()).norm().item() / max(norm, least, 1e-12)
        if not difference <= gradient_difference:  # also if it is not a number
            gradient_difference = difference
    why = None
    if not loss_difference <= LOSS_TOLERANCES[precision]:
        why = f"its loss differs from the plain path's by {loss_difference:.1e} of it"
    elif not gradient_difference <= GRADIENT_TOLERANCES[precision]:
        why = f"a gradient differs from the plain path's by {gradient_difference:.1e} of its norm"
    return SelfCheck(
        path=path, loss_difference=loss_difference, gradient_difference=gradient_difference, why_left_out=why
    )


def check_path(
    path: str,
    plain: LossAndGradients,
    compute: Callable[[], LossAndGradients],
    precision: Precision,
    device: torch.device,
    ranks: Ranks,
) -> SelfCheck:
    """Compute a batch by a path and compare; an error of the path is a result, too. The same answer on every rank."""
    try:
        check = compare(path, plain, compute(), precision)
    except torch.OutOfMemoryError:  # the batch is too large, whatever the path
        raise
    except Exception as error:  # whatever a kernel or compiler raises: the plain path does without it
        first_line = next(iter(str(error).splitlines()), "")
        why = error.why if isinstance(error, AlbertError) else f"{type(error).__name__}: {first_line}"
        check = SelfCheck(path=path, why_left_out=why[:300])
    failures = float(sum_over_ranks(torch.tensor(float(check.why_left_out is not None), device=device), ranks))
    if failures and check.why_left_out is None:
        check = SelfCheck(path=path, why_left_out="it failed or differed in another process of this run")
    if check.why_left_out is not None and ranks.is_first:
        print(f"albert: note: {path}: left out of this run, because {check.why_left_out}", file=sys.stderr)
    return check


def check_attention_kernel(
    model: nn.Module,
    objective: Objective,
    batch: Batch,
    precision: Precision,
    device: torch.device,
    ranks: Ranks,
) -> SelfCheck:
    """Compare the attention kernel with dense attention on a batch, and switch it off in this process if it differs.

    Weights are not changed.
    """
    parameters = list(model.parameters())
    on_device = batch.to(device)

    def compute() -> LossAndGradients:
        with autocast(device, precision):
            return loss_and_gradients(parameters, on_device.counts, [objective(model, on_device)])

    was_training = model.training
    model.eval()  # without dropout
    AttentionKernel.allowed = False
    try:
        plain = compute()
        AttentionKernel.allowed = True
        check = check_path(ATTENTION_KERNEL, plain, compute, precision, device, ranks)
    finally:
        AttentionKernel.allowed = True
        model.train(was_training)
    AttentionKernel.allowed = check.why_left_out is None
    return check
