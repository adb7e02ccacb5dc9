"""A model's answers on a split, scored by the task's official metrics, with the trivial baseline beside them.

Every example is answered; nothing is scored on a part of a split.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from albert.finetuning.batches import pack_members, split_by_tokens
from albert.runtime.devices import Precision, autocast
from albert.runtime.errors import Diverged, InvalidConfiguration
from albert.runtime.progress import progress
from albert.runtime.randomness import stream
from albert.tasks.answers import best_answers
from albert.tasks.baseline import baseline_scores, task_scores
from albert.tasks.examples import Example, to_examples
from albert.tasks.features import Sequences, TextFeatures, text_features
from albert.tasks.metrics import in_order
from albert.tasks.task import Choice, Span, Task, TaskRecipe
from albert.tasks.windows import SpanFeatures, span_features
from albert.text.tokenizer import Tokenizer


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
class PreparedSplit:
    """A split as the model sees it. `counts` tells what was read, cut or relocated."""

    split: str
    examples: list[Example]
    features: TextFeatures | SpanFeatures
    counts: Mapping[str, int]


@dataclass(frozen=True)
class Evaluation:
    """What came of an evaluation.

    `scores` and `baseline` map metric names to values (None: undefined, or no baseline exists); `predictions`
    has one JSON object per example, in file order.
    """

    scores: Mapping[str, float | None]
    baseline: Mapping[str, float | None] | None
    predictions: list[dict[str, Any]]
    counts: Mapping[str, int]
    seconds: float

    @property
    def defined_scores(self) -> dict[str, float]:
        """The scores that have a value."""
        return {name: value for name, value in self.scores.items() if value is not None}


@dataclass(frozen=True)
class Subset:
    """Some rows of a training split: so many, drawn without replacement, a pure function of the seed."""

    examples: int
    seed: int

    def members(self, n_rows: int) -> list[int]:
        """Indices of the rows, in file order; all of them when there are not more."""
        drawn = stream("finetuning.subset", self.seed).permutation(n_rows)[: self.examples]
        return sorted(drawn.tolist())


def prepare_split(
    task: Task,
    data: Path,
    split: str,
    tokenizer: Tokenizer,
    recipe: TaskRecipe,
    subset: Subset | None = None,
) -> PreparedSplit:
    """Read and encode a split, or a subset of it for training. Rows left out are counted.

    Raises:
        MissingInput, DamagedData, InvalidConfiguration: see the task's source, `to_examples` and the
            features.
    """
    rows = task.source.read(data, split)
    chosen = rows.rows if subset is None else [rows.rows[i] for i in subset.members(len(rows.rows))]
    examples = to_examples(task, chosen)
    counts = {**rows.counts, "left_out_by_choice": len(rows.rows) - len(chosen)}
    if isinstance(task.target, Span):
        features = span_features(examples, tokenizer, recipe.max_length, recipe.question_length, recipe.stride)
        counts |= features.counts
    else:
        features = text_features(examples, tokenizer, recipe.max_length)
        counts |= {"truncated": features.truncated, "tokens_cut": features.tokens_cut}
    return PreparedSplit(split, examples, features, counts)


def evaluate_model(
    model: nn.Module,
    task: Task,
    prepared: PreparedSplit,
    computing: Computing,
    label_columns: Sequence[int] | None = None,
) -> Evaluation:
    """Answer every example and score the answers.

    Args:
        model: a classifier or a span model, on the device already. Its training mode is kept.
        task: the declaration.
        prepared: the split.
        computing: where and how.
        label_columns: for each label of the task, the model's output for it; None when they are in the same
            order.

    Raises:
        Diverged: the model's outputs are not finite.
    """
    started = time.perf_counter()
    outputs = model_outputs(model, prepared.features.sequences, computing, f"Evaluating {prepared.split}")
    if isinstance(prepared.features, SpanFeatures):
        predictions, gold, predicted = _answers(task, prepared, prepared.features, outputs)
    else:
        predictions, gold, predicted = _decisions(task, prepared, prepared.features, outputs, label_columns)
    identifiers = [example.identifier for example in prepared.examples]
    in_order(identifiers, {entry["id"]: entry for entry in predictions}, prepared.split)
    return Evaluation(
        scores=task_scores(task, gold, predicted),
        baseline=baseline_scores(task, np.asarray(gold)) if not isinstance(task.target, Span) else None,
        predictions=predictions,
        counts=prepared.counts,
        seconds=time.perf_counter() - started,
    )


def model_outputs(model: nn.Module, sequences: Sequences, computing: Computing, description: str) -> list[np.ndarray]:
    """The head's outputs in the order of the sequences: [labels] each, or [tokens, 2] for a span model."""
    outputs: list[np.ndarray] = [np.zeros(0, np.float32)] * len(sequences)
    pieces = split_by_tokens(np.arange(len(sequences)), sequences.lengths, computing.micro_batch_tokens)
    was_training = model.training
    model.eval()
    with torch.inference_mode(), progress(description, total=len(sequences), unit="sequences") as bar:
        for piece in pieces:
            packed = pack_members(sequences, piece).to(computing.device)
            with autocast(computing.device, computing.precision):
                result = model(packed)
            if isinstance(result, tuple):
                rows = torch.stack(result, dim=1).float().cpu().split(packed.lengths)
            else:
                rows = result.float().cpu().unbind(0)
            for index, row in zip(piece, rows, strict=True):
                outputs[index] = row.numpy()
            bar.advance(len(piece))
    model.train(was_training)
    if not all(np.isfinite(row).all() for row in outputs):
        raise Diverged("model", "its outputs are not finite numbers", "train it again with a smaller learning rate")
    return outputs


