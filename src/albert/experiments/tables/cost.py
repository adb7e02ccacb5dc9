"""What a job costs on this machine: a few real updates of every distinct shape, times how many there are."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from albert.experiments.tables.downstream import Downstream
from albert.experiments.tables.jobs import Finetuning, HeldOut, Job, Pretraining, Speed
from albert.experiments.tables.pace import Pace, encoder_flops, measure_pace
from albert.experiments.tables.task_files import TaskFiles
from albert.experiments.throughput import random_batch
from albert.finetuning.splits import Subset, encode_split, read_examples
from albert.model.parameter_count import count_parameters
from albert.pretraining.batches import PretrainingBatch, batch_of
from albert.pretraining.intrinsic_evaluation import SENTENCE_TESTS
from albert.pretraining.recipes import PretrainingRecipe
from albert.pretraining.samples import PretrainingSamples
from albert.runtime.devices import default_precision
from albert.runtime.errors import MissingInput
from albert.runtime.precisions import Precision
from albert.text.preparation.shards import TokenCorpus

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
        tokens: that are learnt from.
        seconds: on this machine, with nothing else on it.
        memory: bytes at the peak.
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
        data: where each task's files are, by its name.
        device: where to compute.
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
        """What a job costs."""
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
                steps = job.task.settled_recipe.total_steps(examples)
                tokens = steps * job.task.settled_recipe.batch_size * length
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
            length = task.settled_recipe.max_length
            if self._corpus is not None:
                recipe = task.settled_recipe
                encoded = encode_split(declared, "train", examples, counts, self._corpus.tokenizer(), recipe)
                length = float(np.sum(encoded.features.sequences.lengths)) / len(examples)
            interval = task.settings(0).evaluation_interval
            steps = task.settled_recipe.total_steps(rows)
            evaluations = 1 if interval is None else max(1, steps // interval)
            dev = len(read_examples(declared, data, "dev")[0])
            self._tasks[task.task] = rows, length, evaluations * dev
        return self._tasks[task.task]
