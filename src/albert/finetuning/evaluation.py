"""Evaluation of a model on a task: predictions for every example, official scores, thresholds, and lines to print.

Every example is answered; a part of a split is never scored."""

import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

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
from albert.runtime.random_streams import stream
from albert.tasks.answers import Answers, NullThreshold, best_answers, choose_threshold, decide
from albert.tasks.error_analysis import analyse
from albert.tasks.examples import Example, Sequences, SpanFeatures, TagFeatures
from albert.tasks.label_threshold import LabelThreshold, choose_label_threshold
from albert.tasks.metrics import (
    LOWER_IS_BETTER,
    OUTSIDE,
    baseline_scores,
    entities_of,
    has_prefixes,
    is_beaten,
    is_better,
    predictions_in_order,
    runs_of,
    task_scores,
)
from albert.tasks.submission import OWN_THRESHOLDS, average_answers
from albert.tasks.task import Choice, Labels, Option, Score, Span, Tags, Target, Task

# --------------------------------------------------------------------------------------------------------------------
# From a model's outputs to predictions.

SHOWN_ANSWERS = 5


@dataclass(frozen=True)
class Predictions:
    """Gold and predicted values for the metrics, and a JSON object for each example, all in file order."""

    gold: Any
    predicted: Any
    entries: list[dict[str, Any]]


def labels_predictions(
    examples: Sequence[Example],
    target: Choice | Option | Labels,
    gold: np.ndarray,
    probabilities: np.ndarray,
    threshold: LabelThreshold | None = None,
) -> Predictions:
    """The most probable label or option; with several labels per example, those that the threshold selects.

    `gold` is [examples], or which labels are true [examples, labels]; `probabilities` [examples, labels].
    """
    names = np.array(target.options if isinstance(target, Option) else target.labels, object)
    several = isinstance(target, Labels)
    predicted = (threshold or LabelThreshold()).predicted(probabilities) if several else probabilities.argmax(axis=1)
    gold = gold > 0 if several else gold

    def named(labels: Any) -> Any:
        return names[labels].tolist() if several else names[int(labels)]

    entries = [
        {
            "id": example.identifier,
            "prediction": named(labels),
            "gold": None if example.target is None else named(true),
            "probabilities": dict(zip(names, map(float, row), strict=True)),
        }
        for example, labels, true, row in zip(examples, predicted, gold, probabilities, strict=True)
    ]
    return Predictions(gold, predicted, entries)


def tags_predictions(examples: Sequence[Example], target: Tags, probabilities: Sequence[np.ndarray]) -> Predictions:
    """The most probable tag of every word, its probability, and the entities that the tags form.

    `probabilities` are [words, labels] for each example, in the task's order.
    """
    labels = target.labels
    read = entities_of if has_prefixes(labels) else runs_of
    result = Predictions([], [], [])
    for example, rows in zip(examples, probabilities, strict=True):
        gold = tuple(labels[tag] for tag in example.target) if isinstance(example.target, tuple) else ()
        predicted = tuple(labels[tag] for tag in rows.argmax(axis=1)) if len(rows) else ()
        entry: dict[str, Any] = {"id": example.identifier, "words": list(example.texts), "prediction": list(predicted)}
        entry["gold"] = None if example.target is None else list(gold)
        entry["probabilities"] = rows.max(axis=1).tolist() if len(rows) else []
        if read is entities_of or OUTSIDE in labels:
            entities = read(predicted)
            entry["entities"] = [entity._asdict() for entity in entities]
        result.gold.append(gold)
        result.predicted.append(predicted)
        result.entries.append(entry)
    return result


