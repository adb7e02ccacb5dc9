"""Movement of the input by each layer (the paper's Figure 1); scores of a model at every depth and precision.

Lan et al. (2019, §3.1) show L2 distance and angle between the input and the output embedding of every layer. With
shared layers both are much smoother over depth than without, and neither goes to 0: the network does not reach a fixed
point, as a deep equilibrium model would."""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice, pairwise
from pathlib import Path
from statistics import mean, median
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from albert.checkpoints.hub import find_model
from albert.checkpoints.huggingface import kind_of
from albert.checkpoints.model_directory import open_model, read_config, tokenizer_of
from albert.finetuning.data import PreparedSplit, encode_split, read_examples
from albert.finetuning.evaluation import Evaluation, evaluate_directory, predictions_from_outputs, score_predictions
from albert.finetuning.model import open_for_task
from albert.inference.engine import InferencePrecision, PackedModel, choose_precision, use_fast_encoders
from albert.model.albert import AlbertModel, check_depth, set_depth
from albert.model.config import AlbertConfig
from albert.model.cost import count_flops
from albert.model.packing import pack
from albert.paper.quickstart import split_chapters
from albert.runtime.devices import pick_device
from albert.runtime.errors import InvalidConfiguration, MissingInput
from albert.runtime.files import write_csv
from albert.runtime.json_files import load_json, save_json
from albert.runtime.progress import progress
from albert.tasks.examples import Sequences
from albert.tasks.task import Task

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
    revision: str | None = None,
    device: torch.device,
    advance: Callable[[int], None] = lambda _: None,
) -> LayerSimilarity:
    """Compare input and output of each layer of a model on some passages.

    Args:
        passages: each is cut to the model's longest sequence.

    Raises:
        MissingInput, Unavailable, DamagedData, InvalidConfiguration: the model cannot be opened.
    """
    directory = find_model(path_or_id, revision)
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


# --------------------------------------------------------------------------------------------------------------------
# Score against compute: a fine-tuned model at every depth, and at fp32, bf16 and int8 (Table 11).


@dataclass(frozen=True, kw_only=True)
class DepthPoint:
    """Scores and cost of a model at one depth.

    Attributes:
        depth: number of layers.
        milliseconds: per example, without reading and decoding; the median of the rounds.
        gflops: matrix products of the encoder per example; a multiply-add counts 2.
    """

    depth: int
    scores: Mapping[str, float | None]
    milliseconds: float
    gflops: float


@dataclass(frozen=True, kw_only=True)
class DepthCurve:
    """Scores and cost of a model at several depths on one split."""

    model: str
    task: str
    split: str
    trained_depth: int
    examples: int
    rounds: int
    points: tuple[DepthPoint, ...]
    baseline: Mapping[str, float | None] | None
    notes: tuple[str, ...]

    @property
    def metric(self) -> str:
        """The task's main metric, its first."""
        return next(iter(self.points[0].scores))

    def to_json(self) -> dict[str, Any]:
        """The object that `--results` writes."""
        fields = {name: value for name, value in vars(self).items() if name not in ("points", "notes", "baseline")}
        points = [{**vars(point), "scores": dict(point.scores)} for point in self.points]
        return {**fields, "points": points, "baseline": None if self.baseline is None else dict(self.baseline)}


def depth_curve(
    task: Task,
    model: str,
    data: Path,
    split: str = "dev",
    *,
    depths: Sequence[int],
    rounds: int = 1,
    device: str = "auto",
    precision: InferencePrecision = "fp32",
    max_length: int | None = None,
    micro_batch_tokens: int | None = None,
    revision: str | None = None,
    overrides: Mapping[str, Any] | None = None,
) -> DepthCurve:
    """Score a model at several depths, in turns, round by round.

    Args:
        task, model, data, split, device, max_length, micro_batch_tokens, revision, overrides: see `evaluate_models`.
        depths: numbers of layers.

    Raises:
        InvalidConfiguration: the model cannot run at a depth.
    """
    if not depths:
        raise InvalidConfiguration("depth", "no depth is given", "give at least one")
    opened = open_for_task(task, model, max_length, revision, overrides)
    config = opened.model.config
    assert isinstance(config, AlbertConfig)
    for depth in depths:
        check_depth(config, depth)
    examples, counts = read_examples(task, data, split)
    prepared = encode_split(task, split, examples, counts, opened.tokenizer, opened.recipe)
    packed_model = PackedModel(opened.model, pick_device(device), micro_batch_tokens, precision)
    results: list[list[Any]] = []
    seconds: list[list[float]] = [[] for _ in depths]
    with progress(f"Running {len(depths)} depths", total=rounds * len(depths), unit="passes") as bar:
        for _ in range(rounds):
            for depth, times in zip(depths, seconds, strict=True):
                started = time.perf_counter()
                outputs = _outputs(packed_model, prepared, depth)
                times.append(time.perf_counter() - started)
                if len(results) < len(depths):
                    results.append(outputs)
                bar.advance()
    points = []
    baseline = None
    for depth, outputs, times in zip(depths, results, seconds, strict=True):
        predicted = predictions_from_outputs(task.target, prepared, outputs, opened.label_columns)
        evaluation = score_predictions(task, prepared, predicted, opened.threshold, time.perf_counter())
        baseline = evaluation.baseline
        points.append(
            DepthPoint(
                depth=depth,
                scores=evaluation.scores,
                milliseconds=1000 * median(times) / len(examples),
                gflops=_flops(config, prepared.features.sequences, depth) / len(examples) / 1e9,
            )
        )
    return DepthCurve(
        model=model,
        task=task.name,
        split=split,
        trained_depth=config.num_hidden_layers,
        examples=len(examples),
        rounds=rounds,
        points=tuple(points),
        baseline=baseline,
        notes=opened.notes,
    )


