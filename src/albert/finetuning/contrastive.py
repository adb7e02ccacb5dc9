"""Contrastive learning: an encoder whose mean states (`embed`) lie close for texts that belong together.

Each first text of a batch is to find its second one among the second texts of all pairs: cross entropy over cosines
divided by a temperature (InfoNCE; van den Oord et al. 2018, arXiv 1807.03748; the supervised loss of SimCSE, Gao et al.
2021, arXiv 2104.08821; "MultipleNegativesRankingLoss" of sentence-transformers)."""

import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Float32, Int
from torch import Tensor
from torch.nn import functional

from albert.checkpoints.model_directory import ModelCard, write_model
from albert.finetuning.data import TaskBatch, arrays_fingerprint, batch_members, pack_members
from albert.finetuning.evaluation import ComputeOptions, model_outputs
from albert.finetuning.model import Start, fit_length, start_model
from albert.finetuning.objective import TrainingSetup
from albert.finetuning.options import RequestedRecipe, plan_learning
from albert.finetuning.run import train_model
from albert.finetuning.run_record import (
    FinetuningResult,
    FinetuningSettings,
    begin_run,
    decisive_settings,
    finish_run,
    recorded_settings,
    result_of_first_rank,
    start_identity,
)
from albert.model.albert import PooledEncoder
from albert.runtime.devices import describe_machine, finetuning_precision, pick_device
from albert.runtime.distributed import process_group
from albert.runtime.environment import world
from albert.runtime.errors import InvalidConfiguration, MissingInput, UsageError
from albert.runtime.json_files import fingerprint_of, to_json
from albert.runtime.random_streams import stream
from albert.tasks.custom import read_table
from albert.tasks.examples import Example, Sequences, text_features
from albert.tasks.table_task import RecipeChanges, columns_of
from albert.tasks.task import TaskRecipe
from albert.text.tokenizer import Tokenizer
from albert.training.run_folder import RunFolder
from albert.training.update import Batch, Sums

TEMPERATURE = 0.05
"""Of the cosines in the loss, as in SimCSE and sentence-transformers (a scale of 20)."""
RECIPE = TaskRecipe(learning_rate=2e-5, batch_size=64, epochs=1.0, max_length=128)
ACCURACY = "retrieval_accuracy"
_TERM = "pairs"
_MOST_SCORED = 1000
"""Development pairs among which each first text looks for its second."""


@dataclass(frozen=True)
class TextPairs:
    """Pairs of texts that belong together; `counts` has the `rows` of the file and those left out."""

    firsts: list[str]
    seconds: list[str]
    counts: Mapping[str, int]

    def __len__(self) -> int:
        return len(self.firsts)

    def select(self, members: np.ndarray, counts: Mapping[str, int]) -> "TextPairs":
        """Some of the pairs."""
        return TextPairs([self.firsts[i] for i in members], [self.seconds[i] for i in members], counts)


def read_text_pairs(path: Path, text: str | None, pair: str | None) -> TextPairs:
    """Read pairs from two columns of a table; rows with an empty text are left out and counted.

    Raises:
        UsageError: a column is not named.
        MissingInput, DamagedData: see `read_table`; or fewer than two rows hold text, or a column is missing.
    """
    rows = read_table(path)
    if text is None or pair is None:
        why = "is missing: the columns of the two texts must be named"
        raise UsageError("--text" if text is None else "--pair", why, f"{path} has {', '.join(columns_of(rows))}")
    firsts, seconds = ([row.text(column) for row in rows.rows] for column in (text, pair))
    full = np.flatnonzero([bool(a.strip() and b.strip()) for a, b in zip(firsts, seconds, strict=True)])
    if len(full) < 2:
        raise MissingInput(path, f"has {len(full)} rows with text, at least 2 are needed")
    counts = {**rows.counts, "rows_without_text": len(firsts) - len(full)}
    return TextPairs(firsts, seconds, counts).select(full, counts)


