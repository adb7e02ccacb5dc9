"""Figure 1 as figures: how evenly the layers of a model move what comes into them, and whether they come to rest.

The paper (§3.1) reads off its curves that with shared layers "the transitions from layer to layer are much smoother",
and that they oscillate rather than converge. Here the first is the mean change of the movement from one layer to the
next, the second the movement of the last layer, both as a share of the mean movement of all layers: models whose states
are of another length can be compared.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import mean

from albert.experiments.layer_similarity import LayerSimilarity, cut_passages, measure_layers
from albert.experiments.sample_corpus import split_chapters
from albert.runtime.devices import pick_device
from albert.runtime.progress import progress
from albert.runtime.strict_json import load_json, save_json

PASSAGES = 200
"""Of the novels that the project carries."""
TOKENS_A_WORD = 2
"""More than a word has on average, so that passages stay within the positions that were trained."""


def kept_layers(model: Path, kept: Path, max_length: int) -> LayerSimilarity:
    """How far each layer of a finished model moves its input: measured once, then read.

    Args:
        model: a model directory.
        kept: the file that holds it.
        max_length: tokens of the longest sequences that it was trained with.

    Raises:
        DamagedData, InvalidConfiguration: what is kept, or the model, cannot be read.
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
