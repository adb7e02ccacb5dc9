"""`albert pretrain`, and options of `albert finetune`, `evaluate`, `push`, `show` and `tables`."""

import shlex
import sys
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro
from rich.console import Console
from tyro.conf import Positional

from albert.api.functions import CONTINUE, init_of, recipe_of, run_pretrain, scale_recipe
from albert.api.options import Evaluate, Finetune, Pretrain, Push
from albert.cli.main import load_command
from albert.cli.options import (
    HELP_FLAGS,
    NOT_IN_RECIPES,
    CommandGroup,
    Subcommand,
    defaults_from_file,
    parse,
    raw_value,
)
from albert.cli.render import facts, open_console
from albert.experiments.price import Rates
from albert.pretraining.masking import MaskingRecipe
from albert.pretraining.recipe import RECIPES, RENAMED, PretrainingRecipe, read_recipe
from albert.pretraining.sampling import SequenceRecipe
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


def pretrain(arguments: list[str]) -> None:
    """Read the options, of which a recipe has the defaults, and run `albert pretrain`."""
    words = arguments
    if not arguments or arguments[0] in HELP_FLAGS:
        parse(PretrainCommand, arguments[:1] or ["--help"], "albert pretrain RECIPE")
    file = raw_value(arguments, "--recipe")
    name = None if arguments[0].startswith("-") else arguments[0]
    if name is None and file is None:
        raise UsageError("albert pretrain", "the first word is a recipe", f"one of {', '.join(RECIPES)}, or a file")
    arguments = arguments if name is None else arguments[1:]
    prints = raw_value(arguments, "--print-recipe") is not None
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
        console.print(f"going on with {run.path} after step {taken:,}")
    result = run_pretrain(args)
    if result.found.training.steps == taken:
        console.print(f"{run.path} is complete already; nothing was trained")
    _show_result(console, result.found)


def _named(name: str, arguments: list[str]) -> PretrainingRecipe:
    if name in RENAMED:
        print(f"albert: note: the recipe {name} is now called {RENAMED[name]}", file=sys.stderr)
    init, revision, output = (raw_value(arguments, option) for option in ("--init", "--revision", "--output"))
    if name == CONTINUE and init is None and any(word in arguments for word in HELP_FLAGS):
        return RECIPES[CONTINUE]
    return recipe_of(name, None if output is None else Path(output), init, revision)


def _scaled(recipe: PretrainingRecipe, arguments: list[str], console: Console) -> PretrainingRecipe:
    """The recipe at the batch size that --scale-batch asks for; prints how its learning rate came about."""
    asked = raw_value(arguments, "--scale-batch")
    if asked is None:
        return recipe
    if not asked.isascii() or not asked.isdigit():
        raise UsageError("--scale-batch", f"is {asked}, a number of sequences from 1 is needed")
    changed, lines = scale_recipe(recipe, int(asked))
    console.print("\n".join(lines), highlight=False, soft_wrap=True)  # what is to be copied is not wrapped
    return changed


def _show_recipe(console: Console, name: str, recipe: PretrainingRecipe) -> None:
    values = to_json(recipe)
    values["model"].pop("vocab_size")  # the corpus says it
    for key, value in values.items():
        if isinstance(value, dict):
            values[key] = ", ".join(f"{inner} {kept}" for inner, kept in value.items() if kept is not None)
    told = {key: str(value) for key, value in values.items() if value not in (None, [])}
    console.print(facts(f"recipe {name}", told))


def _show_result(console: Console, result: Any) -> None:
    training = result.training
    told: dict[str, object] = {} if result.start is None else {"started from": result.start}
    told["ended"] = training.ending
    if training.skipped or training.rollbacks:
        told["updates left out, rollbacks"] = f"{training.skipped:,}, {training.rollbacks:,}"
    told["tokens"] = f"{training.tokens:,} at {training.tokens_per_second:,.0f} a second"
    for task, what in (("masked_tokens", "masked tokens"), ("sentence_order", "sentence order")):
        if f"{task}_accuracy" in result.evaluation:
            score, constant = result.evaluation[f"{task}_accuracy"], result.evaluation[f"{task}_baseline"]
            told[f"{what}, held out"] = f"{score:.1%} right (a constant answer: {constant:.1%})"
    told |= {"model": result.model, "curves": f"tensorboard --logdir {result.run / 'tensorboard'}"}
    console.print(facts("pre-trained", told))
    asked = shlex.join([str(result.model), "--fill-mask", result.question or "[MASK]"])
    console.print(f"next: albert predict {asked}", soft_wrap=True)


@dataclass(frozen=True, kw_only=True)
class FinetuneCommand(Finetune):
    """What to learn, from what, and how; with options from a file."""

    recipe_file: Annotated[Path | None, tyro.conf.arg(name="recipe")] = None
    """A TOML or JSON file with options of this command, by their names with _ for -; flags go before it."""
    print_recipe: bool = False
    """Print the options as a TOML file with comments, for --recipe, and train nothing."""


