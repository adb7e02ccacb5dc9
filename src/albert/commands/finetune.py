"""`albert finetune` and `albert.finetune`: a task or the user's table, a model, and the run that it makes.

What happens, in order (`finetune` below; `cli/` or `commands/function.py` has read what was typed or given):

1. Options become `Inputs`, keys `FinetuneKeys`; what is missing, contradicts, or does not exist is refused.
2. The rows are read, once: files → rows → columns → a task (`columns/read.py`); or TASK names a declared task.
3. The rows and what was recognised are shown (`report_rows`). Without an output this is all.
4. The run (`finetuning/task_run.py`, whose docstring has its steps) trains, scores and writes OUTPUT.
5. `results.json` becomes the `Result` that is returned, or printed by `show_finetune`.
"""

import dataclasses
import os
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Literal

from albert.cli.command_line import words_of
from albert.cli.main import imports
from albert.cli.render import open_console, print_parts, print_result
from albert.cli.signature import PathLike, Rows, file_of, given_options, is_options_file, keys_in, read_keys
from albert.columns.statistics import table_statistics
from albert.commands.checks import check_data, check_options
from albert.commands.columns import Columns, LabelKind, TableKeys
from albert.commands.function import command, definition_of, on_command_line, remedy_in_python
from albert.recipes.architecture import ArchitectureChanges
from albert.recipes.finetuning import USUAL_TRAINING, Device, RecipeChanges, SpanHeadKind, TrainingOptions
from albert.report.notes import start_lines
from albert.runtime.environment import world
from albert.runtime.errors import UsageError
from albert.runtime.json_files import to_json
from albert.runtime.python_words import in_python
from albert.runtime.words import counted
from albert.tasks.declared import DeclaredTask
from albert.tasks.inputs import QuestionInContext, Single
from albert.tasks.span import Span
from albert.tasks.table_task import HeldOut, TableTask, load_table_task

if TYPE_CHECKING:
    from albert.columns.read import ReadTask
    from albert.finetuning.initial_model import Start
    from albert.finetuning.task_training import FinetuningResult
    from albert.report.reading import DataReport
    from albert.report.result import Result

CONTRADICTIONS = 0.2
"""Share of the rows that may repeat a text with another label without a warning."""
SHOWN_NEVER = 10
MORE_THAN_WANTED = 1.2
"""A held-out part is larger than was asked for, so that it is said, from this multiple on."""
MIN_REPEATED_ROWS = 30
"""From so many rows on, texts that repeat so often that half of the rows are copies are said."""


def say_what_was_read(report: "DataReport") -> None:
    """Print on stderr what was recognised and inferred, and warnings; the command line shows tables instead."""
    options = definition_of(finetune).options
    lines = []
    if report.read is not None:
        lines += [f"{split}: {note}" for split, rows in report.read.raw.items() for note in rows.notes]
        for item in report.read.inferred:
            remedy = remedy_in_python(item.override, options)
            lines.append(f"{item.what}: {item.value}, because: {item.why}; to change it: {remedy}")
    lines += [line.removeprefix("warning: ") for line in report.warnings]
    keywords = {option.name for option in options}
    for line in lines:
        print(f"albert: note: {in_python(line, keywords)}", file=sys.stderr)


@dataclasses.dataclass(frozen=True, kw_only=True)
class FinetuneKeys:
    """The keys of `finetune` and `sweep`."""

    recipe: RecipeChanges = field(default=RecipeChanges(), metadata={"key": ""})
    training: TrainingOptions = field(default=USUAL_TRAINING, metadata={"key": ""})
    init: Literal["pretrained", "random"] = "pretrained"
    """random: the same architecture with random weights, as a control."""
    keep_head: bool = False
    """Start from the model's own head, with outputs matched to labels by name; otherwise a new head is initialised."""
    table: TableKeys = field(default=TableKeys(), metadata={"key": ""})
    architecture: ArchitectureChanges = field(default=ArchitectureChanges())

    def check(self, teacher: str | None, frozen: bool) -> None:
        """Raise UsageError for keys that contradict each other, whatever the task."""
        if self.init == "random" and self.keep_head:
            raise UsageError("keep_head", "and init=random contradict each other", "give one of them")
        if self.recipe.steps is not None and self.recipe.epochs is not None:
            raise UsageError("steps and epochs", "say the same thing twice", "give one of them")
        self.training.check(self.recipe, teacher, frozen)


