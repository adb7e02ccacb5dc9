"""The folder of a run (journal, curves, checkpoints, lock), and how signals stop a run.

RUN/recipe.json            all settings
    inputs.json            fingerprints and names of what it reads
    start.json             of pre-training: the model it started from, unless from random weights
    journal.jsonl          one event per line
    tensorboard/           its metrics as curves
    checkpoints/step-00000100/   complete or absent
    best/                  the best model so far, of a fine-tuning run that selects it
    model/                 the result, a Hugging Face model directory
    results.json           written last"""

import os
import re
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

from albert.runtime.errors import AlbertError, CannotCreate, DamagedData
from albert.runtime.files import LOCK_NAME, locked, new_directory, remove_directory, remove_leftovers
from albert.runtime.manifest import MANIFEST_NAME, is_intact, verify_directory

RESULTS_NAME = "results.json"
SUMMARY_NAME = "summary.json"
"""In a directory of several runs."""
_CHECKPOINT = re.compile(r"^step-(\d{8,})$")


class RunFolder:
    """Paths of a run; its layout is shown above."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.recipe_path = path / "recipe.json"
        self.inputs_path = path / "inputs.json"
        self.start_path = path / "start.json"
        self.journal_path = path / "journal.jsonl"
        self.tensorboard_path = path / "tensorboard"
        self.checkpoints_path = path / "checkpoints"
        self.best_path = path / "best"
        self.model_path = path / "model"
        self.results_path = path / RESULTS_NAME

    @contextmanager
    def locked(self, first_rank: bool = True) -> Iterator[None]:
        """Lock the run against other processes; the lock is released when its owner ends.

        Args:
            first_rank: whether this process is the first of the run; the lock is that of all of them.

        Raises:
            CannotCreate: the run is locked by another process, or the directory cannot be created or is not a run.
        """
        if not first_rank:
            yield
            return
        if (self.path / MANIFEST_NAME).exists():
            why = "is a finished directory with a manifest, not a run"
            raise CannotCreate(self.path, why, "choose another output")
        with locked(self.path, "this run"):
            for directory in (self.path, self.checkpoints_path):
                if directory.is_dir():
                    remove_leftovers(directory)
            yield

    def save_checkpoint(self, step: int, write: Callable[[Path], None], keep: int) -> Path:
        """Save the checkpoint of a step with `write`, then remove the oldest until `keep` (at least 1) are left."""
        path = self.checkpoints_path / f"step-{step:08d}"
        if is_intact(path):  # by the run that this one resumes
            return path
        with new_directory(path, replace=True) as directory:
            write(directory)
        self.keep_newest(keep)
        return path

    def keep_newest(self, keep: int) -> None:
        """Remove all checkpoints but the newest `keep`."""
        for _, old in self.checkpoints()[:-keep]:
            remove_directory(old)

    def checkpoints(self) -> list[tuple[int, Path]]:
        """All checkpoints by step, oldest first."""
        if not self.checkpoints_path.is_dir():
            return []
        matches = ((_CHECKPOINT.match(entry.name), entry) for entry in self.checkpoints_path.iterdir())
        return sorted((int(match.group(1)), entry) for match, entry in matches if match)

    def newest_checkpoint(self) -> tuple[int, Path] | None:
        """The newest checkpoint after verifying it, or None if there is none.

        Raises:
            DamagedData: it is damaged; the message names the newest intact one.
        """
        checkpoints = self.checkpoints()
        if not checkpoints:
            return None
        step, path = checkpoints[-1]
        try:
            verify_directory(path)
        except AlbertError as damage:
            remedy = f"no older checkpoint is intact; remove {self.path} to start again"
            intact = next((step for step, older in reversed(checkpoints[:-1]) if is_intact(older)), None)
            if intact is not None:
                remedy = f"remove {path} to continue from step {intact}, which is intact"
            raise DamagedData(damage.subject, damage.why, remedy) from damage
        return step, path


_OF_RUNS = ("recipe.json", RESULTS_NAME, "journal.jsonl", "*/recipe.json", "*/*/recipe.json")
"""Files of a run, or of a directory of runs."""
ROWS_FOLDER = "data"
"""Folder in a run's directory for rows that were given in memory."""


