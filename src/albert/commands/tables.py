"""`albert tables`: the paper's tables, run, shown beside the paper's, and exported."""

import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from rich.console import Console
from rich.measure import Measurement
from rich.table import Table

from albert.api.options import Argument
from albert.cli.main import imports
from albert.cli.options import CommandGroup, command
from albert.cli.render import bold, open_console, print_lines, table
from albert.runtime.errors import MissingInput, Unavailable, UsageError, did_you_mean

if TYPE_CHECKING:
    from albert.paper.grids import Grid
    from albert.paper.jobs import Folders, Study
    from albert.paper.results import Outcome
    from albert.tasks.task import Task

ScaleName = Literal["tiny", "small", "base", "paper"]
TABLES = Argument(metavar="TABLE...")
ALL = "all"
"""The name that stands for every table."""


def list_tables(*, scale: ScaleName = "tiny") -> None:
    """List the tables and figures.

    Example: albert tables list --scale small

    Args:
        scale: The scale, which determines the number of runs.
    """
    with imports():
        from albert.paper import jobs, report
        from albert.paper.grids import GRIDS, SCALES, grid_of

    declared = SCALES[scale]
    rows = []
    for name in GRIDS:
        grid = grid_of(name, declared)
        planned = jobs.list_jobs([grid], declared, ("the text", "more text"), ())
        rows.append((grid.table, sum(job.kind == "pre-trainings" for job in planned), grid.title))
    for name, static_table in report.STATIC_TABLES.items():
        rows.append((name, 0, static_table(declared).title))
    title = f"tables at the scale {declared.name}: {declared.decides}"
    print_unfolded(open_console(), table(title, ("name", "pre-trainings", "title"), rows, words=(0, 2)))


def run(
    tables: Annotated[tuple[str, ...], TABLES] = (),
    *,
    scale: ScaleName = "tiny",
    data: tuple[Path, ...] = (),
    glue_data: Path | None = None,
    squad_data: Path | None = None,
    race_data: Path | None = None,
    files: tuple[str, ...] = (),
    output: Path | None = None,
    seeds: int | None = None,
    device: Literal["auto", "cpu", "cuda"] = "auto",
    threads: int | None = None,
) -> None:
    """Run the missing runs of tables, then show the tables.

    Runs that several tables share are made once. If it is stopped, the same command resumes. Commands on
    other tables can run below the same OUTPUT at the same time: use --threads 1 in both on two cores. OUTPUT/runs
    contains each pre-training as `albert pretrain` writes it, OUTPUT/scores each fine-tuning; a run that you made there
    yourself counts.

    Example: albert tables run 5 --data corpus --glue-data glue

    Example: albert tables run 3 4 5 --data corpus --glue-data glue --threads 1 --output runs/tables

    Args:
        tables: Names of tables and figures, see `albert tables list`, or all.
        scale: The size: hours of two cores, hours of a GPU, the paper's shapes on a GPU, or the paper's recipes.
        data: Prepared corpora: the first is the text of all tables, all together are the additional text (Table 7).
        glue_data: The folder of GLUE's tasks; without it these tasks are left out.
        squad_data: The folder of SQuAD's files, likewise.
        race_data: The folder of RACE, likewise.
        files: TASK/SPLIT=FILE: a replacement of a published file, in its layout (qnli/train=mine.tsv).
        output: The root of all runs and results; runs/tables-SCALE when not set.
        seeds: Number of pre-trainings of each row, with the seeds from 0 on; those of OUTPUT, or of the scale, when not
            set.
        threads: Threads of this process; 1 when several processes share the cores.
    """
    for option, number in (("--threads", threads), ("--seeds", seeds)):
        if number is not None and number < 1:
            raise UsageError(option, f"is {number}, at least 1 is needed")

    with imports():
        from albert.paper import jobs
        from albert.paper.execution import Execution
        from albert.paper.grids import GRIDS, grid_of
        from albert.runtime.devices import set_threads
        from albert.runtime.json_files import save_json

    names = known_tables(tables)
    if not data:
        raise UsageError("--data", "is missing", "give a corpus from `albert prepare`")
    if threads is not None:
        set_threads(threads)
    folders = jobs.Folders(output or default_root(scale))
    study = jobs.open_study(folders.root, scale, data, device, seeds)
    grids = [grid_of(name, study.declared) for name in names if name in GRIDS]
    tasks, left_out = find_tasks(grids, study, glue_data, squad_data, race_data, files)
    for grid in grids:
        if not all(jobs.has_corpora(variant, study.fingerprints) for variant in grid.variants()):
            left_out.append(f"{grid.table}: additional text is left out: it needs a second --data")
    for line in left_out:
        print(f"albert: note: {line}", file=sys.stderr)
    listed = jobs.list_jobs(grids, study.declared, study.fingerprints, [*tasks])
    console = open_console()
    counts = ", ".join(f"{count:,} {kind}" for kind, count in Counter(job.kind for job in listed).items())
    done = len(jobs.done_jobs(listed, folders))
    print_lines(console, f"{counts}; {done:,} of {len(listed):,} are done")
    save_json(folders.root / jobs.STUDY_NAME, study)
    Execution(folders=folders, jobs=listed, corpora=data, data=tasks, device=device).complete()
    write_tables(console, names, study, folders)


