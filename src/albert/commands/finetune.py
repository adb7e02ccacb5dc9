"""`albert finetune` and `albert.finetune`: a task or the user's own table, a model, and the run that it makes."""

import dataclasses
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Annotated, Any, Literal

from albert.api.checks import check_data, check_options, is_benchmark
from albert.api.keyword_functions import Call, by_option, not_excluded, options_as_keywords, remedy_in_python
from albert.api.options import (
    GROUP,
    KEY,
    KEYS,
    ROWS,
    Argument,
    Values,
    changed_options,
    changed_parameters,
    option_name,
    options_of,
    shape_of,
)
from albert.api.table_options import NO_TABLE, TableOptions
from albert.cli.main import imports
from albert.cli.options import HELP_FLAGS, Subcommand, parse, typed_values
from albert.cli.render import open_console
from albert.recipes.architecture import ArchitectureChanges
from albert.recipes.finetuning import USUAL_TRAINING, Device, RecipeChanges, SpanHeadKind, TrainingOptions
from albert.runtime.environment import world
from albert.runtime.errors import InvalidConfiguration, UsageError
from albert.runtime.json_files import read_toml_or_json, to_json
from albert.runtime.manifest import LAYOUT
from albert.runtime.words import counted
from albert.tasks.declared import DeclaredTask
from albert.tasks.inputs import QuestionInContext, Single
from albert.tasks.span import Span
from albert.tasks.table_task import HeldOut, TableTask, load_table_task, table_statistics

if TYPE_CHECKING:
    from albert.api.results import DataReport, FinetuneResult
    from albert.finetuning.model import Start
    from albert.finetuning.run_record import FinetuningResult
    from albert.tasks.custom import ReadTask

NO_CHANGES = RecipeChanges()
NO_ARCHITECTURE = ArchitectureChanges()
ARCHITECTURE = Argument(key=True, group="architecture")
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
            remedy = remedy_in_python(item.override, options)
            lines.append(f"{item.what}: {item.value}, because: {item.why}; to change it: {remedy}")
    lines += [line.removeprefix("warning: ") for line in report.warnings]
    keywords = {option.name for option in options}
    for line in lines:
        print(f"albert: note: {options_as_keywords(line, keywords)}", file=sys.stderr)


def finetune(
    task: str | None = None,
    *,
    model: str,
    output: Path | None = None,
    replace: bool = False,
    train: Annotated[Path | None, ROWS] = None,
    dev: Annotated[float | Path | None, ROWS] = None,
    test: Annotated[Path | None, ROWS] = None,
    data: Path | None = None,
    table: Annotated[TableOptions, GROUP] = NO_TABLE,
    frozen: bool = False,
    teacher: str | None = None,
    device: Device = "auto",
    changes: Annotated[RecipeChanges, KEYS] = NO_CHANGES,
    training: Annotated[TrainingOptions, KEYS] = USUAL_TRAINING,
    init: Annotated[Literal["pretrained", "random"], KEY] = "pretrained",
    keep_head: Annotated[bool, KEY] = False,
    architecture: Annotated[ArchitectureChanges, ARCHITECTURE] = NO_ARCHITECTURE,
    on_rows: Annotated["Callable[[DataReport], None]", LISTENER] = say_what_was_read,
    on_start: Annotated["Callable[[Mapping[str, Any]], None] | None", LISTENER] = None,
) -> "FinetuneResult":
    """Fine-tune a model on your own table or on a declared task, and evaluate it.

    The same call resumes a run that was stopped. Without an output the rows are read, shown and counted, and nothing is
    trained. In Python, data frames and lists of dicts are saved in the run's directory. Values that are not set come
    from the task's recipe.

    Args:
        task: A declared task; or a file with options and keys of this command (.toml or .json), or the task.json of a
            run; leave it out for your own tables.
        model: A model directory, a run that made one, a Hub id, or small-vectors, small or tiny, which come with the
            package (English).
        output: The run's directory, resumed if it exists; without it the rows are shown, and nothing is trained.
        replace: Remove an earlier run in OUTPUT, and begin anew.
        train: The training file; with TASK, a replacement of the official file in its layout.
        dev: The development file, or for your own tables a share of the training rows that is held out; 0.1 when not
            set.
        test: Your own tables: a file that is scored once, at the end, and chooses nothing.
        data: A declared task's data folder: files in DATA/TASK/ or in DATA itself.
        frozen: Only the linear head, on frozen features, with the best regularisation by cross-validation.
        teacher: A model fine-tuned on the same task, for distillation: a directory, a run, or a Hub id.
        init: random: the same architecture with random weights, as a control.
        keep_head: Start from the model's own head, with outputs matched to labels by name; otherwise a new head is
            initialised.
    """
    options = dict(locals())
    given = changed_parameters(finetune, options)
    base, task = task_file_or_name(task)
    if task is not None:
        refuse_benchmark(task)
    check_options(SimpleNamespace(**options), resumes=True)
    if task is not None:
        check_data(task, data, has_files=train is not None and isinstance(dev, Path))
    elif train is None and base is None:
        refuse_missing_rows("albert finetune", table)
    refuse_contradictions(init, keep_head, changes)
    training.check(changes, teacher)
    with imports():
        from albert.api.results import FinetuneResult
        from albert.finetuning.run import finetune as finetune_task

    # What is learned.
    settings = training.settings(frozen, teacher, device)
    read = None
    if task is None:
        read = read_own_table("albert finetune", given, table, train, dev, test, training.seed, base)
        learned = read.task
    else:
        learned = declared_task(task, given, table, train, dev)
    learned = with_span_head(learned, given, training.span_head)
    report = None
    if output is None or read is not None:
        report = report_rows(learned, read, data, model, changes, training.max_train_examples, on_rows)
    if read is not None:
        read.check()
    if output is None:
        statistics = to_json(report and report.statistics)
        return FinetuneResult(task=learned, reading=report, report={"statistics": statistics})

    # The run.
    start = start_of(model, architecture, keep_head, init)
    read_from = paths_read(read, (options["task"], train, dev, test, data, model, teacher))
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


