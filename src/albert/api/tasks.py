"""`albert.finetune` and `albert.evaluate`, and the commands of the same names: what is asked, done, and given back."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from albert.api.keywords import flags_of, values_set
from albert.api.options import PRETRAINING, Evaluate, Finetune, TableOptions
from albert.api.results import EvaluateResult, FinetuneResult, Reading, ScoredSplit
from albert.checkpoints.hub import find_model
from albert.checkpoints.huggingface import kind_of
from albert.checkpoints.model_directory import read_config
from albert.experiments.layers import PrecisionScore, depth_curve, draw_curve, precision_scores, write_curve
from albert.finetuning.contrastive import TEMPERATURE, finetune_contrastive, hold_out_pairs, read_text_pairs
from albert.finetuning.evaluation import evaluate_models, write_predictions
from albert.finetuning.model import PretrainedEncoder, Start, random_encoder_like
from albert.finetuning.objective import Distillation
from albert.finetuning.options import requested_recipe
from albert.finetuning.run import finetune
from albert.finetuning.run_record import FinetuningResult, FinetuningSettings
from albert.finetuning.seeds import SeedsResult, finetune_benchmark, finetune_seeds
from albert.inference.engine import InferencePrecision, choose_precision, use_fast_encoders
from albert.pretraining.evaluation import evaluate_pretraining
from albert.pretraining.masking import MaskingRecipe
from albert.runtime.devices import pick_device
from albert.runtime.environment import Precision, world
from albert.runtime.errors import CannotCreate, CheckFailed, InvalidConfiguration, UsageError
from albert.runtime.files import write_text
from albert.runtime.json_files import common_fields, save_json, to_json
from albert.tasks.custom import ReadTask, read_task
from albert.tasks.submission import BENCHMARKS, find_task, submission_files
from albert.tasks.table_task import TASK_FILE, HeldOut, TableTask, table_statistics, table_task_of
from albert.tasks.task import Span, Target, Task
from albert.text.tokenizer_loading import load_tokenizer
from albert.training.run_folder import RunFolder


def run_finetune(
    args: Finetune,
    on_rows: Callable[[Reading], None] | None = None,
    on_start: Callable[[Mapping[str, Any]], None] | None = None,
) -> FinetuneResult:
    """What `albert.finetune` and `albert finetune` do.

    Args:
        on_rows: told how the rows are read, before anything is learnt.
        on_start: see `announce` of `albert.finetuning.run.finetune`.

    Raises:
        UsageError: it contradicts itself; for others see `albert.finetuning.run.finetune`.
    """
    if args.init == "random" and args.keep_head:
        raise UsageError("--keep-head", "and --init random contradict each other", "give one of them")
    if args.objective == "contrastive":
        return _finetune_contrastive(args, on_start)
    if args.temperature is not None:
        raise UsageError("--temperature", "goes with --objective contrastive", "leave it out")
    if args.output is None and not args.statistics_only:
        raise UsageError("--output", "is needed: the run's directory", "or --statistics-only, to see the rows first")
    if args.task is not None and args.task.lower() in BENCHMARKS:
        return _finetune_benchmark(args, args.task.lower())
    if args.intermediate is not None:
        raise UsageError("--intermediate", "goes with a benchmark", "name the model with --model")
    read = _own_task(args) if args.task is None else None
    task = read.task if read is not None else _declared_task(args)
    recipe = args.recipe()
    basis = requested_recipe(task, recipe)
    reading = None
    if args.statistics_only or (on_rows is not None and read is not None):
        reading = _reading(args, task, read, basis.recipe.max_length) if world().is_first else None
        if on_rows is not None and reading is not None:
            on_rows(reading)
    if args.output is None or args.statistics_only:
        return FinetuneResult(
            task=task, reading=reading, report={"statistics": to_json(reading and reading.statistics)}
        )
    if read is not None:
        read.check()
    run = (task, _start(args), args.data or Path(), args.output)
    settings = _settings(args)
    if args.seeds is not None:
        return _result(args, finetune_seeds(*run, recipe, settings, args.seeds, on_start), task)
    return _result(args, finetune(*run, recipe, settings, announce=on_start), task)


def _result(args: Finetune, found: FinetuningResult | SeedsResult, task: Task | None = None) -> FinetuneResult:
    if isinstance(found, SeedsResult):
        model, scores, report = RunFolder(found.best.directory).model_path, found.medians, found.to_json()
        baselines = {"baseline": found.baseline, "linear_baseline": found.linear_baseline}
    else:
        model, scores, report = found.model_directory, found.scores, found.report
        baselines = {"baseline": report["baseline"], "linear_baseline": report.get("linear_baseline")}
    return FinetuneResult(
        task=task, output=args.output, model=model, scores=scores, report=report, found=found, **baselines
    )


def _finetune_contrastive(args: Finetune, on_start: Callable[[Mapping[str, Any]], None] | None) -> FinetuneResult:
    if args.task is not None:
        raise UsageError("--objective", f"contrastive learns from your own table, not from {args.task}", "use --train")
    given = [flag for flag in args.table.given() if flag not in ("--text", "--pair")]
    if given := given + flags_of(args, *_NOT_CONTRASTIVE):
        raise UsageError(given[0], "has no meaning with --objective contrastive", "leave it out")
    if args.train is None or args.output is None:
        raise UsageError("--train" if args.train is None else "--output", "is missing", "see albert finetune --help")
    columns = (args.table.text, args.table.pair)
    pairs = read_text_pairs(args.train, *columns)
    if args.dev is None:
        share = HeldOut().share if args.held_out is None else args.held_out
        pairs, scored = hold_out_pairs(pairs, share, args.seed)
    elif args.held_out is None:
        scored = read_text_pairs(args.dev, *columns)
    else:
        raise UsageError("--held-out", "goes without --dev", "give one of them")
    temperature = TEMPERATURE if args.temperature is None else args.temperature
    run = (_start(args), args.output, args.recipe(), _settings(args), temperature)
    return _result(args, finetune_contrastive(pairs, scored, *run, on_start))


_NOT_CONTRASTIVE = (
    *("keep_head", "statistics_only", "exits", "freeze_encoder", "encode_pairs", "teacher", "seeds", "intermediate"),
    *("question_length", "stride", "span_head", "v2_recipe", "select", "data", "head_dropout", "max_train_examples"),
)


def _finetune_benchmark(args: Finetune, name: str) -> FinetuneResult:
    given = flags_of(args, "train", "dev", "span_head", "keep_head", "v2_recipe", "statistics_only")
    if given := args.table.given() + given:
        raise UsageError(given[0], f"goes with one task, {name} has many")
    if args.data is None:
        raise UsageError("--data", "is missing; the tasks' files are looked for there", "see albert finetune --help")
    assert args.output is not None
    found = finetune_benchmark(
        name,
        BENCHMARKS[name],
        _start(args),
        args.data,
        args.output,
        args.recipe(),
        _settings(args),
        1 if args.seeds is None else args.seeds,
        args.intermediate,
    )
    baselines = {each.task.name: each.result.baseline or {} for each in found.outcomes if each.result is not None}
    return FinetuneResult(
        output=args.output,
        scores={f"{task}/{score}": value for task, each in found.scores.items() for score, value in each.items()},
        baseline={f"{task}/{score}": value for task, each in baselines.items() for score, value in each.items()},
        report=found.to_json(),
        found=found,
    )


def _declared_task(args: Finetune) -> Task:
    assert args.task is not None
    files = values_set(args, "train", "dev")
    if given := args.table.given() + flags_of(args, "held_out"):
        raise UsageError(given[0], f"goes with your own tables, the task {args.task} has its own columns")
    if args.data is None and len(files) < 2:
        raise UsageError("--data", "is missing; the task's files are looked for there", "see albert finetune --help")
    task = find_task(args.task)
    recipe = task.second_recipe if args.v2_recipe else task.recipe
    if recipe is None:
        raise UsageError("--v2-recipe", f"{task.name} has one recipe for both releases", "leave it out")
    return replace(task, source=task.source.with_files(files), target=_target(task, args), recipe=recipe)


def _own_task(args: Finetune) -> ReadTask:
    """The user's own task, from flags and a task file, with what its rows tell."""
    table = args.table.task(train=args.train, dev=args.dev)
    if table.train is None:
        remedy = "name a declared task, or your own file with --train"
        raise UsageError("albert finetune", "no training file" if args.table.given() else "no task", remedy)
    if table.dev is not None and args.held_out is not None:
        raise UsageError("--held-out", "goes without --dev", "give one of them")
    share = table.held_out.share if args.held_out is None else args.held_out
    read = read_task(replace(table, held_out=HeldOut(share=share, seed=args.seed)))
    return replace(read, task=replace(read.task, target=_target(read.task, args)))


