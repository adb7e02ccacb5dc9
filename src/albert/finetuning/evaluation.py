"""Evaluation of a model on a task: predictions for every example, official scores, and thresholds.

Every example is answered; a part of a split is never scored."""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from albert.finetuning.batches import (
    PreparedSplit,
    encode_split,
    pack_members,
    read_examples,
    split_by_tokens,
)
from albert.finetuning.opened_model import open_for_task
from albert.model.albert import OutputRow, SpanBeamRow, output_rows
from albert.model.packing import PackedSequences
from albert.runtime.devices import autocast, parallel_map, pick_device
from albert.runtime.environment import Precision
from albert.runtime.errors import Diverged, InvalidConfiguration
from albert.runtime.files import write_text
from albert.runtime.progress import progress
from albert.tasks.declared import DeclaredTask
from albert.tasks.error_analysis import ANALYSIS_KEYS
from albert.tasks.examples import Sequences
from albert.tasks.metrics import macro_f1, predictions_in_order
from albert.tasks.task import Predictions, Task

WITHOUT_ROWS = "no row has"
"""In a note on a class that is not among the scored rows."""
Decoded = Any
"""For each example probabilities [labels or options] or [words, labels] in the task's order, a number, or answers."""


@dataclass(frozen=True)
class ComputeOptions:
    """Device, precision, and tokens per forward pass."""

    device: torch.device
    precision: Precision = "fp32"
    micro_batch_tokens: int = 8192

    def __post_init__(self) -> None:
        if self.micro_batch_tokens < 1:
            raise InvalidConfiguration("micro_batch_tokens", f"is {self.micro_batch_tokens}, at least 1 is needed")


@dataclass(frozen=True)
class Evaluation:
    """The scores and predictions of a split.

    Attributes:
        scores, baseline: metric names to values, None if undefined; no scores without labels, and no
            majority baseline where none exists.
        predictions: one JSON object per example, in file order.
        notes: remarks on the scores.
        target: the task with what was tuned.
    """

    scores: Mapping[str, float | None]
    baseline: Mapping[str, float | None] | None
    predictions: list[dict[str, Any]] = field(repr=False)
    counts: Mapping[str, int]
    seconds: float
    target: Task
    notes: tuple[str, ...] = ()

    @property
    def defined_scores(self) -> dict[str, float]:
        return {name: value for name, value in self.scores.items() if value is not None}


def evaluate_model(
    model: nn.Module,
    task: DeclaredTask,
    prepared: PreparedSplit,
    compute: ComputeOptions,
    target: Task | None = None,
) -> Evaluation:
    """Predict every example of a split and score the predictions; `target` is the task with what was tuned."""
    started = time.perf_counter()
    target = task.target if target is None else target
    return score_predictions(task, target, prepared, predict_split(model, target, prepared, compute), started)


def score_predictions(
    task: DeclaredTask, target: Task, prepared: PreparedSplit, decoded: Decoded, started: float
) -> Evaluation:
    """Score what one or several models predict; without a no-answer threshold, one is chosen on the split.

    `started` is the start of the work on the split, by `time.perf_counter`.
    """
    target = target.tuned_on_scored(prepared.examples, decoded)
    predictions = target.judge(prepared.examples, decoded)
    identifiers = [example.identifier for example in prepared.examples]
    predictions_in_order(identifiers, {entry["id"]: entry for entry in predictions.entries}, prepared.split)
    scores = {}
    baseline = None
    notes = () if target.tuned_note is None else (target.tuned_note,)
    if prepared.labelled:
        scores, baseline, about_baseline = _scores(task, prepared, predictions)
        notes += () if about_baseline is None else (about_baseline,)
        notes += () if target.score_note is None else (target.score_note,)
        notes += _classes_without_rows(task, predictions)
    else:
        predictions.entries[:] = [{**entry, "gold": None} for entry in predictions.entries]
    return Evaluation(
        scores=scores,
        baseline=baseline,
        predictions=predictions.entries,
        counts=prepared.counts,
        seconds=time.perf_counter() - started,
        target=target,
        notes=notes,
    )


