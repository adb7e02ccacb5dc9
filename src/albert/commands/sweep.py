"""`albert sweep` and `albert.sweep`: several fine-tuning runs, and one table of their scores.

The runs differ in their seed, in the rows that score them, or in their learning rate."""

import dataclasses
import shlex
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from albert.cli.command_line import words_of
from albert.cli.main import imports
from albert.cli.render import open_console, print_parts, print_result
from albert.cli.signature import PathLike, Rows, given_options, option_name, read_keys
from albert.commands.columns import Columns, LabelKind
from albert.commands.finetune import (
    COLUMNS,
    FinetuneKeys,
    Inputs,
    finetune,
    learned_task,
    read_inputs,
    report_rows,
    say_what_was_read,
    start_of,
)
from albert.commands.function import command, definition_of, on_command_line
from albert.recipes.finetuning import Device
from albert.report.notes import start_lines
from albert.runtime.errors import UsageError

if TYPE_CHECKING:
    from albert.report.reading import DataReport
    from albert.report.result import Result


@command("albert sweep", keys=FinetuneKeys, rows="in output", reads_file=True)
def sweep(
    task: PathLike | None = None,
    *,
    model: PathLike,
    output: PathLike,
    replace: bool = False,
    seeds: int | None = None,
    folds: int | None = None,
    rates: float | Sequence[float] | None = None,
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
    """Fine-tune several times, with other seeds, folds or learning rates.

    The runs are directories in OUTPUT. The same call resumes runs that were stopped, and keeps those that are complete.
    In Python, data frames and lists of dicts are saved in OUTPUT. Values that are not set come from the task's recipe.

    Args:
        task: A declared task; or a file with options and keys of this command (.toml or .json), or the task.json of a
            run; leave it out for your tables.
        model: A model directory, a run that made one, a Hub id, or small-vectors, small or tiny, which come with the
            package (English).
        output: The directory of the runs, resumed if it exists.
        replace: Remove earlier runs in OUTPUT, and begin anew.
        seeds: Number of runs, with seeds from the key seed on, in OUTPUT/seed-0 and so on; their median, mean and
            standard deviation are reported.
        folds: Your tables: divide the rows into this number of parts, and score each by a model that is trained on the
            others, in OUTPUT/fold-1 and so on; all answers are in OUTPUT/predictions-out-of-fold.jsonl. For small
            tables.
        rates: Train with each of these learning rates, in OUTPUT/rate-0.0001 and so on, and choose the one with the
            best development score.
        train: The training file; with TASK, a replacement of the official file in its layout.
        dev: The development file, or for your tables a share of the training rows that is held out; 0.1 when not
            set.
        test: Your tables: a file that is scored once, at the end, and chooses nothing.
        data: A declared task's data folder: files in DATA/TASK/ or in DATA itself.
        frozen: Only the linear head, on frozen features, with the best regularisation by cross-validation.
        teacher: A model fine-tuned on the same task, for distillation: a directory, a run, or a Hub id.
    """
    given = given_options(sweep, dict(locals()))
    columns = Columns(**{name: given[name] for name in COLUMNS if name in given})
    inputs = read_inputs(task, train, dev, test, data, model, teacher, columns)
    chosen = read_keys(FinetuneKeys, keys)
    folder = Path(output)
    inputs.check("albert sweep", folder)
    chosen.check(inputs.teacher, frozen)
    require_one_choice(given)
    learning_rates = (rates,) if isinstance(rates, int | float) else tuple(rates or ())
    if rates is not None and chosen.recipe.learning_rate is not None:
        raise UsageError("learning_rate", "cannot be combined with --rates", "leave it out")
    if rates is not None and frozen:
        raise UsageError("--rates", "has no effect with --frozen, whose head is solved", "leave one of them out")
    if folds is not None:
        refuse_development_rows(inputs)
    settings = chosen.training.settings(frozen, inputs.teacher, device)
    with imports():
        from albert.finetuning.sweep import fold_variants, rate_variants, run_sweep, seed_variants
        from albert.report.runs import result_of_sweep

    # The task and its rows, which are shown.
    learned, read = learned_task("albert sweep", inputs, chosen, keys, is_divided=folds is None)
    if read is not None:
        report_rows(learned, read, inputs, chosen, on_rows)
        read.check()

    # The runs.
    start = start_of(inputs.model, chosen)
    data_folder = inputs.data or Path()
    if seeds is not None:
        by = "seed"
        variants = seed_variants(learned, chosen.recipe, settings, seeds)
    elif folds is not None:
        by = "fold"
        variants = fold_variants(learned, chosen.recipe, settings, folds)
    else:
        by = "rate"
        variants = rate_variants(learned, chosen.recipe, settings, learning_rates)
    read_from = inputs.paths(read)
    found = run_sweep(by, learned, variants, start, data_folder, folder, on_start, replace, read_from)
    shown, why_shown = found.shown
    return result_of_sweep(found.to_json(), folder, found.best.directory, shown.directory, why_shown, learned)


# --------------------------------------------------------------------------------------------------------------------
# What is refused before anything is read.

CHOICES = ("seeds", "folds", "rates")


def require_one_choice(given: Collection[str]) -> None:
    """Raise UsageError unless the options say in one way how the runs differ."""
    chosen = [option_name(name) for name in CHOICES if name in given]
    if not chosen:
        remedy = "--seeds 5 for several seeds, --folds 5 for cross-validation, --rates 1e-4 5e-4 for learning rates"
        raise UsageError("albert sweep", "does not say how the runs differ", f"give one of {remedy}")
    if len(chosen) > 1:
        raise UsageError(chosen[1], f"cannot be combined with {chosen[0]}", "give one of them")


def refuse_development_rows(inputs: Inputs) -> None:
    """Raise UsageError for folds with development rows: of a declared task, or chosen by a file or by a share."""
    if inputs.task is not None:
        raise UsageError("--folds", f"requires your tables, the task {inputs.task} has a development file of its own")
    if inputs.dev is not None or (inputs.base is not None and inputs.base.dev is not None):
        raise UsageError("--dev", "cannot be combined with --folds, each fold is a development set", "leave it out")


# --------------------------------------------------------------------------------------------------------------------
# The command line.


def show_sweep(**arguments: Any) -> None:
    """Run `albert sweep`, and print what is read, the settings and the scores of all runs."""
    console = open_console()

    def show_rows(report: "DataReport") -> None:
        print_parts(console, report.in_brief())

    def show_start(figures: Mapping[str, Any]) -> None:
        print_parts(console, start_lines(figures))

    result = sweep(**arguments, on_rows=show_rows, on_start=show_start)
    if arguments.get("folds") is not None:
        result = dataclasses.replace(result, shown=dataclasses.replace(result.shown, following=on_all_rows(arguments)))
    print_result(console, result)


def on_all_rows(arguments: Mapping[str, Any]) -> str:
    """The command that trains a model on the whole table, after folds have shown what to expect of it."""
    given = {name: value for name, value in arguments.items() if name not in ("folds", "replace")}
    words = words_of(definition_of(finetune).options, given | {"output": f"{arguments['output']}-model"})
    return shlex.join(["finetune", *words])


sweep_main = on_command_line(sweep, run=show_sweep)
