"""The paper's tables: listed, run, shown beside the paper's, and exported."""

import argparse
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from rich.console import Console
from rich.measure import Measurement
from rich.table import Table

from albert.cli.render import bold, open_console, print_lines, table
from albert.runtime.devices import set_threads
from albert.runtime.errors import MissingInput, Unavailable, UsageError, did_you_mean
from albert.runtime.json_files import save_versioned
from albert.tasks import glue, race, squad
from albert.tasks.declared import DeclaredTask
from experiments import jobs, report
from experiments.execution import Execution
from experiments.grids import GRIDS, SCALES, Grid, ScaleName, grid_of
from experiments.jobs import Folders, Study
from experiments.results import Outcome, export_results, hours_by_variant, read_outcome

PROGRAM = "python -m experiments"
KNOWN = (*GRIDS, *report.STATIC_TABLES)
ALL = "all"
"""The name that stands for every table."""


def main(arguments: list[str]) -> int | None:
    """Run one of the commands."""
    options = vars(make_parser().parse_args(arguments))
    command = options.pop("command")
    for option in ("threads", "seeds"):
        number = options.get(option)
        if number is not None and number < 1:
            raise UsageError(f"--{option}", f"is {number}, at least 1 is needed")
    return command(**options)


def make_parser() -> argparse.ArgumentParser:
    """The options of all commands."""
    parser = argparse.ArgumentParser(prog=PROGRAM, description="The paper's tables and figures, ours beside theirs.")
    parts = parser.add_subparsers(required=True, metavar="COMMAND")

    def add(function: Callable[..., None], name: str, text: str) -> argparse.ArgumentParser:
        part = parts.add_parser(name, help=text, description=text)
        part.set_defaults(command=function)
        return part

    listing = add(list_tables, "list", "the tables and figures, and the number of runs of each")
    running = add(run, "run", "run what is not done, then show; if it is stopped, the same command resumes")
    showing = add(show, "show", "results so far, ours beside the paper's, as Markdown, CSV and PNG")
    exporting = add(export, "export", "copy the results of finished runs, without their weights")
    listing.add_argument("--scale", choices=SCALES, default="tiny", help="determines the number of runs")
    names = f"names of tables and figures, see `{PROGRAM} list`, or {ALL}"
    running.add_argument("tables", nargs="+", metavar="TABLE", help=names)
    showing.add_argument("tables", nargs="*", metavar="TABLE", help=f"{names}; every finished table when not given")
    exporting.add_argument(
        "directory", type=Path, help="the copy; existing results of the same runs in it are replaced"
    )
    for part in (running, showing, exporting):
        part.add_argument("--scale", choices=SCALES, help="that of OUTPUT, else tiny, when not given")
        part.add_argument(
            "--output", type=Path, help="the root of all runs and results; runs/tables-SCALE when not given"
        )
    for part in (running, showing):
        part.add_argument(
            "--data",
            type=Path,
            nargs="+",
            default=(),
            metavar="CORPUS",
            help="prepared corpora: the first is the text of all tables, all together the additional text (Table 7)",
        )
        part.add_argument(
            "--seeds", type=int, help="pre-trainings of each row; those of OUTPUT, or of the scale, when not given"
        )
        part.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    for option, tasks in (("glue", "GLUE's tasks"), ("squad", "SQuAD"), ("race", "RACE")):
        text = f"the folder of {tasks}; without it these tasks are left out"
        running.add_argument(f"--{option}-data", type=Path, help=text)
    running.add_argument(
        "--files",
        nargs="+",
        default=(),
        metavar="TASK/SPLIT=FILE",
        help="replacements of published files, in their layout (qnli/train=mine.tsv)",
    )
    running.add_argument(
        "--threads", type=int, help="threads of this process; 1 when several processes share the cores"
    )
    return parser


# --------------------------------------------------------------------------------------------------------------------
# The commands.


