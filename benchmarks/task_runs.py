"""The real fine-tuning runs: each task from a pre-trained model and from random weights, over several seeds.

What is run is declared in `GRID`, in sizes that two cores can do; every flag that shortens a run goes for all of it.
The plan and what it may cost come first. The same command goes on where it was stopped and skips what is finished. One
row for each task and start in the CSV: median, lowest and highest of the seeds by the task's first score, with the
constant answer and the classical model (classical_baselines.py) beside; a table in Markdown and a figure lie beside the
runs.

    python benchmarks/task_runs.py --model runs/small --data data data/glue --output runs/tasks \
        --files squad-1.1/train=squad/part.json race-middle/train=race/train.jsonl race-middle/dev=race/dev.jsonl
    python benchmarks/task_runs.py --model runs/small --data data/glue --output runs/tasks --tasks rte mrpc --seeds 5
"""

import csv
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from harness import append_rows
from matplotlib.figure import Figure
from rich.console import Console
from task_files import FoundTask, find_files

from albert.checkpoints.hub import find_model
from albert.checkpoints.model_directory import read_config
from albert.cli.options import parse
from albert.finetuning.data import encode_split
from albert.finetuning.model import PretrainedEncoder, random_encoder_like
from albert.finetuning.run_record import RESULTS_NAME, FinetuningSettings
from albert.finetuning.seeds import SeedsResult, finetune_seeds
from albert.model.config import AlbertConfig
from albert.model.cost import PASSES, pretraining_flops
from albert.runtime.devices import measured_matmul_rate, pick_device
from albert.runtime.environment import Precision
from albert.runtime.errors import Diverged, UsageError, did_you_mean
from albert.runtime.files import write_text
from albert.runtime.json_files import read_json_object
from albert.tasks.task import TaskRecipe
from albert.text.tokenizer import Tokenizer
from albert.text.tokenizer_loading import load_tokenizer

Init = Literal["pretrained", "random"]
LIKELY_SHARE = 0.4
"""Of the measured rate of matrix products, what fine-tuning a small model reaches."""
SAMPLED = 200
"""Examples that tell how long all are."""
COLUMNS = (
    "task", "init", "model", "metric", "median", "lowest", "highest", "runs", "failed", "constant", "classical",
    "other_medians", "train_examples", "dev_examples", "steps", "learning_rate", "seconds_of_a_run",
)  # fmt: skip
WHAT = ("task", "init", "model", "train_examples", "steps", "learning_rate")


@dataclass(frozen=True)
class Cell:
    """One task of the grid: how long, how fast, and from how many examples (None: all) it is learnt."""

    task: str
    epochs: float
    max_train_examples: int | None = None
    learning_rate: float = 2e-4
    max_length: int = 256

    def recipe(self, published: TaskRecipe) -> TaskRecipe:
        """The published recipe, shorter and faster, as small models need it."""
        return replace(
            published,
            learning_rate=self.learning_rate,
            epochs=self.epochs,
            steps=None,
            examples=None,
            max_length=min(self.max_length, published.max_length),
        )


GRID = (
    Cell("sst-2", epochs=2),
    Cell("cola", epochs=10),
    Cell("rte", epochs=5),
    Cell("mrpc", epochs=7),
    Cell("sts-b", epochs=5),
    Cell("squad-1.1", epochs=2, max_train_examples=4000, max_length=384),
    Cell("squad-2.0", epochs=2, max_train_examples=4000, max_length=384),
    Cell("race-middle", epochs=2, max_train_examples=500, max_length=256),
)


