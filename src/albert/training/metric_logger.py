"""Curves of a run, of every kind, in TensorBoard, Weights & Biases or trackio; the journal is written beside them.

To add a service, write a class with `write`, `rewind` and `close`, and name it in `SERVICES`."""

import logging
import os
import secrets
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from albert.runtime.environment import DEFAULT_LOG, Log, install_command, lazy_import
from albert.runtime.errors import Unavailable
from albert.runtime.files import writing
from albert.runtime.json_files import read_versioned, save_versioned
from albert.training.run_folder import RunFolder

IDENTITY_NAME = "logger.json"
"""The identity of a run at a service, so that a resumed run goes on there."""
DEFAULT_PROJECT = "albert"

_logger = logging.getLogger(__name__)


@runtime_checkable
class MetricService(Protocol):
    """A service that plots metrics."""

    def write(self, step: int, numbers: Mapping[str, float]) -> None:
        """Record metrics of a step by name, for instance `train/loss`; the last record for a step wins."""
        ...

    def rewind(self, step: int) -> None:
        """Discard what was recorded for later steps."""
        ...

    def close(self) -> None:
        """Flush and close."""
        ...


class TensorBoardLogger:
    """TensorBoard event files in the run's folder (`tensorboard --logdir RUNS`)."""

    def __init__(self, run: RunFolder, first_step: int, settings: Mapping[str, Any]) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ModuleNotFoundError as error:
            raise Unavailable("tensorboard", "is not installed", install_command("plots")) from error
        self._open = SummaryWriter
        self._path = str(run.tensorboard_path)
        self._writer = self._open(self._path, purge_step=first_step + 1)

    def write(self, step: int, numbers: Mapping[str, float]) -> None:
        """Add a point to each curve."""
        with writing(Path(self._path)):
            for name, value in numbers.items():
                self._writer.add_scalar(name, value, step)

    def rewind(self, step: int) -> None:
        """Start a new event file that purges later steps."""
        self.close()
        self._writer = self._open(self._path, purge_step=step + 1)

    def close(self) -> None:
        """Flush and close."""
        with writing(Path(self._path)):
            self._writer.close()


class WandbLogger:
    """One run at Weights & Biases, also after it was stopped and resumed; WANDB_MODE=offline keeps it in the folder.

    Steps are a metric of their own, because those of W&B only ascend: after a rollback a step has two points.
    """

    def __init__(self, run: RunFolder, first_step: int, settings: Mapping[str, Any]) -> None:
        project = os.environ.get("WANDB_PROJECT", DEFAULT_PROJECT)
        name = run.path.resolve().name
        self._run = lazy_import("wandb", "wandb").init(
            project=project, name=name, id=_identity(run), resume="allow", dir=str(run.path), config=dict(settings)
        )
        self._run.define_metric("*", step_metric="step")

    def write(self, step: int, numbers: Mapping[str, float]) -> None:
        """Add a point to each curve."""
        self._run.log({"step": step, **numbers})

    def rewind(self, step: int) -> None:
        """Does nothing: later records of a step are added to the earlier ones."""

    def close(self) -> None:
        """Upload the remaining records."""
        self._run.finish()


class TrackioLogger:
    """One run of trackio, also after it was stopped and resumed (`trackio show`); TRACKIO_PROJECT names the project.

    After a rollback a step has two points.
    """

    def __init__(self, run: RunFolder, first_step: int, settings: Mapping[str, Any]) -> None:
        project = os.environ.get("TRACKIO_PROJECT", DEFAULT_PROJECT)
        name = f"{run.path.resolve().name}-{_identity(run)[:6]}"  # trackio knows a run by its name
        self._run = lazy_import("trackio", "trackio").init(
            project=project, name=name, resume="allow", config=dict(settings), embed=False
        )

    def write(self, step: int, numbers: Mapping[str, float]) -> None:
        """Add a point to each curve."""
        self._run.log(dict(numbers), step=step)

    def rewind(self, step: int) -> None:
        """Does nothing: later records of a step are added to the earlier ones."""

    def close(self) -> None:
        """Write the remaining records."""
        self._run.finish()


SERVICES: dict[Log, Callable[[RunFolder, int, Mapping[str, Any]], MetricService]] = {
    "tensorboard": TensorBoardLogger,
    "wandb": WandbLogger,
    "trackio": TrackioLogger,
}


def require_logger(log: Log) -> None:
    """Refuse a service whose library is not installed; without TensorBoard a run has its journal alone.

    Raises:
        Unavailable: it is not installed.
    """
    if log != DEFAULT_LOG:
        lazy_import(log, log)


def open_services(log: Log, run: RunFolder, first_step: int, settings: Mapping[str, Any]) -> list[MetricService]:
    """The services of a run; none where TensorBoard is not installed."""
    try:
        return [SERVICES[log](run, first_step, settings)]
    except Unavailable as error:
        if log != DEFAULT_LOG:
            raise
        _note_once(f"no curves for TensorBoard are written, the journal has the same figures: {error}")
        return []


def _identity(run: RunFolder) -> str:
    path = run.path / IDENTITY_NAME
    if not path.exists():
        save_versioned(path, {"id": secrets.token_hex(8)})
    return read_versioned(path)["id"]


@cache
def _note_once(text: str) -> None:
    _logger.warning("albert: note: %s", text)
