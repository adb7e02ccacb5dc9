"""What `albert.finetune`, `albert.evaluate` and the commands of the same names do."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from albert.api.checks import PRETRAINING
from albert.api.display import draw_curves
from albert.api.keywords import changed_flags, check_png, given_values
from albert.api.options import Evaluate, Finetune
from albert.api.results import DataReport, EvaluateResult, FinetuneResult, ScoredSplit
from albert.api.table_options import TableOptions
from albert.checkpoints.hub import find_model, model_name
from albert.checkpoints.huggingface import kind_of
from albert.checkpoints.model_directory import read_config, weights_fingerprint
from albert.checkpoints.sentence_transformers import open_dense
from albert.finetuning.comparisons import Comparison, compare_folds, compare_rates
from albert.finetuning.contrastive import TEMPERATURE, finetune_contrastive, hold_out_pairs, read_text_pairs
from albert.finetuning.evaluation import evaluate_models, write_predictions
from albert.finetuning.model import PretrainedEncoder, Start, random_encoder_like
from albert.finetuning.objective import Distillation
from albert.finetuning.options import requested_recipe
from albert.finetuning.report_page import evaluation_page
from albert.finetuning.run import finetune
from albert.finetuning.run_record import FinetuningResult, FinetuningSettings
from albert.finetuning.seeds import SeedsResult, finetune_benchmark, finetune_seeds
from albert.finetuning.vectors import VectorTeacher, finetune_vectors, hold_out_texts, read_texts, without_texts
from albert.inference.engine import InferencePrecision, choose_precision, use_fast_encoders
from albert.inference.predictor import Predictor
from albert.model.config import AlbertConfig
from albert.paper.layers import (
    CURVE_COLUMNS,
    PrecisionScore,
    depth_curve,
    precision_scores,
    write_curve,
)
from albert.pretraining.evaluation import evaluate_pretraining
from albert.pretraining.masking import MaskingRecipe
from albert.runtime.devices import finetuning_precision, pick_device
from albert.runtime.environment import Precision, world
from albert.runtime.errors import CannotCreate, CheckFailed, InvalidConfiguration, UsageError
from albert.runtime.files import write_text
from albert.runtime.json_files import common_fields, fingerprint_of, save_json, to_json
from albert.tasks.custom import ReadTask, TableSource, for_other_file, read_task
from albert.tasks.inputs import QuestionInContext
from albert.tasks.kinds.base import Target
from albert.tasks.kinds.span import Span
from albert.tasks.source import Rows
from albert.tasks.submission import BENCHMARKS, find_task, submission_files
from albert.tasks.table_task import TASK_FILE, HeldOut, TableTask, table_statistics, table_task_of
from albert.tasks.task import Task
from albert.text.tokenizer import Tokenizer
from albert.text.tokenizer_loading import load_tokenizer
from albert.text.unknown import MAX_TEXTS, unknown_warning
from albert.training.run_folder import RunFolder, remove_run


def run_finetune(
    options: Finetune,
    on_rows: Callable[[DataReport], None] | None = None,
    on_start: Callable[[Mapping[str, Any]], None] | None = None,
) -> FinetuneResult:
    """Run `albert.finetune` or `albert finetune`.

    Args:
        on_rows: called with a report on the rows before training.
        on_start: see `announce` of `albert.finetuning.run.finetune`.
    """
    if options.init == "random" and options.keep_head:
        raise UsageError("--keep-head", "and --init random contradict each other", "give one of them")
    if options.objective == "contrastive":
        return _finetune_contrastive(options, on_start)
    if options.objective == "vectors":
        return _finetune_vectors(options, on_start)
    if options.teacher_vectors is not None:
        raise UsageError("--teacher-vectors", "requires --objective vectors", "leave it out")
    if options.temperature is not None:
        raise UsageError("--temperature", "requires --objective contrastive", "leave it out")
    if options.negative is not None:
        raise UsageError("--negative", "requires --objective contrastive", "leave it out")
    if options.task is not None and options.task.lower() in BENCHMARKS:
        return _finetune_benchmark(options, options.task.lower())
    if options.intermediate is not None:
        raise UsageError("--intermediate", "requires a benchmark", "name the model with --model")
    read = _own_task(options) if options.task is None else None
    task = read.task if read is not None else _declared_task(options)
    recipe = options.recipe()
    basis = requested_recipe(task, recipe)
    report = None
    if options.statistics_only or (on_rows is not None and read is not None):
        report = _data_report(options, task, read, basis.recipe.max_length) if world().is_first else None
        if on_rows is not None and report is not None:
            on_rows(report)
    if read is not None:
        read.check()
    if options.output is None or options.statistics_only:
        return FinetuneResult(task=task, reading=report, report={"statistics": to_json(report and report.statistics)})
    arguments = (task, _start(options), options.data or Path(), options.output, recipe, _settings(options))
    _remove_earlier(options)
    if options.try_rates is not None:
        return _compared(options, compare_rates(*arguments, options.try_rates, on_start), task)
    if options.folds is not None:
        return _compared(options, compare_folds(*arguments, options.folds, on_start), task)
    if options.seeds is not None:
        return _result(options, finetune_seeds(*arguments, options.seeds, on_start), task)
    return _result(options, finetune(*arguments, announce=on_start), task)


def _remove_earlier(options: Finetune) -> None:
    """With `replace`, remove an earlier run in `output`."""
    if not options.replace or options.output is None or not world().is_first:
        return
    table = options.table.task(train=options.train, dev=options.dev)
    paths = (table.train, table.dev, options.test, options.data, options.table.task_file)
    models = (options.model, options.teacher, options.intermediate, options.teacher_vectors)
    inputs = [Path(each) for each in (*paths, *models) if each is not None and Path(each).exists()]
    remove_run(options.output, inputs)


def _compared(options: Finetune, found: Comparison, task: Task) -> FinetuneResult:
    model = RunFolder(found.best.directory).model_path if found.by == "rate" else None
    report = found.best.report
    baseline = report["baseline"]
    linear_baseline = report.get("linear_baseline")
    return FinetuneResult(
        task=task,
        output=options.output,
        model=model,
        scores=found.scores,
        report=found.to_json(),
        found=found,
        baseline=baseline if found.by == "rate" else None,
        linear_baseline=linear_baseline if found.by == "rate" else None,
    )


def _result(options: Finetune, found: FinetuningResult | SeedsResult, task: Task | None = None) -> FinetuneResult:
    if isinstance(found, FinetuningResult) and options.output is not None and world().is_first:
        draw_curves(options.output)
    if isinstance(found, SeedsResult):
        model = RunFolder(found.best.directory).model_path
        scores = found.medians
        report = found.to_json()
        baseline = found.baseline
        linear_baseline = found.linear_baseline
    else:
        model = found.model_directory
        scores = found.scores
        report = found.report
        baseline = report["baseline"]
        linear_baseline = report.get("linear_baseline")
    return FinetuneResult(
        task=task,
        output=options.output,
        model=model,
        scores=scores,
        report=report,
        found=found,
        baseline=baseline,
        linear_baseline=linear_baseline,
    )


def _finetune_contrastive(options: Finetune, on_start: Callable[[Mapping[str, Any]], None] | None) -> FinetuneResult:
    if options.task is not None:
        why = f"contrastive learns from your own table, not from {options.task}"
        raise UsageError("--objective", why, "use --train")
    flags = [flag for flag in changed_flags(options.table) if flag not in ("--text", "--pair")]
    if flags := flags + changed_flags(options, *_NOT_CONTRASTIVE):
        raise UsageError(flags[0], "cannot be used with --objective contrastive", "leave it out")
    if options.train is None or options.output is None:
        option = "--train" if options.train is None else "--output"
        raise UsageError(option, "is missing", "see albert finetune --help")
    columns = (options.table.text, options.table.pair)
    pairs = read_text_pairs(options.train, *columns, options.negative)
    if options.dev is None:
        share = (HeldOut() if options.held_out is None else HeldOut(share=options.held_out)).share
        pairs, dev_pairs = hold_out_pairs(pairs, share, options.seed)
    elif options.held_out is None:
        dev_pairs = read_text_pairs(options.dev, *columns, options.negative)
    else:
        raise UsageError("--held-out", "cannot be combined with --dev", "give one of them")
    temperature = TEMPERATURE if options.temperature is None else options.temperature
    arguments = (_start(options), options.output, options.recipe(), _settings(options), temperature)
    _remove_earlier(options)
    return _result(options, finetune_contrastive(pairs, dev_pairs, *arguments, on_start))


_OF_OWN_TABLES = ("test", "folds", "try_rates")
_NOT_CONTRASTIVE = (
    *("keep_head", "statistics_only", "exits", "freeze_encoder", "encode_pairs", "teacher", "seeds", "intermediate"),
    *("question_length", "stride", "span_head", "v2_recipe", "select", "data", "head_dropout", "max_train_examples"),
    *("match_embedding", "null_threshold", "page_examples", "teacher_vectors", "solve_head", "frozen", "threshold"),
    *("patience", "class_weights", *_OF_OWN_TABLES),
)


def _finetune_vectors(options: Finetune, on_start: Callable[[Mapping[str, Any]], None] | None) -> FinetuneResult:
    if options.task is not None:
        raise UsageError("--objective", f"vectors learns from your own texts, not from {options.task}", "use --train")
    flags = [flag for flag in changed_flags(options.table) if flag != "--text"]
    if flags := flags + changed_flags(options, *_NOT_VECTORS):
        raise UsageError(flags[0], "cannot be used with --objective vectors", "leave it out")
    if options.teacher is None:
        raise UsageError("--teacher", "is missing", "name the model whose vectors are learned")
    if options.train is None or options.output is None:
        option = "--train" if options.train is None else "--output"
        raise UsageError(option, "is missing", "see albert finetune --help")
    texts = read_texts(options.train, options.table.text)
    if options.dev is None:
        share = (HeldOut() if options.held_out is None else HeldOut(share=options.held_out)).share
        texts, dev_texts = hold_out_texts(texts, share, options.seed)
    elif options.held_out is None:
        dev_texts = read_texts(options.dev, options.table.text)
        texts = without_texts(texts, dev_texts)
    else:
        raise UsageError("--held-out", "cannot be combined with --dev", "give one of them")
    settings = FinetuningSettings(**common_fields(FinetuningSettings, options))
    device = pick_device(settings.device, world().local_rank)
    precision = settings.precision or finetuning_precision(device)
    predictor = Predictor.open(options.teacher, device, revision=options.teacher_revision, precision=precision)
    default = to_json(AlbertConfig())
    about = {
        "weights": weights_fingerprint(predictor.network.state_dict()),
        "config": {name: value for name, value in to_json(predictor.config).items() if value != default[name]},
        "tokenizer": predictor.tokenizer.fingerprint,
        "max_length": predictor.embedding_length,
        "vectors": {name: value for name, value in to_json(predictor.sentence_vectors).items() if name != "dense"},
        "precision": predictor.precision,
    }
    dense = open_dense(predictor.sentence_vectors)
    if dense is not None:
        about["dense"] = weights_fingerprint(dense.state_dict())
    teacher = VectorTeacher(
        name=model_name(options.teacher, options.teacher_revision),
        fingerprint=fingerprint_of(about),
        embed=partial(predictor.embed_counted, normalize=True),
    )
    _remove_earlier(options)
    found = finetune_vectors(
        texts,
        dev_texts,
        _start(options),
        teacher,
        options.output,
        options.recipe(),
        settings,
        options.teacher_vectors,
        on_start,
    )
    return _result(options, found)


_NOT_VECTORS = (
    *("keep_head", "statistics_only", "exits", "freeze_encoder", "encode_pairs", "seeds", "intermediate"),
    *("question_length", "stride", "span_head", "v2_recipe", "select", "data", "head_dropout", "max_train_examples"),
    *("match_embedding", "null_threshold", "page_examples", "temperature", "negative", "solve_head", "frozen"),
    *("distillation_temperature", "distillation_weight", "threshold", "patience", "class_weights", *_OF_OWN_TABLES),
)


def _finetune_benchmark(options: Finetune, name: str) -> FinetuneResult:
    flags = changed_flags(
        options, *_OF_OWN_TABLES, "train", "dev", "held_out", "span_head", "keep_head", "v2_recipe", "statistics_only"
    )
    if flags := changed_flags(options.table) + flags:
        raise UsageError(flags[0], f"requires a single task, {name} has many")
    if options.data is None:
        raise UsageError("--data", "is missing; the tasks' files are looked for there", "see albert finetune --help")
    assert options.output is not None
    _remove_earlier(options)
    found = finetune_benchmark(
        name,
        BENCHMARKS[name],
        _start(options),
        options.data,
        options.output,
        options.recipe(),
        _settings(options),
        1 if options.seeds is None else options.seeds,
        options.intermediate,
    )
    baselines = {each.task.name: each.result.baseline or {} for each in found.outcomes if each.result is not None}
    return FinetuneResult(
        output=options.output,
        scores={f"{task}/{score}": value for task, each in found.scores.items() for score, value in each.items()},
        baseline={f"{task}/{score}": value for task, each in baselines.items() for score, value in each.items()},
        report=found.to_json(),
        found=found,
    )


def _declared_task(options: Finetune) -> Task:
    assert options.task is not None
    files = given_values(options, "train", "dev")
    if flags := changed_flags(options.table) + changed_flags(options, "held_out", *_OF_OWN_TABLES):
        raise UsageError(flags[0], f"requires your own tables, the task {options.task} has its own columns")
    if options.data is None and len(files) < 2:
        raise UsageError("--data", "is missing; the task's files are looked for there", "see albert finetune --help")
    task = find_task(options.task)
    recipe = task.second_recipe if options.v2_recipe else task.recipe
    if recipe is None:
        raise UsageError("--v2-recipe", f"{task.name} has one recipe for both releases", "leave it out")
    return replace(task, source=task.source.with_files(files), target=_target(task, options), recipe=recipe)


def _own_task(options: Finetune) -> ReadTask:
    """The user's own task, from flags, a task file and the rows."""
    table = options.table.task(train=options.train, dev=options.dev)
    if table.train is None:
        remedy = "name a declared task, or your own file with --train"
        raise UsageError("albert finetune", "no training file" if changed_flags(options.table) else "no task", remedy)
    if table.dev is not None and options.held_out is not None:
        raise UsageError("--held-out", "cannot be combined with --dev", "give one of them")
    if flags := changed_flags(options, "data", "v2_recipe"):
        raise UsageError(flags[0], "requires a declared task, this is your own table", "leave it out")
    alone = changed_flags(options, "folds", "try_rates", "seeds")
    if len(alone) > 1:
        raise UsageError(alone[1], f"cannot be combined with {alone[0]}", "give one of them")
    if options.folds is not None and (
        flags := changed_flags(options, "held_out") + ["--dev"] * (table.dev is not None)
    ):
        raise UsageError(flags[0], "cannot be combined with --folds, each fold is a development set", "leave it out")
    share = table.held_out.share if options.held_out is None else options.held_out
    held_out = HeldOut(share=share, seed=options.seed)
    read = read_task(replace(table, held_out=held_out), hold_out=options.folds is None)
    if options.test is not None:
        source = TableSource(for_other_file(read.table_task, options.test), read.tables)
        source = TableSource(read.table_task, source.with_files({"test": options.test}).tables)
        read = replace(read, task=replace(read.task, source=source, further_splits=("test",)))
    return replace(read, task=replace(read.task, target=_target(read.task, options)))


