"""`albert finetune` and `albert.finetune`: a task or the user's own table, a model, and the run that it makes."""

import dataclasses
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Annotated, Any, Literal

from albert.api.checks import check_data, check_options
from albert.api.keyword_functions import Call, by_option, options_as_keywords, read_options
from albert.api.options import (
    GROUP,
    ROWS,
    Argument,
    Option,
    changed_flags,
    changed_parameters,
    option_name,
    options_of,
    shape_of,
)
from albert.api.table_options import NO_TABLE, TableOptions
from albert.cli.main import imports
from albert.cli.options import Subcommand, parse, typed_values
from albert.cli.render import open_console
from albert.model.config import ArchitectureChanges
from albert.runtime.environment import Precision, world
from albert.runtime.errors import UsageError
from albert.runtime.json_files import to_json, to_toml
from albert.tasks.inputs import PairEncoding, QuestionInContext, Single
from albert.tasks.kinds.base import Target
from albert.tasks.kinds.span import Span, SpanHeadKind
from albert.tasks.table_task import HeldOut, RecipeChanges, table_statistics
from albert.tasks.task import Task, ThresholdFrom
from albert.training.metric_logger import DEFAULT_LOG, Log

if TYPE_CHECKING:
    from albert.api.results import DataReport, FinetuneResult
    from albert.finetuning.comparisons import Comparison
    from albert.finetuning.model import PretrainedEncoder, Start
    from albert.finetuning.run_record import FinetuningResult
    from albert.finetuning.seeds import BenchmarkResult, SeedsResult
    from albert.tasks.custom import ReadTask

NO_CHANGES = RecipeChanges()
NO_ARCHITECTURE = ArchitectureChanges()
LISTENER = Argument(only_python=True)
CONTRADICTIONS = 0.2
"""Share of the rows that may repeat a text with another label without a warning."""
SHOWN_NEVER = 10
MIN_REPEATED_ROWS = 30
"""From so many rows on, texts that repeat so often that half of the rows are copies are said."""


def say_what_was_read(report: "DataReport") -> None:
    """Print on stderr what was recognised and inferred, and warnings; the command line shows tables instead."""
    lines = []
    if report.read is not None:
        lines += [f"{split}: {note}" for split, rows in report.read.raw.items() for note in rows.notes]
        for item in report.read.inferred:
            lines.append(f"{item.what}: {item.value}, because: {item.why}; to change it: {item.instead}")
    lines += [line.removeprefix("warning: ") for line in report.warnings]
    keywords = {option.path[-1] for option in options_of(shape_of(finetune))}
    for line in lines:
        print(f"albert: note: {options_as_keywords(line, keywords)}", file=sys.stderr)


