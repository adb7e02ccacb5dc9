"""Curves of runs, drawn from their journals."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from albert.runtime.durable_files import new_file
from albert.runtime.journal import read_journal

matplotlib.use("Agg")
BLUE, ORANGE, GREY = "#1f6fb4", "#d9731a", "#8a8a8a"


def draw_pretraining_curves(journal: Path, picture: Path, title: str) -> None:
    """Draw loss and held-out accuracies of a pre-training run against tokens seen, as a PNG.

    Args:
        journal: the run's `journal.jsonl`.
        picture: the file to write.
        title: over the figure.
    """
    records = read_journal(journal)
    steps = [record for record in records if record["event"] == "train"]
    evaluations = [record for record in records if record["event"] == "evaluation"]
    figure = Figure(figsize=(12, 3.8), layout="constrained")
    figure.suptitle(title, x=0.01, ha="left", fontsize=12)
    loss, tokens, order = figure.subplots(1, 3)
    _curve(loss, steps, "masked_tokens_loss", GREY, "training, masked tokens", linewidth=1)
    _curve(loss, evaluations, "masked_tokens_loss", BLUE, "held out, masked tokens", marker="o")
    loss.set(title="loss (nats)", xlabel="million tokens seen")
    _accuracy(tokens, steps, evaluations, "masked_tokens", "masked tokens right", "most frequent token")
    _accuracy(order, steps, evaluations, "sentence_order", "sentence order right", "more frequent order")
    for axes in (loss, tokens, order):
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False, fontsize=8)
    with new_file(picture) as temporary:
        figure.savefig(temporary, dpi=130, format="png")


def _accuracy(
    axes: Axes,
    steps: Sequence[dict[str, Any]],
    evaluations: Sequence[dict[str, Any]],
    task: str,
    title: str,
    constant: str,
) -> None:
    _curve(axes, steps, f"{task}_accuracy", GREY, "training", linewidth=1)
    _curve(axes, evaluations, f"{task}_accuracy", BLUE, "held out", marker="o")
    baseline = next((record[f"{task}_baseline"] for record in evaluations if f"{task}_baseline" in record), None)
    if baseline is not None:
        axes.axhline(baseline, color=ORANGE, linestyle="--", label=f"always the {constant}")
    axes.yaxis.set_major_formatter(PercentFormatter(xmax=1))
    axes.set(title=title, xlabel="million tokens seen")


def _curve(axes: Axes, records: Sequence[dict[str, Any]], key: str, color: str, label: str, **style: Any) -> None:
    chosen = [record for record in records if key in record]
    axes.plot([r["tokens"] / 1e6 for r in chosen], [r[key] for r in chosen], color=color, label=label, **style)
