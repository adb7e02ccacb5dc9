"""`albert tables`: the paper's tables and figures, run again at the scale at hand, ours beside theirs."""

import sys

from rich.console import Console

from albert.cli.console import open_console
from albert.cli.light_tables import table
from albert.cli.tables_commands import KeepTables, ListTables, TablesAsked, default_root
from albert.cli.tables_options import TablesOptions
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
from albert.experiments.tables.scales import SCALES
from albert.experiments.tables.study import Study, keep_study
from albert.runtime.devices import pick_device
from albert.runtime.errors import UsageError
from albert.runtime.progress import progress


def list_tables(asked: ListTables) -> int:
    """Run `albert tables list`."""
    scale = SCALES[asked.scale]
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


def plan(options: TablesAsked) -> int:
    """Run `albert tables plan`."""
    asked = TablesOptions(**vars(options))
    asked.set_threads()
    study = asked.study()
    show_plan(open_console(), _planned(asked, study), asked)
    return 0


def run(options: TablesAsked) -> int:
    """Run `albert tables run`."""
    asked = TablesOptions(**vars(options))
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


def show(options: TablesAsked) -> int:
    """Run `albert tables show`."""
    asked = TablesOptions(**vars(options))
    _show(open_console(), asked, asked.study())
    return 0


def keep(asked: KeepTables) -> int:
    """Run `albert tables keep`."""
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
