"""Running the jobs of tables until all are done or given up; before that, what they will cost on this machine.

Everything that is finished lies in its folder, and a job under way goes on from its newest checkpoint: a killed table
is continued by the same command. Several processes may work below one root: each takes the first job that nobody else
has claimed, and they end together. A claim is a lock of the system, and dies with its owner."""

import gc
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np
import torch

from albert.experiments.grids import Downstream, Grid, Scale
from albert.experiments.jobs import Finetuning, Folders, HeldOut, Job, Pretraining, Speed, done_jobs, list_jobs
from albert.experiments.sizes import measure_throughput, random_batch, time_in_turns, training_step
from albert.finetuning.data import Subset, encode_split, read_examples
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
from albert.runtime.files import LOCK_NAME, remove_directory, try_locked
from albert.runtime.json_files import save_json
from albert.runtime.progress import progress
from albert.tasks.task import Task
from albert.text.shards import TokenCorpus

# --------------------------------------------------------------------------------------------------------------------
# How fast a recipe learns on this machine: a few real updates, or, where they would take too long, its operations.
#
# Speed does not depend on what the weights are, nor on what the tokens say.

MEASURED_SECONDS = 1.0
"""Spent on trying, after an update that warms up."""
LONGEST_TRY = 3.0
"""Seconds; a micro-batch that would take longer is not tried."""
ASSUMED_EFFICIENCY = 0.5
"""Of matrix products alone, for what is not tried."""


@dataclass(frozen=True, kw_only=True)
class StepTiming:
    """How fast a recipe learns, and in how much memory.

    Args:
        tokens: of an update.
        flops_per_second: at which other work of the same model is done.
        memory: bytes at the peak.
        measured: whether it was tried; else it follows from operations.
    """

    tokens: float
    update_seconds: float
    flops_per_second: float
    memory: int
    measured: bool


def time_step(recipe: PretrainingRecipe, batch: PretrainingBatch, device: torch.device) -> StepTiming:
    """Take a few updates, of one micro-batch and of two."""
    kind: Literal["cpu", "cuda"] = "cuda" if device.type == "cuda" else "cpu"
    memory = count_training_memory(
        recipe.model,
        batch_size=recipe.micro_batch_size,
        sequence_length=recipe.sequences.max_length,
        device=kind,
        precision=recipe.settled_precision,
        optimizer=recipe.optimizer.kind,
        activation_checkpointing=recipe.activation_checkpointing,
    ).peak
    lengths = list(batch.packed.lengths)
    flops = pretraining_flops(recipe.model, lengths, batch.counts["masked_tokens"])
    rate, free = ASSUMED_EFFICIENCY * measured_matmul_rate(device, recipe.settled_precision), free_memory(device)
    tried = flops / rate <= LONGEST_TRY and (free is None or memory <= free)
    one = further = flops / rate
    if tried:
        one, two = _update_seconds(recipe, batch.to(device), device)
        further = max(two - one, 0.25 * one)  # on a busy machine the difference of two medians may be anything
    parts = recipe.batch_size / len(lengths)
    return StepTiming(
        tokens=parts * batch.n_tokens,
        update_seconds=one + (parts - 1) * further,
        flops_per_second=flops / one,
        memory=memory,
        measured=tried,
    )


def _update_seconds(recipe: PretrainingRecipe, batch: PretrainingBatch, device: torch.device) -> tuple[float, float]:
    """Median seconds of an update of one micro-batch and of one of two.

    On a processor it is the time that the threads computed, so that what others do meanwhile does not count.
    """
    model = untrained_model(recipe).to(device)
    model.albert.encoder.checkpointing = recipe.activation_checkpointing
    step = training_step(model, recipe.optimizer, recipe.settled_precision, device)
    step([batch])
    clock = time.perf_counter if device.type == "cuda" else lambda: time.process_time() / torch.get_num_threads()
    runs = {parts: partial(step, [batch] * parts) for parts in (1, 2)}
    times = time_in_turns(runs, device, MEASURED_SECONDS, longest=LONGEST_TRY, clock=clock)
    return statistics.median(times[1]), statistics.median(times[2])


