"""Score against milliseconds and FLOPs: one fine-tuned checkpoint at every depth, and with early exit by patience.

Ways to run it take turns, round by round, and times are medians. Draws the curve, prints it, and adds its rows to the
CSV. The model is one of `albert finetune --exits every`; others are run at fixed depths alone, with --patiences left
empty.

    python benchmarks/depth_curve.py --task sst-2 --model runs/any-depth --data glue
"""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from result_rows import append_rows
from rich.console import Console

from albert.checkpoints.hub import find_model
from albert.checkpoints.model_directory import read_config
from albert.cli.evaluate import show_curve
from albert.cli.options import parse
from albert.experiments.depth_curve import depth_curve, draw_curve
from albert.inference.engine import InferencePrecision
from albert.tasks.submission import find_task

COLUMNS = (
    "task", "split", "model", "precision", "trained_depth", "depth", "patience", "examples", "rounds", "mean_depth",
    "gflops", "milliseconds", "metric", "score", "constant",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Benchmark:
    """Run one checkpoint in many ways.

    Example: python benchmarks/depth_curve.py --task sst-2 --model runs/any-depth --data glue
    """

    task: str
    model: str
    """A fine-tuned model directory, or a run."""
    data: Path
    """The task's data folder."""
    split: str = "dev"
    depths: tuple[int, ...] = ()
    """When none is named: every depth up to the trained one."""
    patiences: tuple[int, ...] = (1, 2, 3, 4, 6)
    rounds: int = 5
    device: Literal["auto", "cpu", "cuda"] = "auto"
    precision: InferencePrecision = "fp32"
    picture: Path = Path("results/depth-curve.png")
    output: Path = Path("results/benchmark-depth-curve.csv")


def main(arguments: list[str]) -> None:
    """Run and report."""
    asked = parse(Benchmark, arguments, "depth_curve.py")
    config, _ = read_config(find_model(asked.model))
    curve = depth_curve(
        find_task(asked.task),
        asked.model,
        asked.data,
        asked.split,
        depths=asked.depths or range(1, config.num_hidden_layers + 1),
        patiences=asked.patiences,
        rounds=asked.rounds,
        device=asked.device,
        precision=asked.precision,
    )
    show_curve(Console(width=120), curve)
    draw_curve(curve, asked.picture)
    constant = None if curve.baseline is None else curve.baseline.get(curve.metric)
    shared = {
        "task": curve.task,
        "split": curve.split,
        "model": "/".join(Path(curve.model).parts[-2:]),
        "precision": asked.precision,
        "trained_depth": curve.trained_depth,
        "examples": curve.examples,
        "rounds": curve.rounds,
        "metric": curve.metric,
        "constant": "" if constant is None else f"{constant:.2f}",
    }
    rows = []
    for point in curve.points:
        score = point.scores[curve.metric]
        rows.append(
            {
                **shared,
                "depth": point.depth,
                "patience": "" if point.patience is None else point.patience,
                "mean_depth": f"{point.mean_depth:.3f}",
                "gflops": f"{point.gflops:.4f}",
                "milliseconds": f"{point.milliseconds:.3f}",
                "score": "" if score is None else f"{score:.2f}",
            }
        )
    append_rows(asked.output, COLUMNS, rows)


if __name__ == "__main__":
    main(sys.argv[1:])
