"""The form in which a model is pre-trained: sharded or not, and on a GPU with the faster paths that give the losses and
gradients of the plain one.

See `albert.training.self_check`.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch

from albert.model.albert import AlbertForPreTraining
from albert.pretraining.batches import Samples, batch_of, pretraining_objective
from albert.pretraining.fixed_shape import FixedBatches, PretrainingLoss, fixed_objective, shape_of
from albert.pretraining.sampling import SampleSource
from albert.recipes.pretraining import PretrainingRecipe
from albert.runtime.devices import Dropout, autocast
from albert.runtime.distributed import sharded_copy
from albert.runtime.environment import Precision, Ranks
from albert.runtime.errors import Unavailable
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
class WrappedModel:
    """What of a model is trained."""

    module: AlbertForPreTraining
    """On the device: the model itself, or a copy that is sharded over all ranks."""
    loss: PretrainingLoss | None
    """The module's loss for micro-batches of a fixed shape; None: they are packed."""
    checks: tuple[SelfCheck, ...]
    """What the paths of a GPU gave on the first micro-batch."""


def trained_form(
    model: AlbertForPreTraining,
    recipe: PretrainingRecipe,
    samples: SampleSource,
    device: torch.device,
    ranks: Ranks,
) -> WrappedModel:
    """Choose the form in which a model is trained; on a GPU its paths are checked first.

    Args:
        model: unsharded; all ranks get the first one's weights.

    Raises:
        Unavailable: the recipe asks for a path that fails or gives other numbers.
    """
    on_gpu = device.type == "cuda"
    compiled = recipe.compile if recipe.compile is not None else on_gpu and recipe.fixed_shape is not False
    fixed = recipe.fixed_shape if recipe.fixed_shape is not None else on_gpu or compiled
    loss = PretrainingLoss(model, shape_of(recipe, samples, ranks.size)) if fixed else None
    checks: tuple[SelfCheck, ...] = ()
    if on_gpu:
        paths = paths_of_recipe(model, loss, compiled, recipe, samples, device, ranks)
        checks = paths.checks
        compiled = paths.compiled
        if not paths.fixed_shape:
            loss = None
    if recipe.parallelism == "data" or ranks.size == 1:
        model.to(device)
        if loss is not None and compiled and not on_gpu:
            loss.compile_graph()
        return WrappedModel(module=model, loss=loss, checks=checks)
    model.to("cpu")
    if loss is None:
        module = sharded_copy(model, ranks, device)
    else:
        loss.remove_graph()
        loss = sharded_copy(loss, ranks, device)
        module = loss.model
        if compiled:
            loss.compile_graph()
    model.eval()
    return WrappedModel(module=module, loss=loss, checks=checks)


def paths_of_recipe(
    model: AlbertForPreTraining,
    loss: PretrainingLoss | None,
    compiled: bool,
    recipe: PretrainingRecipe,
    samples: SampleSource,
    device: torch.device,
    ranks: Ranks,
) -> "GpuPaths":
    """Compare the paths of a GPU with the plain one, on the first micro-batch.

    Raises:
        Unavailable: the recipe asks for one that fails or gives other numbers.
    """
    model.to(device)
    if loss is None:
        first = samples.batch(np.arange(min(recipe.micro_batch_size, PLAIN_SEQUENCES)))
    else:
        first = FixedBatches(samples, recipe.batch_size, loss.shape).samples_of(0, ranks.rank, ranks.size)[0]
    paths = check_gpu_paths(model, loss, compiled, first, recipe.resolved_precision, device, ranks)
    asked = {FIXED_SHAPE: ("fixed_shape", recipe.fixed_shape), COMPILED_LOSS: ("compile", recipe.compile)}
    for check in paths.checks:
        option, value = asked.get(check.path, ("", None))
        if value and check.why_left_out is not None:
            raise Unavailable(option, check.why_left_out, "leave this option out")
    return paths


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
        batch = loss.shape.batch(samples).to(device)

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