def _reading(args: Finetune, task: Task, read: ReadTask | None, max_length: int) -> Reading:
    """How the rows are read, and what they are like, in the tokens of the model."""
    tokenizer = load_tokenizer(find_model(args.model, args.revision))
    if read is not None:
        tables = read.tables
    else:
        tables = {split: task.source.read(args.data or Path(), split) for split in ("train", "dev")}
    return Reading(read, table_statistics(task, tables, tokenizer, max_length), max_length)


def _target(task: Task, args: Finetune) -> Target:
    if args.span_head is None:
        return task.target
    if not isinstance(task.target, Span):
        raise UsageError("--span-head", f"goes with tasks whose answers are spans, {task.name} has none")
    return replace(task.target, head=args.span_head)


def _start(args: Finetune) -> Start:
    """Where the weights come from."""
    architecture = args.architecture
    if args.depth is not None:
        if architecture.num_hidden_layers not in (None, args.depth):
            raise UsageError("--depth", "and --num-hidden-layers are the same thing", "give one of them")
        architecture = replace(architecture, num_hidden_layers=args.depth)
    start = PretrainedEncoder(args.model, args.revision, architecture, args.keep_head)
    return random_encoder_like(start) if args.init == "random" else start


def _settings(args: Finetune) -> FinetuningSettings:
    """How to compute.

    Raises:
        UsageError: it contradicts itself.
    """
    if args.freeze_encoder and args.encoder_dropout:
        raise UsageError("--encoder-dropout", "has no effect with --freeze-encoder", "leave it or --freeze-encoder out")
    names = ("distillation_temperature", "distillation_weight", "teacher_revision")
    given = {name.rpartition("_")[2]: value for name, value in values_set(args, *names).items()}
    if given and args.teacher is None:
        raise UsageError(flags_of(args, *names)[0], "goes with --teacher", "name a fine-tuned model with it")
    distillation = None if args.teacher is None else Distillation(teacher=args.teacher, **given)
    return FinetuningSettings(**common_fields(FinetuningSettings, args), distillation=distillation)


