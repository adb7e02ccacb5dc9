"""Fine-tuning on a task: all input is read and checked first, then the model is trained, evaluated and written.

RUN/recipe.json            the whole run as a value
    journal.jsonl          one event per line
    model/                 the Hugging Face model directory
    predictions-dev.jsonl  one object per development example; further splits of the task have their own file
    results.json           scores, baselines, counts, speed, seed, errors
    report.html            the results as a page; written last"""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import nn

from albert.checkpoints.huggingface import ARCHITECTURES
from albert.checkpoints.model_directory import model_card, save_model_directory, write_model
from albert.checkpoints.sentence_transformers import SENTENCE_KEY
from albert.finetuning.data import (
    PreparedSplit,
    TaskBatches,
    arrays_fingerprint,
    balanced_weights,
    encode_split,
    prepare_split,
    read_examples,
)
from albert.finetuning.evaluation import (
    FROZEN,
    MAJORITY,
    ComputeOptions,
    Evaluation,
    Threshold,
    advice,
    analysis_of,
    best_label_threshold,
    best_threshold,
    evaluate_model,
    hold_out,
    hold_out_labelled,
    next_step,
    predict_split,
    write_predictions,
)
from albert.finetuning.frozen_head import can_be_solved, describe, solve_head
from albert.finetuning.model import (
    PretrainedEncoder,
    Start,
    StartedModel,
    choose_pairs,
    exit_depths,
    fit_length,
    head_description,
    n_outputs,
    start_model,
)
from albert.finetuning.objective import Teacher, TeacherLogits, TrainingSetup, open_teacher, term_of, training_setup
from albert.finetuning.options import (
    BY_DEFAULT,
    MIN_SELECTING_ROWS,
    PATIENCE,
    LearningPlan,
    RecipeLike,
    evaluation_interval,
    plan_learning,
    read_run_record,
    requested_recipe,
)
from albert.finetuning.report_page import REPORT_NAME, write_report
from albert.finetuning.run_record import (
    NOT_PART_OF_IDENTITY,
    RESULTS_NAME,
    BestModel,
    FinetuningResult,
    FinetuningSettings,
    describe_selection,
    development_curve,
    evaluations_without_gain,
    examples_fingerprint,
    optimizer_of,
    page_examples,
    recipe_fingerprint,
    recorded_settings,
    start_identity,
)
from albert.model.albert import EXITS_KEY
from albert.model.cost import count_parameters
from albert.optim.optimizer import build_optimizer
from albert.optim.recipe import warmup_then_linear
from albert.runtime.devices import describe_machine, finetuning_precision, pick_device
from albert.runtime.distributed import process_group, wait_for_all
from albert.runtime.environment import Ranks, lazy_import, world
from albert.runtime.errors import CannotCreate, InvalidConfiguration, MissingInput
from albert.runtime.files import remove_directory
from albert.runtime.json_files import common_fields, identity_settings, read_json_object, save_json, to_json
from albert.runtime.random_streams import stream
from albert.tasks.custom import TableSource
from albert.tasks.examples import SpanFeatures, TagFeatures
from albert.tasks.label_threshold import LabelThreshold
from albert.tasks.metrics import TARGET_SCALE_KEY, NumberScale, check_numbers
from albert.tasks.table_task import RecipeChanges, save_table_task
from albert.tasks.task import UNNAMED, Choice, Labels, Score, Span, Tags, Task, TaskRecipe
from albert.training.logging import TrainingPlan, TrainingResult
from albert.training.loop import Training
from albert.training.run_folder import RunFolder
from albert.training.self_check import check_attention_kernel
from albert.training.state import first_difference
from albert.training.update import training_workers

FROZEN_HEAD_NAME = "frozen_head.json"
HEAD_NOT_SOLVED = "the encoder's states hardly depend on the text: the head was not solved on them"
SCORED_TRAINING_ROWS = 300
"""So many training rows are scored at the end, for the advice."""


