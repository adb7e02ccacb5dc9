"""Where a run writes, and nothing else may: journal, curves, checkpoints.

RUN/recipe.json            the whole run as a value
    start.json             what it was started from, unless from random weights
    journal.jsonl          what happened, one event a line
    tensorboard/           the same numbers as curves
    checkpoints/step-00000100/   whole or absent
    model/                 the result, a Hugging Face model directory
"""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from albert.runtime.durable_files import new_directory, remove_directory, remove_leftovers
from albert.runtime.errors import AlbertError, CannotCreate, DamagedData
from albert.runtime.locks import locked
from albert.runtime.manifests import MANIFEST_NAME, is_whole, verify_directory

_CHECKPOINT = re.compile(r"^step-(\d{8,})$")


class RunFolder:
    """One run's directory."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def recipe_path(self) -> Path:
        """The recipe, as JSON."""
        return self.path / "recipe.json"

    @property
    def start_path(self) -> Path:
        """What the run was started from, as JSON."""
        return self.path / "start.json"

    @property
    def journal_path(self) -> Path:
        """The journal."""
        return self.path / "journal.jsonl"

    @property
    def tensorboard_path(self) -> Path:
        """TensorBoard events."""
        return self.path / "tensorboard"

    @property
    def checkpoints_path(self) -> Path:
        """All checkpoints."""
        return self.path / "checkpoints"

    @property
    def model_path(self) -> Path:
        """The finished model."""
        return self.path / "model"

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
        """Write the checkpoint of a step, then let the oldest go until `keep` are left.

        Args:
            step: optimiser updates done.
            write: fills the directory it is given.
            keep: checkpoints to keep, at least 1.
        """
        path = self.checkpoints_path / f"step-{step:08d}"
        if is_whole(path):  # by the run that this one resumes
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
            raise DamagedData(damage.subject, damage.why, self._remedy(checkpoints[:-1], path)) from damage
        return step, path

    def _remedy(self, older: list[tuple[int, Path]], damaged: Path) -> str:
        for step, path in reversed(older):
            if is_whole(path):
                return f"remove {damaged} to go on from step {step}, which is whole"
        return f"no older checkpoint is whole; remove {self.path} to start again"
