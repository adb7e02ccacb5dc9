"""`albert tables`: the paper's tables and figures, run again at the scale at hand, ours beside theirs."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console
from tyro.conf import Positional

from albert.cli.command_line import parse
from albert.cli.console import open_console
from albert.cli.light_tables import table
from albert.cli.subcommands import dispatch
from albert.cli.tables_options import TablesOptions, default_root
from albert.cli.tables_shown import print_whole, show_facts, show_outcome, show_plan
from albert.experiments.tables.cost import Costs
from albert.experiments.tables.execution import Execution
from albert.experiments.tables.facts import FACTS, costs
from albert.experiments.tables.figure import draw_outcome
from albert.experiments.tables.grids import GRIDS, grid_of
from albert.experiments.tables.jobs import Pretraining, has_text, jobs_of
from albert.experiments.tables.keeping import keep_results
from albert.experiments.tables.outcomes import hours_by_arm, outcome_of
from albert.experiments.tables.overall_progress import overall_progress
from albert.experiments.tables.plan import Plan, plan_tables
from albert.experiments.tables.report import write_facts, write_report
from albert.experiments.tables.scales import SCALES, ScaleName
from albert.experiments.tables.study import Study, keep_study
from albert.runtime.devices import pick_device
from albert.runtime.errors import UsageError
from albert.runtime.progress import progress

USAGE = """usage: albert tables COMMAND [TABLE...] [options]

Commands:
  list    the tables and figures, and how many runs each takes
  plan    what tables cost on this machine, before anything starts
  run     run what is not done, then show; a stopped one goes on
  show    what there is, ours beside the paper's, as Markdown, CSV and PNG
  keep    copy what finished runs came to, without their weights

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

KEEP = """Copy what finished runs came to: recipes, curves and scores, without weights, a few kilobytes a run. The copy
is shown as the original is, and `albert tables run --output COPY` goes on from it on another machine; weights that are
wanted again are made again.

Examples:
  albert tables keep results/tables-tiny
  albert tables show 5 --output results/tables-tiny"""

LIST = """List the tables and figures.

Example: albert tables list --scale small"""


@dataclass(frozen=True, kw_only=True)
class ListTables:
    """What is listed."""

    scale: ScaleName = "tiny"
    """At which scale: it says how many runs a table takes."""


@dataclass(frozen=True, kw_only=True)
class KeepTables:
    """What is copied, and where to."""

    directory: Annotated[Positional[Path], tyro.conf.arg(metavar="DIRECTORY", help_behavior_hint="")]
    """Where the copy lies; what it holds of the same runs gives way."""
    scale: ScaleName = "tiny"
    """Of the runs, where --output is not given."""
    output: Path | None = None
    """The root of the runs; runs/tables-SCALE when not set."""


def main(arguments: list[str]) -> int:
    """Run `albert tables`."""
    parts = {"list": list_tables, "plan": plan, "run": run, "show": show, "keep": keep}
    return dispatch("albert tables", USAGE, parts, arguments, "command")


def list_tables(arguments: list[str]) -> int:
    """Run `albert tables list`."""
    scale = SCALES[parse(ListTables, arguments, "albert tables list", LIST).scale]
    made = table(f"tables at the scale {scale.name}: {scale.decides}", "name", "pre-trainings", "title")
    made.columns[2].justify = "left"
    for name in GRIDS:
        grid = grid_of(name, scale)
        runs = sum(isinstance(job, Pretraining) for job in jobs_of([grid], scale, ("the text", "more text"), ()))
        made.add_row(name, f"{runs:,}", grid.title)
    for name, facts in FACTS.items():
        made.add_row(name, "0", facts(scale).title)
    print_whole(open_console(), made)
    return 0


def plan(arguments: list[str]) -> int:
    """Run `albert tables plan`."""
    asked = parse(TablesOptions, arguments, "albert tables plan", PLAN)
    asked.set_threads()
    study = asked.study()
    show_plan(open_console(), _planned(asked, study), asked)
    return 0


def run(arguments: list[str]) -> int:
    """Run `albert tables run`."""
    asked = parse(TablesOptions, arguments, "albert tables run", RUN)
    asked.set_threads()
    grids = asked.grids()
    if not asked.data:
        raise UsageError("--data", "is needed: what `albert prepare` wrote", "albert tables run TABLE --data CORPUS")
    study = asked.study()
    data, _ = asked.task_data(grids)
    planned = _planned(asked, study)
    console = open_console()
    show_plan(console, planned, asked)
    keep_study(asked.folders.root, study)
    execution = Execution(
        folders=asked.folders,
        jobs=[one.job for one in planned.jobs],
        corpora=asked.data,
        data=data,
        device=asked.device,
    )
    if planned.seconds_left:
        with overall_progress(planned, asked.folders, "Tables"):
            execution.complete()
    _show(console, asked, study)
    return 0


def show(arguments: list[str]) -> int:
    """Run `albert tables show`."""
    asked = parse(TablesOptions, arguments, "albert tables show", SHOW)
    _show(open_console(), asked, asked.study())
    return 0


def keep(arguments: list[str]) -> int:
    """Run `albert tables keep`."""
    asked = parse(KeepTables, arguments, "albert tables keep", KEEP)
    root = asked.output or default_root(asked.scale)
    print(f"{asked.directory}: {keep_results(root, asked.directory):,} files of {root}")
    return 0


def _planned(asked: TablesOptions, study: Study) -> Plan:
    """The plan, measured; what is not learnt is told."""
    grids, scale = asked.grids(), asked.declared
    data, lacking = asked.task_data(grids)
    for grid in grids:
        if not all(has_text(arm, study.fingerprints) for arm in grid.arms()):
            lacking.append(f"{grid.table}: additional text is not learnt from, for there is no second --data")
    for line in lacking:
        print(f"albert: note: {line}", file=sys.stderr)
    costs = Costs(asked.data, data, pick_device(asked.device))
    shapes = costs.shapes(jobs_of(grids, scale, study.fingerprints, [*data]))
    with progress("Measuring", len(shapes), "shapes") as bar:
        return plan_tables(grids, scale, study.fingerprints, [*data], asked.folders, costs, bar.advance)


def _show(console: Console, asked: TablesOptions, study: Study) -> None:
    folder = asked.folders.root / "tables"
    for name in asked.facts():
        found = costs(asked.declared, hours_by_arm(asked.folders), asked.rates) if name == "cost" else None
        found = found or FACTS[name](asked.declared)
        show_facts(console, found)
        console.print(" and ".join(map(str, write_facts(found, folder))), markup=False)
    for grid in asked.grids():
        outcome = outcome_of(grid, asked.declared, study.fingerprints, asked.folders)
        picture = draw_outcome(outcome, asked.folders, folder)
        paths = write_report(outcome, folder, None if picture is None else picture.name)
        show_outcome(console, outcome)
        written = [*paths, *([] if picture is None else [picture])]
        console.print(" and ".join(map(str, written)), markup=False)
