"""`albert tables`: the paper's tables planned, run, shown beside the paper's, and exported."""

import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import torch
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table

from albert.cli.options import check_at_least
from albert.cli.render import bold, bytes_of, open_console, say, table
from albert.cli.training import ExportTables, ListTables, TablesArguments, default_root
from albert.experiments import jobs, report
from albert.experiments.execution import Execution, PlannedJob, Planner
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
# From options to grids, the study in the root directory, and the data of tasks.

ALL = "all"


class TablesOptions(TablesArguments):
    """The options of `albert tables`, and the values derived from them."""

    @property
    def declared(self) -> Scale:
        """The scale, with the precision and seeds of the study."""
        return jobs.open_study(self.folders.root, self.scale, (), self.device, self.seeds).declared

    @property
    def folders(self) -> jobs.Folders:
        return jobs.Folders(self.output or default_root(self.scale))

    def names(self) -> list[str]:
        """The named tables, each once."""
        known = [*GRIDS, *report.STATIC_TABLES]
        if not self.tables:
            raise UsageError("albert tables", "no table is named", "`albert tables list` has their names, all is each")
        for name in self.tables:
            if name not in (*known, ALL):
                raise UsageError(f"table {name}", "unknown", did_you_mean(name, [*known, ALL]))
        return known if ALL in self.tables else list(dict.fromkeys(self.tables))

    def grids(self) -> list[Grid]:
        """The named tables that have runs."""
        return [grid_of(name, self.declared) for name in self.names() if name in GRIDS]

    def study(self) -> jobs.Study:
        check_at_least(self, 1, "seeds")
        return jobs.open_study(self.folders.root, self.scale, self.data, self.device, self.seeds)

    def task_data(self, grids: Sequence[Grid]) -> tuple[dict[str, tuple[Task, Path]], list[str]]:
        """The tasks that tables need, each with its folder, and a line for each task that is left out."""
        sources = (
            ("--glue-data", self.glue_data, glue.TASKS),
            ("--squad-data", self.squad_data, squad.TASKS),
            ("--race-data", self.race_data, race.TASKS),
        )
        for option, folder, _ in sources:
            if folder is not None and not folder.is_dir():
                raise MissingInput(folder, "is not a folder", f"{option} is the folder with the files of the tasks")
        known = [plan.task for plan in self.declared.tasks]
        needed = {plan.task for grid in grids for plan in jobs.tasks_of_grid(grid, self.declared, known)}
        files = jobs.parse_file_options(self.files)
        found, missing = {}, []
        for option, folder, tasks in sources:
            for task in (jobs.with_files(task, files.get(task.name)) for task in tasks if task.name in needed):
                if folder is None:
                    missing.append(f"{task.name} is left out: {option} is not given")
                    continue
                try:
                    for split in ("train", "dev"):
                        task.source.read(folder, split)
                except MissingInput as error:
                    missing.append(f"{task.name} is left out: {error}")
                else:
                    found[task.name] = task, folder
        return found, missing

    def set_threads(self) -> None:
        """Set the number of threads; raises UsageError for less than one."""
        check_at_least(self, 1, "threads")
        if self.threads is not None:
            torch.set_num_threads(self.threads)


# --------------------------------------------------------------------------------------------------------------------
# Output: a plan, and a table with its results so far.


def show_plan(console: Console, plan: Sequence[PlannedJob], args: TablesOptions) -> None:
    """Print every distinct run with its cost, then the sums."""
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
        for job, group in _grouped(plan, "pre-trainings", lambda job: job.arm.name)
    ]
    columns = ("arm", "seeds", "done", "parameters, M", "tokens, M", "tokens/s", "hours each", "tables")
    print_unfolded(console, table("pre-trainings", columns, rows))
    rows = [
        (job.task and job.task.task, len(group), _done(group), _hours(sum(planned.seconds for planned in group)))
        for job, group in _grouped(plan, "fine-tunings", lambda job: job.task and job.task.task)
    ]
    if rows:
        print_unfolded(console, table("fine-tunings", ("task", "runs", "done", "hours of all"), rows))
    if not all(planned.measured for planned in plan if planned.steps):
        console.print("* not measured, because it takes too long or too much memory; estimated from its operations")
    _show_sums(console, plan, args)


def show_outcome(console: Console, outcome: Outcome) -> None:
    """Print the table, and a sentence for each claim."""
    title = f"{outcome.grid.table}: {outcome.grid.title}"
    head, rows = report.side_by_side(outcome)
    if not outcome.grid.columns:
        console.print(title, style="bold")
    elif sum(max(map(len, cells)) + 2 for cells in zip(head, *rows, strict=True)) <= console.width:
        console.print(table(title, head, rows))
    else:
        _show_columns(console, title, *report.side_by_side(outcome, both=True))
    say(console, report.describe_progress(outcome), *report.comparison_notes(outcome), *report.claim_sentences(outcome))


def print_unfolded(console: Console, wide: Table) -> None:
    """Print a table without folding or cutting cells; the terminal wraps long lines."""
    needed = Measurement.get(console, console.options.update(max_width=10_000), wide).maximum
    open_console(at_least=needed).print(wide)


