"""Evaluation of a model on a task: predictions for every example, official scores, thresholds, and lines to print.

Every example is answered; a part of a split is never scored."""

import json
import math
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import nn

from albert.finetuning.data import PreparedSplit, encode_split, pack_members, read_examples, split_by_tokens
from albert.finetuning.model import open_for_task
from albert.finetuning.options import MAX_RATE
from albert.model.albert import OutputRow, SpanBeamRow, output_rows
from albert.model.packing import PackedSequences
from albert.runtime.devices import autocast, parallel_map, pick_device
from albert.runtime.environment import Precision
from albert.runtime.errors import Diverged, InvalidConfiguration
from albert.runtime.files import write_text
from albert.runtime.progress import progress
from albert.runtime.words import counted
from albert.tasks.declared import DeclaredTask
from albert.tasks.error_analysis import ANALYSIS_KEYS
from albert.tasks.examples import Sequences
from albert.tasks.metrics import (
    LOWER_IS_BETTER,
    is_beaten,
    is_better,
    predictions_in_order,
)
from albert.tasks.task import Predictions, Task

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


# --------------------------------------------------------------------------------------------------------------------
# An evaluation as lines of text.

MAJORITY = "majority baseline"
AT_RANDOM = "random choice"
"""The baseline of finding the second text of a pair among others: one of them at random."""
FROZEN = "frozen model with a linear head"
_WARNINGS = {
    "unlabelled": "examples without a label: nothing is scored",
    "rows_without_text": "rows without text left out",
    "rows_without_label": "rows without a label left out",
    "broken_lines": "lines of the file left out, because they are broken",
    "questions_of_another_level": "questions of another level left out",
    "truncated": "examples cut to the maximum length",
    "passages_truncated": "questions whose passage was cut",
    "questions_truncated": "questions cut",
    "sentences_in_several_windows": "sentences in several windows",
    "sentences_without_words": "sentences without a word",
    "words_without_pieces": "words without a piece, read as the unknown one",
    "tags_that_continue_nothing": "tags inside an entity that no tag began, read as its beginning, as in conlleval",
    "contexts_in_several_windows": "contexts in several windows",
    "answers_relocated": "answers found away from the stated offset",
    "answers_found_more_than_once": "answers with several places in the context, of which the first is taken",
    "answers_not_found": "answers not in the context",
    "answers_not_aligned": "answers without matching tokens in the context",
}


def all_scores(report: Mapping[str, Any]) -> dict[str, float | None]:
    """The scores of a finished run on the development set, and on further splits as `score/split`."""
    scores = dict(report.get("scores", {}))
    for split, further in report.get("further_scores", {}).items():
        scores |= {f"{name}/{split}": value for name, value in further.items()}
    return scores


def simpler_models(report: Mapping[str, Any]) -> dict[str, dict[str, float | None]]:
    """The scores of the majority baseline and the other simpler models of a finished run, named as in `all_scores`."""
    models: dict[str, dict[str, float | None]] = {}
    if report.get("baseline"):
        models[MAJORITY] = dict(report["baseline"])
    linear = report.get("linear_baseline")
    if linear is not None and linear["scores"]:
        models[linear["method"]] = dict(linear["scores"])
    frozen = report.get("frozen_head")
    if frozen is not None and not report.get("settings", {}).get("frozen"):
        models[FROZEN] = dict(frozen["scores"])
    for split, compared in report.get("further_baselines", {}).items():
        for model, scores in compared.items():
            if model in models and scores:
                models[model] |= {f"{name}/{split}": value for name, value in scores.items()}
    return models


TEST = "/test"
"""The end of the names of scores on a user's test set, as in `all_scores`."""
MOSTLY_ONE_CLASS = 80.0
"""Accuracy of the majority baseline from which on accuracy says little about a model."""


def deciding_score(scores: Mapping[str, float | None], simpler: Mapping[str, Mapping[str, float | None]]) -> str:
    """The name of the score by which a model is compared with simpler ones: the first one, of the test set if there is
    one, which chose nothing; F1 instead of accuracy if most rows have one class."""
    name = next(iter(scores), "")
    where = TEST if name + TEST in scores else ""
    if name == "accuracy" and (simpler.get(MAJORITY, {}).get(name + where) or 0.0) >= MOSTLY_ONE_CLASS:
        name = next((each for each in scores if each.startswith(("f1", "macro_f1"))), name)
    return name + where if name + where in scores else name