def answers_predictions(
    examples: Sequence[Example], answers: Sequence[Answers], threshold: NullThreshold | None
) -> Predictions:
    """The best spans, or no answer by the threshold; without a threshold every question has an answer."""
    open_answers = None if threshold is None else decide(answers, threshold)
    texts = []
    entries = []
    for index, (example, answer) in enumerate(zip(examples, answers, strict=True)):
        best = answer.candidates[0] if answer.candidates else None
        texts.append("" if best is None else best.text)
        entry: dict[str, Any] = {"id": example.identifier, "prediction": texts[-1]}
        entry["gold"] = [gold.text for gold in example.answers]
        if best is not None:
            entry |= {"start": best.start, "end": best.end, "score": best.score}
        if open_answers is not None:
            entry |= {"prediction": texts[-1] if open_answers[index].answered else "", "no_answer": answer.no_answer}
            entry |= {"no_answer_probability": answer.no_answer_probability}
        entry["best"] = [
            {"answer": span.text, "start": span.start, "end": span.end, "probability": span.probability}
            for span in answer.candidates[:SHOWN_ANSWERS]
        ]
        entries.append(entry)
    gold = [tuple(answer.text for answer in example.answers) for example in examples]
    return Predictions(gold, texts if open_answers is None else open_answers, entries)


