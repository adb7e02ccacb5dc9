"""`albert tables`: the paper's tables, run, shown beside the paper's, and exported."""

import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.measure import Measurement
from rich.table import Table

from albert.cli.options import check_at_least
from albert.cli.render import bold, open_console, print_lines, table
from albert.cli.training import ExportTables, ListTables, TablesArguments, default_root
from albert.paper import jobs, report
from albert.paper.execution import Execution
from albert.paper.grids import GRIDS, SCALES, Grid, Scale, grid_of
from albert.paper.results import Outcome, export_results, hours_by_variant, read_outcome
from albert.runtime.devices import set_threads
from albert.runtime.errors import MissingInput, Unavailable, UsageError, did_you_mean
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
        found = {}
        missing = []
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
            set_threads(self.threads)


# --------------------------------------------------------------------------------------------------------------------
# Output: a table with its results so far.


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
    print_lines(
        console, report.describe_progress(outcome), *report.comparison_notes(outcome), *report.claim_sentences(outcome)
    )


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


def run(options: TablesArguments) -> None:
    """Run `albert tables run`."""
    args = TablesOptions(**vars(options))
    args.set_threads()
    grids = args.grids()
    if not args.data:
        raise UsageError("--data", "is missing", "give a corpus from `albert prepare`")
    study = args.study()
    data, missing = args.task_data(grids)
    for grid in grids:
        if not all(jobs.has_corpora(variant, study.fingerprints) for variant in grid.variants()):
            missing.append(f"{grid.table}: additional text is left out: it needs a second --data")
    for line in missing:
        print(f"albert: note: {line}", file=sys.stderr)
    listed = jobs.list_jobs(grids, args.declared, study.fingerprints, [*data])
    console = open_console()
    counts = Counter(job.kind for job in listed)
    done = len(jobs.done_jobs(listed, args.folders))
    print_lines(
        console, f"{', '.join(f'{n:,} {kind}' for kind, n in counts.items())}; {done:,} of {len(listed):,} are done"
    )
    save_json(args.folders.root / jobs.STUDY_NAME, study)
    execution = Execution(folders=args.folders, jobs=listed, corpora=args.data, data=data, device=args.device)
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


def _show(console: Console, args: TablesOptions, study: jobs.Study) -> None:
    folder = args.folders.root / "tables"
    for name in (name for name in args.names() if name in report.STATIC_TABLES):
        hours = (hours_by_variant(args.folders),) if name == "cost" else ()
        text = report.STATIC_TABLES[name](args.declared, *hours)
        print_unfolded(console, table(f"{text.table}: {text.title}", text.head, text.rows))
        print_lines(console, *text.notes, " and ".join(map(str, report.write_text_table(text, folder))))
    try:
        from albert.paper.table_pictures import draw_outcome
    except Unavailable as error:
        print(f"albert: note: no pictures of tables: {error}", file=sys.stderr)
        draw_outcome = None
    for grid in args.grids():
        outcome = read_outcome(grid, args.declared, study.fingerprints, args.folders)
        picture = None if draw_outcome is None else draw_outcome(outcome, args.folders, folder)
        paths = report.write_report(outcome, folder, None if picture is None else picture.name)
        show_outcome(console, outcome)
        console.print(" and ".join(map(str, [*paths, *([] if picture is None else [picture])])))
