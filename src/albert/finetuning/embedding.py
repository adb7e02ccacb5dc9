"""What runs share whose result is an encoder without a head: texts become vectors (`embed`)."""

import math
import time
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Float32
from torch import nn

from albert.checkpoints.card import Card
from albert.checkpoints.model_directory import save_model_directory, weights_fingerprint, write_model
from albert.checkpoints.sentence_transformers import POOLED, SENTENCE_KEY, SentenceVectors, open_dense
from albert.finetuning.evaluation import ComputeOptions, model_outputs
from albert.finetuning.fill_in import Recipe, fill_in_vectors, read_record, recipe_record
from albert.finetuning.initial_model import InitialModel, Start, beginning_of, initial_model, start_inputs
from albert.finetuning.task_training import Announce, FinetuningResult, FinetuningTask
from albert.model.albert import PooledEncoder
from albert.recipes.finetuning import FinetuningSettings, RecipeChanges, TaskRecipe
from albert.report.advice import AT_RANDOM, FEW_ROWS
from albert.runtime.devices import default_precision, describe_machine
from albert.runtime.json_files import Journal, to_json
from albert.runtime.words import counted
from albert.tasks.examples import Sequences
from albert.training.logging import TrainingResult
from albert.training.run import RunWork
from albert.training.run_folder import RunFolder
from albert.training.same_run import FINETUNING_MAY_CHANGE, Input, Run

MAX_SCORED = 1000
"""Development rows."""
FEW_UPDATES = 10
"""After fewer a model has hardly changed."""


# --------------------------------------------------------------------------------------------------------------------
# The encoder before training.


@dataclass(frozen=True, kw_only=True)
class OpenedEncoder:
    """An encoder before training, and how it is trained; nothing is left open."""

    initial: InitialModel
    dense: nn.Module | None
    """The Dense modules after its pooling."""
    recipe: Recipe
    compute: ComputeOptions
    asked_batch_size: int

    @property
    def vectors(self) -> SentenceVectors | None:
        """How its texts become vectors, if its files say so."""
        return self.initial.sentence_vectors

    def record(self, kind: str, **more: Any) -> dict[str, Any]:
        """The content of `recipe.json`."""
        return {
            "task": kind,
            "start": self.initial.source,
            **({"changes": dict(self.initial.changes)} if self.initial.changes else {}),
            **recipe_record(self.recipe),
            **more,
        }

    def inputs(self) -> dict[str, Input]:
        """The encoder before training, its tokenizer, and the Dense modules after its pooling, if there are any."""
        inputs = start_inputs(self.initial)
        if self.dense is not None:
            inputs["Dense modules"] = Input(self.initial.source, weights_fingerprint(self.dense.state_dict()))
        return inputs

    def pooled(self) -> PooledEncoder:
        """The encoder with the pooling that its files name, or the mean."""
        encoder: Any = self.initial.model
        if encoder.pooler is not None:
            encoder.pooler.requires_grad_(False)  # is not used
        return PooledEncoder(encoder, "mean" if self.vectors is None else self.vectors.pooling, dense=self.dense)


def open_encoder(
    start: Start,
    usual: TaskRecipe,
    changes: RecipeChanges,
    settings: FinetuningSettings,
    examples: int,
    kind: str,
    earlier: RunFolder,
    device: torch.device,
) -> OpenedEncoder:
    """The encoder before training, and its recipe: the usual one with changes."""
    record = read_record(earlier, kind)
    precision = default_precision(device)
    recipe = fill_in_vectors(usual, beginning_of(start), changes, settings, record, examples, precision)
    initial = initial_model(start, None, recipe.values, settings.seed)
    return OpenedEncoder(
        initial=initial,
        dense=open_dense(initial.sentence_vectors),
        recipe=recipe,
        compute=ComputeOptions(device, recipe.precision, settings.micro_batch_tokens),
        asked_batch_size=changes.batch_size or usual.batch_size,
    )


# --------------------------------------------------------------------------------------------------------------------
# Training and writing.


@dataclass(kw_only=True)
class EmbeddingTraining(FinetuningTask):
    """Fine-tuning an encoder for the vectors of its texts."""

    kind: str
    """The name of the task in `config.json`."""
    initial: InitialModel
    sentence_vectors: SentenceVectors | None
    """How the trained encoder's texts become vectors; None: by their mean."""

    def vectors_of(self, sequences: Sequences, description: str) -> Float32[np.ndarray, "texts D"]:
        """The vectors of encoded texts."""
        return np.stack(model_outputs(self.module, sequences, self.compute, description))

    def config_keys(self) -> dict[str, Any]:
        """Keys of `config.json` besides the architecture."""
        max_length = self.recipe.values.max_length
        keys: dict[str, Any] = {
            "finetuning": {"task": self.kind, "max_length": max_length},
            "max_sequence_length": max_length,
        }
        if self.sentence_vectors is not None:
            keys[SENTENCE_KEY] = to_json(self.sentence_vectors)
        return keys

    def save(self, directory: Path) -> None:
        """Write the encoder as a model directory."""
        write_model(directory, self.initial.model, self.initial.tokenizer_directory, extra=self.config_keys())


