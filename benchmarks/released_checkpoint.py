"""A released checkpoint, fine-tuned by the paper's recipe over several seeds, beside the score published for it.

Says for each published score whether it lies within the spread of the runs here, and how far the median is from it. The
recipe is Table 14's; like the paper, the best of the evaluations under way counts (`--select last` is the stricter way,
and is said). The published models of RTE, MRPC and STS-B began from an MNLI model: give that as --model. With a GPU;
on a CPU only for a look at whether all of it works.

    python benchmarks/released_checkpoint.py --task sst-2 --model albert/albert-base-v2 --data data/glue \
        --output runs/released-sst-2
    python benchmarks/released_checkpoint.py --task race --model models/base --published albert-base-v2 \
        --v2-recipe --data data --output runs/released-race
"""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from harness import append_rows
from rich.console import Console
from rich.table import Table
from task_files import find_files

from albert.cli.options import parse
from albert.finetuning.model import PretrainedEncoder
from albert.finetuning.run_record import FinetuningSettings, SelectedBy
from albert.finetuning.seeds import SeedsResult, finetune_seeds
from albert.runtime.environment import Precision
from albert.runtime.errors import UsageError, did_you_mean
from albert.tasks.task import Published, Task, TaskRecipe

COLUMNS = (
    "task", "model", "published_as", "metric", "published", "source", "median", "lowest", "highest", "runs", "verdict",
    "difference", "recipe", "selection",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Fine-tune a released checkpoint and compare.

    Example: python benchmarks/released_checkpoint.py --task cola --model albert/albert-xxlarge-v1 --data data/glue \
        --output runs/cola
    """

    task: str
    model: str
    """A Hub id or a directory."""
    revision: str | None = None
    """A branch, tag or commit of a Hub repository."""
    published: str | None = None
    """What the published rows call the model; the last part of --model when not set."""
    data: tuple[Path, ...]
    """Folders of task files."""
    files: tuple[str, ...] = ()
    """TASK/SPLIT=FILE: a file in the place of the published one."""
    output: Path
    """A folder for all runs; the same command goes on where it was stopped."""
    seeds: int = 5
    second_release: bool = False
    """The recipe for the models of the second release where it differs (RACE)."""
    select: SelectedBy = "best"
    steps: int | None = None
    """Updates, in place of the recipe's: no comparison any more, but a look at whether it works."""
    batch_size: int | None = None
    max_length: int | None = None
    device: Literal["auto", "cpu", "cuda"] = "auto"
    precision: Precision | None = None
    """bf16 on a GPU and fp32 on a CPU when not set."""
    table: Path = Path("results/benchmark-released-checkpoint.csv")


def main(arguments: list[str]) -> None:
    """Run and report."""
    asked = parse(Comparison, arguments, "released_checkpoint.py")
    found = find_files(asked.task, asked.data, asked.files)
    published = published_for(found.task, asked.published or Path(asked.model).name)
    recipe, changed = _recipe(found.task, asked)
    settings = FinetuningSettings(select=asked.select, device=asked.device, precision=asked.precision)
    start = PretrainedEncoder(asked.model, asked.revision)
    result = finetune_seeds(found.task, start, found.data, asked.output, recipe, settings, asked.seeds)
    told = "paper's" if not changed else "changed: " + ", ".join(f"{name} {value}" for name, value in changed.items())
    model = asked.model if not Path(asked.model).exists() else "/".join(Path(asked.model).parts[-2:])
    about = {"model": model, "recipe": told, "selection": asked.select}
    rows = [{**about, **compared(result, each)} for each in published]
    append_rows(asked.table, COLUMNS, rows)
    _show(rows)


def published_for(task: Task, model: str) -> list[Published]:
    """The published scores of a model.

    Raises:
        UsageError: there are none of it for the task.
    """
    found = [each for each in task.published if each.model == model]
    if not found:
        known = dict.fromkeys(each.model for each in task.published)
        raise UsageError(f"--published {model}", f"no score of it is known for {task.name}", did_you_mean(model, known))
    return found


def compared(result: SeedsResult, published: Published) -> dict[str, object]:
    """The runs beside one published score: inside from the lowest to the highest run, or above or below them."""
    spread = result.spreads.get(published.metric)
    row: dict[str, object] = {
        "task": result.task,
        "published_as": published.model,
        "metric": published.metric,
        "published": f"{published.score:g}",
        "source": published.source,
        "runs": len(result.runs),
    }
    if spread is None:
        return {**row, "verdict": "undefined in every run"}
    verdict = "inside the spread"
    if published.score > spread.highest:
        verdict = "published is above every run"
    elif published.score < spread.lowest:
        verdict = "published is below every run"
    return {
        **row,
        "median": f"{spread.median:.2f}",
        "lowest": f"{spread.lowest:.2f}",
        "highest": f"{spread.highest:.2f}",
        "verdict": verdict,
        "difference": f"{spread.median - published.score:+.2f}",
    }


def _recipe(task: Task, asked: Comparison) -> tuple[TaskRecipe, Mapping[str, Any]]:
    """The published recipe, and what of it was asked to be another."""
    recipe = task.recipe
    if asked.second_release:
        if task.second_recipe is None:
            raise UsageError("--v2-recipe", f"{task.name} has one recipe for both releases", "leave it out")
        recipe = task.second_recipe
    names = ("steps", "batch_size", "max_length")
    changed = {name: value for name in names if (value := getattr(asked, name)) is not None}
    if "steps" in changed:
        recipe = replace(recipe, epochs=None, examples=None)
    return replace(recipe, **changed), changed


def _show(rows: Sequence[Mapping[str, object]]) -> None:
    shown = ("metric", "published", "median", "lowest", "highest", "difference", "verdict", "recipe")
    table = Table(*shown, box=None)
    for row in rows:
        table.add_row(*(str(row.get(name, "")) for name in shown))
    Console(width=160).print(table)


if __name__ == "__main__":
    main(sys.argv[1:])