def hold_out_pairs(pairs: TextPairs, share: float, seed: int) -> tuple[TextPairs, TextPairs]:
    """Pairs to learn from and pairs to score, at most 1,000; rows with a text in common stay on one side.

    Raises:
        InvalidConfiguration: too few pairs.
    """
    wanted = min(_MOST_SCORED, max(2, round(share * len(pairs))))
    order = stream("contrastive.held_out", seed).permutation(len(pairs))
    held = set(order[:wanted].tolist())
    texts = {each for i in held for each in (pairs.firsts[i], pairs.seconds[i])}
    learnt = [i for i in range(len(pairs)) if not texts & {pairs.firsts[i], pairs.seconds[i]}]
    if len(learnt) < 2:
        why = f"{len(pairs)} pairs are too few to keep some back for scoring"
        raise InvalidConfiguration("development set", why, "give more rows, or --dev")
    left_out = {"rows_that_share_a_text_with_dev": len(pairs) - len(learnt) - len(held), "kept_back_for_dev": len(held)}
    counts = {**pairs.counts, **left_out}
    return pairs.select(np.array(learnt), counts), pairs.select(np.array(sorted(held)), {"rows": len(held)})


# --------------------------------------------------------------------------------------------------------------------
# Batches and their loss. All first texts of a batch come before all second ones; its targets [pairs, 2] say by number
# which texts are equal: an equal text is no wrong answer.


@dataclass(frozen=True)
class EncodedPairs:
    """Pairs as the model reads them, and the batches of a run; a process compares the pairs of its share."""

    sequences: Sequences
    """All first texts, then all second ones."""
    texts: np.ndarray
    """Of each the number of its text (int64)."""
    counts: Mapping[str, int]
    batch_size: int
    seed: int

    def __len__(self) -> int:
        return len(self.texts) // 2

    @property
    def fingerprint(self) -> str:
        """Of all that is learnt from them."""
        return arrays_fingerprint(self.sequences.tokens, self.sequences.starts, self.texts)

    def micro_batches(self, step: int, rank: int, world_size: int) -> list[TaskBatch]:
        """One process's share of the batch of update number `step`."""
        members = batch_members(len(self), self.batch_size, self.seed, step)[rank::world_size]
        both = np.stack([members, members + len(self)], axis=1)
        # Every text is compared with all others of the batch, so that workers cannot share it.
        return [TaskBatch(pack_members(self.sequences, both.T.ravel()), torch.from_numpy(self.texts[both]), _TERM)]


def encode_pairs(pairs: TextPairs, tokenizer: Tokenizer, max_length: int, batch_size: int, seed: int) -> EncodedPairs:
    """Every text as `[CLS] text [SEP]`, cut to `max_length` tokens."""
    texts = [*pairs.firsts, *pairs.seconds]
    features = text_features([Example("", "", (text,)) for text in texts], tokenizer, max_length)
    numbers = {text: number for number, text in enumerate(dict.fromkeys(texts))}
    known = np.array([numbers[text] for text in texts], np.int64)
    return EncodedPairs(features.sequences, known, features.counts, batch_size, seed)


def contrastive_loss(vectors: Float[Tensor, "texts H"], texts: Int[Tensor, " texts"], temperature: float) -> Sums:
    """Cross entropy of each first text's own second text, summed over pairs; pairs with an equal text do not count as
    wrong answers to each other."""
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
    """How often, in percent, the second text closest to a first one by cosine is its own, or one equal to it."""
    unit = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), np.finfo(np.float32).tiny)
    first, second = np.split(unit, 2)
    _, of_second = np.split(texts, 2)
    return 100.0 * float((of_second[(first @ second.T).argmax(axis=1)] == of_second).mean())


