"""Masked-token and sentence-order accuracy on held-out text, beside what a constant answer would score."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from albert.checkpoints.model_directory import OpenedModel, open_model
from albert.checkpoints.model_tokenizer import tokenizer_of
from albert.pretraining.batches import PretrainingBatch, micro_batches
from albert.pretraining.mixture import SampleSource
from albert.pretraining.ngram_masking import MaskingRecipe
from albert.pretraining.objective import pretraining_objective
from albert.pretraining.samples import PretrainingSamples, SequenceRecipe
from albert.pretraining.sentence_order import SentenceObjective
from albert.runtime.devices import Precision, autocast, pick_device
from albert.runtime.errors import InvalidConfiguration
from albert.runtime.progress import progress
from albert.text.preparation.shards import TokenCorpus

EVALUATION_SEED = 20190926
"""Held-out samples are the same for every model and every run; the date of the paper's first version."""


class HeldOutSamples:
    """The same held-out samples for every model: a fixed seed, in a fixed order.

    Args:
        samples: of the held-out split, drawn with `EVALUATION_SEED`.
        limit: most sequences; all of an epoch when there are fewer.
        batch_size: sequences at a time.
    """

    def __init__(
        self,
        samples: SampleSource,
        limit: int,
        batch_size: int = 32,
    ) -> None:
        numbers = np.arange(min(limit, samples.per_epoch))
        self.batches: list[PretrainingBatch] = list(micro_batches(samples, numbers, batch_size))

    def evaluate(
        self, model: nn.Module, device: torch.device, precision: Precision, quiet: bool = False
    ) -> dict[str, float]:
        """Loss and accuracy of both objectives, and the accuracies of always giving the most frequent answer.

        Args:
            model: an `AlbertForPreTraining` in evaluation mode on `device`.
            device: where to compute.
            precision: of the matrix products.
            quiet: show no progress.
        """
        sums: dict[str, float] = {}
        counts: dict[str, int] = {}
        with torch.inference_mode(), progress("Evaluating", len(self.batches), "batches", quiet=quiet) as bar:
            for batch in self.batches:
                with autocast(device, precision):
                    found = pretraining_objective(model, batch.to(device))
                for name, count in batch.counts.items():
                    counts[name] = counts.get(name, 0) + count
                    for kind, values in (("loss", found.losses), ("accuracy", found.correct)):
                        key = f"{name}_{kind}"
                        sums[key] = sums.get(key, 0.0) + float(values[name])
                bar.advance()
        means = {
            key: total / counts[key.rsplit("_", 1)[0]] for key, total in sums.items() if counts[key.rsplit("_", 1)[0]]
        }
        return {
            **means,
            **self.baselines(),
            "sequences": float(sum(batch.packed.n_sequences for batch in self.batches)),
        }

    def baselines(self) -> dict[str, float]:
        """What the best constant answer scores on these very samples."""
        tokens = np.concatenate([batch.masked_labels.numpy() for batch in self.batches])
        orders = np.concatenate([batch.order_labels.numpy() for batch in self.batches])
        orders = orders[orders >= 0]
        found = (("masked_tokens", tokens), ("sentence_order", orders))
        return {f"{name}_baseline": float(np.bincount(some).max() / len(some)) for name, some in found if len(some)}


def evaluate_pretraining(
    model_directory: Path,
    corpus_directory: Path,
    *,
    objective: SentenceObjective = "sop",
    max_length: int | None = None,
    limit: int = 2000,
    device: str = "auto",
    precision: Precision = "fp32",
    overrides: Mapping[str, Any] | None = None,
) -> dict[str, float]:
    """Evaluate any pre-trained model on the held-out split of a prepared corpus.

    Args:
        model_directory: a model directory with pre-training heads.
        corpus_directory: what `albert prepare` wrote, with the model's own tokenizer.
        objective: which sentence task to ask, whatever the model was trained on (paper Table 5).
        max_length: most tokens of a sequence; None: as many as the model has positions, at most 512.
        limit: most sequences.
        device, precision: where and how to compute.
        overrides: fields of the model's configuration to set anew.

    Raises:
        InvalidConfiguration: the corpus was prepared with another tokenizer, the sequences are too long, none are
            asked for, or the model lacks a head that is asked.
    """
    if limit < 1:
        raise InvalidConfiguration("sequences", f"is {limit}, at least 1 sequence is needed")
    corpus = TokenCorpus.open(corpus_directory, "held_out")
    opened = open_model(model_directory, "pretraining", overrides=overrides)
    _refuse_random_heads(opened, objective)
    check_tokenizer(corpus, tokenizer_of(opened).fingerprint, str(model_directory))
    positions = opened.config.max_position_embeddings
    length = min(512, positions) if max_length is None else max_length
    if length > positions:
        raise InvalidConfiguration("max_length", f"is {length}, the model has {positions} positions")
    place = pick_device(device)
    sequences = SequenceRecipe(max_length=length, objective=objective)
    held_out = HeldOutSamples(PretrainingSamples(corpus, sequences, MaskingRecipe(), EVALUATION_SEED), limit)
    return held_out.evaluate(opened.model.to(place), place, precision)


def _refuse_random_heads(opened: OpenedModel, objective: SentenceObjective) -> None:
    random = opened.loading_report.newly_initialised
    if any(name.startswith("predictions.") for name in random):
        raise InvalidConfiguration(opened.directory, "has no masked-token head", "give a pre-trained model")
    if random and objective != "none":
        remedy = "ask for masked tokens alone with --objective none"
        raise InvalidConfiguration(opened.directory, "has no trained sentence-order head", remedy)


def check_tokenizer(corpus: TokenCorpus, fingerprint: str, subject: str) -> None:
    """Refuse a corpus whose tokens mean something else.

    Raises:
        InvalidConfiguration: the fingerprints differ.
    """
    if corpus.tokenizer_fingerprint != fingerprint:
        theirs = corpus.tokenizer_fingerprint[:12]
        why = f"has tokenizer {fingerprint[:12]}, {corpus.directory} was prepared with {theirs}"
        raise InvalidConfiguration(subject, why, "prepare the corpus again with the model's tokenizer")
