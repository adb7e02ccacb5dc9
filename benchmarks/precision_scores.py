"""What bf16 and int8 cost: one fine-tuned model's score on its task at every precision, and how many answers change.

`albert evaluate TASK --precision fp32 bf16 int8` asks the same; this keeps the answers as rows.

    python benchmarks/precision_scores.py --task sst-2 --model runs/sst-2 --data glue
"""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from result_rows import append_rows
from rich.console import Console

from albert.cli.evaluate import precision_table
from albert.cli.options import parse
from albert.experiments.depth_curve import TOLERANCE, precision_scores
from albert.inference.engine import InferencePrecision
from albert.tasks.submission import find_task

COLUMNS = (
    "task", "split", "model", "precision", "examples", "metric", "score", "difference", "answers_changed", "tolerance",
    "holds",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Benchmark:
    """Score one model at several precisions.

    Example: python benchmarks/precision_scores.py --task sst-2 --model runs/sst-2 --data glue
    """

    task: str
    model: str
    """A fine-tuned model directory, or a run."""
    data: Path
    """The task's data folder."""
    split: str = "dev"
    precisions: tuple[InferencePrecision, ...] = ("fp32", "bf16", "int8")
    tolerance: float = TOLERANCE
    """Points by which the score may move."""
    device: Literal["auto", "cpu", "cuda"] = "cpu"
    output: Path = Path("results/benchmark-precision-scores.csv")


def main(arguments: list[str]) -> None:
    """Run and report."""
    asked = parse(Benchmark, arguments, "precision_scores.py")
    task = find_task(asked.task)
    found = precision_scores(
        task, asked.model, asked.data, asked.split, asked.precisions, asked.tolerance, device=asked.device
    )
    Console(width=120).print(precision_table(found))
    rows = [
        {
            "task": asked.task,
            "split": asked.split,
            "model": "/".join(Path(asked.model).parts[-2:]),
            "precision": row.precision,
            "examples": len(row.evaluation.predictions),
            "metric": row.name,
            "score": f"{row.score:.2f}",
            "difference": f"{row.difference:.2f}",
            "answers_changed": row.changed,
            "tolerance": f"{asked.tolerance:.2f}",
            "holds": "yes" if row.holds else "no",
        }
        for row in found
    ]
    append_rows(asked.output, COLUMNS, rows, same=("task", "split", "model", "precision"))


if __name__ == "__main__":
    main(sys.argv[1:])
