"""`albert sweep` and `albert.sweep`: several fine-tuning runs, and one table of their scores.

The runs differ in their seed, in the rows that score them, in their learning rate, or in the task of a benchmark."""

from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Annotated, Any, Literal

from albert.api.checks import check_data, check_options, is_benchmark
from albert.api.options import (
    GROUP,
    KEY,
    KEYS,
    ROWS,
    Argument,
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
from albert.commands.finetune import (
    ARCHITECTURE,
    NO_ARCHITECTURE,
    NO_CHANGES,
    declared_task,
    paths_read,
    read_own_table,
    refuse_contradictions,
    refuse_missing_rows,
    report_rows,
    say_what_was_read,
    start_of,
    task_file_or_name,
    with_span_head,
    with_task_file,
)
from albert.recipes.architecture import ArchitectureChanges
from albert.recipes.finetuning import USUAL_TRAINING, Device, RecipeChanges, TrainingOptions
from albert.runtime.environment import world
from albert.runtime.errors import UsageError
from albert.tasks.declared import DeclaredTask

if TYPE_CHECKING:
    from albert.api.results import DataReport, FinetuneResult
    from albert.finetuning.comparisons import Comparison
    from albert.finetuning.options import RecipeLike
    from albert.finetuning.seeds import BenchmarkResult, SeedsResult

LISTENER = Argument(only_python=True)


def sweep(
    task: str | None = None,
    *,
    model: str,
    output: Path,
    replace: bool = False,
    seeds: int | None = None,
    folds: int | None = None,
    rates: tuple[float, ...] | None = None,
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
    """Fine-tune several times, with other seeds, folds or learning rates, or on every task of a benchmark.

    The runs are directories in OUTPUT. The same call resumes runs that were stopped, and keeps those that are complete.
    In Python, data frames and lists of dicts are saved in OUTPUT. Values that are not set come from the task's recipe.

    Args:
        task: A declared task, or a benchmark; or a file with options and keys of this command (.toml or .json), or the
            task.json of a run; leave it out for your own tables.
        model: A model directory, a run that made one, a Hub id, or small-vectors, small or tiny, which come with the
            package (English).
        output: The directory of the runs, resumed if it exists.
        replace: Remove earlier runs in OUTPUT, and begin anew.
        seeds: Number of runs, with seeds from the key seed on, in OUTPUT/seed-0 and so on; their median and spread are
            reported. Of a benchmark, the number for each task; 1 when not set.
        folds: Your own tables: divide the rows into so many parts, and score each by a model that is trained on the
            others, in OUTPUT/fold-1 and so on. For small tables.
        rates: Your own tables: train with each of these learning rates, in OUTPUT/rate-0.0001 and so on, and choose the
            one with the best development score.
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
    given = changed_parameters(sweep, options)
    base, task = task_file_or_name(task)
    check_options(SimpleNamespace(**options), resumes=True)
    if task is not None:
        check_data(task, data, has_files=train is not None and isinstance(dev, Path))
    elif train is None and base is None:
        refuse_missing_rows("albert sweep", table)
    refuse_contradictions(init, keep_head, changes)
    training.check(changes, teacher)
    if task is not None and is_benchmark(task):
        refuse_options_of_one_task(task.lower(), given, table)
    else:
        require_one_choice(given)
    if rates is not None and changes.learning_rate is not None:
        raise UsageError("learning_rate", "cannot be combined with --rates", "leave it out")
    if rates is not None and frozen:
        raise UsageError("--rates", "has no effect with --frozen, whose head is solved", "leave one of them out")
    with imports():
        from albert.finetuning.comparisons import compare_folds, compare_rates, fold_tasks, recipes_of
        from albert.finetuning.run import check_run
        from albert.finetuning.seeds import check_benchmark, check_seeds, finetune_benchmark, finetune_seeds
        from albert.tasks.submission import BENCHMARKS

    settings = training.settings(frozen, teacher, device)
    n_seeds = 1 if seeds is None else seeds
    check_seeds(n_seeds)
    inputs = (options["task"], train, dev, test, data, model, teacher)

    # A benchmark: all of its tasks.
    if task is not None and is_benchmark(task):
        assert data is not None  # checked above
        start = start_of(model, architecture, keep_head, init)
        average = BENCHMARKS[task.lower()]
        if replace:
            check_benchmark(task.lower(), average, start, data, output, changes, settings)
            remove_runs(output, paths_read(None, inputs))
        found = finetune_benchmark(task.lower(), average, start, data, output, changes, settings, n_seeds)
        return result_of_benchmark(found, output)

    # One task: a declared one, or the user's own table.
    read = None
    if task is None:
        if folds is not None:
            refuse_development_rows(dev if base is None else dev or base.dev)
        read = read_own_table(
            "albert sweep", given, table, train, dev, test, training.seed, base, is_divided=folds is None
        )
        learned = read.task
    else:
        learned = declared_task(task, given, table, train, dev)
    learned = with_span_head(learned, given, training.span_head)
    if read is not None:
        report_rows(learned, read, data, model, changes, training.max_train_examples, on_rows)
        read.check()

    # The runs. What is impossible is refused before earlier ones are removed.
    first = learned
    recipe: RecipeLike = changes
    if rates is not None:
        recipe = recipes_of(learned, changes, rates)[rates[0]]
    if folds is not None:
        first = fold_tasks(learned, folds, training.seed)[0]
    start = start_of(model, architecture, keep_head, init)
    if replace:
        check_run(first, start, data or Path(), output, recipe, settings)
        remove_runs(output, paths_read(read, inputs))
    arguments = (learned, start, data or Path(), output, changes, settings)
    if rates is not None:
        return result_of_comparison(compare_rates(*arguments, rates, on_start), output, learned)
    if folds is not None:
        return result_of_comparison(compare_folds(*arguments, folds, on_start), output, learned)
    return result_of_seeds(finetune_seeds(*arguments, n_seeds, on_start), output, learned)


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


def require_one_choice(given: Mapping[str, Any]) -> None:
    """Raise UsageError unless the options say in one way how the runs differ."""
    chosen = [option_name(name) for name in CHOICES if name in given]
    if not chosen:
        remedy = "--seeds 5 for several seeds, --folds 5 for cross-validation, --rates 1e-4 5e-4 for learning rates"
        raise UsageError("albert sweep", "does not say how the runs differ", f"give one of {remedy}")
    if len(chosen) > 1:
        raise UsageError(chosen[1], f"cannot be combined with {chosen[0]}", "give one of them")


def refuse_options_of_one_task(benchmark: str, given: Mapping[str, Any], table: TableOptions) -> None:
    """Raise UsageError for options that need a single task."""
    changed = changed_options(table) + [spelled for name, spelled in OF_ONE_TASK.items() if name in given]
    if changed:
        raise UsageError(changed[0], f"requires a single task, {benchmark} has many")


def refuse_development_rows(dev: float | Path | None) -> None:
    """Raise UsageError for folds with development rows, chosen by a file or by a share."""
    if dev is not None:
        raise UsageError("--dev", "cannot be combined with --folds, each fold is a development set", "leave it out")


# --------------------------------------------------------------------------------------------------------------------
# Results.


def result_of_seeds(found: "SeedsResult", output: Path, task: DeclaredTask) -> "FinetuneResult":
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


def result_of_comparison(found: "Comparison", output: Path, task: DeclaredTask) -> "FinetuneResult":
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
# The command line.


def sweep_command(arguments: list[str]) -> None:
    """Read the options of `albert sweep`, run it, and print what is read, the settings and the scores of all runs."""
    shape = shape_of(sweep)
    is_help = any(word in HELP_FLAGS for word in arguments)
    given = {} if is_help else with_task_file(shape, typed_values(options_of(shape), arguments, "albert sweep"))
    options = parse(shape, arguments, "albert sweep", given=given)
    console = open_console()

    def show_rows(report: "DataReport") -> None:
        from albert.commands.finetune_output import show_data_of_run

        show_data_of_run(console, report)

    def show_start(figures: Mapping[str, Any]) -> None:
        from albert.commands.finetune_output import show_settings

        show_settings(console, figures)

    result = sweep(**vars(options), on_rows=show_rows, on_start=show_start)
    from albert.commands.finetune_output import show_finetuned

    show_finetuned(console, result)


sweep_main = Subcommand(shape_of(sweep), "albert sweep", sweep_command)
