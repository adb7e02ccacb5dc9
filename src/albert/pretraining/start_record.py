"""What a run was started from, kept in its `start.json` and compared when it goes on."""

import hashlib
import json
from dataclasses import dataclass
from typing import Literal

from albert.model.config import Extension
from albert.runtime.errors import InvalidConfiguration, MissingInput
from albert.runtime.strict_json import load_json, to_json
from albert.training.run_folder import RunFolder

Head = Literal["masked_tokens", "sentence_order"]


@dataclass(frozen=True, kw_only=True)
class StartRecord:
    """A start from a trained model."""

    source: str
    """The model's name: a Hub id, or the end of a path."""
    weights: str
    """SHA-256 of its numbers."""
    tokenizer: str | None
    """The fingerprint of its tokenizer, None where the corpus has the same."""
    extend_positions: Extension | None
    drop_heads: tuple[Head, ...]
    trained_positions: int
    """Positions that training has reached before this run."""
    notes: tuple[str, ...]
    """What was changed, drawn anew or left out."""

    @property
    def fingerprint(self) -> str:
        """A hash of all that decides what the weights are when the run begins, beside recipe and corpus."""
        kept = to_json(self)
        decisive = {key: kept[key] for key in ("weights", "tokenizer", "extend_positions", "drop_heads")}
        return hashlib.sha256(json.dumps(decisive, sort_keys=True).encode()).hexdigest()

    def __str__(self) -> str:
        return f"{self.source} (weights {self.weights[:12]})"

    def lines(self) -> list[str]:
        """The start for people."""
        return [f"started from {self}", *self.notes]


def kept_start(run: RunFolder) -> StartRecord | None:
    """The record of a run that has begun; None for one that began from random weights, or has not."""
    return load_json(StartRecord, run.start_path) if run.start_path.exists() else None


def refuse_another_start(run: RunFolder, start: StartRecord | None) -> None:
    """See to it that a run that has begun goes on from what it was started from.

    Args:
        run: the folder.
        start: what is asked for; None: whatever the run has.

    Raises:
        InvalidConfiguration: it was another model, or none.
        MissingInput: nothing is asked for, and the weights are not in the run yet.
    """
    kept = kept_start(run)
    if start is None:
        if kept is not None and not run.checkpoints():
            why = f"was to start from {kept} and has no checkpoint yet"
            raise MissingInput(run.path, why, "give --init again, or choose another output")
        return
    remedy = "choose another output, or leave --init out to go on"
    if kept is None and run.recipe_path.exists():
        raise InvalidConfiguration(run.path, f"this run was started from random weights, not from {start}", remedy)
    if kept is not None and kept.fingerprint != start.fingerprint:
        differ = "" if kept.weights != start.weights else " in another way"
        raise InvalidConfiguration(run.path, f"this run was started from {kept}{differ}, now it is {start}", remedy)