@dataclass(frozen=True, kw_only=True)
class TaskRun:
    """A run whose inputs are read and checked; with a `scale`, `batches` and `teacher` have standard scores."""

    task: Task
    started: StartedModel
    run: RunFolder
    plan: LearningPlan
    settings: FinetuningSettings
    compute: ComputeOptions
    ranks: Ranks
    train_split: PreparedSplit
    dev_split: PreparedSplit
    batches: TaskBatches
    held_out: PreparedSplit | None
    further: tuple[PreparedSplit, ...]
    depths: tuple[int, ...]
    teacher: Teacher | None = None
    scale: NumberScale | None = None
    announce: Callable[[Mapping[str, Any]], None] | None = None

    @property
    def model(self) -> nn.Module:
        return self.started.model

    def complete(self) -> FinetuningResult:
        """Train to the end, evaluate and write everything; a finished run is returned as it is."""
        settings = self.settings
        scale = self.scale
        identity = self._identity()
        best = None
        if settings.select == "best":
            best = BestModel(self.run.path / "best", self._save, identity["development set"])
        latest: Evaluation | None = None

        def prepare() -> TrainingSetup:
            if scale is not None and self.started.changes.get("keep_head"):
                scale.take_out(self.model.classifier)
            self.model.to(self.compute.device)
            solved = self._solve_head()
            how = {"freeze_encoder": settings.freeze_encoder, "distillation": settings.distillation}
            setup = training_setup(self.model, self.batches, self.depths, self.compute, teacher=self.teacher, **how)
            return setup if solved is None else replace(setup, before_training=(solved,))

        def evaluate() -> dict[str, float]:
            nonlocal latest
            with self._original_units():
                latest = self._evaluate()
            if best is not None:
                best.consider(latest.scores)
            return latest.defined_scores

        def is_enough() -> bool:
            assert best is not None
            assert settings.patience is not None
            return evaluations_without_gain(best.metric, self.run.journal_path) >= settings.patience

        def report(setup: TrainingSetup, training: TrainingResult) -> tuple[dict[str, Any], dict[str, Any]]:
            if best is not None:
                self.model.load_state_dict(best.tensors(self.task.target, settings.encode_pairs or "together"))
            elif scale is not None:
                scale.fold_in(self.model.classifier)
            return self._report(setup, training, latest if best is None and latest else self._evaluate())

        return complete_run(
            self.run,
            self.ranks,
            self.started,
            self.plan,
            settings,
            self.compute,
            self._record(),
            identity,
            prepare=prepare,
            evaluate=evaluate,
            is_enough=None if settings.patience is None else is_enough,
            save_model=self._save,
            report=report,
            announce=self.announce,
            description=f"Fine-tuning on {self.task.title}",
            workers=self.batches.workers,
        )

    def _solve_head(self) -> str | None:
        """Solve the head on frozen features, unless a checkpoint holds it; returns a line about its score.

        `frozen_head.json` keeps the score for the report.
        """
        if not (self.settings.solve_head or self.settings.frozen):
            return None
        path = self.run.path / FROZEN_HEAD_NAME
        if not self.run.checkpoints():
            target = self.task.target
            solved = solve_head(self.model, target, self.batches, self.compute, cross_validate=self.settings.frozen)
            if solved is None:
                path.unlink(missing_ok=True)
                return HEAD_NOT_SOLVED
            if not self.ranks.is_first:
                return None
            with self._original_units():
                evaluation = self._evaluate()
                further = self._evaluate_further(evaluation.threshold)
            line = describe(solved, evaluation.scores, alone=self.settings.frozen)
            further_scores = {name: dict(each.scores) for name, each in further.items()}
            scores = {"scores": dict(evaluation.scores), "further_scores": further_scores}
            save_json(path, {**scores, "line": line, **to_json(solved)})
        return read_json_object(path)["line"] if path.is_file() else HEAD_NOT_SOLVED

    def _record(self) -> dict[str, Any]:
        """The whole run as plain values, saved as `recipe.json`."""
        started = self.started
        scale = self.scale
        return {
            "task": self.task.name,
            "inputs": to_json(self.task.inputs),
            "target": to_json(self.task.target),
            "start": started.source,
            **({"changes": dict(started.changes)} if started.changes else {}),
            "recipe": to_json(self.plan.recipe),
            BY_DEFAULT: list(self.plan.by_default),
            "settings": recorded_settings(self.settings),
            **({} if scale is None else {TARGET_SCALE_KEY: vars(scale)}),
        }

    def _identity(self) -> dict[str, str]:
        """Fingerprints of everything that decides the result."""
        sequences = self.batches.sequences
        changes = self.started.changes
        return {
            "recipe": recipe_fingerprint(self.task.target, changes, self.plan.recipe, self.settings),
            "training data": arrays_fingerprint(sequences.tokens, sequences.starts, self.batches.targets),
            "development set": examples_fingerprint(self.dev_split.examples),
            **start_identity(self.started),
            **({} if self.teacher is None else {"teacher": self.teacher.fingerprint}),
        }

    def _report(
        self, setup: TrainingSetup, training: TrainingResult, evaluation: Evaluation
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Write the predictions, and return the report and what the model directory holds beside the model."""
        batches = self.batches
        split = self.train_split
        settings = self.settings
        further = self._evaluate_further(evaluation.threshold)
        for name, result in {"dev": evaluation, **further}.items():
            write_predictions(self.run.path / f"predictions-{name}.jsonl", result)
        selection = describe_selection(settings.select or "last", evaluation.scores, self.run.journal_path)
        if settings.frozen:
            selection["rule"] = "selection: none, the encoder is frozen and its head was solved"
            selection["note"] = selection["rule"]
        curve = development_curve(selection["metric"], self.run.journal_path)
        ended = [training.ending] if training.ended_by == "patience" else []
        linear = self._linear_baseline()
        frozen_path = self.run.path / FROZEN_HEAD_NAME
        frozen = read_json_object(frozen_path) if frozen_path.is_file() else None
        frozen_scores = frozen["scores"] if frozen is not None and not settings.frozen else None
        training_scores = self._training_scores(evaluation.threshold)
        step = self._next_step(evaluation, training_scores, selection, training)
        n_trained = training.steps * batches.batch_size
        n_evaluated = len(evaluation.predictions)
        report = {
            "scores": dict(evaluation.scores),
            "baseline": None if evaluation.baseline is None else dict(evaluation.baseline),
            "published": to_json(self.task.published),
            "training": {
                **split.counts,
                "examples": len(split.examples),
                "sequences": len(batches.sequences),
                "windows_left_out": len(split.features.sequences) - len(batches.sequences),
                "steps": training.steps,
                "epochs": n_trained / batches.n_examples,
                "seconds": training.seconds,
                "sequences_per_second": (
                    n_trained * len(batches.sequences) / batches.n_examples / training.seconds
                    if training.seconds
                    else None
                ),
                "tokens_per_second": training.tokens_per_second,
            },
            "evaluation": {
                **evaluation.counts,
                "examples": n_evaluated,
                "seconds": evaluation.seconds,
                "examples_per_second": n_evaluated / evaluation.seconds,
            },
            "notes": [
                *self._notes(setup),
                *evaluation.notes,
                *few_rows(n_evaluated),
                *ended,
                *([curve] if curve else []),
            ],
            "frozen_head": frozen,
            "linear_baseline": linear,
            "advice": advice(evaluation.scores, evaluation.baseline, linear, frozen_scores, settings.frozen, step),
            "training_scores": training_scores,
            "next_step": step,
            "selection": selection,
            "workers": batches.workers,
            "further_scores": {name: dict(result.scores) for name, result in further.items()},
            **analysis_of(self.task, self.dev_split, evaluation),
        }
        if further:
            report["further_baselines"] = {
                name: {
                    MAJORITY: result.baseline,
                    **({} if linear is None else {linear["method"]: linear["further_scores"].get(name)}),
                    **({} if frozen is None or settings.frozen else {FROZEN: frozen["further_scores"].get(name)}),
                }
                for name, result in further.items()
            }
        examples = page_examples(self.task, self.dev_split.examples, settings.page_examples)
        data_lines = [selection["note"]]
        if examples:
            data_lines.append(f"examples.json holds {len(examples)} rows of the development set, without labels")
        extra = self._config_keys() | (evaluation.threshold.keys if evaluation.threshold else {})
        card = self._card(evaluation, linear, frozen_scores, data_lines, examples)
        return report, {"model": self.model, "extra": extra, "card": card, "examples": examples}

    def _card(
        self,
        evaluation: Evaluation,
        linear: Mapping[str, Any] | None,
        frozen: Mapping[str, float | None] | None,
        data_lines: list[str],
        examples: Sequence[Mapping[str, str]],
    ) -> str:
        """The model card, with every score beside those of the baselines."""
        task = self.task
        started = self.started
        head = sum(p.numel() for n, p in self.model.named_parameters() if not n.startswith("albert."))
        parts = {k: n for k, n in count_parameters(started.config).by_part().items() if "head" not in k}
        parts.pop("pretraining", None)
        scores: dict[str, float] = {}
        for metric, score in evaluation.defined_scores.items():
            scores[f"{metric}, development set"] = score
            compared = {MAJORITY: (evaluation.baseline or {}).get(metric), FROZEN: (frozen or {}).get(metric)}
            if linear is not None:
                compared[linear["method"]] = linear["scores"].get(metric)
            for name, value in compared.items():
                if value is not None and "thresh" not in metric:
                    scores[f"{metric}, {name}"] = value
        own_table = task.name == UNNAMED
        source = f"fine-tuned on {'a table' if own_table else task.name}, starting from {started.source}"
        return model_card(
            name=self.run.path.name,
            location="path/to/this/directory",
            architecture=ARCHITECTURES[type(self.model)],
            attention_window=started.config.effective_window,
            match_embedding=started.config.match_embedding,
            description=task.description if own_table else f"{task.name}. {task.description}".strip(),
            parameters=parts | {"task head": head},
            recipe=to_json(self.plan.recipe),
            scores=scores,
            data=[source, *started.changed, *data_lines],
            versions={"torch": torch.__version__},
            example=examples[0] if examples else None,
        )

    def _training_scores(self, threshold: Threshold | None) -> dict[str, Any]:
        """The scores of some rows of the training set, and their number."""
        chosen = stream("finetuning.training_scores", 0).permutation(len(self.train_split.examples))
        rows = [self.train_split.examples[index] for index in sorted(chosen[:SCORED_TRAINING_ROWS].tolist())]
        split = encode_split(self.task, "training rows", rows, {}, self.started.tokenizer, self.plan.recipe)
        scores = evaluate_model(self.model, self.task, split, self.compute, threshold=threshold).scores
        return {"examples": len(rows), "scores": dict(scores)}

    def _next_step(
        self,
        evaluation: Evaluation,
        training_scores: Mapping[str, Any],
        selection: Mapping[str, Any],
        training: TrainingResult,
    ) -> dict[str, str] | None:
        """What to change next; None without scores, and for a model whose encoder is not trained."""
        if self.settings.frozen or self.settings.freeze_encoder or not evaluation.scores:
            return None
        metric = next(iter(evaluation.scores))
        return next_step(
            metric,
            training_scores["scores"].get(metric),
            evaluation.scores[metric],
            (evaluation.baseline or {}).get(metric),
            hidden_size=self.started.config.hidden_size,
            learning_rate=optimizer_of(self.settings, self.plan.recipe).learning_rate,
            epochs=self.plan.epochs,
            still_rising=selection["step"] in (None, training.steps) and training.ended_by != "patience",
        )

    def _evaluate_further(self, threshold: Threshold | None) -> dict[str, Evaluation]:
        """The evaluations of further splits, such as a test set."""
        return {
            split.split: evaluate_model(self.model, self.task, split, self.compute, threshold=threshold)
            for split in self.further
        }

    def _linear_baseline(self) -> dict[str, Any] | None:
        """The scores of a linear model on the same rows, as plain values; None if the task has no such model."""
        if not self.dev_split.labelled:
            return None
        started = time.perf_counter()
        fit = lazy_import("albert.tasks.linear_baseline").linear_baseline
        further = {split.split: split.examples for split in self.further if split.labelled}
        baseline = fit(self.task, self.train_split.examples, self.dev_split.examples, further)
        return None if baseline is None else {**vars(baseline), "seconds": time.perf_counter() - started}

    def _evaluate(self) -> Evaluation:
        """Evaluate the current model on the development set."""
        threshold: Threshold | None = None
        fixed = self.settings.threshold
        if isinstance(self.task.target, Labels) and fixed is not None and self.held_out is None:
            may_be_empty = any(not example.target for example in self.train_split.examples)
            why = "it was given" if isinstance(fixed, float) else "there are too few rows to hold some out"
            threshold = LabelThreshold(fixed if isinstance(fixed, float) else 0.5, may_be_empty, f"nothing: {why}")
        elif self.held_out is not None:
            answers = predict_split(self.model, self.task.target, self.held_out, self.compute)
            examples = self.held_out.examples
            if isinstance(answers, list):
                about = f"{len(examples):,} questions held out of the training set"
                threshold = best_threshold(examples, answers, about)
            else:
                threshold = best_label_threshold(self.held_out, answers)
        return evaluate_model(self.model, self.task, self.dev_split, self.compute, threshold=threshold)

    def _save(self, directory: Path) -> None:
        """Write the current model as a model directory."""
        with self._original_units():
            write_model(directory, self.model, self.started.tokenizer_directory, extra=self._config_keys())

    def _original_units(self) -> AbstractContextManager[None]:
        """While training, let the head give numbers in the unit of the data."""
        return nullcontext() if self.scale is None else self.scale.folded(self.model.classifier)

    def _config_keys(self) -> dict[str, Any]:
        """What `config.json` says of the head."""
        keys = head_description(self.task, self.plan.recipe, self.started.trained_positions)
        if len(self.depths) > 1:
            keys[EXITS_KEY] = list(self.depths)
        if self.scale is not None:
            keys[TARGET_SCALE_KEY] = vars(self.scale)
        if self.started.sentence_vectors is not None:
            keys[SENTENCE_KEY] = to_json(self.started.sentence_vectors)
        return keys

    def _notes(self, setup: TrainingSetup) -> tuple[str, ...]:
        notes = [*self.started.notes, *setup.notes, *setup.before_training]
        if len(self.depths) > 1:
            notes.append(f"the head was trained after layers {', '.join(map(str, self.depths))}")
        if self.scale is not None:
            notes.append(
                f"numbers were trained as standard scores: training mean {self.scale.mean:.4g}, "
                f"deviation {self.scale.deviation:.4g}, both in the saved head"
            )
        return tuple(notes)


FEW_ROWS = 30


def few_rows(number: int) -> list[str]:
    """A line on a development set that is too small for its scores to mean anything."""
    if number >= FEW_ROWS:
        return []
    rows = "row" if number == 1 else "rows"
    return [f"the development set has {number} {rows}: scores on it prove nothing; some hundred rows are needed"]


# --------------------------------------------------------------------------------------------------------------------
# Every run, including contrastive ones.


def complete_run(
    run: RunFolder,
    ranks: Ranks,
    started: StartedModel,
    plan: LearningPlan,
    settings: FinetuningSettings,
    compute: ComputeOptions,
    record: dict[str, Any],
    identity: dict[str, str],
    *,
    prepare: Callable[[], TrainingSetup],
    evaluate: Callable[[], dict[str, float]],
    is_enough: Callable[[], bool] | None = None,
    save_model: Callable[[Path], None],
    report: Callable[[TrainingSetup, TrainingResult], tuple[dict[str, Any], dict[str, Any]]],
    announce: Callable[[Mapping[str, Any]], None] | None,
    description: str,
    workers: int = 1,
) -> FinetuningResult:
    """Train with linear warmup and linear decay, and write everything; a finished run is returned as it is.

    Args:
        record: the content of `recipe.json`, also the first part of the results.
        prepare: called before training, unless the run is finished.
        report: called after training; returns the rest of the results, and the arguments of `save_model_directory`.
    """
    results = run.path / RESULTS_NAME
    already_complete = False
    conflict = None
    if results.is_file():
        recorded = read_json_object(results).get("identity")
        key = first_difference(recorded if isinstance(recorded, dict) else {}, identity)
        already_complete = key is None
        if key is not None:
            what = _differences(read_json_object(results), record) if key == "recipe" else ""
            conflict = f"holds a finished run with {_in_words(what or key)}"
    elif run.recipe_path.exists():
        earlier = read_json_object(run.recipe_path)
        key = _changed_part(earlier, record)
        if key is not None:
            conflict = f"holds another run, its recipe.json has {_in_words(_differences(earlier, record) or key)}"
    elif any(run.path.glob("seed-*/recipe.json")):
        conflict = "holds the runs of several seeds, not one"
    if conflict:
        raise CannotCreate(run.path, conflict, "choose another --output, or add --replace")
    if not already_complete:
        if ranks.is_first:
            save_json(run.recipe_path, record)
        setup = prepare()
        optimizer = optimizer_of(settings, plan.recipe)
        if announce is not None and ranks.is_first:
            figures = plan.figures(optimizer.learning_rate, compute.precision, compute.device.type, workers)
            announce(figures | {"before_training": setup.before_training})
        self_checks = []
        if compute.device.type == "cuda":
            batch = setup.source.micro_batches(0, ranks.rank, ranks.size)[0]
            self_checks = [
                check_attention_kernel(setup.module, setup.objective, batch, compute.precision, compute.device, ranks)
            ]
        training = Training(
            setup.module,
            build_optimizer(optimizer, setup.module),
            lambda step, _: warmup_then_linear(step, optimizer.learning_rate, plan.warmup_updates, plan.updates),
            setup.source,
            setup.objective,
            TrainingPlan(
                total_steps=plan.updates,
                seed=settings.seed,
                precision=compute.precision,
                evaluate_every=settings.evaluation_interval,
                checkpoint_every=settings.checkpoint_every,
                keep_checkpoints=1,
                workers=settings.workers,
            ),
            run,
            device=compute.device,
            evaluate=evaluate if settings.evaluation_interval else None,
            is_enough=is_enough,
            compute_workers=workers,
            identity=identity,
            save_model=save_model,
            description=description,
            self_checks=self_checks,
        ).complete()
        if ranks.is_first:
            values, saved = report(setup, training)
            values = {**record, **values, "seed": settings.seed, "computed_in": compute.precision}
            values |= {"machine": describe_machine(), "identity": identity}
            save_model_directory(run.model_path, tokenizer_directory=started.tokenizer_directory, replace=True, **saved)
            save_json(results, values)  # last: its presence says that the run is complete
    if ranks.is_first:  # also of a run that is complete: its process may have died before it removed them
        for directory in (run.checkpoints_path, run.path / "best"):
            if directory.is_dir():
                remove_directory(directory)
    wait_for_all(ranks)
    values = read_json_object(results)
    return FinetuningResult(values["scores"], values, run.model_path, already_complete)


def _changed_part(recorded: Mapping[str, Any], record: Mapping[str, Any]) -> str | None:
    """The first part of a run's record that a resumed run may not change and has changed."""
    for key in ("task", "inputs", "target", "changes", "teacher", "recipe", "settings"):
        before, now = (
            identity_settings(value, NOT_PART_OF_IDENTITY, {}) if isinstance(value, dict) else value
            for value in (recorded.get(key), record.get(key))
        )
        if before != now:
            return key
    return None


def _differences(recorded: Mapping[str, Any], record: Mapping[str, Any]) -> str:
    """The settings of the first part that differs, with both values: "learning_rate (0.0001, now 0.0002)"."""
    key = _changed_part(recorded, record)
    if key is None:
        return ""
    before = recorded.get(key)
    now = record.get(key)
    if not isinstance(before, dict) or not isinstance(now, dict):
        return key
    names = [
        name for name in {**before, **now} if name not in NOT_PART_OF_IDENTITY and before.get(name) != now.get(name)
    ]
    shown = [f"{name} ({_shown(before.get(name))}, now {_shown(now.get(name))})" for name in names[:3]]
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(shown) + more if shown else key


def _in_words(difference: str) -> str:
    return f"other settings: {difference}" if difference.endswith(")") else f"another {difference}"


def _shown(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 60 else f"{text[:59]}…"


# --------------------------------------------------------------------------------------------------------------------
# The training examples or windows, and their batches.


def task_batches(
    task: Task, split: PreparedSplit, recipe: TaskRecipe, settings: FinetuningSettings, workers: int = 1
) -> TaskBatches:
    """The batches of a run."""
    features = split.features
    sequences = features.sequences
    targets = features.targets
    if isinstance(task.target, Score):
        check_numbers(task.target, targets)
    if isinstance(features, SpanFeatures):
        windows = training_windows(task, split, features)
        sequences = sequences.select(windows)
        targets = np.maximum(targets[windows], 0)
    if isinstance(features, TagFeatures):
        if not len(features.learnable):
            raise InvalidConfiguration(task.title, "no sentence of the training set has a word")
        sequences = features.sequences.select(features.learnable)
        targets = targets[features.sequences.token_indices(features.learnable)]
    return TaskBatches(
        sequences,
        targets,
        term_of(task.target),
        recipe.batch_size,
        settings.seed,
        settings.micro_batch_tokens,
        features.n_options,
        isinstance(features, TagFeatures),
        workers,
        options=features.options,
    )


def training_windows(task: Task, split: PreparedSplit, features: SpanFeatures) -> np.ndarray:
    """Indices of the windows to train on.

    If every question has an answer: the windows that contain it. If answers may be absent: all windows, with [CLS] as
    the target of those without an answer, except windows of a question whose answer is in none of them.
    """
    has_answer = features.targets[:, 0] >= 0
    if not has_answer.any():
        raise InvalidConfiguration(task.title, "no window of the training set holds an answer")
    if not (isinstance(task.target, Span) and task.target.may_be_absent):
        return np.flatnonzero(has_answer)
    of_example = np.array([window.example for window in features.windows])
    usable = np.array([not example.answers for example in split.examples])
    usable[of_example[has_answer]] = True
    return np.flatnonzero(usable[of_example])


def finetune(
    task: Task,
    start: Start,
    data: Path,
    output: Path,
    recipe: RecipeLike = None,
    settings: FinetuningSettings | None = None,
    teacher_logits: TeacherLogits | None = None,
    announce: Callable[[Mapping[str, Any]], None] | None = None,
) -> FinetuningResult:
    """Fine-tune an encoder on a task and evaluate it on the development set.

    The same task, start and recipe give the same model and files as `albert finetune`.

    Args:
        output: the run directory. A stopped run is resumed by the same call; a finished run is returned as it is.
        recipe: a `TaskRecipe` is used unchanged; `RecipeChanges` replace some of the defaults; None uses the
            defaults, see `albert.finetuning.options`.
        teacher_logits: logits that earlier runs computed and that are not computed again; those of this run's teacher
            are added.
        announce: called before the first update with the learning rate, batch size, epochs, updates and length; see
            `LearningPlan.figures`.

    Raises:
        MissingInput, DamagedData: the model or the data cannot be read.
        InvalidConfiguration: a setting is invalid.
        CannotCreate: `output` holds another run.
        Diverged, Stopped: see `training.loop.Training`.
    """
    settings = settings or FinetuningSettings()
    run = RunFolder(output)
    record = read_run_record(run, task)
    requested = requested_recipe(task, recipe, record)
    if "train" not in task.source.splits:
        remedy = "albert evaluate scores a model of another task on it"
        raise InvalidConfiguration(task.title, "has no training set", remedy)
    device = pick_device(settings.device, world().local_rank)
    precision = settings.precision or finetuning_precision(device)
    compute = ComputeOptions(device, precision, settings.micro_batch_tokens)
    with process_group(device) as ranks:
        wanted = (settings.encode_pairs, settings.match_embedding)
        pairs, matching = choose_pairs(task, start, *wanted, record, settings.exits is not None)
        settings = replace(settings, encode_pairs=pairs, match_embedding=matching)
        started = start_model(start, task.target, requested.recipe, settings.seed, pairs, matching)
        notes = list(started.notes)
        positions = started.config.max_position_embeddings
        requested = replace(requested, recipe=fit_length(requested.recipe, positions))
        longest = requested_recipe(task, recipe).recipe.max_length  # the record of a resumed run has the fitted length
        if requested.recipe.max_length == positions < longest:
            remedy = "--max-position-embeddings makes more positions"
            notes.append(f"sequences of at most {positions} tokens, not {longest}: {remedy}")
        # Everything is read before anything is written: bad input leaves no directory behind.
        examples, counts = read_examples(task, data, "train", settings.max_train_examples, settings.seed)
        held_out = None
        if isinstance(task.target, Span) and task.target.may_be_absent and settings.null_threshold == "train":
            examples, held = hold_out(examples, settings.seed)
            counts["held_out"] = len(held)
            held_out = encode_split(task, "held-out questions", held, {}, started.tokenizer, requested.recipe)
        threshold = _threshold_of(task, settings, record)
        settings = replace(settings, threshold=threshold)
        if threshold == "train":
            examples, held = hold_out_labelled(examples, settings.seed)
            if held:
                counts["held_out"] = len(held)
                held_out = encode_split(task, "held-out rows", held, {}, started.tokenizer, requested.recipe)
        classes = n_outputs(task.target) or 0
        plan = plan_learning(requested, started.config.hidden_size, len(examples), classes)
        fitted = plan.recipe
        if fitted.batch_size < ranks.size:
            why = f"{fitted.batch_size} sequences are fewer than {ranks.size} processes"
            raise InvalidConfiguration("batch_size", why, "choose a larger batch")
        settings = _complete_settings(settings, fitted, record)
        settings = replace(settings, solve_head=_solves_head(task, start, settings, record))
        if settings.frozen:
            plan = replace(plan, updates=0, warmup_updates=0, epochs=0.0)
        depths = exit_depths(settings.exits, started.config)
        distillation = settings.distillation
        teacher = None if distillation is None else open_teacher(task, distillation, examples, teacher_logits)
        train_split = encode_split(task, "train", examples, counts, started.tokenizer, fitted)
        dev_split = prepare_split(task, data, "dev", started.tokenizer, fitted)
        settings = _with_selection(task, settings, plan, len(dev_split.examples), record)
        further = []
        for split in task.further_splits:
            try:
                further.append(prepare_split(task, data, split, started.tokenizer, fitted))
            except MissingInput as error:
                notes.append(f"{split} is not scored: {error}")
        batches = task_batches(task, train_split, fitted, settings, training_workers(device, ranks))
        if settings.class_weights is not None:
            if not isinstance(task.target, Choice | Labels | Tags):
                why = f"need classes, labels or tags, {task.title} has none"
                raise InvalidConfiguration("class_weights", why, "leave them out")
            batches = replace(batches, class_weights=balanced_weights(batches.targets, classes))
        scale = number_scale(task, batches, record)
        if scale is not None:
            batches = replace(batches, targets=scale.standardised(batches.targets))
            teacher = None if teacher is None else replace(teacher, scale=scale)
        task_run = TaskRun(
            task=task,
            started=replace(started, notes=tuple(notes)),
            run=run,
            plan=plan,
            settings=settings,
            compute=compute,
            ranks=ranks,
            train_split=train_split,
            dev_split=dev_split,
            batches=batches,
            held_out=held_out,
            further=tuple(further),
            depths=depths,
            teacher=teacher,
            scale=scale,
            announce=announce,
        )
        with run.locked() if ranks.is_first else nullcontext():
            result = task_run.complete()
            if ranks.is_first:
                is_missing = "per_class" in result.report and not (run.path / REPORT_NAME).exists()
                if not result.already_complete or is_missing:  # runs of earlier versions have no errors
                    write_report(run)
                save_custom_task(task, fitted, output)
            return result


def _with_selection(
    task: Task,
    settings: FinetuningSettings,
    plan: LearningPlan,
    dev_examples: int,
    record: Mapping[str, Any] | None,
) -> FinetuningSettings:
    """Which model is the result, when it is evaluated and when the run ends early: as requested, as recorded, or for a
    user's own table the best evaluation, unless the development set is too small."""
    if settings.frozen:
        return replace(settings, select="last", evaluate_every=None, patience=None)
    if settings.patience is not None and settings.select == "last":
        raise InvalidConfiguration("patience", "keeps the best evaluation, not the last", "leave --select last out")
    if settings.patience is not None or settings.select is not None:
        return replace(settings, select="best" if settings.patience is not None else settings.select)
    if record is not None:
        recorded = record.get("settings", {})
        every = settings.evaluate_every or recorded.get("evaluate_every")
        select = recorded.get("select", "last")
        return replace(settings, select=select, patience=recorded.get("patience"), evaluate_every=every)
    if not isinstance(task.source, TableSource) or dev_examples < MIN_SELECTING_ROWS:
        return replace(settings, select="last")
    every = settings.evaluate_every or evaluation_interval(plan, dev_examples)
    return replace(settings, select="best", patience=PATIENCE, evaluate_every=every)


def _threshold_of(
    task: Task, settings: FinetuningSettings, record: Mapping[str, Any] | None
) -> float | Literal["train"] | None:
    """The threshold of several labels: as requested, as recorded, or chosen on rows held out of training."""
    if not isinstance(task.target, Labels):
        if settings.threshold is not None:
            why = f"needs several labels per example, {task.title} has none"
            raise InvalidConfiguration("threshold", why, "leave it out")
        return None
    if settings.threshold is not None or record is None:
        return settings.threshold or "train"
    return record.get("settings", {}).get("threshold")


def _solves_head(task: Task, start: Start, settings: FinetuningSettings, record: Mapping[str, Any] | None) -> bool:
    """Whether the head is solved on frozen features first: as requested, as recorded, or for a user's own table."""
    keeps_head = isinstance(start, PretrainedEncoder) and start.keep_head
    reason = None
    if not can_be_solved(task.target):
        reason = f"{task.title} has spans as answers, whose head is not solved"
    elif keeps_head:
        reason = "the model's own head is kept"
    if reason is not None:
        for name in ("frozen", "solve_head"):
            if getattr(settings, name):
                raise InvalidConfiguration(name, reason, "leave it out")
        return False
    if settings.solve_head is not None or settings.frozen:
        return settings.solve_head is not False
    if record is not None:
        return bool(record.get("settings", {}).get("solve_head", False))
    return isinstance(task.source, TableSource)


def number_scale(task: Task, batches: TaskBatches, record: Mapping[str, Any] | None) -> NumberScale | None:
    """The scale of the numbers to predict; None for a resumed run of an earlier version, which has none."""
    if not isinstance(task.target, Score) or (record is not None and TARGET_SCALE_KEY not in record):
        return None
    return NumberScale.of(batches.targets)


def save_custom_task(task: Task, recipe: TaskRecipe, directory: Path) -> None:
    """Write the task of a user's own table beside the model, so that `albert evaluate` needs no columns."""
    if isinstance(task.source, TableSource):
        table = task.source.table_task
        files = {name: path.absolute() for name in ("train", "dev") if (path := getattr(table, name)) is not None}
        save_table_task(
            directory, replace(table, **files, recipe=RecipeChanges(**common_fields(RecipeChanges, recipe)))
        )


def _complete_settings(
    settings: FinetuningSettings, recipe: TaskRecipe, record: Mapping[str, Any] | None
) -> FinetuningSettings:
    """Fill in the optimizer, unless the run is resumed and was recorded without one."""
    recorded = record.get("settings") if record is not None else None
    if settings.optimizer in (None, "adamw") and isinstance(recorded, dict) and recorded.get("optimizer", "") is None:
        return replace(settings, optimizer=None)
    return replace(settings, optimizer=optimizer_of(settings, recipe))
