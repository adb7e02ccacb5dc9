"""`albert tables`: its commands and options."""

import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import tyro
from tyro.conf import Positional

from albert.cli.main import load_command
from albert.cli.options import dispatch, parse
from albert.experiments.price import Rates

ScaleName = Literal["tiny", "small", "base", "paper"]
NOTHING_STATED = Rates()

USAGE = """usage: albert tables COMMAND [TABLE...] [options]

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
    """The folder of GLUE's tasks; without it none of them is learnt."""
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


PARTS: dict[str, tuple[type, str]] = {
    "list": (ListTables, LIST),
    "plan": (TablesAsked, PLAN),
    "run": (TablesAsked, RUN),
    "show": (TablesAsked, SHOW),
    "export": (ExportTables, EXPORT),
}


def main(arguments: list[str]) -> int:
    """Read the options, and run `albert tables`."""
    parts = {name: partial(_part, name) for name in PARTS}
    if arguments[:1] == ["keep"]:
        print("albert: note: albert tables keep is now called albert tables export", file=sys.stderr)
        arguments = ["export", *arguments[1:]]
    return dispatch("albert tables", USAGE, parts, arguments, "command")


def _part(name: str, arguments: list[str]) -> int:
    shape, description = PARTS[name]
    args = parse(shape, arguments, f"albert tables {name}", description)
    return getattr(load_command("albert.cli.tables"), "list_tables" if name == "list" else name)(args)


def default_root(scale: ScaleName) -> Path:
    """Where a scale's tables are run when nobody says where."""
    return Path("runs") / f"tables-{scale}"