# --------------------------------------------------------------------------------------------------------------------
# Evaluation.


def evaluations(args: Evaluate) -> Iterator[EvaluateResult]:
    """What `albert.evaluate` and `albert evaluate` do: one result, or with `submission` one for each split.

    A result is yielded when its files are written.

    Raises:
        UsageError: it contradicts itself.
        CheckFailed: another precision moves the score by more than the tolerance.
        MissingInput, DamagedData, InvalidConfiguration: see `evaluate_models`.
    """
    if not args.model:
        raise UsageError("--model", "names no model", "give a directory, or a Hub id")
    if args.task == PRETRAINING:
        yield _evaluate_pretraining(args)
    elif args.depths.makes_table:
        yield _evaluate_depths(args)
    else:
        if given := flags_of(args, "json", "csv"):
            raise UsageError(given[0], f"goes with {PRETRAINING}", "--results writes the scores of a task as JSON")
        task = _task(args)
        splits = _splits(args, task)
        if len(args.precision) == 1 and args.precision != ("int8",):
            precision = _one_precision(args)
            yield from (_evaluate_split(args, task, split, precision) for split in splits)
        else:
            yield from _compare_precisions(args, task, splits[0])


def _saved(args: Evaluate, result: EvaluateResult) -> EvaluateResult:
    """The result, its report written where `results` says."""
    if args.results is not None:
        save_json(args.results, result.report)
    return result


