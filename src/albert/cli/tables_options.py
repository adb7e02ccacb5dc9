"""The options of `albert tables`, and what they stand for: grids, the study below the root, and data of tasks."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import torch
import tyro
from tyro.conf import Positional

from albert.experiments.tables.expense import Rates
from albert.experiments.tables.facts import FACTS
from albert.experiments.tables.folders import Folders
from albert.experiments.tables.grid import Grid
from albert.experiments.tables.grids import GRIDS, grid_of
from albert.experiments.tables.jobs import learnt_tasks
from albert.experiments.tables.scales import Scale, ScaleName
from albert.experiments.tables.study import Study, study_of
from albert.experiments.tables.task_files import TaskFiles, own_files, with_files
from albert.runtime.errors import MissingInput, UsageError, did_you_mean
from albert.tasks import glue, race, squad

ALL = "all"
NOTHING_STATED = Rates()


@dataclass(frozen=True, kw_only=True)
class TablesOptions:
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

    @property
    def declared(self) -> Scale:
        """The scale, at the precision of the root's study."""
        return study_of(self.folders.root, self.scale, (), self.device).declared

    @property
    def folders(self) -> Folders:
        """Where everything lies."""
        return Folders(self.output or default_root(self.scale))

    def grids(self) -> list[Grid]:
        """The tables that are named and have runs, each once.

        Raises:
            UsageError: none is named, or one is unknown.
        """
        if not self.tables:
            raise UsageError("albert tables", "no table is named", "`albert tables list` has their names, all is each")
        names = GRIDS if ALL in self.tables else dict.fromkeys(self.tables)
        for name in names:
            if name not in (*GRIDS, *FACTS):
                raise UsageError(f"table {name}", "unknown", did_you_mean(name, [*GRIDS, *FACTS, ALL]))
        return [grid_of(name, self.declared) for name in names if name in GRIDS]

    def facts(self) -> list[str]:
        """The names of those that need none."""
        return list(FACTS) if ALL in self.tables else [name for name in dict.fromkeys(self.tables) if name in FACTS]

    def study(self) -> Study:
        """What the root's runs are of, or will be."""
        return study_of(self.folders.root, self.scale, self.data, self.device)

    def task_data(self, grids: Sequence[Grid]) -> tuple[dict[str, TaskFiles], list[str]]:
        """The files of each task that tables need and that are there, and a line for each that is not.

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
                raise MissingInput(folder, "is no folder", f"{option} names where the files of the tasks lie")
        wanted = {one.task for grid in grids for one in learnt_tasks(grid, self.declared, [*task_names(self.declared)])}
        own = own_files(self.files)
        found, lacking = {}, []
        for option, folder, tasks in places:
            for task in (with_files(one, own.get(one.name)) for one in tasks if one.name in wanted):
                if folder is None:
                    lacking.append(f"{task.name} is not learnt: there is no {option}")
                    continue
                try:
                    for split in ("train", "dev"):
                        task.source.read(folder, split)
                except MissingInput as error:
                    lacking.append(f"{task.name} is not learnt: {error}")
                else:
                    found[task.name] = TaskFiles(task, folder)
        return found, lacking

    def set_threads(self) -> None:
        """Use as many threads as asked for.

        Raises:
            UsageError: less than one.
        """
        if self.threads is not None:
            if self.threads < 1:
                raise UsageError("--threads", f"is {self.threads}, at least 1 is needed")
            torch.set_num_threads(self.threads)


def default_root(scale: ScaleName) -> Path:
    """Where a scale's tables are run when nobody says where."""
    return Path("runs") / f"tables-{scale}"


def task_names(scale: Scale) -> tuple[str, ...]:
    """The names of all tasks that a scale learns."""
    return tuple(one.task for one in scale.tasks)
