"""Depth and width: layers of ALBERT-large, each begun from the depth before (Table 11), width of three layers (12),
and whether a wide model need be deep (13)."""

from albert.experiments.tables.arms import Arm, arm
from albert.experiments.tables.columns import score_columns
from albert.experiments.tables.grid import Grid, Row, published_table
from albert.experiments.tables.overall_grids import COUNTED
from albert.experiments.tables.scales import Scale
from albert.experiments.tables.shared_arms import xxlarge


def depth(scale: Scale) -> Grid:
    """Table 11."""
    published = published_table("11")
    rows: list[Row] = []
    before: Arm | None = None
    for papers in (row.arm for row in published.rows):
        layers = scale.depths.get(papers)
        if layers is not None:
            before = arm(scale, "large", layers=layers, start=before)
        made = before if layers is not None else None
        label = _layers(layers) if layers is not None else "not run"
        preset = "albert-large" if papers == "24" else f"albert-large-L{papers}"
        rows.append(Row(name=papers, label=label, arm=made, preset=preset))
    return Grid(
        table="11",
        title=published.title,
        scale=scale.name,
        rows=tuple(rows),
        columns=(COUNTED, *score_columns(scale)),
        published=published,
        compute="equal updates",
        figure="depth",
        notes=("Every depth takes as many updates; a deeper one has those of the depths before behind it.",),
    )


def width(scale: Scale) -> Grid:
    """Table 12."""
    published = published_table("12")
    return Grid(
        table="12",
        title=f"Width of ALBERT-large with {scale.depth_of_widths} layers",
        scale=scale.name,
        rows=tuple(
            Row(
                name=papers,
                label=f"H = {scale.widths[papers]}",
                arm=arm(scale, "large", layers=scale.depth_of_widths, width=scale.widths[papers]),
                preset="albert-large-L3" if papers == "1024" else f"albert-large-L3-H{papers}",
            )
            for papers in (row.arm for row in published.rows)
        ),
        columns=(COUNTED, *score_columns(scale)),
        published=published,
        compute="equal updates",
        figure="depth",
    )


def depth_of_xxlarge(scale: Scale) -> Grid:
    """Table 13."""
    published = published_table("13")
    return Grid(
        table="13",
        title=published.title,
        scale=scale.name,
        rows=tuple(
            Row(
                name=papers,
                label=_layers(layers),
                arm=xxlarge(scale, layers=layers),
                preset="albert-xxlarge" if papers == "12" else f"albert-xxlarge-L{papers}",
            )
            for papers, layers in scale.depths_of_xxlarge.items()
        ),
        columns=(COUNTED, *score_columns(scale)),
        published=published,
        compute="equal updates",
        figure="depth",
    )


def _layers(count: int) -> str:
    return "1 layer" if count == 1 else f"{count} layers"