def finetune(
    task: str | None = None,
    *,
    model: str,
    revision: str | None = None,
    output: Path | None = None,
    replace: bool = False,
    data: Path | None = None,
    init: Literal["pretrained", "random"] = "pretrained",
    keep_head: bool = False,
    train: Annotated[Path | None, ROWS] = None,
    dev: Annotated[Path | None, ROWS] = None,
    test: Annotated[Path | None, ROWS] = None,
    held_out: float | None = None,
    statistics_only: bool = False,
    table: Annotated[TableOptions, GROUP] = NO_TABLE,
    architecture: Annotated[ArchitectureChanges, GROUP] = NO_ARCHITECTURE,
    depth: int | None = None,
    encode_pairs: PairEncoding | None = None,
    match_embedding: bool | None = None,
    solve_head: bool | None = None,
    frozen: bool = False,
    freeze_encoder: bool = False,
    teacher: str | None = None,
    teacher_revision: str | None = None,
    distillation_temperature: float | None = None,
    distillation_weight: float | None = None,
    changes: Annotated[RecipeChanges, GROUP] = NO_CHANGES,
    span_head: SpanHeadKind | None = None,
    null_threshold: ThresholdFrom = "train",
    threshold: float | None = None,
    optimizer: Literal["adamw", "lamb"] = "adamw",
    seed: int = 0,
    page_examples: int = 5,
    seeds: int | None = None,
    folds: int | None = None,
    try_rates: Annotated[tuple[float, ...] | None, Argument(name="try")] = None,
    select: Literal["last", "best"] | None = None,
    patience: int | None = None,
    class_weights: Literal["balanced"] | None = None,
    max_train_examples: int | None = None,
    evaluate_every: int | None = None,
    checkpoint_every: int | None = None,
    micro_batch_tokens: int = 8192,
    device: Literal["auto", "cpu", "cuda"] = "auto",
    precision: Precision | None = None,
    workers: int = 0,
    log: Log = DEFAULT_LOG,
    on_rows: Annotated["Callable[[DataReport], None]", LISTENER] = say_what_was_read,
    on_start: Annotated["Callable[[Mapping[str, Any]], None] | None", LISTENER] = None,
) -> "FinetuneResult":
    """Fine-tune a model on your own table or on a declared task, and evaluate it.

    The same call resumes a run that was stopped. In Python, data frames and lists of dicts are saved in the run's
    directory. Values that are not set come from the task's recipe.

    Args:
        task: A declared task, or a benchmark; leave it out for your own files.
        model: A model directory, a run that made one, a Hub id, or small-vectors, small or tiny, which come with the
            package (English).
        revision: A branch, tag or commit of a Hub repository.
        output: The run's directory, resumed if it exists.
        replace: Remove an earlier run in OUTPUT, and begin anew.
        data: The task's data folder: files in DATA/TASK/ or in DATA itself.
        init: random: the same architecture with random weights, as a control.
        keep_head: Start from the model's own head, with outputs matched to labels by name; otherwise a new head is
            initialised.
        train: The training file; with TASK, a replacement of the official file in its layout.
        dev: The development file; for your own tables a part of the training rows when not set.
        test: Your own tables: a file that is scored once, at the end, and chooses nothing.
        held_out: Your own tables without --dev: the share of the training rows that is held out as dev; 0.1 when not
            set.
        statistics_only: Show how the rows are read, their lengths and labels, and do not train.
        depth: Number of layers to apply; as many as in training when not set. Half of the layers are half of the work.
        encode_pairs: How the two texts of a pair are encoded: together, as one sequence (a cross-encoder, as in the
            paper), or separately (a bi-encoder, as in sentence-transformers), where the head compares their means.
            Together when not set.
        match_embedding: Mark the tokens of two texts in one sequence that occur in the other text, by an embedding of
            their own. When not set, for models narrower than ALBERT-base, which do not learn to match words by
            attention.
        solve_head: Begin with the best linear head on the model's frozen features, which takes seconds, then fine-tune
            (Kumar et al. 2022). When not set, for your own tables, unless they have numbers.
        frozen: Only the linear head, on frozen features, with the best regularisation by cross-validation; takes
            seconds.
        freeze_encoder: Train only pooler and head; the encoder's output is computed once for each example, without
            dropout.
        teacher: A model fine-tuned on the same task, for distillation: a directory, a run, or a Hub id.
        teacher_revision: A branch, tag or commit of the teacher's Hub repository.
        distillation_temperature: The divisor of both models' logits; 2 when not set.
        distillation_weight: Weight of the teacher in the loss; the labels have the rest. 0.5 when not set.
        span_head: Span tasks: joint, the paper's head for SQuAD 2.0; or independent start and end, which transformers
            opens too.
        null_threshold: For questions without an answer: where the threshold is chosen. train holds out some training
            questions; dev, as in the reference, makes the score on dev too good.
        threshold: Several labels per row: the probability from which on a label is predicted. When not set, the best
            one for rows that are held out of training.
        optimizer: The optimiser.
        seed: Seed of the new head, order of the rows and dropout.
        page_examples: Number of short development rows, without labels, to save in the model's folder (examples.json)
            as examples on the page of albert serve.
        seeds: Number of runs, with seeds from --seed on, in OUTPUT/seed-0 and so on; their median and spread are
            reported.
        folds: Your own tables: divide the rows into so many parts, and score each by a model that is trained on the
            others. For small tables.
        try_rates: Your own tables: train with each of these learning rates, and keep the one with the best development
            score.
        select: best: the model with the best development score of all evaluations, as in the paper; that score is
            biased upwards, because the same set selects the model. Every summary names the selection. When not set,
            best for your own table with at least 100 development rows, else last.
        patience: End the run after so many evaluations in a row without a better score, and keep the best one; 5 for
            your own table when --select is not set.
        class_weights: balanced: rare classes, labels or tags count as much in the loss as frequent ones.
        max_train_examples: Train on a sample of the rows, drawn by the seed.
        evaluate_every: Steps between evaluations. When not set, only at the end, or with --select best every 100 as in
            the paper; for your own table up to ten times in a run.
        checkpoint_every: Steps between checkpoints; every ten minutes when not set.
        micro_batch_tokens: Tokens in one pass through the model; fewer need less memory and change no result.
        precision: When not set, bf16 on a GPU that supports it, otherwise fp32.
        workers: Number of processes that make batches.
        log: Where the curves go: TensorBoard's files in OUTPUT, Weights & Biases or trackio (of the extras wandb and
            trackio; the project is that of WANDB_PROJECT or TRACKIO_PROJECT).
    """
    options = dict(locals())
    given = changed_parameters(finetune, options)
    check_options(SimpleNamespace(**options), resumes=True)
    if output is None and not statistics_only:
        remedy = "give the run's directory, or --statistics-only to see the rows first"
        raise UsageError("--output", "is missing", remedy)
    if task is not None:
        check_data(task, data, has_files=train is not None and dev is not None)
    if init == "random" and keep_head:
        raise UsageError("--keep-head", "and --init random contradict each other", "give one of them")
    if changes.steps is not None and changes.epochs is not None:
        raise UsageError("--steps", "and --epochs say the same thing twice", "give one of them")
    if freeze_encoder and changes.encoder_dropout:
        raise UsageError("--encoder-dropout", "has no effect with --freeze-encoder", "leave it or --freeze-encoder out")
    for name in ("distillation_temperature", "distillation_weight", "teacher_revision"):
        if name in given and teacher is None:
            raise UsageError(option_name(name), "requires --teacher", "name a fine-tuned model with it")
    with imports():
        from albert.api.results import FinetuneResult
        from albert.finetuning.comparisons import compare_folds, compare_rates
        from albert.finetuning.model import PretrainedEncoder
        from albert.finetuning.objective import Distillation
        from albert.finetuning.options import requested_recipe
        from albert.finetuning.run import finetune as finetune_task
        from albert.finetuning.run_record import FinetuningSettings
        from albert.finetuning.seeds import finetune_benchmark, finetune_seeds
        from albert.tasks.submission import BENCHMARKS

    # Where training starts, and how it is done.
    if depth is not None:
        if architecture.num_hidden_layers not in (None, depth):
            raise UsageError("--depth", "and --num-hidden-layers are the same thing", "give one of them")
        architecture = dataclasses.replace(architecture, num_hidden_layers=depth)
    distillation = None
    if teacher is not None:
        values = {"revision": teacher_revision, "temperature": distillation_temperature, "weight": distillation_weight}
        given_ones = {name: value for name, value in values.items() if value is not None}
        distillation = Distillation(teacher=teacher, **given_ones)
    settings = FinetuningSettings(
        seed=seed,
        null_threshold=null_threshold,
        max_train_examples=max_train_examples,
        select=select,
        evaluate_every=evaluate_every,
        checkpoint_every=checkpoint_every,
        patience=patience,
        class_weights=class_weights,
        micro_batch_tokens=micro_batch_tokens,
        optimizer=optimizer,
        device=device,
        precision=precision,
        workers=workers,
        log=log,
        freeze_encoder=freeze_encoder,
        distillation=distillation,
        page_examples=page_examples,
        encode_pairs=encode_pairs,
        match_embedding=match_embedding,
        solve_head=solve_head,
        frozen=frozen,
        threshold=threshold,
    )

    inputs = (test, data, model, teacher)

    # A benchmark: all of its tasks.
    if task is not None and task.lower() in BENCHMARKS:
        check_benchmark(given, table, task.lower())
        assert data is not None and output is not None  # checked above
        start = start_from(PretrainedEncoder(model, revision, architecture), init)
        remove_earlier(output, replace, table, train, dev, inputs)
        average = BENCHMARKS[task.lower()]
        found = finetune_benchmark(task.lower(), average, start, data, output, changes, settings, seeds or 1)
        return result_of_benchmark(found, output)

    # One task: a declared one, or the user's own table.
    read = None
    if task is None:
        read = read_own_table(given, table, train, dev, test, held_out, folds, seed)
        learned = read.task
    else:
        learned = declared_task(task, given, table, train, dev, data)
    learned = dataclasses.replace(learned, target=target_of(learned, given, span_head))
    report = None
    if statistics_only or read is not None:
        max_length = requested_recipe(learned, changes).recipe.max_length
        if world().is_first:
            report = report_on_rows(learned, read, data, model, revision, max_length, max_train_examples)
            on_rows(report)
    if read is not None:
        read.check()
    if output is None or statistics_only:
        statistics = to_json(report and report.statistics)
        return FinetuneResult(task=learned, reading=report, report={"statistics": statistics})

    # The run, or several of them.
    start = start_from(PretrainedEncoder(model, revision, architecture, keep_head), init)
    arguments = (learned, start, data or Path(), output, changes, settings)
    remove_earlier(output, replace, table, train, dev, inputs)
    if try_rates is not None:
        return result_of_comparison(compare_rates(*arguments, try_rates, on_start), output, learned)
    if folds is not None:
        return result_of_comparison(compare_folds(*arguments, folds, on_start), output, learned)
    if seeds is not None:
        return result_of_seeds(finetune_seeds(*arguments, seeds, on_start), output, learned)
    return result_of_run(finetune_task(*arguments, announce=on_start), output, learned)