def show(
    tables: Annotated[tuple[str, ...], TABLES] = (),
    *,
    scale: ScaleName = "tiny",
    data: tuple[Path, ...] = (),
    output: Path | None = None,
    seeds: int | None = None,
    device: Literal["auto", "cpu", "cuda"] = "auto",
) -> None:
    """Show the results so far, ours beside the paper's, and check the paper's claims. Markdown, CSV and PNG are
    written to OUTPUT/tables. Missing results are left empty and counted.

    Example: albert tables show 5

    Example: albert tables show all --output runs/tables

    Args:
        tables: Names of tables and figures, see `albert tables list`, or all.
        scale: The size: hours of two cores, hours of a GPU, the paper's shapes on a GPU, or the paper's recipes.
        data: Prepared corpora: the first is the text of all tables, all together are the additional text (Table 7).
        output: The root of all runs and results; runs/tables-SCALE when not set.
        seeds: Number of pre-trainings of each row, with the seeds from 0 on; those of OUTPUT, or of the scale, when not
            set.
    """
    if seeds is not None and seeds < 1:
        raise UsageError("--seeds", f"is {seeds}, at least 1 is needed")

    with imports():
        from albert.paper import jobs

    folders = jobs.Folders(output or default_root(scale))
    study = jobs.open_study(folders.root, scale, data, device, seeds)
    write_tables(open_console(), known_tables(tables), study, folders)


def export(
    directory: Path,
    *,
    scale: ScaleName = "tiny",
    output: Path | None = None,
) -> None:
    """Copy the results of finished runs: recipes, curves, scores, no weights; a few kilobytes for each run. `albert
    tables show` works on the copy, and `albert tables run --output COPY` continues from it on another machine; weights
    that are needed again are trained again.

    Example: albert tables export results/tables-tiny

    Example: albert tables show 5 --output results/tables-tiny-openings

    Args:
        directory: The copy; existing results of the same runs are replaced.
        scale: The scale of the runs, if --output is not set.
        output: The root of the runs; runs/tables-SCALE when not set.
    """
    with imports():
        from albert.paper.results import export_results

    root = output or default_root(scale)
    print(f"{directory}: {export_results(root, directory):,} files of {root}")


def default_root(scale: ScaleName) -> Path:
    """The root of a scale's tables without --output."""
    return Path("runs") / f"tables-{scale}"


def known_tables(names: Sequence[str]) -> list[str]:
    """The named tables, each once; raises UsageError for an unknown one, or if there is none."""
    from albert.paper.grids import GRIDS
    from albert.paper.report import STATIC_TABLES

    known = [*GRIDS, *STATIC_TABLES]
    if not names:
        raise UsageError("albert tables", "no table is named", "`albert tables list` has their names, all is each")
    for name in names:
        if name not in (*known, ALL):
            raise UsageError(f"table {name}", "unknown", did_you_mean(name, [*known, ALL]))
    return known if ALL in names else list(dict.fromkeys(names))


