"""Every experiment of the paper by name: `grid_of("5", scale)` is Table 5 at a scale."""

from collections.abc import Callable

from albert.experiments.tables import ablation_grids, benchmark_grids, depth_grids, overall_grids
from albert.experiments.tables.grid import Grid
from albert.experiments.tables.scales import Scale
from albert.runtime.errors import UsageError, did_you_mean

GRIDS: dict[str, Callable[[Scale], Grid]] = {
    "2": overall_grids.overall,
    "3": ablation_grids.embedding_size,
    "4": ablation_grids.sharing,
    "5": ablation_grids.sentence_objective,
    "6": overall_grids.same_time,
    "7": ablation_grids.more_text,
    "8": ablation_grids.dropout,
    "9": benchmark_grids.glue,
    "9-ensembles": benchmark_grids.glue_ensembles,
    "10": benchmark_grids.reading,
    "11": depth_grids.depth,
    "12": depth_grids.width,
    "13": depth_grids.depth_of_xxlarge,
    "figure-1": overall_grids.layer_movement,
    "figure-2a": ablation_grids.more_text_curves,
    "figure-2b": ablation_grids.dropout_curves,
    "degradation": overall_grids.degradation,
    "v2": overall_grids.second_release,
    "race": benchmark_grids.race_chart,
}
"""Name -> the experiment at a scale. Tables 1 and 14 and the table of costs need no run: `facts.py`."""


def grid_of(table: str, scale: Scale) -> Grid:
    """An experiment at a scale.

    Raises:
        UsageError: no such experiment; the closest one is suggested.
    """
    if table not in GRIDS:
        raise UsageError(f"table {table}", "unknown", did_you_mean(table, GRIDS))
    return GRIDS[table](scale)
