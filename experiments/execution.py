"""Runs the jobs of tables one after the other, until all are done or have failed.

Finished jobs are recognised by their results, and an interrupted run continues from its newest checkpoint: the same
command continues a killed table. Commands on other tables may run below the same root at the same time: a run that
another process trains is left to it."""

import gc
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from albert.finetuning.initial_model import PretrainedEncoder
from albert.finetuning.task_run import finetune
from albert.pretraining.evaluation import evaluate_pretraining
from albert.pretraining.initial_weights import Init
from albert.pretraining.run import pretrain
from albert.pretraining.throughput import measure_throughput
from albert.runtime.devices import fastest_precision, pick_device
from albert.runtime.errors import Diverged
from albert.runtime.files import LOCK_NAME, try_locked
from albert.runtime.json_files import save_json
from albert.tasks.declared import DeclaredTask
from experiments.jobs import Folders, Job, done_jobs


@dataclass(frozen=True, kw_only=True)
class Execution:
    """Runs jobs.

    Args:
        corpora: prepared corpora; variants read the first, those with additional text all of them.
        data: tasks by name, with the folders of their files.
    """

    folders: Folders
    jobs: Sequence[Job]
    corpora: Sequence[Path]
    data: Mapping[str, tuple[DeclaredTask, Path]]
    device: str = "auto"
    report: Callable[[str], None] = lambda line: print(line, file=sys.stderr)

    def complete(self) -> None:
        """Run the open jobs in order; those that need a failed job, or one that another process runs, are left out."""
        left_out: set[str] = set()
        busy = 0
        for job in self.jobs:
            if job.name in done_jobs(self.jobs, self.folders):
                continue
            if self.folders.failure(job.name).exists() or left_out.intersection(job.needs):
                left_out.add(job.name)
                continue
            if self._is_busy(job):
                self.report(f"{job.title}: another process works on it")
                left_out.add(job.name)
                busy += 1
                continue
            self._run(job)
            if self.folders.failure(job.name).exists():
                left_out.add(job.name)
        if busy:
            self.report(f"{busy} runs were left to other processes: repeat the command when they have finished")

    def _is_busy(self, job: Job) -> bool:
        """Return whether another process has the lock of the job's run."""
        if job.run is None or not (self.folders.root / job.run / LOCK_NAME).exists():
            return False
        with try_locked(self.folders.root / job.run) as lock:
            return lock is None

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
        variant = job.variant
        start = None if job.model is None else job.model.parent.name
        save_json(
            self.folders.score(job.key, "arm.json"), {"name": variant.name, "seed": variant.recipe.seed, "start": start}
        )
        corpora = list(self.corpora) if variant.additional_text else [self.corpora[0]]
        init = None if job.model is None else Init(model=str(model))
        pretrain(variant.recipe, corpora, output, self.device, init=init)
        gc.collect()  # frees the model, which is part of a reference cycle, before the next one is built

    def _evaluate(self, job: Job, output: Path, model: Path) -> None:
        recipe = job.variant.recipe
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
        start = PretrainedEncoder(str(model))
        settings = job.task.settings(job.seed)
        finetune(task, start, files, output, job.task.full_recipe, settings)

    def _measure_speed(self, job: Job, output: Path, _: Path) -> None:
        device = pick_device(self.device)
        measured = measure_throughput(
            {row: variant.recipe.model for row, variant in job.variants.items()},
            sequence_length=job.variant.recipe.sequences.max_length,
            device=device,
            precision=fastest_precision(device),
        )
        seconds = {row: result.training_seconds / result.tokens for row, result in measured.results.items()}
        report = {name: getattr(measured, name) for name in ("device", "precision", "threads")}
        save_json(output, {**report, "seconds_a_token": seconds})