# --------------------------------------------------------------------------------------------------------------------
# What is refused before anything is read.

OF_OWN_TABLES = ("test", "folds", "try_rates")


def check_benchmark(given: Mapping[str, Any], table: TableOptions, name: str) -> None:
    """Raise UsageError for options that need a single task."""
    single = (*OF_OWN_TABLES, "train", "dev", "held_out", "span_head", "keep_head", "statistics_only")
    flags = changed_flags(table) + [option_name(option) for option in single if option in given]
    if flags:
        raise UsageError(flags[0], f"requires a single task, {name} has many")


def remove_earlier(
    output: Path,
    is_replaced: bool,
    table: TableOptions,
    train: Path | None,
    dev: Path | None,
    others: Sequence[Path | str | None],
) -> None:
    """With --replace, remove an earlier run in `output`; raises CannotCreate if it holds what this run reads."""
    if not is_replaced or not world().is_first:
        return
    from albert.training.run_folder import remove_run

    own = table.task(train=train, dev=dev)
    read = (own.train, own.dev, table.task_file, *others)
    remove_run(output, [Path(each) for each in read if each is not None and Path(each).exists()])


# --------------------------------------------------------------------------------------------------------------------
# The task.


def read_own_table(
    given: Mapping[str, Any],
    table: TableOptions,
    train: Path | None,
    dev: Path | None,
    test: Path | None,
    held_out: float | None,
    folds: int | None,
    seed: int,
) -> "ReadTask":
    """The user's own task, from the options, a task file and the rows."""
    from albert.tasks.custom import TableSource, for_other_file, read_task

    own = table.task(train=train, dev=dev)
    if own.train is None:
        remedy = "name a declared task, or your own file with --train"
        raise UsageError("albert finetune", "no training file" if changed_flags(table) else "no task", remedy)
    if own.dev is not None and held_out is not None:
        raise UsageError("--held-out", "cannot be combined with --dev", "give one of them")
    if "data" in given:
        raise UsageError("--data", "requires a declared task, this is your own table", "leave it out")
    several = [option_name(name) for name in ("folds", "try_rates", "seeds") if name in given]
    if len(several) > 1:
        raise UsageError(several[1], f"cannot be combined with {several[0]}", "give one of them")
    if folds is not None and (held_out is not None or own.dev is not None):
        option = "--dev" if held_out is None else "--held-out"
        raise UsageError(option, "cannot be combined with --folds, each fold is a development set", "leave it out")
    share = own.held_out.share if held_out is None else held_out
    read = read_task(dataclasses.replace(own, held_out=HeldOut(share=share, seed=seed)), hold_out=folds is None)
    if test is not None:
        source = TableSource(for_other_file(read.table_task, test), read.tables)
        source = TableSource(read.table_task, source.with_files({"test": test}).tables)
        with_test = dataclasses.replace(read.task, source=source, further_splits=("test",))
        read = dataclasses.replace(read, task=with_test)
    return read


