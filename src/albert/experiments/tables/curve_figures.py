"""Figures of runs and models themselves: held-out curves (Figure 2, the degradation), movement of layers (Figure 1)."""

from dataclasses import replace
from pathlib import Path

from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from albert.experiments.layer_figure import draw_layers
from albert.experiments.layer_similarity import LayerSimilarity, write_layers
from albert.experiments.run_curves import COLORS, RunCurves, read_runs
from albert.experiments.tables.folders import Folders
from albert.experiments.tables.outcomes import Outcome
from albert.runtime.strict_json import load_json


def draw_curves(outcome: Outcome, folders: Folders) -> Figure | None:
    """Training loss, and held-out masked tokens that are right, of every run of every row; None: none has begun."""
    lines: list[tuple[str, int, RunCurves]] = []
    for number, one in enumerate(outcome.rows):
        for key in one.keys.values():
            run = folders.pretraining(key)
            if run.journal_path.is_file() and '"event": "train"' in run.journal_path.read_text(encoding="utf-8"):
                lines.append((one.row.label, number, read_runs([run.path])[0]))
    if not lines:
        return None
    figure = Figure(figsize=(10.5, 4.2), layout="constrained")
    figure.suptitle(outcome.grid.title, x=0.01, ha="left", fontsize=12)
    loss, accuracy = figure.subplots(1, 2)
    named: set[str] = set()
    for label, number, run in lines:
        color = COLORS[number % len(COLORS)]
        kept = run.updates[:: max(1, len(run.updates) // 150)]
        loss.plot([one["step"] for one in kept], [one["masked_tokens_loss"] for one in kept], color=color, alpha=0.7)
        accuracy.plot(
            [one["step"] for one in run.evaluations],
            [one["masked_tokens_accuracy"] for one in run.evaluations],
            color=color,
            marker="o",
            markersize=3,
            label=label if label not in named else None,
        )
        named.add(label)
    loss.set(title="training loss of masked tokens, nats", xlabel="updates")
    accuracy.set(title="held-out masked tokens right", xlabel="updates")
    accuracy.yaxis.set_major_formatter(PercentFormatter(xmax=1))
    accuracy.legend(frameon=False, fontsize=9, title="a line for each seed", title_fontsize=8)
    for axes in (loss, accuracy):
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
    return figure


def draw_layer_movement(outcome: Outcome, folders: Folders, picture: Path) -> bool:
    """Draw every finished model of the first seed, with a CSV beside the picture; whether there is one."""
    measured = []
    for one in outcome.rows:
        finished = [key for key in one.keys.values() if folders.layers(key).is_file()]
        if finished:
            kept = load_json(LayerSimilarity, folders.layers(finished[0]))
            measured.append(replace(kept, model=one.row.label))
    if not measured:
        return False
    draw_layers(measured, picture)
    write_layers(measured, picture.with_name(f"{picture.stem}-layers.csv"))
    return True
