"""`albert finetune` and `albert.finetune`: a task or the user's own table, a model, and the run that it makes."""

import dataclasses
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Annotated, Any, Literal

from albert.api.checks import check_data, check_options, is_benchmark
from albert.api.keyword_functions import Call, by_option, options_as_keywords, read_options, remedy_in_python
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
from albert.api.training_options import USUAL_TRAINING, TrainingOptions
from albert.cli.main import imports
from albert.cli.options import Subcommand, parse, typed_values
from albert.cli.render import open_console
from albert.model.config import ArchitectureChanges
from albert.runtime.environment import world
from albert.runtime.errors import UsageError
from albert.runtime.json_files import to_json, to_toml
from albert.runtime.words import counted
from albert.tasks.declared import DeclaredTask
from albert.tasks.inputs import QuestionInContext, Single
from albert.tasks.span import Span, SpanHeadKind
from albert.tasks.table_task import HeldOut, RecipeChanges, table_statistics

if TYPE_CHECKING:
    from albert.api.results import DataReport, FinetuneResult
    from albert.finetuning.model import Start
    from albert.finetuning.run_record import FinetuningResult
    from albert.tasks.custom import ReadTask

NO_CHANGES = RecipeChanges()
NO_ARCHITECTURE = ArchitectureChanges()
LISTENER = Argument(only_python=True)
CONTRADICTIONS = 0.2
"""Share of the rows that may repeat a text with another label without a warning."""
SHOWN_NEVER = 10
MORE_THAN_WANTED = 1.2
"""A held-out part is larger than was asked for, so that it is said, from this multiple on."""
MIN_REPEATED_ROWS = 30
"""From so many rows on, texts that repeat so often that half of the rows are copies are said."""


def say_what_was_read(report: "DataReport") -> None:
    """Print on stderr what was recognised and inferred, and warnings; the command line shows tables instead."""
    options = options_of(shape_of(finetune))
    lines = []
    if report.read is not None:
        lines += [f"{split}: {note}" for split, rows in report.read.raw.items() for note in rows.notes]
        for item in report.read.inferred:
            remedy = remedy_in_python(item.instead, options)
            lines.append(f"{item.what}: {item.value}, because: {item.why}; to change it: {remedy}")
    lines += [line.removeprefix("warning: ") for line in report.warnings]
    keywords = {option.path[-1] for option in options}
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
    training: Annotated[TrainingOptions, GROUP] = USUAL_TRAINING,
    changes: Annotated[RecipeChanges, GROUP] = NO_CHANGES,
    on_rows: Annotated["Callable[[DataReport], None]", LISTENER] = say_what_was_read,
    on_start: Annotated["Callable[[Mapping[str, Any]], None] | None", LISTENER] = None,
) -> "FinetuneResult":
    """Fine-tune a model on your own table or on a declared task, and evaluate it.

    The same call resumes a run that was stopped. In Python, data frames and lists of dicts are saved in the run's
    directory. Values that are not set come from the task's recipe.

    Args:
        task: A declared task; leave it out for your own files.
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
    """
    options = dict(locals())
    given = changed_parameters(finetune, options)
    if task is not None:
        refuse_benchmark(task)
    check_paths(options, training)
    if output is None and not statistics_only:
        remedy = "give the run's directory, or --statistics-only to see the rows first"
        raise UsageError("--output", "is missing", remedy)
    if task is not None:
        check_data(task, data, has_files=train is not None and dev is not None)
    refuse_contradictions(init, keep_head, training, architecture, changes)
    with imports():
        from albert.api.results import FinetuneResult
        from albert.finetuning.run import finetune as finetune_task

    # What is learned.
    settings = training.settings()
    read = None
    if task is None:
        read = read_own_table("albert finetune", given, table, train, dev, test, held_out, training.seed)
        learned = read.task
    else:
        learned = declared_task(task, given, table, train, dev)
    learned = with_span_head(learned, given, training.span_head)
    report = None
    if statistics_only or read is not None:
        report = report_rows(learned, read, data, model, revision, changes, training.max_train_examples, on_rows)
    if read is not None:
        read.check()
    if output is None or statistics_only:
        statistics = to_json(report and report.statistics)
        return FinetuneResult(task=learned, reading=report, report={"statistics": statistics})

    # The run.
    start = start_of(model, revision, architecture, training.depth, keep_head, init)
    read_from = paths_read(table, train, dev, (test, data, model, training.teacher))
    found = finetune_task(
        learned,
        start,
        data or Path(),
        output,
        changes,
        settings,
        announce=on_start,
        replace=replace,
        read_from=read_from,
    )
    return result_of_run(found, output, learned)


# --------------------------------------------------------------------------------------------------------------------
# What is refused before anything is read.


def refuse_benchmark(task: str) -> None:
    """Raise UsageError for a benchmark, which has many tasks."""
    if is_benchmark(task):
        name = task.lower()
        remedy = f"albert sweep {name} ..., with the same options, trains on each of them"
        raise UsageError(f"albert finetune {name}", "names a whole benchmark, not one of its tasks", remedy)


def check_paths(options: Mapping[str, Any], training: TrainingOptions) -> None:
    """Check the files and the models that are read, and the output; see `check_options`."""
    values = SimpleNamespace(**options, teacher=training.teacher, teacher_revision=training.teacher_revision)
    check_options(values, resumes=True)


def refuse_contradictions(
    init: str,
    keep_head: bool,
    training: TrainingOptions,
    architecture: ArchitectureChanges,
    changes: RecipeChanges,
) -> None:
    """Raise UsageError for options that contradict each other, whatever the task."""
    if init == "random" and keep_head:
        raise UsageError("--keep-head", "and --init random contradict each other", "give one of them")
    if changes.steps is not None and changes.epochs is not None:
        raise UsageError("--steps", "and --epochs say the same thing twice", "give one of them")
    training.check(architecture, changes)


