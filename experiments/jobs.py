"""The jobs behind the tables (pre-training, held-out evaluation, fine-tuning, speed): folders, order and progress.

A job is done when its result file exists, no matter which table, process or command wrote it. Tables need no weights: a
folder without them (every `model` left out) is shown as before, and weights that a later job starts from are trained
again."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from albert.runtime.devices import fastest_precision, pick_device
from albert.runtime.environment import Precision
from albert.runtime.errors import InvalidConfiguration, UsageError
from albert.runtime.json_files import load_versioned, read_journal
from albert.runtime.manifest import MANIFEST_NAME
from albert.tasks.declared import DeclaredTask
from albert.tasks.submission import find_task
from albert.text.shards import CorpusRecord, TokenCorpus, corpus_record
from albert.training.run_folder import RESULTS_NAME, RunFolder
from experiments.grids import SCALES, Downstream, Grid, Scale, ScaleName, Variant, variant_key

# --------------------------------------------------------------------------------------------------------------------
# Layout of the folders below the root of a study.
#
# ROOT/runs/KEY/                       a pre-training, as `albert pretrain` writes it
#     scores/KEY/arm.json              name, seed and start of the variant with this key
#                intrinsic.json        masked tokens, next sentences, sentence order, on held-out text
#                layers.json           how far each layer moves its input (Figure 1), measured when first shown
#                TASK-seedN/           a fine-tuning, as `albert finetune` writes it
#     scores/speed-TABLE.json          training speed of a table's architectures on this machine
#     failures/JOB.json                why a job failed; remove it to try again


@dataclass(frozen=True)
class Folders:
    """Paths below the root of a study; nothing is created."""

    root: Path

    def pretraining(self, key: str) -> RunFolder:
        return RunFolder(self.root / "runs" / key)

    def score(self, key: str, name: str) -> Path:
        """A file with scores of the variant with this key."""
        return self.root / "scores" / key / name

    def finetuning(self, key: str, task: str, seed: int) -> RunFolder:
        return RunFolder(self.root / "scores" / key / f"{task}-seed{seed}")

    def speed(self, table: str) -> Path:
        return self.root / "scores" / f"speed-{table}.json"

    def failure(self, job: str) -> Path:
        return self.root / "failures" / f"{job}.json"

    def failures(self, key: str) -> list[Path]:
        return sorted((self.root / "failures").glob(f"{key}-*.json"))


_RELATIVE = Folders(Path())
INTRINSIC_NAME = "intrinsic.json"
LAYERS_NAME = "layers.json"

# --------------------------------------------------------------------------------------------------------------------
# Jobs, and their progress according to the journals of their runs.


def training_hours(run: RunFolder) -> float | None:
    """Hours of training of a finished run; None if it has not finished."""
    records = read_journal(run.journal_path) if run.journal_path.is_file() else []
    return next((record["seconds"] / 3600 for record in reversed(records) if record["event"] == "end"), None)


JobKind = Literal["pre-trainings", "evaluations on held-out text", "fine-tunings", "timings"]
"""Pre-training of a variant; evaluation of its model on held-out text (paper §4.6); fine-tuning of its model on a task;
timing of the training steps of a table's architectures (Table 2)."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """A job of some tables.

    Args:
        name: unique below the root.
        needs: names of the jobs that come first.
        result: the file below the root that it writes.
        run: the folder of its run below the root; None if it takes no training steps.
        model: the model below the root that it starts from or evaluates; None for random weights.
        variants: its variant, or for a timing those of the table, by row.
        key: of its variant.
        sequences: of an evaluation.
        task, seed: of a fine-tuning.
    """

    kind: JobKind
    name: str
    title: str
    needs: tuple[str, ...] = ()
    result: Path
    run: Path | None = None
    model: Path | None = None
    variants: Mapping[str, Variant]
    key: str = ""
    sequences: int = 0
    task: Downstream | None = None
    seed: int = 0

    @property
    def variant(self) -> Variant:
        """The variant; the first one of a timing."""
        return next(iter(self.variants.values()))

    def is_done(self, folders: Folders) -> bool:
        """Return whether there is a result, or, for a pre-training, its journal has an end; weights may be missing."""
        ended = self.kind == "pre-trainings" and training_hours(folders.pretraining(self.key)) is not None
        return ended or (folders.root / self.result).is_file()

    def lacks_weights(self, folders: Folders) -> bool:
        """Return whether it is a run without the weights that another job would start from."""
        return self.run is not None and not (RunFolder(folders.root / self.run).model_path / MANIFEST_NAME).is_file()


def done_jobs(jobs: Sequence[Job], folders: Folders) -> set[str]:
    """Names of the finished jobs, except those whose missing weights another job still needs."""
    done = {job.name for job in jobs if job.is_done(folders)}
    weightless = {job.name for job in jobs if job.lacks_weights(folders)}
    for job in reversed(jobs):
        if job.name not in done and not folders.failure(job.name).exists():
            done -= weightless.intersection(job.needs)
    return done


def list_jobs(grids: Sequence[Grid], scale: Scale, corpora: Sequence[str], tasks: Sequence[str]) -> tuple[Job, ...]:
    """All jobs of tables in the order to run them: seed by seed, and for each seed variant by variant.

    Args:
        corpora: fingerprints of the prepared corpora.
        tasks: names of the tasks whose data are there.
    """
    jobs: dict[str, Job] = {}
    for seed in scale.seeds:
        for grid in grids:
            for variant in (variant for variant in grid.variants() if has_corpora(variant, corpora)):
                for job in _jobs_of_variant(grid, variant.seeded(seed), scale, corpora, tasks):
                    jobs.setdefault(job.name, job)
    for grid in grids:
        if any(column.kind == "speed-up" for column in grid.columns):
            jobs[f"speed-{grid.table}"] = Job(
                kind="timings",
                name=f"speed-{grid.table}",
                title=f"Table {grid.table}: training speed",
                result=_RELATIVE.speed(grid.table),
                variants={row.name: row.variant for row in grid.rows if row.variant is not None},
            )
    return tuple(jobs.values())


def is_finished(grid: Grid, study: "Study", folders: Folders) -> bool:
    """Return whether every run of a table is done; False for a table without runs, or without their corpora."""
    tasks = [task.task for task in study.declared.tasks]
    jobs = list_jobs([grid], study.declared, study.fingerprints, tasks)
    can_train = all(has_corpora(variant, study.fingerprints) for variant in grid.variants())
    return can_train and bool(jobs) and all(job.is_done(folders) for job in jobs)


def has_corpora(variant: Variant, corpora: Sequence[str]) -> bool:
    """Return whether there are enough corpora to train a variant: additional text needs a second one."""
    return len(corpora) > 1 or not any(part.additional_text for part in variant.chain())


def _jobs_of_variant(
    grid: Grid, variant: Variant, scale: Scale, corpora: Sequence[str], tasks: Sequence[str]
) -> Iterator[Job]:
    needs = tuple[str, ...]()
    model = None
    for part in variant.chain():
        key = variant_key(part, corpora)
        run = _RELATIVE.pretraining(key)
        yield Job(
            kind="pre-trainings",
            name=f"{key}-pretraining",
            title=f"{part.name}, seed {part.recipe.seed}",
            needs=needs,
            result=run.model_path / MANIFEST_NAME,
            run=run.path,
            model=model,
            variants={part.name: part},
            key=key,
        )
        needs = (f"{key}-pretraining",)
        model = run.model_path
    key = variant_key(variant, corpora)
    title = f"{variant.name}, seed {variant.recipe.seed}"
    of_variant = {"variants": {variant.name: variant}, "key": key}
    yield Job(
        kind="evaluations on held-out text",
        name=f"{key}-held-out",
        title=f"{title}: held-out text",
        needs=needs,
        result=_RELATIVE.score(key, INTRINSIC_NAME),
        model=model,
        sequences=scale.held_out_sequences,
        **of_variant,
    )
    names = [task.task for task in scale.tasks if task.task in tasks]
    for task in tasks_of_grid(grid, scale, tasks):
        before = task.declared.intermediate if task.declared.intermediate in names else None
        for seed in task_seeds(scale, variant):
            run = _RELATIVE.finetuning(key, task.task, seed).path
            yield Job(
                kind="fine-tunings",
                name=f"{key}-{task.task}-seed{seed}",
                title=f"{title}: {task.task}, seed {seed}",
                needs=needs if before is None else (*needs, f"{key}-{before}-seed{seed}"),
                result=run / RESULTS_NAME,
                run=run,
                model=model if before is None else _RELATIVE.finetuning(key, before, seed).model_path,
                task=task,
                seed=seed,
                **of_variant,
            )


def tasks_of_grid(grid: Grid, scale: Scale, available: Sequence[str]) -> tuple[Downstream, ...]:
    """The available tasks that a table needs, each after its intermediate task."""
    needed = {column.source for column in grid.columns if column.kind == "downstream"}
    needed |= {task.declared.intermediate for task in scale.tasks if task.task in needed}
    chosen = [task for task in scale.tasks if task.task in needed and task.task in available]
    return tuple(sorted(chosen, key=lambda task: task.declared.intermediate is not None))


def task_seeds(scale: Scale, variant: Variant) -> Sequence[int]:
    """The seeds with which a variant is fine-tuned on each task."""
    return scale.task_seeds or (variant.recipe.seed,)


# --------------------------------------------------------------------------------------------------------------------
# The settings that all runs below a root share, saved in its `study.json`: scale, corpora, precision. The version of
# the layout in this file is that of the folder, with the scores beside the runs.

STUDY_NAME = "study.json"


@dataclass(frozen=True, kw_only=True)
class Study:
    """Settings that all runs below a root share.

    Attributes:
        corpora: the first is read by all variants; variants with additional text (Table 7) read all of them.
        precision: of all pre-trainings whose recipe leaves it open, on any machine; part of their keys.
        seeds: pre-trainings of every variant, with the seeds from 0 on; None: the scale's.
    """

    scale: ScaleName
    corpora: tuple[CorpusRecord, ...] = ()
    precision: Precision
    seeds: int | None = None

    @property
    def declared(self) -> Scale:
        """The scale, with the study's seeds, and its precision in the recipe."""
        scale = replace(SCALES[self.scale], seeds=range(self.seeds)) if self.seeds else SCALES[self.scale]
        if scale.recipe.precision != "auto":
            return scale
        return replace(scale, recipe=replace(scale.recipe, precision=self.precision))

    @property
    def fingerprints(self) -> tuple[str, ...]:
        """Fingerprints of the corpora."""
        return tuple(corpus.manifest for corpus in self.corpora)


