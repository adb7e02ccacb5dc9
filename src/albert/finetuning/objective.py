"""What a fine-tuned model learns from: the loss of each kind of task, a teacher (distillation), a frozen encoder."""

from dataclasses import dataclass, field, replace

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional

from albert.checkpoints.hub import model_name
from albert.checkpoints.model_directory import weights_fingerprint
from albert.finetuning.data import (
    PreparedSplit,
    TaskBatch,
    TaskBatches,
    arrays_fingerprint,
    encode_split,
    pack_members,
    split_by_tokens,
)
from albert.finetuning.evaluation import ComputeOptions, model_outputs
from albert.finetuning.model import MultiExitModel, OpenedForTask, exit_weights, open_for_task
from albert.model.albert import (
    AlbertForMultipleChoice,
    AlbertForPairClassification,
    AlbertForSequenceClassification,
    SpanFromStart,
)
from albert.model.packing import PackedSequences
from albert.runtime.devices import autocast
from albert.runtime.errors import InvalidConfiguration
from albert.runtime.progress import progress
from albert.tasks.examples import Example, Sequences
from albert.tasks.metrics import NumberScale
from albert.tasks.task import Span, Tags, Target, Task
from albert.training.update import Batch, BatchSource, Objective, Sums

# --------------------------------------------------------------------------------------------------------------------
# Distillation (Hinton et al., 2015). The teacher may be any model for the same task: deeper, wider, with another
# tokenizer, or the same block applied more often. Its labels are matched by name. It answers each example once,
# before the first update, its dropout off; runs that differ in their seed only learn from the same answers.


@dataclass(frozen=True, kw_only=True)
class Distillation:
    """Whom to learn from, and how much."""

    teacher: str
    """A fine-tuned model directory, a run, or a Hub id."""
    revision: str | None = None
    """A branch, tag or commit of a Hub repository."""
    temperature: float = 2.0
    """By which the logits of both are divided: higher ones show more of what the teacher thinks of wrong labels."""
    weight: float = 0.5
    """Of the teacher in the loss; the rest is that of the labels."""

    def __post_init__(self) -> None:
        if not self.temperature > 0:
            raise InvalidConfiguration("distillation temperature", f"is {self.temperature}, it must be above 0")
        if not 0 < self.weight <= 1:
            raise InvalidConfiguration("distillation weight", f"is {self.weight}, it must be above 0 and at most 1")

    @property
    def source(self) -> str:
        """The teacher for a record; see `model_name`."""
        return model_name(self.teacher, self.revision)


TeacherLogits = dict[str, Float[np.ndarray, "examples outputs"]]
"""Logits of teachers, by teacher and question."""


@dataclass(frozen=True)
class Teacher:
    """A teacher and the training set as it reads it; new logits are added to `known_logits`.

    Numbers are given as standard scores of `scale` where the student learns those.
    """

    opened: OpenedForTask
    split: PreparedSplit
    known_logits: TeacherLogits = field(default_factory=dict)
    scale: NumberScale | None = None

    @property
    def fingerprint(self) -> str:
        return weights_fingerprint(self.opened.model.state_dict())

    def logits(self, compute: ComputeOptions) -> Float[np.ndarray, "examples outputs"]:
        """For every training example a logit for each of the task's labels or options, or a number."""
        features, columns = self.split.features, self.opened.label_columns
        read = features.sequences
        about = f"{self.fingerprint} {compute.precision} {columns}"
        question = arrays_fingerprint(read.tokens, read.starts, read.first_lengths, about=about)
        if question not in self.known_logits:
            model = self.opened.model.to(compute.device)
            rows = model_outputs(model, read, compute, "Asking the teacher")
            model.cpu()
            found = np.stack([np.asarray(row, np.float32) for row in rows])
            if features.n_options > 1:
                found = found.reshape(-1, features.n_options)
            self.known_logits[question] = found if columns is None else found[:, columns]
        found = self.known_logits[question]
        return found if self.scale is None else self.scale.standardised(found)


