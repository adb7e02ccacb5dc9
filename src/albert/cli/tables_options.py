"""What the options of `albert tables` stand for: grids, the study below the root, and data of tasks."""

from collections.abc import Sequence

import torch

from albert.cli.tables_commands import TablesAsked, default_root
from albert.experiments.tables.facts import FACTS
from albert.experiments.tables.folders import Folders
from albert.experiments.tables.grid import Grid
from albert.experiments.tables.grids import GRIDS, grid_of
from albert.experiments.tables.jobs import learnt_tasks
from albert.experiments.tables.scales import Scale
from albert.experiments.tables.study import Study, study_of
from albert.experiments.tables.task_files import TaskFiles, own_files, with_files
from albert.runtime.errors import MissingInput, UsageError, did_you_mean
from albert.tasks import glue, race, squad

ALL = "all"


class TablesOptions(TablesAsked):
    """The options, and what they stand for."""

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


def task_names(scale: Scale) -> tuple[str, ...]:
    """The names of all tasks that a scale learns."""
    return tuple(one.task for one in scale.tasks)
