"""The scores of the model of a run: on its development set, on further splits, and on rows that it was trained on."""

import time
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any, Literal

from torch import nn

from albert.finetuning.batches import PreparedSplit, encode_split
from albert.finetuning.evaluation import (
    ComputeOptions,
    Evaluation,
    evaluate_model,
    predict_split,
)
from albert.recipes.finetuning import TaskRecipe
from albert.runtime.random_streams import stream
from albert.tasks.declared import DeclaredTask
from albert.tasks.label_threshold import LabelThreshold
from albert.tasks.metrics import NumberScale
from albert.tasks.multi_label import MultiLabel
from albert.tasks.task import Task
from albert.text.tokenizer import Tokenizer

SCORED_TRAINING_ROWS = 300
"""So many training rows are scored at the end, for the advice."""


@dataclass(frozen=True, kw_only=True)
class Scorer:
    """A model that is being trained, and the rows on which it is scored."""

    task: DeclaredTask
    model: nn.Module
    compute: ComputeOptions
    train_split: PreparedSplit
    dev_split: PreparedSplit
    further: tuple[PreparedSplit, ...]
    """Such as a test set."""
    held_out: PreparedSplit | None
    """Rows held out of training, on which a threshold is chosen."""
    threshold: float | Literal["train"] | None
    """Of several labels per example; see `FinetuningSettings`."""
    scale: NumberScale | None
    """Of the standard scores that the head gives while training; None: it gives no numbers, or the data's own."""

    def original_units(self) -> AbstractContextManager[None]:
        """While training, let the head give numbers in the unit of the data."""
        return nullcontext() if self.scale is None else self.scale.baked(self.model.classifier)

    def evaluate(self) -> Evaluation:
        """Evaluate the current model on the development set; its head gives numbers in the unit of the data."""
        fixed = self.threshold
        target = self.task.target
        if isinstance(target, MultiLabel) and fixed is not None and self.held_out is None:
            may_be_empty = any(not example.target for example in self.train_split.examples)
            why = "it was given" if isinstance(fixed, float) else "there are too few rows to hold some out"
            value = fixed if isinstance(fixed, float) else 0.5
            target = replace(target, threshold=LabelThreshold(value, may_be_empty, f"nothing: {why}"))
        elif self.held_out is not None:
            decoded = predict_split(self.model, target, self.held_out, self.compute)
            target = target.tuned(self.held_out.examples, decoded)
        return evaluate_model(self.model, self.task, self.dev_split, self.compute, target)

    def evaluate_further(self, target: Task) -> dict[str, Evaluation]:
        """The evaluations of further splits, by name; `target` has what was tuned."""
        return {
            split.split: evaluate_model(self.model, self.task, split, self.compute, target) for split in self.further
        }

    def training_scores(self, target: Task, tokenizer: Tokenizer, recipe: TaskRecipe) -> dict[str, Any]:
        """The scores of some rows of the training set, and their number."""
        chosen = stream("finetuning.training_scores", 0).permutation(len(self.train_split.examples))
        rows = [self.train_split.examples[index] for index in sorted(chosen[:SCORED_TRAINING_ROWS].tolist())]
        split = encode_split(self.task, "training rows", rows, {}, tokenizer, recipe)
        scores = evaluate_model(self.model, self.task, split, self.compute, target).scores
        return {"examples": len(rows), "scores": dict(scores)}

    def linear_baseline(self, balanced: bool = False) -> dict[str, Any] | None:
        """The scores of a linear model on the same rows, as plain values; None if the task has no such model.

        Args:
            balanced: whether it weights classes by their inverse frequency, as the model does.
        """
        if not self.dev_split.labelled:
            return None
        started = time.perf_counter()
        further = {split.split: split.examples for split in self.further if split.labelled}
        rows = (self.train_split.examples, self.dev_split.examples, further)
        baseline = self.task.target.word_model(self.task.metrics, *rows, balanced=balanced)
        return None if baseline is None else {**vars(baseline), "seconds": time.perf_counter() - started}