def open_teacher(
    task: Task, distillation: Distillation, examples: list[Example], logits: TeacherLogits | None = None
) -> Teacher:
    """Open a teacher and encode the training examples with its own tokenizer and length.

    Raises:
        InvalidConfiguration: the task asks for spans or tags, or the teacher has no head for it, or other labels.
        MissingInput, DamagedData: the teacher cannot be read.
    """
    if isinstance(task.target, Span | Tags):
        why = "must produce one output per sequence; this task has answers or tags inside it"
        raise InvalidConfiguration("teacher", why, "leave it out")
    opened = open_for_task(task, distillation.teacher, revision=distillation.revision)
    split = encode_split(task, "the teacher's", examples, {}, opened.tokenizer, opened.recipe)
    return Teacher(opened, split, {} if logits is None else logits)


def soft_loss(
    output: Float[Tensor, "examples outputs"],
    teacher: Float[Tensor, "examples outputs"],
    targets: Tensor,
    temperature: float,
) -> Float[Tensor, ""]:
    """How far student and teacher are apart, summed over examples.

    Cross entropy of the softened probabilities, times the square of the temperature so that its gradients keep their
    size (Hinton et al., 2015, §2); the mean over labels of binary ones where several may be true; squared error of
    numbers.
    """
    output, teacher = output.float(), teacher.float()
    if targets.is_floating_point() and targets.dim() == 1:
        return functional.mse_loss(output, teacher, reduction="sum")
    ours, theirs = output / temperature, teacher / temperature
    if targets.is_floating_point():
        losses = functional.binary_cross_entropy_with_logits(ours, theirs.sigmoid(), reduction="none")
        return temperature**2 * losses.mean(dim=1).sum()
    return temperature**2 * -(theirs.softmax(dim=1) * ours.log_softmax(dim=1)).sum()


# --------------------------------------------------------------------------------------------------------------------
# An encoder that stays as it is while pooler and head learn: what it gives is computed once an example.
#
# A frozen encoder is a fixed function: its dropout is off. A head on the pooled sequence reads the state of [CLS]
# alone, so one vector a sequence (and exit) is kept for all epochs, and an update costs no pass through the
# encoder. A head that reads every token needs all states; where those of the whole training set are more than
# `MAX_STATE_BYTES`, they are computed anew in each update, without gradients.

MAX_STATE_BYTES = 2**32
"""Of states that are kept; a fixed number, so that a run computes the same on every machine."""


class FrozenEncoder(MultiExitModel):
    """A model of which only pooler and head learn; for the arguments see `MultiExitModel`."""

    def __init__(self, model: nn.Module, depths: tuple[int, ...]) -> None:
        super().__init__(model, depths)
        self._fixed = (self.model.albert.embeddings, self.model.albert.encoder)
        for part in self._fixed:
            part.requires_grad_(False)

    def states(self, packed: PackedSequences) -> list[Float[Tensor, "tokens H"]]:
        for part in self._fixed:
            part.eval()
        with torch.no_grad():
            return super().states(packed)


def precompute_states(frozen: FrozenEncoder, batches: TaskBatches, compute: ComputeOptions) -> TaskBatches | None:
    """The batches with what the encoder gives for all sequences, computed once; None where that is too much to keep.

    Their sequences are those tokens whose states are kept: all of them, or [CLS] alone.
    """
    if isinstance(frozen.model, AlbertForPairClassification):
        return None  # its states are those of other sequences: each text by itself
    sequences, first_alone = batches.sequences, False
    if isinstance(frozen.model, AlbertForSequenceClassification | AlbertForMultipleChoice):
        n, first_alone = len(sequences), True
        kept = Sequences(sequences.tokens[sequences.starts[:-1]], np.arange(n + 1), np.ones(n, np.int32))
    else:
        kept = sequences
    shape = (len(frozen.depths), len(kept.tokens), frozen.model.config.hidden_size)
    if 4 * np.prod(shape, dtype=np.int64) > MAX_STATE_BYTES:
        return None
    states = torch.empty(shape)
    pieces = split_by_tokens(np.arange(len(sequences)), sequences.lengths, compute.micro_batch_tokens)
    with progress("Encoding once", total=len(sequences), unit="sequences") as bar:
        for piece in pieces:
            packed = pack_members(sequences, piece).to(compute.device)
            with autocast(compute.device, compute.precision):
                found = torch.stack([each.float() for each in frozen.states(packed)])
            rows = found[:, packed.first_positions] if first_alone else found
            states[:, torch.from_numpy(kept.token_indices(piece))] = rows.cpu()
            bar.advance(len(piece))
    return replace(batches, sequences=kept, states=states)


