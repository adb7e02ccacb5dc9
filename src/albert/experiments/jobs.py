"""The jobs of tables, each once: pre-training, held-out evaluation, fine-tuning, speed; their folders and progress.

A job is done when its result lies in its folder, whoever made it: another table, another process, a command by hand.
Tables need no weights: a folder that was kept without them (every `model` left out) is shown as before, and a job that
still has to start from them makes them again."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

from albert.experiments.grids import SCALES, Arm, Downstream, Grid, Scale, ScaleName, arm_key
from albert.finetuning.run_record import RESULTS_NAME
from albert.model.config import AlbertConfig
from albert.pretraining.run_identity import CorpusRecord, record_of
from albert.runtime.devices import default_precision, pick_device
from albert.runtime.environment import Precision
from albert.runtime.errors import InvalidConfiguration, UsageError
from albert.runtime.json_files import load_json, read_journal
from albert.runtime.manifest import MANIFEST_NAME
from albert.tasks.submission import find_task
from albert.tasks.task import Task
from albert.text.shards import TokenCorpus
from albert.training.run_folder import RunFolder

# --------------------------------------------------------------------------------------------------------------------
# Where the runs of the tables lie, below one root.
#
# ROOT/runs/KEY/                       a pre-training, as `albert pretrain` writes it
#     scores/KEY/arm.json              what the key stands for
#                intrinsic.json        masked tokens, next sentences, sentence order, on held-out text
#                layers.json           how far each layer moves its input (Figure 1), once it was shown
#                TASK-seedN/           a fine-tuning, as `albert finetune` writes it
#     scores/speed-TABLE.json          training speed of a table's architectures on this machine
#     failures/JOB.json                why a job was given up; remove it to try again
#     claims/JOB/                      the lock of whoever works on a job


@dataclass(frozen=True)
class Folders:
    """The places below a root; nothing is made by asking for them."""

    root: Path

    def pretraining(self, key: str) -> RunFolder:
        return RunFolder(self.root / "runs" / key)

    def arm(self, key: str) -> Path:
        return self.root / "scores" / key / "arm.json"

    def intrinsic(self, key: str) -> Path:
        return self.root / "scores" / key / "intrinsic.json"

    def layers(self, key: str) -> Path:
        return self.root / "scores" / key / "layers.json"

    def finetuning(self, key: str, task: str, seed: int) -> RunFolder:
        return RunFolder(self.root / "scores" / key / f"{task}-seed{seed}")

    def speed(self, table: str) -> Path:
        return self.root / "scores" / f"speed-{table}.json"

    def failure(self, job: str) -> Path:
        return self.root / "failures" / f"{job}.json"

    def failures(self, key: str) -> list[Path]:
        return sorted((self.root / "failures").glob(f"{key}-*.json"))

    def claim(self, job: str) -> Path:
        return self.root / "claims" / job


_BELOW = Folders(Path())
"""The places as seen from the root."""

# --------------------------------------------------------------------------------------------------------------------
# What the journal of a run tells a table: how far it is, and how long it took.


def _newest(run: RunFolder) -> list[dict]:
    """What its journal tells, from the newest on."""
    return read_journal(run.journal_path)[::-1] if run.journal_path.is_file() else []


def training_hours(run: RunFolder) -> float | None:
    """Hours that a run which has ended has trained; None: it has not."""
    return next((record["seconds"] / 3600 for record in _newest(run) if record["event"] == "end"), None)


@dataclass(frozen=True, kw_only=True)
class _Job:
    """What tables want done.

    Args:
        name: no other job below the root has it.
        needs: names of the jobs that come first.
        result: the file below the root that it leaves.
        run: the folder of its run below the root; None: it is none, and takes no updates that could be counted.
    """

    several: ClassVar[str]
    """What jobs of the kind are called."""
    name: str
    title: str
    needs: tuple[str, ...] = ()
    result: Path
    run: Path | None = None

    def is_done(self, folders: Folders) -> bool:
        """Whether it has ended; the weights of its run may be gone."""
        return (folders.root / self.result).is_file()

    def lacks_weights(self, folders: Folders) -> bool:
        """Whether it is a run without a model with which another job could begin."""
        return self.run is not None and not (RunFolder(folders.root / self.run).model_path / MANIFEST_NAME).is_file()

    def steps_taken(self, folders: Folders) -> int:
        """Updates so far."""
        records = [] if self.run is None else _newest(RunFolder(folders.root / self.run))
        return next((record["step"] for record in records if "step" in record), 0)


@dataclass(frozen=True, kw_only=True)
class Pretraining(_Job):
    """An arm with its seed is pre-trained, from the model of the arm with the key `start`, if any."""

    several: ClassVar[str] = "pre-trainings"
    arm: Arm
    key: str
    start: str | None

    def is_done(self, folders: Folders) -> bool:
        """Whether it has a model, or its journal an end."""
        return super().is_done(folders) or training_hours(folders.pretraining(self.key)) is not None


@dataclass(frozen=True, kw_only=True)
class HeldOut(_Job):
    """An arm's model is evaluated on held-out text (paper §4.6)."""

    several: ClassVar[str] = "evaluations on held-out text"
    arm: Arm
    key: str
    sequences: int


