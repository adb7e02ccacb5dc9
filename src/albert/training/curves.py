"""The numbers of a run as they come: into the journal, as TensorBoard curves, and wherever else they are wanted."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from torch.utils.tensorboard import SummaryWriter

from albert.runtime.durable_files import writing
from albert.runtime.journal import Journal
from albert.training.run_folder import RunFolder

MACHINE_FIGURES = ("time", "seconds", "tokens_per_second", "matmul_share", "peak_memory_bytes")
"""What is told of a step that another run of the same steps tells otherwise."""


@runtime_checkable
class Logger(Protocol):
    """A service that draws curves."""

    def write(self, step: int, numbers: Mapping[str, float]) -> None:
        """Take numbers of a step by name, `train/loss` say; of a step told twice, the last telling holds."""
        ...

    def rewind(self, step: int) -> None:
        """What was told of later steps holds no more."""
        ...

    def close(self) -> None:
        """No more will come."""
        ...


class TensorBoardLogger:
    """Event files in the run's folder, which `tensorboard --logdir RUNS` shows."""

    def __init__(self, run: RunFolder, first_step: int) -> None:
        self._path = str(run.tensorboard_path)
        self._writer = SummaryWriter(self._path, purge_step=first_step + 1)

    def write(self, step: int, numbers: Mapping[str, float]) -> None:
        """Add a point to each curve."""
        with writing(Path(self._path)):
            for name, value in numbers.items():
                self._writer.add_scalar(name, value, step)

    def rewind(self, step: int) -> None:
        """Begin a file that takes the place of later steps."""
        self.close()
        self._writer = SummaryWriter(self._path, purge_step=step + 1)

    def close(self) -> None:
        """Flush and close."""
        with writing(Path(self._path)):
            self._writer.close()


class Curves:
    """Write each event once to the journal and once to every logger; nothing on ranks other than the first."""

    def __init__(self, run: RunFolder, first_step: int, active: bool, more: Sequence[Logger] = ()) -> None:
        self._journal = Journal(run.journal_path) if active else None
        self._loggers: Sequence[Logger] = [TensorBoardLogger(run, first_step), *more] if active else []

    def write(self, event: str, step: int, **values: Any) -> None:
        """Record an event of a step; its numbers become curves named `event/…`."""
        if self._journal is None:
            return
        self._journal.write(event, step=step, **values)
        numbers = {
            f"{event}/{name}": value
            for name, value in values.items()
            if isinstance(value, int | float) and math.isfinite(value)
        }
        for logger in self._loggers:
            logger.write(step, numbers)

    def sync(self) -> None:
        """What the journal was told survives a loss of power from now on."""
        if self._journal is not None:
            self._journal.sync()

    def rewind(self, step: int) -> None:
        """Go on from an earlier step; the journal keeps what was, and of a step told twice the last telling holds."""
        for logger in self._loggers:
            logger.rewind(step)

    def close(self) -> None:
        """Flush and close all."""
        if self._journal is not None:
            self._journal.close()
        for logger in self._loggers:
            logger.close()