def refuse_missing_rows(program: str, table: TableOptions) -> None:
    """Raise UsageError because there are no rows to learn from; `program` is the subject."""
    why = "no training file" if changed_options(table) else "no task"
    raise UsageError(program, why, "name a declared task, or your own file with --train")


def refuse_contradictions(init: str, keep_head: bool, changes: RecipeChanges) -> None:
    """Raise UsageError for keys that contradict each other, whatever the task."""
    if init == "random" and keep_head:
        raise UsageError("keep_head", "and init=random contradict each other", "give one of them")
    if changes.steps is not None and changes.epochs is not None:
        raise UsageError("steps", "and epochs say the same thing twice", "give one of them")


def paths_read(read: "ReadTask | None", others: Sequence[float | Path | str | None]) -> list[Path]:
    """The files and folders that a run reads; of the user's own tables also those that its task names."""
    tables = () if read is None else (read.table_task.train, read.table_task.dev)
    paths = [Path(each) for each in (*tables, *others) if isinstance(each, str | Path)]
    return [path for path in paths if path.exists()]


# --------------------------------------------------------------------------------------------------------------------
# The task.

OF_OWN_TABLES = ("test", "folds", "rates")
"""Options of `albert finetune` and `albert sweep` that declared tasks have no use for."""


def is_task_file(task: str | None) -> bool:
    """Whether this names a file, not a declared task."""
    return task is not None and Path(task).suffix.lower() in (".toml", ".json")


def task_file_or_name(task: str | None) -> tuple[TableTask | None, str | None]:
    """The task in the task.json of a run, or the name of a declared task."""
    if task is None or not is_task_file(task):
        return None, task
    return load_table_task(Path(task)), None


def read_own_table(
    program: str,
    given: Mapping[str, Any],
    table: TableOptions,
    train: Path | None,
    dev: float | Path | None,
    test: Path | None,
    seed: int,
    base: TableTask | None = None,
    is_divided: bool = True,
) -> "ReadTask":
    """The user's own task, from the options, the task of a run, and the rows.

    Args:
        program: the command, for errors.
        given: the options that differ from their defaults.
        base: what the options change.
        is_divided: whether a part of the training rows is held out if there is no development file.
    """
    from albert.tasks.custom import read_task

    share = dev if isinstance(dev, float) else None
    own = table.task(base, train=train, dev=dev if isinstance(dev, Path) else None)
    if share is not None:
        own = dataclasses.replace(own, dev=None)
    if own.train is None:
        refuse_missing_rows(program, table)
    if "data" in given:
        raise UsageError("--data", "requires a declared task, this is your own table", "leave it out")
    held_out = HeldOut(share=own.held_out.share if share is None else share, seed=seed)
    read = read_task(dataclasses.replace(own, held_out=held_out), hold_out=is_divided)
    if test is not None:
        read = with_test_file(read, test)
    return read


def with_test_file(read: "ReadTask", test: Path) -> "ReadTask":
    """The task with a further file that is scored. What was said about the format of files holds for it only if it has
    the ending of one of them."""
    from albert.tasks.custom import TableSource, for_other_file

    read_alone = TableSource(for_other_file(read.table_task, test), read.tables).with_files({"test": test})
    source = TableSource(read.table_task, read_alone.tables)
    task = dataclasses.replace(read.task, source=source, further_splits=("test",))
    return dataclasses.replace(read, task=task)