@dataclass(frozen=True, kw_only=True)
class Finetuning(_Job):
    """An arm's model is fine-tuned on a task, from the model of the task `intermediate` where there is one."""

    several: ClassVar[str] = "fine-tunings"
    arm: Arm
    key: str
    task: Downstream
    seed: int
    intermediate: str | None


@dataclass(frozen=True, kw_only=True)
class Speed(_Job):
    """The training steps of a table's architectures, by row, are timed beside each other (Table 2)."""

    several: ClassVar[str] = "timings"
    table: str
    architectures: tuple[tuple[str, AlbertConfig], ...]
    sequence_length: int


Job = Pretraining | HeldOut | Finetuning | Speed


def done_jobs(jobs: Sequence[Job], folders: Folders) -> set[str]:
    """Names of the jobs that need not be done: finished ones, unless another begins with weights that are gone."""
    done = {job.name for job in jobs if job.is_done(folders)}
    weightless = {job.name for job in jobs if job.lacks_weights(folders)}
    for job in reversed(jobs):
        if job.name not in done and not folders.failure(job.name).exists():
            done -= weightless.intersection(job.needs)
    return done


def list_jobs(grids: Sequence[Grid], scale: Scale, corpora: Sequence[str], tasks: Sequence[str]) -> tuple[Job, ...]:
    """All jobs of tables in a good order: seed by seed, and of each arm what can be told of it before the next one.

    Args:
        corpora: fingerprints of the prepared corpora.
    """
    found: dict[str, Job] = {}
    for seed in scale.seeds:
        for grid in grids:
            for arm in (one for one in grid.arms() if has_corpora(one, corpora)):
                for job in _jobs_of_arm(grid, arm.seeded(seed), scale, corpora, tasks):
                    found.setdefault(job.name, job)
    for grid in grids:
        if any(column.kind == "speed-up" for column in grid.columns):
            shapes = tuple((row.name, row.arm.recipe.model) for row in grid.rows if row.arm is not None)
            job = Speed(
                name=f"speed-{grid.table}",
                title=f"Table {grid.table}: training speed",
                result=_BELOW.speed(grid.table),
                table=grid.table,
                architectures=shapes,
                sequence_length=scale.recipe.sequences.max_length,
            )
            found.setdefault(job.name, job)
    return tuple(found.values())


def has_corpora(arm: Arm, corpora: Sequence[str]) -> bool:
    """Whether an arm can learn from the corpora that there are: additional text needs a second one."""
    return len(corpora) > 1 or not any(part.additional_text for part in arm.chain())


def _jobs_of_arm(grid: Grid, arm: Arm, scale: Scale, corpora: Sequence[str], tasks: Sequence[str]) -> Iterator[Job]:
    for part in arm.chain():
        start, key = None if part.start is None else arm_key(part.start, corpora), arm_key(part, corpora)
        run = _BELOW.pretraining(key)
        yield Pretraining(
            name=f"{key}-pretraining",
            title=f"{part.name}, seed {part.recipe.seed}",
            needs=() if start is None else (f"{start}-pretraining",),
            result=run.model_path / MANIFEST_NAME,
            run=run.path,
            arm=part,
            key=key,
            start=start,
        )
    key, title = arm_key(arm, corpora), f"{arm.name}, seed {arm.recipe.seed}"
    first = (f"{key}-pretraining",)
    yield HeldOut(
        name=f"{key}-held-out",
        title=f"{title}: held-out text",
        needs=first,
        result=_BELOW.intrinsic(key),
        arm=arm,
        key=key,
        sequences=scale.held_out_sequences,
    )
    names = [task.task for task in scale.tasks if task.task in tasks]
    for task in tasks_of_grid(grid, scale, tasks):
        before = task.declared.intermediate if task.declared.intermediate in names else None
        for seed in task_seeds(scale, arm):
            run = _BELOW.finetuning(key, task.task, seed).path
            yield Finetuning(
                name=f"{key}-{task.task}-seed{seed}",
                title=f"{title}: {task.task}, seed {seed}",
                needs=first if before is None else (*first, f"{key}-{before}-seed{seed}"),
                result=run / RESULTS_NAME,
                run=run,
                arm=arm,
                key=key,
                task=task,
                seed=seed,
                intermediate=before,
            )


