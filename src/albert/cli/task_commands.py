"""Options of `albert finetune`, `evaluate` and `tables`.

They are parsed without torch; the modules that do the work are imported afterwards."""

import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro
from tyro.conf import Positional

from albert.api.options import PRETRAINING, Evaluate, Finetune
from albert.cli.main import load_command
from albert.cli.options import ABOUT_RECIPES, command, dispatch, flat_parts, given_value, option_file, parse
from albert.experiments.price import Rates
from albert.runtime.json_files import to_toml
from albert.tasks.submission import BENCHMARKS, DECLARED

FINETUNE_DESCRIPTION = f"""Fine-tune a model on a declared task or on your own table, and evaluate it.

TASK is one of {", ".join(DECLARED)}, or {" or ".join(BENCHMARKS)} for a whole benchmark beside the paper's row. Without
TASK, --train names your own file (.csv, .tsv, .jsonl, .parquet; .conll or .txt with a word and its tag a line);
its columns are named by --text and --label. What kind of task it is, and its labels, are inferred from the rows and
shown first, with the flags that say otherwise. The same command goes on with a run that was stopped.

The model's encoder learns with a new head. Its architecture may change before it does: other depth or sharing, more
positions; what became of the weights is told.

Examples:
  albert finetune sst-2 --model runs/small --data glue --output runs/sst-2
  albert finetune --train my.csv --text review --label stars --model runs/small --output runs/stars
  albert finetune --train my.csv --text review --label stars --model runs/small --statistics-only
  albert finetune --train ner.conll --dev dev.conll --model runs/small --output runs/ner
  albert finetune --train exam.jsonl --text passage --question q --options a b c d --label answer \\
    --model runs/small --output runs/exam
  albert finetune --train qa.parquet --question question --context context --answer answers.text \\
    --answer-start answers.answer_start --model runs/small --output runs/qa
  albert finetune --task-file my_task.json --model runs/small --output runs/mine
  albert finetune rte --model runs/mnli --data glue --output runs/rte --seeds 5 --select best
  albert finetune glue --model albert/albert-base-v2 --data glue --output runs/glue --seeds 5
  albert finetune squad-2.0 --model albert/albert-base-v2 --data squad --output runs/squad2
  albert finetune sst-2 --model runs/small --data glue --output runs/half --depth 6 --teacher runs/sst-2
  albert finetune sst-2 --model runs/small --data glue --output runs/any-depth --exits every
  albert finetune race --model albert/albert-base-v2 --v2-recipe --data . --output runs/race
  albert finetune sst-2 --model runs/small --data glue --recipe mine.toml --output runs/mine
  albert finetune squad-1.1 --model albert/albert-base-v2 --data squad --output runs/squad \\
    --max-position-embeddings 1024 --max-length 1024"""


@dataclass(frozen=True, kw_only=True)
class FinetuneCommand(Finetune):
    """What to learn, from what, and how; with options from a file."""

    recipe_file: Annotated[Path | None, tyro.conf.arg(name="recipe")] = None
    """A TOML or JSON file with options of this command, by their names with _ for -; flags go before it."""
    print_recipe: bool = False
    """Print the options as a TOML file with comments, for --recipe, and train nothing."""


def finetune_main(arguments: list[str]) -> int:
    """Read the options, and run `albert finetune`."""
    defaults = option_file(FinetuneCommand, arguments)
    if given_value(arguments, "--print-recipe") is not None:
        args = parse(FinetuneCommand, arguments, "albert finetune", FINETUNE_DESCRIPTION, {"model": "", **defaults})
        print(f"# Options of `albert finetune`, from: {shlex.join(['albert', 'finetune', *arguments])}\n")
        print(to_toml(args, inline=flat_parts(FinetuneCommand), leave_out=ABOUT_RECIPES), end="")
        return 0
    args = parse(FinetuneCommand, arguments, "albert finetune", FINETUNE_DESCRIPTION, defaults)
    load_command("albert.cli.tasks").finetune(args)
    return 0


# --------------------------------------------------------------------------------------------------------------------
# What `albert evaluate` is asked for.

EVALUATE_DESCRIPTION = f"""Score a model, or several together, with a task's official metrics, beside a constant answer.

TASK is one of {", ".join(DECLARED)}, or {PRETRAINING} for what one model or several know of masked tokens, next
sentences and sentence order on the held-out part of what `albert prepare` wrote. Without TASK the model is asked what
it learnt from your own table: its columns and labels stand in the task.json beside it, --dev names another file, and
flags other columns.

Examples:
  albert evaluate sst-2 --model runs/sst-2 --data glue
  albert evaluate --model runs/stars
  albert evaluate --model runs/stars --dev new.csv
  albert evaluate --model some/model --dev dev.csv --text review --label stars
  albert evaluate rte --model runs/rte/seed-0 runs/rte/seed-1 runs/deep --data glue
  albert evaluate mnli --model runs/mnli --data glue --submission to-hand-in
  albert evaluate sst-2 --model runs/sst-2 --data glue --precision fp32 bf16 int8
  albert evaluate sst-2 --model runs/any-depth --data glue --depth 3 6 9 12 --patience 1 2 3 --curve curve.png
  albert evaluate {PRETRAINING} --model runs/small --data corpus
  albert evaluate {PRETRAINING} --model tiny runs/mine --data corpus --max-ngram 1 --max-length 128
  albert evaluate {PRETRAINING} --model runs/sop runs/nsp runs/none --data corpus --csv > table5.csv"""