def finetune(arguments: list[str]) -> int:
    """Read the options, and run `albert finetune`."""
    defaults = defaults_from_file(FinetuneCommand, arguments)
    if raw_value(arguments, "--print-recipe") is not None:
        args = parse(FinetuneCommand, arguments, "albert finetune", {"model": "", **defaults})
        print(f"# Options of `albert finetune`, from: {shlex.join(['albert', 'finetune', *arguments])}\n")
        groups = [each.name for each in fields(args) if is_dataclass(each.default)]
        print(to_toml(args, inline=groups, leave_out=NOT_IN_RECIPES), end="")
        return 0
    args = parse(FinetuneCommand, arguments, "albert finetune", defaults)
    load_command("albert.cli.tasks").finetune(args)
    return 0


pretrain_main = Subcommand(PretrainCommand, "albert pretrain", pretrain, parses=False)
finetune_main = Subcommand(FinetuneCommand, "albert finetune", finetune, parses=False)
evaluate_main = Subcommand(Evaluate, "albert evaluate", "tasks:evaluate")
push_main = Subcommand(Push, "albert push", "convert:run_push")


SEQUENCES, MASKING = SequenceRecipe(max_length=128), MaskingRecipe()
"""What is shown unless something else is asked for; the paper's 512 tokens fill a page each."""


@dataclass(frozen=True, kw_only=True)
class Show:
    """Show what a prepared corpus becomes in training: a few samples as text, and counts of many.

    Every sample is what a run with this seed and these settings would see, at that place of that epoch.

    Example: albert show corpus --number 2 --objective sop --max-length 128
    """

    corpus: Positional[Path]
    """What `albert prepare` wrote."""
    number: int = 3
    """How many samples to show."""
    first: int = 0
    """The first of them, in the order of training."""
    epoch: int = 0
    """Of which epoch."""
    seed: int = 0
    """Of the run."""
    split: Literal["train", "held_out"] = "train"
    """Which part of the corpus."""
    count: int = 2000
    """How many samples to count, from the first on; 0: none."""
    sequences: Annotated[SequenceRecipe, tyro.conf.arg(name="")] = SEQUENCES
    masking: Annotated[MaskingRecipe, tyro.conf.arg(name="")] = MASKING


show_main = Subcommand(Show, "albert show", "inspect:run_show")

ScaleName = Literal["tiny", "small", "base", "paper"]

NO_RATES = Rates()


@dataclass(frozen=True, kw_only=True)
class ListTables:
    """What is listed."""

    scale: ScaleName = "tiny"
    """At which scale: it says how many runs a table takes."""


@dataclass(frozen=True, kw_only=True)
class ExportTables:
    """What is copied, and where to."""

    directory: Annotated[Positional[Path], tyro.conf.arg(metavar="DIRECTORY")]
    """The copy; what it holds of the same runs is replaced."""
    scale: ScaleName = "tiny"
    """Of the runs, where --output is not given."""
    output: Path | None = None
    """The root of the runs; runs/tables-SCALE when not set."""


@dataclass(frozen=True, kw_only=True)
class TablesArguments:
    """What the commands have in common."""

    tables: Annotated[Positional[tuple[str, ...]], tyro.conf.arg(metavar="TABLE...")] = ()
    """Names of tables and figures, as `albert tables list` has them, or all."""
    scale: ScaleName = "tiny"
    """How large: hours of two cores, hours of a GPU, the paper's shapes on a GPU, or the paper's recipes."""
    data: tuple[Path, ...] = ()
    """What `albert prepare` wrote; of several the first is the text of all tables, and additional text (Table 7) is
    all of them."""
    glue_data: Path | None = None
    """The folder of GLUE's tasks; without it these tasks are left out."""
    squad_data: Path | None = None
    """The folder of SQuAD's files, likewise."""
    race_data: Path | None = None
    """The folder of RACE, likewise."""
    files: tuple[str, ...] = ()
    """TASK/SPLIT=FILE: a file in the place of the published one, in its layout (qnli/train=mine.tsv)."""
    output: Path | None = None
    """The root of all runs and results; runs/tables-SCALE when not set."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    threads: int | None = None
    """Threads of this process; 1 when several processes share the cores."""
    rates: Annotated[Rates, tyro.conf.arg(name="")] = NO_RATES
    """What an hour of the machine costs, for plans and for the table cost."""


PARTS = {
    "list": Subcommand(ListTables, "albert tables list", "tables:list_tables"),
    "plan": Subcommand(TablesArguments, "albert tables plan", "tables:plan"),
    "run": Subcommand(TablesArguments, "albert tables run", "tables:run"),
    "show": Subcommand(TablesArguments, "albert tables show", "tables:show"),
    "export": Subcommand(ExportTables, "albert tables export", "tables:export"),
}


tables_main = CommandGroup("albert tables", PARTS, earlier={"keep": "export"})


def default_root(scale: ScaleName) -> Path:
    """The default root of a scale's tables."""
    return Path("runs") / f"tables-{scale}"
