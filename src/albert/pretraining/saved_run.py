"""What the folder of a pre-training run says: its recipe, and the model that it started from (`start.json`)."""

import hashlib
import json
from dataclasses import dataclass, field
from typing import Any, Literal

from albert.recipes.pretraining import PretrainingRecipe
from albert.runtime.errors import MissingInput
from albert.runtime.json_files import load_versioned, to_json
from albert.training.run_folder import RunFolder
from albert.training.same_run import Input, saved_inputs

Head = Literal["masked_tokens", "sentence_order"]
INITIAL_WEIGHTS = "initial weights"
RANDOM_WEIGHTS = Input("random weights", "")


@dataclass(frozen=True, kw_only=True)
class StartRecord:
    """The trained model that a run started from."""

    source: str
    """The model's name: a Hub id, or the end of a path."""
    weights: str
    """SHA-256 of its weights."""
    tokenizer: str | None
    """The fingerprint of its tokenizer; None if the corpus has the same."""
    extend_positions: bool
    drop_heads: tuple[Head, ...]
    trained_positions: int
    """Positions that were trained before this run."""
    notes: tuple[str, ...]
    """Which weights were changed, initialised or unused."""
    sentence_vectors: dict[str, Any] | None = None
    """How its texts become vectors, as its files of sentence-transformers say; None if it has none."""
    base: dict[str, Any] = field(default_factory=dict)
    """What the card says of the model: its name on the Hub, its languages and its licence."""

    @property
    def fingerprint(self) -> str:
        """A hash of what determines the initial weights, besides recipe and corpus."""
        record = to_json(self)
        settings = {key: record[key] for key in ("weights", "tokenizer", "extend_positions", "drop_heads")}
        return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()

    @property
    def input(self) -> Input:
        """The model as an input of the run."""
        options = ["extended positions"] if self.extend_positions else []
        options += [f"without the head {head}" for head in self.drop_heads]
        return Input(", ".join([self.source, *options]), self.fingerprint)

    def __str__(self) -> str:
        return f"{self.source} (weights {self.weights[:12]})"

    def lines(self) -> list[str]:
        """The start as text, for logs and the model card."""
        return [f"started from {self}", *self.notes]


def recorded_start(folder: RunFolder) -> StartRecord | None:
    """The start of the run in a folder; None if it started from random weights, or has no checkpoint yet.

    Raises:
        MissingInput: it was to start from a model and has no checkpoint yet, so that the model is needed again.
    """
    if folder.start_path.exists() and folder.checkpoints():
        return load_versioned(StartRecord, folder.start_path)
    intended = saved_inputs(folder).get(INITIAL_WEIGHTS, RANDOM_WEIGHTS)
    if intended != RANDOM_WEIGHTS:
        why = f"was to start from {intended} and has no checkpoint yet"
        raise MissingInput(folder.path, why, "give --init again, or choose another output")
    return None


def saved_recipe(run: RunFolder) -> PretrainingRecipe:
    """The recipe of a run.

    Raises:
        MissingInput, DamagedData: it cannot be read.
        InvalidConfiguration: it is not a recipe.
    """
    return load_versioned(PretrainingRecipe, run.recipe_path)
