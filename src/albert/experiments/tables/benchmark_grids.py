"""The long runs beside other systems: GLUE (Table 9), SQuAD and RACE (Table 10), and the bar chart of RACE."""

from dataclasses import replace

from albert.experiments.published_race import RACE_CHART
from albert.experiments.published_scores import GLUE, PublishedTable
from albert.experiments.tables.columns import score_columns, task_columns
from albert.experiments.tables.grid import Grid, Row, published_table
from albert.experiments.tables.scales import Scale
from albert.experiments.tables.shared_arms import albert, flagship

_READING = ("squad-1.1 f1", "squad-1.1 exact", "squad-2.0 f1", "squad-2.0 exact", "race")


def _rows(scale: Scale, published: PublishedTable) -> tuple[Row, ...]:
    """The paper's rows; the two long runs are ours."""
    million, longest = scale.long_steps
    long: dict[str, int] = {"albert-xxlarge, 1M steps": million, "albert-xxlarge, 1.5M steps": longest}
    rows = []
    for name in (row.arm for row in published.rows):
        steps = long.get(name)
        label = name if steps is None else f"albert-{scale.flagship}, {steps:,} updates"
        made = None if steps is None else flagship(scale, steps)
        rows.append(Row(name=name, label=label, arm=made, preset=None if steps is None else f"albert-{scale.flagship}"))
    return tuple(rows)


def glue(scale: Scale) -> Grid:
    """Table 9, single models."""
    published = published_table("9")
    return Grid(
        table="9",
        title=published.title,
        scale=scale.name,
        rows=_rows(scale, published),
        columns=score_columns(scale, GLUE),
        published=published,
        compute="as published",
        figure="bars",
        notes=("Models of others are not trained; ensembles and test sets are those of the benchmark's server.",),
    )


def glue_ensembles(scale: Scale) -> Grid:
    """Table 9, ensembles: the paper's alone, for the answers of the test sets are not public."""
    published = published_table("9, ensembles")
    return Grid(
        table="9-ensembles",
        title=published.title,
        scale=scale.name,
        rows=tuple(Row(name=row.arm, label=row.arm, arm=None) for row in published.rows),
        columns=(),
        published=published,
        compute="none",
        notes=(*published.notes, "Several of our models answer together by `albert evaluate TASK --model A B ...`."),
    )


def reading(scale: Scale) -> Grid:
    """Table 10."""
    published = published_table("10")
    columns = score_columns(scale, _READING)
    return Grid(
        table="10",
        title=published.title,
        scale=scale.name,
        rows=_rows(scale, published),
        columns=tuple(replace(one, published="race test") if one.name == "race" else one for one in columns),
        published=published,
        compute="as published",
        figure="bars",
        notes=(*published.notes, "The paper's RACE is that of the test set, ours of the development set."),
    )


def race_chart(scale: Scale) -> Grid:
    """The bar chart of the authors' announcement; a bar of ours where the scale learns RACE."""
    learns = [column for column in task_columns(scale) if column.name == "race"]
    return Grid(
        table="race",
        title=RACE_CHART.title,
        scale=scale.name,
        rows=tuple(
            Row(
                name=row.arm,
                label=row.arm,
                arm=albert(scale, "xxlarge") if learns and row.arm == "albert-xxlarge" else None,
                preset="albert-xxlarge" if row.arm == "albert-xxlarge" else None,
            )
            for row in RACE_CHART.rows
        ),
        columns=tuple(learns),
        published=RACE_CHART,
        compute="none" if not learns else "as published",
        figure="bars",
        notes=(*RACE_CHART.notes, *(() if learns else ("RACE is not learnt at this scale.",))),
    )
