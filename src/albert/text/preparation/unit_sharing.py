"""Who takes the units through a stage: processes of this machine, or an engine that reaches further."""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

from albert.runtime.late_modules import load_by_name
from albert.runtime.progress import Bar, progress
from albert.text.preparation.unit_preparation import (
    OfUnit,
    SlurmSettings,
    Stage,
    UnitJob,
    finished_unit,
    keep_unit,
    prepare_batch,
    prepare_unit,
)
from albert.text.preparation.worker_processes import in_order

Engine = Literal["processes", "datatrove", "ray", "slurm"]
UNITS_PER_WORKER = 4
"""From so many on, whole units are shared out, and every process reads its own files; else one reads for all."""


@dataclass(frozen=True)
class Workforce:
    """Who does the work."""

    workers: int
    engine: Engine = "processes"
    slurm: SlurmSettings = field(default_factory=SlurmSettings)


def run_stage(stage: Stage[OfUnit], jobs: Sequence[UnitJob], workforce: Workforce, description: str) -> list[OfUnit]:
    """Take all units through a stage, under a progress bar; what is finished is not done again.

    Raises:
        AlbertError: what the stage raises.
        OutOfResources: a worker process was killed.
        Unavailable: the engine is not installed.
        TryAgain: the work was handed to Slurm, or a part of it failed.
    """
    with progress(description, sum(job.unit.size for job in jobs) / 1e6, "MB on disk") as bar:
        if workforce.engine != "processes":
            engines = load_by_name("albert.text.preparation.preparation_engines", "corpus")
            return engines.run_engine(stage, jobs, workforce, bar)
        if len(jobs) < UNITS_PER_WORKER * workforce.workers:
            return _by_batches(stage, jobs, workforce.workers, bar)
        results = []
        for job, result in zip(jobs, in_order(partial(prepare_unit, stage), jobs, workforce.workers), strict=True):
            bar.advance(job.unit.size / 1e6)
            results.append(result)
        return results


def _by_batches(stage: Stage[OfUnit], jobs: Sequence[UnitJob], workers: int, bar: Bar) -> list[OfUnit]:
    """All units, one after the other; this process reads, all work."""
    results: dict[str, OfUnit] = {}

    def advance(amount: int) -> None:
        bar.advance(amount / 1e6)
        bar.note(f"{sum(result.read.documents for result in results.values()):,} documents")

    def batches() -> Iterator[Any]:
        for job in jobs:
            kept = finished_unit(stage, job)
            if kept is not None:
                results[job.name] = kept
                bar.advance(job.unit.size / 1e6)
                continue
            results[job.name] = stage.of_unit(origin=job.origin)
            yield from stage.batches(job, results[job.name].read, advance)

    done = in_order(partial(prepare_batch, stage), batches(), workers)
    by_name = {job.name: job for job in jobs}
    for unit, group in itertools.groupby(done, lambda notes: notes.name.rpartition("-")[0]):
        results[unit].shards = tuple(group)
        keep_unit(stage, by_name[unit], results[unit])
    return [results[job.name] for job in jobs]
