"""Fine-tuning runs at full size: each task from a pre-trained model and from random weights, over several seeds.

    python dev/benchmarks/task_runs.py --model runs/small --data data data/glue --output runs/tasks \
        --files squad-1.1/train=squad/part.json race-middle/train=race/train.jsonl race-middle/dev=race/dev.jsonl
    python dev/benchmarks/task_runs.py --model runs/small --data data/glue --output runs/tasks \
        --tasks rte mrpc --seeds 5

`GRID` declares how the runs differ from the defaults of `albert finetune`, in sizes for two cores; flags that shorten a
run apply to all of them. The same command resumes stopped runs and skips finished ones. The CSV has one row for each
task and start: median, lowest and highest of the seeds by the task's first score, and those of the constant answer and
the classical model (classical_baselines.py).
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import harness
import numpy as np
from task_files import FoundTask, find_files

from albert.checkpoints.hub import find_model
from albert.checkpoints.model_directory import read_config
from albert.finetuning.model import PretrainedEncoder, random_encoder_like
from albert.finetuning.options import LearningPlan, plan_learning, requested_recipe
from albert.finetuning.run_record import FinetuningSettings
from albert.finetuning.seeds import SeedsResult, finetune_seeds
from albert.runtime.environment import Precision
from albert.runtime.errors import Diverged
from albert.runtime.json_files import read_json_object
from albert.tasks.table_task import RecipeChanges
from albert.training.run_folder import RESULTS_NAME

Init = Literal["pretrained", "random"]
COLUMNS = (
    "task", "init", "model", "metric", "median", "lowest", "highest", "runs", "failed", "constant", "classical",
    "other_medians", "train_examples", "dev_examples", "steps", "learning_rate", "seconds_of_a_run",
)  # fmt: skip
WHAT = ("task", "init", "model", "train_examples", "steps", "learning_rate")


GRID = {
    "sst-2": RecipeChanges(epochs=2, max_length=128),
    "cola": RecipeChanges(epochs=10, learning_rate=1e-4, max_length=128),
    "rte": RecipeChanges(epochs=5, max_length=256),
    "mrpc": RecipeChanges(epochs=5, max_length=128),
    "sts-b": RecipeChanges(epochs=3, max_length=128),
    "qnli": RecipeChanges(epochs=1, max_length=128),
    "squad-1.1": RecipeChanges(epochs=1, batch_size=16, learning_rate=5e-4, max_length=384),
    "squad-2.0": RecipeChanges(epochs=2, batch_size=16, learning_rate=2.5e-4, max_length=384),
    "race-middle": RecipeChanges(epochs=1, batch_size=8, learning_rate=2.5e-4, max_length=320, encoder_dropout=0.0),
}


@dataclass(frozen=True, kw_only=True)
class Runs:
    """Fine-tune on the tasks of the grid."""

    model: str
    """The pre-trained model: a directory, a run, or a Hub id."""
    data: tuple[Path, ...]
    """Folders of task files; the first one with a task's development set is used."""
    files: tuple[str, ...] = ()
    """TASK/SPLIT=FILE: a file that replaces the published one, e.g. a part of a training set."""
    output: Path
    """A folder for all runs."""
    tasks: tuple[str, ...] = tuple(GRID)
    inits: tuple[Init, ...] = ("pretrained", "random")
    """random: the same architecture with random weights, as a control."""
    seeds: int = 3
    steps: int | None = None
    """Updates of every run, instead of the grid's epochs."""
    max_length: int | None = None
    """At most so many tokens, instead of the grid's."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    precision: Precision | None = None
    """bf16 on a GPU and fp32 on a CPU when not set."""
    plan: bool = False
    """Only print the runs."""
    classical: Path = Path("results/benchmark-classical-baselines.csv")
    """The table of classical_baselines.py."""
    table: Path = Path("results/benchmark-task-runs.csv")


def measure(args: Runs) -> Iterator[dict[str, object]]:
    """A row for each task and start, after all its seeds are finished."""
    config = read_config(find_model(args.model))[0]
    max_positions = config.max_position_embeddings
    for name, cell in zip(args.tasks, harness.select("--tasks", args.tasks, GRID), strict=True):
        inputs = find_files(name, args.data, args.files)
        length = min(args.max_length or cell.max_length or max_positions, max_positions)
        recipe = replace(cell, epochs=None if args.steps else cell.epochs, steps=args.steps, max_length=length)
        examples = len(inputs.examples("train"))
        plan = plan_learning(requested_recipe(inputs.task, recipe), config.hidden_size, examples)
        print(f"{name}: {examples:,} training rows, {plan.updates:,} steps of {plan.recipe.batch_size}, "
              f"{len(inputs.dev.rows):,} to answer; {args.seeds * len(args.inits)} runs", flush=True)  # fmt: skip
        for init in () if args.plan else args.inits:
            yield _row(inputs, recipe, plan, init, args)


def _row(inputs: FoundTask, recipe: RecipeChanges, plan: LearningPlan, init: Init, args: Runs) -> dict[str, object]:
    task = inputs.task
    encoder = PretrainedEncoder(args.model)
    start = encoder if init == "pretrained" else random_encoder_like(encoder)
    settings = FinetuningSettings(device=args.device, precision=args.precision)
    row = {"task": task.name, "init": init, "model": "/".join(Path(args.model).parts[-2:])}
    row |= {"learning_rate": f"{plan.recipe.learning_rate:.3g}", "train_examples": plan.examples}
    directory = args.output / f"{task.name}-{init}"
    try:
        result = finetune_seeds(task, start, inputs.data, directory, recipe, settings, args.seeds)
    except Diverged:
        return {**row, "steps": plan.updates, "runs": args.seeds, "failed": args.seeds}
    return row | _figures(result) | {"classical": _classical(args.classical, task.name, result)}


def _figures(result: SeedsResult) -> dict[str, object]:
    name, spread = next(iter(result.spreads.items()))
    constant = (result.baseline or {}).get(name)
    others = {other: median for other, median in result.medians.items() if other != name and "thresh" not in other}
    paths = (run.directory / RESULTS_NAME for run in result.runs)
    reports = [read_json_object(path) for path in paths if path.is_file()]  # of completed runs
    return {
        "metric": name,
        "median": f"{spread.median:.2f}",
        "lowest": f"{spread.lowest:.2f}",
        "highest": f"{spread.highest:.2f}",
        "runs": len(result.runs),
        "failed": len(result.failed),
        "constant": "" if constant is None else f"{constant:.2f}",
        "other_medians": ", ".join(f"{other} {median:.2f}" for other, median in others.items()),
        "dev_examples": reports[-1]["evaluation"]["examples"],
        "steps": reports[-1]["training"]["steps"],
        "seconds_of_a_run": f"{np.median([report['training']['seconds'] for report in reports]):.0f}",
    }


def _classical(table: Path, task: str, result: SeedsResult) -> str:
    """The newest score of a classical model, empty if none was measured."""
    metric = next(iter(result.spreads))
    rows = harness.read_rows(table)
    return next((row["score"] for row in reversed(rows) if (row["task"], row["metric"]) == (task, metric)), "")


main = harness.script(Runs, COLUMNS, measure, same=WHAT, table="table")

if __name__ == "__main__":
    main()
