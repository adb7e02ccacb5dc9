"""`albert tables`: the paper's tables planned, run, shown beside the paper's, and exported."""

import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TypeVar

import torch
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table

from albert.cli.options import check_at_least
from albert.cli.render import bold, bytes_of, open_console, say, table
from albert.cli.training import ExportTables, ListTables, TablesArguments, default_root
from albert.experiments import jobs, report
from albert.experiments.execution import Execution, PlannedJob, Planner, overall_progress
from albert.experiments.grids import GRIDS, SCALES, Grid, Scale, grid_of
from albert.experiments.price import price_and_energy
from albert.experiments.results import Outcome, export_results, hours_by_arm, read_outcome
from albert.model.cost import count_parameters
from albert.runtime.devices import free_memory, pick_device
from albert.runtime.errors import MissingInput, UsageError, did_you_mean
from albert.runtime.json_files import save_json
from albert.tasks import glue, race, squad
from albert.tasks.task import Task

# --------------------------------------------------------------------------------------------------------------------
# What the options of `albert tables` stand for: grids, the study below the root, and data of tasks.

ALL = "all"


class TablesOptions(TablesArguments):
    """The options, and what they stand for."""

    @property
    def declared(self) -> Scale:
        """The scale, at the precision of the root's study."""
        return jobs.open_study(self.folders.root, self.scale, (), self.device).declared

    @property
    def folders(self) -> jobs.Folders:
        return jobs.Folders(self.output or default_root(self.scale))

    def names(self) -> list[str]:
        """The tables that are named, each once.

        Raises:
            UsageError: none is named, or one is unknown.
        """
        known = [*GRIDS, *report.STATIC_TABLES]
        if not self.tables:
            raise UsageError("albert tables", "no table is named", "`albert tables list` has their names, all is each")
        for name in self.tables:
            if name not in (*known, ALL):
                raise UsageError(f"table {name}", "unknown", did_you_mean(name, [*known, ALL]))
        return known if ALL in self.tables else list(dict.fromkeys(self.tables))

    def grids(self) -> list[Grid]:
        """Those that have runs."""
        return [grid_of(name, self.declared) for name in self.names() if name in GRIDS]

    def study(self) -> jobs.Study:
        return jobs.open_study(self.folders.root, self.scale, self.data, self.device)

    def task_data(self, grids: Sequence[Grid]) -> tuple[dict[str, tuple[Task, Path]], list[str]]:
        """Each task that tables need and the folder with its files, and a line for each that is not there.

        Raises:
            MissingInput: a folder is no folder.
            DamagedData: a file is not what it should be.
        """
        places = (
            ("--glue-data", self.glue_data, glue.TASKS),
            ("--squad-data", self.squad_data, squad.TASKS),
            ("--race-data", self.race_data, race.TASKS),
        )
        for option, folder, _ in places:
            if folder is not None and not folder.is_dir():
                raise MissingInput(folder, "is not a folder", f"{option} is the folder with the files of the tasks")
        known = [one.task for one in self.declared.tasks]
        wanted = {one.task for grid in grids for one in jobs.tasks_of_grid(grid, self.declared, known)}
        own = jobs.parse_file_options(self.files)
        found, lacking = {}, []
        for option, folder, tasks in places:
            for task in (jobs.with_files(one, own.get(one.name)) for one in tasks if one.name in wanted):
                if folder is None:
                    lacking.append(f"{task.name} is left out: {option} is not given")
                    continue
                try:
                    for split in ("train", "dev"):
                        task.source.read(folder, split)
                except MissingInput as error:
                    lacking.append(f"{task.name} is left out: {error}")
                else:
                    found[task.name] = task, folder
        return found, lacking

    def set_threads(self) -> None:
        """Use as many threads as asked for; raises UsageError for less than one."""
        check_at_least(self, 1, "threads")
        if self.threads is not None:
            torch.set_num_threads(self.threads)


# --------------------------------------------------------------------------------------------------------------------
# `albert tables` on the terminal: a plan, and a table so far.


