"""The paper's tables and figures as experiments: the run of each row, the columns and the claims.

`paper.toml` declares them; `grid_of("5", scale)` is Table 5 at a scale. `variant` makes the runs as
variants of the scale's ALBERT. Tables that need the same run have equal variants with equal keys; it is trained once.
"""

import hashlib
import json
import tomllib
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from albert.pretraining.evaluation import MASKED_TOKENS, SENTENCE_TESTS
from albert.recipes.architecture import ALBERT_BASE, PRESETS, EncoderConfig, Sharing, bert_control
from albert.recipes.finetuning import FinetuningSettings, SelectedBy, TaskRecipe
from albert.recipes.pretraining import PAPER_BASE, PretrainingRecipe, SentenceObjective, scaled_recipe
from albert.runtime.errors import UsageError, did_you_mean
from albert.runtime.json_files import from_json, to_json
from albert.tasks.declared import DeclaredTask
from albert.tasks.submission import find_task
from albert.training.same_run import PRETRAINING_GROWS, PRETRAINING_MAY_CHANGE, record_fingerprint
from experiments.layers import SMOOTHNESS

# --------------------------------------------------------------------------------------------------------------------
# Scales of the experiments (tiny, small, base, paper): model sizes, steps and fine-tuning tasks.


@dataclass(frozen=True, kw_only=True)
class Downstream:
    """A task, its fine-tuning, and the scores that a table shows.

    Args:
        columns: heading of the column -> score of the task.
        recipe: None for the task's own.
        select: the checkpoint that is scored; the paper takes the best on the development set.
    """

    task: str
    columns: Mapping[str, str]
    recipe: TaskRecipe | None = None
    max_train_examples: int | None = None
    select: SelectedBy = "last"

    @property
    def declared(self) -> DeclaredTask:
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
            match_embedding=False,
            null_threshold="dev" if self.select == "best" else "train",
        )


def _downstream(declared: Mapping[str, Any]) -> Downstream:
    """A task of `scales.toml`; with `epochs`, the published recipe is changed for a small model."""
    task = declared["task"]
    recipe = None
    if "epochs" in declared:
        published = find_task(task).recipe
        length = min(declared["max_length"], published.max_length)
        duration: dict[str, Any] = {"steps": None, "examples": None, "epochs": declared["epochs"]}
        recipe = replace(published, learning_rate=3e-4, batch_size=32, max_length=length, **duration)
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
    """Settings of the experiments at one scale; `scales.toml` describes the fields."""

    name: ScaleName
    decides: str
    sizes: Mapping[Size, EncoderConfig]
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
        rates = [rate for least, rate in self.rates if width >= least]
        return rates[-1] if rates else self.recipe.optimizer.learning_rate


