"""Contrastive learning: the mean state of an encoder (`embed`) becomes similar for texts that belong together.

The loss is the cross entropy of each first text's own second text among those of all pairs of the batch, over cosines
divided by a temperature (InfoNCE; van den Oord et al. 2018, arXiv 1807.03748; the supervised loss of SimCSE, Gao et al.
2021, arXiv 2104.08821; "MultipleNegativesRankingLoss" of sentence-transformers). Rows may hold hard negatives, too:
texts that do not belong to the first one although they look like it. They are candidates for all first texts of the
batch."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Float32, Int
from torch import Tensor, nn
from torch.nn import functional

from albert.checkpoints.card import Card
from albert.finetuning.batches import TaskBatch, arrays_fingerprint, batch_members, pack_members
from albert.finetuning.embedding import MAX_SCORED, EmbeddingRun, EmbeddingTraining, open_encoder
from albert.finetuning.initial_model import Start
from albert.finetuning.task_training import Announce, FinetuningResult
from albert.recipes.finetuning import FinetuningSettings, RecipeChanges, TaskRecipe, recipe_of_vectors
from albert.report.advice import AT_RANDOM
from albert.runtime.environment import Ranks
from albert.runtime.errors import DamagedData, InvalidConfiguration, MissingInput, UsageError, did_you_mean
from albert.runtime.random_streams import stream
from albert.runtime.words import counted, plain
from albert.tables.rows import read_table
from albert.tasks.examples import Example, Sequences, text_features
from albert.text.tokenizer import Tokenizer
from albert.training.metric_logger import require_logger
from albert.training.run import run_training
from albert.training.run_folder import RunFolder
from albert.training.same_run import Input, Run
from albert.training.update import Batch, Sums

TEMPERATURE = 0.05
"""As in SimCSE and sentence-transformers (a scale of 20)."""
RECIPE = TaskRecipe(learning_rate=2e-5, batch_size=64, epochs=1.0, max_length=128)
ACCURACY = "retrieval_accuracy"
KIND = "contrastive"
"""The name of the task in recipe.json and config.json."""
_TERM = "pairs"


@dataclass(frozen=True)
class TextPairs:
    """Pairs of texts that belong together, each with its hard negatives, of which some or all may be empty.

    Attributes:
        texts: for each row the first text, the second one, and its negatives; all rows have equally many.
        counts: the `rows` of the file and those left out.
        negatives: the columns of the negatives.
    """

    texts: list[tuple[str, ...]]
    counts: Mapping[str, int]
    negatives: tuple[str, ...] = ()


_NEGATIVE_COLUMN = re.compile(r"negative(_\d+)?")


def read_text_pairs(
    path: Path, text: str | None, pair: str | None, negatives: tuple[str, ...] | None = None
) -> TextPairs:
    """Read pairs, and perhaps their hard negatives, from the columns of a table.

    Rows with an empty or missing text are left out and counted. Rows without a negative are kept.

    Args:
        negatives: the columns of the hard negatives; None: `negative`, `negative_1` and so on, if there are any.
    """
    table = read_table(path)
    columns = table.columns
    if text is None or pair is None:
        why = "is missing: the columns of the two texts must be named"
        raise UsageError("--text" if text is None else "--pair", why, f"{path} has {', '.join(columns)}")
    if negatives is None:
        negatives = tuple(
            column for column in columns if _NEGATIVE_COLUMN.fullmatch(column) and column not in (text, pair)
        )
    used = (text, pair, *negatives)
    for column in used:
        if column not in columns:
            raise DamagedData(path, f"has no column {column!r}", did_you_mean(column, columns))
    for column in negatives:
        if used.count(column) > 1:
            raise UsageError("--negative", f"names the column {column!r}, which is used already", "name another one")
    rows = [tuple(row.text(name) if name in row.fields else "" for name in used) for row in table.rows]
    texts = [row for row in rows if row[0].strip() and row[1].strip()]
    if len(texts) < 2:
        raise MissingInput(path, f"has {counted(len(texts), 'rows')} with text, at least 2 are needed")
    counts = {**table.counts, "rows_without_text": len(rows) - len(texts)}
    if negatives:
        counts["rows_without_negative"] = sum(not any(map(str.strip, row[2:])) for row in texts)
    return TextPairs(texts, counts, negatives)


def hold_out_pairs(pairs: TextPairs, share: float, seed: int) -> tuple[TextPairs, TextPairs]:
    """Split pairs into training and development pairs, the latter at most 1,000.

    They have no first or second text in common; a negative may occur in both.
    """
    n_pairs = len(pairs.texts)
    n_held = min(MAX_SCORED, max(2, round(share * n_pairs)))
    held = [pairs.texts[i] for i in sorted(stream("contrastive.held_out", seed).permutation(n_pairs)[:n_held])]
    held_texts = {text for row in held for text in row[:2]}
    train = [row for row in pairs.texts if not held_texts & {*row[:2]}]
    if len(train) < 2:
        firsts, seconds = (len(set(column)) for column in zip(*(row[:2] for row in pairs.texts), strict=True))
        why = f"{counted(n_pairs, 'pairs')} {'is' if n_pairs == 1 else 'are'} too few to hold some out for scoring"
        if min(firsts, seconds) < n_pairs:
            why = f"{n_pairs:,} pairs have {firsts:,} different first texts and {seconds:,} second ones: without those "
            why += f"that share a text with the {len(held):,} held out for scoring, {len(train):,} remain"
        raise InvalidConfiguration("development set", why, "give pairs of more different texts, or --dev")
    left_out = {"rows_that_share_a_text_with_dev": n_pairs - len(train) - len(held), "kept_back_for_dev": len(held)}
    return replace(pairs, texts=train, counts={**pairs.counts, **left_out}), replace(
        pairs, texts=held, counts={"rows": len(held)}
    )


# --------------------------------------------------------------------------------------------------------------------
# Batches and their loss. In a batch all first texts come before all second ones, and these before the negatives. Its
# targets [pairs, columns] are numbers of texts, -1 for a negative that a row lacks. Texts that belong to the same first
# text are not negatives of each other.


@dataclass(frozen=True)
class EncodedPairs:
    """Encoded pairs, and the batches of a run.

    Attributes:
        sequences: all first texts, then all second ones, then the negatives of each column.
        rows: the sequence of each text, int64 [pairs, columns]; -1 for a negative that a row lacks.
        texts: the number of each text, likewise; equal texts have the same one.
    """

    sequences: Sequences
    rows: np.ndarray
    texts: np.ndarray
    counts: Mapping[str, int]
    batch_size: int
    seed: int

    def __len__(self) -> int:
        return len(self.texts)

    @property
    def candidates(self) -> int:
        """The number of second texts and negatives."""
        return int((self.rows[:, 1:] >= 0).sum())

    @property
    def fingerprint(self) -> str:
        return arrays_fingerprint(self.sequences.tokens, self.sequences.starts, self.texts.T.ravel())

    def micro_batches(self, step: int, rank: int, world_size: int) -> list[TaskBatch]:
        """The share of one rank of the batch of update `step`; workers cannot divide it, as all texts are compared."""
        members = batch_members(len(self), self.batch_size, self.seed, step)[rank::world_size]
        rows = self.rows[members].T.ravel()
        packed = pack_members(self.sequences, rows[rows >= 0])
        return [TaskBatch(packed, torch.from_numpy(self.texts[members]), _TERM)]


def encode_pairs(
    pairs: list[tuple[str, ...]],
    tokenizer: Tokenizer,
    max_length: int,
    batch_size: int,
    seed: int,
    lower_case: bool = False,
) -> EncodedPairs:
    """Encode every text as `[CLS] text [SEP]`, cut to `max_length` tokens."""
    columns = [[text.lower() if lower_case else text for text in column] for column in zip(*pairs, strict=True)]
    joined = [text for column in columns for text in column]
    is_given = np.array([bool(text.strip()) for text in joined])
    texts = [text for text, given in zip(joined, is_given, strict=True) if given]
    features = text_features([Example("", "", (text,)) for text in texts], tokenizer, max_length)
    number_of = {text: number for number, text in enumerate(dict.fromkeys(texts))}
    numbers = np.full(len(joined), -1, np.int64)
    numbers[is_given] = [number_of[text] for text in texts]
    rows = np.full(len(joined), -1, np.int64)
    rows[is_given] = np.arange(len(texts))
    by_pair = (len(columns), len(pairs))
    return EncodedPairs(
        features.sequences,
        np.ascontiguousarray(rows.reshape(by_pair).T),
        np.ascontiguousarray(numbers.reshape(by_pair).T),
        features.counts,
        batch_size,
        seed,
    )


def contrastive_loss(
    vectors: Float[Tensor, "texts D"], texts: Int[Tensor, "pairs columns"], temperature: float
) -> Sums:
    """Cross entropy of each first text's own second text among all second texts and negatives, summed over pairs.

    Another row's second text is no negative if it belongs to an equal first text, or equals the own second text.

    Args:
        vectors: of the first texts, the second texts, and the negatives that there are, by columns.
        texts: their numbers; -1 for a negative that a row lacks.
    """
    unit = functional.normalize(vectors.float(), dim=1)
    n_pairs = len(texts)
    logits = unit[:n_pairs] @ unit[n_pairs:].T / temperature
    candidates = texts[:, 1:].T.reshape(-1)
    candidates = candidates[candidates >= 0]
    same_first = (texts[:, :1] == texts[:, 0]).float()
    is_second = (texts[:, 1:2] == candidates).float()
    belongs = same_first @ is_second > 0
    target = torch.arange(n_pairs, device=logits.device)
    belongs[target, target] = False  # the own one, which is the target
    logits = logits.masked_fill(belongs, -torch.inf)
    loss = functional.cross_entropy(logits, target, reduction="sum")
    return Sums({_TERM: loss}, {_TERM: (logits.argmax(1) == target).sum()})


def retrieval_accuracy(vectors: Float32[np.ndarray, "texts D"], texts: np.ndarray) -> float:
    """The percentage of first texts whose nearest candidate by cosine is their own second text, or equal to it.

    Candidates are all second texts and negatives; arguments as of `contrastive_loss`.
    """
    unit = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), np.finfo(np.float32).tiny)
    n_pairs = len(texts)
    candidates = texts[:, 1:].T.ravel()
    candidates = candidates[candidates >= 0]
    nearest = (unit[:n_pairs] @ unit[n_pairs:].T).argmax(axis=1)
    return 100.0 * float((candidates[nearest] == texts[:, 1]).mean())


# --------------------------------------------------------------------------------------------------------------------
# A run, with the files of every run of `albert finetune`; the result is an encoder without a head.


@dataclass(kw_only=True)
class PairTraining(EmbeddingTraining):
    """Training on pairs of texts, scored on the pairs `scored`."""

    scored: EncodedPairs
    temperature: float

    def loss(self, model: nn.Module, batch: Batch) -> Sums:
        assert isinstance(batch, TaskBatch)
        return contrastive_loss(model(batch.packed), batch.targets, self.temperature)

    def evaluate(self) -> dict[str, float]:
        vectors = self.vectors_of(self.scored.sequences, "Embedding")
        return {ACCURACY: retrieval_accuracy(vectors, self.scored.texts)}


def finetune_contrastive(
    pairs: TextPairs,
    scored: TextPairs,
    start: Start,
    output: Path,
    changes: RecipeChanges,
    settings: FinetuningSettings,
    temperature: float = TEMPERATURE,
    announce: Announce | None = None,
    replace: bool = False,
    read_from: Sequence[Path] = (),
) -> FinetuningResult:
    """Train an encoder on pairs of texts, and score it before and after on other pairs, at most 1,000 of `scored`.

    `changes` replace values of `RECIPE`, whose rate is adapted to the model's width. For the rest see `finetune`.
    """
    if not temperature > 0:
        raise InvalidConfiguration("temperature", f"is {plain(temperature)}, a number above 0 is needed")
    require_logger(settings.log)

    def open_work(earlier: RunFolder, device: torch.device, ranks: Ranks) -> PairRun:
        encoder = open_encoder(start, RECIPE, changes, settings, len(pairs.texts), KIND, earlier, device)
        recipe = encoder.recipe.values
        if recipe.batch_size < 2 * ranks.size:
            raise InvalidConfiguration("batch_size", f"{recipe.batch_size} leaves a process fewer than 2 pairs")
        lower_case = encoder.vectors is not None and encoder.vectors.lower_case
        tokenizer = encoder.initial.tokenizer
        encoding = (tokenizer, recipe.max_length, recipe.batch_size, settings.seed, lower_case)
        data = encode_pairs(pairs.texts, *encoding)
        dev = encode_pairs(scored.texts[:MAX_SCORED], *encoding)
        return PairRun(
            record=encoder.record(KIND, temperature=temperature),
            inputs={
                "training data": Input(counted(len(data), "pairs"), data.fingerprint),
                "development set": Input(counted(len(dev), "pairs"), dev.fingerprint),
                **encoder.inputs(),
            },
            plan=encoder.recipe.training_plan,
            ranks=ranks,
            device=device,
            read_from=read_from,
            encoder=encoder,
            announce=announce,
            pairs=pairs,
            scored=scored,
            data=data,
            dev=dev,
            temperature=temperature,
        )

    return run_training(open_work, output, settings.device, replace)


@dataclass(kw_only=True)
class PairRun(EmbeddingRun):
    """A run on pairs of texts, opened."""

    WHAT = "pairs"

    pairs: TextPairs
    scored: TextPairs
    data: EncodedPairs
    dev: EncodedPairs
    temperature: float

    def set_up(self, run: Run, is_new: bool) -> PairTraining:
        """The encoder with its pooling, and the batches of pairs."""
        encoder = self.encoder
        vectors = encoder.vectors
        learned = None if vectors is None else replace(vectors, max_length=encoder.recipe.values.max_length)
        task = PairTraining(
            description="Contrastive learning",
            module=encoder.pooled().to(self.device).train(),
            source=self.data,
            device=self.device,
            recipe=encoder.recipe,
            compute=encoder.compute,
            kind=KIND,
            initial=encoder.initial,
            sentence_vectors=learned,
            scored=self.dev,
            temperature=self.temperature,
        )
        self.begin(run, task)
        return task

    def training_counts(self) -> dict[str, Any]:
        return {**self.pairs.counts, "examples": len(self.data), **self.data.counts}

    def evaluation_counts(self) -> dict[str, Any]:
        rows_not_scored = len(self.scored.texts) - len(self.dev)
        return {
            **self.scored.counts,
            "rows_not_scored": rows_not_scored,
            "examples": len(self.dev),
            **self.dev.counts,
        }

    def baseline(self) -> dict[str, float]:
        return {ACCURACY: 100.0 / self.dev.candidates}

    def notes(self) -> list[str]:
        notes = []
        if self.pairs.negatives:
            notes.append(f"hard negatives: {', '.join(self.pairs.negatives)}")
        if self.encoder.dense is not None:
            notes.append("the Dense modules after the pooling stay as they are")
        return notes

    def card(self, report: Mapping[str, Any]) -> Card:
        what = "pairs of texts and hard negatives" if self.pairs.negatives else "pairs of texts"
        return Card(
            name="",
            description=f"trained on {len(self.data):,} {what}",
            recipe=recipe_of_vectors(self.encoder.recipe.values) | {"temperature": self.temperature},
            scores={
                f"{ACCURACY} among {counted(self.dev.candidates, 'texts')}": report["scores"][ACCURACY],
                "the same, before training": report["before"][ACCURACY],
                f"the same, {AT_RANDOM}": 100.0 / self.dev.candidates,
            },
            scores_note=f"{ACCURACY} is the percentage of first texts whose nearest text among these, by "
            "cosine, is their own second one.",
        )
