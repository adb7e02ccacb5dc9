"""The parts of an experiment: pre-training runs, rows and columns of a table, and how smooth Figure 1 is."""

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from statistics import mean
from typing import Literal

from albert.experiments.layers import LayerSimilarity, cut_passages, measure_layers
from albert.experiments.published import DOWNSTREAM, INTRINSIC, PUBLISHED_TABLES, PublishedRow, PublishedTable
from albert.experiments.quickstart import split_chapters
from albert.experiments.scales import Scale, ScaleName, Size
from albert.model.config import AlbertConfig, Sharing, bert_control
from albert.pretraining.evaluation import MASKED_TOKENS, SENTENCE_TESTS
from albert.pretraining.recipe import PretrainingRecipe
from albert.pretraining.run_identity import recipe_fingerprint
from albert.pretraining.segments import SentenceObjective
from albert.runtime.devices import pick_device
from albert.runtime.json_files import load_json, save_json, to_json
from albert.runtime.progress import progress

# --------------------------------------------------------------------------------------------------------------------
# Figure 1 as figures: how evenly the layers of a model move what comes into them, and whether they come to rest.
#
# The paper (§3.1) reads off its curves that with shared layers "the transitions from layer to layer are much
# smoother", and that they oscillate rather than converge. Here the first is the mean change of the movement from
# one layer to the next, the second the movement of the last layer, both as a share of the mean movement of all
# layers: models whose states are of another length can be compared.

PASSAGES = 200
"""Of the novels that the project carries."""
TOKENS_A_WORD = 2
"""More than a word has on average, so that passages stay within the positions that were trained."""


