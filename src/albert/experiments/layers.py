"""Layer similarity (the paper's Figure 1): how far each layer moves its input, measured and drawn.

Lan et al. (2019, §3.1) show L2 distance and angle between the input and the output embedding of every layer. With
shared layers both are much smoother over depth than without, and neither goes to 0: the network does not find a fixed
point, as a deep equilibrium model would."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise
from pathlib import Path
from statistics import mean

import numpy as np
import torch
from jaxtyping import Float
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from torch import Tensor

from albert.checkpoints.hub import find_model
from albert.checkpoints.huggingface import kind_of
from albert.checkpoints.model_directory import open_model, read_config, tokenizer_of
from albert.experiments.curves import COLORS, MARKERS, bare, save_figure
from albert.experiments.quickstart import split_chapters
from albert.inference.inspection import layer_movement
from albert.model.albert import AlbertModel
from albert.model.packing import PackedSequences, pack
from albert.runtime.devices import pick_device
from albert.runtime.errors import MissingInput
from albert.runtime.files import write_csv
from albert.runtime.json_files import load_json, save_json
from albert.runtime.progress import progress

PASSAGES_AT_ONCE = 32
_SHARED = {"all": "shared", "attention": "attention shared", "ffn": "feed-forward shared", "none": "not shared"}


@dataclass(frozen=True)
class LayerSimilarity:
    """A model's layers, from the first to the last; means over tokens."""

    model: str
    """As it was named."""
    layers: str
    """What its layers have in common: the sharing, and how many times a layer is applied."""
    distance: tuple[float, ...]
    """L2 distance between what goes into a layer and what comes out."""
    angle: tuple[float, ...]
    """Angle between the two, in degrees."""
    tokens: int
    """All of them, special ones too."""


def cut_passages(texts: Iterator[str], count: int, words: int) -> list[str]:
    """The first `count` runs of `words` words; shorter ones, at the ends of texts, are left out."""
    passages = list(islice(_passages(texts, words), count))
    if not passages:
        raise MissingInput("text", f"has no passage of {words:,} words", "give longer texts, or fewer --words")
    return passages


def measure_layers(
    path_or_id: str | Path,
    passages: Sequence[str],
    *,
    revision: str | None = None,
    device: torch.device,
    advance: Callable[[int], None] = lambda _: None,
) -> LayerSimilarity:
    """Read passages with a model and compare what goes into each layer with what comes out.

    Args:
        passages: what it reads, each cut to the model's longest sequence.
        advance: called with the number of passages read since the last call.

    Raises:
        MissingInput, Unavailable, DamagedData, InvalidConfiguration: the model cannot be opened.
    """
    directory = find_model(path_or_id, revision)
    opened = open_model(directory, kind_of(read_config(directory)[1]))
    tokenizer, config = tokenizer_of(opened), opened.config
    model = opened.model.to(device).eval()
    encoder = model if isinstance(model, AlbertModel) else model.get_submodule("albert")
    assert isinstance(encoder, AlbertModel)
    sums, tokens = torch.zeros(0), 0
    for first in range(0, len(passages), PASSAGES_AT_ONCE):
        part = [
            np.asarray([tokenizer.cls_id, *ids[: config.max_position_embeddings - 2], tokenizer.sep_id], np.int64)
            for ids in map(tokenizer.encode, passages[first : first + PASSAGES_AT_ONCE])
        ]
        packed = pack(part, [np.zeros_like(ids) for ids in part]).to(device)
        found = _sums(encoder, packed)
        sums = found if tokens == 0 else sums + found
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
    """One row a model and layer: `model, layers, layer, l2_distance, angle_degrees, tokens`."""
    rows = [
        [one.model, one.layers, layer, f"{distance:.6g}", f"{angle:.6g}", one.tokens]
        for one in measured
        for layer, (distance, angle) in enumerate(zip(one.distance, one.angle, strict=True), start=1)
    ]
    write_csv(table, [["model", "layers", "layer", "l2_distance", "angle_degrees", "tokens"], *rows])


