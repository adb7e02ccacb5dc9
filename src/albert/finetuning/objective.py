"""What a fine-tuned model is trained on: the loss of its task, a teacher (distillation), a frozen encoder."""

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from albert.checkpoints.hub import model_name
from albert.checkpoints.model_directory import weights_fingerprint
from albert.finetuning.batches import (
    PreparedSplit,
    TaskBatch,
    TaskBatches,
    arrays_fingerprint,
    encode_split,
    pack_members,
    split_by_tokens,
)
from albert.finetuning.evaluation import ComputeOptions, model_outputs
from albert.finetuning.opened_model import OpenedForTask, open_for_task
from albert.model.albert import (
    AlbertForMultipleChoice,
    AlbertForPairClassification,
    AlbertForSequenceClassification,
)
from albert.model.packing import PackedSequences, split_segments
from albert.recipes.finetuning import Distillation
from albert.runtime.devices import autocast
from albert.runtime.errors import InvalidConfiguration
from albert.runtime.progress import progress
from albert.tasks.declared import DeclaredTask
from albert.tasks.examples import Example, Sequences
from albert.tasks.metrics import NumberScale
from albert.tasks.regression import Regression
from albert.tasks.task import Task
from albert.training.update import Batch, BatchSource, Objective, Sums

# --------------------------------------------------------------------------------------------------------------------
# Distillation (Hinton et al., 2015). The teacher is any model for the same task: deeper, wider, or with another
# tokenizer. Its labels are matched by name. It is run once per example, before the first update and without dropout;
# runs that differ only in their seed share its logits.


TeacherLogits = dict[str, Float[np.ndarray, "examples outputs"]]
"""Logits of teachers, by a fingerprint of the teacher and its inputs."""


@dataclass(frozen=True)
class Teacher:
    """A teacher and the training set in its encoding; new logits are added to `known_logits`.

    With a `scale` numbers are given as its standard scores, as the student is trained on.
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
        features = self.split.features
        columns = self.opened.label_columns
        sequences = features.sequences
        about = f"{self.fingerprint} {compute.precision} {columns}"
        key = arrays_fingerprint(sequences.tokens, sequences.starts, sequences.first_lengths, about=about)
        if key not in self.known_logits:
            model = self.opened.model.to(compute.device)
            rows = model_outputs(model, sequences, compute, "Running the teacher")
            model.cpu()
            outputs = np.stack([np.asarray(row, np.float32) for row in rows])
            n_slots = int(features.slot_of.max(initial=0)) + 1
            if n_slots > 1:
                logits = np.full((len(self.split.examples), n_slots), -np.inf, np.float32)
                logits[features.example_of, features.slot_of] = outputs.reshape(-1)
                outputs = logits
            self.known_logits[key] = outputs if columns is None else outputs[:, columns]
        logits = self.known_logits[key]
        if isinstance(self.opened.target, Regression):
            logits = getattr(nn, self.opened.target.activation)()(torch.from_numpy(logits)).numpy()
        return logits if self.scale is None else self.scale.standardised(logits)


def open_teacher(
    task: DeclaredTask, distillation: Distillation, examples: list[Example], logits: TeacherLogits | None = None
) -> Teacher:
    """Open a teacher and encode the training examples with its own tokenizer and length."""
    if not task.target.per_sequence:
        why = "must produce one output per sequence; this task has answers or tags inside it"
        raise InvalidConfiguration("teacher", why, "leave it out")
    opened = open_for_task(task, distillation.teacher)
    split = encode_split(task, "train", examples, {}, opened.tokenizer, opened.recipe)
    return Teacher(opened, split, {} if logits is None else logits)


# --------------------------------------------------------------------------------------------------------------------
# A frozen encoder runs without dropout and is computed once per example. A head on the pooled sequence needs only the
# state of [CLS], so one vector per sequence is kept. A head on all tokens needs all states; if those of the
# training set exceed `MAX_STATE_BYTES`, they are computed anew in each update, without gradients.

MAX_STATE_BYTES = 2**32
"""A constant, so that a run computes the same on every machine."""


class FrozenEncoder(nn.Module):
    """A model of which only the pooler and the head are trained; the encoder runs without dropout or gradients."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model: Any = model
        self._fixed = (self.model.albert.embeddings, self.model.albert.encoder)
        for part in self._fixed:
            part.requires_grad_(False)

    def forward(
        self, packed: PackedSequences, *head_inputs: Tensor, states: Float[Tensor, "tokens H"] | None = None
    ) -> Any:
        """The head's output; `head_inputs` are its inputs besides the encoder's states, which may be given."""
        computed = self.states(packed) if states is None else states
        return self.model.head_outputs(computed, packed, *head_inputs)

    def states(self, packed: PackedSequences) -> Float[Tensor, "tokens H"]:
        """The states of the last layer."""
        inputs = split_segments(packed) if isinstance(self.model, AlbertForPairClassification) else packed
        for part in self._fixed:
            part.eval()
        with torch.no_grad():
            return self.model.albert(inputs)