Decoded = tuple[list[dict[str, Any]], Any, Any]


def _decisions(
    task: Task,
    prepared: PreparedSplit,
    features: TextFeatures,
    outputs: list[np.ndarray],
    label_columns: Sequence[int] | None,
) -> Decoded:
    logits = np.stack(outputs).astype(np.float64)
    if not isinstance(task.target, Choice):
        numbers = logits[:, 0]
        entries = [
            {"id": example.identifier, "prediction": float(number), "gold": example.target}
            for example, number in zip(prepared.examples, numbers, strict=True)
        ]
        return entries, features.targets.astype(np.float64), numbers
    if label_columns is not None:
        logits = logits[:, list(label_columns)]
    predicted = logits.argmax(axis=1)
    exponentials = np.exp(logits - logits.max(axis=1, keepdims=True))
    probabilities = exponentials / exponentials.sum(axis=1, keepdims=True)
    labels = task.target.labels
    entries = [
        {
            "id": example.identifier,
            "prediction": labels[choice],
            "gold": None if example.target is None else labels[int(example.target)],
            "probabilities": dict(zip(labels, map(float, row), strict=True)),
        }
        for example, choice, row in zip(prepared.examples, predicted, probabilities, strict=True)
    ]
    return entries, features.targets, predicted


def _answers(task: Task, prepared: PreparedSplit, features: SpanFeatures, outputs: list[np.ndarray]) -> Decoded:
    longest = task.target.max_answer_tokens if isinstance(task.target, Span) else 0
    starts, ends = [row[:, 0] for row in outputs], [row[:, 1] for row in outputs]
    candidates = best_answers(prepared.examples, features, starts, ends, longest)
    gold = [tuple(answer.text for answer in example.answers) for example in prepared.examples]
    entries, predicted = [], []
    for example, found, answers in zip(prepared.examples, candidates, gold, strict=True):
        best = found[0] if found else None
        predicted.append(best.text if best else "")
        entry = {"id": example.identifier, "prediction": predicted[-1], "gold": list(answers)}
        entries.append(entry | ({"start": best.start, "end": best.end, "score": best.score} if best else {}))
    return entries, gold, predicted
