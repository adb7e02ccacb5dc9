"""`albert sweep` and `albert.sweep`: several fine-tuning runs, and one table of their scores.

The runs differ in their seed, in the rows that score them, in their learning rate, or in the task of a benchmark."""

import dataclasses
import shlex
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from albert.cli.command_line import words_of
from albert.cli.main import imports
from albert.cli.render import open_console, print_parts, print_result
from albert.cli.signature import PathLike, Rows, given_options, keys_in, option_name, read_keys
from albert.commands.checks import is_benchmark
from albert.commands.columns import Columns, LabelKind, TableKeys
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
from albert.runtime.environment import world
from albert.runtime.errors import UsageError
from albert.tasks.declared import DeclaredTask

if TYPE_CHECKING:
    from albert.finetuning.comparisons import Comparison
    from albert.finetuning.fill_in import RecipeLike
    from albert.finetuning.seeds import BenchmarkResult, SeedsResult
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
    """Fine-tune several times, with other seeds, folds or learning rates, or on every task of a benchmark.

    The runs are directories in OUTPUT. The same call resumes runs that were stopped, and keeps those that are complete.
    In Python, data frames and lists of dicts are saved in OUTPUT. Values that are not set come from the task's recipe.

    Args:
        task: A declared task, or a benchmark; or a file with options and keys of this command (.toml or .json), or the
            task.json of a run; leave it out for your tables.
        model: A model directory, a run that made one, a Hub id, or small-vectors, small or tiny, which come with the
            package (English).
        output: The directory of the runs, resumed if it exists.
        replace: Remove earlier runs in OUTPUT, and begin anew.
        seeds: Number of runs, with seeds from the key seed on, in OUTPUT/seed-0 and so on; their median and spread are
            reported. Of a benchmark, the number for each task; 1 when not set.
        folds: Your tables: divide the rows into so many parts, and score each by a model that is trained on the
            others, in OUTPUT/fold-1 and so on. For small tables.
        rates: Your tables: train with each of these learning rates, in OUTPUT/rate-0.0001 and so on, and choose the
            one with the best development score.
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
    benchmark = inputs.task.lower() if inputs.task is not None and is_benchmark(inputs.task) else None
    if benchmark is not None:
        refuse_options_of_one_task(benchmark, given, inputs)
    else:
        require_one_choice(given)
        refuse_options_of_own_tables(inputs, given)
    learning_rates = (rates,) if isinstance(rates, int | float) else tuple(rates or ())
    if rates is not None and chosen.recipe.learning_rate is not None:
        raise UsageError("learning_rate", "cannot be combined with --rates", "leave it out")
    if rates is not None and frozen:
        raise UsageError("--rates", "has no effect with --frozen, whose head is solved", "leave one of them out")
    with imports():
        from albert.finetuning.comparisons import compare_folds, compare_rates, fold_tasks, recipes_of
        from albert.finetuning.seeds import check_benchmark, check_seeds, finetune_benchmark, finetune_seeds
        from albert.finetuning.task_run import check_run
        from albert.tasks.submission import BENCHMARKS

    settings = chosen.training.settings(frozen, inputs.teacher, device)
    start = start_of(inputs.model, chosen)
    n_seeds = 1 if seeds is None else seeds
    check_seeds(n_seeds)

    # A benchmark: all of its tasks.
    if benchmark is not None:
        assert inputs.data is not None  # checked above
        runs = (benchmark, BENCHMARKS[benchmark], start, inputs.data, folder, chosen.recipe, settings)
        if replace:
            check_benchmark(*runs)
            remove_runs(folder, inputs.paths(None))
        return result_of_benchmark(finetune_benchmark(*runs, n_seeds), folder)

    # One task: a declared one, or the user's table.
    if folds is not None and inputs.task is None:
        refuse_development_rows(inputs)
    learned, read = learned_task("albert sweep", inputs, chosen, keys, is_divided=folds is None)
    if read is not None:
        report_rows(learned, read, inputs, chosen, on_rows)
        read.check()

    # The runs. What is impossible is refused before earlier ones are removed.
    data_folder = inputs.data or Path()
    first = learned
    recipe: RecipeLike = chosen.recipe
    if rates is not None:
        recipe = recipes_of(learned, chosen.recipe, learning_rates)[learning_rates[0]]
    if folds is not None:
        first = fold_tasks(learned, folds, chosen.training.seed)[0]
    if replace:
        check_run(first, start, data_folder, folder, recipe, settings)
        remove_runs(folder, inputs.paths(read))
    runs = (learned, start, data_folder, folder, chosen.recipe, settings)
    if rates is not None:
        return result_of_comparison(compare_rates(*runs, learning_rates, on_start), folder, learned)
    if folds is not None:
        return result_of_comparison(compare_folds(*runs, folds, on_start), folder, learned)
    return result_of_seeds(finetune_seeds(*runs, n_seeds, on_start), folder, learned)


# --------------------------------------------------------------------------------------------------------------------
# What is refused before anything is read.

CHOICES = ("seeds", "folds", "rates")
OF_ONE_TASK = {
    **{name: f"--{name}" for name in ("test", "folds", "rates", "train", "dev")},
    **{name: name for name in ("span_head", "keep_head")},
}
"""What needs a single task -> how it is spelled."""


def remove_runs(output: Path, read_from: list[Path]) -> None:
    """Remove earlier runs in `output`; raises CannotCreate if it holds what these runs read."""
    if world().is_first:
        from albert.training.run_folder import remove_run

        remove_run(output, read_from)


def require_one_choice(given: Collection[str]) -> None:
    """Raise UsageError unless the options say in one way how the runs differ."""
    chosen = [option_name(name) for name in CHOICES if name in given]
    if not chosen:
        remedy = "--seeds 5 for several seeds, --folds 5 for cross-validation, --rates 1e-4 5e-4 for learning rates"
        raise UsageError("albert sweep", "does not say how the runs differ", f"give one of {remedy}")
    if len(chosen) > 1:
        raise UsageError(chosen[1], f"cannot be combined with {chosen[0]}", "give one of them")


def refuse_options_of_own_tables(inputs: Inputs, given: Collection[str]) -> None:
    """Raise UsageError for folds or rates of a declared task."""
    for name in ("folds", "rates"):
        if inputs.task is not None and name in given:
            why = f"requires your tables, the task {inputs.task} has its own columns"
            raise UsageError(option_name(name), why)


def refuse_options_of_one_task(benchmark: str, given: Collection[str], inputs: Inputs) -> None:
    """Raise UsageError for options that need a single task."""
    of_tables = [*inputs.columns.given(), *(each.name for each in keys_in(TableKeys) if each.name in given)]
    changed = of_tables + [spelled for name, spelled in OF_ONE_TASK.items() if name in given]
    if changed:
        raise UsageError(changed[0], f"requires a single task, {benchmark} has many")


def refuse_development_rows(inputs: Inputs) -> None:
    """Raise UsageError for folds with development rows, chosen by a file or by a share."""
    if inputs.dev is not None or (inputs.base is not None and inputs.base.dev is not None):
        raise UsageError("--dev", "cannot be combined with --folds, each fold is a development set", "leave it out")


# --------------------------------------------------------------------------------------------------------------------
# Results.


def result_of_seeds(found: "SeedsResult", output: Path, task: DeclaredTask) -> "Result":
    """The result of runs with several seeds: medians, and the best model."""
    from albert.report import runs
    from albert.training.run_folder import RunFolder

    best = found.best.directory
    return runs.result_of_seeds(found.to_json(), output, best, RunFolder(best).model_path, task)


def result_of_comparison(found: "Comparison", output: Path, task: DeclaredTask) -> "Result":
    """The result of runs that are compared; folds leave no model, and their baselines are means over the folds."""
    from albert.report import runs
    from albert.training.run_folder import RunFolder

    return runs.result_of_comparison(
        found.to_json(),
        output,
        scores=found.scores,
        typical=found.typical.directory,
        why_typical=found.why_typical,
        failures=[f"{run.name}: {run.divergence}" for run in found.runs if run.divergence is not None],
        model=RunFolder(found.best.directory).model_path if found.by == "rate" else None,
        task=task,
    )


def result_of_benchmark(found: "BenchmarkResult", output: Path) -> "Result":
    """The result of all tasks of a benchmark: scores are called TASK/SCORE."""
    from albert.report import runs
    from albert.training.run_folder import RunFolder

    models = {each.task.name: RunFolder(Path(each.best_model)).model_path for each in found.outcomes if each.best_model}
    return runs.result_of_benchmark(found.to_json(), output, models)


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
