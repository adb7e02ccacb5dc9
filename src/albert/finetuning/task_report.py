"""The report of a fine-tuning run on a task, and the card of its model."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from albert.checkpoints.card import Card
from albert.columns.read import TableSource
from albert.finetuning.evaluation import Evaluation, analysis_of
from albert.finetuning.fill_in import MAX_RATE
from albert.finetuning.selection import (
    describe_selection,
    development_curve,
    development_trend,
    is_lower,
    tuned_score,
)
from albert.finetuning.task_training import TaskTraining
from albert.model.cost import count_parameters
from albert.report.advice import (
    FEW_ROWS,
    FROZEN,
    Lost,
    advice,
    all_scores,
    next_step,
    rows_that_decide,
    simpler_models,
)
from albert.report.card import card_scores, measured_scores
from albert.report.notes import counts_of_rows
from albert.runtime.json_files import to_json
from albert.runtime.words import counted
from albert.tasks.declared import UNNAMED
from albert.tasks.examples import Example
from albert.tasks.labels import similar_labels
from albert.tasks.multiple_choice import MultipleChoice
from albert.tasks.span import Span
from albert.text.unknown import is_english
from albert.training.logging import TrainingResult


def task_report(
    trained: TaskTraining, training: TrainingResult, evaluation: Evaluation, further: Mapping[str, Evaluation]
) -> dict[str, Any]:
    """What `results.json` says of a run besides its record: scores, baselines, counts, advice."""
    batches = trained.batches
    split = trained.scorer.train_split
    settings = trained.settings
    frozen = trained.frozen_head()
    probe = None if frozen is None else frozen["scores"]
    selection = describe_selection(settings.select or "last", evaluation.scores, trained.folder.journal_path, probe)
    if settings.frozen:
        selection["rule"] = "selection: none, the encoder is frozen and its head was solved"
        selection["note"] = selection["rule"]
    linear = trained.scorer.linear_baseline(balanced=settings.class_weights is not None)
    encoding = (trained.initial.tokenizer, trained.recipe.values)
    training_scores = trained.scorer.training_scores(evaluation.target, *encoding)
    n_trained = training.steps * batches.batch_size
    epochs = trained.recipe.epochs_of(training.steps)
    solved_is_result = selection["step"] == 0
    step = _next_step(trained, evaluation, training_scores, epochs, solved_is_result)
    n_evaluated = len(evaluation.predictions)
    notes = [*_notes(trained), *evaluation.notes, *_rows_trained_on(trained)]
    dev = trained.scorer.dev_split.examples
    n_texts = len({(*map(str.strip, example.texts), example.options) for example in dev})
    if n_evaluated < FEW_ROWS:
        rows = "row" if n_evaluated == 1 else "rows"
        few = f"the development set has {n_evaluated} {rows}: scores on it prove nothing; some hundred rows are needed"
        if isinstance(trained.task.source, TableSource) and trained.task.source.has_one_split:
            few += ", or albert sweep --folds 5, which scores every row of the table once"
        notes.append(few)
    elif n_texts <= n_evaluated / 2:
        few = counted(n_texts, "different texts")
        notes.append(f"the development set has {few} in {n_evaluated:,} rows: its score is that of so few")
    if training.ended_by == "patience":
        notes.append(training.ending)
    if linear is not None and 0 < linear["train_examples"] < len(split.examples):
        of_all = f"{linear['train_examples']:,} of {len(split.examples):,} training rows"
        notes.append(f"{linear['method']} learned from {of_all}")
    curve = development_curve(selection["metric"], trained.folder.journal_path)
    if curve:
        notes.append(curve)
    report = {
        "scores": dict(evaluation.scores),
        "baseline": None if evaluation.baseline is None else dict(evaluation.baseline),
        "baseline_name": trained.task.target.baseline_name,
        "published": to_json(trained.task.published),
        "training": {
            **split.counts,
            "examples": frozen["examples"] if settings.frozen and frozen is not None else len(split.examples),
            "sequences": len(batches.sequences),
            "windows_left_out": len(split.features.sequences) - len(batches.sequences),
            "steps": training.steps,
            "epochs": epochs,
            "seconds": training.seconds,
            "sequences_per_second": (
                n_trained * len(batches.sequences) / batches.n_examples / training.seconds if training.seconds else None
            ),
            "tokens_per_second": training.tokens_per_second,
        },
        "evaluation": {
            **evaluation.counts,
            "examples": n_evaluated,
            "seconds": evaluation.seconds,
            "examples_per_second": n_evaluated / evaluation.seconds,
        },
        "notes": notes,
        "frozen_head": frozen,
        "linear_baseline": linear,
        "advice": None,
        "training_scores": training_scores,
        "next_step": step,
        "selection": selection,
        "workers": batches.workers,
        "further_scores": {name: dict(result.scores) for name, result in further.items()},
        "further_examples": {name: len(result.predictions) for name, result in further.items()},
        **analysis_of(trained.task, trained.scorer.dev_split, evaluation),
    }
    if further:
        report["further_baselines"] = {
            name: {
                trained.task.target.baseline_name: result.baseline,
                **({} if linear is None else {linear["method"]: linear["further_scores"].get(name)}),
                **({} if frozen is None or settings.frozen else {FROZEN: frozen["further_scores"].get(name)}),
            }
            for name, result in further.items()
        }
    report["advice"] = advice(
        all_scores(report),
        simpler_models({**report, "settings": {"frozen": settings.frozen}}),
        is_frozen=settings.frozen,
        is_weighted=settings.class_weights is not None,
        step=step,
        is_probe=solved_is_result,
        rows=rows_that_decide(report),
    )
    return report


def task_card(
    trained: TaskTraining, evaluation: Evaluation, report: Mapping[str, Any], examples: Sequence[Mapping[str, str]]
) -> Card:
    """The model card, with every score beside those of the baselines."""
    task = trained.task
    initial = trained.initial
    data_lines = [report["selection"]["note"], *counts_of_rows(report)]
    if examples:
        data_lines.append(
            f"examples.json holds {counted(len(examples), 'rows')} of the development set, without labels"
        )
    head = sum(p.numel() for n, p in trained.model.named_parameters() if not n.startswith("albert."))
    parts = {k: n for k, n in count_parameters(initial.config).by_part().items() if "head" not in k}
    parts.pop("pretraining", None)
    if not any(name.startswith("albert.pooler.") for name, _ in trained.model.named_parameters()):
        parts = {name: count for name, count in parts.items() if name not in ("pooler", "model")}
    own_table = task.name == UNNAMED
    source = f"fine-tuned on {'a table' if own_table else task.name}, starting from {initial.source}"
    return Card(
        name=trained.folder.path.name,
        description=task.description if own_table else f"{task.name}. {task.description}".strip(),
        parameters=parts | {"task head": head},
        recipe=_settings_of(trained),
        scores=card_scores({**report, "settings": {"frozen": trained.settings.frozen}}),
        measured=measured_scores(report, "a table" if own_table else task.name),
        data=[source, *initial.changed, *data_lines],
        versions={"torch": torch.__version__},
        example=examples[0] if examples else {},
        base=replace(initial.base, languages=()) if isinstance(task.source, TableSource) else initial.base,
        base_relation="finetune",
    )


def _settings_of(trained: TaskTraining) -> dict[str, Any]:
    """The recipe for the card, without the lengths that this kind of task does not read."""
    target = trained.task.target
    unread: tuple[str, ...] = ()
    if not isinstance(target, Span):
        unread = ("stride",) if isinstance(target, MultipleChoice) else ("question_length", "stride")
    recipe = {name: value for name, value in to_json(trained.recipe.values).items() if name not in unread}
    if not trained.settings.frozen:
        return recipe
    head = trained.frozen_head() or {}
    lengths = {name: recipe[name] for name in ("max_length", "question_length", "stride") if name in recipe}
    return lengths | {name: head[name] for name in ("inverse_regularisation",) if name in head}


def _next_step(
    trained: TaskTraining,
    evaluation: Evaluation,
    training_scores: Mapping[str, Any],
    epochs: float,
    solved_is_result: bool,
) -> dict[str, str] | None:
    """What to change next; None without scores, and for a model whose encoder is not trained.

    Args:
        epochs: of the run, which may have ended before its last step.
        solved_is_result: whether the result is the head that was solved first, as fine-tuning did not improve on it.
    """
    if trained.settings.frozen or trained.settings.freeze_encoder or not evaluation.scores:
        return None
    metric = next(iter(evaluation.scores))
    rate = trained.recipe.optimizer.learning_rate
    texts = [text for example in trained.scorer.train_split.examples for text in example.texts]
    return next_step(
        metric,
        training_scores["scores"].get(metric),
        evaluation.scores[metric],
        (evaluation.baseline or {}).get(metric),
        hidden_size=trained.initial.config.hidden_size,
        learning_rate=rate,
        higher_rate=min(2 * rate, max(MAX_RATE, rate)),
        epochs=trained.recipe.epochs,
        is_english=is_english(texts),
        trend=development_trend(metric, trained.folder.journal_path, epochs, len(evaluation.predictions)),
        baseline_name=trained.task.target.baseline_name,
        steps=None if trained.recipe.values.examples is not None else trained.recipe.values.steps,
        lost=_lost(trained, evaluation, metric, solved_is_result),
        rows=len(evaluation.predictions),
    )


def _lost(trained: TaskTraining, evaluation: Evaluation, metric: str, solved_is_result: bool) -> Lost | None:
    """What fine-tuning lost of the head that was solved first; None: nothing, or no more than chance."""
    solved = ((trained.frozen_head() or {}).get("scores") or {}).get(metric)
    tuned = tuned_score(metric, trained.folder.journal_path) if solved_is_result else evaluation.scores[metric]
    if solved is None or tuned is None or not is_lower(tuned, solved, len(evaluation.predictions)):
        return None
    return Lost(solved, tuned, solved_is_result)


def _rows_trained_on(trained: TaskTraining) -> list[str]:
    """A line for each scored part of your tables that has texts that were trained on, whatever their blanks and
    capitals."""
    if not isinstance(trained.task.source, TableSource):
        return []

    def texts(example: Example) -> tuple[str, ...]:
        return tuple(" ".join(text.split()).casefold() for text in (*example.texts, *example.options))

    known = set(map(texts, trained.scorer.train_split.examples))
    lines = []
    for split in (trained.scorer.dev_split, *trained.scorer.further):
        seen = sum(texts(example) in known for example in split.examples)
        if seen:
            verb = "has" if seen == 1 else "have"
            rows = f"{seen:,} of {counted(len(split.examples), 'rows')} of {split.split}"
            lines.append(f"{rows} {verb} a text that was trained on: these scores do not hold for other rows")
    return lines


def _notes(trained: TaskTraining) -> list[str]:
    notes = [*trained.initial.notes, *trained.notes]
    if isinstance(trained.task.source, TableSource) and not trained.task.target.per_token:
        similar = similar_labels(trained.task.target.class_names)
        notes += [f"the labels {labels} are different classes: are they one, with one spelling?" for labels in similar]
    if trained.scorer.scale is not None:
        notes.append(
            f"numbers were trained as standard scores: training mean {trained.scorer.scale.mean:.4g}, "
            f"deviation {trained.scorer.scale.deviation:.4g}, both in the saved head"
        )
    return notes
