"""Estimates the cost of the jobs of tables on this machine, and runs them until all are done or have failed.

Finished jobs are in their folders, and an interrupted one continues from its newest checkpoint: the same command
continues a killed table. Several processes may work below one root: each takes the first job that no other process has
claimed, and they end together. A claim is a file lock, which the system releases when its process ends."""

import gc
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np
import torch

from albert.experiments.grids import Downstream, Grid, Scale
from albert.experiments.jobs import Folders, Job, done_jobs, list_jobs
from albert.experiments.sizes import measure_throughput, random_batch, time_in_turns, training_step
from albert.finetuning.data import encode_split, read_examples
from albert.finetuning.model import PretrainedEncoder
from albert.finetuning.run import finetune
from albert.model.cost import PASSES, count_flops, count_parameters, count_training_memory, pretraining_flops
from albert.pretraining.batches import PretrainingBatch, batch_of
from albert.pretraining.evaluation import SENTENCE_TESTS, evaluate_pretraining
from albert.pretraining.recipe import PretrainingRecipe
from albert.pretraining.run import pretrain, untrained_model
from albert.pretraining.run_identity import Init
from albert.pretraining.sampling import PretrainingSamples
from albert.runtime.devices import default_precision, free_memory, measured_matmul_rate, pick_device
from albert.runtime.environment import Precision
from albert.runtime.errors import Diverged, MissingInput
from albert.runtime.files import LOCK_NAME, try_locked
from albert.runtime.json_files import save_json
from albert.runtime.progress import progress
from albert.tasks.task import Task
from albert.text.shards import TokenCorpus

# --------------------------------------------------------------------------------------------------------------------
# Duration of a training step on this machine: measured, or estimated from its operations if it would take too long.
#
# Speed does not depend on the values of weights and tokens.

MEASURED_SECONDS = 1.0
"""Time to measure, after a warm-up update."""
LONGEST_TRY = 3.0
"""Seconds; a longer micro-batch is not measured."""
ASSUMED_EFFICIENCY = 0.5
"""Share of the speed of matrix products, for steps that are not measured."""


@dataclass(frozen=True, kw_only=True)
class StepTiming:
    """Duration and memory of an update.

    Args:
        tokens: of an update.
        flops_per_second: for estimates of other work of the same model.
        memory: bytes at the peak.
        measured: False if it is estimated from operations.
    """

    tokens: float
    update_seconds: float
    flops_per_second: float
    memory: int
    measured: bool


def time_step(recipe: PretrainingRecipe, batch: PretrainingBatch, device: torch.device) -> StepTiming:
    """Time a few updates of one micro-batch and of two."""
    kind: Literal["cpu", "cuda"] = "cuda" if device.type == "cuda" else "cpu"
    memory = count_training_memory(
        recipe.model,
        batch_size=recipe.micro_batch_size,
        sequence_length=recipe.sequences.max_length,
        device=kind,
        precision=recipe.resolved_precision,
        optimizer=recipe.optimizer.kind,
        activation_checkpointing=recipe.activation_checkpointing,
    ).peak
    lengths = list(batch.packed.lengths)
    flops = pretraining_flops(recipe.model, lengths, batch.counts["masked_tokens"])
    rate, free = ASSUMED_EFFICIENCY * measured_matmul_rate(device, recipe.resolved_precision), free_memory(device)
    measured = flops / rate <= LONGEST_TRY and (free is None or memory <= free)
    first = further = flops / rate
    if measured:
        first, both = _update_seconds(recipe, batch.to(device), device)
        further = max(both - first, 0.25 * first)  # the difference of two medians is unreliable on a busy machine
    parts = recipe.batch_size / len(lengths)
    return StepTiming(
        tokens=parts * batch.n_tokens,
        update_seconds=first + (parts - 1) * further,
        flops_per_second=flops / first,
        memory=memory,
        measured=measured,
    )