@dataclass(frozen=True, kw_only=True)
class Runs:
    """Fine-tune on the tasks of the grid.

    Example: python benchmarks/task_runs.py --model runs/small --data data/glue --output runs/tasks --tasks sst-2 cola
    """

    model: str
    """The pre-trained model: a directory, a run, or a Hub id."""
    data: tuple[Path, ...]
    """Folders of task files; of each task the first that has its development set."""
    files: tuple[str, ...] = ()
    """TASK/SPLIT=FILE: a file in the place of the published one, a part of a training set say."""
    output: Path
    """A folder for all runs."""
    tasks: tuple[str, ...] = tuple(cell.task for cell in GRID)
    inits: tuple[Init, ...] = ("pretrained", "random")
    """random: the same architecture without its weights, as a control."""
    seeds: int = 3
    max_train_examples: int | None = None
    """Most training rows of every task, in place of the grid's."""
    steps: int | None = None
    """Updates of every run, in place of the grid's epochs."""
    learning_rate: float | None = None
    """In place of the grid's."""
    max_length: int | None = None
    """Most tokens, in place of the grid's."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    precision: Precision | None = None
    """bf16 on a GPU and fp32 on a CPU when not set."""
    plan: bool = False
    """Only say what would be run, and what it may cost."""
    classical: Path = Path("results/benchmark-classical-baselines.csv")
    """What classical_baselines.py wrote."""
    table: Path = Path("results/benchmark-task-runs.csv")


@dataclass(frozen=True)
class Planned:
    """A task with its files, recipe and settings, and what a run of it may cost."""

    found: FoundTask
    recipe: TaskRecipe
    settings: FinetuningSettings
    examples: int
    seconds: float


def main(arguments: list[str]) -> None:
    """Plan, run, and report."""
    asked = parse(Runs, arguments, "task_runs.py")
    console = Console(width=160, soft_wrap=True, highlight=False)
    directory = find_model(asked.model)
    config, tokenizer = read_config(directory)[0], load_tokenizer(directory)
    planned = [_plan(cell, asked, config, tokenizer) for cell in _cells(asked)]
    _show_plan(console, planned, asked)
    if asked.plan:
        return
    rows: list[dict[str, object]] = []
    for each in planned:
        for init in asked.inits:
            rows.append(_run(each, init, asked))
            append_rows(asked.table, COLUMNS, rows[-1:], same=WHAT)
    text = markdown(rows)
    write_text(asked.output / "summary.md", text)
    draw_runs(rows, asked.output / "summary.png")
    console.print(text, markup=False)
    console.print(
        f"{asked.output / 'summary.md'} and summary.png have it too; {asked.table} keeps the rows", markup=False
    )


def _cells(asked: Runs) -> Iterator[Cell]:
    by_name = {cell.task: cell for cell in GRID}
    for name in asked.tasks:
        if name not in by_name:
            raise UsageError(f"--tasks {name}", "is not in the grid", did_you_mean(name, by_name))
        cell = by_name[name]
        changes: dict[str, Any] = {
            field: value
            for field in ("max_train_examples", "learning_rate", "max_length")
            if (value := getattr(asked, field)) is not None
        }
        yield replace(cell, **changes)


def _plan(cell: Cell, asked: Runs, config: AlbertConfig, tokenizer: Tokenizer) -> Planned:
    found = find_files(cell.task, asked.data, asked.files)
    recipe = cell.recipe(found.task.recipe)
    if asked.steps is not None:
        recipe = replace(recipe, steps=asked.steps, epochs=None)
    recipe = replace(recipe, max_length=min(recipe.max_length, config.max_position_embeddings))
    train, dev = found.examples("train"), found.examples("dev")
    examples = min(len(train), cell.max_train_examples or len(train))
    settings = FinetuningSettings(
        max_train_examples=cell.max_train_examples, device=asked.device, precision=asked.precision
    )
    device = pick_device(asked.device)
    rate = LIKELY_SHARE * measured_matmul_rate(device, asked.precision or ("bf16" if device.type == "cuda" else "fp32"))
    sample = [train[place] for place in np.linspace(0, len(train) - 1, min(SAMPLED, len(train))).astype(int)]
    lengths = encode_split(found.task, "a sample", sample, {}, tokenizer, recipe).features.sequences.lengths.tolist()
    of_one = pretraining_flops(config, lengths, 0) / len(sample)
    learnt = recipe.total_steps(examples) * recipe.batch_size
    return Planned(found, recipe, settings, examples, of_one * (learnt + len(dev) / PASSES) / rate)


def _show_plan(console: Console, planned: Sequence[Planned], asked: Runs) -> None:
    runs = asked.seeds * len(asked.inits)
    for each in planned:
        steps, answered = each.recipe.total_steps(each.examples), len(each.found.dev.rows)
        learnt = f"{each.examples:,} training rows, {steps:,} steps of {each.recipe.batch_size}, {answered:,} to answer"
        cost = f"{runs} runs of about {_time(each.seconds)}"
        console.print(f"{each.found.task.name}: {learnt}; {cost}", markup=False)
    console.print(f"about {_time(runs * sum(each.seconds for each in planned))} together, on this machine as it is now")


def _time(seconds: float) -> str:
    return f"{seconds / 3600:.1f} hours" if seconds >= 5400 else f"{seconds / 60:.1f} minutes"


def _run(planned: Planned, init: Init, asked: Runs) -> dict[str, object]:
    """The row of a task and a start, all seeds of which are run, or found to be finished."""
    task, place = planned.found.task, asked.output / f"{planned.found.task.name}-{init}"
    encoder = PretrainedEncoder(asked.model)
    start = encoder if init == "pretrained" else random_encoder_like(encoder)
    known = {"task": task.name, "init": init, "model": "/".join(Path(asked.model).parts[-2:])}
    known |= {"learning_rate": f"{planned.recipe.learning_rate:g}", "train_examples": planned.examples}
    try:
        found = finetune_seeds(task, start, planned.found.data, place, planned.recipe, planned.settings, asked.seeds)
    except Diverged:
        steps = planned.recipe.total_steps(planned.examples)
        return {**known, "steps": steps, "runs": asked.seeds, "failed": asked.seeds}
    return {**known, **_figures(found, _reports(found)), "classical": _classical(asked.classical, task.name, found)}


def _figures(found: SeedsResult, reports: Sequence[Mapping[str, Any]]) -> dict[str, object]:
    name, spread = next(iter(found.spreads.items()))
    baseline = found.baseline or {}
    others = {other: median for other, median in found.medians.items() if other != name and "thresh" not in other}
    last = reports[-1]
    return {
        "metric": name,
        "median": f"{spread.median:.2f}",
        "lowest": f"{spread.lowest:.2f}",
        "highest": f"{spread.highest:.2f}",
        "runs": len(found.runs),
        "failed": len(found.failed),
        "constant": "" if baseline.get(name) is None else f"{baseline[name]:.2f}",
        "other_medians": ", ".join(f"{other} {median:.2f}" for other, median in others.items()),
        "dev_examples": last["evaluation"]["examples"],
        "steps": last["training"]["steps"],
        "seconds_of_a_run": f"{np.median([each['training']['seconds'] for each in reports]):.0f}",
    }


def _reports(found: SeedsResult) -> list[dict[str, Any]]:
    """Those of the runs that came to their end."""
    paths = (run.directory / RESULTS_NAME for run in found.runs)
    return [read_json_object(path) for path in paths if path.is_file()]


def _classical(table: Path, task: str, found: SeedsResult) -> str:
    """The newest score of a classical model, empty where none was measured."""
    if not table.is_file():
        return ""
    metric = next(iter(found.spreads))
    with open(table, newline="", encoding="utf-8") as file:
        scores = [row["score"] for row in csv.DictReader(file) if (row["task"], row["metric"]) == (task, metric)]
    return scores[-1] if scores else ""


def markdown(rows: Sequence[Mapping[str, object]]) -> str:
    """The rows as a table for people."""
    names = ("task", "init", "metric", "median", "lowest", "highest", "runs", "failed", "constant", "classical")
    lines = ["| " + " | ".join(names) + " |", "|" + "---|" * len(names)]
    lines += ["| " + " | ".join(str(row.get(name, "")) for name in names) + " |" for row in rows]
    return "\n".join(lines) + "\n"


COLORS = {"pretrained": "tab:blue", "random": "tab:orange"}
MARKS = {"constant": ("_", "tab:gray"), "classical": ("x", "tab:green")}


def draw_runs(rows: Sequence[Mapping[str, object]], path: Path) -> None:
    """A column for each task: median with lowest and highest by start, the constant answer, the classical model.

    Args:
        rows: with `task`, `init`, `median`, `lowest`, `highest`, `constant` and `classical`; empty cells are left out.
        path: the PNG.
    """
    tasks = list(dict.fromkeys(str(row["task"]) for row in rows))
    figure = Figure(figsize=(1.5 + 1.2 * len(tasks), 4.5), layout="constrained")
    axes = figure.subplots()
    named: set[str] = set()

    def label(name: str) -> str:
        """Once each in the legend."""
        first = name not in named
        named.add(name)
        return name if first else f"_{name}"

    for row in rows:
        place, init = tasks.index(str(row["task"])), str(row["init"])
        if row.get("median"):
            middle, lowest, highest = (float(str(row[name])) for name in ("median", "lowest", "highest"))
            axes.errorbar(
                place + (-0.1 if init == "pretrained" else 0.1),
                middle,
                yerr=[[middle - lowest], [highest - middle]],
                fmt="o",
                color=COLORS.get(init, "black"),
                capsize=3,
                label=label(init),
            )
        for name, (mark, color) in MARKS.items():
            if row.get(name):
                axes.plot(place, float(str(row[name])), mark, color=color, markersize=12, label=label(name))
    axes.set_xticks(range(len(tasks)), tasks, rotation=20)
    axes.set_ylabel("first score of the task, development set")
    axes.grid(axis="y", alpha=0.3)
    axes.legend(loc="best")
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    main(sys.argv[1:])
