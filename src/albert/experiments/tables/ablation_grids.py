"""One choice at a time: E (Table 3), sharing (4), sentence prediction (5), more text (7), dropout (8), Figure 2."""

from albert.experiments.tables.arms import arm
from albert.experiments.tables.columns import intrinsic_columns, score_columns
from albert.experiments.tables.grid import Grid, Row, published_table
from albert.experiments.tables.overall_grids import COUNTED
from albert.experiments.tables.scales import Scale
from albert.experiments.tables.shared_arms import flagship
from albert.model.config import Sharing
from albert.pretraining.sentence_order import SentenceObjective

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
