"""Evaluating a model on a task: predictions of every example, official scores, the threshold, lines for people.

Every example is answered; nothing is scored on a part of a split."""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from albert.finetuning.data import PreparedSplit, encode_split, pack_members, read_examples, split_by_tokens
from albert.finetuning.model import open_for_task
from albert.model.albert import OutputRow, SpanBeamRow, output_rows
from albert.runtime.devices import autocast, parallel_map, pick_device
from albert.runtime.environment import Precision
from albert.runtime.errors import Diverged, InvalidConfiguration
from albert.runtime.files import write_text
from albert.runtime.progress import progress
from albert.runtime.random_streams import stream
from albert.tasks.answers import Answers, NullThreshold, best_answers, choose_threshold, decide
from albert.tasks.examples import Example, Sequences, SpanFeatures, TagFeatures
from albert.tasks.metrics import (
    OUTSIDE,
    baseline_scores,
    entities_of,
    is_better,
    predictions_in_order,
    runs_of,
    tag_scheme,
    task_scores,
)
from albert.tasks.submission import OWN_THRESHOLDS, average_answers, average_numbers
from albert.tasks.task import Choice, Labels, Option, Score, Span, Tags, Target, Task

# --------------------------------------------------------------------------------------------------------------------
# Predictions from a model's outputs: gold and predicted values for the metrics, and a readable entry for each example.

SHOWN_ANSWERS = 5
LIKELY = 0.5
"""The probability from which on a label counts as true where several may be."""


@dataclass(frozen=True)
class Predictions:
    """One of each for every example, in order.

    `gold` and `predicted` are label ids, places of options, sets of labels, tags, numbers, or answers; `entries` are
    JSON objects.
    """

    gold: Any
    predicted: Any
    entries: list[dict[str, Any]]


def labels_predictions(
    examples: Sequence[Example], target: Choice | Option | Labels, gold: np.ndarray, probabilities: np.ndarray
) -> Predictions:
    """The likeliest label or option, or of several labels every one that is likelier true than not.

    Args:
        gold: label ids [examples], or which labels are true [examples, labels].
        probabilities: [examples, labels], in the task's order.
    """
    names = np.array(target.options if isinstance(target, Option) else target.labels, object)
    several = isinstance(target, Labels)
    predicted = probabilities >= LIKELY if several else probabilities.argmax(axis=1)
    gold = gold > 0 if several else gold

    def named(labels: Any) -> Any:
        return names[labels].tolist() if several else names[int(labels)]

    entries = [
        {
            "id": example.identifier,
            "prediction": named(chosen),
            "gold": None if example.target is None else named(true),
            "probabilities": dict(zip(names, map(float, row), strict=True)),
        }
        for example, chosen, true, row in zip(examples, predicted, gold, probabilities, strict=True)
    ]
    return Predictions(gold, predicted, entries)


def tags_predictions(examples: Sequence[Example], target: Tags, probabilities: Sequence[np.ndarray]) -> Predictions:
    """The likeliest tag of every word, and the entities that they write; probabilities are [words, labels] for each
    example, in the task's order. Each tag has its probability beside it.
    """
    labels = target.labels
    plain = tag_scheme(labels) == "plain"
    decisions = Predictions([], [], [])
    for example, rows in zip(examples, probabilities, strict=True):
        gold = tuple(labels[tag] for tag in example.target) if isinstance(example.target, tuple) else ()
        predicted = tuple(labels[tag] for tag in rows.argmax(axis=1)) if len(rows) else ()
        entry: dict[str, Any] = {"id": example.identifier, "words": list(example.texts), "prediction": list(predicted)}
        entry["gold"] = None if example.target is None else list(gold)
        entry["probabilities"] = rows.max(axis=1).tolist() if len(rows) else []
        if not plain or OUTSIDE in labels:
            entities = runs_of(predicted) if plain else entities_of(predicted)
            entry["entities"] = [entity._asdict() for entity in entities]
        decisions.gold.append(gold)
        decisions.predicted.append(predicted)
        decisions.entries.append(entry)
    return decisions


