"""Evaluation of fine-tuned model directories, one or several together: predictions, official metrics, the baseline."""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from albert.finetuning.evaluation import Computing, Evaluation, Predicted, evaluation_of, predict_split
from albert.finetuning.opened_for_task import open_for_task
from albert.finetuning.splits import PreparedSplit, encode_split, read_examples
from albert.runtime.devices import pick_device
from albert.runtime.durable_files import write_text
from albert.runtime.precisions import Precision
from albert.tasks.ensembles import EACH_ITS_OWN, averaged_answers, averaged_numbers
from albert.tasks.null_threshold import NullThreshold
from albert.tasks.task import Task


@dataclass(frozen=True)
class EvaluatedDirectory:
    """The evaluation of a directory, and lines for people on how it was opened."""

    evaluation: Evaluation
    model_directory: Path
    notes: tuple[str, ...]


@dataclass(frozen=True)
class EvaluatedModels:
    """The evaluation of each model by itself, and of what they say together; of one model both are the same."""

    together: Evaluation
    members: tuple[EvaluatedDirectory, ...]


def evaluate_directory(task: Task, model: str, data: Path, split: str = "dev", **options: Any) -> EvaluatedDirectory:
    """Score a fine-tuned model on a split; see `evaluate_models`, which takes the same options."""
    return evaluate_models(task, (model,), data, split, **options).members[0]


def evaluate_models(
    task: Task,
    models: Sequence[str],
    data: Path,
    split: str = "dev",
    *,
    device: str = "auto",
    precision: Precision = "fp32",
    max_length: int | None = None,
    micro_batch_tokens: int = 8192,
    revision: str | None = None,
    overrides: Mapping[str, Any] | None = None,
    needs_labels: bool = True,
    depth: int | None = None,
    prepare: Callable[[nn.Module], None] | None = None,
) -> EvaluatedModels:
    """Score fine-tuned models on a split, each by itself and the mean of their predictions.

    The models are in memory one after the other. They may differ in all but the task: tokenizer, size, depth, lengths,
    the order of their labels.

    Args:
        task: what is asked; its labels are matched with each model's by name.
        models: model directories, runs of `albert finetune`, or Hub ids.
        data: the task's data folder.
        split: which split.
        device, precision, micro_batch_tokens: where and how to compute.
        max_length: tokens of a sequence; None takes the length of the fine-tuning, or else the task's.
        revision: a branch, tag or commit, when a model is a Hub id.
        overrides: fields of the models' configurations to set anew.
        needs_labels: whether a split without labels is refused; else it is answered and not scored.
        depth: layers to apply (see `run_to_depth`); None: as many as each model was trained with.
        prepare: what is done to each model, on its device, before it works.

    Raises:
        InvalidConfiguration: a model has no head for this kind of target, or other labels.
        MissingInput, DamagedData: a model or the data cannot be read, or a tokenizer is another one's.
    """
    opening = (max_length, revision, overrides, depth)
    opened = open_for_task(task, models[0], *opening)
    for model in models[1:]:  # what is wrong with the last one is said before the first one works
        open_for_task(task, model, *opening)
    chosen = pick_device(device)
    computing = Computing(chosen, precision, micro_batch_tokens)
    examples, counts = read_examples(task, data, split, needs_labels=needs_labels)
    members: list[EvaluatedDirectory] = []
    predictions: list[tuple[PreparedSplit, Predicted, NullThreshold]] = []
    begun = time.perf_counter()
    for place, model in enumerate(models):
        opened = opened if place == 0 else open_for_task(task, model, *opening)
        prepared = encode_split(task, split, examples, counts, opened.tokenizer, opened.recipe)
        started = time.perf_counter()
        opened.model.to(chosen)
        if prepare is not None:
            prepare(opened.model)
        predicted = predict_split(opened.model, task.target, prepared, computing, opened.label_columns)
        evaluation = evaluation_of(task, prepared, predicted, opened.threshold, started)
        members.append(EvaluatedDirectory(evaluation, opened.directory, (*opened.notes, *evaluation.notes)))
        predictions.append((prepared, predicted, opened.threshold))
    if len(members) == 1:
        return EvaluatedModels(members[0].evaluation, tuple(members))
    prepared, predicted, _ = predictions[0]
    if isinstance(predicted, list):
        answers = [(said, threshold) for _, said, threshold in predictions if isinstance(said, list)]
        together = evaluation_of(task, prepared, averaged_answers(answers), EACH_ITS_OWN, begun)
    else:
        mean = averaged_numbers([said for _, said, _ in predictions if not isinstance(said, list)])
        together = evaluation_of(task, prepared, mean, None, begun)
    return EvaluatedModels(together, tuple(members))


def write_predictions(path: Path, evaluation: Evaluation) -> None:
    """One JSON object per line: `id`, `prediction`, `gold`, and probabilities or the place in the context."""
    lines = [json.dumps(entry, ensure_ascii=False, allow_nan=False) for entry in evaluation.predictions]
    write_text(path, "".join(line + "\n" for line in lines))
