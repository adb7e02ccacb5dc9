"""Score against compute: a fine-tuned model at every depth, with early exit, and at fp32, bf16 and int8.

The paper's Table 11 in the fine-tuning setting, on one checkpoint: its layers are applied more or less often, or each
example leaves when so many depths agree (see `albert.inference.early_exit`)."""

import statistics
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from albert.checkpoints.model_directory import read_config
from albert.experiments.curves import BLUE, GREY, ORANGE, bare, save_figure
from albert.finetuning.data import PreparedSplit, encode_split, read_examples
from albert.finetuning.evaluation import Evaluation, evaluate_directory, evaluation_of, predicted_of
from albert.finetuning.model import OpenedForTask, open_for_task
from albert.inference.early_exit import EarlyExit, early_exit_of
from albert.inference.engine import InferencePrecision, PackedModel, choose_precision, use_fast_encoders
from albert.model.albert import check_depth, run_to_depth
from albert.model.config import AlbertConfig
from albert.model.cost import count_flops
from albert.runtime.devices import pick_device
from albert.runtime.errors import InvalidConfiguration
from albert.runtime.files import write_csv
from albert.runtime.progress import progress
from albert.tasks.examples import Sequences
from albert.tasks.race import OptionFeatures
from albert.tasks.task import Task


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
        patiences: see `EarlyExit`.
        precision: of the encoder's matrix products.

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
    ways = [_Way(packed_model, depth, None) for depth in depths]
    run_to_depth(opened.model, deepest)
    ways += [_Way(packed_model, deepest, early_exit_of(packed_model, patience, extra, model)) for patience in patiences]
    found: list[_Found] = []
    seconds: list[list[float]] = [[] for _ in ways]
    with progress(f"Running {len(ways)} ways", total=rounds * len(ways), unit="passes") as bar:
        for _ in range(rounds):
            for place, way in enumerate(ways):
                started = time.perf_counter()
                rows = way.run(prepared)
                seconds[place].append(time.perf_counter() - started)
                if len(found) < len(ways):
                    found.append(rows)
                bar.advance()
    points, baseline = [], None
    for way, rows, taken in zip(ways, found, seconds, strict=True):
        scores, baseline = _scored(task, prepared, opened, rows)
        points.append(
            DepthPoint(
                depth=way.depth,
                patience=None if way.early is None else way.early.patience,
                mean_depth=float(np.mean(rows.depths)),
                scores=scores,
                milliseconds=1000 * statistics.median(taken) / len(examples),
                gflops=_flops(config, prepared.features.sequences, rows.depths) / len(examples) / 1e9,
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


@dataclass(frozen=True)
class _Found:
    """What the head gave for every sequence, and the layers that each went through."""

    outputs: list[Any]
    depths: np.ndarray


@dataclass(frozen=True)
class _Way:
    packed_model: PackedModel
    depth: int
    early: EarlyExit | None

    def run(self, prepared: PreparedSplit) -> _Found:
        features = prepared.features
        members = range(len(features.sequences))
        ids = [features.sequences.token_ids(member) for member in members]
        types = [features.sequences.token_type_ids(member) for member in members]
        run_to_depth(self.packed_model.model, self.depth)
        if self.early is None:
            return _Found(self.packed_model.rows(ids, types), np.full(len(ids), self.depth))
        n_options = features.n_options if isinstance(features, OptionFeatures) else 1
        rows = self.early.rows(ids, types, [n_options] * (len(ids) // n_options))
        return _Found([row for row, _ in rows], np.array([depth for _, depth in rows]))


def _scored(
    task: Task, prepared: PreparedSplit, opened: OpenedForTask, found: _Found
) -> tuple[Mapping[str, float | None], Mapping[str, float | None] | None]:
    predicted = predicted_of(task.target, prepared, found.outputs, opened.label_columns)
    evaluation = evaluation_of(task, prepared, predicted, opened.threshold, time.perf_counter())
    return evaluation.scores, evaluation.baseline


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
        patience = "" if point.patience is None else point.patience
        figures = (f"{point.mean_depth:.3f}", f"{point.gflops:.4f}", f"{point.milliseconds:.3f}")
        scores = ("" if value is None else f"{value:.3f}" for value in point.scores.values())
        rows.append([point.depth, patience, *figures, *scores])
    write_csv(table, rows)


# --------------------------------------------------------------------------------------------------------------------
# The curve of score against compute, drawn: against work on the left, against time on the right.


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
        scored = [(cost(point), point.scores[curve.metric], point) for point in points]
        scored = [(x, score, point) for x, score, point in scored if score is not None]
        if not scored:
            continue
        axes.plot([x for x, _, _ in scored], [y for _, y, _ in scored], color=color, marker=marker, label=label)
        for x, y, point in scored:
            number = point.patience if patient else point.depth
            axes.annotate(str(number), (x, y), textcoords="offset points", xytext=(0, 6), ha="center", fontsize=8)
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
        task, model, data, split: see `evaluate_models`.
        tolerance: how far a score may move, in its own points.
    """
    if not tolerance >= 0:
        raise InvalidConfiguration("tolerance", f"is {tolerance}, a number of points from 0 on is needed")
    rest: list[InferencePrecision] = [
        each for place, each in enumerate(precisions) if each not in (EXACT, *precisions[:place])
    ]
    for precision in rest:  # what this machine lacks is said before anything is computed
        choose_precision(precision, pick_device(device))
    found: list[PrecisionScore] = []
    everything: list[InferencePrecision] = [EXACT, *rest]
    for precision in everything:
        fast = partial(use_fast_encoders, precision=precision)
        evaluation = evaluate_directory(task, model, data, split, device=device, prepare=fast, **options).evaluation
        name, score = next(iter(evaluation.scores.items()))
        if score is None:
            raise InvalidConfiguration(f"{name} on {split}", f"has no value at {precision}", "score more examples")
        exact = found[0] if found else None
        difference = 0.0 if exact is None else score - exact.score
        changed = 0 if exact is None else _changed(evaluation, exact.evaluation)
        found.append(
            PrecisionScore(precision, evaluation, name, score, difference, changed, abs(difference) <= tolerance)
        )
    return found


def _changed(one: Evaluation, other: Evaluation) -> int:
    pairs = zip(one.predictions, other.predictions, strict=True)
    return sum(mine["prediction"] != exact["prediction"] for mine, exact in pairs)
