"""The numbers of a run as they come: into the journal, and as TensorBoard curves."""

import math
from typing import Any

from torch.utils.tensorboard import SummaryWriter

from albert.runtime.journal import Journal
from albert.training.run_folder import RunFolder


class Curves:
    """Write each event once to the journal and once to TensorBoard; nothing on ranks other than the first."""

    def __init__(self, run: RunFolder, first_step: int, active: bool) -> None:
        self._journal = Journal(run.journal_path) if active else None
        self._writer = SummaryWriter(str(run.tensorboard_path), purge_step=first_step + 1) if active else None

    def write(self, event: str, step: int, **values: Any) -> None:
        """Record an event of a step; its numbers become curves named `event/…`."""
        if self._journal is None or self._writer is None:
            return
        self._journal.write(event, step=step, **values)
        for name, value in values.items():
            if isinstance(value, int | float) and math.isfinite(value):
                self._writer.add_scalar(f"{event}/{name}", value, step)

    def close(self) -> None:
        """Flush and close both."""
        if self._journal is not None and self._writer is not None:
            self._journal.close()
            self._writer.close()
