"""A model's answers on a split, scored by the task's official metrics, with the trivial baseline beside them.

Every example is answered; nothing is scored on a part of a split.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy.special import expit
from torch import nn

from albert.finetuning.batches import pack_members, split_by_tokens
from albert.finetuning.decisions import (
    Decisions,
    decided_answers,
    decided_label_sets,
    decided_labels,
    decided_numbers,
    decided_tags,
    groups_of,
)
from albert.finetuning.held_out_threshold import threshold_for
from albert.finetuning.splits import PreparedSplit
from albert.model.output_rows import OutputRow, SpanBeamRow, output_rows
from albert.runtime.devices import autocast
from albert.runtime.errors import Diverged, InvalidConfiguration
from albert.runtime.precisions import Precision
from albert.runtime.progress import progress
from albert.tasks.answers import Answers, best_answers
from albert.tasks.baseline import baseline_scores, task_scores
from albert.tasks.features import Sequences
from albert.tasks.metrics import in_order
from albert.tasks.null_threshold import NullThreshold
from albert.tasks.options import OptionFeatures
from albert.tasks.task import Labels, Score, Span, Tags, Target, Task
from albert.tasks.windows import SpanFeatures
from albert.tasks.words import TagFeatures

Predicted = np.ndarray | list[Answers]
"""Probabilities [examples, labels] in the task's order, of options, or [words of all examples, labels]; numbers
[examples]; or answers."""
CHOSEN_ON_THESE = "best_: with the threshold that suits the scored questions best, as the reference reports it"


@dataclass(frozen=True)
class Computing:
    """Where and how a model runs: device, precision, and tokens that go through it at once."""

    device: torch.device
    precision: Precision = "fp32"
    micro_batch_tokens: int = 8192

    def __post_init__(self) -> None:
        if self.micro_batch_tokens < 1:
            raise InvalidConfiguration("micro_batch_tokens", f"is {self.micro_batch_tokens}, at least 1 is needed")


@dataclass(frozen=True)
class Evaluation:
    """What came of an evaluation.

    `scores` and `baseline` map metric names to values (None: undefined, or no baseline exists); without labels there
    are none. `predictions` has one JSON object per example, in file order; `notes` are what must be said beside the
    scores. `threshold` is from where on a question had no answer.
    """

    scores: Mapping[str, float | None]
    baseline: Mapping[str, float | None] | None
    predictions: list[dict[str, Any]]
    counts: Mapping[str, int]
    seconds: float
    notes: tuple[str, ...] = ()
    threshold: NullThreshold | None = None

    @property
    def defined_scores(self) -> dict[str, float]:
        """The scores that have a value."""
        return {name: value for name, value in self.scores.items() if value is not None}


def evaluate_model(
    model: nn.Module,
    task: Task,
    prepared: PreparedSplit,
    computing: Computing,
    label_columns: Sequence[int] | None = None,
    threshold: NullThreshold | None = None,
) -> Evaluation:
    """Answer every example and score the answers; for the arguments see `predict_split` and `evaluation_of`.

    Raises:
        Diverged: the model's outputs are not finite.
    """
    started = time.perf_counter()
    predicted = predict_split(model, task.target, prepared, computing, label_columns)
    return evaluation_of(task, prepared, predicted, threshold, started)


def evaluation_of(
    task: Task, prepared: PreparedSplit, predicted: Predicted, threshold: NullThreshold | None, started: float
) -> Evaluation:
    """Decide and score what was predicted.

    Args:
        task: the declaration.
        prepared: the split; without labels nothing is scored.
        predicted: what a model, or several, say to its examples.
        threshold: from where on a question has no answer, where that may be; None chooses it on the split itself.
        started: when the work on the split began, by `time.perf_counter`.
    """
    decisions, threshold = _decisions(task, prepared, predicted, threshold)
    identifiers = [example.identifier for example in prepared.examples]
    in_order(identifiers, {entry["id"]: entry for entry in decisions.entries}, prepared.split)
    if not prepared.labelled:
        decisions.entries[:] = [{**entry, "gold": None} for entry in decisions.entries]
    scores, baseline = _scores(task, prepared, decisions) if prepared.labelled else ({}, None)
    notes = () if threshold is None else (threshold.note, *([CHOSEN_ON_THESE] if prepared.labelled else []))
    return Evaluation(
        scores=scores,
        baseline=baseline,
        predictions=decisions.entries,
        counts=prepared.counts,
        seconds=time.perf_counter() - started,
        notes=notes,
        threshold=threshold,
    )


def predict_split(
    model: nn.Module,
    target: Target,
    prepared: PreparedSplit,
    computing: Computing,
    label_columns: Sequence[int] | None = None,
) -> Predicted:
    """What a model says to every example of a split, before anything is decided.

    Args:
        model: with a head for the target, on the device already. Its training mode is kept.
        target: what is asked.
        prepared: the split.
        computing: where and how.
        label_columns: for each label of the task, the model's output for it; None when they are in the same
            order.
    """
    outputs = model_outputs(model, prepared.features.sequences, computing, f"Evaluating {prepared.split}")
    return predicted_of(target, prepared, outputs, label_columns)


def predicted_of(
    target: Target,
    prepared: PreparedSplit,
    outputs: Sequence[OutputRow],
    label_columns: Sequence[int] | None = None,
) -> Predicted:
    """What a model's outputs for the sequences of a split, in their order, say to its examples; see `predict_split`."""
    features = prepared.features
    if isinstance(target, Span):
        assert isinstance(features, SpanFeatures)
        return best_answers(
            prepared.examples, features, outputs, target.max_answer_tokens, may_be_absent=target.may_be_absent
        )
    arrays = [np.asarray(row) for row in outputs]
    found = features.words.judged(arrays) if isinstance(features, TagFeatures) else np.stack(arrays)
    logits = found.astype(np.float64)
    if isinstance(target, Score):
        return logits[:, 0]
    if isinstance(features, OptionFeatures):
        logits = logits.reshape(-1, features.n_options)
    elif label_columns is not None:
        logits = logits[:, list(label_columns)]
    if isinstance(target, Labels):
        return expit(logits)
    exponentials = np.exp(logits - logits.max(axis=1, keepdims=True))
    return exponentials / exponentials.sum(axis=1, keepdims=True)