def declared_task(
    name: str,
    given: Mapping[str, Any],
    table: TableOptions,
    train: Path | None,
    dev: float | Path | None,
) -> DeclaredTask:
    """A task of a benchmark, with other files if they are given."""
    from albert.tasks.submission import find_task

    changed = changed_options(table) + [option_name(each) for each in OF_OWN_TABLES if each in given]
    if changed:
        raise UsageError(changed[0], f"requires your own tables, the task {name} has its own columns")
    if isinstance(dev, int | float):
        raise UsageError(f"--dev {dev:g}", f"requires your own tables, the task {name} has a file of its own")
    files = {split: path for split, path in (("train", train), ("dev", dev)) if path is not None}
    task = find_task(name)
    return dataclasses.replace(task, source=task.source.with_files(files))


def with_span_head(task: DeclaredTask, given: Mapping[str, Any], span_head: SpanHeadKind | None) -> DeclaredTask:
    """The task, if its answers are spans with the chosen head. Raises UsageError for options of other tasks."""
    if "question_length" in given and not isinstance(task.inputs, QuestionInContext):
        raise UsageError("question_length", f"requires a task with questions, {task.title} has none")
    if isinstance(task.target, Span):
        target = dataclasses.replace(task.target, head=span_head or task.target.head)
        return dataclasses.replace(task, target=target)
    for name in ("span_head", "stride", "null_threshold"):
        if name in given:
            raise UsageError(name, f"requires a task whose answers are spans, {task.title} has none")
    return task


def report_rows(
    task: DeclaredTask,
    read: "ReadTask | None",
    data: Path | None,
    model: str,
    changes: RecipeChanges,
    max_train_examples: int | None,
    on_rows: "Callable[[DataReport], None]",
) -> "DataReport | None":
    """Tell `on_rows` how the rows are read, before training; only the first process does."""
    from albert.finetuning.options import requested_recipe

    max_length = requested_recipe(task, changes).recipe.max_length
    if not world().is_first:
        return None
    report = report_on_rows(task, read, data, model, max_length, max_train_examples)
    on_rows(report)
    return report


def report_on_rows(
    task: DeclaredTask,
    read: "ReadTask | None",
    data: Path | None,
    model: str,
    max_length: int,
    max_train_examples: int | None,
) -> "DataReport":
    """How the rows were read, and their statistics in tokens of the model."""
    from albert.api.results import DataReport
    from albert.checkpoints.hub import find_model
    from albert.tasks.table_task import unknown_texts
    from albert.text.tokenizer_loading import load_tokenizer

    tokenizer = load_tokenizer(find_model(model))
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
    architecture: ArchitectureChanges,
    keep_head: bool,
    init: str,
) -> "Start":
    """The source of the initial weights."""
    from albert.finetuning.model import PretrainedEncoder, random_encoder_like

    encoder = PretrainedEncoder(model, architecture, keep_head)
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
# The two entry points: options from a file, and what is said on the way.


def with_task_file(shape: type, values: Values) -> dict[tuple[str, ...], Any]:
    """Given options and keys, and those of the file that TASK names; a given one wins.

    Files that the file names lie in its folder. The task.json of a run, which states its layout, stays TASK.
    """
    name = values.get(("task",))
    if name is None or not is_task_file(name):
        return dict(values)
    path = Path(name)
    content = read_toml_or_json(path)
    if LAYOUT in content:
        return dict(values)
    read = by_option(content.items(), options_of(shape), str(path), "key", InvalidConfiguration)
    for option in ("train", "dev", "test", "data"):
        if isinstance(read.get((option,)), Path):
            read[(option,)] = path.parent / read[(option,)]
    given = {key: value for key, value in values.items() if key != ("task",)}
    return not_excluded(read, given) | given


def read_task_file(call: Call) -> None:
    """Add the options in a task file to those of a call from Python."""
    values = with_task_file(call.shape, call.values)
    call.values.clear()
    call.values.update(values)


def finetune_command(arguments: list[str]) -> None:
    """Read the options of `albert finetune`, run it, and print what is read, the settings and the result."""
    shape = shape_of(finetune)
    is_help = any(word in HELP_FLAGS for word in arguments)
    given = {} if is_help else with_task_file(shape, typed_values(options_of(shape), arguments, "albert finetune"))
    values = vars(parse(shape, arguments, "albert finetune", given=given))
    console = open_console()

    def show_rows(report: "DataReport") -> None:
        from albert.commands.finetune_output import show_data, show_data_of_run

        (show_data if values["output"] is None else show_data_of_run)(console, report)

    def show_start(figures: Mapping[str, Any]) -> None:
        from albert.commands.finetune_output import show_settings

        show_settings(console, figures)

    result = finetune(**values, on_rows=show_rows, on_start=show_start)
    if values["output"] is None:
        console.print("nothing was trained: --output RUN trains a model in this directory")
    from albert.commands.finetune_output import show_finetuned

    show_finetuned(console, result)


finetune_main = Subcommand(shape_of(finetune), "albert finetune", finetune_command)