def predict_split(
    model: nn.Module,
    target: Task,
    prepared: PreparedSplit,
    compute: ComputeOptions,
    label_columns: Sequence[int] | None = None,
) -> Decoded:
    """Run a model, which is on the device, on every example of a split.

    Args:
        label_columns: for each label of the task the model's output; None: in order.
    """
    outputs = model_outputs(model, prepared.features.sequences, compute, f"Evaluating {prepared.split}")
    return decoded_outputs(target, prepared, outputs, label_columns)


def decoded_outputs(
    target: Task, prepared: PreparedSplit, outputs: Sequence[OutputRow], label_columns: Sequence[int] | None = None
) -> Decoded:
    """What the outputs for the sequences of a split mean, in float64; see `predict_split`."""
    rows: list[Any] = [row.astype(np.float64) if isinstance(row, np.ndarray) else row for row in outputs]
    if label_columns is not None:
        rows = [row[..., list(label_columns)] for row in rows]
    return target.decode(rows, prepared.features)


def model_outputs(
    model: nn.Module,
    sequences: Sequences,
    compute: ComputeOptions,
    description: str,
    forward: Callable[[PackedSequences], Any] | None = None,
) -> list[OutputRow]:
    """The head's outputs in the order of the sequences; see `output_rows`. `forward` may compute something else."""
    outputs: list[OutputRow] = [np.zeros(0, np.float32)] * len(sequences)
    workers = torch.get_num_threads() if compute.device.type == "cpu" else 1
    tokens = max(1, compute.micro_batch_tokens // workers)
    pieces = split_by_tokens(np.arange(len(sequences)), sequences.lengths, tokens)

    def run_piece(piece: np.ndarray) -> None:
        packed = pack_members(sequences, piece).to(compute.device)
        with torch.inference_mode(), autocast(compute.device, compute.precision):
            rows = output_rows((forward or model)(packed), packed.lengths)
        for index, row in zip(piece, rows, strict=True):
            outputs[index] = row

    was_training = model.training
    model.eval()
    with progress(description, total=len(sequences), unit="sequences") as bar:
        for first in range(0, len(pieces), workers):
            together = pieces[first : first + workers]
            if len(together) == 1:
                run_piece(together[0])
            else:
                parallel_map(run_piece, together)
            bar.advance(sum(map(len, together)))
    model.train(was_training)
    arrays = (array for row in outputs for array in (row if isinstance(row, SpanBeamRow) else (row,)))
    if not all(np.isfinite(array).all() for array in arrays):
        raise Diverged("model", "its outputs are not finite numbers", "train it again with a smaller learning rate")
    return outputs


def _scores(
    task: DeclaredTask, prepared: PreparedSplit, predictions: Predictions
) -> tuple[dict[str, float | None], dict[str, float | None], str | None]:
    """Scores, and those of the majority baseline, of the split and of each group if there are several; and a line about
    the baseline, see `majority_baseline`."""
    gold = predictions.gold
    predicted = predictions.predicted
    scores = task.scores(gold, predicted)
    baseline, about_baseline = task.majority_baseline(gold)
    groups: dict[str, list[int]] = {}
    for index, example in enumerate(prepared.examples):
        groups.setdefault(example.group, []).append(index)
    for group, members in groups.items() if len(groups) > 1 else ():
        some_gold, some_predicted = ([values[index] for index in members] for values in (gold, predicted))
        scores |= {f"{name}_{group}": value for name, value in task.scores(some_gold, some_predicted).items()}
        baseline |= {f"{name}_{group}": value for name, value in task.baseline_scores(some_gold).items()}
    return scores, baseline, about_baseline


def _classes_without_rows(task: DeclaredTask, predictions: Predictions) -> tuple[str, ...]:
    """A line if the mean over the classes leaves some out, as no row has them."""
    if macro_f1 not in task.metrics:
        return ()
    seen = {*np.asarray(predictions.gold).tolist(), *np.asarray(predictions.predicted).tolist()}
    missing = [repr(name) for number, name in enumerate(task.target.class_names) if number not in seen]
    if not missing or not seen:
        return ()
    verb = "does" if len(missing) == 1 else "do"
    label = "label" if len(missing) == 1 else "labels"
    return (f"{', '.join(missing)}: {WITHOUT_ROWS} the {label}, which {verb} not count in macro_f1",)


# --------------------------------------------------------------------------------------------------------------------
# Evaluation of one or several fine-tuned model directories.


@dataclass(frozen=True)
class EvaluatedModels:
    """The evaluation of each model, with notes on how it was opened, and of the mean of their predictions.

    `analysis` has where they are right and wrong together, see `albert.tasks.error_analysis`; empty without labels.
    """

    together: Evaluation
    members: tuple[Evaluation, ...]
    analysis: Mapping[str, Any] = field(default_factory=dict, repr=False)


def evaluate_directory(task: DeclaredTask, model: str, data: Path, split: str = "dev", **options: Any) -> Evaluation:
    """Score one fine-tuned model on a split; for the options see `evaluate_models`."""
    return evaluate_models(task, (model,), data, split, **options).members[0]


def evaluate_models(
    task: DeclaredTask,
    models: Sequence[str],
    data: Path,
    split: str = "dev",
    *,
    device: str = "auto",
    precision: Precision = "fp32",
    max_length: int | None = None,
    micro_batch_tokens: int = 8192,
    overrides: Mapping[str, Any] | None = None,
    needs_labels: bool = True,
    depth: int | None = None,
    threshold: float | None = None,
    prepare: Callable[[nn.Module], None] | None = None,
) -> EvaluatedModels:
    """Score fine-tuned models on a split: each one, and the mean of their predictions.

    One model is in memory at a time. The models may have different tokenizers, sizes, lengths and orders of labels.

    Args:
        max_length: tokens of a sequence; None uses the length of fine-tuning, or else the task's.
        needs_labels: whether to refuse a split without labels; otherwise it is predicted and not scored.
        depth: layers to apply (see `set_depth`); None: as many as each model was trained with.
        threshold: with several labels per example, the probability from which on a label is predicted; None: each
            model's own, and their mean for all together.
        prepare: called with each model, on its device, before it is used.
    """
    if threshold is not None and not task.target.takes_threshold:
        raise InvalidConfiguration(
            "threshold", f"needs several labels per example, {task.title} has one", "leave it out"
        )
    opening = (max_length, overrides, depth, threshold)
    opened = open_for_task(task, models[0], *opening)
    for model in models[1:]:  # errors in the last model are reported before the first one runs
        open_for_task(task, model, *opening)
    compute = ComputeOptions(pick_device(device), precision, micro_batch_tokens)
    examples, counts = read_examples(task, data, split, needs_labels=needs_labels)
    members: list[Evaluation] = []
    results: list[tuple[PreparedSplit, Task, Decoded]] = []
    all_started = time.perf_counter()
    for index, model in enumerate(models):
        opened = opened if index == 0 else open_for_task(task, model, *opening)
        prepared = encode_split(task, split, examples, counts, opened.tokenizer, opened.recipe)
        started = time.perf_counter()
        opened.model.to(compute.device)
        if prepare is not None:
            prepare(opened.model)
        decoded = predict_split(opened.model, opened.target, prepared, compute, opened.label_columns)
        evaluation = score_predictions(task, opened.target, prepared, decoded, started)
        members.append(replace(evaluation, notes=(*opened.notes, *evaluation.notes)))
        results.append((prepared, opened.target, decoded))
    if len(members) == 1:
        return EvaluatedModels(members[0], tuple(members), analysis_of(task, results[0][0], members[0]))
    target, mean = task.target.averaged([(own, decoded) for _, own, decoded in results])
    together = score_predictions(task, target, results[0][0], mean, all_started)
    return EvaluatedModels(together, tuple(members), analysis_of(task, results[0][0], together))


def analysis_of(task: DeclaredTask, prepared: PreparedSplit, evaluation: Evaluation) -> dict[str, Any]:
    """Where a model is right and wrong on a split; empty without labels."""
    if not prepared.labelled:
        return {}
    if not prepared.examples:
        return dict.fromkeys(ANALYSIS_KEYS)
    return task.target.analysis(prepared.examples, evaluation.predictions)


def write_predictions(path: Path, evaluation: Evaluation) -> None:
    """Write one JSON object per line: `id`, `prediction`, `gold`, and probabilities or the answer's offsets."""
    lines = [json.dumps(entry, ensure_ascii=False, allow_nan=False) for entry in evaluation.predictions]
    write_text(path, "".join(line + "\n" for line in lines))
