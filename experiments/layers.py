"""Movement of the input by each layer (the paper's Figure 1).

Lan et al. (2019, §3.1) show L2 distance and angle between the input and the output embedding of every layer. With
shared layers both are much smoother over depth than without, and neither goes to 0: the network does not reach a fixed
point, as a deep equilibrium model would."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise
from pathlib import Path
from statistics import mean

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from albert.checkpoints.config_json import read_config
from albert.checkpoints.hub import find_model
from albert.checkpoints.huggingface import kind_of
from albert.checkpoints.model_directory import open_model, tokenizer_of
from albert.commands.sample import split_chapters
from albert.model.albert import AlbertModel
from albert.model.packing import pack
from albert.runtime.devices import pick_device
from albert.runtime.errors import MissingInput
from albert.runtime.files import write_csv
from albert.runtime.json_files import load_json, save_json
from albert.runtime.progress import progress

PASSAGES_AT_ONCE = 32
_MIN_NORM = 1e-12  # Lower bound on a vector's length when it is normalised
_SHARED = {"all": "shared", "attention": "attention shared", "ffn": "feed-forward shared", "none": "not shared"}


@dataclass(frozen=True)
class LayerSimilarity:
    """Movement of the input by each layer of a model, from the first to the last; means over tokens.

    Attributes:
        layers: number and sharing of layers, as text.
        distance: L2 distance between input and output of a layer.
        angle: angle between them, in degrees.
        tokens: special tokens included.
    """

    model: str
    layers: str
    distance: tuple[float, ...]
    angle: tuple[float, ...]
    tokens: int


def layer_movement(
    before: Float[Tensor, "tokens H"], after: Float[Tensor, "tokens H"]
) -> tuple[Float[Tensor, " tokens"], Float[Tensor, " tokens"]]:
    """L2 distance and angle (degrees) between a layer's input and output, for each token.

    The angle is 2 atan2(‖u − v‖, ‖u + v‖) of the unit vectors, which is accurate for small angles, unlike the arc
    cosine of a cosine near 1.
    """
    before = before.double()
    after = after.double()
    distance = (after - before).norm(dim=-1)
    u, v = (state / state.norm(dim=-1, keepdim=True).clamp_min(_MIN_NORM) for state in (before, after))
    angle = 2 * torch.atan2((u - v).norm(dim=-1), (u + v).norm(dim=-1))
    return distance.float(), angle.rad2deg().float()


def cut_passages(texts: Iterable[str], count: int, words: int) -> list[str]:
    """The first `count` passages of `words` words; the shorter remainders of texts are left out."""
    all_passages = (
        " ".join(text_words[first : first + words])
        for text_words in map(str.split, texts)
        for first in range(0, len(text_words) - words + 1, words)
    )
    passages = list(islice(all_passages, count))
    if not passages:
        raise MissingInput("text", f"has no passage of {words:,} words", "give longer texts, or ask for fewer words")
    return passages


def measure_layers(
    path_or_id: str | Path,
    passages: Sequence[str],
    *,
    device: torch.device,
    advance: Callable[[int], None] = lambda _: None,
) -> LayerSimilarity:
    """Compare input and output of each layer of a model on some passages.

    Args:
        passages: each is cut to the model's longest sequence.

    Raises:
        MissingInput, Unavailable, DamagedData, InvalidConfiguration: the model cannot be opened.
    """
    directory = find_model(path_or_id)
    opened = open_model(directory, kind_of(read_config(directory)[1]))
    tokenizer = tokenizer_of(opened)
    config = opened.config
    model = opened.model.to(device).eval()
    encoder = model if isinstance(model, AlbertModel) else model.get_submodule("albert")
    assert isinstance(encoder, AlbertModel)
    sums = torch.zeros(0)
    tokens = 0
    for first in range(0, len(passages), PASSAGES_AT_ONCE):
        part = [
            np.asarray([tokenizer.cls_id, *ids[: config.max_position_embeddings - 2], tokenizer.sep_id], np.int64)
            for ids in map(tokenizer.encode, passages[first : first + PASSAGES_AT_ONCE])
        ]
        packed = pack(part, [np.zeros_like(ids) for ids in part]).to(device)
        with torch.inference_mode():
            pairs = [layer_movement(before, after) for before, after in pairwise(encoder.hidden_states(packed))]
            part_sums = torch.stack([torch.stack([values.double().sum() for values in pair]) for pair in pairs])
        sums = part_sums.cpu().float() + (sums if tokens else 0)
        tokens += packed.n_tokens
        advance(len(part))
    means = sums / tokens
    return LayerSimilarity(
        str(path_or_id),
        f"{config.num_hidden_layers} layers, {_SHARED[config.sharing]}",
        tuple(means[:, 0].tolist()),
        tuple(means[:, 1].tolist()),
        tokens,
    )


def write_layers(measured: Sequence[LayerSimilarity], table: Path) -> None:
    """Write a CSV row per model and layer: `model, layers, layer, l2_distance, angle_degrees, tokens`."""
    rows = [
        [model.model, model.layers, layer, f"{distance:.6g}", f"{angle:.6g}", model.tokens]
        for model in measured
        for layer, (distance, angle) in enumerate(zip(model.distance, model.angle, strict=True), start=1)
    ]
    write_csv(table, [["model", "layers", "layer", "l2_distance", "angle_degrees", "tokens"], *rows])


# --------------------------------------------------------------------------------------------------------------------
# Figure 1 in numbers: how evenly the layers move their input, and how far the last one still moves it.
#
# The paper (§3.1) sees in its curves that with shared layers "the transitions from layer to layer are much smoother",
# and that they oscillate rather than converge. The first is measured here by the mean change of the movement from one
# layer to the next, the second by the movement of the last layer, both divided by the mean movement of all layers, so
# that models with states of different length can be compared.

PASSAGES = 200
"""Of the sample's held-out text."""
TOKENS_A_WORD = 2
"""More than the average, so that passages fit into the trained positions."""


def cached_layers(model: Path, cache: Path, max_length: int) -> LayerSimilarity:
    """The movement of the input by each layer of a model, measured once and saved in the file `cache`."""
    if not cache.is_file():
        texts = (chapter.text for chapter in split_chapters().dev)
        passages = cut_passages(texts, PASSAGES, max(1, max_length // TOKENS_A_WORD))
        with progress("Reading", len(passages), "passages") as bar:
            save_json(cache, measure_layers(model, passages, device=pick_device("auto"), advance=bar.advance))
    return load_json(LayerSimilarity, cache)


def unevenness(movement: Sequence[float]) -> float:
    """The mean change from one layer to the next, in percent of the mean; 0 for a single layer."""
    changes = [abs(after - before) for before, after in pairwise(movement)]
    return 100 * mean(changes) / mean(movement) if changes else 0.0


def last_movement(movement: Sequence[float]) -> float:
    """The movement of the last layer, in percent of the mean; 0 at a fixed point."""
    return 100 * movement[-1] / mean(movement)


SMOOTHNESS: dict[str, Callable[[LayerSimilarity], float]] = {
    "unevenness of distances": lambda layers: unevenness(layers.distance),
    "unevenness of angles": lambda layers: unevenness(layers.angle),
    "movement of the last layer": lambda layers: last_movement(layers.distance),
}
"""Columns of Figure 1, in percent."""
