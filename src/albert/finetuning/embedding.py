"""What runs share whose result is an encoder without a head: texts become vectors (`embed`)."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float32
from torch import nn

from albert.checkpoints.card import Card
from albert.checkpoints.model_directory import save_model_directory, weights_fingerprint, write_model
from albert.checkpoints.sentence_transformers import SENTENCE_KEY, SentenceVectors
from albert.finetuning.evaluation import model_outputs
from albert.finetuning.model import Start, StartedModel, fit_length, start_model
from albert.finetuning.options import LearningPlan, RequestedRecipe, plan_learning
from albert.finetuning.run_record import FinetuningSettings, start_identity
from albert.finetuning.work import FinetuningTask
from albert.model.albert import PooledEncoder
from albert.runtime.devices import describe_machine
from albert.runtime.json_files import to_json
from albert.tasks.examples import Sequences
from albert.tasks.recipe import TaskRecipe
from albert.tasks.table_task import RecipeChanges
from albert.training.logging import TrainingResult
from albert.training.record import Run
from albert.training.run_folder import RunFolder

MAX_SCORED = 1000
"""Development rows."""


def start_encoder(
    start: Start, recipe: TaskRecipe, changes: RecipeChanges, settings: FinetuningSettings, examples: int
) -> tuple[StartedModel, LearningPlan]:
    """The encoder before training, and how it is trained: `changes` over `recipe`, its rate adapted to the width."""
    explicit = {name for name, value in vars(changes).items() if value is not None}
    recipe = changes.applied_to(recipe)
    recipe.check()
    started = start_model(start, None, recipe, settings.seed)
    recipe = fit_length(recipe, started.config.max_position_embeddings)
    to_fit = frozenset({"learning_rate"}) - explicit
    requested = RequestedRecipe(recipe, frozenset(vars(recipe)) - explicit, to_fit, False)
    return started, plan_learning(requested, started.config.hidden_size, examples)


def encoder_identity(started: StartedModel, dense: nn.Module | None) -> dict[str, str]:
    """Fingerprints of an encoder before training, and of the Dense modules after its pooling, if there are any."""
    identity = start_identity(started)
    if dense is not None:
        identity["Dense modules"] = weights_fingerprint(dense.state_dict())
    return identity


def pooled_encoder(started: StartedModel, dense: nn.Module | None) -> PooledEncoder:
    """The encoder with the pooling that its files name, or the mean."""
    encoder: Any = started.model
    if encoder.pooler is not None:
        encoder.pooler.requires_grad_(False)  # is not used
    vectors = started.sentence_vectors
    return PooledEncoder(encoder, "mean" if vectors is None else vectors.pooling, dense=dense)


@dataclass(kw_only=True)
class EmbeddingWork(FinetuningTask):
    """Fine-tuning an encoder for the vectors of its texts."""

    kind: str
    """The name of the task in `config.json`."""
    started: StartedModel
    folder: RunFolder
    sentence_vectors: SentenceVectors | None
    """How the trained encoder's texts become vectors; None: by their mean."""

    def vectors_of(self, sequences: Sequences, description: str) -> Float32[np.ndarray, "texts D"]:
        """The vectors of encoded texts."""
        return np.stack(model_outputs(self.module, sequences, self.compute, description))

    def config_keys(self) -> dict[str, Any]:
        """Keys of `config.json` besides the architecture."""
        max_length = self.plan.recipe.max_length
        keys: dict[str, Any] = {
            "finetuning": {"task": self.kind, "max_length": max_length},
            "max_sequence_length": max_length,
        }
        if self.sentence_vectors is not None:
            keys[SENTENCE_KEY] = to_json(self.sentence_vectors)
        return keys

    def save(self, directory: Path) -> None:
        """Write the encoder as a model directory."""
        write_model(directory, self.started.model, self.started.tokenizer_directory, extra=self.config_keys())

    def training_figures(self, training: TrainingResult) -> dict[str, Any]:
        """Updates, epochs and speed, for the report."""
        return {
            "steps": training.steps,
            "epochs": self.plan.epochs_of(training.steps),
            "seconds": training.seconds,
            "tokens_per_second": training.tokens_per_second,
        }

    def finish(self, run: Run, report: Mapping[str, Any], card: Card) -> None:
        """Write the model and the results."""
        save_model_directory(
            self.folder.model_path,
            self.started.model,
            self.started.tokenizer_directory,
            extra=self.config_keys(),
            card=card,
            replace=True,
        )
        more = {"seed": self.settings.seed, "computed_in": self.compute.precision, "machine": describe_machine()}
        run.finish({**report, **more})
