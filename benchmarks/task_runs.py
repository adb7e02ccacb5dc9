"""The real fine-tuning runs: each task from a pre-trained model and from random weights, over several seeds.

    python benchmarks/task_runs.py --model runs/small --data data data/glue --output runs/tasks \
        --files squad-1.1/train=squad/part.json race-middle/train=race/train.jsonl race-middle/dev=race/dev.jsonl
    python benchmarks/task_runs.py --model runs/small --data data/glue --output runs/tasks --tasks rte mrpc --seeds 5

What is run is declared in `GRID`, in sizes that two cores can do; every flag that shortens a run goes for all of it.
The same command goes on where it was stopped and skips what is finished. One row for each task and start in the CSV:
median, lowest and highest of the seeds by the task's first score, with the constant answer and the classical model
(classical_baselines.py) beside.
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
from albert.finetuning.run_record import RESULTS_NAME, FinetuningSettings
from albert.finetuning.seeds import SeedsResult, finetune_seeds
from albert.runtime.environment import Precision
from albert.runtime.errors import Diverged
from albert.runtime.json_files import read_json_object
from albert.tasks.task import TaskRecipe

Init = Literal["pretrained", "random"]
COLUMNS = (
    "task", "init", "model", "metric", "median", "lowest", "highest", "runs", "failed", "constant", "classical",
    "other_medians", "train_examples", "dev_examples", "steps", "learning_rate", "seconds_of_a_run",
)  # fmt: skip
WHAT = ("task", "init", "model", "train_examples", "steps", "learning_rate")


@dataclass(frozen=True)
class Cell:
    """One task of the grid: how long, how fast, and from how many examples (None: all) it is learnt."""

    epochs: float
    max_train_examples: int | None = None
    learning_rate: float = 2e-4
    max_length: int = 256


GRID = {
    "sst-2": Cell(epochs=2),
    "cola": Cell(epochs=10),
    "rte": Cell(epochs=5),
    "mrpc": Cell(epochs=7),
    "sts-b": Cell(epochs=5),
    "qnli": Cell(epochs=2, max_length=128),
    **dict.fromkeys(("squad-1.1", "squad-2.0"), Cell(epochs=2, max_length=384)),
    "race-middle": Cell(epochs=2, max_train_examples=500, max_length=256),
}


@dataclass(frozen=True, kw_only=True)
class Runs:
    """Fine-tune on the tasks of the grid."""

    model: str
    """The pre-trained model: a directory, a run, or a Hub id."""
    data: tuple[Path, ...]
    """Folders of task files; of each task the first that has its development set."""
    files: tuple[str, ...] = ()
    """TASK/SPLIT=FILE: a file in the place of the published one, a part of a training set say."""
    output: Path
    """A folder for all runs."""
    tasks: tuple[str, ...] = tuple(GRID)
    inits: tuple[Init, ...] = ("pretrained", "random")
    """random: the same architecture without its weights, as a control."""
    seeds: int = 3
    steps: int | None = None
    """Updates of every run, in place of the grid's epochs."""
    max_length: int | None = None
    """Most tokens, in place of the grid's."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    precision: Precision | None = None
    """bf16 on a GPU and fp32 on a CPU when not set."""
    plan: bool = False
    """Only say what would be run."""
    classical: Path = Path("results/benchmark-classical-baselines.csv")
    """What classical_baselines.py wrote."""
    table: Path = Path("results/benchmark-task-runs.csv")


def measure(asked: Runs) -> Iterator[dict[str, object]]:
    """A row for each task and start, all seeds of which are run, or found to be finished."""
    most_positions = read_config(find_model(asked.model))[0].max_position_embeddings
    for name, cell in zip(asked.tasks, harness.chosen("--tasks", asked.tasks, GRID), strict=True):
        found = find_files(name, asked.data, asked.files)
        published = found.task.recipe
        recipe = replace(
            published, learning_rate=cell.learning_rate, epochs=None if asked.steps else cell.epochs, steps=asked.steps,
            examples=None, max_length=min(asked.max_length or cell.max_length, published.max_length, most_positions),
        )  # fmt: skip
        train = len(found.examples("train"))
        examples = min(train, cell.max_train_examples or train)
        print(f"{name}: {examples:,} training rows, {recipe.total_steps(examples):,} steps of {recipe.batch_size}, "
              f"{len(found.dev.rows):,} to answer; {asked.seeds * len(asked.inits)} runs", flush=True)  # fmt: skip
        for init in () if asked.plan else asked.inits:
            yield _row(found, recipe, examples, init, asked)


def _row(found: FoundTask, recipe: TaskRecipe, examples: int, init: Init, asked: Runs) -> dict[str, object]:
    task = found.task
    encoder = PretrainedEncoder(asked.model)
    start = encoder if init == "pretrained" else random_encoder_like(encoder)
    settings = FinetuningSettings(
        max_train_examples=GRID[task.name].max_train_examples, device=asked.device, precision=asked.precision
    )
    known = {"task": task.name, "init": init, "model": "/".join(Path(asked.model).parts[-2:])}
    known |= {"learning_rate": f"{recipe.learning_rate:g}", "train_examples": examples}
    place = asked.output / f"{task.name}-{init}"
    try:
        result = finetune_seeds(task, start, found.data, place, recipe, settings, asked.seeds)
    except Diverged:
        return {**known, "steps": recipe.total_steps(examples), "runs": asked.seeds, "failed": asked.seeds}
    return known | _figures(result) | {"classical": _classical(asked.classical, task.name, result)}


def _figures(result: SeedsResult) -> dict[str, object]:
    name, spread = next(iter(result.spreads.items()))
    constant = (result.baseline or {}).get(name)
    others = {other: median for other, median in result.medians.items() if other != name and "thresh" not in other}
    paths = (run.directory / RESULTS_NAME for run in result.runs)
    reports = [read_json_object(path) for path in paths if path.is_file()]  # of the runs that came to their end
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
        "seconds_of_a_run": f"{np.median([each['training']['seconds'] for each in reports]):.0f}",
    }


def _classical(table: Path, task: str, result: SeedsResult) -> str:
    """The newest score of a classical model, empty where none was measured."""
    metric = next(iter(result.spreads))
    rows = harness.read_rows(table)
    return next((row["score"] for row in reversed(rows) if (row["task"], row["metric"]) == (task, metric)), "")


main = harness.script(Runs, COLUMNS, measure, same=WHAT, table="table")

if __name__ == "__main__":
    main()
