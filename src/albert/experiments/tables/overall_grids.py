"""ALBERT beside BERT: Table 2, the same time of training (Table 6), a wider BERT, the second release, Figure 1."""

from dataclasses import replace

from albert.experiments.tables.arms import arm
from albert.experiments.tables.columns import HOURS, PARAMETERS, SPEED_UP, Column, layer_columns, score_columns
from albert.experiments.tables.grid import Grid, Row, published_table
from albert.experiments.tables.scales import Scale, Size
from albert.experiments.tables.shared_arms import albert, flagship, xxlarge

_SIZES: tuple[Size, ...] = ("base", "large", "xlarge", "xxlarge")
COUNTED = Column(PARAMETERS, "parameters")


def overall(scale: Scale) -> Grid:
    """Table 2."""
    berts = [
        Row(name=f"bert-{s}", label=f"BERT-{s}", arm=arm(scale, s, bert=True), preset=f"bert-{s}") for s in _SIZES[:2]
    ]
    alberts = [Row(name=f"albert-{s}", label=f"ALBERT-{s}", arm=albert(scale, s), preset=f"albert-{s}") for s in _SIZES]
    published = published_table("2")
    return Grid(
        table="2",
        title=published.title,
        scale=scale.name,
        rows=(*berts, *alberts),
        columns=(COUNTED, *score_columns(scale), Column(SPEED_UP, "speed-up")),
        published=published,
        compute="equal updates",
        figure="arms",
        notes=published.notes,
    )


def same_time(scale: Scale) -> Grid:
    """Table 6."""
    bert_steps, albert_steps = scale.same_time
    published = published_table("6")
    bert = arm(scale, "large", bert=True, steps=bert_steps)
    wide = xxlarge(scale, steps=albert_steps)
    names = [row.arm for row in published.rows]
    labels = (f"BERT-large, {bert_steps:,} updates", f"ALBERT-xxlarge, {albert_steps:,} updates")
    return Grid(
        table="6",
        title="About the same time: BERT-large beside ALBERT-xxlarge",
        scale=scale.name,
        rows=tuple(
            Row(name=name, label=label, arm=made, preset=preset)
            for name, label, made, preset in zip(
                names, labels, (bert, wide), ("bert-large", "albert-xxlarge"), strict=True
            )
        ),
        columns=(Column(HOURS, "hours"), *score_columns(scale)),
        published=published,
        compute="as published" if scale.is_the_papers else "equal time",
        figure="arms",
        notes=("The paper's hours are of one TPU pod; its models took 34 and 32 of them.",),
    )


def degradation(scale: Scale) -> Grid:
    """A wider BERT is worse: the figure and the table of the paper's earlier versions."""
    published = published_table("degradation")
    columns = score_columns(scale, ("race",))
    race = tuple(replace(one, published="race test") if one.name == "race" else one for one in columns)
    return Grid(
        table="degradation",
        title="A wider BERT is worse (earlier versions of the paper: Figure 1 and Table 1)",
        scale=scale.name,
        rows=(
            Row(name="bert-large, by Devlin et al.", label="BERT-large (Devlin et al.)", arm=None, preset="bert-large"),
            Row(name="bert-large", label="BERT-large", arm=arm(scale, "large", bert=True), preset="bert-large"),
            Row(name="bert-xlarge", label="BERT-xlarge", arm=arm(scale, "xlarge", bert=True), preset="bert-xlarge"),
        ),
        columns=(COUNTED, *race),
        published=published,
        compute="equal updates",
        figure="curves",
        notes=("The paper's RACE is that of the test set, ours of the development set.",),
    )


def second_release(scale: Scale) -> Grid:
    """The models of the second release: no dropout, additional text, more updates."""
    published = published_table("v2")
    rows = [
        Row(
            name=f"albert-{size}-v2",
            label=f"ALBERT-{size}, second release",
            arm=arm(scale, size, steps=scale.second_release_steps[size], dropout=0.0, additional_text=True),
            preset=f"albert-{size}",
        )
        for size in _SIZES
    ]
    longest = flagship(scale, scale.long_steps[1]) if scale.flagship == "xxlarge" else None
    first = Row(name="albert-xxlarge-v1", label="ALBERT-xxlarge, first release", arm=longest, preset="albert-xxlarge")
    return Grid(
        table="v2",
        title=published.title,
        scale=scale.name,
        rows=(*rows, first),
        columns=(COUNTED, *score_columns(scale)),
        published=published,
        compute="as published",
        figure="arms",
        notes=("Rate and warm-up of the second release were never published; here they are those of the first.",),
    )


def layer_movement(scale: Scale) -> Grid:
    """Figure 1: how far each layer moves its input, BERT-large beside ALBERT-large."""
    return Grid(
        table="figure-1",
        title="How far every layer moves its input, BERT-large beside ALBERT-large",
        scale=scale.name,
        rows=(
            Row(name="bert-large", label="BERT-large", arm=arm(scale, "large", bert=True), preset="bert-large"),
            Row(name="albert-large", label="ALBERT-large", arm=arm(scale, "large"), preset="albert-large"),
        ),
        columns=layer_columns(),
        published=None,
        compute="equal updates",
        figure="layers",
        notes=("The paper's curves are not published as numbers: distances up to 18, angles up to 45 degrees.",),
    )
