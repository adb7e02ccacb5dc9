"""The one workflow of a run, for every kind of run: pre-training, fine-tuning on a task, learning vectors.

1. The opener reads and checks everything, and writes nothing: bad input leaves no directory behind.
2. `same_run` decides, with the folder locked: another run is refused, a finished one is returned as it is.
3. The record is written, and what is trained is set up, anew also for a run that is resumed.
4. The training loop takes the updates that are missing (`albert.training.loop.train`).
5. The result is scored and written; `results.json` comes last and says that the run is finished."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

import torch

from albert.runtime.devices import pick_device
from albert.runtime.distributed import process_group, sum_over_ranks, wait_for_all
from albert.runtime.environment import PEER_TIMEOUT_MINUTES, Ranks, world
from albert.runtime.files import remove_directory
from albert.runtime.json_files import read_versioned, save_versioned
from albert.training.logging import TrainingPlan, TrainingResult
from albert.training.loop import train
from albert.training.run_folder import RunFolder, remove_run
from albert.training.same_run import STANDINGS, Described, Run, Standing, begun_run, same_run, save_run
from albert.training.task import TrainingTask

Result = TypeVar("Result")


@dataclass(kw_only=True)
class RunWork(Described, ABC, Generic[Result]):
    """The work of a run, read and checked: what one kind of run adds to the workflow.

    Only the first rank has to know the inputs. `write` is called there, the other methods on every rank.
    """

    plan: TrainingPlan
    ranks: Ranks
    device: torch.device
    read_from: Sequence[Path] = ()
    """Files and folders that are read: a run that contains one of them is not replaced."""

    @abstractmethod
    def set_up(self, run: Run, is_new: bool) -> TrainingTask:
        """Make what is trained. What depends on more than the inputs is computed for a new run and saved; for a run
        that has a checkpoint it is read."""

    @abstractmethod
    def score(self, training: TrainingResult) -> Mapping[str, Any]:
        """After the last update: score the model that is the result; returns the report, for `results.json`."""

    @abstractmethod
    def write(self, folder: RunFolder, report: Mapping[str, Any]) -> None:
        """Write the model and what else is beside it."""

    @abstractmethod
    def result(self, folder: RunFolder, report: Mapping[str, Any], already_complete: bool) -> Result:
        """What the caller gets, from the content of `results.json`."""


Opener = Callable[[RunFolder, torch.device, Ranks], RunWork[Result]]
"""Reads and checks all that a run needs, and writes nothing. It gets the folder of the run to resume, which does not
exist if the run is new or is replaced."""


def run_training(
    open_work: Opener[Result],
    output: Path,
    device: str = "auto",
    replace: bool = False,
    peer_timeout_minutes: float = PEER_TIMEOUT_MINUTES,
) -> Result:
    """Start a run, resume it, continue one that has grown, or return the result of a finished one.

    Args:
        replace: remove an earlier run in `output` once everything has been read and checked, and begin anew.

    Raises:
        CannotCreate: `output` holds another run; with `replace`, it is not a run, is in use, or contains an input.
        Diverged, Stopped, DamagedData: see `albert.training.loop.train`.
        Others: what the opener refuses.
    """
    torch_device = pick_device(device, world().local_rank)
    folder = RunFolder(output)
    with process_group(torch_device, peer_timeout_minutes) as ranks:
        # What is replaced is opened as a new run: in a folder that does not exist.
        work = open_work(RunFolder(output / "replaced") if replace else folder, torch_device, ranks)
        if replace:
            if ranks.is_first:
                remove_run(output, [path for path in work.read_from if path.exists()])
            wait_for_all(ranks)
        with folder.locked(ranks.is_first):
            standing = _standing(folder, work)
            if standing != "finished":
                run = _begin(folder, work)
                task = work.set_up(run, is_new=not folder.checkpoints())
                training = train(task, work.plan, run)
                report = work.score(training)
                if ranks.is_first:
                    work.write(folder, report)
                    save_versioned(folder.results_path, {**work.record, **report, "identity": run.identity})
            return _finish(folder, work, standing == "finished")


def check_training(open_work: Opener[Any], output: Path, device: str = "auto") -> None:
    """Raise what the opener refuses of a new run in `output`, whatever is there; nothing is written."""
    torch_device = pick_device(device, world().local_rank)
    with process_group(torch_device) as ranks:
        open_work(RunFolder(output / "replaced"), torch_device, ranks)


def _standing(folder: RunFolder, work: RunWork[Any]) -> Standing:
    """What `same_run` says, on every rank."""
    number = STANDINGS.index(same_run(folder, work)) if work.ranks.is_first else 0
    of_first = sum_over_ranks(torch.tensor(number, device=work.device), work.ranks)
    return STANDINGS[int(of_first)]


def _begin(folder: RunFolder, work: RunWork[Any]) -> Run:
    """Write the record of the run."""
    if work.ranks.is_first:
        save_run(folder, work)
    wait_for_all(work.ranks)
    return begun_run(folder, work)


def _finish(folder: RunFolder, work: RunWork[Result], already_complete: bool) -> Result:
    """The result of a finished run, without what only a run that goes on needs: its process may have died before it
    removed that."""
    wait_for_all(work.ranks)
    report = read_versioned(folder.results_path)
    if work.ranks.is_first and not work.KEEPS_CHECKPOINTS:
        for directory in (folder.checkpoints_path, folder.best_path):
            if directory.is_dir():
                remove_directory(directory)
    wait_for_all(work.ranks)
    return work.result(folder, report, already_complete)
