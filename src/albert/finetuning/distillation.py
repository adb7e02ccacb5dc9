"""A fine-tuned teacher tells the student what it thinks of each example (Hinton et al., 2015).

The teacher may be any model for the same task: deeper, wider, with another tokenizer, or the same block applied more
often. Its labels are matched by name, and it is asked once an example, before the first update, its dropout off; runs
that differ in their seed only learn from the same answers.
"""

import hashlib
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from albert.checkpoints.weights_fingerprint import weights_fingerprint
from albert.finetuning.evaluation import Computing, model_outputs
from albert.finetuning.opened_for_task import OpenedForTask, open_for_task
from albert.finetuning.splits import PreparedSplit, encode_split
from albert.runtime.errors import InvalidConfiguration
from albert.tasks.examples import Example
from albert.tasks.number_scale import NumberScale
from albert.tasks.options import OptionFeatures
from albert.tasks.task import Span, Tags, Task


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
        """The teacher for a record: the last two parts of a path, or a Hub id with its revision."""
        short = "/".join(Path(self.teacher).parts[-2:])
        return f"{short}@{self.revision}" if self.revision else short


Said = dict[str, Float[np.ndarray, "examples outputs"]]
"""What teachers said, by who was asked what."""


@dataclass(frozen=True)
class Teacher:
    """A teacher and the training set as it reads it; what it said of that before is in `said`, or comes into it.

    Its numbers are told as standard scores of `scale` where the student learns those.
    """

    opened: OpenedForTask
    split: PreparedSplit
    said: Said = field(default_factory=dict)
    scale: NumberScale | None = None

    @property
    def fingerprint(self) -> str:
        """Of its weights."""
        return weights_fingerprint(self.opened.model.state_dict())

    def logits(self, computing: Computing) -> Float[np.ndarray, "examples outputs"]:
        """What it says to every training example: a logit for each of the task's labels or options, or a number."""
        question = self._question(computing)
        if question not in self.said:
            self.said[question] = self._asked(computing)
        found = self.said[question]
        return found if self.scale is None else self.scale.standardised(found)

    def _question(self, computing: Computing) -> str:
        sequences = self.split.features.sequences
        digest = hashlib.sha256(f"{self.fingerprint} {computing.precision} {self.opened.label_columns}".encode())
        for array in (sequences.tokens, sequences.starts, sequences.first_lengths):
            digest.update(np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()

    def _asked(self, computing: Computing) -> Float[np.ndarray, "examples outputs"]:
        features, columns = self.split.features, self.opened.label_columns
        model = self.opened.model.to(computing.device)
        rows = model_outputs(model, features.sequences, computing, "Asking the teacher")
        model.cpu()
        found = np.stack([np.asarray(row, np.float32) for row in rows])
        if isinstance(features, OptionFeatures):
            return found.reshape(-1, features.n_options)
        return found if columns is None else found[:, columns]


def open_teacher(task: Task, distillation: Distillation, examples: list[Example], said: Said | None = None) -> Teacher:
    """Open a teacher and encode the training examples with its own tokenizer and length.

    Args:
        task: what is learnt.
        distillation: names the teacher.
        examples: of the training set.
        said: answers of earlier runs, to which new ones are added; None: there are none.

    Raises:
        InvalidConfiguration: the task asks for spans or tags, or the teacher has no head for it, or other labels.
        MissingInput, DamagedData: the teacher cannot be read.
    """
    if isinstance(task.target, Span | Tags):
        why = "is asked for one answer a sequence, this task asks for places or tags in it"
        raise InvalidConfiguration("teacher", why, "leave it out")
    opened = open_for_task(task, distillation.teacher, revision=distillation.revision)
    split = encode_split(task, "the teacher's", examples, {}, opened.tokenizer, opened.recipe)
    return Teacher(opened, split, {} if said is None else said)


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

    Args:
        output: the student's logits.
        teacher: the teacher's.
        targets: what the data say, whose kind says which of these it is.
        temperature: see `Distillation`.
    """
    output, teacher = output.float(), teacher.float()
    if targets.is_floating_point() and targets.dim() == 1:
        return functional.mse_loss(output, teacher, reduction="sum")
    ours, theirs = output / temperature, teacher / temperature
    if targets.is_floating_point():
        losses = functional.binary_cross_entropy_with_logits(ours, theirs.sigmoid(), reduction="none")
        return temperature**2 * losses.mean(dim=1).sum()
    return temperature**2 * -(theirs.softmax(dim=1) * ours.log_softmax(dim=1)).sum()
