"""`albert pretrain`, and options of `albert finetune`, `evaluate` and `tables`."""

import difflib
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from rich.console import Console

from albert.api.checks import check_evaluate, check_options
from albert.api.display import CURVES_NAME
from albert.api.functions import CONTINUE, fit_warmup, init_of, recipe_of, run_pretrain, scale_recipe
from albert.api.keywords import Argument, options_of
from albert.api.options import Evaluate, Pretrain
from albert.cli.options import HELP_FLAGS, CommandGroup, Subcommand, parse, typed_values
from albert.cli.render import key_value_table, next_line, open_console
from albert.pretraining.recipe import RECIPES, PretrainingRecipe, read_recipe
from albert.runtime.environment import world
from albert.runtime.errors import MissingInput, UsageError
from albert.runtime.json_files import to_json, to_toml
from albert.runtime.legacy import RECIPE_NAMES
from albert.training.run_folder import RunFolder


@dataclass(frozen=True, kw_only=True)
class PretrainCommand(Pretrain):
    """Data, output, starting point, and the values of the recipe, also from a file."""

    recipe_file: Annotated[Path | None, Argument(name="recipe")] = None
    """A TOML or JSON file with values that replace RECIPE's, or base's without RECIPE."""
    print_recipe: bool = False
    """Print the recipe as TOML for --recipe; do not train."""


def pretrain(arguments: list[str]) -> None:
    """Read the options, whose defaults are those of a recipe, and run `albert pretrain`."""
    if not arguments or arguments[0] in HELP_FLAGS:
        parse(PretrainCommand, arguments[:1] or ["--help"], "albert pretrain RECIPE")
    name, words = (None, arguments) if arguments[0].startswith("-") else (arguments[0], arguments[1:])
    program = "albert pretrain" if name is None else f"albert pretrain {name}"
    typed = typed_values(options_of(PretrainCommand), words, program)
    given = {path[-1]: value for path, value in typed.items()}
    if name is None and "recipe_file" not in given:
        raise UsageError("albert pretrain", "the first word is a recipe", f"one of {', '.join(RECIPES)}, or a file")
    if name in RECIPE_NAMES:
        print(f"albert: note: the recipe {name} is now called {RECIPE_NAMES[name]}", file=sys.stderr)
    earlier = None if given.get("replace") else given.get("output")
    is_help = any(word in arguments for word in HELP_FLAGS)
    if name is None or (name == CONTINUE and is_help and "init" not in given):
        recipe = RECIPES["base" if name is None else name]
    else:
        recipe = recipe_of(name, earlier, given.get("init"), given.get("revision"))
    if "recipe_file" in given:
        file = given["recipe_file"]
        similar = difflib.get_close_matches(str(file), RECIPES, 1)
        if similar and not file.exists():
            remedy = f"a recipe of the package is the first word: albert pretrain {similar[0]}"
            raise MissingInput(file, "No such file or directory", remedy)
        recipe = read_recipe(file, recipe)
    prints = given.get("print_recipe", False)
    console = open_console(soft_wrap=False, highlight=True, quiet=prints or not world().is_first)
    if "scale_batch" in given:
        recipe, lines = scale_recipe(recipe, given["scale_batch"])
        console.print("\n".join(lines), highlight=False, soft_wrap=True)  # not wrapped, so that it can be copied
    recipe = fit_warmup(recipe, typed, earlier)
    defaults: dict[tuple[str, ...], Any] = {("recipe",): recipe}
    defaults |= {("data",): (), ("output",): Path()} if prints else {}
    options = parse(PretrainCommand, words, program, defaults)
    if options.print_recipe:
        print(f"# A recipe of `albert pretrain`, from: {shlex.join(['albert', 'pretrain', *arguments])}\n")
        print(to_toml(options.recipe), end="")
        return
    check_options(options, resumes=True)
    init_of(options)  # raises an error before anything is shown
    title = " with ".join(filter(None, (name, str(given.get("recipe_file", "")))))
    _show_recipe(console, title, options.recipe)
    run = RunFolder(options.output)
    last_step = run.checkpoints()[-1][0] if run.checkpoints() and not options.replace else None
    if last_step is not None:
        console.print(f"resuming {run.path} after step {last_step:,}")
    result = run_pretrain(options).found
    if result.training.steps == last_step:
        console.print(f"{run.path} is complete already; nothing was trained")
    _show_result(console, result)