def kept_layers(model: Path, kept: Path, max_length: int) -> LayerSimilarity:
    """How far each layer of a finished model moves its input: measured once, then read.

    Args:
        model: a model directory.
        kept: the file that holds it.
        max_length: tokens of the longest sequences that it was trained with.

    Raises:
        DamagedData, InvalidConfiguration: what is kept, or the model, cannot be read.
    """
    if not kept.is_file():
        texts = (chapter.text for chapter in split_chapters().held_out)
        passages = cut_passages(texts, PASSAGES, max(1, max_length // TOKENS_A_WORD))
        with progress("Reading", len(passages), "passages") as bar:
            save_json(kept, measure_layers(model, passages, device=pick_device("auto"), advance=bar.advance))
    return load_json(LayerSimilarity, kept)


def unevenness(movement: Sequence[float]) -> float:
    """The mean change from one layer to the next, in percent of the mean; 0 for a single layer.

    Args:
        movement: of every layer, distances or angles, above 0.
    """
    changes = [abs(after - before) for before, after in pairwise(movement)]
    return 100 * mean(changes) / mean(movement) if changes else 0.0


def rest(movement: Sequence[float]) -> float:
    """What is left of the movement in the last layer, in percent of the mean; 0 at a fixed point.

    Args:
        movement: of every layer, above 0 in some.
    """
    return 100 * movement[-1] / mean(movement)


SMOOTHNESS: dict[str, Callable[[LayerSimilarity], float]] = {
    "unevenness of distances": lambda layers: unevenness(layers.distance),
    "unevenness of angles": lambda layers: unevenness(layers.angle),
    "movement of the last layer": lambda layers: rest(layers.distance),
}
"""Column of Figure 1 -> its figure, in percent."""


# --------------------------------------------------------------------------------------------------------------------
# The columns of the tables: what a figure is called in the paper, and where ours comes from.

ColumnKind = Literal["intrinsic", "downstream", "average", "parameters", "speed-up", "hours", "layers"]

AVERAGE = "average"
PARAMETERS = "parameters"
SPEED_UP = "speed-up"
HOURS = "hours"
INTRINSIC_TESTS: dict[str, str] = dict(
    zip(INTRINSIC, (MASKED_TOKENS, SENTENCE_TESTS["nsp"], SENTENCE_TESTS["sop"]), strict=True)
)
"""Column -> what `cross_evaluation` calls the test."""


@dataclass(frozen=True)
class Column:
    """A column of scores in points of 100, or of what needs no run.

    Args:
        name: as the paper's tables as data have it.
        kind: where the figure comes from: held-out text, a task, the mean of the five tasks, a formula, a measurement,
            the movement of layers.
        source: of "intrinsic" the test; of "downstream" the task.
        score: of "downstream" the score of the task.
        published: what the paper's table calls it, where that is something else.
    """

    name: str
    kind: ColumnKind
    source: str = ""
    score: str = ""
    published: str | None = None


def layer_columns() -> tuple[Column, ...]:
    """What is read off Figure 1, in percent."""
    return tuple(Column(name, "layers") for name in SMOOTHNESS)


def intrinsic_columns() -> tuple[Column, ...]:
    """Held-out masked tokens, next sentences and sentence order: at every scale, for every arm."""
    return tuple(Column(name, "intrinsic", test) for name, test in INTRINSIC_TESTS.items())


def task_columns(scale: Scale) -> tuple[Column, ...]:
    """The scores of all tasks that a scale learns."""
    return tuple(
        Column(name, "downstream", task.task, score) for task in scale.tasks for name, score in task.columns.items()
    )


def score_columns(scale: Scale, published: tuple[str, ...] = DOWNSTREAM) -> tuple[Column, ...]:
    """Held-out figures, and the scores of tasks: those that the paper's table has, where the scale learns all of them
    with their average; else all that the scale learns.

    Args:
        scale: what is learnt.
        published: the columns of the paper's table.
    """
    learnt = {column.name: column for column in task_columns(scale)}
    if set(published) <= set(learnt):
        downstream = tuple(learnt[name] for name in published)
        average = (Column(AVERAGE, "average"),) if set(DOWNSTREAM) <= set(published) else ()
        return (*intrinsic_columns(), *downstream, *average)
    return (*intrinsic_columns(), *learnt.values())


# --------------------------------------------------------------------------------------------------------------------
# An arm of an experiment: one pre-training run as a value, under a name and a key.
#
# Every arm of every table is made by `arm`, a variant of its scale's ALBERT. So arms of two tables that ask for the
# same run are equal, and have equal keys: the run is made once.

KEY_LENGTH = 12


@dataclass(frozen=True, kw_only=True)
class Arm:
    """A pre-training run.

    Args:
        name: what sets it apart, in the paper's letters.
        recipe: the whole run, with its seed; the vocabulary is settled when it begins.
        start: the arm whose model it begins as (warm start in depth); None: random weights.
        additional_text: whether it reads all corpora that the user gives, and not the first alone (Table 7).
    """

    name: str
    recipe: PretrainingRecipe
    start: "Arm | None" = None
    additional_text: bool = False

    def seeded(self, seed: int) -> "Arm":
        """The same run, and what it begins as, with another seed."""
        start = None if self.start is None else self.start.seeded(seed)
        return replace(self, recipe=replace(self.recipe, seed=seed), start=start)

    def chain(self) -> Iterator["Arm"]:
        """The arms that must be there before this one, the first of them first, and this one."""
        if self.start is not None:
            yield from self.start.chain()
        yield self


def arm(
    scale: Scale,
    size: Size = "base",
    *,
    bert: bool = False,
    embedding_size: int | None = None,
    sharing: Sharing = "all",
    layers: int | None = None,
    width: int | None = None,
    objective: SentenceObjective = "sop",
    steps: int | None = None,
    dropout: float | None = None,
    dropout_off_at: int | None = None,
    start: Arm | None = None,
    additional_text: bool = False,
) -> Arm:
    """A variant of a scale's ALBERT. What is not said is as in the scale's recipe.

    Args:
        scale: its shapes and its recipe.
        size: which of its four shapes.
        bert: E = H and nothing shared (Table 1).
        embedding_size: E.
        sharing: what layers share.
        layers: L.
        width: H; F and the number of heads go with it.
        objective: of the sentence head.
        steps: updates, with as many of warm-up as the recipe has.
        dropout: in place of the scale's.
        dropout_off_at: the update from which there is none.
        start: what it begins as.
        additional_text: read all corpora.
    """
    model = _shaped(scale.sizes[size], layers, width)
    if embedding_size is not None:
        model = replace(model, embedding_size=embedding_size)
    model = bert_control(model) if bert else replace(model, sharing=sharing)
    if dropout is not None:
        model = replace(model, hidden_dropout_prob=dropout, attention_probs_dropout_prob=dropout)
    recipe = replace(
        scale.recipe,
        model=model,
        sequences=replace(scale.recipe.sequences, objective=objective),
        optimizer=replace(scale.recipe.optimizer, learning_rate=scale.learning_rate(model.hidden_size)),
        schedule=scale.recipe.schedule if steps is None else replace(scale.recipe.schedule, total_steps=steps),
        dropout_changes=() if dropout_off_at is None else ((dropout_off_at, 0.0),),
    )
    made = Arm(name="", recipe=recipe, start=start, additional_text=additional_text)
    return replace(made, name=_name(made, scale, size))


def arm_key(asked: Arm, corpora: Sequence[str]) -> str:
    """What a run is known by: its recipe, what it begins as, and what it reads.

    How it is checkpointed, and on how many processes and with how many workers it runs, is no part of it.

    Args:
        asked: with its seed.
        corpora: fingerprints of the prepared corpora that the user gives, the first one first.
    """
    recipe = asked.recipe
    read = list(corpora) if asked.additional_text else list(corpora[:1])
    identity = {
        "recipe": recipe_fingerprint(recipe),
        "limits": [recipe.max_tokens, recipe.max_minutes],
        "dropout_changes": to_json(recipe.dropout_changes),
        "start": None if asked.start is None else arm_key(asked.start, corpora),
        "corpora": read,
    }
    return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:KEY_LENGTH]


def _shaped(model: AlbertConfig, layers: int | None, width: int | None) -> AlbertConfig:
    if width is not None:
        head = model.hidden_size // model.num_attention_heads
        model = replace(model, hidden_size=width, num_attention_heads=width // head, intermediate_size=4 * width)
    return model if layers is None else replace(model, num_hidden_layers=layers)


def _name(made: Arm, scale: Scale, size: Size) -> str:
    """The size, then what differs from it: `albert-base-E32-not-shared`, `albert-large-L16`, `albert-base-nsp`."""
    usual, recipe = scale.sizes[size], made.recipe
    model = recipe.model
    is_bert = model.embedding_size == model.hidden_size and model.sharing == "none"
    words = [f"{'bert' if is_bert else 'albert'}-{size}"]
    if model.num_hidden_layers != usual.num_hidden_layers:
        words.append(f"L{model.num_hidden_layers}")
    if model.hidden_size != usual.hidden_size:
        words.append(f"H{model.hidden_size}")
    if not is_bert and model.embedding_size != usual.embedding_size:
        words.append(f"E{model.embedding_size}")
    if not is_bert and model.sharing != "all":
        words.append("not-shared" if model.sharing == "none" else f"shared-{model.sharing}")
    if recipe.sequences.objective != "sop":
        words.append(recipe.sequences.objective)
    if recipe.schedule.total_steps != scale.recipe.schedule.total_steps:
        words.append(f"{recipe.schedule.total_steps}-steps")
    if model.hidden_dropout_prob != usual.hidden_dropout_prob:
        words.append(f"dropout-{model.hidden_dropout_prob:g}")
    if recipe.dropout_changes:
        words.append(f"dropout-off-at-{recipe.dropout_changes[0][0]}")
    if made.additional_text:
        words.append("additional-text")
    if made.start is not None:
        words.append(f"from-L{made.start.recipe.model.num_hidden_layers}")
    return "-".join(words)


Compute = Literal["equal updates", "equal time", "as published", "none"]
"""What the arms of a table have in common: the same updates of the same batch and length; about the same time on the
machine that the scale is meant for; what each was published with; or there is nothing to train."""
FigureKind = Literal["layers", "curves", "bars", "depth", "arms"]
"""What is drawn: movement of every layer (Fig. 1), held-out curves of runs (Fig. 2), a bar for each row, scores against
depth or width, scores of the arms side by side."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """A row: the paper's and ours.

    Args:
        name: as the paper's tables as data name it; claims name rows so.
        label: what it is at this scale, where that is another number.
        arm: what is trained for it; None: this scale has no counterpart, or the row is of somebody else's model.
        preset: the architecture that the paper's row is of; None: it is no ALBERT or BERT of the paper.
    """

    name: str
    label: str
    arm: Arm | None
    preset: str | None = None


@dataclass(frozen=True, kw_only=True)
class Grid:
    """An experiment at a scale.

    Args:
        table: its name, as `albert tables run` takes it.
        title: what is compared.
        scale: at which scale.
        rows: in the order of the paper.
        columns: what is told of each row.
        published: the paper's figures; None: a figure without any.
        compute: what is equal between the arms.
        figure: what is drawn of it.
        notes: what a reader should know: of the paper's figures, or of this scale.
    """

    table: str
    title: str
    scale: ScaleName
    rows: tuple[Row, ...]
    columns: tuple[Column, ...]
    published: PublishedTable | None
    compute: Compute
    figure: FigureKind | None = None
    notes: tuple[str, ...] = ()

    def row(self, name: str) -> Row:
        """The row of that name. Raises KeyError when there is none."""
        return {row.name: row for row in self.rows}[name]

    def published_row(self, name: str) -> PublishedRow | None:
        """The paper's row of that name; None where it has none."""
        rows = () if self.published is None else self.published.rows
        return {row.arm: row for row in rows}.get(name)

    def arms(self) -> Iterator[Arm]:
        """What is trained for it, without what some of them begin as; an arm of two rows comes once."""
        seen: list[Arm] = []
        for row in self.rows:
            if row.arm is not None and row.arm not in seen:
                seen.append(row.arm)
                yield row.arm


def published_table(name: str) -> PublishedTable:
    """The paper's figures of a table."""
    return PUBLISHED_TABLES[name]
