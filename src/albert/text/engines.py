"""Preparation on a cluster: datatrove's executors on this machine, on Ray or on Slurm.

All machines must see the same files. The bytes of the corpus do not depend on the engine. Needs the extra `corpus`
(for Ray: `ray`)."""

import sys
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from datatrove.executor import LocalPipelineExecutor, RayPipelineExecutor, SlurmPipelineExecutor
from datatrove.pipeline.base import PipelineStep

from albert.runtime.errors import TryAgain, Unavailable, UsageError
from albert.runtime.progress import Bar
from albert.text.executors import ENGINE_LOGS, ExecutorOptions, Stage, UnitJob, UnitResult, load_finished_unit, run_unit


class UnitStep(PipelineStep):
    """A datatrove step that runs a stage on the units of its task."""

    name = "units of a corpus"
    type = "albert"

    def __init__(self, stage: Stage, jobs: Sequence[UnitJob]) -> None:
        super().__init__()
        self.run_unit = partial(run_unit, stage)  # datatrove writes its steps as JSON, which fails for a stage
        self.jobs = tuple(jobs)

    def run(self, data: Any, rank: int = 0, world_size: int = 1) -> Iterator[Any]:
        for job in self.jobs[rank::world_size]:
            self.run_unit(job)
        yield from ()


def run_engine(stage: Stage, jobs: Sequence[UnitJob], options: ExecutorOptions, bar: Bar) -> list[UnitResult]:
    """Run a stage on all units that are not finished."""
    waiting = [job for job in jobs if load_finished_unit(stage, job) is None]
    bar.advance(sum(job.size for job in jobs if job not in waiting) / 1e6)
    logs = jobs[0].directory / ENGINE_LOGS / stage.folder
    if waiting:
        _launch(stage, waiting, options, logs)
    results = [load_finished_unit(stage, job) for job in jobs]
    missing = results.count(None)
    if missing and options.engine == "slurm":
        why = f"{missing} of {len(jobs)} units of work are in the queue"
        raise TryAgain("Slurm", why, f"run the same command when they are done, to continue; they log to {logs}")
    if missing:
        why = f"{missing} of {len(jobs)} units of work failed"
        raise TryAgain(options.engine, why, f"see {logs}, and run the same command to continue")
    bar.advance(sum(job.size for job in waiting) / 1e6)
    return [result for result in results if result is not None]


def _launch(stage: Stage, jobs: Sequence[UnitJob], options: ExecutorOptions, logs: Path) -> None:
    slurm = options.slurm
    common: dict[str, Any] = {
        "pipeline": [UnitStep(stage, jobs)],
        "tasks": len(jobs),
        "workers": options.workers,
        "logging_dir": str(logs),
        "skip_completed": False,  # datatrove does not notice that files have changed since
    }
    if options.engine != "slurm":
        executor = LocalPipelineExecutor if options.engine == "datatrove" else RayPipelineExecutor
        executor(**common).run()
        return
    if not slurm.partition:
        raise UsageError("--partition", "is missing", "name the partition that has the machines (`sinfo`)")
    executor = SlurmPipelineExecutor(
        **common,
        time=slurm.time,
        partition=slurm.partition,
        mem_per_cpu_gb=slurm.memory_gb,
        job_name="albert-prepare",
        env_command=f'export PATH="{Path(sys.executable).parent}:$PATH"',
        qos="",
    )
    try:
        executor.run()
    except FileNotFoundError as error:
        why = "there is no `sbatch` on this machine"
        raise Unavailable("Slurm", why, f"{logs} holds the job script for one that has it") from error