Threshold = NullThreshold | LabelThreshold
RawPredictions = np.ndarray | list[Answers]
"""Probabilities [examples, labels or options] in the task's order, or [words of all examples, labels]; numbers
[examples]; or answers."""
CHOSEN_ON_THESE = "best_: with the threshold that is best for the scored questions, as the reference reports it"


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
        threshold: the no-answer threshold, or that of several labels, that was used.
    """

    scores: Mapping[str, float | None]
    baseline: Mapping[str, float | None] | None
    predictions: list[dict[str, Any]]
    counts: Mapping[str, int]
    seconds: float
    notes: tuple[str, ...] = ()
    threshold: Threshold | None = None

    @property
    def defined_scores(self) -> dict[str, float]:
        return {name: value for name, value in self.scores.items() if value is not None}


def evaluate_model(
    model: nn.Module,
    task: Task,
    prepared: PreparedSplit,
    compute: ComputeOptions,
    threshold: Threshold | None = None,
) -> Evaluation:
    """Predict every example of a split and score the predictions."""
    started = time.perf_counter()
    predicted = predict_split(model, task.target, prepared, compute)
    return score_predictions(task, prepared, predicted, threshold, started)


def score_predictions(
    task: Task, prepared: PreparedSplit, predicted: RawPredictions, threshold: Threshold | None, started: float
) -> Evaluation:
    """Score the predictions of one or several models; without a no-answer threshold, one is chosen on the split.

    `started` is the start of the work on the split, by `time.perf_counter`.
    """
    predictions, threshold = _final_predictions(task, prepared, predicted, threshold)
    identifiers = [example.identifier for example in prepared.examples]
    predictions_in_order(identifiers, {entry["id"]: entry for entry in predictions.entries}, prepared.split)
    scores = {}
    baseline = None
    notes = () if threshold is None else (threshold.note,)
    if prepared.labelled:
        scores, baseline = _scores(task, prepared, predictions)
        notes += (CHOSEN_ON_THESE,) if isinstance(threshold, NullThreshold) else ()
    else:
        predictions.entries[:] = [{**entry, "gold": None} for entry in predictions.entries]
    return Evaluation(
        scores=scores,
        baseline=baseline,
        predictions=predictions.entries,
        counts=prepared.counts,
        seconds=time.perf_counter() - started,
        notes=notes,
        threshold=threshold,
    )


def predict_split(
    model: nn.Module,
    target: Target,
    prepared: PreparedSplit,
    compute: ComputeOptions,
    label_columns: Sequence[int] | None = None,
) -> RawPredictions:
    """Run a model, which is on the device, on every example of a split."""
    outputs = model_outputs(model, prepared.features.sequences, compute, f"Evaluating {prepared.split}")
    return predictions_from_outputs(target, prepared, outputs, label_columns)


def predictions_from_outputs(
    target: Target, prepared: PreparedSplit, outputs: Sequence[OutputRow], label_columns: Sequence[int] | None = None
) -> RawPredictions:
    """Convert the outputs for the sequences of a split, in order; see `predict_split`."""
    features = prepared.features
    if isinstance(target, Span):
        assert isinstance(features, SpanFeatures)
        return best_answers(
            prepared.examples, features, outputs, target.max_answer_tokens, may_be_absent=target.may_be_absent
        )
    arrays = [np.asarray(row) for row in outputs]
    stacked = features.word_outputs(arrays) if isinstance(features, TagFeatures) else np.stack(arrays)
    logits = stacked.astype(np.float64)
    if isinstance(target, Score):
        return logits[:, 0]
    if isinstance(target, Option) and features.options is not None:
        scores = np.full((len(features.options), len(target.options)), -np.inf)
        scores[:, : features.options.shape[1]][features.options] = logits.reshape(-1)
        logits = scores
    elif isinstance(target, Option):
        logits = logits.reshape(-1, features.n_options)
    elif label_columns is not None:
        logits = logits[:, list(label_columns)]
    if isinstance(target, Labels):
        return torch.from_numpy(logits).sigmoid().numpy()
    exponentials = np.exp(logits - logits.max(axis=1, keepdims=True))
    return exponentials / exponentials.sum(axis=1, keepdims=True)


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


def _final_predictions(
    task: Task, prepared: PreparedSplit, predicted: RawPredictions, threshold: Threshold | None
) -> tuple[Predictions, Threshold | None]:
    """The predictions for the metrics, and the threshold that was used, if any."""
    examples = prepared.examples
    target = task.target
    features = prepared.features
    if isinstance(predicted, list):
        if not (isinstance(target, Span) and target.may_be_absent):
            return answers_predictions(examples, predicted, None), None
        if not isinstance(threshold, NullThreshold):
            threshold = best_threshold(examples, predicted, "the very questions that are scored")
        return answers_predictions(examples, predicted, threshold), threshold
    match target:
        case Tags():
            assert isinstance(features, TagFeatures)
            return tags_predictions(examples, target, features.split_by_sentence(predicted)), None
        case Score():
            pairs = zip(examples, map(float, predicted), strict=True)
            entries = [{"id": row.identifier, "prediction": number, "gold": row.target} for row, number in pairs]
            return Predictions(features.targets.astype(np.float64), predicted, entries), None
        case Labels():
            chosen = threshold if isinstance(threshold, LabelThreshold) else LabelThreshold()
            return labels_predictions(examples, target, features.targets, predicted, chosen), chosen
        case Choice() | Option():
            return labels_predictions(examples, target, features.targets, predicted), None
        case Span():
            raise TypeError("spans are predicted as answers")


def _scores(
    task: Task, prepared: PreparedSplit, predictions: Predictions
) -> tuple[dict[str, float | None], dict[str, float | None]]:
    """Scores, and those of the majority baseline, of the split and of each group if there are several."""
    gold = predictions.gold
    predicted = predictions.predicted
    scores = task_scores(task, gold, predicted)
    baseline = baseline_scores(task, gold)
    groups: dict[str, list[int]] = {}
    for index, example in enumerate(prepared.examples):
        groups.setdefault(example.group, []).append(index)
    for group, members in groups.items() if len(groups) > 1 else ():
        some_gold, some_predicted = ([values[index] for index in members] for values in (gold, predicted))
        scores |= {f"{name}_{group}": value for name, value in task_scores(task, some_gold, some_predicted).items()}
        baseline |= {f"{name}_{group}": value for name, value in baseline_scores(task, some_gold).items()}
    return scores, baseline


# --------------------------------------------------------------------------------------------------------------------
# Evaluation of one or several fine-tuned model directories.


@dataclass(frozen=True)
class EvaluatedModels:
    """The evaluation of each model, with notes on how it was opened, and of the mean of their predictions.

    `analysis` has where they are right and wrong together, see `albert.tasks.error_analysis`; empty without labels.
    """

    together: Evaluation
    members: tuple[Evaluation, ...]
    analysis: Mapping[str, Any] = field(default_factory=dict)


def evaluate_directory(task: Task, model: str, data: Path, split: str = "dev", **options: Any) -> Evaluation:
    """Score one fine-tuned model on a split; for the options see `evaluate_models`."""
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
    if threshold is not None and not isinstance(task.target, Labels):
        raise InvalidConfiguration(
            "threshold", f"needs several labels per example, {task.title} has one", "leave it out"
        )
    opening = (max_length, revision, overrides, depth, threshold)
    opened = open_for_task(task, models[0], *opening)
    for model in models[1:]:  # errors in the last model are reported before the first one runs
        open_for_task(task, model, *opening)
    compute = ComputeOptions(pick_device(device), precision, micro_batch_tokens)
    examples, counts = read_examples(task, data, split, needs_labels=needs_labels)
    members: list[Evaluation] = []
    results: list[tuple[PreparedSplit, RawPredictions, Threshold]] = []
    all_started = time.perf_counter()
    for index, model in enumerate(models):
        opened = opened if index == 0 else open_for_task(task, model, *opening)
        prepared = encode_split(task, split, examples, counts, opened.tokenizer, opened.recipe)
        started = time.perf_counter()
        opened.model.to(compute.device)
        if prepare is not None:
            prepare(opened.model)
        predicted = predict_split(opened.model, task.target, prepared, compute, opened.label_columns)
        evaluation = score_predictions(task, prepared, predicted, opened.threshold, started)
        members.append(replace(evaluation, notes=(*opened.notes, *evaluation.notes)))
        results.append((prepared, predicted, opened.threshold))
    if len(members) == 1:
        return EvaluatedModels(members[0], tuple(members), analysis_of(task, results[0][0], members[0]))
    answers = [
        (predicted, own)
        for _, predicted, own in results
        if isinstance(predicted, list) and isinstance(own, NullThreshold)
    ]
    own_thresholds = [own for _, _, own in results if isinstance(own, LabelThreshold)]
    if answers:
        mean = average_answers(answers)
        used = OWN_THRESHOLDS
    else:
        mean = np.mean([predicted for _, predicted, _ in results if not isinstance(predicted, list)], axis=0)
        used = None
    if own_thresholds:
        value = float(np.mean([own.value for own in own_thresholds]))
        may_be_empty = all(own.may_be_empty for own in own_thresholds)
        used = LabelThreshold(value, may_be_empty, "nothing: the mean of the models' own")
    together = score_predictions(task, results[0][0], mean, used, all_started)
    return EvaluatedModels(together, tuple(members), analysis_of(task, results[0][0], together))


def analysis_of(task: Task, prepared: PreparedSplit, evaluation: Evaluation) -> dict[str, Any]:
    """Where a model is right and wrong on a split; empty without labels."""
    return analyse(task, prepared.examples, evaluation.predictions) if prepared.labelled else {}


def write_predictions(path: Path, evaluation: Evaluation) -> None:
    """Write one JSON object per line: `id`, `prediction`, `gold`, and probabilities or the answer's offsets."""
    lines = [json.dumps(entry, ensure_ascii=False, allow_nan=False) for entry in evaluation.predictions]
    write_text(path, "".join(line + "\n" for line in lines))