def list_tables(*, scale: ScaleName) -> None:
    """List the tables and figures with their numbers of pre-trainings at a scale."""
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
    *,
    tables: Sequence[str],
    scale: ScaleName | None,
    data: Sequence[Path],
    glue_data: Path | None,
    squad_data: Path | None,
    race_data: Path | None,
    files: Sequence[str],
    output: Path | None,
    seeds: int | None,
    device: str,
    threads: int | None,
) -> None:
    """Run the missing runs of tables, then show the tables.

    Runs that several tables share are made once. If it is stopped, the same command resumes. Commands on
    other tables can run below the same output at the same time. `runs` below the output has each pre-training as
    `albert pretrain` writes it, `scores` each fine-tuning; a run that was made there by hand counts.
    """
    names = known_tables(tables)
    if not data:
        raise UsageError("--data", "is missing", "give a corpus from `albert prepare`")
    if threads is not None:
        set_threads(threads)
    folders = root_of(scale, output)
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
    save_versioned(folders.root / jobs.STUDY_NAME, study)
    Execution(folders=folders, jobs=listed, corpora=data, data=tasks, device=device).complete()
    write_tables(console, names, study, folders)


def show(
    *,
    tables: Sequence[str],
    scale: ScaleName | None,
    data: Sequence[Path],
    output: Path | None,
    seeds: int | None,
    device: str,
) -> None:
    """Show the results so far, ours beside the paper's, and check the paper's claims.

    Markdown, CSV and PNG are written to `tables` below the output. Missing results are left empty and counted.
    """
    folders = root_of(scale, output)
    study = jobs.open_study(folders.root, scale, data, device, seeds)
    if tables:
        names = known_tables(tables)
    else:
        names = [name for name in GRIDS if jobs.is_finished(grid_of(name, study.declared), study, folders)]
        if not names:
            raise UsageError(folders.root, "no table is finished", f"name one: {PROGRAM} show 5")
    write_tables(open_console(), names, study, folders)


def export(*, directory: Path, scale: ScaleName | None, output: Path | None) -> None:
    """Copy the results of finished runs: recipes, curves, scores, no weights; a few kilobytes for each run.

    `show` works on the copy, and `run --output COPY` continues from it on another machine; weights that are needed
    again are trained again.
    """
    root = root_of(scale, output).root
    print(f"{directory}: {export_results(root, directory):,} files of {root}")


def root_of(scale: ScaleName | None, output: Path | None) -> Folders:
    """The folders below OUTPUT, or below the default root of a scale."""
    return Folders(output or Path("runs") / f"tables-{scale or 'tiny'}")


def known_tables(names: Sequence[str]) -> list[str]:
    """The named tables, each once; raises UsageError for an unknown one."""
    for name in names:
        if name not in (*KNOWN, ALL):
            raise UsageError(f"table {name}", "unknown", did_you_mean(name, [*KNOWN, ALL]))
    return [*KNOWN] if ALL in names else list(dict.fromkeys(names))


def find_tasks(
    grids: Sequence[Grid],
    study: Study,
    glue_data: Path | None,
    squad_data: Path | None,
    race_data: Path | None,
    file_options: Sequence[str],
) -> tuple[dict[str, tuple[DeclaredTask, Path]], list[str]]:
    """The tasks that tables need, each with its folder, and a line for each task that is left out."""
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


def write_tables(console: Console, names: Sequence[str], study: Study, folders: Folders) -> None:
    """Print tables, and write each as Markdown, CSV and, if matplotlib is installed, PNG."""
    folder = folders.root / "tables"
    for name in names:
        if name in report.STATIC_TABLES:
            hours = (hours_by_variant(folders),) if name == "cost" else ()
            text = report.STATIC_TABLES[name](study.declared, *hours)
            print_unfolded(console, table(f"{text.table}: {text.title}", text.head, text.rows))
            print_lines(console, *text.notes, " and ".join(map(str, report.write_text_table(text, folder))))
    try:
        from experiments.pictures import draw_outcome
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


def show_outcome(console: Console, outcome: Outcome) -> None:
    """Print the table, and a sentence for each claim."""
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