def model_outputs(model: nn.Module, sequences: Sequences, computing: Computing, description: str) -> list[OutputRow]:
    """The head's outputs in the order of the sequences; see `output_rows`."""
    outputs: list[OutputRow] = [np.zeros(0, np.float32)] * len(sequences)
    pieces = split_by_tokens(np.arange(len(sequences)), sequences.lengths, computing.micro_batch_tokens)
    was_training = model.training
    model.eval()
    with torch.inference_mode(), progress(description, total=len(sequences), unit="sequences") as bar:
        for piece in pieces:
            packed = pack_members(sequences, piece).to(computing.device)
            with autocast(computing.device, computing.precision):
                rows = output_rows(model(packed), packed.lengths)
            for index, row in zip(piece, rows, strict=True):
                outputs[index] = row
            bar.advance(len(piece))
    model.train(was_training)
    arrays = (array for row in outputs for array in (row if isinstance(row, SpanBeamRow) else (row,)))
    if not all(np.isfinite(array).all() for array in arrays):
        raise Diverged("model", "its outputs are not finite numbers", "train it again with a smaller learning rate")
    return outputs


def _decisions(
    task: Task, prepared: PreparedSplit, predicted: Predicted, threshold: NullThreshold | None
) -> tuple[Decisions, NullThreshold | None]:
    """What was predicted, decided, and the threshold that was applied, if any."""
    examples, target, features = prepared.examples, task.target, prepared.features
    if isinstance(target, Span):
        assert isinstance(predicted, list)
        if not target.may_be_absent:
            return decided_answers(examples, predicted, None), None
        threshold = threshold or threshold_for(examples, predicted, "the very questions that are scored")
        return decided_answers(examples, predicted, threshold), threshold
    assert isinstance(predicted, np.ndarray)
    if isinstance(features, TagFeatures):
        assert isinstance(target, Tags)
        return decided_tags(examples, target, features.words.by_sentence(predicted)), None
    assert not isinstance(target, Tags)
    if isinstance(target, Labels):
        return decided_label_sets(examples, target, features.targets, predicted), None
    if isinstance(target, Score):
        return decided_numbers(examples, features.targets, predicted), None
    return decided_labels(examples, target, features.targets, predicted), None


def _scores(
    task: Task, prepared: PreparedSplit, decisions: Decisions
) -> tuple[dict[str, float | None], dict[str, float | None] | None]:
    """Scores and those of the constant answer, of the whole split and of each group in it."""
    scores, baseline = task_scores(task, decisions.gold, decisions.predicted), baseline_scores(task, decisions.gold)
    for group, members in groups_of(prepared.examples).items():
        gold, predicted = decisions.of(members)
        scores |= {f"{name}_{group}": value for name, value in task_scores(task, gold, predicted).items()}
        constant = baseline_scores(task, gold)
        if baseline is not None and constant is not None:
            baseline |= {f"{name}_{group}": value for name, value in constant.items()}
    return scores, baseline
