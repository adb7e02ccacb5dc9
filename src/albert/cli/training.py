"""Options of `albert evaluate` and `tables`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from albert.api.checks import check_evaluate
from albert.api.keywords import Argument
from albert.api.options import Evaluate
from albert.cli.options import CommandGroup, Subcommand

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


evaluate_main = Subcommand(Evaluate, "albert evaluate", "tasks:evaluate", check=check_evaluate)
_TABLES_COMMANDS = {
    "list": Subcommand(ListTables, "albert tables list", "tables:list_tables"),
    "run": Subcommand(TablesArguments, "albert tables run", "tables:run"),
    "show": Subcommand(TablesArguments, "albert tables show", "tables:show"),
    "export": Subcommand(ExportTables, "albert tables export", "tables:export"),
}
tables_main = CommandGroup("albert tables", _TABLES_COMMANDS)