def show_plan(console: Console, plan: Sequence[PlannedJob], args: TablesOptions) -> None:
    """Every distinct run with its cost, then the sum."""
    rows = [
        (
            job.arm.name,
            len(group),
            _done(group),
            f"{count_parameters(job.arm.recipe.model).model / 1e6:,.1f}",
            f"{group[0].tokens / 1e6:,.1f}",
            f"{group[0].tokens / group[0].seconds:,.0f}" + ("" if group[0].measured else " *"),
            _hours(group[0].seconds),
            ", ".join(group[0].tables),
        )
        for job, group in _alike(plan, jobs.Pretraining, lambda job: job.arm.name)
    ]
    columns = ("arm", "seeds", "done", "parameters, M", "tokens, M", "tokens/s", "hours each", "tables")
    print_whole(console, table("pre-trainings", columns, rows))
    rows = [
        (job.task.task, len(group), _done(group), _hours(sum(one.seconds for one in group)))
        for job, group in _alike(plan, jobs.Finetuning, lambda job: job.task.task)
    ]
    if rows:
        print_whole(console, table("fine-tunings", ("task", "runs", "done", "hours of all"), rows))
    if not all(one.measured for one in plan if one.steps):
        console.print("* not tried here, for it takes too long or too much memory: from its operations")
    _sum_up(console, plan, args)


def show_outcome(console: Console, outcome: Outcome) -> None:
    """The table, and a sentence for each claim."""
    head, rows = report.side_by_side(outcome)
    title = f"{outcome.grid.table}: {outcome.grid.title}"
    if not outcome.grid.columns:
        console.print(title, style="bold")
    elif sum(max(map(len, cells)) + 2 for cells in zip(head, *rows, strict=True)) <= console.width:
        console.print(table(title, head, rows))
    else:
        _show_columns(console, title, *report.side_by_side(outcome, both=True))
    say(console, report.describe_progress(outcome), *report.comparison_notes(outcome), *report.claim_sentences(outcome))


def print_whole(console: Console, made: Table) -> None:
    """A table with nothing cut off or folded: lines that are too long go on in the next line of the terminal."""
    needed = Measurement.get(console, console.options.update(max_width=10_000), made).maximum
    open_console(at_least=needed).print(made)


def _show_columns(console: Console, title: str, head: list[str], rows: list[list[str]]) -> None:
    """One column below the other, for terminals that are too narrow for all side by side."""
    lines: list[Sequence[object]] = []
    for place in range(1, len(head), 2):
        lines.append(bold(head[place].removesuffix(": paper")))
        lines += [(f"  {row[0]}", row[place], row[place + 1]) for row in rows if row[place] or row[place + 1]]
    console.print(table(title, ("", "paper", "ours"), lines))


def show_text_table(console: Console, facts: report.TextTable) -> None:
    """A table that needs no run."""
    print_whole(console, table(f"{facts.table}: {facts.title}", facts.head, facts.rows))
    say(console, *facts.notes)


def _sum_up(console: Console, plan: Sequence[PlannedJob], args: TablesOptions) -> None:
    left, total = _seconds_left(plan), sum(one.seconds for one in plan)
    share = 1 - left / total if total else 1.0
    lines = [f"{_hours(left)} hours left of {_hours(total)} ({share:.0%} done), one process after the other"]
    free = free_memory(pick_device(args.device))
    if memory := max((one.memory for one in plan if one.done < 1), default=0):
        room = "" if free is None else f" of {bytes_of(free)} that are free"
        lines.append(f"memory: {bytes_of(memory)} at the peak{room}")
        disk = sum(one.disk for one in plan if not one.done)
        lines.append(f"disk: {bytes_of(disk)} more below {args.folders.root}")
    spent = price_and_energy(left / 3600, args.rates)
    if args.rates.price_per_hour:
        lines.append(f"money: {spent.dollars:,.2f} dollars at {args.rates.price_per_hour:g} an hour")
    if args.rates.watts:
        lines.append(f"electricity: {spent.kilowatt_hours:,.2f} kWh, {spent.co2_kilograms:,.2f} kg of CO2")
    tables = dict.fromkeys(table for one in plan for table in one.tables)
    if len(tables) > 1:  # what a table shares with others included
        alone = {table: _seconds_left(one for one in plan if table in one.tables) for table in tables}
        lines.append("each table by itself, hours: " + ", ".join(f"{name} {_hours(s)}" for name, s in alone.items()))
    say(console, *lines)


_Job = TypeVar("_Job", jobs.Pretraining, jobs.Finetuning)


def _seconds_left(plan: Iterable[PlannedJob]) -> float:
    return sum((1 - one.done) * one.seconds for one in plan)


