"""The experiments behind the paper's tables and figures, by name: `grid_of("5", scale)` is Table 5 at a scale.

A new table is a function here and an entry of `GRIDS`; the paper's own numbers are in `albert.experiments.published`.
"""

from collections.abc import Callable
from dataclasses import replace

from albert.experiments.grid import (
    HOURS,
    PARAMETERS,
    SPEED_UP,
    Arm,
    Column,
    Grid,
    Row,
    arm,
    intrinsic_columns,
    layer_columns,
    published_table,
    score_columns,
    task_columns,
)
from albert.experiments.published import GLUE, RACE_CHART, PublishedTable
from albert.experiments.scales import Scale, Size
from albert.model.config import Sharing
from albert.pretraining.segments import SentenceObjective
from albert.runtime.errors import UsageError, did_you_mean

# --------------------------------------------------------------------------------------------------------------------
# Arms that several tables ask for: the ALBERTs of Table 1, and the longest run.


def xxlarge(scale: Scale, *, layers: int | None = None, steps: int | None = None) -> Arm:
    """ALBERT-xxlarge, from the shallower model that the paper begins it with where the scale does so (A.1).

    Args:
        scale: of the experiment.
        layers: L; None: as the scale has it.
        steps: updates; None: as the scale has it.
    """
    return arm(scale, "xxlarge", layers=layers, steps=steps, start=_start_of_xxlarge(scale))


def albert(scale: Scale, size: Size) -> Arm:
    """An ALBERT of Table 1."""
    return xxlarge(scale) if size == "xxlarge" else arm(scale, size)


def flagship(scale: Scale, steps: int, with_dropout: bool = False) -> Arm:
    """The model that Tables 8 to 10 train longest.

    Args:
        scale: of the experiment.
        steps: its updates.
        with_dropout: to the end; else as long as the scale has it.
    """
    off_at = round(scale.dropout_off_from * scale.long_steps[0]) or None
    return arm(
        scale,
        scale.flagship,
        steps=steps,
        dropout=0.1 if with_dropout else None,
        dropout_off_at=None if with_dropout else off_at,
        start=_start_of_xxlarge(scale) if scale.flagship == "xxlarge" else None,
        additional_text=scale.flagship_reads_all,
    )


def _start_of_xxlarge(scale: Scale) -> Arm | None:
    return None if scale.start_of_xxlarge is None else arm(scale, "xxlarge", layers=scale.start_of_xxlarge)


# --------------------------------------------------------------------------------------------------------------------
# ALBERT beside BERT: Table 2, the same time of training (Table 6), a wider BERT, the second release, Figure 1.

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


# --------------------------------------------------------------------------------------------------------------------
# One choice at a time: E (Table 3), sharing (4), sentence prediction (5), more text (7), dropout (8), Figure 2.

_PAPERS_E = (64, 128, 256, 768)
_SHARING: dict[Sharing, str] = {
    "all": "",
    "attention": "-shared-attention",
    "ffn": "-shared-ffn",
    "none": "-not-shared",
}
_OBJECTIVES: tuple[SentenceObjective, ...] = ("none", "nsp", "sop")


def _preset(embedding_size: int, sharing: Sharing) -> str:
    if embedding_size == 768 and sharing == "none":
        return "bert-base"
    size = "" if embedding_size == 128 else f"-E{embedding_size}"
    return f"albert-base{size}{_SHARING[sharing]}"


def embedding_size(scale: Scale) -> Grid:
    """Table 3."""
    published = published_table("3")
    sharings: dict[str, Sharing] = {"not shared": "none", "all shared": "all"}
    rows = tuple(
        Row(
            name=f"{words}, E = {papers}",
            label=f"{words}, E = {ours}",
            arm=arm(scale, embedding_size=ours, sharing=sharing),
            preset=_preset(papers, sharing),
        )
        for words, sharing in sharings.items()
        for papers, ours in zip(_PAPERS_E, scale.embedding_sizes, strict=True)
    )
    return Grid(
        table="3",
        title=published.title,
        scale=scale.name,
        rows=rows,
        columns=(COUNTED, *score_columns(scale)),
        published=published,
        compute="equal updates",
        figure="arms",
    )


def sharing(scale: Scale) -> Grid:
    """Table 4."""
    published = published_table("4")
    widths = {768: scale.embedding_sizes[3], 128: scale.embedding_sizes[1]}
    rows = tuple(
        Row(
            name=f"E = {papers}, {what}",
            label=f"E = {ours}, {what}",
            arm=arm(scale, embedding_size=ours, sharing=what),
            preset=_preset(papers, what),
        )
        for papers, ours in widths.items()
        for what in _SHARING
    )
    return Grid(
        table="4",
        title=published.title,
        scale=scale.name,
        rows=rows,
        columns=(COUNTED, *score_columns(scale)),
        published=published,
        compute="equal updates",
        figure="arms",
        notes=published.notes,
    )