def paths_read(
    table: TableOptions, train: Path | None, dev: Path | None, others: Sequence[Path | str | None]
) -> list[Path]:
    """The files and folders that a run reads."""
    own = table.task(train=train, dev=dev)
    read = (own.train, own.dev, table.task_file, *others)
    return [Path(each) for each in read if each is not None and Path(each).exists()]


# --------------------------------------------------------------------------------------------------------------------
# The task.

OF_OWN_TABLES = ("held_out", "test", "folds", "rates")
"""Options of `albert finetune` and `albert sweep` that declared tasks have no use for."""


def read_own_table(
    program: str,
    given: Mapping[str, Any],
    table: TableOptions,
    train: Path | None,
    dev: Path | None,
    test: Path | None,
    held_out: float | None,
    seed: int,
    is_divided: bool = True,
) -> "ReadTask":
    """The user's own task, from the options, a task file and the rows.

    Args:
        program: the command, for errors.
        given: the options that differ from their defaults.
        is_divided: whether a part of the training rows is held out if there is no development file.
    """
    from albert.tasks.custom import TableSource, for_other_file, read_task

    own = table.task(train=train, dev=dev)
    if own.train is None:
        remedy = "name a declared task, or your own file with --train"
        raise UsageError(program, "no training file" if changed_flags(table) else "no task", remedy)
    if own.dev is not None and held_out is not None:
        raise UsageError("--held-out", "cannot be combined with --dev", "give one of them")
    if "data" in given:
        raise UsageError("--data", "requires a declared task, this is your own table", "leave it out")
    share = own.held_out.share if held_out is None else held_out
    read = read_task(dataclasses.replace(own, held_out=HeldOut(share=share, seed=seed)), hold_out=is_divided)
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
) -> DeclaredTask:
    """A task of a benchmark, with other files if they are given."""
    from albert.tasks.submission import find_task

    flags = changed_flags(table) + [option_name(each) for each in OF_OWN_TABLES if each in given]
    if flags:
        raise UsageError(flags[0], f"requires your own tables, the task {name} has its own columns")
    files = {split: path for split, path in (("train", train), ("dev", dev)) if path is not None}
    task = find_task(name)
    return dataclasses.replace(task, source=task.source.with_files(files))


def with_span_head(task: DeclaredTask, given: Mapping[str, Any], span_head: SpanHeadKind | None) -> DeclaredTask:
    """The task, if its answers are spans with the chosen head. Raises UsageError for options of other tasks."""
    if "question_length" in given and not isinstance(task.inputs, QuestionInContext):
        raise UsageError("--question-length", f"requires a task with questions, {task.title} has none")
    if isinstance(task.target, Span):
        target = dataclasses.replace(task.target, head=span_head or task.target.head)
        return dataclasses.replace(task, target=target)
    for name in ("span_head", "stride", "null_threshold"):
        if name in given:
            raise UsageError(option_name(name), f"requires a task whose answers are spans, {task.title} has none")
    return task


def report_rows(
    task: DeclaredTask,
    read: "ReadTask | None",
    data: Path | None,
    model: str,
    revision: str | None,
    changes: RecipeChanges,
    max_train_examples: int | None,
    on_rows: "Callable[[DataReport], None]",
) -> "DataReport | None":
    """Tell `on_rows` how the rows are read, before training; only the first process does."""
    from albert.finetuning.options import requested_recipe

    max_length = requested_recipe(task, changes).recipe.max_length
    if not world().is_first:
        return None
    report = report_on_rows(task, read, data, model, revision, max_length, max_train_examples)
    on_rows(report)
    return report


def report_on_rows(
    task: DeclaredTask,
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
        n_texts = found.rows - found.counts["duplicates"]
        if found.rows >= MIN_REPEATED_ROWS and n_texts <= found.rows / 2:
            why = "a score on them says as much as one on these texts alone"
            if split == "train":
                why = "more different texts would help"
            kept = statistics["train"].counts.get("kept back for dev", 0) if split == "dev" and n_train else 0
            wanted = 0.0 if read is None else read.table_task.held_out.share
            if kept > MORE_THAN_WANTED * wanted * (kept + n_train):
                why += f"; rows with the same text stay together, so that {kept / (kept + n_train):.0%} are held out"
            warnings.append(
                f"warning: {split}: {counted(found.rows, 'rows')} have {counted(n_texts, 'different texts')}: {why}"
            )
        contradictions = found.counts["contradictions"]
        if contradictions > CONTRADICTIONS * found.rows and isinstance(task.inputs, Single):
            what = f"{contradictions:,} rows have the text of an earlier row and another label"
            warnings.append(f"warning: {split}: {what}: is a second text missing (--pair)?")
    return DataReport(read, statistics, max_length, tuple(warnings))


# --------------------------------------------------------------------------------------------------------------------
# Where training starts.


def start_of(
    model: str,
    revision: str | None,
    architecture: ArchitectureChanges,
    depth: int | None,
    keep_head: bool,
    init: str,
) -> "Start":
    """The source of the initial weights."""
    from albert.finetuning.model import PretrainedEncoder, random_encoder_like

    if depth is not None:
        architecture = dataclasses.replace(architecture, num_hidden_layers=depth)
    encoder = PretrainedEncoder(model, revision, architecture, keep_head)
    return random_encoder_like(encoder) if init == "random" else encoder


# --------------------------------------------------------------------------------------------------------------------
# The result.


def result_of_run(found: "FinetuningResult", output: Path, task: DeclaredTask | None) -> "FinetuneResult":
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
