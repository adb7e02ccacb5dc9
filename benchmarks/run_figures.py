"""Fine-tuning runs as a figure: of each task the spread over seeds for each start, between what needs no learning."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib.figure import Figure

COLORS = {"pretrained": "tab:blue", "random": "tab:orange"}
MARKS = {"constant": ("_", "tab:gray"), "classical": ("x", "tab:green")}


def draw_runs(rows: Sequence[Mapping[str, object]], path: Path) -> None:
    """A column for each task: median with lowest and highest by start, the constant answer, the classical model.

    Args:
        rows: with `task`, `init`, `median`, `lowest`, `highest`, `constant` and `classical`; empty cells are left out.
        path: the PNG.
    """
    tasks = list(dict.fromkeys(str(row["task"]) for row in rows))
    figure = Figure(figsize=(1.5 + 1.2 * len(tasks), 4.5), layout="constrained")
    axes = figure.subplots()
    named: set[str] = set()

    def label(name: str) -> str:
        """Once each in the legend."""
        first = name not in named
        named.add(name)
        return name if first else f"_{name}"

    for row in rows:
        place, init = tasks.index(str(row["task"])), str(row["init"])
        if row.get("median"):
            middle, lowest, highest = (float(str(row[name])) for name in ("median", "lowest", "highest"))
            axes.errorbar(
                place + (-0.1 if init == "pretrained" else 0.1),
                middle,
                yerr=[[middle - lowest], [highest - middle]],
                fmt="o",
                color=COLORS.get(init, "black"),
                capsize=3,
                label=label(init),
            )
        for name, (mark, color) in MARKS.items():
            if row.get(name):
                axes.plot(place, float(str(row[name])), mark, color=color, markersize=12, label=label(name))
    axes.set_xticks(range(len(tasks)), tasks, rotation=20)
    axes.set_ylabel("first score of the task, development set")
    axes.grid(axis="y", alpha=0.3)
    axes.legend(loc="best")
    figure.savefig(path, dpi=120)
