"""The plan of tables: every job once, what it costs on this machine, and how much of it is done. Nothing is written."""

from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass

from albert.experiments.tables.cost import Cost, Costs
from albert.experiments.tables.folders import Folders
from albert.experiments.tables.grid import Grid
from albert.experiments.tables.jobs import Job, done_jobs, jobs_of
from albert.experiments.tables.scales import Scale


@dataclass(frozen=True, kw_only=True)
class PlannedJob:
    """A job with its cost.

    Args:
        job: what is done.
        cost: all of it, from the beginning.
        done: the share of it that is done, 0 to 1.
        tables: which of the tables need it.
    """

    job: Job
    cost: Cost
    done: float
    tables: tuple[str, ...]

    @property
    def seconds_left(self) -> float:
        """What is still to be done."""
        return (1 - self.done) * self.cost.seconds


@dataclass(frozen=True)
class Plan:
    """All jobs of some tables in the order in which they are done."""

    jobs: tuple[PlannedJob, ...]

    @property
    def seconds(self) -> float:
        """Of all jobs from the beginning, one after the other."""
        return sum(one.cost.seconds for one in self.jobs)

    @property
    def seconds_left(self) -> float:
        """Of what is not done."""
        return sum(one.seconds_left for one in self.jobs)

    @property
    def disk_left(self) -> int:
        """Bytes that what is not begun will keep."""
        return sum(one.cost.disk for one in self.jobs if not one.done)

    @property
    def memory(self) -> int:
        """Bytes of the largest job that is not done; 0: all are."""
        return max((one.cost.memory for one in self.jobs if one.done < 1), default=0)

    @property
    def all_measured(self) -> bool:
        """Whether every figure comes from updates that were tried."""
        return all(one.cost.measured for one in self.jobs if one.cost.steps)

    def seconds_alone(self, table: str) -> float:
        """What a table has left when it is run alone: what it shares with others included."""
        return sum(one.seconds_left for one in self.jobs if table in one.tables)


def plan_tables(
    grids: Sequence[Grid],
    scale: Scale,
    corpora: Sequence[str],
    tasks: Sequence[str],
    folders: Folders,
    costs: Costs,
    measured: Callable[[int], None] = lambda _: None,
) -> Plan:
    """Plan tables; shapes are measured on the way.

    Args:
        grids: the tables, all of one scale.
        scale: theirs.
        corpora: fingerprints of the prepared corpora.
        tasks: names of the tasks whose data are there.
        folders: where results lie.
        costs: what tells the cost of a job.
        measured: called with 1 after each shape that was measured.
    """
    jobs = jobs_of(grids, scale, corpora, tasks)
    wanted = {grid.table: {job.name for job in jobs_of([grid], scale, corpora, tasks)} for grid in grids}
    for shape in costs.shapes(jobs):
        costs.measure(shape)
        measured(1)
    done = done_jobs(jobs, folders)
    planned = []
    for job in jobs:
        cost = costs.of(job)
        tables = tuple(table for table, names in wanted.items() if job.name in names)
        planned.append(PlannedJob(job=job, cost=cost, done=share_done(job, cost, folders, done), tables=tables))
    return Plan(tuple(planned))


def share_done(job: Job, cost: Cost, folders: Folders, done: Set[str]) -> float:
    """How much of a job is done, 0 to 1, whoever did it; one that was given up has nothing left.

    Args:
        job: of a plan.
        cost: its own.
        folders: where results lie.
        done: what `done_jobs` says of the plan's jobs.
    """
    if folders.failure(job.name).exists() or job.name in done:
        return 1.0
    share = min(1.0, job.steps_taken(folders) / cost.steps) if cost.steps else 0.0
    return 0.0 if share == 1.0 and job.is_done(folders) else share  # ended, but its weights are gone and wanted again
