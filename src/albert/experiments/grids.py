"""The paper's tables and figures as experiments: what is trained for each row, what is scored, what is claimed.

`paper.toml` declares them, and `grid_of("5", scale)` is Table 5 at a scale. Every run of every table is made by `arm`,
a variant of its scale's ALBERT, so tables that need the same run have equal arms with equal keys: it is made once.
"""

import hashlib
import json
import tomllib
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from importlib.resources import files
from typing import Any, Literal

from albert.experiments.layers import SMOOTHNESS
from albert.finetuning.run_record import FinetuningSettings, SelectedBy
from albert.model.config import ALBERT_BASE, PRESETS, AlbertConfig, Sharing, bert_control
from albert.pretraining.evaluation import MASKED_TOKENS, SENTENCE_TESTS
from albert.pretraining.recipe import PAPER_BASE, PretrainingRecipe, scaled_recipe
from albert.pretraining.run_identity import recipe_fingerprint
from albert.pretraining.segments import SentenceObjective
from albert.runtime.errors import UsageError, did_you_mean
from albert.runtime.json_files import from_json, to_json
from albert.tasks.submission import find_task
from albert.tasks.task import Task, TaskRecipe

# --------------------------------------------------------------------------------------------------------------------
# Scales of the experiments (tiny, small, base, paper): model sizes, steps, and the tasks that are learnt after
# pre-training, and how: the paper's five, GLUE, or what small models can do.


@dataclass(frozen=True, kw_only=True)
class Downstream:
    """A task, how a model is fine-tuned on it, and which of its scores a table shows.

    Args:
        columns: the scores that are shown: heading of the column -> score of the task.
        select: which model is scored; the paper takes the best on the development set.
    """

    task: str
    columns: Mapping[str, str]
    recipe: TaskRecipe | None = None
    max_train_examples: int | None = None
    select: SelectedBy = "last"

    @property
    def declared(self) -> Task:
        return find_task(self.task)

    @property
    def full_recipe(self) -> TaskRecipe:
        return self.declared.recipe if self.recipe is None else self.recipe

    def settings(self, seed: int) -> FinetuningSettings:
        return FinetuningSettings(
            seed=seed,
            select=self.select,
            max_train_examples=self.max_train_examples,
            encode_pairs="together",  # as in the paper, at every scale
            null_threshold="dev" if self.select == "best" else "train",
        )


def _downstream(declared: Mapping[str, Any]) -> Downstream:
    """A task as `scales.toml` has it. With `epochs` it is for a small model: the published batch and dropout, a rate as
    its width wants it, fewer tokens."""
    task, recipe = declared["task"], None
    if "epochs" in declared:
        published = find_task(task).recipe
        length = min(declared["max_length"], published.max_length)
        lasting: dict[str, Any] = {"steps": None, "examples": None, "epochs": declared["epochs"], "max_length": length}
        recipe = replace(published, learning_rate=3e-4, batch_size=32, **lasting)
    return Downstream(
        task=task,
        columns=declared.get("columns") or {task: declared["score"]},
        recipe=recipe,
        max_train_examples=declared.get("max_train_examples"),
        select="last" if recipe else "best",
    )


ScaleName = Literal["tiny", "small", "base", "paper"]
Size = Literal["base", "large", "xlarge", "xxlarge"]
SIZE_NAMES: tuple[Size, ...] = ("base", "large", "xlarge", "xxlarge")


@dataclass(frozen=True, kw_only=True)
class Scale:
    """What the experiments are made of at one size; `scales.toml` says what each field means."""

    name: ScaleName
    decides: str
    sizes: Mapping[Size, AlbertConfig]
    recipe: PretrainingRecipe
    embedding_sizes: Sequence[int]
    depths: Mapping[str, int]
    widths: Mapping[str, int]
    depth_of_widths: int
    depths_of_xxlarge: Mapping[str, int]
    flagship: Size
    long_steps: Sequence[int]
    same_time: Sequence[int]
    second_release_steps: Mapping[Size, int]
    dropout_curve_steps: int
    rates: Sequence[Sequence[float]] = ()
    curve_steps: int | None = None
    flagship_reads_all: bool = False
    dropout: float = 0.0
    dropout_off_from: float = 0.0
    start_of_xxlarge: int | None = None
    seeds: Sequence[int] = (0, 1)
    task_seeds: Sequence[int] = ()
    tasks: Sequence[Downstream] = ()
    held_out_sequences: int = 10_000

    def learning_rate(self, width: int) -> float:
        return next(
            (rate for least, rate in reversed(self.rates) if width >= least), self.recipe.optimizer.learning_rate
        )