def declared_task(
    name: str,
    given: Mapping[str, Any],
    table: TableOptions,
    train: Path | None,
    dev: Path | None,
    data: Path | None,
) -> Task:
    """A task of a benchmark, with other files if they are given."""
    from albert.tasks.submission import find_task

    flags = changed_flags(table) + [option_name(each) for each in ("held_out", *OF_OWN_TABLES) if each in given]
    if flags:
        raise UsageError(flags[0], f"requires your own tables, the task {name} has its own columns")
    files = {split: path for split, path in (("train", train), ("dev", dev)) if path is not None}
    if data is None and len(files) < 2:
        raise UsageError("--data", "is missing; the task's files are looked for there", "see albert finetune --help")
    task = find_task(name)
    return dataclasses.replace(task, source=task.source.with_files(files))


def target_of(task: Task, given: Mapping[str, Any], span_head: SpanHeadKind | None) -> Target:
    """What the task predicts; of spans with the chosen head. Raises UsageError for options of other tasks."""
    if "question_length" in given and not isinstance(task.inputs, QuestionInContext):
        raise UsageError("--question-length", f"requires a task with questions, {task.title} has none")
    if isinstance(task.target, Span):
        return dataclasses.replace(task.target, head=span_head or task.target.head)
    for name in ("span_head", "stride", "null_threshold"):
        if name in given:
            raise UsageError(option_name(name), f"requires a task whose answers are spans, {task.title} has none")
    return task.target


