"""Figures of runs and models themselves: held-out curves (Figure 2, the degradation), movement of layers (Figure 1)."""

from dataclasses import replace
from pathlib import Path

from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from albert.experiments.layer_figure import draw_layers
from albert.experiments.layer_similarity import cut_passages, measure_layers, write_layers
from albert.experiments.run_curves import COLORS, RunCurves, read_runs
from albert.experiments.sample_corpus import split_chapters
from albert.experiments.tables.folders import Folders
from albert.experiments.tables.outcomes import Outcome
from albert.runtime.devices import pick_device
from albert.runtime.manifests import MANIFEST_NAME
from albert.runtime.progress import progress

PASSAGES, PASSAGE_WORDS = 200, 100


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
    """Measure and draw every finished model of the first seed, with a CSV beside the picture; whether there is one."""
    models = {}
    for one in outcome.rows:
        finished = [folders.pretraining(key).model_path for key in one.keys.values()]
        finished = [model for model in finished if (model / MANIFEST_NAME).is_file()]
        if finished:
            models[one.row.label] = finished[0]
    if not models:
        return False
    texts = (chapter.text for chapter in split_chapters().held_out)
    passages = cut_passages(texts, PASSAGES, PASSAGE_WORDS)
    device, measured = pick_device("auto"), []
    with progress("Reading", len(passages) * len(models), "passages") as bar:
        for label, model in models.items():
            found = measure_layers(model, passages, device=device, advance=bar.advance)
            measured.append(replace(found, model=label))
    draw_layers(measured, picture)
    write_layers(measured, picture.with_name(f"{picture.stem}-layers.csv"))
    return True