@command("albert finetune", keys=FinetuneKeys, rows="in output", reads_file=True)
def finetune(
    task: PathLike | None = None,
    *,
    model: PathLike,
    output: PathLike | None = None,
    replace: bool = False,
    train: Rows | None = None,
    dev: float | Rows | None = None,
    test: Rows | None = None,
    data: PathLike | None = None,
    text: str | None = None,
    pair: str | None = None,
    label: str | Sequence[str] | None = None,
    words: str | None = None,
    tags: str | None = None,
    options: str | Sequence[str] | None = None,
    question: str | None = None,
    context: str | None = None,
    answer: str | None = None,
    answer_start: str | None = None,
    id: str | None = None,
    group: str | None = None,
    kind: LabelKind | None = None,
    labels: str | Sequence[str] | None = None,
    separator: str | None = None,
    metrics: str | Sequence[str] | None = None,
    frozen: bool = False,
    teacher: PathLike | None = None,
    device: Device = "auto",
    on_rows: "Callable[[DataReport], None]" = say_what_was_read,
    on_start: "Callable[[Mapping[str, Any]], None] | None" = None,
    **keys: Any,
) -> "Result":
    """Fine-tune a model on your table or on a declared task, and evaluate it.

    The same call resumes a run that was stopped. Without an output the rows are read, shown and counted, and nothing is
    trained. In Python, data frames and lists of dicts are saved in the run's directory. Values that are not set come
    from the task's recipe.

    Args:
        task: A declared task; or a file with options and keys of this command (.toml or .json), or the task.json of a
            run; leave it out for your tables.
        model: A model directory, a run that made one, a Hub id, or small-vectors, small or tiny, which come with the
            package (English).
        output: The run's directory, resumed if it exists; without it the rows are shown, and nothing is trained.
        replace: Remove an earlier run in OUTPUT, and begin anew.
        train: The training file; with TASK, a replacement of the official file in its layout.
        dev: The development file, or for your tables a share of the training rows that is held out; 0.1 when not
            set.
        test: Your tables: a file that is scored once, at the end, and chooses nothing.
        data: A declared task's data folder: files in DATA/TASK/ or in DATA itself.
        frozen: Only the linear head, on frozen features, with the best regularisation by cross-validation.
        teacher: A model fine-tuned on the same task, for distillation: a directory, a run, or a Hub id.
    """
    given = given_options(finetune, dict(locals()))
    columns = Columns(**{name: given[name] for name in COLUMNS if name in given})
    inputs = read_inputs(task, train, dev, test, data, model, teacher, columns)
    chosen = read_keys(FinetuneKeys, keys)
    folder = None if output is None else Path(output)
    inputs.check("albert finetune", folder)
    chosen.check(inputs.teacher, frozen)
    settings = chosen.training.settings(frozen, inputs.teacher, device)
    with imports():
        from albert.finetuning.task_run import finetune as finetune_task
        from albert.report.runs import result_of_rows

    # What is learned, and the rows, which are shown. What the model does not allow is refused before.
    start = start_of(inputs.model, chosen)
    learned, read = learned_task("albert finetune", inputs, chosen, keys)
    report = None
    if folder is None or read is not None:
        report = report_rows(learned, read, inputs, chosen, on_rows)
    if read is not None:
        read.check()
    if folder is None:
        statistics = to_json(report and report.statistics)
        return result_of_rows(learned, report, {"statistics": statistics})

    # The run.
    found = finetune_task(
        learned,
        start,
        inputs.data or Path(),
        folder,
        chosen.recipe,
        settings,
        announce=on_start,
        replace=replace,
        read_from=inputs.paths(read),
    )
    return result_of_run(found, folder, learned)


# --------------------------------------------------------------------------------------------------------------------
# What is read, and what is refused before that.