def answers_predictions(
    examples: Sequence[Example], answers: Sequence[Answers], threshold: NullThreshold | None
) -> Predictions:
    """The best spans, or none where the threshold says so; None for a threshold: every question has an answer."""
    open_answers = None if threshold is None else decide(answers, threshold)
    texts, entries = [], []
    for place, (example, each) in enumerate(zip(examples, answers, strict=True)):
        best = each.candidates[0] if each.candidates else None
        texts.append("" if best is None else best.text)
        entry: dict[str, Any] = {"id": example.identifier, "prediction": texts[-1]}
        entry["gold"] = [answer.text for answer in example.answers]
        if best is not None:
            entry |= {"start": best.start, "end": best.end, "score": best.score}
        if open_answers is not None:
            entry |= {"prediction": texts[-1] if open_answers[place].answered else "", "no_answer": each.no_answer}
            entry |= {"no_answer_probability": each.no_answer_probability}
        entry["best"] = [
            {"answer": found.text, "start": found.start, "end": found.end, "probability": found.probability}
            for found in each.candidates[:SHOWN_ANSWERS]
        ]
        entries.append(entry)
    gold = [tuple(answer.text for answer in example.answers) for example in examples]
    return Predictions(gold, texts if open_answers is None else open_answers, entries)


RawPredictions = np.ndarray | list[Answers]
"""Probabilities [examples, labels] in the task's order, of options, or [words of all examples, labels]; numbers
[examples]; or answers."""
CHOSEN_ON_THESE = "best_: with the threshold that suits the scored questions best, as the reference reports it"


@dataclass(frozen=True)
class ComputeOptions:
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
        return {name: value for name, value in self.scores.items() if value is not None}


def evaluate_model(
    model: nn.Module,
    task: Task,
    prepared: PreparedSplit,
    compute: ComputeOptions,
    label_columns: Sequence[int] | None = None,
    threshold: NullThreshold | None = None,
) -> Evaluation:
    """Answer every example and score the answers; see `predict_split` and `score_predictions`."""
    started = time.perf_counter()
    predicted = predict_split(model, task.target, prepared, compute, label_columns)
    return score_predictions(task, prepared, predicted, threshold, started)


def score_predictions(
    task: Task, prepared: PreparedSplit, predicted: RawPredictions, threshold: NullThreshold | None, started: float
) -> Evaluation:
    """Decide and score what was predicted.

    Args:
        predicted: what a model, or several, say to its examples.
        threshold: from where on a question has no answer, where that may be; None chooses it on the split itself.
        started: when the work on the split began, by `time.perf_counter`.
    """
    decisions, threshold = _decisions(task, prepared, predicted, threshold)
    identifiers = [example.identifier for example in prepared.examples]
    predictions_in_order(identifiers, {entry["id"]: entry for entry in decisions.entries}, prepared.split)
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
    compute: ComputeOptions,
    label_columns: Sequence[int] | None = None,
) -> RawPredictions:
    """What a model says to every example of a split, before anything is decided.

    Args:
        model: with a head for the target, on the device already. Its training mode is kept.
        label_columns: for each label of the task, the model's output for it; None when they are in the same
            order.

    Raises:
        Diverged: the model's outputs are not finite.
    """
    outputs = model_outputs(model, prepared.features.sequences, compute, f"Evaluating {prepared.split}")
    return predictions_from_outputs(target, prepared, outputs, label_columns)


