"""`albert pretrain`: a prepared corpus becomes a pre-trained encoder."""

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro
from rich.console import Console
from rich.table import Table

from albert.cli.command_line import parse
from albert.pretraining.pretrain import PretrainingResult, pretrain
from albert.pretraining.recipes import RECIPES, PretrainingRecipe
from albert.runtime.distributed import world
from albert.runtime.errors import UsageError, did_you_mean
from albert.runtime.strict_json import load_json, to_json
from albert.training.run_folder import RunFolder

DESCRIPTION = """Pre-train an ALBERT encoder with n-gram masking and sentence order.

RECIPE is a name (quickstart, small, base, large, xlarge, xxlarge) or a JSON file that an earlier run saved; flags
change single values of it. The defaults below are those of one recipe: albert pretrain base --help shows base's. The
same command goes on with a run that was stopped. Under torchrun, every process takes its share of the batch.

Examples:
  albert pretrain small --data corpus --output runs/small \\
    --schedule.total-steps 2000 --model.hidden-size 192
  torchrun --nproc-per-node 2 -m albert pretrain small --data corpus --output runs/two"""


@dataclass(frozen=True, kw_only=True)
class Pretrain:
    """Where the data are, where to write, and the recipe's values."""

    data: Path
    """What `albert prepare` wrote."""
    output: Path
    """The run's directory; the same one again goes on with the run."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    recipe: Annotated[PretrainingRecipe, tyro.conf.arg(name="")] = RECIPES["small"]


def main(arguments: list[str]) -> None:
    """Run the command."""
    if not arguments or arguments[0] in ("-h", "--help"):
        parse(Pretrain, ["--help"], "albert pretrain RECIPE", DESCRIPTION)
    if arguments[0].startswith("-"):
        raise UsageError("albert pretrain", "the first word is a recipe", f"one of {', '.join(RECIPES)}, or a file")
    name, *arguments = arguments
    defaults = {"recipe": find_recipe(name)}
    asked = parse(Pretrain, arguments, f"albert pretrain {name}", DESCRIPTION, defaults)
    console = Console(quiet=not world().is_first)
    _show_recipe(console, name, asked.recipe)
    run = RunFolder(asked.output)
    if run.model_path.exists():
        console.print(f"{run.path} is complete already; nothing is trained", markup=False)
    elif run.checkpoints():
        console.print(f"going on with {run.path} after step {run.checkpoints()[-1][0]:,}", markup=False)
    _show_result(console, pretrain(asked.recipe, asked.data, asked.output, asked.device))


def find_recipe(name: str) -> PretrainingRecipe:
    """The recipe of a name or of a JSON file.

    Raises:
        UsageError: neither a known name nor a file.
    """
    if name in RECIPES:
        return RECIPES[name]
    if Path(name).is_file():
        return load_json(PretrainingRecipe, Path(name))
    raise UsageError(f"recipe {name}", "neither a known recipe nor a file", did_you_mean(name, RECIPES))


def _show_recipe(console: Console, name: str, recipe: PretrainingRecipe) -> None:
    table = Table(title=f"recipe {name}", title_justify="left", show_header=False, box=None, padding=(0, 1))
    values = to_json(recipe)
    values["model"].pop("vocab_size")  # the corpus says it
    for key, value in values.items():
        if isinstance(value, dict):
            table.add_row(key, ", ".join(f"{inner} {kept}" for inner, kept in value.items() if kept is not None))
        elif value is not None:
            table.add_row(key, str(value))
    console.print(table)


def _show_result(console: Console, result: PretrainingResult) -> None:
    training = result.training
    table = Table(title="pre-trained", title_justify="left", show_header=False, box=None, padding=(0, 1))
    table.add_row("steps", f"{training.steps:,}")
    table.add_row("tokens", f"{training.tokens:,} at {training.tokens_per_second:,.0f} a second")
    for task, what in (("masked_tokens", "masked tokens"), ("sentence_order", "sentence order")):
        if f"{task}_accuracy" in result.evaluation:
            score, constant = result.evaluation[f"{task}_accuracy"], result.evaluation[f"{task}_baseline"]
            table.add_row(f"{what}, held out", f"{score:.1%} right (a constant answer: {constant:.1%})")
    table.add_row("model", str(result.model))
    table.add_row("curves", f"tensorboard --logdir {result.run / 'tensorboard'}")
    console.print(table)
    model = shlex.quote(str(result.model))
    console.print(f'next: albert predict {model} --fill-mask "It was a [MASK] day."', markup=False, soft_wrap=True)