def _alike(
    plan: Sequence[PlannedJob], kind: type[_Job], name: Callable[[_Job], str]
) -> list[tuple[_Job, list[PlannedJob]]]:
    """The first of the jobs of one kind and name, and all of them."""
    found: dict[str, tuple[_Job, list[PlannedJob]]] = {}
    for one in plan:
        if isinstance(one.job, kind):
            found.setdefault(name(one.job), (one.job, []))[1].append(one)
    return list(found.values())


def _done(group: list[PlannedJob]) -> str:
    return f"{sum(one.done for one in group):.2g}" if any(one.done for one in group) else "0"


def _hours(seconds: float) -> str:
    hours = seconds / 3600
    return f"{hours:,.0f}" if hours >= 100 else f"{hours:.1f}" if hours >= 1 else f"{hours:.2f}"


def list_tables(args: ListTables) -> None:
    """Run `albert tables list`."""
    scale = SCALES[args.scale]
    rows = []
    for grid in (grid_of(name, scale) for name in GRIDS):
        todo = jobs.list_jobs([grid], scale, ("the text", "more text"), ())
        rows.append((grid.table, sum(isinstance(job, jobs.Pretraining) for job in todo), grid.title))
    rows += [(name, 0, facts(scale).title) for name, facts in report.STATIC_TABLES.items()]
    title = f"tables at the scale {scale.name}: {scale.decides}"
    print_whole(open_console(), table(title, ("name", "pre-trainings", "title"), rows, words=(0, 2)))


def plan(options: TablesArguments) -> None:
    """Run `albert tables plan`."""
    args = TablesOptions(**vars(options))
    args.set_threads()
    show_plan(open_console(), _planned(args, args.study()), args)


def run(options: TablesArguments) -> None:
    """Run `albert tables run`."""
    args = TablesOptions(**vars(options))
    args.set_threads()
    grids = args.grids()
    if not args.data:
        raise UsageError("--data", "is needed: what `albert prepare` wrote", "albert tables run TABLE --data CORPUS")
    study = args.study()
    data, _ = args.task_data(grids)
    planned = _planned(args, study)
    console = open_console()
    show_plan(console, planned, args)
    save_json(args.folders.root / jobs.STUDY_NAME, study)
    execution = Execution(
        folders=args.folders, jobs=[one.job for one in planned], corpora=args.data, data=data, device=args.device
    )
    if _seconds_left(planned):
        with overall_progress(planned, args.folders, "Tables"):
            execution.complete()
    _show(console, args, study)


def show(options: TablesArguments) -> None:
    """Run `albert tables show`."""
    args = TablesOptions(**vars(options))
    _show(open_console(), args, args.study())


def export(args: ExportTables) -> None:
    """Run `albert tables export`."""
    root = args.output or default_root(args.scale)
    print(f"{args.directory}: {export_results(root, args.directory):,} files of {root}")


def _planned(args: TablesOptions, study: jobs.Study) -> list[PlannedJob]:
    """The plan, measured; what is not learnt is told."""
    grids = args.grids()
    data, lacking = args.task_data(grids)
    for grid in grids:
        if not all(jobs.has_corpora(arm, study.fingerprints) for arm in grid.arms()):
            lacking.append(f"{grid.table}: additional text is left out: it needs a second --data")
    for line in lacking:
        print(f"albert: note: {line}", file=sys.stderr)
    planner = Planner(args.data, data, pick_device(args.device))
    return planner.plan(grids, args.declared, study.fingerprints, args.folders)


def _show(console: Console, args: TablesOptions, study: jobs.Study) -> None:
    folder = args.folders.root / "tables"
    for name in (name for name in args.names() if name in report.STATIC_TABLES):
        own = (hours_by_arm(args.folders), args.rates) if name == "cost" else ()
        found = report.STATIC_TABLES[name](args.declared, *own)
        show_text_table(console, found)
        console.print(" and ".join(map(str, report.write_text_table(found, folder))))
    for grid in args.grids():
        outcome = read_outcome(grid, args.declared, study.fingerprints, args.folders)
        picture = report.draw_outcome(outcome, args.folders, folder)
        paths = report.write_report(outcome, folder, None if picture is None else picture.name)
        show_outcome(console, outcome)
        written = [*paths, *([] if picture is None else [picture])]
        console.print(" and ".join(map(str, written)))