evaluate_main = command(Evaluate, "albert evaluate", "tasks:evaluate", EVALUATE_DESCRIPTION)

ScaleName = Literal["tiny", "small", "base", "paper"]

# --------------------------------------------------------------------------------------------------------------------
# What `albert tables` is asked for.

NOTHING_STATED = Rates()

TABLES_USAGE = """usage: albert tables COMMAND [TABLE...] [options]

Commands:
  list    the tables and figures, and how many runs each takes
  plan    what tables cost on this machine, before anything starts
  run     run what is not done, then show; a stopped one goes on
  show    what there is, ours beside the paper's, as Markdown, CSV and PNG
  export  copy the results of finished runs, without their weights

Examples:
  albert tables list
  albert tables plan 3 4 5 --data corpus --glue-data glue
  albert tables run 5 --data corpus --glue-data glue --output runs/tables
  albert tables show 5 --output runs/tables
  albert tables show 1 14 cost
  albert tables run all --scale paper --data wikipedia-and-books more-text --glue-data glue"""

RUN = """Run what tables need and what is not done yet, then show them.

Runs that tables share are made once. Whatever stops the command, the same one goes on. The same command in a second
terminal takes its share of the runs: give both --threads 1 where they share two cores. OUTPUT/runs holds each
pre-training as `albert pretrain` writes it, OUTPUT/scores each fine-tuning; a run made by hand in its place counts.

Examples:
  albert tables run 5 --data corpus --glue-data glue
  albert tables run 3 4 5 --data corpus --glue-data glue --threads 1 --output runs/tables"""

PLAN = """Tell what tables cost on this machine in hours, memory and disk, before anything starts: a few real updates of
every shape are timed, and nothing is written. Runs that tables share count once, what is done already is taken off.

Examples:
  albert tables plan 5 --data corpus --glue-data glue
  albert tables plan all --scale small --data corpus"""

SHOW = """Show tables so far, ours beside the paper's, and judge what the paper claims. Markdown, CSV and PNG are
written to OUTPUT/tables. What is not done is left empty and counted.

Examples:
  albert tables show 5
  albert tables show all --output runs/tables"""

EXPORT = """Copy the results of finished runs: recipes, curves, scores, no weights; a few kilobytes a run. The copy
is shown as the original is, and `albert tables run --output COPY` goes on from it on another machine; weights that are
needed again are trained again.

Examples:
  albert tables export results/tables-tiny
  albert tables show 5 --output results/tables-tiny"""

LIST = """List the tables and figures.

Example: albert tables list --scale small"""


@dataclass(frozen=True, kw_only=True)
class ListTables:
    """What is listed."""

    scale: ScaleName = "tiny"
    """At which scale: it says how many runs a table takes."""


@dataclass(frozen=True, kw_only=True)
class ExportTables:
    """What is copied, and where to."""

    directory: Annotated[Positional[Path], tyro.conf.arg(metavar="DIRECTORY", help_behavior_hint="")]
    """The copy; what it holds of the same runs is replaced."""
    scale: ScaleName = "tiny"
    """Of the runs, where --output is not given."""
    output: Path | None = None
    """The root of the runs; runs/tables-SCALE when not set."""


@dataclass(frozen=True, kw_only=True)
class TablesAsked:
    """What the commands have in common."""

    tables: Annotated[Positional[tuple[str, ...]], tyro.conf.arg(metavar="TABLE...", help_behavior_hint="")] = ()
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
    rates: Annotated[Rates, tyro.conf.arg(name="")] = NOTHING_STATED
    """What an hour of the machine costs, for plans and for the table cost."""


PARTS = {
    "list": command(ListTables, "albert tables list", "tables:list_tables", LIST),
    "plan": command(TablesAsked, "albert tables plan", "tables:plan", PLAN),
    "run": command(TablesAsked, "albert tables run", "tables:run", RUN),
    "show": command(TablesAsked, "albert tables show", "tables:show", SHOW),
    "export": command(ExportTables, "albert tables export", "tables:export", EXPORT),
}


def tables_main(arguments: list[str]) -> int:
    """Run `albert tables`."""
    if arguments[:1] == ["keep"]:
        print("albert: note: albert tables keep is now called albert tables export", file=sys.stderr)
        arguments = ["export", *arguments[1:]]
    return dispatch("albert tables", TABLES_USAGE, PARTS, arguments, "command")


def default_root(scale: ScaleName) -> Path:
    """The default root of a scale's tables."""
    return Path("runs") / f"tables-{scale}"
