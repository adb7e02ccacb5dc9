"""The folder of a run: journal, curves, checkpoints and lock; and how SIGTERM and SIGINT end a run.

RUN/recipe.json            the whole run as a value
    start.json             what it was started from, unless from random weights
    journal.jsonl          what happened, one event a line
    tensorboard/           the same numbers as curves
    checkpoints/step-00000100/   whole or absent
    model/                 the result, a Hugging Face model directory"""

import re
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

from albert.runtime.errors import AlbertError, CannotCreate, DamagedData
from albert.runtime.files import locked, new_directory, remove_directory, remove_leftovers
from albert.runtime.manifest import MANIFEST_NAME, is_intact, verify_directory

_CHECKPOINT = re.compile(r"^step-(\d{8,})$")


class RunFolder:
    """One run's directory; what lies in it stands above."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.recipe_path = path / "recipe.json"
        self.start_path = path / "start.json"
        self.journal_path = path / "journal.jsonl"
        self.tensorboard_path = path / "tensorboard"
        self.checkpoints_path = path / "checkpoints"
        self.model_path = path / "model"

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep a second process out of this run; the lock dies with its owner.

        Raises:
            CannotCreate: another process works here, the directory cannot be made, or it is no run's.
        """
        if (self.path / MANIFEST_NAME).exists():
            why = "is a finished directory with a manifest, not a run"
            raise CannotCreate(self.path, why, "choose another output")
        with locked(self.path, "this run"):
            for place in (self.path, self.checkpoints_path):
                if place.is_dir():
                    remove_leftovers(place, is_locked=True)
            yield

    def save_checkpoint(self, step: int, write: Callable[[Path], None], keep: int) -> Path:
        """Write the checkpoint of a step (updates done), then let the oldest go until `keep` are left, at least 1.

        Args:
            write: fills the directory it is given.
        """
        path = self.checkpoints_path / f"step-{step:08d}"
        if is_intact(path):  # by the run that this one resumes
            return path
        with new_directory(path, replace=True) as directory:
            write(directory)
        self.keep_newest(keep)
        return path

    def keep_newest(self, keep: int) -> None:
        """Let all checkpoints go but the newest `keep`."""
        for _, old in self.checkpoints()[:-keep]:
            remove_directory(old)

    def checkpoints(self) -> list[tuple[int, Path]]:
        """All checkpoints by step, oldest first."""
        if not self.checkpoints_path.is_dir():
            return []
        found = ((_CHECKPOINT.match(entry.name), entry) for entry in self.checkpoints_path.iterdir())
        return sorted((int(match.group(1)), entry) for match, entry in found if match)

    def newest_checkpoint(self) -> tuple[int, Path] | None:
        """The newest checkpoint after checking it whole, or None when there is none.

        Raises:
            DamagedData: the newest one is damaged; the message names the newest that is not.
        """
        checkpoints = self.checkpoints()
        if not checkpoints:
            return None
        step, path = checkpoints[-1]
        try:
            verify_directory(path)
        except AlbertError as damage:
            remedy = f"no older checkpoint is whole; remove {self.path} to start again"
            whole = next((step for step, older in reversed(checkpoints[:-1]) if is_intact(older)), None)
            if whole is not None:
                remedy = f"remove {path} to go on from step {whole}, which is whole"
            raise DamagedData(damage.subject, damage.why, remedy) from damage
        return step, path


# --------------------------------------------------------------------------------------------------------------------
# SIGTERM and SIGINT: save a checkpoint, then exit.


class Stopped(AlbertError):
    """The run was asked to end and saved itself; the same command goes on."""

    def __init__(self, subject: object, number: int | None) -> None:
        number = number or signal.SIGTERM  # another rank heard it
        super().__init__(
            subject, f"stopped by {signal.Signals(number).name} after saving", "run the same command to go on"
        )
        self.exit_code = 128 + number


class _GivenUp(BaseException):
    """A signal came while something ran that is not worth waiting for; no handler of errors may take it for one."""


class Attempt:
    """Something that a signal may have ended."""

    given_up = False


class StopRequest:
    """The first signal that came, or None."""

    def __init__(self) -> None:
        self.number: int | None = None
        self._attempt: Attempt | None = None

    def note(self, number: int, frame: FrameType | None) -> None:
        """Handler: only set the flag; a second SIGINT stops at once."""
        if number == signal.SIGINT and self.number is not None:
            raise KeyboardInterrupt
        self.number = number
        if self._attempt is not None and not self._attempt.given_up:
            self._attempt.given_up = True
            raise _GivenUp

    @contextmanager
    def giving_up(self) -> Iterator[Attempt]:
        """What runs in the block ends when a signal comes; what follows the block is reached all the same."""
        attempt = Attempt()
        with suppress(_GivenUp):
            try:
                self._attempt = attempt
                yield attempt
            finally:
                self._attempt = None


@contextmanager
def stop_signals() -> Iterator[StopRequest]:
    """Listen for SIGTERM and SIGINT during the block, then put the old handlers back."""
    request = StopRequest()
    old = {number: signal.signal(number, request.note) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield request
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)
