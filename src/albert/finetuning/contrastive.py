"""Contrastive learning: the mean state of an encoder (`embed`) becomes similar for texts that belong together.

The loss is the cross entropy of each first text's own second text among those of all pairs of the batch, over cosines
divided by a temperature (InfoNCE; van den Oord et al. 2018, arXiv 1807.03748; the supervised loss of SimCSE, Gao et al.
2021, arXiv 2104.08821; "MultipleNegativesRankingLoss" of sentence-transformers)."""

import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Float32, Int
from torch import Tensor
from torch.nn import functional

from albert.checkpoints.model_directory import model_card, write_model
from albert.checkpoints.sentence_transformers import SENTENCE_KEY
from albert.finetuning.data import TaskBatch, arrays_fingerprint, batch_members, pack_members
from albert.finetuning.evaluation import ComputeOptions, model_outputs
from albert.finetuning.model import Start, fit_length, start_model
from albert.finetuning.objective import TrainingSetup
from albert.finetuning.options import RequestedRecipe, plan_learning
from albert.finetuning.run import complete_run
from albert.finetuning.run_record import (
    FinetuningResult,
    FinetuningSettings,
    recorded_settings,
    settings_for_fingerprint,
    start_identity,
)
from albert.model.albert import PooledEncoder
from albert.runtime.devices import finetuning_precision, pick_device
from albert.runtime.distributed import process_group
from albert.runtime.environment import world
from albert.runtime.errors import DamagedData, InvalidConfiguration, MissingInput, UsageError, did_you_mean
from albert.runtime.json_files import fingerprint_of, to_json
from albert.runtime.random_streams import stream
from albert.tasks.examples import Example, Sequences, text_features
from albert.tasks.rows import read_table
from albert.tasks.table_task import RecipeChanges
from albert.tasks.task import TaskRecipe
from albert.text.tokenizer import Tokenizer
from albert.training.logging import TrainingResult
from albert.training.run_folder import RunFolder
from albert.training.update import Batch, Sums

TEMPERATURE = 0.05
"""As in SimCSE and sentence-transformers (a scale of 20)."""
RECIPE = TaskRecipe(learning_rate=2e-5, batch_size=64, epochs=1.0, max_length=128)
ACCURACY = "retrieval_accuracy"
_TERM = "pairs"
_MAX_SCORED = 1000
"""Development pairs."""


POOLED = {
    "mean": "the mean over the last layer's tokens",
    "cls": "the last layer's state of [CLS]",
    "max": "the maximum over the last layer's tokens",
}


@dataclass(frozen=True)
class TextPairs:
    """Pairs of texts that belong together; `counts` has the `rows` of the file and those left out."""

    texts: list[tuple[str, str]]
    counts: Mapping[str, int]


def read_text_pairs(path: Path, text: str | None, pair: str | None) -> TextPairs:
    """Read pairs from two columns of a table; rows with an empty or missing text are left out and counted."""
    table = read_table(path)
    columns = table.columns
    if text is None or pair is None:
        why = "is missing: the columns of the two texts must be named"
        raise UsageError("--text" if text is None else "--pair", why, f"{path} has {', '.join(columns)}")
    for column in (text, pair):
        if column not in columns:
            raise DamagedData(path, f"has no column {column!r}", did_you_mean(column, columns))
    first, second = ([row.text(name) if name in row.fields else "" for row in table.rows] for name in (text, pair))
    rows = list(zip(first, second, strict=True))
    texts = [row for row in rows if all(map(str.strip, row))]
    if len(texts) < 2:
        raise MissingInput(path, f"has {len(texts)} rows with text, at least 2 are needed")
    return TextPairs(texts, {**table.counts, "rows_without_text": len(rows) - len(texts)})


def hold_out_pairs(pairs: TextPairs, share: float, seed: int) -> tuple[TextPairs, TextPairs]:
    """Split pairs into training and development pairs, the latter at most 1,000, without a text in common."""
    n_pairs = len(pairs.texts)
    n_held = min(_MAX_SCORED, max(2, round(share * n_pairs)))
    held = [pairs.texts[i] for i in sorted(stream("contrastive.held_out", seed).permutation(n_pairs)[:n_held])]
    held_texts = {text for pair in held for text in pair}
    train = [pair for pair in pairs.texts if not held_texts & {*pair}]
    if len(train) < 2:
        why = f"{n_pairs} pairs are too few to hold some out for scoring"
        raise InvalidConfiguration("development set", why, "give more rows, or --dev")
    left_out = {"rows_that_share_a_text_with_dev": n_pairs - len(train) - len(held), "kept_back_for_dev": len(held)}
    return TextPairs(train, {**pairs.counts, **left_out}), TextPairs(held, {"rows": len(held)})


