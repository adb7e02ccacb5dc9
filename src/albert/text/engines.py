"""Preparation beyond one machine: datatrove's executors, here, on Ray or on Slurm, around the same unit of work.

All machines see the same files. The result of a unit does not depend on who prepared it, so the corpus that is put
together afterwards has the bytes that one process gives. Needs the extra `corpus` (for Ray: `ray`).
"""

import sys
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from datatrove.executor import LocalPipelineExecutor, RayPipelineExecutor, SlurmPipelineExecutor
from datatrove.pipeline.base import PipelineStep

from albert.runtime.errors import TryAgain, Unavailable, UsageError
from albert.runtime.progress import Bar
from albert.text.executors import (
    ENGINE_LOGS,
    Stage,
    UnitJob,
    UnitNotes,
    Workforce,
    finished_unit,
    prepare_unit,
)


class PrepareUnits(PipelineStep):
    """One unit of the corpus a task."""

    name = "units of a corpus"
    type = "albert"

    def __init__(self, stage: Stage, jobs: Sequence[UnitJob]) -> None:
        super().__init__()
        self.prepare = partial(prepare_unit, stage)  # datatrove writes its steps as JSON, and stumbles over a stage
        self.jobs = tuple(jobs)

    def run(self, data: Any, rank: int = 0, world_size: int = 1) -> Iterator[Any]:
        for job in self.jobs[rank::world_size]:
            self.prepare(job)
        yield from ()


def run_engine(stage: Stage, jobs: Sequence[UnitJob], workforce: Workforce, bar: Bar) -> list[UnitNotes]:
    """Have all units taken through a stage that are not yet finished."""
    waiting = [job for job in jobs if finished_unit(stage, job) is None]
    bar.advance(sum(job.unit.size for job in jobs if job not in waiting) / 1e6)
    logs = jobs[0].directory / ENGINE_LOGS / stage.folder
    if waiting:
        _launch(stage, waiting, workforce, logs)
    results = [finished_unit(stage, job) for job in jobs]
    missing = results.count(None)
    if missing and workforce.engine == "slurm":
        why = f"{missing} of {len(jobs)} units of work are in the queue"
        raise TryAgain("Slurm", why, f"run the same command when they are done, to go on; they log to {logs}")
    if missing:
        why = f"{missing} of {len(jobs)} units of work failed"
        raise TryAgain(workforce.engine, why, f"see {logs}, and run the same command to go on")
    bar.advance(sum(job.unit.size for job in waiting) / 1e6)
    return [result for result in results if result is not None]


def _launch(stage: Stage, jobs: Sequence[UnitJob], workforce: Workforce, logs: Path) -> None:
    slurm = workforce.slurm
    common: dict[str, Any] = {
        "pipeline": [PrepareUnits(stage, jobs)],
        "tasks": len(jobs),
        "workers": workforce.workers,
        "logging_dir": str(logs),
        "skip_completed": False,  # which are finished is known better here: files may have changed since
    }
    if workforce.engine != "slurm":
        executor = LocalPipelineExecutor if workforce.engine == "datatrove" else RayPipelineExecutor
        executor(**common).run()
        return
    if not slurm.partition:
        raise UsageError("--slurm.partition", "is not given", "name the partition that has the machines (`sinfo`)")
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