def precompute_states(frozen: FrozenEncoder, batches: TaskBatches, compute: ComputeOptions) -> TaskBatches | None:
    """The batches with the encoder's states for all sequences; None if those are too large to keep.

    The sequences of the result are the tokens whose states are kept: all of them, or [CLS] alone.
    """
    if isinstance(frozen.model, AlbertForPairClassification):
        return None  # it encodes other sequences: each text of a pair separately
    sequences = batches.sequences
    state_tokens = sequences
    pooled = isinstance(frozen.model, AlbertForSequenceClassification | AlbertForMultipleChoice)
    if pooled:
        n = len(sequences)
        state_tokens = Sequences(sequences.tokens[sequences.starts[:-1]], np.arange(n + 1), np.ones(n, np.int32))
    shape = (len(state_tokens.tokens), frozen.model.config.hidden_size)
    if 4 * np.prod(shape, dtype=np.int64) > MAX_STATE_BYTES:
        return None
    states = torch.empty(shape)
    pieces = split_by_tokens(np.arange(len(sequences)), sequences.lengths, compute.micro_batch_tokens)
    with progress("Caching encoder outputs", total=len(sequences), unit="sequences") as bar:
        for piece in pieces:
            packed = pack_members(sequences, piece).to(compute.device)
            with autocast(compute.device, compute.precision):
                computed = frozen.states(packed).float()
            rows = computed[packed.first_positions] if pooled else computed
            states[torch.from_numpy(state_tokens.token_indices(piece))] = rows.cpu()
            bar.advance(len(piece))
    return replace(batches, sequences=state_tokens, states=states)


# --------------------------------------------------------------------------------------------------------------------
# Loss sums; the training loop divides them by the number of examples.


@dataclass(frozen=True)
class TaskLoss:
    """The loss of a task, summed over the examples of a micro-batch; a teacher has a part in it, if there is one."""

    target: Task
    distillation: Distillation | None = None

    def __call__(self, model: nn.Module, batch: Batch) -> Sums:
        assert isinstance(batch, TaskBatch)
        of_frozen_encoder = {} if batch.states is None else {"states": batch.states}
        output = model(batch.packed, *self.target.head_inputs(batch), **of_frozen_encoder)
        loss, right = self.target.loss(output, batch)
        if self.distillation is not None and batch.teacher is not None:
            weight = self.distillation.weight
            ours = self.target.logits(output, batch)
            soft = self.target.soft_loss(ours, batch.teacher, self.distillation.temperature)
            loss = (1 - weight) * loss + weight * soft
        return Sums({batch.term: loss}, {} if right is None else {batch.term: right})


@dataclass(frozen=True)
class TrainingSetup:
    """The form of a model that is trained, its batches and its loss, and notes for the report."""

    module: nn.Module
    source: BatchSource
    objective: Objective
    notes: tuple[str, ...] = ()


def training_setup(
    model: nn.Module,
    target: Task,
    batches: TaskBatches,
    compute: ComputeOptions,
    *,
    freeze_encoder: bool = False,
    teacher: Teacher | None = None,
    distillation: Distillation | None = None,
) -> TrainingSetup:
    """Choose module, batches and loss; compute a frozen encoder's states and a teacher's logits beforehand."""
    module = model
    source = batches
    notes = ()
    if freeze_encoder:
        module = FrozenEncoder(model)
        precomputed = precompute_states(module, batches, compute)
        how = "computed anew for each update" if precomputed is None else "computed once"
        source = precomputed or batches
        notes = (f"the encoder is frozen, its states are {how}",)
    if teacher is not None and distillation is not None:
        source = replace(source, teacher=teacher.logits(compute))
        cut = teacher.split.counts.get("truncated", 0)
        truncated = f"; {cut:,} examples are truncated for it" if cut else ""
        notes += (f"learns from {model_name(distillation.teacher)}, run once per example{truncated}",)
    return TrainingSetup(module, source, TaskLoss(target, distillation), notes)