def tasks_of_grid(grid: Grid, scale: Scale, available: Sequence[str]) -> tuple[Downstream, ...]:
    """The tasks of a table's columns whose data are there, each after the one from whose model it starts."""
    wanted = {column.source for column in grid.columns if column.kind == "downstream"}
    wanted |= {one.declared.intermediate for one in scale.tasks if one.task in wanted}
    chosen = [one for one in scale.tasks if one.task in wanted and one.task in available]
    return tuple(sorted(chosen, key=lambda one: one.declared.intermediate is not None))


def task_seeds(scale: Scale, arm: Arm) -> Sequence[int]:
    """The seeds with which an arm learns each task."""
    return scale.task_seeds or (arm.recipe.seed,)


# --------------------------------------------------------------------------------------------------------------------
# What the runs below one root have in common, kept in its `study.json`: the scale, the corpora, the precision.

STUDY_NAME = "study.json"


@dataclass(frozen=True, kw_only=True)
class Study:
    """Runs that may be compared."""

    scale: ScaleName
    corpora: tuple[CorpusRecord, ...] = ()
    """The first one is the tables' text; with all of them arms learn that read additional text (Table 7)."""
    precision: Precision | None = None
    """Of all pre-trainings that leave it open, on whichever machine they go on; part of their keys. None: the study was
    begun before it was kept, and the keys of its runs were made of "auto"."""

    @property
    def declared(self) -> Scale:
        """The scale, with the study's precision in its recipe."""
        scale = SCALES[self.scale]
        if self.precision is None or scale.recipe.precision != "auto":
            return scale
        return replace(scale, recipe=replace(scale.recipe, precision=self.precision))

    @property
    def fingerprints(self) -> tuple[str, ...]:
        """Of the corpora, as keys of runs are made of them."""
        return tuple(corpus.manifest for corpus in self.corpora)


def open_study(root: Path, scale: ScaleName, corpora: Sequence[Path], device: str = "auto") -> Study:
    """The study below a root, or that which is to be begun there; nothing is written.

    Args:
        corpora: what `albert prepare` wrote; none: those that the root's runs have read.
        device: what a study that is to be begun computes on, which decides its precision.

    Raises:
        InvalidConfiguration: the root holds another scale, or runs of another first corpus.
        MissingInput, DamagedData: a corpus cannot be opened.
    """
    opened = [TokenCorpus.open(corpus, verify=False) for corpus in corpora]
    asked = Study(scale=scale, corpora=record_of(opened).corpora)
    if not (root / STUDY_NAME).is_file():
        return replace(asked, precision=default_precision(pick_device(device)))
    kept = load_json(Study, root / STUDY_NAME)
    if kept.scale != scale:
        raise InvalidConfiguration(root, f"holds runs of the scale {kept.scale}", f"give --scale {kept.scale}")
    if not corpora:
        return kept
    if kept.fingerprints[:1] != asked.fingerprints[:1]:
        why = f"holds runs on {kept.corpora[0]}, --data is {asked.corpora[0]}"
        raise InvalidConfiguration(root, why, "give the same corpus, or another --output")
    return replace(asked, precision=kept.precision)


def parse_file_options(said: Iterable[str]) -> dict[str, dict[str, Path]]:
    """Files in the place of published ones, by task and split.

    Args:
        said: "TASK/SPLIT=FILE" each, a file in the layout of the published one.
    """
    found: dict[str, dict[str, Path]] = {}
    for each in said:
        place, _, file = each.partition("=")
        task, _, split = place.rpartition("/")
        if not (task and split and file):
            raise UsageError("--files", f"{each!r} is not TASK/SPLIT=FILE", "write qnli/train=mine.tsv")
        found.setdefault(find_task(task).name, {})[split] = Path(file)
    return found


def with_files(task: Task, files: dict[str, Path] | None) -> Task:
    """The task with other files for some splits."""
    return replace(task, source=task.source.with_files(files)) if files else task
