"""`albert evaluate --precision fp32 bf16 int8`: one table, and a refusal where a score moves."""

from collections.abc import Sequence
from typing import Any

from rich.table import Table

from albert.cli.light_tables import table
from albert.experiments.precision_scores import EXACT, PrecisionScore
from albert.finetuning.summary import shown
from albert.runtime.errors import CheckFailed


def precision_table(found: Sequence[PrecisionScore]) -> Table:
    """A row for each precision: every score, the difference in the first, answers that changed, seconds, verdict."""
    names = [name for name in found[0].evaluation.scores if "thresh" not in name]
    made = table(None, "precision", *names, "difference", "answers changed", "seconds", "score holds")
    for row in found:
        scores = [shown(row.evaluation.scores[name]) for name in names]
        compared = ["", "", ""]
        if row.precision != EXACT:
            changed = f"{row.changed:,} of {len(row.evaluation.predictions):,}"
            compared = [f"{row.difference:+.2f}", changed, "yes" if row.holds else "NO"]
        made.add_row(row.precision, *scores, *compared[:2], f"{row.evaluation.seconds:.1f}", compared[2])
    return made


def precision_results(found: Sequence[PrecisionScore], tolerance: float) -> dict[str, Any]:
    """The same as `--results` writes it."""
    rows = {
        row.precision: {
            "scores": dict(row.evaluation.scores),
            "difference": row.difference,
            "answers_changed": row.changed,
            "seconds": row.evaluation.seconds,
            "holds": row.holds,
        }
        for row in found
    }
    return {"score": found[0].name, "tolerance": tolerance, "precisions": rows}


def check_precisions(found: Sequence[PrecisionScore], tolerance: float) -> None:
    """Raises CheckFailed, naming the precisions at which the score does not hold."""
    moved = [f"{row.precision} by {row.difference:+.2f}" for row in found if not row.holds]
    if moved:
        why = f"moves with {' and '.join(moved)}, more than {tolerance:.2f}"
        raise CheckFailed(found[0].name, why, f"use {' or '.join(row.precision for row in found if row.holds)}")