@dataclass(kw_only=True)
class EmbeddingRun(RunWork[FinetuningResult]):
    """A run whose result is an encoder, opened; it is scored before and after."""

    MAY_CHANGE = FINETUNING_MAY_CHANGE
    WHAT: ClassVar[str]
    """What the examples are, in the plural."""

    encoder: OpenedEncoder
    announce: Announce | None
    task: EmbeddingTraining = field(init=False, repr=False)
    before: Mapping[str, float] = field(init=False, repr=False)

    def begin(self, run: Run, task: EmbeddingTraining) -> EmbeddingTraining:
        """The last part of `set_up`: score the encoder as it is."""
        self.task = task
        if self.ranks.is_first:
            initial = task.initial
            journal = Journal(run.folder.journal_path)
            journal.write("model", step=0, notes=[note for note in initial.notes if note not in initial.changed])
            journal.close()
        self.before = task.evaluate()
        task.announce(self.announce, self.ranks)
        return task

    def score(self, training: TrainingResult) -> dict[str, Any]:
        """The scores before and after, and what was learned from."""
        if not self.ranks.is_first:
            return {}
        began = time.perf_counter()
        after = self.task.evaluate()
        seconds = time.perf_counter() - began
        figures = {
            "steps": training.steps,
            "epochs": self.encoder.recipe.epochs_of(training.steps),
            "seconds": training.seconds,
            "tokens_per_second": training.tokens_per_second,
        }
        return {
            "scores": after,
            "before": self.before,
            "baseline": self.baseline(),
            "baseline_name": AT_RANDOM,
            "training": {**self.training_counts(), **figures},
            "evaluation": {**self.evaluation_counts(), "seconds": seconds},
            "notes": [*self.encoder.initial.changed, *self._notes_on_size(training.steps), *self.notes()],
            "seed": self.encoder.recipe.settings.seed,
            "computed_in": self.encoder.compute.precision,
            "machine": describe_machine(),
        }

    def write(self, folder: RunFolder, report: Mapping[str, Any]) -> None:
        """The encoder and its card."""
        initial = self.encoder.initial
        module = self.task.module
        assert isinstance(module, PooledEncoder)
        described = f"Vectors of texts: {POOLED[module.pooling]}, compared by cosine (`albert.load(...).embed`), "
        card = self.card(report)
        card = replace(
            card,
            name=folder.path.name,
            base=replace(initial.base, languages=()),
            base_relation="finetune",
            description=f"{described}{card.description}, starting from {initial.source}.",
        )
        save_model_directory(
            folder.model_path,
            initial.model,
            initial.tokenizer_directory,
            extra=self.task.config_keys(),
            card=card,
            replace=True,
        )

    def result(self, folder: RunFolder, report: Mapping[str, Any], already_complete: bool) -> FinetuningResult:
        return FinetuningResult(report["scores"], report, folder.model_path, already_complete)

    def _notes_on_size(self, updates: int) -> list[str]:
        """Lines about a batch that was larger than the rows, about few updates, and about few scored rows."""
        recipe = self.encoder.recipe
        batch_size = recipe.values.batch_size
        notes = []
        if batch_size < self.encoder.asked_batch_size:
            rows = counted(recipe.examples, self.WHAT)
            notes.append(f"batch size {batch_size:,}, not {self.encoder.asked_batch_size:,}: there are {rows}")
        if updates < FEW_UPDATES:
            remedy = f"epochs={math.ceil(FEW_UPDATES * batch_size / recipe.examples)}"
            if recipe.values.steps is not None:
                remedy = f"steps={FEW_UPDATES}"
            notes.append(f"{counted(updates, 'updates')}: a model hardly learns from so few, try {remedy}")
        scored = self.evaluation_counts()["examples"]
        if scored < FEW_ROWS:
            few = f"the development set has {counted(scored, self.WHAT)}: scores on it prove nothing"
            notes.append(f"{few}; some hundred {self.WHAT} are needed")
        return notes

    @abstractmethod
    def training_counts(self) -> Mapping[str, Any]:
        """What was trained on, and what was left out."""

    @abstractmethod
    def evaluation_counts(self) -> Mapping[str, Any]:
        """What was scored, and what was left out."""

    @abstractmethod
    def baseline(self) -> Mapping[str, float] | None:
        """The scores of a trivial answer; None if there is none."""

    @abstractmethod
    def notes(self) -> list[str]:
        """What a user should know of the run."""

    @abstractmethod
    def card(self, report: Mapping[str, Any]) -> Card:
        """The card with what is special to the kind: recipe, scores, and the middle of its description."""