def remove_run(path: Path, inputs: Iterable[Path]) -> None:
    """Remove a run, or the runs of several seeds or tasks; nothing if there is none. Its `ROWS_FOLDER` is kept.

    Raises:
        CannotCreate: the directory is not a run, is in use, or contains one of the inputs.
    """
    kept = (LOCK_NAME, ROWS_FOLDER)
    if not path.is_dir() or all(entry.name in kept for entry in path.iterdir()):
        return
    rows = (path / ROWS_FOLDER).resolve()
    for file in inputs:
        if file.resolve().is_relative_to(path.resolve()) and not file.resolve().is_relative_to(rows):
            raise CannotCreate(path, f"contains the input {file}, which would be removed", "choose another --output")
    if not any(file for pattern in _OF_RUNS for file in path.glob(pattern)):
        raise CannotCreate(path, "exists and is not a run; --replace does not remove it", "choose another --output")
    with locked(path, "this run"):
        for entry in sorted(path.iterdir()):
            if entry.name in kept:
                continue
            if entry.is_dir() and not entry.is_symlink():
                remove_directory(entry)
            else:
                entry.unlink()


# --------------------------------------------------------------------------------------------------------------------
# Signals: save a checkpoint, then exit.

STOPPING_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
"""TERM and INT, HUP of a terminal that is closed, USR1 and USR2 of schedulers before their time limit."""


class Stopped(AlbertError):
    """The run received a signal and saved a checkpoint; the same command resumes it."""

    def __init__(self, subject: object, number: int | None) -> None:
        number = number or signal.SIGTERM  # None: another rank received it
        super().__init__(
            subject, f"stopped by {signal.Signals(number).name} after saving", "run the same command to continue"
        )
        self.exit_code = 128 + number


class _Interrupted(BaseException):
    """A signal arrived during work that need not be finished; a BaseException, so that error handlers let it pass."""


class Attempt:
    """Whether a signal interrupted the block of `StopRequest.interruptible`."""

    interrupted = False


class StopRequest:
    """The first signal received, or None."""

    def __init__(self) -> None:
        self.number: int | None = None
        self._attempt: Attempt | None = None
        self._terminals = [descriptor for descriptor in (1, 2) if os.isatty(descriptor)]

    def note(self, number: int, frame: FrameType | None) -> None:
        """Signal handler: records the signal; a second SIGINT stops at once."""
        if number == signal.SIGINT and self.number is not None:
            raise KeyboardInterrupt
        self.number = number
        if number == signal.SIGHUP:
            self._leave_closed_terminal()
        if self._attempt is not None and not self._attempt.interrupted:
            self._attempt.interrupted = True
            raise _Interrupted

    def _leave_closed_terminal(self) -> None:
        """Let what is still printed go nowhere if the terminal is closed, where writing would be an error."""
        closed = [descriptor for descriptor in self._terminals if not os.isatty(descriptor)]
        if closed:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            for descriptor in closed:
                os.dup2(nowhere, descriptor)
            os.close(nowhere)

    @contextmanager
    def interruptible(self) -> Iterator[Attempt]:
        """Let a signal end the block early; execution continues after the block."""
        attempt = Attempt()
        with suppress(_Interrupted):
            try:
                self._attempt = attempt
                yield attempt
            finally:
                self._attempt = None


@contextmanager
def stop_signals() -> Iterator[StopRequest]:
    """Record `STOPPING_SIGNALS` during the block, then restore the previous handlers.

    HUP, USR1 and USR2 are left alone if the program already handles or ignores them, as under nohup. Python sets
    handlers in the main thread only: in another thread no signal is changed.
    """
    request = StopRequest()
    is_main = threading.current_thread() is threading.main_thread()
    always = (signal.SIGTERM, signal.SIGINT)
    numbers = [n for n in STOPPING_SIGNALS if is_main and (n in always or signal.getsignal(n) is signal.SIG_DFL)]
    old = {number: signal.signal(number, request.note) for number in numbers}
    try:
        yield request
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)