# --------------------------------------------------------------------------------------------------------------------
# A run, in the folder that other runs of `albert finetune` have; the result is an encoder without a head.


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
    """Teach an encoder that the texts of a pair belong together, and score it on other pairs before and after.

    Args:
        pairs, scored: to learn from, and to score; of the latter at most 1,000 are looked at.
        changes: what of `RECIPE` is to be another; the rate is fitted to the model's width.
        announce: see `albert.finetuning.run.finetune`.

    Raises:
        InvalidConfiguration: a setting that cannot work.
        MissingInput, DamagedData: the model cannot be read.
        CannotCreate: `output` holds another run.
        Diverged, Stopped: see `training.loop.Training`.
    """
    if not temperature > 0:
        raise InvalidConfiguration("temperature", f"is {temperature}, it must be above 0")
    said = {name for name, value in vars(changes).items() if value is not None}
    recipe = changes.applied_to(RECIPE)
    recipe.check()
    run, device = RunFolder(output), pick_device(settings.device, world().local_rank)
    precision = settings.precision or finetuning_precision(device)
    compute = ComputeOptions(device, precision, settings.micro_batch_tokens)
    with process_group(device) as ranks, ExitStack() as held:
        started = start_model(start, None, recipe, settings.seed)
        recipe = fit_length(recipe, started.config.max_position_embeddings)
        basis = RequestedRecipe(recipe, frozenset(vars(recipe)) - said, frozenset({"learning_rate"}) - said, False)
        plan = plan_learning(basis, started.config.hidden_size, len(pairs))
        recipe = plan.recipe
        if recipe.batch_size < 2 * ranks.size:
            raise InvalidConfiguration("batch_size", f"{recipe.batch_size} leaves a process fewer than 2 pairs")
        data = encode_pairs(pairs, started.tokenizer, recipe.max_length, recipe.batch_size, settings.seed)
        few = scored.select(np.arange(min(len(scored), _MOST_SCORED)), scored.counts)
        dev = encode_pairs(few, started.tokenizer, recipe.max_length, recipe.batch_size, settings.seed)
        record = {
            "task": "contrastive",
            "start": started.source,
            **({"changes": dict(started.changes)} if started.changes else {}),
            "recipe": to_json(recipe),
            "temperature": temperature,
            "settings": recorded_settings(settings),
        }
        identity = {
            "recipe": fingerprint_of({**record, "settings": decisive_settings(settings)}),
            "training data": data.fingerprint,
            "development set": dev.fingerprint,
            **start_identity(started),
        }
        if ranks.is_first:  # everything was read: bad input leaves no directory behind
            held.enter_context(run.locked())
        finished = begin_run(run, record, identity, ranks)
        if finished is not None:
            return finished
        encoder: Any = started.model
        if encoder.pooler is not None:
            encoder.pooler.requires_grad_(False)  # nothing asks it
        model = PooledEncoder(encoder, "mean").to(device).train()
        extra = {
            "finetuning": {"task": "contrastive", "max_length": recipe.max_length},
            "max_sequence_length": recipe.max_length,
        }

        def scores() -> dict[str, float]:
            vectors = np.stack(model_outputs(model, dev.sequences, compute, "Embedding"))
            return {ACCURACY: retrieval_accuracy(vectors, dev.texts)}

        def loss(model: torch.nn.Module, batch: Batch) -> Sums:
            assert isinstance(batch, TaskBatch)
            return contrastive_loss(model(batch.packed), batch.targets.T.reshape(-1), temperature)

        before = scores()
        result = train_model(
            TrainingSetup(model, data, loss),
            plan,
            settings,
            compute,
            run,
            announce=announce,
            identity=identity,
            save_model=lambda place: write_model(place, encoder, started.tokenizer_directory, extra=extra),
            evaluate=scores,
            description="Contrastive learning",
        )
        if not ranks.is_first:
            return result_of_first_rank(run, ranks)
        started_scoring = time.perf_counter()
        after, learnt = scores(), result.steps * recipe.batch_size
        report = {
            **record,
            "scores": after,
            "before": before,
            "baseline": {ACCURACY: 100.0 / len(dev)},
            "training": {
                **pairs.counts,
                "examples": len(data),
                **data.counts,
                "steps": result.steps,
                "epochs": learnt / len(data),
                "seconds": result.seconds,
                "tokens_per_second": result.tokens_per_second,
            },
            "evaluation": {"examples": len(dev), "seconds": time.perf_counter() - started_scoring},
            "notes": list(started.notes),
            "seed": settings.seed,
            "computed_in": precision,
            "machine": describe_machine(),
            "identity": identity,
        }
        card = ModelCard(
            name=output.name,
            location="path/to/this/directory",
            architecture="AlbertModel",
            description="Vectors of texts: the mean over the last layer's tokens, compared by cosine "
            f"(`albert.load(...).embed`), learnt from {len(data):,} pairs of texts, starting from {started.source}.",
            recipe={**to_json(recipe), "temperature": temperature},
            scores={f"{ACCURACY} among {len(dev):,} pairs": after[ACCURACY], "the same before": before[ACCURACY]},
        )
        return finish_run(run, ranks, started, encoder, report, extra=extra, card=card.render())