def sentence_objective(scale: Scale) -> Grid:
    """Table 5."""
    published = published_table("5")
    return Grid(
        table="5",
        title=published.title,
        scale=scale.name,
        rows=tuple(
            Row(name=what, label=what.upper() if what != "none" else what, arm=arm(scale, objective=what))
            for what in _OBJECTIVES
        ),
        columns=score_columns(scale),
        published=published,
        compute="equal updates",
        figure="arms",
        notes=("A model that learnt no sentence prediction has no head for it here, and is not asked.",),
    )


def more_text(scale: Scale) -> Grid:
    """Table 7."""
    published = published_table("7")
    return Grid(
        table="7",
        title="With additional text, ALBERT-base",
        scale=scale.name,
        rows=(
            Row(name="no additional text", label="the first corpus", arm=arm(scale), preset="albert-base"),
            Row(
                name="additional text",
                label="all corpora",
                arm=arm(scale, additional_text=True),
                preset="albert-base",
            ),
        ),
        columns=score_columns(scale),
        published=published,
        compute="equal updates",
        figure="arms",
        notes=(
            "The first corpus that is given is Wikipedia's and the books' place, all of them are the larger mixture.",
        ),
    )


def _dropout_rows(scale: Scale, steps: int) -> tuple[Row, ...]:
    preset = f"albert-{scale.flagship}"
    return (
        Row(name="with dropout", label="with dropout", arm=flagship(scale, steps, with_dropout=True), preset=preset),
        Row(name="without dropout", label="without dropout", arm=flagship(scale, steps), preset=preset),
    )


def dropout(scale: Scale) -> Grid:
    """Table 8."""
    published = published_table("8")
    return Grid(
        table="8",
        title=f"Without dropout, ALBERT-{scale.flagship} after {scale.long_steps[0]:,} updates",
        scale=scale.name,
        rows=_dropout_rows(scale, scale.long_steps[0]),
        columns=score_columns(scale),
        published=published,
        compute="equal updates",
        figure="arms",
    )


def more_text_curves(scale: Scale) -> Grid:
    """Figure 2a."""
    steps = scale.curve_steps
    return Grid(
        table="figure-2a",
        title="Held-out masked tokens with additional text and without",
        scale=scale.name,
        rows=(
            Row(name="no additional text", label="the first corpus", arm=arm(scale, steps=steps), preset="albert-base"),
            Row(
                name="additional text",
                label="all corpora",
                arm=arm(scale, steps=steps, additional_text=True),
                preset="albert-base",
            ),
        ),
        columns=intrinsic_columns(),
        published=None,
        compute="equal updates",
        figure="curves",
        notes=("The paper's curves are not published as numbers: 66 to 70 % from 350,000 to 550,000 updates.",),
    )


def dropout_curves(scale: Scale) -> Grid:
    """Figure 2b."""
    steps = scale.long_steps[1 if scale.is_the_papers else 0]
    return Grid(
        table="figure-2b",
        title="Held-out masked tokens with dropout and without",
        scale=scale.name,
        rows=_dropout_rows(scale, steps),
        columns=intrinsic_columns(),
        published=None,
        compute="equal updates",
        figure="curves",
        notes=("The paper's curves are not published as numbers: 70 to 72.5 % from 900,000 to 1,500,000 updates.",),
    )


# --------------------------------------------------------------------------------------------------------------------
# The long runs beside other systems: GLUE (Table 9), SQuAD and RACE (Table 10), and the bar chart of RACE.

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


# --------------------------------------------------------------------------------------------------------------------
# Depth and width: layers of ALBERT-large, each begun from the depth before (Table 11), width of three layers (12),
# and whether a wide model need be deep (13).


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


GRIDS: dict[str, Callable[[Scale], Grid]] = {
    "2": overall,
    "3": embedding_size,
    "4": sharing,
    "5": sentence_objective,
    "6": same_time,
    "7": more_text,
    "8": dropout,
    "9": glue,
    "9-ensembles": glue_ensembles,
    "10": reading,
    "11": depth,
    "12": width,
    "13": depth_of_xxlarge,
    "figure-1": layer_movement,
    "figure-2a": more_text_curves,
    "figure-2b": dropout_curves,
    "degradation": degradation,
    "v2": second_release,
    "race": race_chart,
}
"""Name -> the experiment at a scale. Tables 1 and 14 and the table of costs need no run: `FACTS` of the report."""


def grid_of(table: str, scale: Scale) -> Grid:
    """An experiment at a scale.

    Raises:
        UsageError: no such experiment; the closest one is suggested.
    """
    if table not in GRIDS:
        raise UsageError(f"table {table}", "unknown", did_you_mean(table, GRIDS))
    return GRIDS[table](scale)
