"""`albert pretrain`: a prepared corpus becomes a pre-trained encoder."""

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.console import Console
from rich.table import Table

from albert.api.functions import CONTINUE, init_of, recipe_of, run_pretrain, scaled
from albert.api.options import Pretrain
from albert.cli.options import DESCRIBE, HELP_WORDS, given_value, open_console, parse
from albert.pretraining.recipe import RECIPES, PretrainingRecipe, read_recipe
from albert.runtime.environment import world
from albert.runtime.errors import UsageError
from albert.runtime.json_files import to_json, to_toml
from albert.training.run_folder import RunFolder


@dataclass(frozen=True, kw_only=True)
class PretrainCommand(Pretrain):
    """Where the data are, where to write, what to start from, and the recipe's values, also from a file."""

    recipe_file: Annotated[Path | None, tyro.conf.arg(name="recipe")] = None
    """A TOML or JSON file with values of a recipe, in place of RECIPE's, or of base's without RECIPE."""
    print_recipe: bool = False
    """Print the recipe as a TOML file with comments, for --recipe, and train nothing."""


def pretrain_main(arguments: list[str]) -> None:
    """Run the command."""
    words = arguments
    if not arguments or arguments[0] in (*HELP_WORDS, DESCRIBE):
        parse(PretrainCommand, arguments[:1] or ["--help"], "albert pretrain RECIPE")
    file = given_value(arguments, "--recipe")
    name = None if arguments[0].startswith("-") else arguments[0]
    if name is None and file is None:
        raise UsageError("albert pretrain", "the first word is a recipe", f"one of {', '.join(RECIPES)}, or a file")
    arguments = arguments if name is None else arguments[1:]
    prints = given_value(arguments, "--print-recipe") is not None
    console = open_console(soft_wrap=False, highlight=True, quiet=prints or not world().is_first)
    recipe = RECIPES["base"] if name is None else _named(name, arguments)
    recipe = recipe if file is None else read_recipe(Path(file), recipe)
    defaults: dict[str, Any] = {"recipe": _scaled(recipe, arguments, console)}
    defaults |= {"data": (), "output": Path()} if prints else {}
    program = "albert pretrain" if name is None else f"albert pretrain {name}"
    args = parse(PretrainCommand, arguments, program, defaults)
    if args.print_recipe:
        print(f"# A recipe of `albert pretrain`, from: {shlex.join(['albert', 'pretrain', *words])}\n")
        print(to_toml(args.recipe), end="")
        return
    name = " with ".join(each for each in (name, file) if each is not None)
    init_of(args)  # what contradicts itself is refused before anything is shown
    _show_recipe(console, name, args.recipe)
    run = RunFolder(args.output)
    taken = run.checkpoints()[-1][0] if run.checkpoints() else None
    if taken is not None:
        console.print(f"going on with {run.path} after step {taken:,}", markup=False)
    result = run_pretrain(args)
    if result.found.training.steps == taken:
        console.print(f"{run.path} is complete already; nothing was trained", markup=False)
    _show_result(console, result.found)


def _named(name: str, arguments: list[str]) -> PretrainingRecipe:
    given = {option: given_value(arguments, f"--{option}") for option in ("init", "revision", "output")}
    output = None if given["output"] is None else Path(given["output"])
    asks_for_help = any(word in arguments for word in (*HELP_WORDS, DESCRIBE))
    if name == CONTINUE and asks_for_help and given["init"] is None:
        return RECIPES[CONTINUE]
    return recipe_of(name, output, given["init"], given["revision"])


def _scaled(recipe: PretrainingRecipe, arguments: list[str], console: Console) -> PretrainingRecipe:
    """The recipe at the batch size that --scale-batch asks for; prints how its learning rate came about."""
    asked = given_value(arguments, "--scale-batch")
    if asked is None:
        return recipe
    if not asked.isascii() or not asked.isdigit():
        raise UsageError("--scale-batch", f"is {asked}, a number of sequences from 1 is needed")
    changed, lines = scaled(recipe, int(asked))
    for line in lines:
        console.print(line, highlight=False, soft_wrap=True)  # what is to be copied is not wrapped
    return changed


def _show_recipe(console: Console, name: str, recipe: PretrainingRecipe) -> None:
    table = Table(title=f"recipe {name}", title_justify="left", show_header=False, box=None, padding=(0, 1))
    values = to_json(recipe)
    values["model"].pop("vocab_size")  # the corpus says it
    for key, value in values.items():
        if isinstance(value, dict):
            table.add_row(key, ", ".join(f"{inner} {kept}" for inner, kept in value.items() if kept is not None))
        elif value not in (None, []):
            table.add_row(key, str(value))
    console.print(table)


def _show_result(console: Console, result: Any) -> None:
    training = result.training
    table = Table(title="pre-trained", title_justify="left", show_header=False, box=None, padding=(0, 1))
    if result.start is not None:
        table.add_row("started from", str(result.start))
    table.add_row("ended", training.ending)
    if training.skipped or training.rollbacks:
        table.add_row("updates left out, rollbacks", f"{training.skipped:,}, {training.rollbacks:,}")
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