def predictions_from_outputs(
    target: Target,
    prepared: PreparedSplit,
    outputs: Sequence[OutputRow],
    label_columns: Sequence[int] | None = None,
) -> RawPredictions:
    """What a model's outputs for the sequences of a split, in their order, say to its examples; see `predict_split`."""
    features = prepared.features
    if isinstance(target, Span):
        assert isinstance(features, SpanFeatures)
        return best_answers(
            prepared.examples, features, outputs, target.max_answer_tokens, may_be_absent=target.may_be_absent
        )
    arrays = [np.asarray(row) for row in outputs]
    found = features.words.word_outputs(arrays) if isinstance(features, TagFeatures) else np.stack(arrays)
    logits = found.astype(np.float64)
    if isinstance(target, Score):
        return logits[:, 0]
    if isinstance(target, Option):
        logits = logits.reshape(-1, features.n_options)
    elif label_columns is not None:
        logits = logits[:, list(label_columns)]
    if isinstance(target, Labels):
        return torch.from_numpy(logits).sigmoid().numpy()
    exponentials = np.exp(logits - logits.max(axis=1, keepdims=True))
    return exponentials / exponentials.sum(axis=1, keepdims=True)


def model_outputs(model: nn.Module, sequences: Sequences, compute: ComputeOptions, description: str) -> list[OutputRow]:
    """The head's outputs in the order of the sequences; see `output_rows`."""
    outputs: list[OutputRow] = [np.zeros(0, np.float32)] * len(sequences)
    workers = torch.get_num_threads() if compute.device.type == "cpu" else 1
    tokens = max(1, compute.micro_batch_tokens // workers)
    pieces = split_by_tokens(np.arange(len(sequences)), sequences.lengths, tokens)

    def run_piece(piece: np.ndarray) -> None:
        packed = pack_members(sequences, piece).to(compute.device)
        with torch.inference_mode(), autocast(compute.device, compute.precision):
            rows = output_rows(model(packed), packed.lengths)
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


def _decisions(
    task: Task, prepared: PreparedSplit, predicted: RawPredictions, threshold: NullThreshold | None
) -> tuple[Predictions, NullThreshold | None]:
    """What was predicted, decided, and the threshold that was applied, if any."""
    examples, target, features = prepared.examples, task.target, prepared.features
    if isinstance(predicted, list):
        if not (isinstance(target, Span) and target.may_be_absent):
            return answers_predictions(examples, predicted, None), None
        threshold = threshold or threshold_for(examples, predicted, "the very questions that are scored")
        return answers_predictions(examples, predicted, threshold), threshold
    match target:
        case Tags():
            assert isinstance(features, TagFeatures)
            return tags_predictions(examples, target, features.words.split_by_sentence(predicted)), None
        case Score():
            pairs = zip(examples, map(float, predicted), strict=True)
            entries = [{"id": each.identifier, "prediction": number, "gold": each.target} for each, number in pairs]
            return Predictions(features.targets.astype(np.float64), predicted, entries), None
        case Choice() | Option() | Labels():
            return labels_predictions(examples, target, features.targets, predicted), None
        case Span():
            raise TypeError("spans are predicted as answers")


def _scores(
    task: Task, prepared: PreparedSplit, decisions: Predictions
) -> tuple[dict[str, float | None], dict[str, float | None]]:
    """Scores and those of the constant answer, of the whole split and, where there are several, of each group in it."""
    scores, baseline = task_scores(task, decisions.gold, decisions.predicted), baseline_scores(task, decisions.gold)
    groups: dict[str, list[int]] = {}
    for place, example in enumerate(prepared.examples):
        groups.setdefault(example.group, []).append(place)
    for group, members in groups.items() if len(groups) > 1 else ():
        gold, predicted = ([side[member] for member in members] for side in (decisions.gold, decisions.predicted))
        scores |= {f"{name}_{group}": value for name, value in task_scores(task, gold, predicted).items()}
        baseline |= {f"{name}_{group}": value for name, value in baseline_scores(task, gold).items()}
    return scores, baseline


# --------------------------------------------------------------------------------------------------------------------
# Evaluation of fine-tuned model directories, one or several together: predictions, official metrics, the baseline.


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
        max_length: tokens of a sequence; None takes the length of the fine-tuning, or else the task's.
        needs_labels: whether a split without labels is refused; else it is answered and not scored.
        depth: layers to apply (see `set_depth`); None: as many as each model was trained with.
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
    compute = ComputeOptions(chosen, precision, micro_batch_tokens)
    examples, counts = read_examples(task, data, split, needs_labels=needs_labels)
    members: list[EvaluatedDirectory] = []
    predictions: list[tuple[PreparedSplit, RawPredictions, NullThreshold]] = []
    begun = time.perf_counter()
    for place, model in enumerate(models):
        opened = opened if place == 0 else open_for_task(task, model, *opening)
        prepared = encode_split(task, split, examples, counts, opened.tokenizer, opened.recipe)
        started = time.perf_counter()
        opened.model.to(chosen)
        if prepare is not None:
            prepare(opened.model)
        predicted = predict_split(opened.model, task.target, prepared, compute, opened.label_columns)
        evaluation = score_predictions(task, prepared, predicted, opened.threshold, started)
        members.append(EvaluatedDirectory(evaluation, opened.directory, (*opened.notes, *evaluation.notes)))
        predictions.append((prepared, predicted, opened.threshold))
    if len(members) == 1:
        return EvaluatedModels(members[0].evaluation, tuple(members))
    prepared, predicted, _ = predictions[0]
    if isinstance(predicted, list):
        answers = [(each, threshold) for _, each, threshold in predictions if isinstance(each, list)]
        mean, threshold = average_answers(answers), OWN_THRESHOLDS
    else:
        mean = average_numbers([each for _, each, _ in predictions if not isinstance(each, list)])
        threshold = None
    return EvaluatedModels(score_predictions(task, prepared, mean, threshold, begun), tuple(members))


def write_predictions(path: Path, evaluation: Evaluation) -> None:
    """One JSON object per line: `id`, `prediction`, `gold`, and probabilities or the place in the context."""
    lines = [json.dumps(entry, ensure_ascii=False, allow_nan=False) for entry in evaluation.predictions]
    write_text(path, "".join(line + "\n" for line in lines))


# --------------------------------------------------------------------------------------------------------------------
# The no-answer threshold: chosen on questions that are held out of training.
#
# The reference chooses it on the questions that it then reports; that is possible too, and said wherever scores
# are.

HELD_OUT_SHARE = 0.05


def hold_out(examples: Sequence[Example], seed: int) -> tuple[list[Example], list[Example]]:
    """Examples to learn from, and a twentieth of them, whole contexts drawn by the seed, to choose the threshold on.

    More than a twentieth are held out where that takes in questions of one kind only, with or without an answer.

    Raises:
        InvalidConfiguration: there are too few contexts, or all questions are of one kind.
    """
    by_context: dict[str, list[Example]] = {}
    for example in examples:
        by_context.setdefault(example.texts[1], []).append(example)
    contexts = list(by_context)
    held: set[str] = set()
    kinds: set[bool] = set()
    questions = 0
    for place in stream("finetuning.held_out", seed).permutation(len(contexts)).tolist():
        held.add(contexts[place])
        questions += len(by_context[contexts[place]])
        kinds |= {bool(example.answers) for example in by_context[contexts[place]]}
        if questions >= HELD_OUT_SHARE * len(examples) and len(kinds) == 2:
            break
    learnt = [example for example in examples if example.texts[1] not in held]
    remedy = "give more data, or --null-threshold dev"
    if len(kinds) < 2:
        why = f"{'every question has an answer' if True in kinds else 'no question has an answer'} in the training set"
        raise InvalidConfiguration("null threshold", why, remedy)
    if not learnt:
        raise InvalidConfiguration("null threshold", "too few contexts to keep some back from training for it", remedy)
    return learnt, [example for example in examples if example.texts[1] in held]


def threshold_for(examples: Sequence[Example], answers: Sequence[Answers], chosen_on: str) -> NullThreshold:
    """The threshold with the best F1 on some questions."""
    gold = [[answer.text for answer in example.answers] for example in examples]
    return NullThreshold(choose_threshold(gold, decide(answers, NullThreshold())), chosen_on)


# --------------------------------------------------------------------------------------------------------------------
# An evaluation in lines for people: scores, what they are compared with, published scores, and what was shortened.


_WORDS = {
    "unlabelled": "examples without a label: nothing is scored",
    "truncated": "examples cut to the maximum length",
    "passages_truncated": "questions whose passage was cut",
    "questions_truncated": "questions cut",
    "sentences_in_several_windows": "sentences in several windows",
    "sentences_without_words": "sentences without a word",
    "words_without_pieces": "words without a piece, read as the unknown one",
    "tags_that_continue_nothing": "tags that go on with an entity that none began: they begin it, as conlleval has it",
    "contexts_in_several_windows": "contexts in several windows",
    "answers_relocated": "answers found away from their offset",
    "answers_not_found": "answers not in their context, or there more than once",
    "answers_not_aligned": "answers without a place in the context's tokens",
}


def score_lines(
    task: Task,
    scores: Mapping[str, float | None],
    baseline: Mapping[str, float | None] | None,
    linear: Mapping[str, Any] | None = None,
) -> list[str]:
    """Each metric with the best constant answer and the linear model's score beside it, then published scores."""
    lines = []
    for name, value in scores.items():
        line = f"{name:<20} {format_score(value):>9}"
        beside = []
        if baseline is not None and name in baseline and "thresh" not in name:
            beside.append(f"best constant answer: {format_score(baseline[name])}")
        if linear is not None and name in linear["scores"]:
            beside.append(f"{linear['method']}: {format_score(linear['scores'][name])}")
        lines.append(line + (f"   ({'; '.join(beside)})" if beside else ""))
    if linear is not None and linear["left_out"] is not None:
        lines.append(f"{linear['method']} is left out: {linear['left_out']}")
    return lines + published_lines(task)


def advice(
    scores: Mapping[str, float | None],
    baseline: Mapping[str, float | None] | None,
    linear: Mapping[str, Any] | None = None,
) -> str | None:
    """What to try when the first score is not better than a constant answer or the linear model; None when it is.

    For the arguments see `score_lines`.
    """
    name, score = next(iter(scores.items()), ("", None))
    rivals: dict[str, float | None] = {}
    if baseline is not None and name in baseline:
        rivals["the best constant answer's"] = baseline[name] or 0.0  # the correlation with a constant is undefined
    if linear is not None and name in linear["scores"]:
        rivals[f"that of {linear['method']},"] = linear["scores"][name]
    ahead = [f"{rival} {format_score(value)}" for rival, value in rivals.items() if not is_better(name, score, value)]
    if not ahead:
        return None
    why = f"{name} {format_score(score)} is not better than {' and '.join(ahead)}"
    return f"{why}: try more --epochs, another --learning-rate, or a larger --model"


def published_lines(task: Task) -> list[str]:
    """Published scores, a line for each metric and source."""
    groups: dict[tuple[str, str], list[str]] = {}
    for published in task.published:
        group = groups.setdefault((published.metric, published.source), [])
        group.append(f"{published.model} {published.score:g}")
    return [f"published {name}: {', '.join(found)} ({source})" for (name, source), found in groups.items()]


def data_warnings(counts: Mapping[str, Any]) -> list[str]:
    """Lines on whatever was cut, moved or not found; none when nothing was."""
    return [f"{counts[key]:,} {what}" for key, what in _WORDS.items() if counts.get(key)]


def format_score(value: float | None) -> str:
    """A score with two decimals."""
    return "undefined" if value is None else f"{value:.2f}"