PARTS_OF_SCORES = ("precision", "recall", "thresh", "best_", "entity_f1_")
"""In the names of scores that say little without another one."""


def scores_not_beaten(
    scores: Mapping[str, float | None], simpler: Mapping[str, Mapping[str, float | None]]
) -> dict[str, dict[str, float | None]]:
    """The scores of a model that are not better than those of simpler models, which are the values: the
    `deciding_score` first, then all others that are printed of the same rows. The majority baseline counts for the
    deciding score alone: of any other one, the best constant answer may be of no use."""
    deciding = deciding_score(scores, simpler)
    where = TEST if deciding.endswith(TEST) else ""
    found = {}
    for name in dict.fromkeys((deciding, *scores)):
        in_part = name != deciding and any(part in name for part in PARTS_OF_SCORES)
        if in_part or name.endswith(TEST) != bool(where) or name not in scores:
            continue
        rivals: dict[str, float | None] = {}
        for rival in (MAJORITY, FROZEN, *simpler):
            if name in simpler.get(rival, {}) and (name == deciding or rival != MAJORITY):
                rivals[rival] = simpler[rival][name]
        if MAJORITY in rivals:
            rivals[MAJORITY] = rivals[MAJORITY] or 0.0  # the correlation with a constant is undefined
        ahead = {rival: value for rival, value in rivals.items() if not is_beaten(name, scores[name], value)}
        if ahead:
            found[name] = ahead
    return found


def advice(
    scores: Mapping[str, float | None],
    simpler: Mapping[str, Mapping[str, float | None]],
    *,
    is_frozen: bool = False,
    is_weighted: bool = False,
    step: Mapping[str, str] | None = None,
    is_probe: bool = False,
) -> str | None:
    """Which model to use, and what to try, if a score is not better than those of simpler models, else None.

    Args:
        scores: see `all_scores`.
        simpler: see `simpler_models`.
        is_frozen: whether the scored model is the frozen one with a linear head itself.
        is_weighted: whether classes were weighted.
        step: a `next_step`.
        is_probe: whether fine-tuning did not improve on the head solved on frozen features, so that it is the result.
    """
    found = scores_not_beaten(scores, {name: own for name, own in simpler.items() if name != FROZEN or not is_probe})
    if not found:
        if is_probe and step is not None:
            return f"fine-tuning did not improve on the {FROZEN}, which is the result: try {step['try']}"
        return None
    deciding = deciding_score(scores, simpler)
    name, ahead = next(iter(found.items()))
    where = TEST if name.endswith(TEST) else ""
    on_test = " on the test set" if where else ""
    clauses = []
    for each, rivals in found.items():
        names = [f"{named(rival)} ({format_score(rivals[rival])})" for rival in rivals]
        shown = f"{each.removesuffix(TEST)} {format_score(scores[each])}{on_test}"
        clauses.append(f"{shown} does not beat {' or '.join(names)}")
    said = "; ".join(clauses)
    if name != deciding:
        said += f", although {deciding.removesuffix(TEST)} does"
    best = next(iter(ahead))
    for rival in ahead:
        best = rival if is_better(name, ahead[rival], ahead[best]) else best
    use = f"use {named(best)} for such rows" + (" (--frozen)" if best == FROZEN else "")
    mostly_one = (simpler.get(MAJORITY, {}).get("accuracy" + where) or 0.0) >= MOSTLY_ONE_CLASS
    by_f1 = deciding.startswith(("f1 (", "macro_f1"))
    weights = "class_weights=balanced, " if (mostly_one or by_f1) and not is_weighted else ""
    if is_frozen:
        remedy = ("try " + weights + "or " if weights else "") + "fine-tune the whole model, without --frozen"
    elif step is not None:
        remedy = "try " + (weights + "or " if weights else "") + step["try"]
    else:
        remedy = f"try {weights}more epochs, another learning_rate, or a larger --model"
    if mostly_one and next(iter(scores)) == "accuracy":
        chosen = "f1" if deciding.startswith("f1") else "macro_f1"
        remedy += f"; --metrics {chosen} chooses the best evaluation by it, not by accuracy"
    remedy = remedy if best == MAJORITY else f"{use}, or {remedy}"
    return f"{said}: {remedy}"


def named(model: str) -> str:
    """A simpler model inside a sentence."""
    return model if "TF-IDF" in model else f"the {model}"