def _of_width(like: AlbertConfig, width: int, head: int) -> AlbertConfig:
    """Another width; F = 4H as in the paper, heads of `head`."""
    return replace(like, hidden_size=width, num_attention_heads=width // head, intermediate_size=4 * width)


def _scale(declared: Mapping[str, Any]) -> Scale:
    plain = {name: value for name, value in declared.items() if name not in ("sizes", "recipe", "tasks")}
    sizes: dict[Size, AlbertConfig]
    if "sizes" in declared:
        V, E, head = declared["sizes"]["vocabulary"], declared["sizes"]["embeddings"], declared["sizes"]["head"]
        like, sizes = replace(ALBERT_BASE, vocab_size=V, embedding_size=E), {}
        for size in SIZE_NAMES:
            layers, width = declared["sizes"][size]
            sizes[size] = _of_width(replace(like, num_hidden_layers=layers), width, head)
        recipe = from_json(PretrainingRecipe, {**declared["recipe"], "model": to_json(sizes["base"])}, "scales.toml")
    else:
        rate = declared["dropout"]
        dropout = {"hidden_dropout_prob": rate, "attention_probs_dropout_prob": rate}
        sizes = {size: replace(PRESETS[f"albert-{size}"], **dropout) for size in SIZE_NAMES}
        changed = {name: value for name, value in declared["recipe"].items() if name != "batch_size"}
        like = scaled_recipe(PAPER_BASE, declared["recipe"].get("batch_size", PAPER_BASE.batch_size))
        recipe = replace(like, model=sizes["base"], **changed)
    tasks = tuple(_downstream(one) for group in declared["tasks"] for one in _DECLARED_SCALES["tasks"][group])
    return Scale(sizes=sizes, recipe=recipe, tasks=tasks, **plain)


_DECLARED_SCALES = tomllib.loads((files("albert.experiments") / "scales.toml").read_text(encoding="utf-8"))
SCALES: dict[ScaleName, Scale] = {declared["name"]: _scale(declared) for declared in _DECLARED_SCALES["scale"]}
TINY, SMALL, BASE, PAPER = SCALES.values()


# --------------------------------------------------------------------------------------------------------------------
# Claims as contrasts between rows, judged in `albert.experiments.results` on the first of their columns that a scale
# has: the paper's average where all five tasks are learnt, else held-out figures or a task that asks for the same.

Relation = Literal["higher", "not higher", "alike"]
"""What the first row is beside the second: better; no better by as much as counts; within as much as counts."""


@dataclass(frozen=True)
class Contrast:
    """Two rows of a table to compare; without a second one, a row and a constant answer, whose name is `nothing`."""

    first: str
    relation: Relation
    second: str | None = None
    nothing: str = "the constant answer"


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A sentence that the paper's table bears out.

    Args:
        columns: where it can be seen, the paper's own place first.
        smallest: the smallest difference, in points, that counts as one.
        equal: a column in which the rows must agree to a tenth for the comparison to be one (Table 6: hours).
    """

    sentence: str
    contrasts: Sequence[Contrast]
    columns: Sequence[str] = ("average", "masked tokens")
    smallest: float = 0.5
    equal: str | None = None

    def column(self, available: Set[str]) -> str | None:
        """The column that it is judged on; None: this scale has none of them."""
        return next((name for name in self.columns if name in available), None)


_DECLARED = tomllib.loads((files("albert.experiments") / "paper.toml").read_text(encoding="utf-8"))
GRIDS: dict[str, dict[str, Any]] = {table["name"]: table for table in _DECLARED["table"]}
"""Name -> the declared experiment."""
GROUPS: dict[str, tuple[str, ...]] = {name: tuple(columns) for name, columns in _DECLARED["groups"].items()}
TABLE_14: dict[str, dict[str, float]] = _DECLARED["finetuning"]
"""Table 14 by the name that a task has here, in the paper's order."""
COSTS: list[dict[str, Any]] = _DECLARED["cost"]
"""What pre-training cost others."""
TEXT_TABLES: dict[str, dict[str, Any]] = _DECLARED["facts"]
"""Title, head and notes of the tables that need no run."""
DOWNSTREAM, INTRINSIC = GROUPS["downstream"], GROUPS["intrinsic"]
"""The columns of the paper's ablations, and what is asked of a model before any fine-tuning."""

# --------------------------------------------------------------------------------------------------------------------
# An arm of an experiment: one pre-training run as a value, under a name and a key.

KEY_LENGTH = 12


@dataclass(frozen=True, kw_only=True)
class Arm:
    """A pre-training run.

    Args:
        recipe: the whole run, with its seed; the vocabulary is resolved when it begins.
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
    """A variant of a scale's ALBERT. What is not given is as in the scale's recipe.

    Args:
        bert: E = H and nothing shared (Table 1).
        width: H; F and the number of heads go with it.
        steps: updates, with as many of warm-up as the recipe has.
        dropout_off_at: the update from which there is none.
    """
    usual = model = scale.sizes[size]
    if width is not None:
        model = _of_width(model, width, model.hidden_size // model.num_attention_heads)
    changed = {"num_hidden_layers": layers, "embedding_size": embedding_size}
    changed |= {"hidden_dropout_prob": dropout, "attention_probs_dropout_prob": dropout}
    model = replace(model, sharing=sharing, **{name: value for name, value in changed.items() if value is not None})
    model = bert_control(model) if bert else model
    recipe = replace(
        scale.recipe,
        model=model,
        sequences=replace(scale.recipe.sequences, objective=objective),
        optimizer=replace(scale.recipe.optimizer, learning_rate=scale.learning_rate(model.hidden_size)),
        schedule=scale.recipe.schedule if steps is None else replace(scale.recipe.schedule, total_steps=steps),
        dropout_changes=() if dropout_off_at is None else ((dropout_off_at, 0.0),),
    )
    name = _name(recipe, size, usual, scale)
    name += "-additional-text" if additional_text else ""
    name += "" if start is None else f"-from-L{start.recipe.model.num_hidden_layers}"
    return Arm(name=name, recipe=recipe, start=start, additional_text=additional_text)


def _name(recipe: PretrainingRecipe, size: Size, usual: AlbertConfig, scale: Scale) -> str:
    """The size, then what differs from it: `albert-base-E32-not-shared`, `albert-large-L16`, `albert-base-nsp`."""
    model = recipe.model
    is_bert = model.embedding_size == model.hidden_size and model.sharing == "none"
    shared = "not-shared" if model.sharing == "none" else f"shared-{model.sharing}"
    parts = {
        f"{'bert' if is_bert else 'albert'}-{size}": True,
        f"L{model.num_hidden_layers}": model.num_hidden_layers != usual.num_hidden_layers,
        f"H{model.hidden_size}": model.hidden_size != usual.hidden_size,
        f"E{model.embedding_size}": not is_bert and model.embedding_size != usual.embedding_size,
        shared: not is_bert and model.sharing != "all",
        recipe.sequences.objective: recipe.sequences.objective != "sop",
        f"{recipe.schedule.total_steps}-steps": recipe.schedule.total_steps != scale.recipe.schedule.total_steps,
        f"dropout-{model.hidden_dropout_prob:g}": model.hidden_dropout_prob != usual.hidden_dropout_prob,
        f"dropout-off-at-{recipe.dropout_changes[0][0] if recipe.dropout_changes else 0}": bool(recipe.dropout_changes),
    }
    return "-".join(part for part, differs in parts.items() if differs)


def arm_key(asked: Arm, corpora: Sequence[str]) -> str:
    """What a run is known by: its recipe, what it begins as, and what it reads.

    How it is checkpointed, and on how many processes and with how many workers it runs, is no part of it.

    Args:
        corpora: fingerprints of the prepared corpora that the user gives, the first one first.
    """
    recipe = asked.recipe
    identity = {
        "recipe": recipe_fingerprint(recipe),
        "limits": [recipe.max_tokens, recipe.max_minutes],
        "dropout_changes": to_json(recipe.dropout_changes),
        "start": None if asked.start is None else arm_key(asked.start, corpora),
        "corpora": list(corpora) if asked.additional_text else list(corpora[:1]),
    }
    return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:KEY_LENGTH]


# --------------------------------------------------------------------------------------------------------------------
# Columns, rows and grids.

ColumnKind = Literal["intrinsic", "downstream", "average", "parameters", "speed-up", "hours", "layers"]
Compute = Literal["equal updates", "equal time", "as published", "none"]
"""What the arms of a table have in common: the same updates of the same batch and length; about the same time on the
machine that the scale is meant for; what each was published with; or there is nothing to train."""
FigureKind = Literal["layers", "curves", "bars", "depth", "arms"]
"""What is drawn: movement of every layer (Fig. 1), held-out curves of runs (Fig. 2), a bar for each row, scores against
depth or width, scores of the arms side by side."""


@dataclass(frozen=True)
class Column:
    """A column of scores in points of 100, or of what needs no run.

    Args:
        kind: where the figure comes from: held-out text, a task, the mean of the five tasks, a formula, a measurement,
            the movement of layers.
        source: of "intrinsic" the test, as the held-out evaluation names it; of "downstream" the task.
        published: what the paper's table calls it, where that is something else.
    """

    name: str
    kind: ColumnKind
    source: str = ""
    score: str = ""
    published: str | None = None


@dataclass(frozen=True, kw_only=True)
class Row:
    """A row: the paper's and ours.

    Args:
        name: the paper's; claims name rows so.
        label: what it is at this scale, where that is another number.
        arm: what is trained for it; None: this scale has no counterpart, or the row is of somebody else's model.
        preset: the architecture of the paper's row; None: it is no ALBERT or BERT of the paper.
        scores: the paper's, by column, with its average as it is printed; what the paper leaves empty is absent.
    """

    name: str
    label: str
    arm: Arm | None
    preset: str | None
    scores: Mapping[str, float]


@dataclass(frozen=True, kw_only=True)
class Grid:
    """An experiment at a scale."""

    table: str
    title: str
    scale: ScaleName
    rows: tuple[Row, ...]
    columns: tuple[Column, ...]
    compute: Compute
    figure: FigureKind | None
    notes: tuple[str, ...]
    claims: tuple[Claim, ...]

    def row(self, name: str) -> Row:
        """The row of that name. Raises KeyError when there is none."""
        return {row.name: row for row in self.rows}[name]

    def arms(self) -> Iterator[Arm]:
        """What is trained for it, without what some of them begin as; an arm of two rows comes once."""
        yield from dict.fromkeys(row.arm for row in self.rows if row.arm is not None)

    def names(self) -> dict[str, None]:
        """The names of all scores that the paper's table has, in its order."""
        return dict.fromkeys(name for row in self.rows for name in row.scores)


# --------------------------------------------------------------------------------------------------------------------
# A declared table at a scale.


def grid_of(table: str, scale: Scale) -> Grid:
    """An experiment at a scale."""
    if table not in GRIDS:
        raise UsageError(f"table {table}", "unknown", did_you_mean(table, GRIDS))
    declared = GRIDS[table]
    columns = [column for name in declared["columns"] for column in _columns(name, scale)]
    printed = declared.get("printed", {})
    lacking = [] if columns else [name.removeprefix("only ") for name in declared["columns"]]
    rows: list[Row] = []
    above: Arm | None = None
    for row in declared["rows"]:
        rows.append(_row(row, declared.get("paper", ()), scale, above, run=None if lacking else row.get("run")))
        above = rows[-1].arm or above
    as_published = scale.name == "paper" and declared["compute"] == "equal time"
    return Grid(
        table=table,
        title=declared["title"].format_map(vars(scale)),
        scale=scale.name,
        rows=tuple(rows),
        columns=tuple(replace(column, published=printed.get(column.name)) for column in columns),
        compute="none" if lacking else "as published" if as_published else declared["compute"],
        figure=declared.get("figure"),
        notes=(*declared.get("notes", ()), *(f"{task.upper()} is not learnt at this scale." for task in lacking)),
        claims=tuple(
            Claim(**claim | {"contrasts": [Contrast(*one) for one in claim["contrasts"]]})
            for claim in declared.get("claims", ())
        ),
    )


def _columns(name: str, scale: Scale) -> list[Column]:
    """What an entry of `columns` stands for at a scale: of several tasks those that are named, where the scale learns
    all of them, with the paper's average; else all that it learns."""
    learnt = {
        column: Column(column, "downstream", task.task, score)
        for task in scale.tasks
        for column, score in task.columns.items()
    }
    tests = (MASKED_TOKENS, SENTENCE_TESTS["nsp"], SENTENCE_TESTS["sop"])
    held_out = [Column(each, "intrinsic", test) for each, test in zip(INTRINSIC, tests, strict=True)]
    match name:
        case "parameters" | "speed-up" | "hours":
            return [Column(name, name)]
        case "layers":
            return [Column(each, "layers") for each in SMOOTHNESS]
        case "intrinsic":
            return held_out
    if name.startswith("only "):
        return [column for column in learnt.values() if column.name == name.removeprefix("only ")]
    tasks = DOWNSTREAM if name == "scores" else GROUPS.get(name, (name,))
    if not set(tasks) <= learnt.keys():
        return [*held_out, *learnt.values()]
    average = [Column("average", "average")] if set(DOWNSTREAM) <= set(tasks) else []
    return [*held_out, *(learnt[task] for task in tasks), *average]


def _row(
    declared: Mapping[str, Any], paper: Sequence[str], scale: Scale, above: Arm | None, run: Mapping[str, Any] | None
) -> Row:
    """A declared row.

    Args:
        paper: what its figures are.
        run: what is trained for it; None: nothing.
    """
    made, settings = _arm(run, scale, above)
    label = declared.get("label", declared["name"])
    label = "not run" if made is None and "{" in label else label.format_map(vars(scale) | settings)
    names = [name for group in paper for name in GROUPS.get(group, (group,))]
    return Row(
        name=declared["name"],
        label="1 layer" if label == "1 layers" else label,
        arm=made,
        preset=declared["preset"].format_map(vars(scale)) if "preset" in declared else None,
        scores={name: each for name, each in zip(names, declared.get("figures", ()), strict=True) if each != ""},
    )


def _arm(run: Mapping[str, Any] | None, scale: Scale, above: Arm | None) -> tuple[Arm | None, dict[str, Any]]:
    """What a row's `run` is at a scale, and its settings with the scale's numbers; None: this scale has none."""
    if run is None or run.get("only", scale.flagship) != scale.flagship:
        return None, {}
    settings = {name: value for name, value in run.items() if name != "only"}
    if settings.get("size") == "flagship":
        off_at = round(scale.dropout_off_from * scale.long_steps[0]) or None
        settings |= {"size": scale.flagship, "start": "shallower", "additional_text": scale.flagship_reads_all}
        settings |= {} if "dropout" in settings else {"dropout_off_at": off_at}
    for name in {"embedding_size", "layers", "width", "steps"} & settings.keys():
        settings[name] = _field(scale, settings[name])
        if settings[name] is None and name != "steps":
            return None, {}
    match settings.pop("start", None):
        case "row above":
            settings["start"] = above
        case "shallower" if settings["size"] == "xxlarge" and scale.start_of_xxlarge is not None:
            settings["start"] = arm(scale, "xxlarge", layers=scale.start_of_xxlarge)
    return arm(scale, **settings), settings


def _field(scale: Scale, path: str) -> int | None:
    """A number of a scale: "curve_steps", "long_steps.1" or "depths.12"; None: the scale has none."""
    name, _, key = path.partition(".")
    value = getattr(scale, name)
    return value.get(key) if isinstance(value, Mapping) else value[int(key)] if key else value
