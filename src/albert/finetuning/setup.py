"""The training setup of a fine-tuning run: which module is trained, from which batches, by which loss.

Mostly the whole model, by its last layer, from the labels. Otherwise at several depths at once, above a frozen encoder,
or from a teacher too; these can be combined. The loss of each kind of target is here."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional

from albert.finetuning.data import TaskBatch, TaskBatches
from albert.finetuning.distillation import (
    Distillation,
    DistillationBatch,
    DistillationBatches,
    FrozenEncoder,
    Teacher,
    known_states,
    soft_loss,
)
from albert.finetuning.evaluation import Computing
from albert.finetuning.model import MultiExitModel, exit_weights
from albert.model.albert import SpanFromStart
from albert.tasks.task import Choice, Labels, Option, Score, Span, Tags, Target
from albert.training.update import Batch, BatchSource, Objective, Sums

# --------------------------------------------------------------------------------------------------------------------
# Loss sums for each kind of target; the training loop divides them by the number of sequences.

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
    return output_loss(model(batch.packed, *head_inputs(batch)), batch)


def head_inputs(batch: TaskBatch) -> tuple[Int[Tensor, " sequences"], ...]:
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


@dataclass(frozen=True)
class TrainingSetup:
    """What the training loop is given."""

    module: nn.Module
    source: BatchSource
    objective: Objective
    notes: tuple[str, ...] = ()
    """What is to be told of it."""


@dataclass(frozen=True)
class DistillationLoss:
    """The loss of a micro-batch: the exits' losses weighted, each of the data and, where there is one, of a teacher."""

    weights: tuple[float, ...]
    distillation: Distillation | None = None

    def __call__(self, model: nn.Module, batch: Batch) -> Sums:
        """Summed over examples; right are those that the deepest exit gets right."""
        assert isinstance(batch, DistillationBatch)
        outputs = model(batch.batch.packed, head_inputs(batch.batch), batch.states)
        each = [self._of_one_exit(output, batch) for output in outputs]
        term = batch.batch.term
        losses = [weight * sums.losses[term] for weight, sums in zip(self.weights, each, strict=True)]
        return Sums({term: sum(losses[1:], losses[0])}, each[-1].correct)

    def _of_one_exit(self, output: Tensor | tuple, batch: DistillationBatch) -> Sums:
        sums = output_loss(output, batch.batch)
        if self.distillation is None or batch.teacher is None or isinstance(output, tuple):
            return sums
        weight, term = self.distillation.weight, batch.batch.term
        logits = output.reshape(batch.teacher.shape)
        soft = soft_loss(logits, batch.teacher, batch.batch.targets, self.distillation.temperature)
        return Sums({term: (1 - weight) * sums.losses[term] + weight * soft}, sums.correct)


def training_setup(
    model: nn.Module,
    batches: TaskBatches,
    depths: tuple[int, ...],
    computing: Computing,
    *,
    freeze_encoder: bool = False,
    teacher: Teacher | None = None,
    distillation: Distillation | None = None,
) -> TrainingSetup:
    """Put together how a model learns; what is computed beforehand is computed here.

    Args:
        model: with a task's head, on its device.
        batches: from the training set.
        depths: after which layers the head learns to answer, ascending, the last layer among them.
        computing: where and how.
        freeze_encoder: whether only pooler and head learn.
        teacher: whom to ask first.
        distillation: how much the teacher counts.
    """
    if len(depths) == 1 and not freeze_encoder and teacher is None:
        return TrainingSetup(model, batches, task_loss)
    module = (FrozenEncoder if freeze_encoder else MultiExitModel)(model, depths)
    known, notes = None, ()
    if isinstance(module, FrozenEncoder):
        known = known_states(module, batches.sequences, computing)
        how = "computed anew for each update: too many to keep" if known is None else "computed once"
        notes = (f"the encoder is frozen, its states are {how}",)
    logits = None
    if teacher is not None and distillation is not None:
        logits = teacher.logits(computing)
        cut = teacher.split.counts.get("truncated", 0)
        shortened = f", which reads {cut:,} of them cut" if cut else ""
        notes += (f"learns from {distillation.source}{shortened}, asked once an example",)
    source = DistillationBatches(batches, known, logits)
    return TrainingSetup(module, source, DistillationLoss(exit_weights(depths), distillation), notes)