def _sums(encoder: AlbertModel, packed: PackedSequences) -> Float[Tensor, "layers 2"]:
    with torch.inference_mode():
        states = encoder.hidden_states(packed)
        pairs = [layer_movement(before, after) for before, after in pairwise(states)]
        return torch.stack([torch.stack([values.double().sum() for values in pair]) for pair in pairs]).cpu().float()


def _passages(texts: Iterator[str], words: int) -> Iterator[str]:
    for text in texts:
        all_words = text.split()
        for first in range(0, len(all_words) - words + 1, words):
            yield " ".join(all_words[first : first + words])


# --------------------------------------------------------------------------------------------------------------------
# Figure 1 in figures: how evenly the layers move their input, and whether they come to rest.
#
# The paper (§3.1) reads off its curves that with shared layers "the transitions from layer to layer are much
# smoother", and that they oscillate rather than converge. Here the first is the mean change of the movement from
# one layer to the next, the second the movement of the last layer, both as a share of the mean movement of all
# layers: models whose states are of another length can be compared.

PASSAGES = 200
"""Of the novels that the project carries."""
TOKENS_A_WORD = 2
"""More than a word has on average, so that passages stay within the positions that were trained."""


def kept_layers(model: Path, kept: Path, max_length: int) -> LayerSimilarity:
    """How far each layer of a finished model moves its input: measured once, then read.

    Args:
        kept: the file that holds it.
        max_length: tokens of the longest sequences that it was trained with.
    """
    if not kept.is_file():
        texts = (chapter.text for chapter in split_chapters().held_out)
        passages = cut_passages(texts, PASSAGES, max(1, max_length // TOKENS_A_WORD))
        with progress("Reading", len(passages), "passages") as bar:
            save_json(kept, measure_layers(model, passages, device=pick_device("auto"), advance=bar.advance))
    return load_json(LayerSimilarity, kept)


def unevenness(movement: Sequence[float]) -> float:
    """The mean change from one layer to the next, in percent of the mean; 0 for a single layer.

    Args:
        movement: of every layer, distances or angles, above 0.
    """
    changes = [abs(after - before) for before, after in pairwise(movement)]
    return 100 * mean(changes) / mean(movement) if changes else 0.0


def rest(movement: Sequence[float]) -> float:
    """What is left of the movement in the last layer, in percent of the mean; 0 at a fixed point.

    Args:
        movement: of every layer, above 0 in some.
    """
    return 100 * movement[-1] / mean(movement)


SMOOTHNESS: dict[str, Callable[[LayerSimilarity], float]] = {
    "unevenness of distances": lambda layers: unevenness(layers.distance),
    "unevenness of angles": lambda layers: unevenness(layers.angle),
    "movement of the last layer": lambda layers: rest(layers.distance),
}
"""Column of Figure 1 -> its figure, in percent."""


# --------------------------------------------------------------------------------------------------------------------
# Figure 1 of the paper, drawn: distance and angle between input and output of every layer.


def draw_layers(measured: Sequence[LayerSimilarity], picture: Path) -> None:
    """Draw models side by side into one PNG, both panels from 0."""
    figure = Figure(figsize=(10.5, 4.4), layout="constrained")
    distance, angle = figure.subplots(1, 2)
    for number, one in enumerate(measured):
        layers = range(1, len(one.distance) + 1)
        color, marker = COLORS[number % len(COLORS)], MARKERS[number % len(MARKERS)]
        for axes, values in ((distance, one.distance), (angle, one.angle)):
            axes.plot(layers, values, color=color, marker=marker, markersize=4, linewidth=1.8)
        distance.plot([], [], color=color, marker=marker, label=f"{one.model} ({one.layers})")
    for axes, title in ((distance, "L2 distance of input and output"), (angle, "angle between them, degrees")):
        axes.set(title=title, xlabel="layer", ylim=(0, None))
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        bare(axes)
    figure.legend(loc="outside upper left", frameon=False, fontsize=9)
    save_figure(figure, picture)
