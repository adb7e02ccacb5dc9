"""What is to be done for tables: pre-trainings, and what is asked of their models afterwards. Each thing once.

A job is done when its result lies in its folder, whoever made it: another table, another process, a command by hand.
What is told of a run is small, and its weights are not: a folder that was kept without them (every `model` left out) is
shown as before, and what has still to begin with them has them made again.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from albert.experiments.tables.arms import Arm, arm_key
from albert.experiments.tables.downstream import Downstream
from albert.experiments.tables.folders import Folders
from albert.experiments.tables.grid import Grid
from albert.experiments.tables.run_journals import hours_of, last_step
from albert.experiments.tables.scales import Scale
from albert.finetuning.run_record import RESULTS_NAME
from albert.model.config import AlbertConfig
from albert.runtime.manifests import MANIFEST_NAME
from albert.training.run_folder import RunFolder


@dataclass(frozen=True, kw_only=True)
class Pretraining:
    """An arm with its seed learns."""

    arm: Arm
    key: str
    start: str | None
    """The key of the arm whose model it begins as."""

    @property
    def name(self) -> str:
        return f"{self.key}-pretraining"

    @property
    def title(self) -> str:
        return f"{self.arm.name}, seed {self.arm.recipe.seed}"

    @property
    def needs(self) -> tuple[str, ...]:
        """Names of the jobs that come first."""
        return () if self.start is None else (f"{self.start}-pretraining",)

    def is_done(self, folders: Folders) -> bool:
        """Whether it has ended; its weights may be gone."""
        return self.has_weights(folders) or hours_of(folders.pretraining(self.key)) is not None

    def has_weights(self, folders: Folders) -> bool:
        """Whether another job can begin with its model."""
        return (folders.pretraining(self.key).model_path / MANIFEST_NAME).is_file()

    def steps_taken(self, folders: Folders) -> int:
        """Updates so far."""
        return last_step(folders.pretraining(self.key))


@dataclass(frozen=True, kw_only=True)
class HeldOut:
    """An arm's model is asked about held-out text (paper §4.6)."""

    arm: Arm
    key: str
    sequences: int

    @property
    def name(self) -> str:
        return f"{self.key}-held-out"

    @property
    def title(self) -> str:
        return f"{self.arm.name}, seed {self.arm.recipe.seed}: held-out text"

    @property
    def needs(self) -> tuple[str, ...]:
        """Names of the jobs that come first."""
        return (f"{self.key}-pretraining",)

    def is_done(self, folders: Folders) -> bool:
        return folders.intrinsic(self.key).is_file()

    def steps_taken(self, folders: Folders) -> int:
        """None before the end."""
        return 0


@dataclass(frozen=True, kw_only=True)
class Finetuning:
    """An arm's model learns a task."""

    arm: Arm
    key: str
    task: Downstream
    seed: int
    intermediate: str | None
    """The task from whose model it starts, where the paper and the scale have one."""

    @property
    def name(self) -> str:
        return finetuning_name(self.key, self.task.task, self.seed)

    @property
    def title(self) -> str:
        return f"{self.arm.name}, seed {self.arm.recipe.seed}: {self.task.task}, seed {self.seed}"

    @property
    def needs(self) -> tuple[str, ...]:
        """Names of the jobs that come first."""
        before = () if self.intermediate is None else (finetuning_name(self.key, self.intermediate, self.seed),)
        return (f"{self.key}-pretraining", *before)

    def is_done(self, folders: Folders) -> bool:
        """Whether it has its scores; its weights may be gone."""
        return (self.run(folders).path / RESULTS_NAME).is_file()

    def has_weights(self, folders: Folders) -> bool:
        """Whether another job can begin with its model."""
        return (self.run(folders).model_path / MANIFEST_NAME).is_file()

    def run(self, folders: Folders) -> RunFolder:
        """Where it lies."""
        return folders.finetuning(self.key, self.task.task, self.seed)

    def steps_taken(self, folders: Folders) -> int:
        """Updates so far."""
        return last_step(self.run(folders))