def _evaluate_pretraining(args: Evaluate) -> EvaluateResult:
    if args.data is None:
        raise UsageError("--data", "is needed: what `albert prepare` wrote", "see albert evaluate --help")
    if args.json and args.csv:
        raise UsageError("--csv", "goes without --json", "choose one of them")
    if args.depths.depth or args.depths.makes_table:
        raise UsageError("--depth, --patience and --curve", "go with a task", f"leave {PRETRAINING} out")
    precision = _one_precision(args)
    found = evaluate_pretraining(
        args.model,
        args.data,
        objectives=args.objective,
        masking=MaskingRecipe(max_ngram=args.max_ngram),
        limit=args.sequences,
        prepare=partial(use_fast_encoders, precision=precision),
        **_opening(args),
    )
    report = {"task": PRETRAINING, "precision": precision, **found.to_json()}
    first = found.models[0].scores
    scores = {test: 100 * score.accuracy for test, score in first.items()}
    baseline = {test: 100 * score.baseline for test, score in first.items()}
    return _saved(args, EvaluateResult(scores=scores, baseline=baseline, report=report, found=found))


def _splits(args: Evaluate, task: Task) -> tuple[str, ...]:
    """The splits that are answered."""
    splits = (args.split,) if args.split is not None else ("dev",)
    if args.submission is not None and args.split is None and args.dev is None:
        splits = tuple(task.submission) or splits
    for name, path in (("--predictions", args.predictions), ("--results", args.results)):
        if path is not None and len(splits) > 1:
            raise UsageError(name, f"is one file, there are the splits {', '.join(splits)}", "name one with --split")
    if args.submission is not None and args.submission.exists() and not args.submission.is_dir():
        raise CannotCreate(args.submission, "is no directory", "name one for the files to hand in")
    return splits


def _evaluate_split(args: Evaluate, task: Task, split: str, precision: Precision) -> EvaluateResult:
    found = evaluate_models(
        task,
        args.model,
        args.data or Path(),
        split,
        prepare=partial(use_fast_encoders, precision=precision),
        needs_labels=args.submission is None and args.predictions is None,
        depth=args.depths.one_depth,
        micro_batch_tokens=args.micro_batch_tokens,
        **_opening(args),
    )
    together, handed_in = found.together, {}
    if args.predictions is not None:
        write_predictions(args.predictions, together)
    if args.submission is not None:
        for name, content in submission_files(task, split, together.predictions).items():
            write_text(args.submission / name, content)
            handed_in[args.submission / name] = len(together.predictions)
    named = args.model[0] if len(args.model) == 1 else list(args.model)
    report = {"task": task.name, "model": named, "split": split, "precision": precision}
    report |= {"scores": dict(together.scores), "baseline": together.baseline}
    if len(args.model) > 1:
        each = zip(args.model, found.members, strict=True)
        report["of_each"] = {model: dict(member.evaluation.scores) for model, member in each}
    report["counts"] = dict(together.counts)
    scored = ScoredSplit(
        task=task, models=args.model, split=split, found=found, precision=precision, submission=handed_in
    )
    result = EvaluateResult(scores=together.scores, baseline=together.baseline, report=report, found=scored)
    return _saved(args, result)