def find_tasks(
    grids: "Sequence[Grid]",
    study: "Study",
    glue_data: Path | None,
    squad_data: Path | None,
    race_data: Path | None,
    file_options: Sequence[str],
) -> "tuple[dict[str, tuple[Task, Path]], list[str]]":
    """The tasks that tables need, each with its folder, and a line for each task that is left out."""
    from albert.paper import jobs
    from albert.tasks import glue, race, squad

    sources = (
        ("--glue-data", glue_data, glue.TASKS),
        ("--squad-data", squad_data, squad.TASKS),
        ("--race-data", race_data, race.TASKS),
    )
    for option, folder, _ in sources:
        if folder is not None and not folder.is_dir():
            raise MissingInput(folder, "is not a folder", f"{option} is the folder with the files of the tasks")
    known = [plan.task for plan in study.declared.tasks]
    needed = {plan.task for grid in grids for plan in jobs.tasks_of_grid(grid, study.declared, known)}
    files = jobs.parse_file_options(file_options)
    found = {}
    left_out = []
    for option, folder, declared in sources:
        for task in declared:
            if task.name not in needed:
                continue
            if folder is None:
                left_out.append(f"{task.name} is left out: {option} is not given")
                continue
            task = jobs.with_files(task, files.get(task.name))
            try:
                for split in ("train", "dev"):
                    task.source.read(folder, split)
            except MissingInput as error:
                left_out.append(f"{task.name} is left out: {error}")
            else:
                found[task.name] = task, folder
    return found, left_out


# --------------------------------------------------------------------------------------------------------------------
# Output: tables with their results so far.


def write_tables(console: Console, names: Sequence[str], study: "Study", folders: "Folders") -> None:
    """Print tables, and write each as Markdown, CSV and, if matplotlib is installed, PNG."""
    from albert.paper import report
    from albert.paper.grids import GRIDS, grid_of
    from albert.paper.results import hours_by_variant, read_outcome

    folder = folders.root / "tables"
    for name in names:
        if name in report.STATIC_TABLES:
            hours = (hours_by_variant(folders),) if name == "cost" else ()
            text = report.STATIC_TABLES[name](study.declared, *hours)
            print_unfolded(console, table(f"{text.table}: {text.title}", text.head, text.rows))
            print_lines(console, *text.notes, " and ".join(map(str, report.write_text_table(text, folder))))
    try:
        from albert.paper.table_pictures import draw_outcome
    except Unavailable as error:
        print(f"albert: note: no pictures of tables: {error}", file=sys.stderr)
        draw_outcome = None
    for name in names:
        if name in GRIDS:
            outcome = read_outcome(grid_of(name, study.declared), study.declared, study.fingerprints, folders)
            picture = None if draw_outcome is None else draw_outcome(outcome, folders, folder)
            paths = list(report.write_report(outcome, folder, None if picture is None else picture.name))
            if picture is not None:
                paths.append(picture)
            show_outcome(console, outcome)
            console.print(" and ".join(map(str, paths)))


def show_outcome(console: Console, outcome: "Outcome") -> None:
    """Print the table, and a sentence for each claim."""
    from albert.paper import report

    title = f"{outcome.grid.table}: {outcome.grid.title}"
    head, rows = report.side_by_side(outcome)
    if not outcome.grid.columns:
        console.print(title, style="bold")
    elif sum(max(map(len, cells)) + 2 for cells in zip(head, *rows, strict=True)) <= console.width:
        console.print(table(title, head, rows))
    else:
        show_columns(console, title, *report.side_by_side(outcome, both=True))
    print_lines(
        console, report.describe_progress(outcome), *report.comparison_notes(outcome), *report.claim_sentences(outcome)
    )


def show_columns(console: Console, title: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print the columns one below the other, for narrow terminals."""
    lines: list[Sequence[object]] = []
    for index in range(1, len(head), 2):
        lines.append(bold(head[index].removesuffix(": paper")))
        lines += [(f"  {row[0]}", row[index], row[index + 1]) for row in rows if row[index] or row[index + 1]]
    console.print(table(title, ("", "paper", "ours"), lines))


def print_unfolded(console: Console, wide: Table) -> None:
    """Print a table without folding or cutting cells; the terminal wraps long lines."""
    needed = Measurement.get(console, console.options.update(max_width=10_000), wide).maximum
    open_console(at_least=needed).print(wide)


tables_main = CommandGroup(
    "albert tables",
    {
        "list": command(list_tables, "albert tables list"),
        "run": command(run, "albert tables run"),
        "show": command(show, "albert tables show"),
        "export": command(export, "albert tables export"),
    },
)