# --------------------------------------------------------------------------------------------------------------------
# Batches and their loss. In a batch all first texts come before all second ones. Its targets [pairs, 2] are numbers of
# texts: equal texts have the same number and are not negatives of each other.


@dataclass(frozen=True)
class EncodedPairs:
    """Encoded pairs, and the batches of a run.

    Attributes:
        sequences: all first texts, then all second ones.
        texts: the number of each text (int64 [sequences]).
    """

    sequences: Sequences
    texts: np.ndarray
    counts: Mapping[str, int]
    batch_size: int
    seed: int

    def __len__(self) -> int:
        return len(self.texts) // 2

    @property
    def fingerprint(self) -> str:
        return arrays_fingerprint(self.sequences.tokens, self.sequences.starts, self.texts)

    def micro_batches(self, step: int, rank: int, world_size: int) -> list[TaskBatch]:
        """The share of one rank of the batch of update `step`; workers cannot divide it, as all texts are compared."""
        members = batch_members(len(self), self.batch_size, self.seed, step)[rank::world_size]
        both = np.stack([members, members + len(self)], axis=1)
        return [TaskBatch(pack_members(self.sequences, both.T.ravel()), torch.from_numpy(self.texts[both]), _TERM)]


def encode_pairs(
    pairs: list[tuple[str, str]], tokenizer: Tokenizer, max_length: int, batch_size: int, seed: int
) -> EncodedPairs:
    """Encode every text as `[CLS] text [SEP]`, cut to `max_length` tokens."""
    texts = [pair[side] for side in (0, 1) for pair in pairs]
    features = text_features([Example("", "", (text,)) for text in texts], tokenizer, max_length)
    number_of = {text: number for number, text in enumerate(dict.fromkeys(texts))}
    numbers = np.array([number_of[text] for text in texts], np.int64)
    return EncodedPairs(features.sequences, numbers, features.counts, batch_size, seed)


def contrastive_loss(vectors: Float[Tensor, "texts H"], texts: Int[Tensor, " texts"], temperature: float) -> Sums:
    """Cross entropy of each first text's own second text, summed over pairs; equal texts are not negatives."""
    first, second = functional.normalize(vectors.float(), dim=1).chunk(2)
    logits = first @ second.T / temperature
    of_first, of_second = texts.chunk(2)
    equal = (of_second[:, None] == of_second) | (of_first[:, None] == of_first)
    own = torch.eye(len(logits), dtype=torch.bool, device=logits.device)
    logits = logits.masked_fill(equal & ~own, -torch.inf)
    target = torch.arange(len(logits), device=logits.device)
    loss = functional.cross_entropy(logits, target, reduction="sum")
    return Sums({_TERM: loss}, {_TERM: (logits.argmax(1) == target).sum()})


def retrieval_accuracy(vectors: Float32[np.ndarray, "texts H"], texts: np.ndarray) -> float:
    """The percentage of first texts whose nearest second text by cosine is their own, or equal to it."""
    unit = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), np.finfo(np.float32).tiny)
    first, second = np.split(unit, 2)
    _, of_second = np.split(texts, 2)
    return 100.0 * float((of_second[(first @ second.T).argmax(axis=1)] == of_second).mean())


# --------------------------------------------------------------------------------------------------------------------
# A run, with the files of every run of `albert finetune`; the result is an encoder without a head.


