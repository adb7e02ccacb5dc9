"""`albert evaluate --depth 1 2 4`: score against compute, a fine-tuned model at several depths, as in the paper's Table
11."""

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from albert.finetuning.batches import PreparedSplit, encode_split, read_examples
from albert.finetuning.evaluation import decoded_outputs, score_predictions
from albert.finetuning.opened_model import open_for_task
from albert.inference.engine import InferencePrecision, PackedModel
from albert.model.albert import set_depth
from albert.model.cost import count_flops
from albert.model.sharing import check_depth
from albert.recipes.architecture import EncoderConfig
from albert.report.evaluations import result_of_depths
from albert.report.result import Result
from albert.runtime.devices import pick_device
from albert.runtime.errors import CannotCreate, InvalidConfiguration
from albert.runtime.files import write_csv
from albert.runtime.progress import progress
from albert.tasks.declared import DeclaredTask
from albert.tasks.examples import Sequences


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
    baseline_name: str
    notes: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """The object that `--results` writes."""
        fields = {name: value for name, value in vars(self).items() if name not in ("points", "notes", "baseline")}
        points = [{**vars(point), "scores": dict(point.scores)} for point in self.points]
        return {**fields, "points": points, "baseline": None if self.baseline is None else dict(self.baseline)}


def compare_depths(
    task: DeclaredTask,
    model: str,
    data: Path,
    split: str,
    *,
    depths: Sequence[int],
    rounds: int,
    curve: Path | None,
    **options: Any,
) -> Result:
    """Score a model at several depths, and draw the scores against the compute.

    Args:
        curve: the picture to draw; its figures are written beside it as .csv.
        options: see `depth_curve`.
    """
    draw = None
    if curve is not None:
        from albert.report.pictures import draw_curve as draw

        figures = curve.with_suffix(".csv")
        if figures.exists() and not figures.read_bytes().startswith(",".join(CURVE_COLUMNS).encode()):
            raise CannotCreate(figures, "is another table, the curve's figures would replace it", "choose another name")
    found = depth_curve(task, model, data, split, depths=depths, rounds=rounds, **options)
    report = found.to_json()
    if curve is not None and draw is not None:
        draw(report, curve)
        write_curve(found, curve.with_suffix(".csv"))
    return result_of_depths(report, found.notes, curve)


def depth_curve(
    task: DeclaredTask,
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
    overrides: Mapping[str, Any] | None = None,
) -> DepthCurve:
    """Score a model at several depths, in turns, round by round.

    Args:
        task, model, data, split, device, max_length, micro_batch_tokens, overrides: see `evaluate_models`.
        depths: numbers of layers.

    Raises:
        InvalidConfiguration: the model cannot run at a depth.
    """
    if not depths:
        raise InvalidConfiguration("depth", "no depth is given", "give at least one")
    opened = open_for_task(task, model, max_length, overrides)
    config = opened.model.config
    assert isinstance(config, EncoderConfig)
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
        predicted = decoded_outputs(opened.target, prepared, outputs, opened.label_columns)
        evaluation = score_predictions(task, opened.target, prepared, predicted, time.perf_counter())
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
        baseline_name=task.target.baseline_name,
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


def _flops(config: EncoderConfig, sequences: Sequences, depth: int) -> float:
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