def _show_columns(console: Console, title: str, head: list[str], rows: list[list[str]]) -> None:
    """Print the columns one below the other, for narrow terminals."""
    lines: list[Sequence[object]] = []
    for index in range(1, len(head), 2):
        lines.append(bold(head[index].removesuffix(": paper")))
        lines += [(f"  {row[0]}", row[index], row[index + 1]) for row in rows if row[index] or row[index + 1]]
    console.print(table(title, ("", "paper", "ours"), lines))


def _show_sums(console: Console, plan: Sequence[PlannedJob], args: TablesOptions) -> None:
    left, total = _seconds_left(plan), sum(planned.seconds for planned in plan)
    share = 1 - left / total if total else 1.0
    lines = [f"{_hours(left)} hours left of {_hours(total)} ({share:.0%} done), one process after the other"]
    free = free_memory(pick_device(args.device))
    if memory := max((planned.memory for planned in plan if planned.done < 1), default=0):
        room = "" if free is None else f" of {bytes_of(free)} that are free"
        lines.append(f"memory: {bytes_of(memory)} at the peak{room}")
        disk = sum(planned.disk for planned in plan if not planned.done)
        lines.append(f"disk: {bytes_of(disk)} more below {args.folders.root}")
    cost = price_and_energy(left / 3600, args.rates)
    if args.rates.price_per_hour:
        lines.append(f"money: {cost.dollars:,.2f} dollars at {args.rates.price_per_hour:g} an hour")
    if args.rates.watts:
        lines.append(f"electricity: {cost.kilowatt_hours:,.2f} kWh, {cost.co2_kilograms:,.2f} kg of CO2")
    tables = dict.fromkeys(table for planned in plan for table in planned.tables)
    if len(tables) > 1:  # including runs that a table shares with others
        alone = {table: _seconds_left(planned for planned in plan if table in planned.tables) for table in tables}
        lines.append("each table by itself, hours: " + ", ".join(f"{name} {_hours(s)}" for name, s in alone.items()))
    say(console, *lines)


def _seconds_left(plan: Iterable[PlannedJob]) -> float:
    return sum((1 - planned.done) * planned.seconds for planned in plan)


def _grouped(
    plan: Sequence[PlannedJob], kind: jobs.JobKind, name: Callable[[jobs.Job], str | None]
) -> list[tuple[jobs.Job, list[PlannedJob]]]:
    """The jobs of one kind, grouped by name: the first of a group, and all of it."""
    groups: dict[str | None, list[PlannedJob]] = {}
    for planned in plan:
        if planned.job.kind == kind:
            groups.setdefault(name(planned.job), []).append(planned)
    return [(group[0].job, group) for group in groups.values()]


def _done(group: list[PlannedJob]) -> str:
    return f"{sum(planned.done for planned in group):.2g}" if any(planned.done for planned in group) else "0"


def _hours(seconds: float) -> str:
    hours = seconds / 3600
    return f"{hours:,.0f}" if hours >= 100 else f"{hours:.1f}" if hours >= 1 else f"{hours:.2f}"


def list_tables(args: ListTables) -> None:
    """Run `albert tables list`."""
    scale = SCALES[args.scale]
    rows = []
    for grid in (grid_of(name, scale) for name in GRIDS):
        planned = jobs.list_jobs([grid], scale, ("the text", "more text"), ())
        rows.append((grid.table, sum(job.kind == "pre-trainings" for job in planned), grid.title))
    rows += [(name, 0, static_table(scale).title) for name, static_table in report.STATIC_TABLES.items()]
    title = f"tables at the scale {scale.name}: {scale.decides}"
    print_unfolded(open_console(), table(title, ("name", "pre-trainings", "title"), rows, words=(0, 2)))


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
        raise UsageError("--data", "is missing", "give a corpus from `albert prepare`")
    study = args.study()
    data, _ = args.task_data(grids)
    planned = _planned(args, study)
    console = open_console()
    show_plan(console, planned, args)
    save_json(args.folders.root / jobs.STUDY_NAME, study)
    execution = Execution(
        folders=args.folders, jobs=[each.job for each in planned], corpora=args.data, data=data, device=args.device
    )
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
    """The plan with measured costs; prints what is left out."""
    grids = args.grids()
    data, missing = args.task_data(grids)
    for grid in grids:
        if not all(jobs.has_corpora(arm, study.fingerprints) for arm in grid.arms()):
            missing.append(f"{grid.table}: additional text is left out: it needs a second --data")
    for line in missing:
        print(f"albert: note: {line}", file=sys.stderr)
    planner = Planner(args.data, data, pick_device(args.device))
    return planner.plan(grids, args.declared, study.fingerprints, args.folders)


def _show(console: Console, args: TablesOptions, study: jobs.Study) -> None:
    folder = args.folders.root / "tables"
    for name in (name for name in args.names() if name in report.STATIC_TABLES):
        costs = (hours_by_arm(args.folders), args.rates) if name == "cost" else ()
        text = report.STATIC_TABLES[name](args.declared, *costs)
        print_unfolded(console, table(f"{text.table}: {text.title}", text.head, text.rows))
        say(console, *text.notes, " and ".join(map(str, report.write_text_table(text, folder))))
    for grid in args.grids():
        outcome = read_outcome(grid, args.declared, study.fingerprints, args.folders)
        picture = report.draw_outcome(outcome, args.folders, folder)
        paths = report.write_report(outcome, folder, None if picture is None else picture.name)
        show_outcome(console, outcome)
        console.print(" and ".join(map(str, [*paths, *([] if picture is None else [picture])])))