# --------------------------------------------------------------------------------------------------------------------
# The plan of tables: every job once, what it costs on this machine, and how much of it is done. Nothing is written.

SAMPLED_EXAMPLES = 256
"""Of a task, which tell how long its sequences are."""
WEIGHT_BYTES = 4
MOMENTS = 2
BESIDE_WEIGHTS = 3_000_000
"""Bytes of tokenizer, journal and curves of a run."""
SPEED_SECONDS = 30.0
"""About what the timings of a table take."""


@dataclass(frozen=True, kw_only=True)
class PlannedJob:
    """A job with what it costs from its beginning.

    Args:
        tables: those that want it.
        done: the share of it that is done, 0 to 1.
        steps: updates; 0: it is not counted in any.
        seconds: on this machine, with nothing else on it.
        memory: bytes at the peak.
        disk: bytes that stay.
        measured: whether updates were tried; else seconds follow from operations.
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
    """Plans tables; the pace of each shape is measured once.

    Args:
        corpora: prepared corpora, of the first of which the held-out part says how long sequences are; none: all are
            full.
        data: the tasks that are learnt, and the folders with their files.
    """

    def __init__(self, corpora: Sequence[Path], data: Mapping[str, tuple[Task, Path]], device: torch.device) -> None:
        self._corpus = TokenCorpus.open(corpora[0], verify=False) if corpora else None
        self._held_out: TokenCorpus | None = None
        if self._corpus is not None:
            with suppress(MissingInput):
                self._held_out = TokenCorpus.open(corpora[0], "held_out", verify=False)
        self._data, self._device = data, device
        self._paces: dict[PretrainingRecipe, StepTiming] = {}
        self._samples: dict[int, PretrainingSamples] = {}
        self._tasks: dict[str, tuple[int, float, float]] = {}

    def plan(self, grids: Sequence[Grid], scale: Scale, corpora: Sequence[str], folders: Folders) -> list[PlannedJob]:
        """All jobs of tables with their costs, in the order in which they are done.

        Args:
            corpora: fingerprints of the prepared corpora.
        """
        jobs, tables = list_jobs(grids, scale, corpora, [*self._data]), dict[str, list[str]]()
        for grid in grids:
            for job in list_jobs([grid], scale, corpora, [*self._data]):
                tables.setdefault(job.name, []).append(grid.table)
        shapes = dict.fromkeys(self._shape(job.arm.recipe) for job in jobs if not isinstance(job, Speed))
        with progress("Measuring", len(shapes), "shapes") as bar:
            for shape in shapes:
                self._paces[shape] = time_step(shape, self._batch(shape), self._device)
                bar.advance()
        done = done_jobs(jobs, folders)
        planned = (self._planned(job, tables[job.name]) for job in jobs)
        return [replace(one, done=fraction_done(one, folders, done)) for one in planned]

    def _planned(self, job: Job, tables: Sequence[str]) -> PlannedJob:
        if isinstance(job, Speed):
            return PlannedJob(job=job, tables=tables, seconds=SPEED_SECONDS)
        shape = self._shape(job.arm.recipe)
        pace, length = self._paces[shape], shape.sequences.max_length
        weights = WEIGHT_BYTES * count_parameters(shape.model).pretraining
        steps, tokens, disk = 0, 0.0, 0
        match job:
            case Pretraining():
                steps = job.arm.recipe.schedule.total_steps
                tokens, seconds = steps * pace.tokens, steps * pace.update_seconds
                disk = weights * (1 + (1 + MOMENTS) * job.arm.recipe.keep_checkpoints) + BESIDE_WEIGHTS
            case HeldOut():
                seen = job.sequences * (1 + len(SENTENCE_TESTS)) * length
                seconds = seen * _forward_flops(shape, length) / pace.flops_per_second
            case Finetuning():
                examples, average, answered = self._of_task(job.task)
                steps = job.task.full_recipe.total_steps(examples)
                tokens = steps * job.task.full_recipe.batch_size * average
                passes = PASSES * tokens + answered * average
                seconds = passes * _forward_flops(shape, average) / pace.flops_per_second
                disk = weights + BESIDE_WEIGHTS
        return PlannedJob(
            job=job,
            tables=tables,
            steps=steps,
            tokens=round(tokens),
            seconds=seconds,
            memory=pace.memory,
            disk=disk,
            measured=pace.measured,
        )

    def _shape(self, recipe: PretrainingRecipe) -> PretrainingRecipe:
        """A recipe without what makes no difference to the time of an update."""
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
        """A micro-batch of sequences as long as the corpus has them."""
        length = shape.sequences.max_length
        if self._held_out is None:
            return random_batch(shape.model, length, shape.micro_batch_size)
        if length not in self._samples:
            self._samples[length] = PretrainingSamples(self._held_out, shape.sequences, shape.masking, 0)
        return batch_of(self._samples[length].batch(np.arange(shape.micro_batch_size)))

    def _of_task(self, task: Downstream) -> tuple[int, float, float]:
        """Training examples, tokens of one, and how many are answered over all evaluations."""
        if task.task not in self._tasks:
            (declared, data), recipe = self._data[task.task], task.full_recipe
            examples, counts = read_examples(declared, data, "train", Subset(SAMPLED_EXAMPLES, 0))
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
    """Of the encoder, forward, over a token in sequences of some length."""
    return count_flops(recipe.model, max(1, round(length))).forward


def fraction_done(planned: PlannedJob, folders: Folders, done: Set[str]) -> float:
    """The share of a job that is done, from 0 to 1, by any process; 1 for a job that was given up."""
    job = planned.job
    if folders.failure(job.name).exists() or job.name in done:
        return 1.0
    share = min(1.0, job.steps_taken(folders) / planned.steps) if planned.steps else 0.0
    return 0.0 if share == 1.0 and job.is_done(folders) else share  # ended, but its weights are gone and wanted again


# --------------------------------------------------------------------------------------------------------------------
# The execution of jobs.

LOOK_AGAIN_SECONDS = 2.0
"""Between looks at what other processes have done, when there is nothing else to do."""


@dataclass(frozen=True, kw_only=True)
class Execution:
    """What jobs need to run.

    Args:
        corpora: prepared corpora, the first one first; additional text is read by the arms that want it.
    """

    folders: Folders
    jobs: Sequence[Job]
    corpora: Sequence[Path]
    data: Mapping[str, tuple[Task, Path]]
    device: str = "auto"
    report: Callable[[str], None] = lambda line: print(line, file=sys.stderr)

    def complete(self) -> None:
        """Run what is not done, until nothing is left that can be."""
        waiting = False
        while open_jobs := self.open_jobs():
            if self._work_on_one_of(open_jobs):
                waiting = False
                continue
            if not waiting:
                self.report(f"waiting for other processes, which work on {len(open_jobs)} of the jobs left")
                waiting = True
            time.sleep(LOOK_AGAIN_SECONDS)

    def open_jobs(self) -> list[Job]:
        """What is neither done nor given up, nor waits for something that is."""
        done, lost = done_jobs(self.jobs, self.folders), set[str]()
        found = []
        for job in self.jobs:
            if self.folders.failure(job.name).exists() or lost.intersection(job.needs):
                lost.add(job.name)
            elif job.name not in done:
                found.append(job)
        return found

    def _work_on_one_of(self, open_jobs: Sequence[Job]) -> bool:
        """Claim the first job that can be had, and do it; whether there was one."""
        names = {job.name for job in open_jobs}
        for job in open_jobs:
            if names.intersection(job.needs):
                continue
            with self._claimed(job) as mine:
                if not mine:
                    continue
                if job.name not in done_jobs(self.jobs, self.folders):  # another process may have ended it a moment ago
                    self._do(job)
                return True
        return False

    @contextmanager
    def _claimed(self, job: Job) -> Iterator[bool]:
        """Whether a job is this process's now, and nobody is at its run by hand."""
        with ExitStack() as held:
            mine = held.enter_context(try_locked(self.folders.claim(job.name))) is not None
            if mine and isinstance(job, Pretraining):
                run = self.folders.pretraining(job.key).path
                if (run / LOCK_NAME).exists():
                    with try_locked(run) as free:
                        mine = free is not None
            yield mine

    def _do(self, job: Job) -> None:
        self.report(job.title)
        try:
            match job:
                case Pretraining():
                    self._pretrain(job)
                case HeldOut():
                    self._evaluate(job)
                case Finetuning():
                    self._finetune(job)
                case Speed():
                    self._measure_speed(job)
        except Diverged as error:
            save_json(self.folders.failure(job.name), {"job": job.title, "why": str(error)})
            self.report(f"given up: {error}")

    def _pretrain(self, job: Pretraining) -> None:
        save_json(self.folders.arm(job.key), {"name": job.arm.name, "seed": job.arm.recipe.seed, "start": job.start})
        run = self.folders.pretraining(job.key)
        init = None if job.start is None else Init(model=str(self.folders.pretraining(job.start).model_path))
        corpora = list(self.corpora) if job.arm.additional_text else [self.corpora[0]]
        pretrain(job.arm.recipe, corpora, run.path, self.device, init=init)
        gc.collect()  # the model is part of a cycle: the next one would come on top of it

    def _evaluate(self, job: HeldOut) -> None:
        recipe = job.arm.recipe
        found = evaluate_pretraining(
            [self.folders.pretraining(job.key).model_path],
            self.corpora[0],
            max_length=recipe.sequences.max_length,
            keep_pairs=recipe.sequences.keep_pairs,
            masking=recipe.masking,
            limit=job.sequences,
            device=self.device,
            precision="fp32",  # of one table figures are compared that several machines may have made
        )
        save_json(self.folders.intrinsic(job.key), found.to_json())

    def _finetune(self, job: Finetuning) -> None:
        model = self.folders.pretraining(job.key).model_path
        if job.intermediate is not None:
            model = self.folders.finetuning(job.key, job.intermediate, job.seed).model_path
        run, (task, files) = self.folders.finetuning(job.key, job.task.task, job.seed), self.data[job.task.task]
        start, settings = PretrainedEncoder(str(model)), job.task.settings(job.seed)
        finetune(task, start, files, run.path, job.task.full_recipe, settings)
        if run.checkpoints_path.is_dir():  # nothing goes on from them, and they are most of the disk
            remove_directory(run.checkpoints_path)

    def _measure_speed(self, job: Speed) -> None:
        device = pick_device(self.device)
        found = measure_throughput(
            dict(job.architectures),
            sequence_length=job.sequence_length,
            device=device,
            precision=default_precision(device),
        )
        seconds = {name: one.training_seconds / one.tokens for name, one in found.results.items()}
        about = {"device": found.device, "precision": found.precision, "threads": found.threads}
        save_json(self.folders.speed(job.table), {**about, "seconds_a_token": seconds})


# --------------------------------------------------------------------------------------------------------------------
# A bar over all jobs of some tables, with the time that is left: it follows what lies on the disk.
#
# So it also shows what other processes do below the same root, and starts where an earlier command was stopped.

LOOK_SECONDS = 5.0


@contextmanager
def overall_progress(plan: Sequence[PlannedJob], folders: Folders, description: str) -> Iterator[None]:
    """Show how much of a plan is done, counted in minutes of this machine, while the block works on it."""

    def minutes_done() -> float:
        done = done_jobs([one.job for one in plan], folders)
        return sum(fraction_done(one, folders, done) * one.seconds for one in plan) / 60

    def follow(seen: float) -> None:
        over = False
        while not over:
            over = ended.wait(LOOK_SECONDS)
            if (now := minutes_done()) > seen:
                bar.advance(now - seen)
                seen = now

    begun, ended = minutes_done(), threading.Event()
    total = sum(one.seconds for one in plan) / 60
    with progress(description, total, "minutes of work", done=begun) as bar:
        watcher = threading.Thread(target=follow, args=(begun,), daemon=True)
        watcher.start()
        try:
            yield
        finally:
            ended.set()
            watcher.join()