def _outputs(packed_model: PackedModel, prepared: PreparedSplit, depth: int) -> list[Any]:
    """Outputs of the head for every sequence."""
    features = prepared.features
    members = range(len(features.sequences))
    ids = [features.sequences.token_ids(member) for member in members]
    types = [features.sequences.token_type_ids(member) for member in members]
    set_depth(packed_model.model, depth)
    return packed_model.rows(ids, types)


def _flops(config: AlbertConfig, sequences: Sequences, depth: int) -> float:
    """FLOPs of all sequences."""
    total = 0.0
    for length, n in Counter(sequences.lengths.tolist()).items():
        per_token = count_flops(config, length)
        layers = (per_token.forward - per_token.projection) / config.num_hidden_layers
        total += n * length * (per_token.projection + depth * layers)
    return total


CURVE_COLUMNS = ("depth", "gflops", "milliseconds")
"""Columns of a curve's table, before those of the scores."""


def write_curve(curve: DepthCurve, table: Path) -> None:
    """Write a CSV row per point."""
    rows: list[Sequence[object]] = [[*CURVE_COLUMNS, *curve.points[0].scores]]
    for point in curve.points:
        figures = (f"{point.gflops:.4f}", f"{point.milliseconds:.3f}")
        scores = ("" if value is None else f"{value:.3f}" for value in point.scores.values())
        rows.append([point.depth, *figures, *scores])
    write_csv(table, rows)


# --------------------------------------------------------------------------------------------------------------------
# Score against precision: one model on one task at fp32, bf16 and int8, with the arithmetic that inference uses.
#
# Whether int8 lowers the score depends on the model and the task, so it is measured on these.

EXACT: InferencePrecision = "fp32"
TOLERANCE = 0.5
"""Points by which a score may differ from that of fp32."""


@dataclass(frozen=True)
class PrecisionScore:
    """The score of a model at one precision.

    Attributes:
        difference: of the task's main score from that of fp32.
        changed: number of examples whose prediction differs from that of fp32.
        holds: whether the difference is within the tolerance.
    """

    precision: InferencePrecision
    evaluation: Evaluation
    name: str
    score: float
    difference: float
    changed: int
    holds: bool


def precision_scores(
    task: Task,
    model: str,
    data: Path,
    split: str,
    precisions: Sequence[InferencePrecision],
    tolerance: float = TOLERANCE,
    *,
    device: str = "auto",
    **options: Any,
) -> list[PrecisionScore]:
    """Score one model at several precisions on the same examples; fp32 always comes first.

    Args:
        tolerance: how far a score may differ from that of fp32, in points.
    """
    if not tolerance >= 0:
        raise InvalidConfiguration("tolerance", f"is {tolerance}, a number of points from 0 on is needed")
    precisions = list(dict.fromkeys((EXACT, *precisions)))
    for precision in precisions[1:]:  # raises for an unsupported precision before anything is computed
        choose_precision(precision, pick_device(device))
    results: list[PrecisionScore] = []
    for precision in precisions:
        fast = partial(use_fast_encoders, precision=precision)
        evaluation = evaluate_directory(task, model, data, split, device=device, prepare=fast, **options)
        name, score = next(iter(evaluation.scores.items()))
        if score is None:
            raise InvalidConfiguration(f"{name} on {split}", f"has no value at {precision}", "score more examples")
        exact, exact_score = (results[0].evaluation, results[0].score) if results else (evaluation, score)
        pairs = zip(evaluation.predictions, exact.predictions, strict=True)
        changed = sum(prediction["prediction"] != expected["prediction"] for prediction, expected in pairs)
        difference = score - exact_score
        holds = abs(difference) <= tolerance
        results.append(PrecisionScore(precision, evaluation, name, score, difference, changed, holds))
    return results