def _update_seconds(recipe: PretrainingRecipe, batch: PretrainingBatch, device: torch.device) -> tuple[float, float]:
    """Median seconds of an update of one micro-batch and of two; on a CPU, of processor time per thread."""
    model = untrained_model(recipe).to(device)
    model.albert.encoder.checkpointing = recipe.activation_checkpointing
    step = training_step(model, recipe.optimizer, recipe.resolved_precision, device)
    step([batch])
    clock = time.perf_counter if device.type == "cuda" else lambda: time.process_time() / torch.get_num_threads()
    runs = {parts: partial(step, [batch] * parts) for parts in (1, 2)}
    times = time_in_turns(runs, device, MEASURED_SECONDS, longest=LONGEST_TRY, clock=clock)
    return statistics.median(times[1]), statistics.median(times[2])


# --------------------------------------------------------------------------------------------------------------------
# The plan of tables: every job once, with its cost on this machine and its progress. Nothing is written.

SAMPLED_EXAMPLES = 256
"""Examples of a task that are encoded to estimate the length of its sequences."""
WEIGHT_BYTES = 4
MOMENTS = 2
BESIDE_WEIGHTS = 3_000_000
"""Bytes of tokenizer, journal and curves of a run."""
SPEED_SECONDS = 30.0
"""Estimate for the timings of a table."""


@dataclass(frozen=True, kw_only=True)
class PlannedJob:
    """A job with its whole cost.

    Args:
        tables: those that need it.
        done: finished share, 0 to 1.
        steps: updates; 0 for jobs without training.
        seconds: on this machine if it is otherwise idle.
        memory: bytes at the peak.
        disk: bytes of its results.
        measured: False if seconds are estimated from operations.
    """

    job: Job
    tables: Sequence[str]
    done: float = 0.0
    steps: int = 0
    tokens: int = 0
    seconds: float
    memory: int = 0
    disk: int = 0
    measured: bool = False


