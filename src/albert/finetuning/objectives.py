"""Loss sums for each kind of target; the training loop divides them by the number of sequences."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional

from albert.finetuning.batches import TaskBatch
from albert.model.joint_question_answering import SpanFromStart
from albert.tasks.task import Choice, Labels, Option, Score, Span, Tags, Target
from albert.training.objective import Batch, Sums

JOINT_SPAN = "joint_span"


def term_of(target: Target) -> str:
    """The name of the loss term in the journal."""
    match target:
        case Choice():
            return "choice"
        case Labels():
            return "labels"
        case Tags():
            return "tags"
        case Score():
            return "score"
        case Option():
            return "option"
        case Span(head="joint"):
            return JOINT_SPAN
        case Span():
            return "span"


def task_loss(model: nn.Module, batch: Batch) -> Sums:
    """The loss of a micro-batch, summed over its examples; see `output_loss`."""
    assert isinstance(batch, TaskBatch)
    return output_loss(model(batch.packed, *told_to_the_head(batch)), batch)


def told_to_the_head(batch: TaskBatch) -> tuple[Int[Tensor, " sequences"], ...]:
    """What a head needs to know beside the states to learn from them: a joint span, where the answers start."""
    return (batch.packed.first_positions + batch.targets[:, 0],) if batch.term == JOINT_SPAN else ()


def output_loss(output: Tensor | tuple, batch: TaskBatch) -> Sums:
    """The loss of what a model's head gave for a micro-batch, summed over its examples.

    Cross entropy for a choice, for the tag of each word at its first piece, and for an option over the sequences of its
    question; the mean of the labels' binary cross entropies where several may be true; squared error of the standard
    score for a number (the reference takes the number itself); for a span the mean of the cross entropies of start and
    end, each over the tokens of its own sequence. A joint span adds half the cross entropy of "no answer", as the
    reference does; a window without an answer points at its [CLS].
    """
    if isinstance(output, SpanFromStart):
        return _joint_span(output, batch)
    if isinstance(output, tuple):
        loss, right = _span(output[0].float(), output[1].float(), batch)
        return Sums({batch.term: loss}, {batch.term: right.sum()})
    if batch.targets.is_floating_point() and batch.targets.dim() == 2:
        return _labels(output, batch)
    if batch.targets.is_floating_point():
        errors = functional.mse_loss(output.float().squeeze(1), batch.targets.float(), reduction="sum")
        return Sums({batch.term: errors})
    output = output.reshape(len(batch.targets), -1)
    loss = functional.cross_entropy(output.float(), batch.targets, reduction="sum")
    return Sums({batch.term: loss}, {batch.term: (output.argmax(1) == batch.targets).sum()})


def _labels(logits: Float[Tensor, "sequences labels"], batch: TaskBatch) -> Sums:
    losses = functional.binary_cross_entropy_with_logits(logits.float(), batch.targets.float(), reduction="none")
    right = ((logits > 0) == batch.targets.bool()).all(dim=1)
    return Sums({batch.term: losses.mean(dim=1).sum()}, {batch.term: right.sum()})


def _joint_span(output: SpanFromStart, batch: TaskBatch) -> Sums:
    absent = batch.targets[:, 0] == 0
    loss, right = _span(output.starts, output.ends, batch)
    logits = output.unanswerable
    decision = functional.binary_cross_entropy_with_logits(logits.float(), absent.float(), reduction="sum")
    right &= (logits > 0) == absent
    return Sums({batch.term: loss + decision / 2}, {batch.term: right.sum()})


def _span(
    starts: Float[Tensor, " tokens"], ends: Float[Tensor, " tokens"], batch: TaskBatch
) -> tuple[Float[Tensor, ""], Bool[Tensor, " sequences"]]:
    """The loss, and which spans the logits favour."""
    lengths, first = batch.packed.lengths, batch.packed.first_positions
    start_places, end_places = first + batch.targets[:, 0], first + batch.targets[:, 1]
    loss = _cross_entropy(starts, start_places, lengths) + _cross_entropy(ends, end_places, lengths)
    return loss / 2, _is_best(starts, start_places, lengths) & _is_best(ends, end_places, lengths)


def _cross_entropy(
    logits: Float[Tensor, " tokens"], gold: Int[Tensor, " sequences"], lengths: tuple[int, ...]
) -> Float[Tensor, ""]:
    normalizers = torch.stack([piece.logsumexp(0) for piece in logits.split(lengths)])
    return (normalizers - logits[gold]).sum()


def _is_best(
    logits: Float[Tensor, " tokens"], gold: Int[Tensor, " sequences"], lengths: tuple[int, ...]
) -> Bool[Tensor, " sequences"]:
    best = torch.stack([piece.max() for piece in logits.detach().split(lengths)])
    return logits.detach()[gold] >= best
