"""What `albert.finetune`, `albert.evaluate` and the commands of the same names do."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from albert.api.checks import PRETRAINING
from albert.api.keywords import changed_flags, check_png, given_values
from albert.api.options import Evaluate
from albert.api.results import EvaluateResult, ScoredSplit
from albert.api.table_options import TableOptions
from albert.checkpoints.hub import find_model
from albert.checkpoints.huggingface import kind_of
from albert.checkpoints.model_directory import read_config
from albert.finetuning.evaluation import evaluate_models, write_predictions
from albert.finetuning.report_page import evaluation_page
from albert.inference.engine import InferencePrecision, choose_precision, use_fast_encoders
from albert.paper.layers import (
    CURVE_COLUMNS,
    PrecisionScore,
    depth_curve,
    precision_scores,
    write_curve,
)
from albert.pretraining.evaluation import evaluate_pretraining
from albert.pretraining.masking import MaskingRecipe
from albert.runtime.devices import pick_device
from albert.runtime.environment import Precision
from albert.runtime.errors import CannotCreate, CheckFailed, InvalidConfiguration, UsageError
from albert.runtime.files import write_text
from albert.runtime.json_files import save_json
from albert.tasks.custom import for_other_file, read_task
from albert.tasks.submission import find_task, submission_files
from albert.tasks.table_task import TASK_FILE, TableTask, table_task_of, unknown_texts
from albert.tasks.task import Task
from albert.text.tokenizer_loading import load_tokenizer

# --------------------------------------------------------------------------------------------------------------------
# Evaluation.


def evaluations(options: Evaluate) -> Iterator[EvaluateResult]:
    """Run `albert.evaluate` or `albert evaluate`: one result, or with `submission` one for each split.

    A result is yielded after its files are written.
    """
    for name in ("model", "precision"):
        if not getattr(options, name):
            raise UsageError(f"--{name}", "is empty", "see albert evaluate --help")
    if options.task == PRETRAINING:
        results = iter([_evaluate_pretraining(options)])
    elif flags := changed_flags(options, "json", "objective", "sequences", "max_ngram"):
        raise UsageError(flags[0], f"requires the task {PRETRAINING}", "leave it out; --results writes scores as JSON")
    elif not options.depths.makes_table and len(options.precision) == 1 and options.precision != ("int8",):
        results = _evaluate_splits(options)
    else:
        what = "--depth" if options.depths.makes_table else "--precision"
        if flags := changed_flags(options, "predictions", "submission", "threshold", "report"):
            raise UsageError(flags[0], f"requires a single {what}", "compare several without it")
        if len(options.model) > 1:
            raise UsageError("--model", f"several of {what} require one model", "name one")
        results = _compare_depths(options) if options.depths.makes_table else _compare_precisions(options)
    for result in results:
        if options.results is not None:
            save_json(options.results, result.report)
        yield result


def _evaluate_pretraining(options: Evaluate) -> EvaluateResult:
    if options.data is None:
        raise UsageError("--data", "is missing", "give a corpus from `albert prepare`")
    if flags := changed_flags(options.table) + changed_flags(
        options, "split", "dev", "predictions", "submission", "report"
    ):
        raise UsageError(flags[0], "requires another task", f"leave it or {PRETRAINING} out")
    if options.depths.depth or options.depths.makes_table:
        raise UsageError("--depth, --patience and --curve", "require another task", f"leave {PRETRAINING} out")
    precision = _single_precision(options)
    found = evaluate_pretraining(
        options.model,
        options.data,
        objectives=options.objective,
        masking=MaskingRecipe(max_ngram=options.max_ngram),
        limit=options.sequences,
        prepare=partial(use_fast_encoders, precision=precision),
        **_model_options(options),
    )
    report = {"task": PRETRAINING, "precision": precision, **found.to_json()}
    first = found.models[0].scores
    scores = {test: 100 * score.accuracy for test, score in first.items()}
    baseline = {test: 100 * score.baseline for test, score in first.items()}
    return EvaluateResult(scores=scores, baseline=baseline, report=report, found=found)


def _evaluate_splits(options: Evaluate) -> Iterator[EvaluateResult]:
    task = _task(options)
    precision = _single_precision(options)
    yield from (_evaluate_split(options, task, split, precision) for split in _splits(options, task))


def _splits(options: Evaluate, task: Task) -> tuple[str, ...]:
    splits = (options.split,) if options.split is not None else ("dev",)
    if options.submission is not None and options.split is None and options.dev is None:
        splits = tuple(task.submission) or splits
    files = {"--predictions": options.predictions, "--results": options.results, "--report": options.report}
    for name, path in files.items():
        if path is not None and len(splits) > 1:
            raise UsageError(name, f"is one file, there are the splits {', '.join(splits)}", "name one with --split")
    if options.submission is not None and options.submission.exists() and not options.submission.is_dir():
        raise CannotCreate(options.submission, "is not a directory", "name a directory for the files to hand in")
    return splits


def _evaluate_split(options: Evaluate, task: Task, split: str, precision: Precision) -> EvaluateResult:
    found = evaluate_models(
        task,
        options.model,
        options.data or Path(),
        split,
        prepare=partial(use_fast_encoders, precision=precision),
        needs_labels=options.submission is None and options.predictions is None,
        depth=next(iter(options.depths.depth), None),
        threshold=options.threshold,
        micro_batch_tokens=options.micro_batch_tokens,
        **_model_options(options),
    )
    together = found.together
    submission = {}
    if options.predictions is not None:
        write_predictions(options.predictions, together)
    if options.submission is not None:
        for name, content in submission_files(task, split, together.predictions).items():
            write_text(options.submission / name, content)
            submission[options.submission / name] = len(together.predictions)
    model = options.model[0] if len(options.model) == 1 else list(options.model)
    report = {"task": task.name, "model": model, "split": split, "precision": precision}
    directory = find_model(options.model[0], options.revision)
    rows = task.source.read(options.data or Path(), split)
    warnings = unknown_texts(task, {split: rows}, load_tokenizer(directory), options.model[0])
    report |= {"warnings": list(warnings)} if warnings else {}
    report |= {"scores": dict(together.scores), "baseline": together.baseline}
    if len(options.model) > 1:
        members = zip(options.model, found.members, strict=True)
        report["of_each"] = {name: dict(member.scores) for name, member in members}
    report["counts"] = dict(together.counts)
    report |= found.analysis
    if options.report is not None:
        if not together.scores:
            raise UsageError("--report", "needs rows with labels", "leave it out, --predictions writes the answers")
        write_text(options.report, evaluation_page(report, len(together.predictions)))
    scored = ScoredSplit(
        task=task, models=options.model, split=split, found=found, precision=precision, submission=submission
    )
    return EvaluateResult(scores=together.scores, baseline=together.baseline, report=report, found=scored)


def _compare_precisions(options: Evaluate) -> Iterator[EvaluateResult]:
    if options.depths.depth:
        raise UsageError("--depth", "requires a single precision", "name fp32 or bf16")
    task = _task(options)
    model = options.model[0]
    split = _splits(options, task)[0]
    found = precision_scores(
        task,
        model,
        options.data or Path(),
        split,
        _precisions(options),
        options.tolerance,
        micro_batch_tokens=options.micro_batch_tokens,
        **_model_options(options),
    )
    rows = {
        row.precision: {
            "scores": dict(row.evaluation.scores),
            "difference": row.difference,
            "answers_changed": row.changed,
            "seconds": row.evaluation.seconds,
            "holds": row.holds,
        }
        for row in found
    }
    report = {"task": task.name, "model": model, "split": split}
    report |= {"score": found[0].name, "tolerance": options.tolerance, "precisions": rows}
    first = found[0].evaluation
    yield EvaluateResult(scores=first.scores, baseline=first.baseline, report=report, found=found)
    check_precisions(found, options.tolerance)


def check_precisions(results: Sequence[PrecisionScore], tolerance: float) -> None:
    """Raises CheckFailed, naming the precisions that move the score by more than the tolerance."""
    moved = [f"{row.precision} by {row.difference:+.2f}" for row in results if not row.holds]
    if moved:
        why = f"moves with {' and '.join(moved)}, more than {tolerance:.2f}"
        raise CheckFailed(results[0].name, why, f"use {' or '.join(row.precision for row in results if row.holds)}")


def _precisions(options: Evaluate) -> list[InferencePrecision]:
    """The named precisions; auto is resolved for the device."""
    device = pick_device(options.device)
    return [choose_precision(name, device) for name in options.precision]


def _single_precision(options: Evaluate) -> Precision:
    if options.precision != ("int8",):
        match _precisions(options):
            case ["fp32" | "bf16" as precision]:
                return precision
    raise UsageError("--precision", "must be fp32 or bf16 here", "several are compared on a task, for one model")


def _model_options(options: Evaluate) -> dict[str, Any]:
    """Keyword arguments for opening models."""
    overrides = given_values(options, "hidden_act", "num_attention_heads")
    return {name: getattr(options, name) for name in ("device", "max_length", "revision")} | {"overrides": overrides}


def _compare_depths(options: Evaluate) -> Iterator[EvaluateResult]:
    if options.depths.rounds < 1:
        raise UsageError("--rounds", f"is {options.depths.rounds}, at least 1 is needed")
    if len(options.precision) != 1:
        raise UsageError("--precision", "must be a single one here", "compare precisions at one --depth")
    task = _task(options)
    curve = options.depths.curve
    draw = None
    if curve is not None:
        from albert.paper.layer_pictures import draw_curve as draw

        check_png("--curve", curve)
        figures = curve.with_suffix(".csv")
        if figures.exists() and not figures.read_bytes().startswith(",".join(CURVE_COLUMNS).encode()):
            raise CannotCreate(figures, "is another table, the curve's figures would replace it", "choose another name")
    found = depth_curve(
        task,
        options.model[0],
        options.data or Path(),
        options.split or "dev",
        depths=options.depths.depth,
        patiences=options.depths.patience,
        rounds=options.depths.rounds,
        precision=_precisions(options)[0],
        **_model_options(options),
    )
    if curve is not None and draw is not None:
        draw(found, curve)
        write_curve(found, curve.with_suffix(".csv"))
    scores = found.points[0].scores
    yield EvaluateResult(scores=scores, baseline=found.baseline, report=found.to_json(), found=found)


def _task(options: Evaluate) -> Task:
    if options.task is None:
        return _task_of_model(options)
    _check_outputs(options, options.dev)
    if flags := changed_flags(options.table):
        raise UsageError(flags[0], f"requires your own file, the task {options.task} has its own columns")
    if options.data is None and options.dev is None:
        raise UsageError("--data", "is missing; the task's files are looked for there", "see albert evaluate --help")
    task = find_task(options.task)
    files = {} if options.dev is None else {options.split or "dev": options.dev}
    return replace(task, source=task.source.with_files(files)) if files else task


def _check_outputs(options: Evaluate, *inputs: Path | None) -> None:
    """Raise CannotCreate for a file to write that is an input."""
    curve = options.depths.curve
    for output in (options.predictions, options.results, options.report, curve, curve and curve.with_suffix(".csv")):
        if output is not None and output.resolve() in [path.resolve() for path in inputs if path is not None]:
            raise CannotCreate(output, "is an input, which would be replaced", "choose another name")


def _task_of_model(options: Evaluate) -> Task:
    """The task of a model that was trained on a table, on the file `--dev` or on the one it was scored on."""
    directory = find_model(options.model[0], options.revision)
    saved = table_task_of(directory)
    if saved is None and options.table.task_file is None:
        saved = _task_from_config(directory, options.table, options.dev)
    table = options.table.task(saved)
    if saved is not None and options.dev is not None:
        saved = for_other_file(saved, options.dev)
    _check_outputs(options, options.dev, table.train, table.dev, options.table.task_file)
    table = options.table.task(saved, dev=options.dev)
    if table.dev is not None:
        table = replace(table, train=None)
    return read_task(table).check("dev").task


def _task_from_config(directory: Path, options: TableOptions, dev: Path | None) -> TableTask:
    """Kind and labels from a model's configuration; the options must name the columns."""
    needed = {"--dev": dev, "--text": options.text, "--label": options.label}
    missing = [name for name, value in needed.items() if value is None]
    if missing:
        why = f"there is no {TASK_FILE} beside it, and your own file needs {', '.join(missing)}"
        raise UsageError(directory, why, "or name a TASK")
    _, extra = read_config(directory)
    names = extra.get("id2label")
    if kind_of(extra) not in ("classification", "pair_classification"):
        raise InvalidConfiguration(directory, "has no head for this task", "give a model that was fine-tuned on it")
    if not names:
        raise InvalidConfiguration(directory, "its config.json names no labels", "give a fine-tuned model")
    if extra.get("problem_type") == "regression":
        return TableTask(kind="regression")
    several = extra.get("problem_type") == "multi_label_classification"
    labels = tuple(names[index] for index in sorted(names))
    return TableTask(kind="multi-label" if several else "classification", labels=labels)
