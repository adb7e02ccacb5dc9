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
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np
import torch

from albert.experiments.grids import Downstream, Grid, Scale
from albert.experiments.jobs import Finetuning, Folders, HeldOut, Job, Pretraining, Speed, TaskFiles, done_jobs, jobs_of
from albert.experiments.sizes import measure_throughput, random_batch, training_step
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
from albert.runtime.files import LOCK_NAME, claimed, remove_directory
from albert.runtime.json_files import save_json
from albert.runtime.progress import Bar, progress
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
class Pace:
    """How fast, and in how much memory.

    Args:
        measured: whether it was tried; else it follows from operations.
    """

    tokens: float
    update_seconds: float
    flops_per_second: float
    memory: int
    measured: bool

    def seconds_of(self, flops: float) -> float:
        """Of other work of the same model."""
        return flops / self.flops_per_second


def measure_pace(recipe: PretrainingRecipe, batch: PretrainingBatch, device: torch.device) -> Pace:
    """Take a few updates, of one micro-batch and of two."""
    lengths, masked = list(batch.packed.lengths), batch.counts["masked_tokens"]
    flops, memory = pretraining_flops(recipe.model, lengths, masked), peak_memory(recipe, device)
    parts = recipe.batch_size / len(lengths)
    tokens = parts * batch.n_tokens
    rate = ASSUMED_EFFICIENCY * measured_matmul_rate(device, recipe.settled_precision)
    free = free_memory(device)
    if flops / rate > LONGEST_TRY or (free is not None and memory > free):
        return Pace(
            tokens=tokens, update_seconds=parts * flops / rate, flops_per_second=rate, memory=memory, measured=False
        )
    one, two = _update_seconds(recipe, batch.to(device), device)
    part = max(two - one, 0.25 * one)  # on a busy machine the difference of two medians may be anything
    return Pace(
        tokens=tokens,
        update_seconds=one + (parts - 1) * part,
        flops_per_second=flops / one,
        memory=memory,
        measured=True,
    )


def peak_memory(recipe: PretrainingRecipe, device: torch.device) -> int:
    """Bytes of an update at its peak."""
    kind: Literal["cpu", "cuda"] = "cuda" if device.type == "cuda" else "cpu"
    return count_training_memory(
        recipe.model,
        batch_size=recipe.micro_batch_size,
        sequence_length=recipe.sequences.max_length,
        device=kind,
        precision=recipe.settled_precision,
        optimizer=recipe.optimizer.kind,
        activation_checkpointing=recipe.activation_checkpointing,
    ).peak


def encoder_flops(recipe: PretrainingRecipe, tokens: float, length: float, learning: bool) -> float:
    """Operations of the encoder over tokens in sequences of some length, forward, or backward as well."""
    forward = count_flops(recipe.model, max(1, round(length))).forward
    return tokens * forward * (PASSES if learning else 1)


def _update_seconds(recipe: PretrainingRecipe, batch: PretrainingBatch, device: torch.device) -> tuple[float, float]:
    """Median seconds of an update of one micro-batch and of one of two.

    On a processor it is the time that the threads computed, so that what others do meanwhile does not count.
    """
    model = untrained_model(recipe).to(device)
    model.albert.encoder.checkpointing = recipe.activation_checkpointing
    step = training_step(model, recipe.optimizer, recipe.settled_precision, device)
    clock, shared_by = (time.process_time, torch.get_num_threads()) if device.type == "cpu" else (time.perf_counter, 1)

    def seconds(parts: int) -> float:
        started = clock()
        step([batch] * parts)
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        return (clock() - started) / shared_by

    seconds(1)
    found: dict[int, list[float]] = {1: [], 2: []}
    while len(found[1]) < 3 or sum(map(sum, found.values())) < MEASURED_SECONDS:
        for parts, each in found.items():
            each.append(seconds(parts))
        if sum(map(sum, found.values())) > LONGEST_TRY:
            break
    return statistics.median(found[1]), statistics.median(found[2])


SAMPLED_EXAMPLES = 256
"""Of a task, which tell how long its sequences are."""
WEIGHT_BYTES = 4
MOMENTS = 2
BESIDE_WEIGHTS = 3_000_000
"""Bytes of tokenizer, journal and curves of a run."""
SPEED_SECONDS = 30.0
"""About what the timings of a table take."""