# --------------------------------------------------------------------------------------------------------------------
# The no-answer threshold. By default it is chosen on questions held out of training; the reference chooses it on the
# questions that it then reports.

HELD_OUT_SHARE = 0.05


def hold_out(examples: Sequence[Example], seed: int) -> tuple[list[Example], list[Example]]:
    """Split off a twentieth of the examples, by whole contexts, to choose the threshold on.

    More are held out until there are questions with and without an answer.
    """
    by_context: dict[str, list[Example]] = {}
    for example in examples:
        by_context.setdefault(example.texts[1], []).append(example)
    contexts = list(by_context)
    held: set[str] = set()
    kinds: set[bool] = set()
    questions = 0
    for index in stream("finetuning.held_out", seed).permutation(len(contexts)).tolist():
        held.add(contexts[index])
        questions += len(by_context[contexts[index]])
        kinds |= {bool(example.answers) for example in by_context[contexts[index]]}
        if questions >= HELD_OUT_SHARE * len(examples) and len(kinds) == 2:
            break
    train = [example for example in examples if example.texts[1] not in held]
    remedy = "give more data, or --null-threshold dev"
    if len(kinds) < 2:
        why = f"{'every question has an answer' if True in kinds else 'no question has an answer'} in the training set"
        raise InvalidConfiguration("null threshold", why, remedy)
    if not train:
        raise InvalidConfiguration("null threshold", "too few contexts to hold some out of training for it", remedy)
    return train, [example for example in examples if example.texts[1] in held]