@dataclass(frozen=True, kw_only=True)
class Speed:
    """The training steps of a table's architectures are timed beside each other (Table 2)."""

    table: str
    architectures: tuple[tuple[str, AlbertConfig], ...]
    """By row."""
    sequence_length: int

    @property
    def name(self) -> str:
        return f"speed-{self.table}"

    @property
    def title(self) -> str:
        return f"Table {self.table}: training speed"

    @property
    def needs(self) -> tuple[str, ...]:
        """Nothing."""
        return ()

    def is_done(self, folders: Folders) -> bool:
        return folders.speed(self.table).is_file()

    def steps_taken(self, folders: Folders) -> int:
        """None before the end."""
        return 0


Job = Pretraining | HeldOut | Finetuning | Speed


def done_jobs(jobs: Sequence[Job], folders: Folders) -> set[str]:
    """Names of the jobs that need not be done: finished ones, unless another begins with weights that are gone.

    Args:
        jobs: in an order in which they can be done.
        folders: where results lie.
    """
    done = {job.name for job in jobs if job.is_done(folders)}
    weightless = {
        job.name for job in jobs if isinstance(job, Pretraining | Finetuning) and not job.has_weights(folders)
    }
    for job in reversed(jobs):
        if job.name not in done and not folders.failure(job.name).exists():
            done -= weightless.intersection(job.needs)
    return done


def jobs_of(grids: Sequence[Grid], scale: Scale, corpora: Sequence[str], tasks: Sequence[str]) -> tuple[Job, ...]:
    """All jobs of tables in a good order: seed by seed, and of each arm what can be told of it before the next one.

    Args:
        grids: the tables.
        scale: of all of them.
        corpora: fingerprints of the prepared corpora.
        tasks: names of the tasks whose data are there.
    """
    found: dict[str, Job] = {}
    for seed in scale.seeds:
        for grid in grids:
            for arm in (one for one in grid.arms() if has_text(one, corpora)):
                for job in _jobs_of_arm(grid, arm.seeded(seed), scale, corpora, tasks):
                    found.setdefault(job.name, job)
    for grid in grids:
        if any(column.kind == "speed-up" for column in grid.columns):
            shapes = tuple((row.name, row.arm.recipe.model) for row in grid.rows if row.arm is not None)
            job = Speed(table=grid.table, architectures=shapes, sequence_length=scale.recipe.sequences.max_length)
            found.setdefault(job.name, job)
    return tuple(found.values())


def has_text(arm: Arm, corpora: Sequence[str]) -> bool:
    """Whether an arm can learn from the corpora that there are: additional text needs a second one."""
    return len(corpora) > 1 or not any(part.additional_text for part in arm.chain())


def _jobs_of_arm(grid: Grid, arm: Arm, scale: Scale, corpora: Sequence[str], tasks: Sequence[str]) -> Iterator[Job]:
    for part in arm.chain():
        start = None if part.start is None else arm_key(part.start, corpora)
        yield Pretraining(arm=part, key=arm_key(part, corpora), start=start)
    key = arm_key(arm, corpora)
    yield HeldOut(arm=arm, key=key, sequences=scale.held_out_sequences)
    for task in learnt_tasks(grid, scale, tasks):
        intermediate = task.declared.intermediate
        intermediate = intermediate if any(intermediate == one.task for one in scale.tasks) else None
        for seed in task_seeds(scale, arm):
            yield Finetuning(
                arm=arm, key=key, task=task, seed=seed, intermediate=intermediate if intermediate in tasks else None
            )


def learnt_tasks(grid: Grid, scale: Scale, available: Sequence[str]) -> tuple[Downstream, ...]:
    """The tasks of a table's columns whose data are there, each after the one from whose model it starts."""
    wanted = {column.source for column in grid.columns if column.kind == "downstream"}
    wanted |= {one.declared.intermediate for one in scale.tasks if one.task in wanted}
    chosen = [one for one in scale.tasks if one.task in wanted and one.task in available]
    return tuple(sorted(chosen, key=lambda one: one.declared.intermediate is not None))


def task_seeds(scale: Scale, arm: Arm) -> tuple[int, ...]:
    """The seeds with which an arm learns each task."""
    return scale.task_seeds or (arm.recipe.seed,)


def finetuning_name(key: str, task: str, seed: int) -> str:
    """The name of a job."""
    return f"{key}-{task}-seed{seed}"