def finetune_contrastive(
    pairs: TextPairs,
    scored: TextPairs,
    start: Start,
    output: Path,
    changes: RecipeChanges,
    settings: FinetuningSettings,
    temperature: float = TEMPERATURE,
    announce: Callable[[Mapping[str, Any]], None] | None = None,
) -> FinetuningResult:
    """Train an encoder on pairs of texts, and score it before and after on other pairs, at most 1,000 of `scored`.

    `changes` replace values of `RECIPE`, whose rate is adapted to the model's width. For the rest see `finetune`.
    """
    if not temperature > 0:
        raise InvalidConfiguration("temperature", f"is {temperature}, it must be above 0")
    explicit = {name for name, value in vars(changes).items() if value is not None}
    recipe = changes.applied_to(RECIPE)
    recipe.check()
    run, device = RunFolder(output), pick_device(settings.device, world().local_rank)
    precision = settings.precision or finetuning_precision(device)
    compute = ComputeOptions(device, precision, settings.micro_batch_tokens)
    with process_group(device) as ranks:
        started = start_model(start, None, recipe, settings.seed)
        recipe = fit_length(recipe, started.config.max_position_embeddings)
        to_fit = frozenset({"learning_rate"}) - explicit
        requested = RequestedRecipe(recipe, frozenset(vars(recipe)) - explicit, to_fit, False)
        plan = plan_learning(requested, started.config.hidden_size, len(pairs.texts))
        recipe = plan.recipe
        if recipe.batch_size < 2 * ranks.size:
            raise InvalidConfiguration("batch_size", f"{recipe.batch_size} leaves a process fewer than 2 pairs")
        encoding = (started.tokenizer, recipe.max_length, recipe.batch_size, settings.seed)
        data = encode_pairs(pairs.texts, *encoding)
        dev = encode_pairs(scored.texts[:_MAX_SCORED], *encoding)
        record = {
            "task": "contrastive",
            "start": started.source,
            **({"changes": dict(started.changes)} if started.changes else {}),
            "recipe": to_json(recipe),
            "temperature": temperature,
            "settings": recorded_settings(settings),
        }
        identity = {
            "recipe": fingerprint_of({**record, "settings": settings_for_fingerprint(settings)}),
            "training data": data.fingerprint,
            "development set": dev.fingerprint,
            **start_identity(started),
        }
        encoder: Any = started.model
        if encoder.pooler is not None:
            encoder.pooler.requires_grad_(False)  # is not used
        vectors = started.sentence_vectors
        pooling = "mean" if vectors is None else vectors.pooling
        model = PooledEncoder(encoder, pooling).to(device).train()
        extra: dict[str, Any] = {
            "finetuning": {"task": "contrastive", "max_length": recipe.max_length},
            "max_sequence_length": recipe.max_length,
        }
        if vectors is not None:
            extra[SENTENCE_KEY] = to_json(replace(vectors, max_length=recipe.max_length))
        before: dict[str, float] = {}

        def scores() -> dict[str, float]:
            vectors = np.stack(model_outputs(model, dev.sequences, compute, "Embedding"))
            return {ACCURACY: retrieval_accuracy(vectors, dev.texts)}

        def loss(model: torch.nn.Module, batch: Batch) -> Sums:
            assert isinstance(batch, TaskBatch)
            return contrastive_loss(model(batch.packed), batch.targets.T.reshape(-1), temperature)

        def prepare() -> TrainingSetup:
            before.update(scores())
            return TrainingSetup(model, data, loss)

        def report(_: TrainingSetup, training: TrainingResult) -> tuple[dict[str, Any], dict[str, Any]]:
            started_scoring = time.perf_counter()
            after, n_trained = scores(), training.steps * recipe.batch_size
            values = {
                "scores": after,
                "before": before,
                "baseline": {ACCURACY: 100.0 / len(dev)},
                "training": {
                    **pairs.counts,
                    "examples": len(data),
                    **data.counts,
                    "steps": training.steps,
                    "epochs": n_trained / len(data),
                    "seconds": training.seconds,
                    "tokens_per_second": training.tokens_per_second,
                },
                "evaluation": {
                    **scored.counts,
                    "rows_not_scored": len(scored.texts) - len(dev),
                    "examples": len(dev),
                    **dev.counts,
                    "seconds": time.perf_counter() - started_scoring,
                },
                "notes": list(started.notes),
            }
            card = model_card(
                name=output.name,
                location="path/to/this/directory",
                architecture="AlbertModel",
                description=f"Vectors of texts: {POOLED[pooling]}, compared by cosine "
                f"(`albert.load(...).embed`), trained on {len(data):,} pairs of texts, starting from {started.source}.",
                recipe={**to_json(recipe), "temperature": temperature},
                scores={f"{ACCURACY} among {len(dev):,} pairs": after[ACCURACY], "the same before": before[ACCURACY]},
            )
            return values, {"model": encoder, "extra": extra, "card": card}

        with run.locked() if ranks.is_first else nullcontext():  # after all input was read: bad input leaves no folder
            return complete_run(
                run,
                ranks,
                started,
                plan,
                settings,
                compute,
                record,
                identity,
                prepare=prepare,
                evaluate=scores,
                save_model=lambda path: write_model(path, encoder, started.tokenizer_directory, extra=extra),
                report=report,
                announce=announce,
                description="Contrastive learning",
            )