LABEL_HELD_OUT_SHARE = 0.05
MIN_LABEL_HELD_OUT = 100
"""Rows; fewer than five times as many hold out a fifth."""
MIN_LABELLED_ROWS = 100
"""With fewer rows none is held out, and the threshold is 0.5."""


def hold_out_labelled(examples: Sequence[Example], seed: int) -> tuple[list[Example], list[Example]]:
    """Split off a twentieth of the rows, at least 100 or a fifth, to choose the threshold of several labels on.

    None are split off from fewer than `MIN_LABELLED_ROWS`.
    """
    if len(examples) < MIN_LABELLED_ROWS:
        return list(examples), []
    n_held = max(round(LABEL_HELD_OUT_SHARE * len(examples)), min(MIN_LABEL_HELD_OUT, len(examples) // 5))
    held = set(stream("finetuning.held_out", seed).permutation(len(examples))[:n_held].tolist())
    train = [example for index, example in enumerate(examples) if index not in held]
    return train, [example for index, example in enumerate(examples) if index in held]


def best_label_threshold(held_out: PreparedSplit, probabilities: np.ndarray) -> LabelThreshold:
    """The threshold with the best micro F1 on held-out rows."""
    about = f"{len(held_out.examples):,} rows held out of the training set"
    return choose_label_threshold(held_out.features.targets > 0, probabilities, about)


def best_threshold(examples: Sequence[Example], answers: Sequence[Answers], chosen_on: str) -> NullThreshold:
    """The threshold with the best F1 on these questions."""
    gold = [[answer.text for answer in example.answers] for example in examples]
    return NullThreshold(choose_threshold(gold, decide(answers, NullThreshold())), chosen_on)


# --------------------------------------------------------------------------------------------------------------------
# An evaluation as lines of text.

MAJORITY = "majority baseline"
FROZEN = "frozen model with a linear head"
_WARNINGS = {
    "unlabelled": "examples without a label: nothing is scored",
    "broken_lines": "broken lines of the file left out",
    "questions_of_another_level": "questions of another level left out",
    "truncated": "examples cut to the maximum length",
    "passages_truncated": "questions whose passage was cut",
    "questions_truncated": "questions cut",
    "sentences_in_several_windows": "sentences in several windows",
    "sentences_without_words": "sentences without a word",
    "words_without_pieces": "words without a piece, read as the unknown one",
    "tags_that_continue_nothing": "tags that continue an entity that none began: they begin it, as in conlleval",
    "contexts_in_several_windows": "contexts in several windows",
    "answers_relocated": "answers found away from their offset",
    "answers_not_found": "answers not in their context, or there more than once",
    "answers_not_aligned": "answers that match no tokens of their context",
}


def advice(
    scores: Mapping[str, float | None],
    baseline: Mapping[str, float | None] | None,
    linear: Mapping[str, Any] | None = None,
    frozen: Mapping[str, float | None] | None = None,
    is_frozen: bool = False,
    step: Mapping[str, str] | None = None,
) -> str | None:
    """Which model to use, and what to try, if the first score is not better than those of simpler ones, else None.

    Args:
        baseline: of the majority baseline.
        linear: a `LinearBaseline` as plain values.
        frozen: of the frozen model with a linear head.
        is_frozen: whether the scored model is that one itself.
        step: a `next_step`.
    """
    name, score = next(iter(scores.items()), ("", None))
    rivals: dict[str, float | None] = {}
    if baseline is not None and name in baseline:
        rivals[MAJORITY] = baseline[name] or 0.0  # the correlation with a constant is undefined
    if frozen is not None and name in frozen:
        rivals[FROZEN] = frozen[name]
    if linear is not None and name in linear["scores"]:
        rivals[linear["method"]] = linear["scores"][name]
    ahead = {rival: value for rival, value in rivals.items() if not is_beaten(name, score, value)}
    if not ahead:
        return None
    names = [f"{rival if 'TF-IDF' in rival else f'the {rival}'} ({format_score(ahead[rival])})" for rival in ahead]
    best = next(iter(ahead))
    for rival in ahead:
        best = rival if is_better(name, ahead[rival], ahead[best]) else best
    use = f"use {best if 'TF-IDF' in best else f'the {best}'} for such rows" + (" (--frozen)" if best == FROZEN else "")
    remedy = "try more --epochs, another --learning-rate, or a larger --model"
    if step is not None:
        remedy = f"try {step['try']}"
    if is_frozen:
        remedy = "fine-tune the whole model, without --frozen"
    remedy = remedy if best == MAJORITY else f"{use}, or {remedy}"
    return f"{name} {format_score(score)} does not beat {' or '.join(names)}: {remedy}"


LARGE_GAP = 10.0
"""Points between the scores of training and development rows from which on the model knows its rows by heart."""
WELL_KNOWN = 95.0
"""The score of training rows from which on little is left to learn from them."""
LEARNT = 2.0
"""Points above the majority baseline from which on a model has learned something."""
LARGER_MODELS = {256: "small", 768: "albert/albert-base-v2"}
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
    still_rising: bool,
) -> dict[str, str] | None:
    """What to change next, by the scores of training and development rows: `why`, and what to `try`.

    None for a score that is not in points of 100 or not defined, and for a model that has nothing left to learn.

    Args:
        still_rising: whether the last evaluation was the best, or there was one only.
    """
    if metric.startswith(LOWER_IS_BETTER) or training is None or development is None:
        return None
    larger = next((f"--model {name}" for width, name in LARGER_MODELS.items() if hidden_size < width), None)
    why = f"{metric} is {training:.1f} on training rows and {development:.1f} on the development set"
    if training - development >= LARGE_GAP and (training >= WELL_KNOWN or not still_rising):
        why += "; more epochs do not close this gap"
        return {"why": why, "try": f"{larger}, or more labelled rows" if larger else "more labelled rows"}
    if min(training, development) >= 98.0:
        return None
    rate = min(2 * learning_rate, max(MAX_RATE, learning_rate))
    if training - (baseline or 0.0) < LEARNT and rate > learning_rate and epochs >= 1:
        why += ", hardly above the majority baseline; the model has not learned yet"
        return {"why": why, "try": f"--learning-rate {rate:.2g}"}
    if still_rising:
        why += "; the score was still rising at the end, or was taken only there"
        return {"why": why, "try": f"--epochs {math.ceil(2 * epochs)}"}
    why += "; the score stopped rising before the end, so more epochs do not help"
    return {"why": why, "try": larger or "more labelled rows"}


def published_lines(task: Task) -> list[str]:
    """Published scores, a line for each metric and source."""
    groups: dict[tuple[str, str], list[str]] = {}
    for published in task.published:
        group = groups.setdefault((published.metric, published.source), [])
        group.append(f"{published.model} {published.score:g}")
    return [f"published {name}: {', '.join(models)} ({source})" for (name, source), models in groups.items()]


def data_warnings(counts: Mapping[str, Any]) -> list[str]:
    """A line for each count of examples that were cut, moved or not found."""
    return [f"{counts[key]:,} {what}" for key, what in _WARNINGS.items() if counts.get(key)]


def format_score(value: float | None) -> str:
    """A score with two decimals."""
    return "undefined" if value is None else f"{value:.2f}"