def report_on_rows(
    task: Task,
    read: "ReadTask | None",
    data: Path | None,
    model: str,
    revision: str | None,
    max_length: int,
    max_train_examples: int | None,
) -> "DataReport":
    """How the rows were read, and their statistics in tokens of the model."""
    from albert.api.results import DataReport
    from albert.checkpoints.hub import find_model
    from albert.tasks.table_task import unknown_texts
    from albert.text.tokenizer_loading import load_tokenizer

    tokenizer = load_tokenizer(find_model(model, revision))
    if read is not None:
        tables = read.tables
    else:
        tables = {split: task.source.read(data or Path(), split) for split in ("train", "dev")}
    statistics = table_statistics(task, tables, tokenizer, max_length)
    warnings = list(unknown_texts(task, tables, tokenizer, model))
    n_train = statistics["train"].rows if "train" in statistics else 0
    if max_train_examples is not None and max_train_examples < n_train:
        warnings.append(f"train: {max_train_examples:,} of these {n_train:,} rows are drawn for training")
    never = [label for label, count in statistics["train"].labels.items() if not count] if n_train else []
    if never:
        shown = ", ".join(never[:SHOWN_NEVER])
        if len(never) > SHOWN_NEVER:
            shown += f" and {len(never) - SHOWN_NEVER} more"
        labels = "label" if len(never) == 1 else "labels"
        warnings.append(f"warning: train: no row has the {labels} {shown}, so that nothing is learned about it")
    for split, found in statistics.items():
        without = tables[split].counts.get("rows_without_text", 0)
        if without:
            rows = "1 row has no text and is" if without == 1 else f"{without:,} rows have no text and are"
            warnings.append(f"warning: {split}: {rows} left out of training and scores")
        n_texts = found.rows - found.counts["duplicates"]
        if found.rows >= MIN_REPEATED_ROWS and n_texts <= found.rows / 2:
            why = "a score on them is that of so many texts" if split != "train" else "more different texts would help"
            kept = statistics["train"].counts.get("kept back for dev", 0) if split == "dev" and n_train else 0
            if kept:
                why += f"; rows with the same text stay together, so that {kept / (kept + n_train):.0%} are held out"
            warnings.append(f"warning: {split}: {found.rows:,} rows have {n_texts:,} different texts: {why}")
        contradictions = found.counts["contradictions"]
        if contradictions > CONTRADICTIONS * found.rows and isinstance(task.inputs, Single):
            what = f"{contradictions:,} rows have the text of an earlier row and another label"
            warnings.append(f"warning: {split}: {what}: is a second text missing (--pair)?")
    return DataReport(read, statistics, max_length, tuple(warnings))


# --------------------------------------------------------------------------------------------------------------------
# Where training starts.


def start_from(start: "PretrainedEncoder", init: str) -> "Start":
    """The source of the initial weights."""
    from albert.finetuning.model import random_encoder_like

    return random_encoder_like(start) if init == "random" else start


# --------------------------------------------------------------------------------------------------------------------
# Results.


def result_of_run(found: "FinetuningResult", output: Path, task: Task | None) -> "FinetuneResult":
    """The result of a single run; its curves are drawn."""
    from albert.api.display import draw_curves
    from albert.api.results import FinetuneResult

    if world().is_first:
        draw_curves(output)
    return FinetuneResult(
        task=task,
        output=output,
        model=found.model_directory,
        scores=found.scores,
        report=found.report,
        found=found,
        baseline=found.report["baseline"],
        linear_baseline=found.report.get("linear_baseline"),
    )


def result_of_seeds(found: "SeedsResult", output: Path, task: Task) -> "FinetuneResult":
    """The result of runs with several seeds: medians, and the best model."""
    from albert.api.results import FinetuneResult
    from albert.training.run_folder import RunFolder

    return FinetuneResult(
        task=task,
        output=output,
        model=RunFolder(found.best.directory).model_path,
        scores=found.medians,
        report=found.to_json(),
        found=found,
        baseline=found.baseline,
        linear_baseline=found.linear_baseline,
    )