LARGE_GAP = 10.0
"""Points between the scores of training and development rows from which on the model knows its rows by heart."""
WELL_KNOWN = 95.0
"""The score of training rows from which on little is left to learn from them."""
ALL_KNOWN = 99.95
"""The score of training rows from which on it is shown as 100.0: more epochs do not help."""
LEARNT = 2.0
"""Points above the majority baseline from which on a model has learned something."""
_WITHOUT_PLATEAU = {
    "rising": "; the score was still rising at the end",
    "once": "; the development set was scored only at the end, so whether its score still rises is not known",
    "unknown": "; the evaluations do not show whether the score still rises",
}
LARGER_MODELS = {384: "small-vectors", 768: "albert/albert-base-v2"}
"""For models that are narrower than the key."""


def next_step(
    metric: str,
    training: float | None,
    development: float | None,
    baseline: float | None,
    *,
    hidden_size: int,
    learning_rate: float,
    epochs: float,
    trend: Literal["rising", "once", "unknown", "stopped"],
    is_english: bool = True,
) -> dict[str, str] | None:
    """What to change next, by the scores of training and development rows: `why`, and what to `try`.

    None for a score that is not in points of 100 or not defined, and for a model that has nothing left to learn.

    Args:
        trend: a `Trend` of the development score, see `albert.finetuning.selection`.
        is_english: whether the texts are English, so that an English model may be named.
    """
    if metric.startswith(LOWER_IS_BETTER) or training is None or development is None:
        return None
    larger = next((f"--model {name}" for width, name in LARGER_MODELS.items() if hidden_size < width), None)
    if larger is not None and not is_english:
        larger = "a larger --model that was trained on texts of this language"
    why = f"{metric} is {training:.1f} on training rows and {development:.1f} on the development set"
    if training - development >= LARGE_GAP and (training >= WELL_KNOWN or trend == "stopped"):
        why += "; more epochs do not close this gap"
        return {"why": why, "try": f"{larger}, or more labelled rows" if larger else "more labelled rows"}
    if min(training, development) >= 98.0:
        return None
    rate = min(2 * learning_rate, max(MAX_RATE, learning_rate))
    if training - (baseline or 0.0) < LEARNT and rate > learning_rate and epochs >= 1:
        why += ", hardly above the majority baseline; the model has not learned yet"
        return {"why": why, "try": f"learning_rate={rate:.2g}"}
    if training >= ALL_KNOWN:
        why += "; more epochs have nothing left to learn from the training rows"
        return {"why": why, "try": f"{larger}, or more labelled rows" if larger else "more labelled rows"}
    if trend != "stopped":
        why += _WITHOUT_PLATEAU[trend]
        return {"why": why, "try": f"epochs={math.ceil(2 * epochs)}"}
    why += "; the last evaluations did not rise by more than chance, so more epochs do not help"
    return {"why": why, "try": larger or "more labelled rows"}


def published_lines(task: DeclaredTask) -> list[str]:
    """Published scores, a line for each metric and source."""
    groups: dict[tuple[str, str], list[str]] = {}
    for published in task.published:
        group = groups.setdefault((published.metric, published.source), [])
        group.append(f"{published.model} {published.score:g}")
    return [f"published {name}: {', '.join(models)} ({source})" for (name, source), models in groups.items()]


def run_notes(report: Mapping[str, Any]) -> list[str]:
    """What a run noticed, and what was cut or left out in its rows."""
    return [*report.get("notes", ()), *counts_of_rows(report)]


def counts_of_rows(report: Mapping[str, Any], names: Collection[str] | None = None) -> list[str]:
    """A line for each count of training and development rows that were cut, moved, left out or not found; of some
    counts only, if they are named."""
    lines = []
    for part, name in (("training", "training"), ("development set", "evaluation")):
        counts = report.get(name) or {}
        chosen = {key: count for key, count in counts.items() if names is None or key in names}
        lines += [f"{part}: {line}" for line in data_warnings(chosen)]
    return lines


def data_warnings(counts: Mapping[str, Any]) -> list[str]:
    """A line for each count of examples that were cut, moved or not found."""
    return [counted(counts[key], what) for key, what in _WARNINGS.items() if counts.get(key)]


def format_score(value: float | None) -> str:
    """A score with two decimals."""
    return "undefined" if value is None else f"{value:.2f}"