class Planner:
    """Plans tables; each model shape is timed once.

    Args:
        corpora: prepared corpora; sequence lengths are those of the held-out part of the first, or the maximum if there
            is none.
        data: tasks by name, with the folders of their files.
    """

    def __init__(self, corpora: Sequence[Path], data: Mapping[str, tuple[Task, Path]], device: torch.device) -> None:
        self._corpus = TokenCorpus.open(corpora[0], verify=False) if corpora else None
        self._held_out: TokenCorpus | None = None
        if self._corpus is not None:
            with suppress(MissingInput):
                self._held_out = TokenCorpus.open(corpora[0], "held_out", verify=False)
        self._data, self._device = data, device
        self._timings: dict[PretrainingRecipe, StepTiming] = {}
        self._samples: dict[int, PretrainingSamples] = {}
        self._tasks: dict[str, tuple[int, float, float]] = {}

    def plan(self, grids: Sequence[Grid], scale: Scale, corpora: Sequence[str], folders: Folders) -> list[PlannedJob]:
        """All jobs of tables with their costs, in the order of `list_jobs`; `corpora` are fingerprints."""
        jobs, tables = list_jobs(grids, scale, corpora, [*self._data]), dict[str, list[str]]()
        for grid in grids:
            for job in list_jobs([grid], scale, corpora, [*self._data]):
                tables.setdefault(job.name, []).append(grid.table)
        shapes = dict.fromkeys(self._shape(job.arm.recipe) for job in jobs if job.kind != "timings")
        with progress("Measuring", len(shapes), "shapes") as bar:
            for shape in shapes:
                self._timings[shape] = time_step(shape, self._batch(shape), self._device)
                bar.advance()
        done = done_jobs(jobs, folders)
        plan = (self._planned(job, tables[job.name]) for job in jobs)
        return [replace(planned, done=fraction_done(planned, folders, done)) for planned in plan]

    def _planned(self, job: Job, tables: Sequence[str]) -> PlannedJob:
        if job.kind == "timings":
            return PlannedJob(job=job, tables=tables, seconds=SPEED_SECONDS)
        shape = self._shape(job.arm.recipe)
        timing, length = self._timings[shape], shape.sequences.max_length
        weights = WEIGHT_BYTES * count_parameters(shape.model).pretraining
        steps, tokens, disk = 0, 0.0, 0
        match job.kind:
            case "pre-trainings":
                steps = job.arm.recipe.schedule.total_steps
                tokens, seconds = steps * timing.tokens, steps * timing.update_seconds
                disk = weights * (1 + (1 + MOMENTS) * job.arm.recipe.keep_checkpoints) + BESIDE_WEIGHTS
            case "evaluations on held-out text":
                evaluated = job.sequences * (1 + len(SENTENCE_TESTS)) * length
                seconds = evaluated * _forward_flops(shape, length) / timing.flops_per_second
            case "fine-tunings":
                assert job.task is not None
                examples, average, predictions = self._task_size(job.task)
                steps = job.task.full_recipe.total_steps(examples)
                tokens = steps * job.task.full_recipe.batch_size * average
                forward_tokens = PASSES * tokens + predictions * average
                seconds = forward_tokens * _forward_flops(shape, average) / timing.flops_per_second
                disk = weights + BESIDE_WEIGHTS
        return PlannedJob(
            job=job,
            tables=tables,
            steps=steps,
            tokens=round(tokens),
            seconds=seconds,
            memory=timing.memory,
            disk=disk,
            measured=timing.measured,
        )

    def _shape(self, recipe: PretrainingRecipe) -> PretrainingRecipe:
        """The parts of a recipe that affect the time of an update."""
        precision: Precision = default_precision(self._device) if recipe.precision == "auto" else recipe.precision
        vocabulary = recipe.model.vocab_size if self._corpus is None else self._corpus.vocab_size
        return PretrainingRecipe(
            model=replace(recipe.model, vocab_size=vocabulary),
            sequences=replace(PretrainingRecipe().sequences, max_length=recipe.sequences.max_length),
            optimizer=recipe.optimizer,
            batch_size=recipe.batch_size,
            micro_batch_size=min(recipe.micro_batch_size, recipe.batch_size),
            activation_checkpointing=recipe.activation_checkpointing,
            precision=precision,
        )

    def _batch(self, shape: PretrainingRecipe) -> PretrainingBatch:
        """A micro-batch with the sequence lengths of the corpus."""
        length = shape.sequences.max_length
        if self._held_out is None:
            return random_batch(shape.model, length, shape.micro_batch_size)
        if length not in self._samples:
            self._samples[length] = PretrainingSamples(self._held_out, shape.sequences, shape.masking, 0)
        return batch_of(self._samples[length].batch(np.arange(shape.micro_batch_size)))

    def _task_size(self, task: Downstream) -> tuple[int, float, float]:
        """Training examples, mean tokens of one, and predictions of all evaluations together."""
        if task.task not in self._tasks:
            (declared, data), recipe = self._data[task.task], task.full_recipe
            examples, counts = read_examples(declared, data, "train", SAMPLED_EXAMPLES)
            rows = len(examples) + counts["left_out_by_choice"]
            rows = rows if task.max_train_examples is None else min(rows, task.max_train_examples)
            length = recipe.max_length
            if self._corpus is not None:
                encoded = encode_split(declared, "train", examples, counts, self._corpus.tokenizer(), recipe)
                length = float(np.sum(encoded.features.sequences.lengths)) / len(examples)
            interval = task.settings(0).evaluation_interval
            evaluations = 1 if interval is None else max(1, recipe.total_steps(rows) // interval)
            dev = len(read_examples(declared, data, "dev")[0])
            self._tasks[task.task] = rows, length, evaluations * dev
        return self._tasks[task.task]


def _forward_flops(recipe: PretrainingRecipe, length: float) -> int:
    """FLOPs of a forward pass of the encoder, per token."""
    return count_flops(recipe.model, max(1, round(length))).forward


def fraction_done(planned: PlannedJob, folders: Folders, done: Set[str]) -> float:
    """The finished share of a job, 0 to 1, by all processes; 1 for a failed job."""
    job = planned.job
    if folders.failure(job.name).exists() or job.name in done:
        return 1.0
    share = min(1.0, job.steps_taken(folders) / planned.steps) if planned.steps else 0.0
    return 0.0 if share == 1.0 and job.is_done(folders) else share  # finished, but its weights must be trained again


# --------------------------------------------------------------------------------------------------------------------
# The execution of jobs.

WAIT_SECONDS = 2.0
"""Between checks of what other processes have finished."""


@dataclass(frozen=True, kw_only=True)
class Execution:
    """Runs jobs.

    Args:
        corpora: prepared corpora; arms read the first, those with additional text all of them.
        data: tasks by name, with the folders of their files.
    """

    folders: Folders
    jobs: Sequence[Job]
    corpora: Sequence[Path]
    data: Mapping[str, tuple[Task, Path]]
    device: str = "auto"
    report: Callable[[str], None] = lambda line: print(line, file=sys.stderr)

    def complete(self) -> None:
        """Run the open jobs until none is left."""
        waiting = False
        while open_jobs := self._open_jobs():
            if self._run_first(open_jobs):
                waiting = False
                continue
            if not waiting:
                self.report(f"waiting for other processes, which work on {len(open_jobs)} of the jobs left")
                waiting = True
            time.sleep(WAIT_SECONDS)

    def _open_jobs(self) -> list[Job]:
        """The jobs that are not done, have not failed and do not depend on a failed one."""
        done, failed = done_jobs(self.jobs, self.folders), set[str]()
        open_jobs = []
        for job in self.jobs:
            if self.folders.failure(job.name).exists() or failed.intersection(job.needs):
                failed.add(job.name)
            elif job.name not in done:
                open_jobs.append(job)
        return open_jobs

    def _run_first(self, open_jobs: Sequence[Job]) -> bool:
        """Run the first job that can be claimed; False if there is none."""
        names = {job.name for job in open_jobs}
        for job in open_jobs:
            if names.intersection(job.needs):
                continue
            with self._claim(job) as is_claimed:
                if not is_claimed:
                    continue
                if job.name not in done_jobs(self.jobs, self.folders):  # another process may just have finished it
                    self._run(job)
                return True
        return False

    @contextmanager
    def _claim(self, job: Job) -> Iterator[bool]:
        """Claim a job; False if another process, or a command on the same run, has its lock."""
        with try_locked(self.folders.claim(job.name)) as claim:
            is_claimed = claim is not None
            if is_claimed and job.kind == "pre-trainings":
                run = self.folders.pretraining(job.key).path
                if (run / LOCK_NAME).exists():
                    with try_locked(run) as lock:
                        is_claimed = lock is not None
            yield is_claimed

    def _run(self, job: Job) -> None:
        self.report(job.title)
        runs = {"pre-trainings": self._pretrain, "evaluations on held-out text": self._evaluate}
        runs |= {"fine-tunings": self._finetune, "timings": self._measure_speed}
        try:
            runs[job.kind](job, self.folders.root / (job.run or job.result), self.folders.root / (job.model or ""))
        except Diverged as error:
            save_json(self.folders.failure(job.name), {"job": job.title, "why": str(error)})
            self.report(f"given up: {error}")

    def _pretrain(self, job: Job, output: Path, model: Path) -> None:
        arm, start = job.arm, None if job.model is None else job.model.parent.name
        save_json(self.folders.score(job.key, "arm.json"), {"name": arm.name, "seed": arm.recipe.seed, "start": start})
        corpora = list(self.corpora) if arm.additional_text else [self.corpora[0]]
        init = None if job.model is None else Init(model=str(model))
        pretrain(arm.recipe, corpora, output, self.device, init=init)
        gc.collect()  # frees the model, which is part of a reference cycle, before the next one is built

    def _evaluate(self, job: Job, output: Path, model: Path) -> None:
        recipe = job.arm.recipe
        evaluation = evaluate_pretraining(
            [model],
            self.corpora[0],
            max_length=recipe.sequences.max_length,
            keep_pairs=recipe.sequences.keep_pairs,
            masking=recipe.masking,
            limit=job.sequences,
            device=self.device,
            precision="fp32",  # figures of several machines are compared in a table
        )
        save_json(output, evaluation.to_json())

    def _finetune(self, job: Job, output: Path, model: Path) -> None:
        assert job.task is not None
        task, files = self.data[job.task.task]
        start, settings = PretrainedEncoder(str(model)), job.task.settings(job.seed)
        finetune(task, start, files, output, job.task.full_recipe, settings)

    def _measure_speed(self, job: Job, output: Path, _: Path) -> None:
        device = pick_device(self.device)
        measured = measure_throughput(
            {row: arm.recipe.model for row, arm in job.arms.items()},
            sequence_length=job.arm.recipe.sequences.max_length,
            device=device,
            precision=default_precision(device),
        )
        seconds = {row: result.training_seconds / result.tokens for row, result in measured.results.items()}
        report = {name: getattr(measured, name) for name in ("device", "precision", "threads")}
        save_json(output, {**report, "seconds_a_token": seconds})
