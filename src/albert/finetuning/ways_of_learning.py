"""How a model learns a task: what is trained, from which batches, by which loss.

Mostly the whole model, by its last layer, from the data. Otherwise at several depths at once, above an encoder that
stays as it is, or from a teacher too; these go together.
"""

from dataclasses import dataclass

from torch import Tensor, nn

from albert.finetuning.batches import TaskBatches
from albert.finetuning.distillation import Distillation, Teacher, soft_loss
from albert.finetuning.evaluation import Computing
from albert.finetuning.exits import HeadAtDepths, exit_weights
from albert.finetuning.frozen_encoder import FrozenEncoder, known_states
from albert.finetuning.objectives import output_loss, task_loss, told_to_the_head
from albert.finetuning.taught_batches import TaughtBatch, TaughtBatches
from albert.training.objective import Batch, BatchSource, Objective, Sums


@dataclass(frozen=True)
class WayOfLearning:
    """What the training loop is given."""

    module: nn.Module
    source: BatchSource
    objective: Objective
    notes: tuple[str, ...] = ()
    """What is to be told of it."""


@dataclass(frozen=True)
class TaughtLoss:
    """The loss of a micro-batch: the exits' losses weighted, each of the data and, where there is one, of a teacher."""

    weights: tuple[float, ...]
    distillation: Distillation | None = None

    def __call__(self, model: nn.Module, batch: Batch) -> Sums:
        """Summed over examples; right are those that the deepest exit gets right."""
        assert isinstance(batch, TaughtBatch)
        outputs = model(batch.batch.packed, told_to_the_head(batch.batch), batch.states)
        each = [self._of_one_exit(output, batch) for output in outputs]
        term = batch.batch.term
        losses = [weight * sums.losses[term] for weight, sums in zip(self.weights, each, strict=True)]
        return Sums({term: sum(losses[1:], losses[0])}, each[-1].correct)

    def _of_one_exit(self, output: Tensor | tuple, batch: TaughtBatch) -> Sums:
        sums = output_loss(output, batch.batch)
        if self.distillation is None or batch.teacher is None or isinstance(output, tuple):
            return sums
        weight, term = self.distillation.weight, batch.batch.term
        logits = output.reshape(batch.teacher.shape)
        soft = soft_loss(logits, batch.teacher, batch.batch.targets, self.distillation.temperature)
        return Sums({term: (1 - weight) * sums.losses[term] + weight * soft}, sums.correct)


def way_of_learning(
    model: nn.Module,
    batches: TaskBatches,
    depths: tuple[int, ...],
    computing: Computing,
    *,
    freeze_encoder: bool = False,
    teacher: Teacher | None = None,
    distillation: Distillation | None = None,
) -> WayOfLearning:
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
        return WayOfLearning(model, batches, task_loss)
    module = (FrozenEncoder if freeze_encoder else HeadAtDepths)(model, depths)
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
    source = TaughtBatches(batches, known, logits)
    return WayOfLearning(module, source, TaughtLoss(exit_weights(depths), distillation), notes)