@dataclass(frozen=True, kw_only=True)
class Cost:
    """Of a whole job, from its beginning.

    Args:
        steps: updates; 0: it is not counted in any.
        seconds: on this machine, with nothing else on it.
        disk: bytes that stay.
        measured: whether updates were tried; else seconds follow from operations.
    """

    steps: int
    tokens: int
    seconds: float
    memory: int
    disk: int
    measured: bool


class Costs:
    """Costs of jobs; each shape is measured once, when it is first asked for.

    Args:
        corpora: prepared corpora, of the first of which the held-out part says how long sequences are; none: all are
            full.
    """

    def __init__(self, corpora: Sequence[Path], data: Mapping[str, TaskFiles], device: torch.device) -> None:
        self._corpus = TokenCorpus.open(corpora[0], verify=False) if corpora else None
        self._data, self._device = data, device
        self._precision: Precision = default_precision(device)
        self._paces: dict[PretrainingRecipe, Pace] = {}
        self._samples: dict[int, PretrainingSamples | None] = {}
        self._tasks: dict[str, tuple[int, float, float]] = {}

    def shapes(self, jobs: Sequence[Job]) -> list[PretrainingRecipe]:
        """A recipe of each shape that has to be measured for jobs."""
        return list(dict.fromkeys(self._shape(job.arm.recipe) for job in jobs if not isinstance(job, Speed)))

    def measure(self, shape: PretrainingRecipe) -> Pace:
        """The pace of one of `shapes`."""
        if shape not in self._paces:
            self._paces[shape] = measure_pace(shape, self._batch(shape), self._device)
        return self._paces[shape]

    def of(self, job: Job) -> Cost:
        if isinstance(job, Speed):
            return Cost(steps=0, tokens=0, seconds=SPEED_SECONDS, memory=0, disk=0, measured=False)
        shape = self._shape(job.arm.recipe)
        pace = self.measure(shape)
        weights = WEIGHT_BYTES * count_parameters(shape.model).pretraining
        steps, tokens, disk = 0, 0.0, 0
        match job:
            case Pretraining():
                steps = job.arm.recipe.schedule.total_steps
                tokens, seconds = steps * pace.tokens, steps * pace.update_seconds
                disk = weights * (1 + (1 + MOMENTS) * job.arm.recipe.keep_checkpoints) + BESIDE_WEIGHTS
            case HeldOut():
                seen = job.sequences * (1 + len(SENTENCE_TESTS)) * shape.sequences.max_length
                seconds = pace.seconds_of(encoder_flops(shape, seen, shape.sequences.max_length, learning=False))
            case Finetuning():
                examples, length, asked = self._of_task(job.task)
                steps = job.task.full_recipe.total_steps(examples)
                tokens = steps * job.task.full_recipe.batch_size * length
                learnt = encoder_flops(shape, tokens, length, learning=True)
                answered = encoder_flops(shape, asked * length, length, learning=False)
                seconds, disk = pace.seconds_of(learnt + answered), weights + BESIDE_WEIGHTS
        return Cost(
            steps=steps,
            tokens=round(tokens),
            seconds=seconds,
            memory=pace.memory,
            disk=disk,
            measured=pace.measured,
        )

    def _shape(self, recipe: PretrainingRecipe) -> PretrainingRecipe:
        """A recipe without what makes no difference to the time of an update."""
        precision: Precision = self._precision if recipe.precision == "auto" else recipe.precision
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
        if length not in self._samples:
            self._samples[length] = self._held_out(shape)
        samples = self._samples[length]
        if samples is None:
            return random_batch(shape.model, length, shape.micro_batch_size)
        return batch_of(samples.batch(np.arange(shape.micro_batch_size)))

    def _held_out(self, shape: PretrainingRecipe) -> PretrainingSamples | None:
        if self._corpus is None:
            return None
        try:
            corpus = TokenCorpus.open(self._corpus.directory, "held_out", verify=False)
        except MissingInput:
            return None
        return PretrainingSamples(corpus, shape.sequences, shape.masking, 0)

    def _of_task(self, task: Downstream) -> tuple[int, float, float]:
        """Training examples, tokens of one, and how many are answered over all evaluations."""
        if task.task not in self._tasks:
            declared, data = self._data[task.task].task, self._data[task.task].folder
            examples, counts = read_examples(declared, data, "train", Subset(SAMPLED_EXAMPLES, 0))
            rows = len(examples) + counts["left_out_by_choice"]
            rows = rows if task.max_train_examples is None else min(rows, task.max_train_examples)
            length = task.full_recipe.max_length
            if self._corpus is not None:
                recipe = task.full_recipe
                encoded = encode_split(declared, "train", examples, counts, self._corpus.tokenizer(), recipe)
                length = float(np.sum(encoded.features.sequences.lengths)) / len(examples)
            interval = task.settings(0).evaluation_interval
            steps = task.full_recipe.total_steps(rows)
            evaluations = 1 if interval is None else max(1, steps // interval)
            dev = len(read_examples(declared, data, "dev")[0])
            self._tasks[task.task] = rows, length, evaluations * dev
        return self._tasks[task.task]


# --------------------------------------------------------------------------------------------------------------------
# The plan of tables: every job once, what it costs on this machine, and how much of it is done. Nothing is written.


@dataclass(frozen=True, kw_only=True)
class PlannedJob:
    """A job with its cost.

    Args:
        done: the share of it that is done, 0 to 1.
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
        corpora: fingerprints of the prepared corpora.
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
    """The share of a job that is done, from 0 to 1, by any process; 1 for a job that was given up."""
    if folders.failure(job.name).exists() or job.name in done:
        return 1.0
    share = min(1.0, job.steps_taken(folders) / cost.steps) if cost.steps else 0.0
    return 0.0 if share == 1.0 and job.is_done(folders) else share  # ended, but its weights are gone and wanted again


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
    data: Mapping[str, TaskFiles]
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
            mine = held.enter_context(claimed(self.folders.claim(job.name))) is not None
            if mine and isinstance(job, Pretraining):
                run = self.folders.pretraining(job.key).path
                if (run / LOCK_NAME).exists():
                    with claimed(run) as free:
                        mine = free is not None
            yield mine

    def _do(self, job: Job) -> None:
        self.report(job.title)
        try:
            match job:
                case Pretraining():
                    self._pretrain(job)
                case HeldOut():
                    self._ask(job)
                case Finetuning():
                    self._finetune(job)
                case Speed():
                    self._time(job)
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

    def _ask(self, job: HeldOut) -> None:
        model = self.folders.pretraining(job.key).model_path
        recipe = job.arm.recipe
        found = evaluate_pretraining(
            [model],
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
        run, files = self.folders.finetuning(job.key, job.task.task, job.seed), self.data[job.task.task]
        start, settings = PretrainedEncoder(str(model)), job.task.settings(job.seed)
        finetune(files.task, start, files.folder, run.path, job.task.full_recipe, settings)
        if run.checkpoints_path.is_dir():  # nothing goes on from them, and they are most of the disk
            remove_directory(run.checkpoints_path)

    def _time(self, job: Speed) -> None:
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
def overall_progress(plan: Plan, folders: Folders, description: str) -> Iterator[None]:
    """Show how much of a plan is done, counted in minutes of this machine, while the block works on it."""
    begun = _minutes_done(plan, folders)
    total = plan.seconds / 60
    over = threading.Event()
    with progress(description, total, "minutes of work", done=begun) as bar:
        watcher = threading.Thread(target=_follow, args=(plan, folders, bar, begun, over), daemon=True)
        watcher.start()
        try:
            yield
        finally:
            over.set()
            watcher.join()


def _follow(plan: Plan, folders: Folders, bar: Bar, seen: float, over: threading.Event) -> None:
    ended = False
    while not ended:
        ended = over.wait(LOOK_SECONDS)
        now = _minutes_done(plan, folders)
        if now > seen:
            bar.advance(now - seen)
            seen = now


def _minutes_done(plan: Plan, folders: Folders) -> float:
    done = done_jobs([one.job for one in plan.jobs], folders)
    return sum(share_done(one.job, one.cost, folders, done) * one.cost.seconds for one in plan.jobs) / 60
