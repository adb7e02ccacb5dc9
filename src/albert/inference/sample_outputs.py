"""What a model gives for random batches of mixed lengths, by the names that its outputs have elsewhere."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from albert.checkpoints.kinds import Kind
from albert.model.config import AlbertConfig
from albert.model.joint_question_answering import IMPOSSIBLE
from albert.model.output_rows import SpanBeamRow, output_rows
from albert.model.packed_sequences import pack
from albert.runtime.randomness import stream

LONGEST = 512
"""Tokens; a check of longer sequences would take memory by their square in other runtimes."""
_LENGTHS = ((1 / 64, 1 / 16), (1 / 64, 1 / 8, 1 / 16, 1 / 4, 1 / 32, 3 / 16, 1 / 8, 1 / 4), (1.0, 1 / 3))
"""Of the sequences of each batch, as shares of the longest."""
SHORTEST = 5

Outputs = dict[str, list[np.ndarray]]
"""Name -> an array for each sequence."""


@dataclass(frozen=True)
class SampleBatch:
    """Sequences of random tokens in two segments: int64 [length] each."""

    ids: list[np.ndarray]
    types: list[np.ndarray]


def sample_batches(config: AlbertConfig) -> list[SampleBatch]:
    """Batches of an even number of sequences, from a few tokens to as many as the model has positions, at most 512."""
    draws = stream("sample outputs", 0)
    longest = min(config.max_position_embeddings, LONGEST)
    batches = []
    for shares in _LENGTHS:
        lengths = [max(min(SHORTEST, longest), round(share * longest)) for share in shares]
        ids = [draws.integers(min(5, config.vocab_size - 1), config.vocab_size, length) for length in lengths]
        second = 1 if config.type_vocab_size > 1 else 0
        types = [second * (np.arange(n) >= draws.integers(1, n + 1)).astype(np.int64) for n in lengths]
        batches.append(SampleBatch(ids, types))
    return batches


def model_outputs(model: nn.Module, kind: Kind, batch: SampleBatch) -> Outputs:
    """What one of the model classes gives, in the precision it has."""
    packed = pack(batch.ids, batch.types)
    with torch.inference_mode():
        if kind in ("pretraining", "masked_lm"):
            found = model(packed, torch.arange(packed.n_tokens))
            masked, order = found if isinstance(found, tuple) else (found, None)
            logits: list[Any] = output_rows(masked, packed.lengths)
            return {"logits": logits} | ({} if order is None else {"sentence_logits": [row.numpy() for row in order]})
        given: Any = model(packed)
        rows: list[Any] = output_rows(given, packed.lengths)
        if kind == "encoder":
            encoder: Any = model
            pooled = {} if encoder.pooler is None else {"pooler_output": encoder.pool(given, packed).unbind(0)}
            return {"last_hidden_state": rows} | {name: [row.numpy() for row in each] for name, each in pooled.items()}
    if kind == "question_answering":
        return {"start_logits": [row[:, 0] for row in rows], "end_logits": [row[:, 1] for row in rows]}
    if kind == "joint_question_answering":
        return _joint(rows)
    return {"logits": rows}


@dataclass(frozen=True)
class OutputDifferences:
    """How far outputs are from those of the model, output by output.

    Args:
        largest: the largest absolute difference.
        relative: the root of the mean squared difference, as a share of the output's standard deviation.
    """

    largest: dict[str, float]
    relative: dict[str, float]


def output_differences(mine: Sequence[Outputs], theirs: Sequence[Outputs]) -> OutputDifferences:
    """Compare the outputs of batches; of answers, the ends of the same starts.

    Two starts of almost the same logit may stand in either order in a beam; what is in one beam alone is not compared.
    """
    pairs = [_pairs(*each) for each in zip(mine, theirs, strict=True)]
    largest, relative = {}, {}
    for name in pairs[0]:
        rows = [pair for each in pairs for pair in each[name]]
        ours = np.concatenate([row.ravel() for row, _ in rows]).astype(np.float64)
        absolute = np.abs(ours - np.concatenate([row.ravel() for _, row in rows]))
        spread = ours[ours > IMPOSSIBLE / 2].std()
        largest[name] = float(absolute.max(initial=0))
        relative[name] = float(np.sqrt(np.mean(absolute**2)) / max(spread, np.finfo(np.float32).tiny))
    return OutputDifferences(largest, relative)


def _pairs(mine: Outputs, theirs: Outputs) -> dict[str, list[tuple[np.ndarray, np.ndarray]]]:
    pairs = {name: list(zip(mine[name], theirs[name], strict=True)) for name in mine if name != "start_places"}
    if "start_places" in mine:
        rows = zip(mine["start_places"], theirs["start_places"], mine["start_logits"], pairs["end_logits"], strict=True)
        pairs["end_logits"] = [_same_starts(*row) for row in rows]
    return pairs


def _joint(rows: Sequence[SpanBeamRow]) -> Outputs:
    return {
        "start_logits": [row.starts for row in rows],
        "start_places": [row.beam for row in rows],
        "end_logits": [row.ends for row in rows],
        "unanswerable_logits": [row.unanswerable for row in rows],
    }


def _same_starts(
    mine: np.ndarray, theirs: np.ndarray, starts: np.ndarray, ends: tuple[np.ndarray, np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    there: Mapping[int, int] = {int(place): column for column, place in enumerate(theirs)}
    columns = [
        (column, there[int(place)])
        for column, place in enumerate(mine)
        if int(place) in there and starts[int(place)] > IMPOSSIBLE / 2
    ]
    return ends[0][:, [one for one, _ in columns]], ends[1][:, [other for _, other in columns]]