COLUMNS = tuple(each.name for each in dataclasses.fields(Columns))
"""The parameters of a command that are fields of `Columns`."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Inputs:
    """What `finetune` and `sweep` read.

    Attributes:
        task: the name of a declared task; None for the user's tables.
        base: the task in the task.json of a run, which the options change.
        task_file: that file.
        dev: a file, or a share of the training rows.
    """

    task: str | None
    base: TableTask | None
    task_file: Path | None
    train: Path | None
    dev: Path | float | None
    test: Path | None
    data: Path | None
    model: str
    teacher: str | None
    columns: Columns

    def check(self, program: str, output: Path | None) -> None:
        """Raise an error for what is missing or does not exist; `program` is the subject."""
        check_options(SimpleNamespace(**{**vars(self), "output": output}), resumes=True)
        if self.task is not None:
            check_data(self.task, self.data, has_files=self.train is not None and isinstance(self.dev, Path))
        elif self.train is None and self.base is None:
            refuse_missing_rows(program, self.columns)

    def paths(self, read: "ReadTask | None") -> list[Path]:
        """The files and folders that a run reads; of the user's tables also those that its task names."""
        tables = () if read is None else (read.table_task.train, read.table_task.dev)
        others = (self.task_file, self.train, self.dev, self.test, self.data, self.model, self.teacher)
        paths = [Path(each) for each in (*tables, *others) if isinstance(each, str | Path)]
        return [path for path in paths if path.exists()]


def read_inputs(
    task: PathLike | None,
    train: Rows | None,
    dev: float | Rows | None,
    test: Rows | None,
    data: PathLike | None,
    model: PathLike,
    teacher: PathLike | None,
    columns: Columns,
) -> Inputs:
    """The inputs of `finetune` and `sweep`."""
    base = None
    file = None
    name = None if task is None else os.fspath(task)
    if name is not None and is_options_file(name):
        file = Path(name)
        base = load_table_task(file)
        name = None
    return Inputs(
        task=name,
        base=base,
        task_file=file,
        train=file_of(train),
        dev=share_of(dev) if isinstance(dev, int | float) else file_of(dev),
        test=file_of(test),
        data=None if data is None else Path(data),
        model=os.fspath(model),
        teacher=None if teacher is None else os.fspath(teacher),
        columns=columns,
    )


def share_of(dev: float) -> float:
    """The share of the rows to hold out; raises UsageError for one that leaves none on a side."""
    if not 0 < dev < 1:
        raise UsageError("--dev", f"is {dev:g}", "give a share above 0 and below 1, or a file")
    return float(dev)


def refuse_missing_rows(program: str, columns: Columns) -> None:
    """Raise UsageError because there are no rows to learn from; `program` is the subject."""
    why = "no training file" if columns.given() else "no task"
    raise UsageError(program, why, "name a declared task, or your own file with --train")


# --------------------------------------------------------------------------------------------------------------------
# The task.


def learned_task(
    program: str, inputs: Inputs, chosen: FinetuneKeys, keys: Mapping[str, Any], is_divided: bool = True
) -> "tuple[DeclaredTask, ReadTask | None]":
    """What is learned; of the user's tables also how they were read.

    Args:
        program: the command, for errors.
        keys: those that are given.
        is_divided: whether a part of the training rows is held out if there is no development file.
    """
    if inputs.task is not None:
        return with_span_head(declared_task(inputs, keys), keys, chosen.training.span_head), None
    read = read_own_table(program, inputs, chosen, is_divided)
    return with_span_head(read.task, keys, chosen.training.span_head), read


def read_own_table(program: str, inputs: Inputs, chosen: FinetuneKeys, is_divided: bool) -> "ReadTask":
    """The user's own task, from the options, the task of a run, and the rows."""
    from albert.columns.read import read_task

    share = inputs.dev if isinstance(inputs.dev, float) else None
    dev = inputs.dev if isinstance(inputs.dev, Path) else None
    own = inputs.columns.task(chosen.table, inputs.base, train=inputs.train, dev=dev)
    if share is not None:
        own = dataclasses.replace(own, dev=None)
    if own.train is None:
        refuse_missing_rows(program, inputs.columns)
    if inputs.data is not None:
        raise UsageError("--data", "requires a declared task, this is your table", "leave it out")
    held_out = HeldOut(share=own.held_out.share if share is None else share, seed=chosen.training.seed)
    read = read_task(dataclasses.replace(own, held_out=held_out), hold_out=is_divided)
    if inputs.test is not None:
        read = with_test_file(read, inputs.test)
    return read


def with_test_file(read: "ReadTask", test: Path) -> "ReadTask":
    """The task with a further file that is scored. What was said about the format of files holds for it only if it has
    the ending of one of them."""
    from albert.columns.read import TableSource, for_other_file

    read_alone = TableSource(for_other_file(read.table_task, test), read.tables).with_files({"test": test})
    source = TableSource(read.table_task, read_alone.tables)
    task = dataclasses.replace(read.task, source=source, further_splits=("test",))
    return dataclasses.replace(read, task=task)


