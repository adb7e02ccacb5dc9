"""How far each layer moves its input (the paper's Figure 1), and what a model scores at every depth and precision.

Lan et al. (2019, §3.1) show L2 distance and angle between the input and the output embedding of every layer. With
shared layers both are much smoother over depth than without, and neither goes to 0: the network does not find a fixed
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
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from torch import Tensor

from albert.checkpoints.hub import find_model
from albert.checkpoints.huggingface import kind_of
from albert.checkpoints.model_directory import open_model, read_config, tokenizer_of
from albert.experiments.curves import BLUE, COLORS, GREY, MARKERS, ORANGE, bare, save_figure
from albert.experiments.quickstart import split_chapters
from albert.finetuning.data import PreparedSplit, encode_split, read_examples
from albert.finetuning.evaluation import Evaluation, evaluate_directory, predictions_from_outputs, score_predictions
from albert.finetuning.model import open_for_task
from albert.inference.early_exit import EarlyExit, early_exit_of
from albert.inference.engine import InferencePrecision, PackedModel, choose_precision, use_fast_encoders
from albert.inference.inspection import layer_movement
from albert.model.albert import AlbertModel, check_depth, set_depth
from albert.model.config import AlbertConfig
from albert.model.cost import count_flops
from albert.model.packing import PackedSequences, pack
from albert.runtime.devices import pick_device
from albert.runtime.errors import InvalidConfiguration, MissingInput
from albert.runtime.files import write_csv
from albert.runtime.json_files import load_json, save_json
from albert.runtime.progress import progress
from albert.tasks.examples import Sequences
from albert.tasks.task import Task

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


def cut_passages(texts: Iterable[str], count: int, words: int) -> list[str]:
    """The first `count` runs of `words` words; shorter ones, at the ends of texts, are left out."""
    runs = (
        " ".join(every[first : first + words])
        for every in map(str.split, texts)
        for first in range(0, len(every) - words + 1, words)
    )
    passages = list(islice(runs, count))
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


def cached_layers(model: Path, kept: Path, max_length: int) -> LayerSimilarity:
    """How far each layer of a finished model moves its input: measured once, then read."""
    if not kept.is_file():
        texts = (chapter.text for chapter in split_chapters().held_out)
        passages = cut_passages(texts, PASSAGES, max(1, max_length // TOKENS_A_WORD))
        with progress("Reading", len(passages), "passages") as bar:
            save_json(kept, measure_layers(model, passages, device=pick_device("auto"), advance=bar.advance))
    return load_json(LayerSimilarity, kept)


def unevenness(movement: Sequence[float]) -> float:
    """The mean change from one layer to the next, in percent of the mean; 0 for a single layer."""
    changes = [abs(after - before) for before, after in pairwise(movement)]
    return 100 * mean(changes) / mean(movement) if changes else 0.0


def rest(movement: Sequence[float]) -> float:
    """What is left of the movement in the last layer, in percent of the mean; 0 at a fixed point."""
    return 100 * movement[-1] / mean(movement)


SMOOTHNESS: dict[str, Callable[[LayerSimilarity], float]] = {
    "unevenness of distances": lambda layers: unevenness(layers.distance),
    "unevenness of angles": lambda layers: unevenness(layers.angle),
    "movement of the last layer": lambda layers: rest(layers.distance),
}
"""Column of Figure 1 -> its figure, in percent."""


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


# --------------------------------------------------------------------------------------------------------------------
# Score against compute: a fine-tuned model at every depth, with early exit, and at fp32, bf16 and int8 (Table 11).


@dataclass(frozen=True, kw_only=True)
class DepthPoint:
    """One way to run the model.

    Attributes:
        depth: layers at most.
        patience: so many depths in a row must agree for an example to leave; None: all go through all layers.
        mean_depth: layers that a sequence went through.
        milliseconds: of an example, reading and decoding apart; the median of the rounds.
        gflops: of an example: the encoder's matrix products, a multiplication with its addition counting 2.
    """

    depth: int
    patience: int | None
    mean_depth: float
    scores: Mapping[str, float | None]
    milliseconds: float
    gflops: float


@dataclass(frozen=True, kw_only=True)
class DepthCurve:
    """One checkpoint, run in several ways on one split."""

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
        """The first one, by which the task is judged."""
        return next(iter(self.points[0].scores))

    def to_json(self) -> dict[str, Any]:
        """As `--results` writes it."""
        about = {name: value for name, value in vars(self).items() if name not in ("points", "notes", "baseline")}
        points = [{**vars(point), "scores": dict(point.scores)} for point in self.points]
        return {**about, "points": points, "baseline": None if self.baseline is None else dict(self.baseline)}


def depth_curve(
    task: Task,
    model: str,
    data: Path,
    split: str = "dev",
    *,
    depths: Sequence[int] = (),
    patiences: Sequence[int] = (),
    rounds: int = 1,
    device: str = "auto",
    precision: InferencePrecision = "fp32",
    max_length: int | None = None,
    micro_batch_tokens: int | None = None,
    revision: str | None = None,
    overrides: Mapping[str, Any] | None = None,
) -> DepthCurve:
    """Score a model at several depths and with several patiences; they take turns, round by round.

    Args:
        task, model, data, split, device, max_length, micro_batch_tokens, revision, overrides: see `evaluate_models`.
        depths: layers to apply; a patience goes up to the largest, or to the trained depth where there is none.

    Raises:
        InvalidConfiguration: a depth that the model cannot be run at, or a patience for one that answers after its last
            layer alone.
    """
    if not depths and not patiences:
        raise InvalidConfiguration("depth", "no depth and no patience is named", "give at least one")
    chosen = pick_device(device)
    opened = open_for_task(task, model, max_length, revision, overrides)
    config, extra = opened.model.config, read_config(opened.directory)[1]
    assert isinstance(config, AlbertConfig)
    for depth in depths:
        check_depth(config, depth)
    examples, counts = read_examples(task, data, split)
    prepared = encode_split(task, split, examples, counts, opened.tokenizer, opened.recipe)
    packed_model = PackedModel(opened.model, chosen, micro_batch_tokens, precision)
    deepest = max(depths, default=config.num_hidden_layers)
    set_depth(opened.model, deepest)
    exits = [early_exit_of(packed_model, patience, extra, model) for patience in patiences]
    ways = [*((depth, None) for depth in depths), *((deepest, early) for early in exits)]
    found: list[tuple[list[Any], np.ndarray]] = []
    seconds: list[list[float]] = [[] for _ in ways]
    with progress(f"Running {len(ways)} ways", total=rounds * len(ways), unit="passes") as bar:
        for _ in range(rounds):
            for place, (depth, early) in enumerate(ways):
                started = time.perf_counter()
                outputs = _outputs(packed_model, prepared, depth, early)
                seconds[place].append(time.perf_counter() - started)
                if len(found) < len(ways):
                    found.append(outputs)
                bar.advance()
    points, baseline = [], None
    for (depth, early), (outputs, layers), taken in zip(ways, found, seconds, strict=True):
        predicted = predictions_from_outputs(task.target, prepared, outputs, opened.label_columns)
        evaluation = score_predictions(task, prepared, predicted, opened.threshold, time.perf_counter())
        baseline = evaluation.baseline
        points.append(
            DepthPoint(
                depth=depth,
                patience=None if early is None else early.patience,
                mean_depth=float(np.mean(layers)),
                scores=evaluation.scores,
                milliseconds=1000 * median(taken) / len(examples),
                gflops=_flops(config, prepared.features.sequences, layers) / len(examples) / 1e9,
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


def _outputs(
    packed_model: PackedModel, prepared: PreparedSplit, depth: int, early: EarlyExit | None
) -> tuple[list[Any], np.ndarray]:
    """What the head gave for every sequence, and the layers that each went through."""
    features = prepared.features
    members = range(len(features.sequences))
    ids = [features.sequences.token_ids(member) for member in members]
    types = [features.sequences.token_type_ids(member) for member in members]
    set_depth(packed_model.model, depth)
    if early is None:
        return packed_model.rows(ids, types), np.full(len(ids), depth)
    rows = early.rows(ids, types, [features.n_options] * (len(ids) // features.n_options))
    return [row for row, _ in rows], np.array([depth for _, depth in rows])


def _flops(config: AlbertConfig, sequences: Sequences, depths: np.ndarray) -> float:
    """Of all sequences, each through its own number of layers."""
    total = 0.0
    for (length, depth), n in Counter(zip(sequences.lengths.tolist(), depths.tolist(), strict=True)).items():
        per_token = count_flops(config, length)
        layers = (per_token.forward - per_token.projection) / config.num_hidden_layers
        total += n * length * (per_token.projection + depth * layers)
    return total


def write_curve(curve: DepthCurve, table: Path) -> None:
    """Every point as CSV, a row each."""
    rows: list[Sequence[object]] = [
        ["depth", "patience", "mean_depth", "gflops", "milliseconds", *curve.points[0].scores]
    ]
    for point in curve.points:
        figures = (f"{point.mean_depth:.3f}", f"{point.gflops:.4f}", f"{point.milliseconds:.3f}")
        scores = ("" if value is None else f"{value:.3f}" for value in point.scores.values())
        rows.append([point.depth, point.patience or "", *figures, *scores])
    write_csv(table, rows)


def draw_curve(curve: DepthCurve, picture: Path) -> None:
    """Draw depths as a line and patiences as another, each point with its number, as a PNG."""
    figure = Figure(figsize=(10.5, 4.2), layout="constrained")
    about = f"{curve.task}, {curve.split}: {curve.examples:,} examples; trained at depth {curve.trained_depth}"
    figure.suptitle(about, x=0.01, ha="left", fontsize=12)
    work, times = figure.subplots(1, 2, sharey=True)
    _draw(work, curve, lambda point: point.gflops)
    work.set(xlabel="billion floating-point operations an example", ylabel=curve.metric.replace("_", " "))
    _draw(times, curve, lambda point: point.milliseconds)
    times.set(xlabel=f"milliseconds an example, median of {curve.rounds}")
    work.legend(frameon=False, fontsize=9, loc="lower right")
    save_figure(figure, picture)


def _draw(axes: Axes, curve: DepthCurve, cost: Callable[[DepthPoint], float]) -> None:
    kinds = (("fixed depth", BLUE, "o", False), ("early exit by patience", ORANGE, "s", True))
    for label, color, marker, patient in kinds:
        points = sorted((p for p in curve.points if (p.patience is not None) == patient), key=cost)
        places = {(cost(p), score): p for p in points if (score := p.scores[curve.metric]) is not None}
        if places:
            axes.plot(*zip(*places, strict=True), color=color, marker=marker, label=label)
        for place, point in places.items():
            number = point.patience if patient else point.depth
            axes.annotate(str(number), place, textcoords="offset points", xytext=(0, 6), ha="center", fontsize=8)
    constant = None if curve.baseline is None else curve.baseline.get(curve.metric)
    if constant is not None:
        axes.axhline(constant, color=GREY, linestyle="--", label="best constant answer")
    axes.set_xlim(left=0)
    bare(axes)


# --------------------------------------------------------------------------------------------------------------------
# What a cheaper precision costs: one model's score on a task at fp32, bf16 and int8, and which of them still holds.
#
# Users report that int8 ruins a model, and others that it does not; it depends on the model and the task. So it is
# asked of this model on this task, with the arithmetic that answers later: a precision is claimed only where the
# score stays.

EXACT: InferencePrecision = "fp32"
TOLERANCE = 0.5
"""Points by which a score may move: half of one in a hundred answers."""


@dataclass(frozen=True)
class PrecisionScore:
    """One precision.

    `difference` is how far the score that models are chosen by lies from that of fp32; `changed` counts the examples
    that are answered otherwise than by fp32; it `holds` where the difference is within the tolerance.
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
    """Score one model at several precisions on the same examples; fp32 comes first, asked for or not.

    Args:
        tolerance: how far a score may move, in its own points.
    """
    if not tolerance >= 0:
        raise InvalidConfiguration("tolerance", f"is {tolerance}, a number of points from 0 on is needed")
    everything = list(dict.fromkeys((EXACT, *precisions)))
    for precision in everything[1:]:  # what this machine lacks is said before anything is computed
        choose_precision(precision, pick_device(device))
    found: list[PrecisionScore] = []
    for precision in everything:
        fast = partial(use_fast_encoders, precision=precision)
        evaluation = evaluate_directory(task, model, data, split, device=device, prepare=fast, **options).evaluation
        name, score = next(iter(evaluation.scores.items()))
        if score is None:
            raise InvalidConfiguration(f"{name} on {split}", f"has no value at {precision}", "score more examples")
        exact = found[0] if found else PrecisionScore(precision, evaluation, name, score, 0.0, 0, True)
        difference, changed = score - exact.score, _changed(evaluation, exact.evaluation)
        holds = abs(difference) <= tolerance
        found.append(PrecisionScore(precision, evaluation, name, score, difference, changed, holds))
    return found


def _changed(one: Evaluation, other: Evaluation) -> int:
    pairs = zip(one.predictions, other.predictions, strict=True)
    return sum(mine["prediction"] != exact["prediction"] for mine, exact in pairs)
