"""Calibration of int8: the scales of the inputs of every product, fixed before the first answer.

A product with one scale for all inputs is a single operation of oneDNN; a scale for each row needs ten operations
around it. The range of each product's inputs is measured over random tokens, or over a user's texts. Each application
of a shared layer has its own scales."""

from collections import defaultdict
from collections.abc import Sequence
from functools import partial
from math import isfinite, sqrt
from typing import cast

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import cosine_similarity

from albert.inference.fast_encoder import FastEncoder, Watch
from albert.inference.linears import ZERO_POINT, quantize_rows
from albert.model.albert import AlbertModel
from albert.model.encoder import InputScale, LayerScales
from albert.model.packing import mean_states, pack
from albert.recipes.architecture import EncoderConfig
from albert.runtime.errors import InvalidConfiguration
from albert.runtime.random_streams import stream

MOST_ERROR = 0.08
"""A product keeps a scale for each row where one scale changes its inputs by more, relative to their length.

The lowest cosine of 432 texts with fp32 is then 0.992 for all-MiniLM-L6-v2, which keeps them in 3 of 24 products:
0.994 with a scale for each row everywhere, and 0.976 without this limit (results/inference.md).
"""
LEAST_COSINE = 0.985
"""Every product keeps a scale for each row where the mean states of a sequence differ by more from those in float32.

all-MiniLM-L6-v2 has 0.993 over random tokens; below this the vectors of real texts differ as much as those of other
libraries' int8 (results/inference.md).
"""
LENGTHS = (8, 8, 16, 16, 32, 32, 64, 64, 128, 128)
"""Tokens of the random sequences."""
RANDOM_TOKENS = "random tokens"
_LEVELS = 255
_BATCH_TOKENS = 2048


def random_sequences(config: EncoderConfig) -> list[np.ndarray]:
    """Sequences of random tokens, always the same ones for a size of vocabulary."""
    rng = stream("calibration", 0)
    first = min(5, config.vocab_size - 1)  # special pieces come first in most vocabularies
    lengths = [min(length, config.max_position_embeddings) for length in LENGTHS]
    return [rng.integers(first, config.vocab_size, length) for length in lengths]


def encoder_of(model: nn.Module) -> AlbertModel:
    """The embeddings and encoder of a model with a head, or without one."""
    return model if isinstance(model, AlbertModel) else cast(AlbertModel, model.albert)


def calibrate_once(model: AlbertModel) -> None:
    """Measure the scales of the encoder, unless its file had them."""
    if model.encoder.input_scales is None:
        model.encoder.input_scales = calibrate(model)


def calibrate(model: AlbertModel, sequences: Sequence[np.ndarray] | None = None) -> tuple[LayerScales, ...]:
    """The scales of each application of a layer; None where a product should keep a scale for each row.

    Args:
        sequences: token ids of sample texts; None: random ones.

    Raises:
        InvalidConfiguration: values of the model are not finite.
    """
    sequences = random_sequences(model.config) if sequences is None else sequences
    least: defaultdict[tuple[int, str], float] = defaultdict(float)
    greatest: defaultdict[tuple[int, str], float] = defaultdict(float)

    def see(number: int, name: str, rows: Tensor) -> Tensor:
        low, high = map(float, rows.aminmax())
        if not (isfinite(low) and isfinite(high)):
            why = f"layer {number + 1} computes values that are not finite"
            raise InvalidConfiguration("precision int8", why, "train the model again, or open an earlier checkpoint")
        least[number, name] = min(least[number, name], low)
        greatest[number, name] = max(greatest[number, name], high)
        return rows

    _mean_states(model, sequences, see)
    scales = {key: _scale_between(least[key], greatest[key]) for key in least}
    errors: defaultdict[tuple[int, str], float] = defaultdict(float)
    squares: defaultdict[tuple[int, str], float] = defaultdict(float)

    def measure(number: int, name: str, rows: Tensor) -> Tensor:
        errors[number, name] += float((rounded(rows, scales[number, name]) - rows).square().sum())
        squares[number, name] += float(rows.square().sum())
        return rows

    exact = _mean_states(model, sequences, measure)
    losing = {key for key in scales if sqrt(errors[key]) > MOST_ERROR * sqrt(squares[key])}
    fixed = {key: scale for key, scale in scales.items() if key not in losing}
    applications = range(len(model.encoder.plan))
    found = tuple(LayerScales(*(fixed.get((number, name)) for name in LayerScales._fields)) for number in applications)
    near = _mean_states(model, sequences, partial(round_inputs, found))
    lowest = float(cosine_similarity(exact, near).min())
    return found if lowest >= LEAST_COSINE else tuple(LayerScales() for _ in applications)


def rounded(rows: Tensor, scale: InputScale) -> Tensor:
    """Inputs of a product as int8 sees them, in float32."""
    steps = (rows / scale.scale).round_().add_(scale.zero_point).clamp_(0, _LEVELS)
    return steps.sub_(scale.zero_point).mul_(scale.scale)


def round_inputs(scales: Sequence[LayerScales], number: int, name: str, rows: Tensor) -> Tensor:
    """The inputs of a product as int8 sees them."""
    scale: InputScale | None = getattr(scales[number], name)
    if scale is not None:
        return rounded(rows, scale)
    integers, steps = quantize_rows(rows)
    return (integers.float() - ZERO_POINT) * steps


def compute_as_in_int8(model: AlbertModel) -> None:
    """Replace the encoder, whose weights are those of int8, by one that rounds the inputs of products as int8 does.

    It computes in float32, on any processor."""
    scales = model.encoder.input_scales
    assert scales is not None, "not calibrated"
    model.add_module("encoder", FastEncoder(model.encoder, "fp32", partial(round_inputs, scales)))


def _scale_between(least: float, greatest: float) -> InputScale:
    """The scale by which bytes reach from the least to the greatest value; 0 is exact."""
    scale = float(f"{(greatest - least) / _LEVELS:.6g}") or 1.0
    return InputScale(scale, round(-least / scale))


def _mean_states(model: AlbertModel, sequences: Sequence[np.ndarray], watch: Watch) -> Float[Tensor, "sequences H"]:
    """The mean states of sequences in float32; the inputs of every product pass through a function."""
    encoder = FastEncoder(model.encoder, "fp32", watch)
    batches: list[list[np.ndarray]] = [[]]
    for ids in sequences:
        if batches[-1] and sum(map(len, batches[-1])) + len(ids) > _BATCH_TOKENS:
            batches.append([])
        batches[-1].append(ids)
    means = []
    with torch.inference_mode(), torch.autocast("cpu", enabled=False):
        for batch in batches:
            packed = pack(batch, [np.zeros(len(ids), np.int64) for ids in batch])
            means.append(mean_states(encoder(model.embeddings(packed), packed), packed.lengths))
    return torch.cat(means)