def declared_task(inputs: Inputs, keys: Collection[str]) -> DeclaredTask:
    """A declared task, with other files if they are given."""
    from albert.tasks.submission import find_task

    assert inputs.task is not None
    name = inputs.task
    of_tables = [*inputs.columns.given(), *(each.name for each in keys_in(TableKeys) if each.name in keys)]
    if inputs.test is not None:
        of_tables.append("--test")
    if of_tables:
        raise UsageError(of_tables[0], f"requires your tables, the task {name} has its own columns")
    if isinstance(inputs.dev, float):
        raise UsageError(f"--dev {inputs.dev:g}", f"requires your tables, the task {name} has a file of its own")
    task = find_task(name)
    named = {"train": inputs.train, "dev": inputs.dev}
    files = {split: path for split, path in named.items() if isinstance(path, Path)}
    return dataclasses.replace(task, source=task.source.with_files(files))


OF_SPANS = {"span_head": None, "stride": None, "null_threshold": USUAL_TRAINING.null_threshold}
"""Keys of tasks whose answers are spans, and their defaults."""


def with_span_head(task: DeclaredTask, keys: Mapping[str, Any], span_head: SpanHeadKind | None) -> DeclaredTask:
    """The task, if its answers are spans with the chosen head. Raises UsageError for options of other tasks."""
    if "question_length" in keys and not isinstance(task.inputs, QuestionInContext):
        raise UsageError("question_length", f"requires a task with questions, {task.title} has none")
    if isinstance(task.target, Span):
        target = dataclasses.replace(task.target, head=span_head or task.target.head)
        return dataclasses.replace(task, target=target)
    for name in ("span_head", "stride", "null_threshold"):
        if keys.get(name, OF_SPANS[name]) != OF_SPANS[name]:  # a file may hold all keys with their defaults
            raise UsageError(name, f"requires a task whose answers are spans, {task.title} has none")
    return task


def report_rows(
    task: DeclaredTask,
    read: "ReadTask | None",
    inputs: Inputs,
    chosen: FinetuneKeys,
    on_rows: "Callable[[DataReport], None]",
) -> "DataReport | None":
    """Tell `on_rows` how the rows are read, before training; only the first process does."""
    from albert.finetuning.fill_in import given_values

    max_length = given_values(task, chosen.recipe)[0].max_length
    if not world().is_first:
        return None
    drawn = chosen.training.max_train_examples
    report = report_on_rows(task, read, inputs.data, inputs.model, max_length, drawn)
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
    from albert.checkpoints.hub import find_model
    from albert.columns.statistics import unknown_texts
    from albert.report.reading import DataReport
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


def start_of(model: str, chosen: FinetuneKeys) -> "Start":
    """The source of the initial weights; raises InvalidConfiguration for changes that the model does not allow."""
    from albert.finetuning.initial_model import PretrainedEncoder, beginning_of, random_encoder_like

    encoder = PretrainedEncoder(model, chosen.architecture, chosen.keep_head)
    beginning_of(encoder)
    return random_encoder_like(encoder) if chosen.init == "random" else encoder


# --------------------------------------------------------------------------------------------------------------------
# The result.


def result_of_run(found: "FinetuningResult", output: Path, task: DeclaredTask | None) -> "Result":
    """The result of a single run; its curves are drawn."""
    from albert.report import runs
    from albert.report.curves import draw_curves
    from albert.runtime.devices import default_precision, pick_device

    if world().is_first:
        draw_curves(output)
    return runs.result_of_run(
        found.report,
        output,
        model=found.model_directory,
        task=task,
        already_complete=found.already_complete,
        usual_precision=default_precision(pick_device()),
    )


# --------------------------------------------------------------------------------------------------------------------
# The command line.


def show_finetune(**arguments: Any) -> None:
    """Run `albert finetune`, and print what is read, the settings and the result."""
    console = open_console()
    is_preview = arguments.get("output") is None

    def show_rows(report: "DataReport") -> None:
        print_parts(console, report.in_full() if is_preview else report.in_brief())

    def show_start(figures: Mapping[str, Any]) -> None:
        print_parts(console, start_lines(figures))

    result = finetune(**arguments, on_rows=show_rows, on_start=show_start)
    if is_preview:
        keys = words_of([option for option in definition_of(finetune).options if option.is_key], arguments)
        if keys:
            console.print(f"keys of a run: {' '.join(keys)}")
        console.print("nothing was trained: --output RUN trains a model in this directory")
        return
    print_result(console, result)


finetune_main = on_command_line(finetune, run=show_finetune)