def _data_report(options: Finetune, task: Task, read: ReadTask | None, max_length: int) -> DataReport:
    """How the rows were read, and their statistics in tokens of the model."""
    tokenizer = load_tokenizer(find_model(options.model, options.revision))
    if read is not None:
        tables = read.tables
    else:
        tables = {split: task.source.read(options.data or Path(), split) for split in ("train", "dev")}
    statistics = table_statistics(task, tables, tokenizer, max_length)
    return DataReport(read, statistics, max_length, unknown_texts(task, tables, tokenizer, options.model))


def unknown_texts(task: Task, tables: Mapping[str, Rows], tokenizer: Tokenizer, model: str) -> tuple[str, ...]:
    """A line for each split of which the model's vocabulary does not know the text."""
    columns = (*task.inputs.columns, *task.target.option_columns)
    lines = []
    for split, rows in tables.items():
        values = (row.fields.get(column, "") for row in rows.rows[:MAX_TEXTS] for column in columns)
        texts = (value if isinstance(value, str) else " ".join(value) for value in values)
        warning = unknown_warning(tokenizer, texts, model)
        if warning is not None:
            lines.append(f"{split}: {warning}")
    return tuple(lines)


def _target(task: Task, options: Finetune) -> Target:
    if options.question_length is not None and not isinstance(task.inputs, QuestionInContext):
        raise UsageError("--question-length", f"requires a task with questions, {task.title} has none")
    if isinstance(task.target, Span):
        return replace(task.target, head=options.span_head or task.target.head)
    if flags := changed_flags(options, "span_head", "stride", "null_threshold"):
        raise UsageError(flags[0], f"requires a task whose answers are spans, {task.title} has none")
    return task.target


def _start(options: Finetune) -> Start:
    """The source of the initial weights."""
    architecture = options.architecture
    if options.depth is not None:
        if architecture.num_hidden_layers not in (None, options.depth):
            raise UsageError("--depth", "and --num-hidden-layers are the same thing", "give one of them")
        architecture = replace(architecture, num_hidden_layers=options.depth)
    start = PretrainedEncoder(options.model, options.revision, architecture, options.keep_head)
    return random_encoder_like(start) if options.init == "random" else start


def _settings(options: Finetune) -> FinetuningSettings:
    if options.freeze_encoder and options.encoder_dropout:
        raise UsageError("--encoder-dropout", "has no effect with --freeze-encoder", "leave it or --freeze-encoder out")
    names = ("distillation_temperature", "distillation_weight", "teacher_revision")
    values = {name.rpartition("_")[2]: value for name, value in given_values(options, *names).items()}
    if values and options.teacher is None:
        raise UsageError(changed_flags(options, *names)[0], "requires --teacher", "name a fine-tuned model with it")
    distillation = None if options.teacher is None else Distillation(teacher=options.teacher, **values)
    return FinetuningSettings(**common_fields(FinetuningSettings, options), distillation=distillation)


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