def result_of_comparison(found: "Comparison", output: Path, task: Task) -> "FinetuneResult":
    """The result of runs that are compared; folds leave no model, and their baselines are means over the folds."""
    from albert.api.results import FinetuneResult
    from albert.finetuning.evaluation import MAJORITY
    from albert.training.run_folder import RunFolder

    linear = found.typical.report.get("linear_baseline")
    if linear is not None and found.by == "fold":
        linear = {"method": linear["method"], "scores": found.simpler.get(linear["method"], {})}
    return FinetuneResult(
        task=task,
        output=output,
        model=RunFolder(found.best.directory).model_path if found.by == "rate" else None,
        scores=found.scores,
        report=found.to_json(),
        found=found,
        baseline=found.simpler.get(MAJORITY),
        linear_baseline=linear,
    )


def result_of_benchmark(found: "BenchmarkResult", output: Path) -> "FinetuneResult":
    """The result of all tasks of a benchmark: scores are called TASK/SCORE."""
    from albert.api.results import FinetuneResult

    baselines = {each.task.name: each.result.baseline or {} for each in found.outcomes if each.result is not None}
    return FinetuneResult(
        output=output,
        scores={f"{task}/{score}": value for task, each in found.scores.items() for score, value in each.items()},
        baseline={f"{task}/{score}": value for task, each in baselines.items() for score, value in each.items()},
        report=found.to_json(),
        found=found,
    )


# --------------------------------------------------------------------------------------------------------------------
# The two doors: options from a file, and what is said on the way.


@dataclasses.dataclass(frozen=True, kw_only=True)
class RecipeFile:
    """Options that are read from a file, or printed as one."""

    recipe_file: Annotated[Path | None, Argument(name="recipe")] = None
    """A TOML or JSON file with options of this command, by their names with _ for -; flags override it."""
    print_recipe: bool = False
    """Print the options as a TOML file with comments, for --recipe, and do not train."""


RECIPE_KEYWORD = Option(
    path=("recipe",),
    names=("--recipe",),
    hint=Path | Mapping[str, Any] | None,
    default=None,
    text="A TOML or JSON file with keywords, as for --recipe of the command, or a dict of them; others override it.",
)


def read_recipe_keyword(call: Call) -> None:
    """Add the options in the keyword `recipe` to those of a call from Python."""
    recipe = call.pop("recipe")
    if isinstance(recipe, Mapping):
        call.add(by_option(recipe.items(), options_of(call.shape), "albert.finetune: recipe"))
    elif recipe is not None:
        call.add(read_options(call.shape, recipe))


OPTIONS = dataclasses.make_dataclass("Finetune", (), bases=(RecipeFile, shape_of(finetune)), frozen=True, kw_only=True)


def finetune_command(arguments: list[str]) -> None:
    """Read the options of `albert finetune`, run it, and print what is read, the settings and the result."""
    given = typed_values(options_of(OPTIONS), arguments, "albert finetune")
    file = given.get(("recipe_file",))
    defaults = {} if file is None else read_options(shape_of(finetune), file, given)
    if given.get(("print_recipe",)):
        options = parse(OPTIONS, arguments, "albert finetune", {("model",): "", **defaults}, given)
        print(f"# Options of `albert finetune`, from: {shlex.join(['albert', 'finetune', *arguments])}\n")
        groups = [field.name for field in dataclasses.fields(options) if dataclasses.is_dataclass(field.default)]
        print(to_toml(options, inline=groups, leave_out=("recipe_file", "print_recipe")), end="")
        return
    values = vars(parse(OPTIONS, arguments, "albert finetune", defaults, given))
    of_finetune = {name: value for name, value in values.items() if name not in ("recipe_file", "print_recipe")}
    console = open_console()

    def show_rows(report: "DataReport") -> None:
        from albert.commands.finetune_output import show_data, show_data_of_run

        show_only = values["statistics_only"] or values["output"] is None
        (show_data if show_only else show_data_of_run)(console, report)

    def show_start(figures: Mapping[str, Any]) -> None:
        from albert.commands.finetune_output import show_settings

        show_settings(console, figures)

    result = finetune(**of_finetune, on_rows=show_rows, on_start=show_start)
    from albert.commands.finetune_output import show_finetuned

    show_finetuned(console, result)


finetune_main = Subcommand(OPTIONS, "albert finetune", finetune_command)