def _compare_precisions(args: Evaluate, task: Task, split: str) -> Iterator[EvaluateResult]:
    if given := flags_of(args, "predictions", "submission"):
        raise UsageError(given[0], "goes with one precision, fp32 or bf16", "compare precisions without it")
    model, *others = args.model
    if others:
        raise UsageError("--precision", "several are compared for one model", "name one model")
    if args.depths.depth:
        raise UsageError("--depth", "goes with one precision", "name fp32 or bf16")
    if not args.precision:
        raise UsageError("--precision", "names none", "choose among fp32, bf16 and int8")
    found = precision_scores(
        task,
        model,
        args.data or Path(),
        split,
        _precisions(args),
        args.tolerance,
        micro_batch_tokens=args.micro_batch_tokens,
        **_opening(args),
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
    about = {"task": task.name, "model": model, "split": split}
    report = {**about, "score": found[0].name, "tolerance": args.tolerance, "precisions": rows}
    first = found[0].evaluation
    yield _saved(args, EvaluateResult(scores=first.scores, baseline=first.baseline, report=report, found=found))
    check_precisions(found, args.tolerance)


def check_precisions(found: Sequence[PrecisionScore], tolerance: float) -> None:
    """Raises CheckFailed, naming the precisions at which the score does not hold."""
    moved = [f"{row.precision} by {row.difference:+.2f}" for row in found if not row.holds]
    if moved:
        why = f"moves with {' and '.join(moved)}, more than {tolerance:.2f}"
        raise CheckFailed(found[0].name, why, f"use {' or '.join(row.precision for row in found if row.holds)}")


def _precisions(args: Evaluate) -> list[InferencePrecision]:
    """Those that were asked for, with what auto stands for on the device."""
    device = pick_device(args.device)
    return [choose_precision(one, device) for one in args.precision]


def _one_precision(args: Evaluate) -> Precision:
    if args.precision != ("int8",):
        match _precisions(args):
            case ["fp32" | "bf16" as precision]:
                return precision
    raise UsageError("--precision", "is one here, fp32 or bf16", "several are compared on a task, for one model")


def _opening(args: Evaluate) -> dict[str, Any]:
    """How models are opened."""
    overrides = values_set(args, "hidden_act", "num_attention_heads")
    how = {name: getattr(args, name) for name in ("device", "max_length", "revision")}
    return {**how, "overrides": overrides}


def _evaluate_depths(args: Evaluate) -> EvaluateResult:
    if given := flags_of(args, "predictions", "submission"):
        raise UsageError(given[0], "requires a single --depth", "name one --depth and no --patience")
    model, *others = args.model
    if others:
        raise UsageError("--model", f"names {len(args.model)} models, at several depths one is run", "name one")
    if args.depths.rounds < 1:
        raise UsageError("--rounds", f"is {args.depths.rounds}, at least 1 is needed")
    if len(args.precision) != 1:
        raise UsageError("--precision", "is one here", "compare precisions at one --depth")
    found = depth_curve(
        _task(args),
        model,
        args.data or Path(),
        args.split or "dev",
        depths=args.depths.depth,
        patiences=args.depths.patience,
        rounds=args.depths.rounds,
        precision=next(iter(_precisions(args))),
        **_opening(args),
    )
    scores = found.points[0].scores
    result = _saved(args, EvaluateResult(scores=scores, baseline=found.baseline, report=found.to_json(), found=found))
    if args.depths.curve is not None:
        draw_curve(found, args.depths.curve)
        write_curve(found, args.depths.curve.with_suffix(".csv"))
    return result


def _task(args: Evaluate) -> Task:
    if args.task is None:
        return _task_of_model(args.model[0], args.revision, args.table, args.dev)
    if given := args.table.given():
        raise UsageError(given[0], f"goes with your own file, the task {args.task} has its own columns")
    if args.data is None and args.dev is None:
        raise UsageError("--data", "is missing; the task's files are looked for there", "see albert evaluate --help")
    task = find_task(args.task)
    files = {} if args.dev is None else {args.split or "dev": args.dev}
    return replace(task, source=task.source.with_files(files)) if files else task


def _task_of_model(model: str, revision: str | None, options: TableOptions, dev: Path | None) -> Task:
    """The task that a model learnt, on a table: the one given, or that on which it was scored.

    Args:
        options: what is said of the table; it goes before what was kept.

    Raises:
        UsageError: nothing was kept, and too little is said.
        MissingInput, DamagedData, InvalidConfiguration: see `read_task`; or the model names no labels.
    """
    directory = find_model(model, revision)
    kept = table_task_of(directory)
    if kept is None and options.task_file is None:
        kept = _described_by_model(directory, options, dev)
    table = options.task(kept, dev=dev)
    if table.dev is not None:
        table = replace(table, train=None)
    return read_task(table).check("dev").task


def _described_by_model(directory: Path, options: TableOptions, dev: Path | None) -> TableTask:
    """Kind and labels that a model's configuration names; the columns must be said."""
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