def _with_width(config: EncoderConfig, width: int, head: int) -> EncoderConfig:
    """The model with hidden size `width`, F = 4H as in the paper, and heads of size `head`."""
    return replace(config, hidden_size=width, num_attention_heads=width // head, intermediate_size=4 * width)


def _scale(declared: Mapping[str, Any]) -> Scale:
    fields = {name: value for name, value in declared.items() if name not in ("sizes", "recipe", "tasks")}
    sizes: dict[Size, EncoderConfig]
    if "sizes" in declared:
        V = declared["sizes"]["vocabulary"]
        E = declared["sizes"]["embeddings"]
        head = declared["sizes"]["head"]
        base = replace(ALBERT_BASE, vocab_size=V, embedding_size=E)
        sizes = {}
        for size in SIZE_NAMES:
            layers, width = declared["sizes"][size]
            sizes[size] = _with_width(replace(base, num_hidden_layers=layers), width, head)
        recipe = from_json(PretrainingRecipe, {**declared["recipe"], "model": to_json(sizes["base"])}, "scales.toml")
    else:
        rate = declared["dropout"]
        dropout = {"hidden_dropout_prob": rate, "attention_probs_dropout_prob": rate}
        sizes = {size: replace(PRESETS[f"albert-{size}"], **dropout) for size in SIZE_NAMES}
        changed = {name: value for name, value in declared["recipe"].items() if name != "batch_size"}
        recipe = scaled_recipe(PAPER_BASE, declared["recipe"].get("batch_size", PAPER_BASE.batch_size))
        recipe = replace(recipe, model=sizes["base"], **changed)
    tasks = tuple(_downstream(task) for group in declared["tasks"] for task in _DECLARED_SCALES["tasks"][group])
    return Scale(sizes=sizes, recipe=recipe, tasks=tasks, **fields)


_DECLARED_SCALES = tomllib.loads(Path(__file__).with_name("scales.toml").read_text(encoding="utf-8"))
SCALES: dict[ScaleName, Scale] = {declared["name"]: _scale(declared) for declared in _DECLARED_SCALES["scale"]}
TINY, SMALL, BASE, PAPER = SCALES.values()


# --------------------------------------------------------------------------------------------------------------------
# Claims as contrasts between rows. `experiments.results` tests them on the first of their columns that a scale
# has: the paper's average if all five tasks are run, else held-out scores or a related task.

Relation = Literal["higher", "not higher", "alike"]
"""The first row is better than the second; not better by the smallest difference that counts; equal within it."""


@dataclass(frozen=True)
class Contrast:
    """Two rows of a table to compare, or a row and the majority baseline, which is called `nothing`."""

    first: str
    relation: Relation
    second: str | None = None
    nothing: str = "the majority baseline"


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A claim that the paper's table supports.

    Args:
        columns: those that show it, the paper's first.
        smallest: the smallest difference that counts, in points.
        equal: a column in which the rows must be equal within 10 % to be comparable (Table 6: hours).
    """

    sentence: str
    contrasts: Sequence[Contrast]
    columns: Sequence[str] = ("average", "masked tokens")
    smallest: float = 0.5
    equal: str | None = None

    def column(self, available: Set[str]) -> str | None:
        """The first of its columns that is available, None if there is none."""
        return next((name for name in self.columns if name in available), None)


_DECLARED = tomllib.loads(Path(__file__).with_name("paper.toml").read_text(encoding="utf-8"))
GRIDS: dict[str, dict[str, Any]] = {table["name"]: table for table in _DECLARED["table"]}
"""Declared tables by name."""
GROUPS: dict[str, tuple[str, ...]] = {name: tuple(columns) for name, columns in _DECLARED["groups"].items()}
TABLE_14: dict[str, dict[str, float]] = _DECLARED["finetuning"]
"""Table 14 by name of the task, in the paper's order."""
COSTS: list[dict[str, Any]] = _DECLARED["cost"]
"""Published costs of pre-training."""
TEXT_TABLES: dict[str, dict[str, Any]] = _DECLARED["facts"]
"""Title, head and notes of the tables that need no run."""
DOWNSTREAM = GROUPS["downstream"]
INTRINSIC = GROUPS["intrinsic"]
"""The columns of the paper's ablations, and the scores before fine-tuning."""

# --------------------------------------------------------------------------------------------------------------------
# A variant of an experiment: one pre-training run with its name and key.

KEY_LENGTH = 12


@dataclass(frozen=True, kw_only=True)
class Variant:
    """A pre-training run.

    Args:
        recipe: with its seed; the vocabulary size is set when it begins.
        start: the variant that initialises its weights (warm start in depth); None for random weights.
        additional_text: whether it reads all corpora instead of the first (Table 7).
    """

    name: str
    recipe: PretrainingRecipe
    start: "Variant | None" = None
    additional_text: bool = False

    def seeded(self, seed: int) -> "Variant":
        """The same run and its starts with another seed."""
        start = None if self.start is None else self.start.seeded(seed)
        return replace(self, recipe=replace(self.recipe, seed=seed), start=start)

    def chain(self) -> Iterator["Variant"]:
        """The variants that it starts from, in the order of training, and itself."""
        if self.start is not None:
            yield from self.start.chain()
        yield self


def variant(
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
    start: Variant | None = None,
    additional_text: bool = False,
) -> Variant:
    """A variant of a scale's ALBERT; defaults are those of the scale's recipe.

    Args:
        bert: E = H, no sharing (Table 1).
        width: H; F and the number of heads follow.
        steps: updates; the warm-up stays.
        dropout_off_at: the update from which dropout is 0.
    """
    default = scale.sizes[size]
    model = default
    if width is not None:
        model = _with_width(model, width, model.hidden_size // model.num_attention_heads)
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
    name = _name(recipe, size, default, scale)
    name += "-additional-text" if additional_text else ""
    name += "" if start is None else f"-from-L{start.recipe.model.num_hidden_layers}"
    return Variant(name=name, recipe=recipe, start=start, additional_text=additional_text)


def _name(recipe: PretrainingRecipe, size: Size, default: EncoderConfig, scale: Scale) -> str:
    """The size and the differences from it: `albert-base-E32-not-shared`, `albert-large-L16`, `albert-base-nsp`."""
    model = recipe.model
    is_bert = model.embedding_size == model.hidden_size and model.sharing == "none"
    shared = "not-shared" if model.sharing == "none" else f"shared-{model.sharing}"
    parts = {
        f"{'bert' if is_bert else 'albert'}-{size}": True,
        f"L{model.num_hidden_layers}": model.num_hidden_layers != default.num_hidden_layers,
        f"H{model.hidden_size}": model.hidden_size != default.hidden_size,
        f"E{model.embedding_size}": not is_bert and model.embedding_size != default.embedding_size,
        shared: not is_bert and model.sharing != "all",
        recipe.sequences.objective: recipe.sequences.objective != "sop",
        f"{recipe.schedule.total_steps}-steps": recipe.schedule.total_steps != scale.recipe.schedule.total_steps,
        f"dropout-{model.hidden_dropout_prob:g}": model.hidden_dropout_prob != default.hidden_dropout_prob,
        f"dropout-off-at-{recipe.dropout_changes[0][0] if recipe.dropout_changes else 0}": bool(recipe.dropout_changes),
    }
    return "-".join(part for part, differs in parts.items() if differs)


def variant_key(variant: Variant, corpora: Sequence[str]) -> str:
    """The key of a run: a hash of its recipe, its start and its corpora, without checkpointing, processes and workers.

    Args:
        corpora: fingerprints of all prepared corpora.
    """
    recipe = variant.recipe
    left_out = {*PRETRAINING_MAY_CHANGE, *PRETRAINING_GROWS} - {"model.vocab_size"}
    identity = {
        "recipe": record_fingerprint(to_json(recipe), left_out),
        "limits": [recipe.max_tokens, recipe.max_minutes],
        "dropout_changes": to_json(recipe.dropout_changes),
        "start": None if variant.start is None else variant_key(variant.start, corpora),
        "corpora": list(corpora) if variant.additional_text else list(corpora[:1]),
    }
    return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:KEY_LENGTH]


# --------------------------------------------------------------------------------------------------------------------
# Columns, rows and grids.

ColumnKind = Literal["intrinsic", "downstream", "average", "parameters", "speed-up", "hours", "layers"]
Compute = Literal["equal updates", "equal time", "as published", "none"]
"""What the variants of a table have in common: updates, batch and length; training time on the
intended machine; nothing, as each was published; or there is nothing to train."""
FigureKind = Literal["layers", "curves", "bars", "depth", "variants"]
"""Movement of every layer (Fig. 1), curves of runs (Fig. 2), a bar for each row, scores against depth or width, scores
of the variants side by side."""


@dataclass(frozen=True)
class Column:
    """A column of a table.

    Args:
        kind: source of the figures: held-out text, a task, the mean of the five tasks, a formula, a measurement, the
            movement of layers.
        source: for "intrinsic" the name of the test in the held-out evaluation; for "downstream" the task.
        published: the column's name in the paper, if it differs.
    """

    name: str
    kind: ColumnKind
    source: str = ""
    score: str = ""
    published: str | None = None


@dataclass(frozen=True, kw_only=True)
class Row:
    """A row of a table: the paper's scores and our run.

    Args:
        name: the paper's, which claims use.
        label: the name at this scale.
        variant: None if this scale has no counterpart, or the row is a model of others.
        preset: the architecture of the paper's row; None if it is no ALBERT or BERT of the paper.
        scores: the paper's, by column, as printed.
    """

    name: str
    label: str
    variant: Variant | None
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
        """The row with this name; KeyError if there is none."""
        return {row.name: row for row in self.rows}[name]

    def variants(self) -> Iterator[Variant]:
        """The variants of the rows, each once."""
        yield from dict.fromkeys(row.variant for row in self.rows if row.variant is not None)

    def names(self) -> dict[str, None]:
        """The names of all scores of the paper's table, in its order."""
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
    above: Variant | None = None
    for row in declared["rows"]:
        rows.append(_row(row, declared.get("paper", ()), scale, above, run=None if lacking else row.get("run")))
        above = rows[-1].variant or above
    compute = declared["compute"]
    if lacking:
        compute = "none"
    elif scale.name == "paper" and compute == "equal time":
        compute = "as published"
    return Grid(
        table=table,
        title=declared["title"].format_map(vars(scale)),
        scale=scale.name,
        rows=tuple(rows),
        columns=tuple(replace(column, published=printed.get(column.name)) for column in columns),
        compute=compute,
        figure=declared.get("figure"),
        notes=(*declared.get("notes", ()), *(f"{task.upper()} is not run at this scale." for task in lacking)),
        claims=tuple(
            Claim(**claim | {"contrasts": [Contrast(*contrast) for contrast in claim["contrasts"]]})
            for claim in declared.get("claims", ())
        ),
    )


def _columns(name: str, scale: Scale) -> list[Column]:
    """The columns for an entry of `columns`: the named tasks with the paper's average if the scale has all of them,
    else all tasks of the scale."""
    available = {
        column: Column(column, "downstream", task.task, score)
        for task in scale.tasks
        for column, score in task.columns.items()
    }
    tests = (MASKED_TOKENS, SENTENCE_TESTS["nsp"], SENTENCE_TESTS["sop"])
    held_out = [Column(column, "intrinsic", test) for column, test in zip(INTRINSIC, tests, strict=True)]
    match name:
        case "parameters" | "speed-up" | "hours":
            return [Column(name, name)]
        case "layers":
            return [Column(column, "layers") for column in SMOOTHNESS]
        case "intrinsic":
            return held_out
    if name.startswith("only "):
        return [column for column in available.values() if column.name == name.removeprefix("only ")]
    tasks = DOWNSTREAM if name == "scores" else GROUPS.get(name, (name,))
    if not set(tasks) <= available.keys():
        return [*held_out, *available.values()]
    average = [Column("average", "average")] if set(DOWNSTREAM) <= set(tasks) else []
    return [*held_out, *(available[task] for task in tasks), *average]


def _row(
    declared: Mapping[str, Any],
    paper: Sequence[str],
    scale: Scale,
    above: Variant | None,
    run: Mapping[str, Any] | None,
) -> Row:
    """A declared row; `paper` names its figures, `above` is the variant of the row above, `run` has its settings."""
    row_variant, settings = _variant_of(run, scale, above)
    label = declared.get("label", declared["name"])
    label = "not run" if row_variant is None and "{" in label else label.format_map(vars(scale) | settings)
    names = [name for group in paper for name in GROUPS.get(group, (group,))]
    return Row(
        name=declared["name"],
        label="1 layer" if label == "1 layers" else label,
        variant=row_variant,
        preset=declared["preset"].format_map(vars(scale)) if "preset" in declared else None,
        scores={name: score for name, score in zip(names, declared.get("figures", ()), strict=True) if score != ""},
    )


def _variant_of(
    run: Mapping[str, Any] | None, scale: Scale, above: Variant | None
) -> tuple[Variant | None, dict[str, Any]]:
    """The variant of a row's `run` at a scale (None if it has none), and its settings with the scale's numbers."""
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
            settings["start"] = variant(scale, "xxlarge", layers=scale.start_of_xxlarge)
    return variant(scale, **settings), settings


def _field(scale: Scale, path: str) -> int | None:
    """A number of a scale: "curve_steps", "long_steps.1" or "depths.12"; None if it has none."""
    name, _, key = path.partition(".")
    value = getattr(scale, name)
    if isinstance(value, Mapping):
        return value.get(key)
    return value[int(key)] if key else value