# --------------------------------------------------------------------------------------------------------------------
# Loss sums for each kind of target; the training loop divides them by the number of sequences.

JOINT_SPAN = "joint_span"


def term_of(target: Target) -> str:
    """The name of the loss term in the journal: choice, labels, tags, score, option, span or joint_span."""
    return JOINT_SPAN if isinstance(target, Span) and target.head == "joint" else type(target).__name__.lower()


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
    lengths, loss = batch.packed.lengths, torch.zeros((), device=starts.device)
    right = torch.ones(len(lengths), dtype=torch.bool, device=starts.device)
    for logits, places in zip((starts, ends), batch.targets.T, strict=True):
        gold = logits[batch.packed.first_positions + places]
        pieces = logits.split(lengths)  # each sequence's own tokens
        loss = loss + (torch.stack([piece.logsumexp(0) for piece in pieces]) - gold).sum()
        right &= gold.detach() >= torch.stack([piece.detach().max() for piece in pieces])
    return loss / 2, right


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
    """The loss of a micro-batch summed over examples: the exits' losses weighted, each of the data and of a teacher.

    Examples count as right that the deepest exit gets right.
    """

    weights: tuple[float, ...]
    distillation: Distillation | None = None

    def __call__(self, model: nn.Module, batch: Batch) -> Sums:
        assert isinstance(batch, TaskBatch)
        outputs = model(batch.packed, head_inputs(batch), batch.states)
        each = [self._exit_loss(output, batch) for output in outputs]
        losses = [weight * sums.losses[batch.term] for weight, sums in zip(self.weights, each, strict=True)]
        return Sums({batch.term: sum(losses[1:], losses[0])}, each[-1].correct)

    def _exit_loss(self, output: Tensor | tuple, batch: TaskBatch) -> Sums:
        sums = output_loss(output, batch)
        if self.distillation is None or batch.teacher is None or isinstance(output, tuple):
            return sums
        weight, logits = self.distillation.weight, output.reshape(batch.teacher.shape)
        soft = soft_loss(logits, batch.teacher, batch.targets, self.distillation.temperature)
        return Sums({batch.term: (1 - weight) * sums.losses[batch.term] + weight * soft}, sums.correct)


def training_setup(
    model: nn.Module,
    batches: TaskBatches,
    depths: tuple[int, ...],
    compute: ComputeOptions,
    *,
    freeze_encoder: bool = False,
    teacher: Teacher | None = None,
    distillation: Distillation | None = None,
) -> TrainingSetup:
    """Put together how a model learns; what is computed beforehand is computed here.

    Args:
        depths: after which layers the head learns to answer, ascending, the last layer among them.
    """
    if len(depths) == 1 and not freeze_encoder and teacher is None:
        return TrainingSetup(model, batches, task_loss)
    module = (FrozenEncoder if freeze_encoder else MultiExitModel)(model, depths)
    source, notes = batches, ()
    if isinstance(module, FrozenEncoder):
        known = precompute_states(module, batches, compute)
        how = "computed anew for each update" if known is None else "computed once"
        source, notes = known or batches, (f"the encoder is frozen, its states are {how}",)
    if teacher is not None and distillation is not None:
        source = replace(source, teacher=teacher.logits(compute))
        cut = teacher.split.counts.get("truncated", 0)
        shortened = f", which reads {cut:,} of them cut" if cut else ""
        notes += (f"learns from {distillation.source}{shortened}, asked once an example",)
    return TrainingSetup(module, source, DistillationLoss(exit_weights(depths), distillation), notes)
