"""Which of the faster paths a run uses on its GPU: those that give the losses and gradients of the plain one.

See `albert.training.self_check`.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from albert.model.albert import AlbertForPreTraining
from albert.pretraining.batches import batch_of, pretraining_objective
from albert.pretraining.fixed_shape import PretrainingLoss, fixed_objective
from albert.pretraining.sampling import Samples
from albert.runtime.devices import Dropout, autocast
from albert.runtime.environment import Precision, Ranks
from albert.training.self_check import (
    COMPILED_LOSS,
    FIXED_SHAPE,
    LossAndGradients,
    SelfCheck,
    check_attention_kernel,
    check_path,
    loss_and_gradients,
)
from albert.training.update import Sums

PLAIN_SEQUENCES = 16
"""Sequences of a micro-batch of the plain path, which needs more memory than the others."""


@dataclass(frozen=True, kw_only=True)
class GpuPaths:
    """The checks of a run, and what they decided."""

    checks: tuple[SelfCheck, ...]
    fixed_shape: bool
    compiled: bool


def check_gpu_paths(
    model: AlbertForPreTraining,
    loss: PretrainingLoss | None,
    compiled: bool,
    samples: Samples,
    precision: Precision,
    device: torch.device,
    ranks: Ranks,
) -> GpuPaths:
    """Compare the paths that the run would use with the plain path, on one micro-batch.

    Args:
        model: on the device; its dropout is off meanwhile, and its weights do not change.
        loss: of the same model, for micro-batches of a fixed shape; None: not used. It is compiled afterwards if
            that was asked for and gives the right numbers.
        compiled: whether to compile it.
        samples: of one micro-batch; they fit into the fixed shape.
    """
    was_training = model.training
    # Without dropout the mode changes nothing, and a graph compiled in the mode of training is used by it afterwards.
    model.train(not any(module.p > 0 for module in model.modules() if isinstance(module, Dropout)))
    try:
        first = batch_of(samples.part(0, min(PLAIN_SEQUENCES, len(samples.lengths))))
        checks = [check_attention_kernel(model, pretraining_objective, first, precision, device, ranks)]
        if loss is None:
            return GpuPaths(checks=tuple(checks), fixed_shape=False, compiled=False)
        plain = plain_path(model, samples, precision, device)
        batch = loss.shape.batch(samples, focus=0.0).to(device)

        def compute() -> LossAndGradients:
            with autocast(device, precision):
                return loss_and_gradients(list(model.parameters()), batch.counts, [fixed_objective(loss, batch)])

        checks.append(check_path(FIXED_SHAPE, plain, compute, precision, device, ranks))
        fixed_shape = checks[-1].why_left_out is None
        if compiled and fixed_shape:
            loss.compile_graph()
            checks.append(check_path(COMPILED_LOSS, plain, compute, precision, device, ranks))
            compiled = checks[-1].why_left_out is None
            if not compiled:
                loss.remove_graph()
    finally:
        model.train(was_training)
    return GpuPaths(checks=tuple(checks), fixed_shape=fixed_shape, compiled=compiled and fixed_shape)


def plain_path(
    model: AlbertForPreTraining, samples: Samples, precision: Precision, device: torch.device
) -> LossAndGradients:
    """Loss and gradients of packed sequences, nothing compiled; attention uses the kernel if that was found right."""

    def micro_batches() -> Iterator[Sums]:
        for begin in range(0, len(samples.lengths), PLAIN_SEQUENCES):
            end = min(begin + PLAIN_SEQUENCES, len(samples.lengths))
            with autocast(device, precision):
                yield pretraining_objective(model, batch_of(samples.part(begin, end)).to(device))

    return loss_and_gradients(list(model.parameters()), samples.counts, micro_batches())