def open_study(
    root: Path, scale: ScaleName | None, corpora: Sequence[Path], device: str = "auto", seeds: int | None = None
) -> Study:
    """The study below a root, or a new one; nothing is written.

    Args:
        scale: None for that of the existing study, or "tiny".
        corpora: prepared corpora; if empty, those of the existing study.
        device: decides the precision of a new study.
        seeds: None for those of the existing study, or of the scale.

    Raises:
        InvalidConfiguration: the root holds another scale, or runs on another first corpus.
        MissingInput, DamagedData: a corpus cannot be opened.
    """
    opened = [TokenCorpus.open(corpus, verify=False) for corpus in corpora]
    records = tuple(map(corpus_record, opened))
    if not (root / STUDY_NAME).is_file():
        precision = fastest_precision(pick_device(device))
        return Study(scale=scale or "tiny", corpora=records, precision=precision, seeds=seeds)
    saved = load_versioned(Study, root / STUDY_NAME)
    saved = replace(saved, seeds=seeds or saved.seeds)
    if scale is not None and saved.scale != scale:
        raise InvalidConfiguration(root, f"holds runs of the scale {saved.scale}", f"give --scale {saved.scale}")
    if not corpora:
        return saved
    given = replace(saved, corpora=records)
    if saved.fingerprints[:1] != given.fingerprints[:1]:
        why = f"holds runs on {saved.corpora[0]}, --data is {records[0]}"
        raise InvalidConfiguration(root, why, "give the same corpus, or another --output")
    return given


def parse_file_options(options: Iterable[str]) -> dict[str, dict[str, Path]]:
    """Files by task and split, from options "TASK/SPLIT=FILE"; each is in the layout of the published file."""
    files: dict[str, dict[str, Path]] = {}
    for option in options:
        target, _, file = option.partition("=")
        task, _, split = target.rpartition("/")
        if not (task and split and file):
            raise UsageError("--files", f"{option!r} is not TASK/SPLIT=FILE", "write qnli/train=mine.tsv")
        files.setdefault(find_task(task).name, {})[split] = Path(file)
    return files


def with_files(task: DeclaredTask, files: dict[str, Path] | None) -> DeclaredTask:
    """The task with other files for some splits."""
    return replace(task, source=task.source.with_files(files)) if files else task