def _show_recipe(console: Console, name: str, recipe: PretrainingRecipe) -> None:
    values = to_json(recipe)
    values["model"].pop("vocab_size")  # that of the corpus
    for key, value in values.items():
        if isinstance(value, dict):
            values[key] = ", ".join(f"{inner} {item}" for inner, item in value.items() if item is not None)
    console.print(key_value_table(f"recipe {name}", {key: str(v) for key, v in values.items() if v not in (None, [])}))


def _show_result(console: Console, result: Any) -> None:
    training = result.training
    values: dict[str, object] = {} if result.start is None else {"started from": result.start}
    values["ended"] = training.ending
    if training.skipped or training.rollbacks:
        values["updates left out, rollbacks"] = f"{training.skipped:,}, {training.rollbacks:,}"
    values["tokens"] = f"{training.tokens:,} at {training.tokens_per_second:,.0f} a second"
    for task, what in (("masked_tokens", "masked tokens"), ("sentence_order", "sentence order")):
        if f"{task}_accuracy" in result.evaluation:
            score = result.evaluation[f"{task}_accuracy"]
            constant = result.evaluation[f"{task}_baseline"]
            values[f"{what}, held out"] = f"{score:.1%} right (majority baseline: {constant:.1%})"
    values["model"] = result.model
    if (result.run / CURVES_NAME).exists():
        values["curves"] = result.run / CURVES_NAME
    if (result.run / "tensorboard").is_dir():
        values["live curves"] = f"tensorboard --logdir {result.run / 'tensorboard'}"
    console.print(key_value_table("pre-trained", values))
    words = shlex.join([str(result.model), "--fill-mask", result.question or "[MASK]"])
    console.print(next_line(f"predict {words}"), soft_wrap=True)


ScaleName = Literal["tiny", "small", "base", "paper"]


@dataclass(frozen=True, kw_only=True)
class ListTables:
    """The scale."""

    scale: ScaleName = "tiny"
    """The scale, which determines the number of runs."""


@dataclass(frozen=True, kw_only=True)
class ExportTables:
    """Source and destination."""

    directory: Annotated[Path, Argument(positional=True, metavar="DIRECTORY")]
    """The copy; existing results of the same runs are replaced."""
    scale: ScaleName = "tiny"
    """The scale of the runs, if --output is not set."""
    output: Path | None = None
    """The root of the runs; runs/tables-SCALE when not set."""


@dataclass(frozen=True, kw_only=True)
class TablesArguments:
    """Common options of the commands."""

    tables: Annotated[tuple[str, ...], Argument(positional=True, metavar="TABLE...")] = ()
    """Names of tables and figures, see `albert tables list`, or all."""
    scale: ScaleName = "tiny"
    """The size: hours of two cores, hours of a GPU, the paper's shapes on a GPU, or the paper's recipes."""
    data: tuple[Path, ...] = ()
    """Prepared corpora: the first is the text of all tables, all together are the additional text (Table 7)."""
    glue_data: Path | None = None
    """The folder of GLUE's tasks; without it these tasks are left out."""
    squad_data: Path | None = None
    """The folder of SQuAD's files, likewise."""
    race_data: Path | None = None
    """The folder of RACE, likewise."""
    files: tuple[str, ...] = ()
    """TASK/SPLIT=FILE: a replacement of a published file, in its layout (qnli/train=mine.tsv)."""
    output: Path | None = None
    """The root of all runs and results; runs/tables-SCALE when not set."""
    seeds: int | None = None
    """Number of pre-trainings of each row, with the seeds from 0 on; those of OUTPUT, or of the scale, when not set."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    threads: int | None = None
    """Threads of this process; 1 when several processes share the cores."""


def default_root(scale: ScaleName) -> Path:
    """The default root of a scale's tables."""
    return Path("runs") / f"tables-{scale}"


pretrain_main = Subcommand(PretrainCommand, "albert pretrain", pretrain, parses=False)
evaluate_main = Subcommand(Evaluate, "albert evaluate", "tasks:evaluate", check=check_evaluate)
_TABLES_COMMANDS = {
    "list": Subcommand(ListTables, "albert tables list", "tables:list_tables"),
    "run": Subcommand(TablesArguments, "albert tables run", "tables:run"),
    "show": Subcommand(TablesArguments, "albert tables show", "tables:show"),
    "export": Subcommand(ExportTables, "albert tables export", "tables:export"),
}
tables_main = CommandGroup("albert tables", _TABLES_COMMANDS)
