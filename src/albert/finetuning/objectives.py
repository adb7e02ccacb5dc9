"""Loss sums for each kind of target; the training loop divides them by the number of sequences."""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional

from albert.finetuning.batches import TaskBatch
from albert.tasks.task import Choice, Score, Span, Target
from albert.training.objective import Batch, Sums


def term_of(target: Target) -> str:
    """The name of the loss term in the journal."""
    match target:
        case Choice():
            return "choice"
        case Score():
            return "score"
        case Span():
            return "span"


def task_loss(model: nn.Module, batch: Batch) -> Sums:
    """The loss of a micro-batch, summed over its sequences.

    Cross entropy for a choice; squared error of the raw number for a score (as the reference has it); for a
    span the mean of the cross entropies of start and end, each over the tokens of its own sequence.
    """
    assert isinstance(batch, TaskBatch)
    output = model(batch.packed)
    if isinstance(output, tuple):
        return _span(output[0].float(), output[1].float(), batch)
    if batch.targets.is_floating_point():
        errors = functional.mse_loss(output.float().squeeze(1), batch.targets.float(), reduction="sum")
        return Sums({batch.term: errors})
    loss = functional.cross_entropy(output.float(), batch.targets, reduction="sum")
    return Sums({batch.term: loss}, {batch.term: (output.argmax(1) == batch.targets).sum()})


def _span(starts: Float[Tensor, " tokens"], ends: Float[Tensor, " tokens"], batch: TaskBatch) -> Sums:
    lengths, first = batch.packed.lengths, batch.packed.first_positions
    start_places, end_places = first + batch.targets[:, 0], first + batch.targets[:, 1]
    loss = _cross_entropy(starts, start_places, lengths) + _cross_entropy(ends, end_places, lengths)
    right = _is_best(starts, start_places, lengths) & _is_best(ends, end_places, lengths)
    return Sums({batch.term: loss / 2}, {batch.term: right.sum()})


def _cross_entropy(
    logits: Float[Tensor, " tokens"], gold: Int[Tensor, " sequences"], lengths: tuple[int, ...]
) -> Float[Tensor, ""]:
    normalizers = torch.stack([piece.logsumexp(0) for piece in logits.split(lengths)])
    return (normalizers - logits[gold]).sum()


def _is_best(logits: Float[Tensor, " tokens"], gold: Int[Tensor, " sequences"], lengths: tuple[int, ...]) -> Tensor:
    best = torch.stack([piece.max() for piece in logits.detach().split(lengths)])
    return logits.detach()[gold] >= best
