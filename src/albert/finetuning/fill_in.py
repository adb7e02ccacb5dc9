"""The recipe of a fine-tuning run: what a call leaves open is filled in here, once, by `fill_in`.

A value is the one that was given, else that of the run to resume, else one that fits the model and the rows. The
learning rate of a run is decided here and nowhere else: `rate_for_width` has its peak, `Recipe.learning_rate` the rate
of each update. A published task keeps its published recipe (Lan et al. 2019, A.4); only the learning rate is adapted
to models narrower than the published ones. Your table has no published recipe: its epochs are chosen so that there
are enough updates."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

from albert.columns.read import TableSource
from albert.recipes.architecture import FULL_WIDTH, EncoderConfig
from albert.recipes.finetuning import FinetuningSettings, PairEncoding, RecipeChanges, TaskRecipe
from albert.recipes.optimizer import OptimizerRecipe, warmup_then_linear
from albert.runtime.environment import Precision
from albert.runtime.errors import InvalidConfiguration
from albert.runtime.json_files import from_json, read_versioned, to_json
from albert.tasks.declared import DeclaredTask
from albert.tasks.examples import Example
from albert.tasks.submission import DECLARED
from albert.tasks.task import LinearTask
from albert.training.logging import TrainingPlan
from albert.training.run_folder import RunFolder

RecipeLike = TaskRecipe | RecipeChanges | None
"""A complete recipe, changes to the default recipe, or None for the default."""
RATE_EXPONENT = 2.3
MAX_RATE_FACTOR = 25.0
MAX_RATE = 1e-3
MIN_UPDATES = 750
"""For your table; the paper has 800 for its smallest tasks (A.4). Measured: "Small tables" in
results/finetuning.md."""
MAX_EPOCHS = 50.0
"""For your table; as many as the paper has for its smallest task, 635 rows."""
SMALL_TABLE = 5000
SMALL_BATCH = 16
"""A table with fewer rows is trained with this batch size."""
UPDATES_PER_CLASS = 24
"""For your table: many classes need more updates, as each is seen less often."""
PATIENCE = 5
EVALUATIONS = 10
"""For your table: the largest number of evaluations; after `PATIENCE` of them without a gain the run ends."""
EVALUATION_SHARE = 0.2
"""For your table: evaluations take at most about this share of the time of the updates."""
MIN_SELECTING_ROWS = 100
"""With fewer development rows, which evaluation is best says little: the last model is kept."""
BY_DEFAULT = "by_default"
"""The key of recipe.json with the names of the fields that were not set explicitly."""
_LEAVE_OUT = "leave it out"
_DURATION = {"epochs", "steps"}
_ALL = frozenset(field.name for field in fields(TaskRecipe))


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How a run trains; nothing is left open. `recipe.json` has the values and the settings, and nothing that follows
    from them.

    Attributes:
        by_default: the names of the values that were not set explicitly.
        examples: of the training set, without those that are held out.
        rate_factor: by which the rate was multiplied for the model's width.
    """

    values: TaskRecipe
    settings: FinetuningSettings
    by_default: tuple[str, ...]
    examples: int
    rate_factor: float

    @property
    def updates(self) -> int:
        return 0 if self.settings.frozen else self.values.total_steps(self.examples)

    @property
    def warmup_updates(self) -> int:
        return round(self.values.warmup_share * self.updates)

    @property
    def epochs(self) -> float:
        """The epochs that were asked for, where only rounding to whole updates keeps the run from them; else those that
        the updates are."""
        seen = self.updates * self.values.batch_size
        asked = self.values.epochs
        if asked is not None and self.updates and abs(seen - asked * self.examples) <= self.values.batch_size / 2:
            return asked
        return seen / self.examples

    @property
    def optimizer(self) -> OptimizerRecipe:
        """With the peak of the learning rate."""
        chosen = self.settings.optimizer
        if isinstance(chosen, OptimizerRecipe):
            return chosen
        return OptimizerRecipe(
            kind=chosen, learning_rate=self.values.learning_rate, weight_decay=self.values.weight_decay
        )

    @property
    def precision(self) -> Precision:
        assert self.settings.precision is not None, "it is filled in"
        return self.settings.precision

    def learning_rate(self, step: int) -> float:
        """The rate of an update, counted from 0: it rises to its peak, and falls to 0 linearly."""
        return warmup_then_linear(step, self.optimizer.learning_rate, self.warmup_updates, self.updates)

    def epochs_of(self, updates: int) -> float:
        """The epochs of the first updates of the run."""
        return self.epochs * updates / self.updates if self.updates else 0.0

    @property
    def training_plan(self) -> TrainingPlan:
        """The settings of the training loop."""
        return TrainingPlan(
            total_steps=self.updates,
            seed=self.settings.seed,
            precision=self.precision,
            evaluate_every=self.settings.evaluation_interval,
            checkpoint_every=self.settings.checkpoint_every,
            keep_checkpoints=1,
            workers=self.settings.workers,
        )

    def figures(self, device: str, workers: int = 1) -> dict[str, Any]:
        """How a run trains: `learning_rate` (peak), `rate_factor` (by which the recipe's rate was multiplied for the
        model's width), `batch_size`, `epochs`, `steps` (updates), `examples`, `max_length` (tokens), `precision`,
        `device` and `workers` (parallel threads)."""
        return {
            "learning_rate": self.optimizer.learning_rate,
            "rate_factor": self.rate_factor,
            "batch_size": self.values.batch_size,
            "epochs": self.epochs,
            "steps": self.updates,
            "examples": self.examples,
            "max_length": self.values.max_length,
            "precision": self.precision,
            "device": device,
            "workers": workers,
        }


@dataclass(frozen=True, kw_only=True)
class Beginning:
    """What a recipe depends on of the model that training starts from.

    Attributes:
        head_reads_pairs: how its own head reads pairs, if it has one.
    """

    config: EncoderConfig
    keeps_head: bool = False
    head_reads_pairs: PairEncoding = "together"


# --------------------------------------------------------------------------------------------------------------------
# The one function that fills in what is left open.


def fill_in(
    task: DeclaredTask,
    beginning: Beginning,
    given: RecipeLike,
    settings: FinetuningSettings,
    record: Mapping[str, Any] | None,
    examples: list[Example],
    dev_examples: int,
    usual_precision: Precision,
) -> tuple[Recipe, list[Example], list[Example]]:
    """The recipe of a run; the examples that it trains on, and those that are held out to choose a threshold.

    Args:
        record: of the run to resume; None: the run is new.
        examples: of the training file.
        dev_examples: the number of rows of the development set.
        usual_precision: of the device.

    Raises:
        InvalidConfiguration: a value is out of range, or has no use for this task and model.
    """
    recorded = None if record is None else record["settings"]
    is_your_table = isinstance(task.source, TableSource)
    if settings.class_weights is not None and not task.target.class_names:
        why = f"need classes, labels or tags, {task.title} has none"
        raise InvalidConfiguration("class_weights", why, "leave them out")

    # What is given, what the run to resume has, and what is left open.
    values, explicit = given_values(task, given)
    is_open = _ALL - explicit
    if record is not None:
        earlier = from_json(TaskRecipe, record["recipe"], "recipe.json: recipe")
        of_record = is_open & frozenset(record.get(BY_DEFAULT, ()))
        values = replace(values, **{name: getattr(earlier, name) for name in of_record})
        is_open -= of_record
    values.check()
    asked = given.max_length if isinstance(given, RecipeChanges) else None
    values = values.within(beginning.config.max_position_embeddings, asked)

    # The encoding of pairs, the head, and the rows that a threshold is chosen on.
    pairs, matching = choose_pairs(task, beginning, settings.encode_pairs, settings.match_embedding, recorded)
    threshold = _threshold(task, settings, recorded)
    solve_head = _solves_head(task, beginning, settings, recorded)
    held_out: list[Example] = []
    if threshold == "train" or (task.target.may_be_absent and settings.null_threshold == "train"):
        examples, held_out = task.target.keep_back(examples, settings.seed)

    # The learning rate, then the batch size and the duration of your table.
    factor = 1.0
    if "learning_rate" in is_open:
        rate = rate_for_width(values.learning_rate, beginning.config.hidden_size)
        factor = rate / values.learning_rate
        values = replace(values, learning_rate=rate)
    if is_your_table and "batch_size" in is_open and len(examples) < SMALL_TABLE:
        values = replace(values, batch_size=min(values.batch_size, SMALL_BATCH))
    if is_your_table and is_open >= _DURATION and values.epochs is not None:
        updates = max(MIN_UPDATES, UPDATES_PER_CLASS * (task.target.n_outputs or 0))
        enough = math.ceil(updates * values.batch_size / len(examples))
        values = replace(values, epochs=max(values.epochs, min(float(enough), MAX_EPOCHS)))

    # The precision, and the model that is the result; when it is evaluated depends on the number of updates.
    settings = replace(
        settings,
        encode_pairs=pairs,
        match_embedding=matching,
        threshold=threshold,
        solve_head=solve_head,
        precision=_precision(settings, recorded, usual_precision),
    )
    recipe = Recipe(
        values=values,
        settings=settings,
        by_default=tuple(sorted(_ALL - explicit)),
        examples=len(examples),
        rate_factor=factor,
    )
    selection = _selection(recipe, recorded, dev_examples if is_your_table else 0)
    return replace(recipe, settings=replace(settings, **selection)), examples, held_out


def fill_in_vectors(
    usual: TaskRecipe,
    beginning: Beginning,
    changes: RecipeChanges,
    settings: FinetuningSettings,
    record: Mapping[str, Any] | None,
    examples: int,
    usual_precision: Precision,
) -> Recipe:
    """The recipe of a run that learns vectors: the usual one with changes, its rate adapted to the model's width. A
    batch has at most all examples: each of them once, as the others are its negatives."""
    explicit = _explicit(changes)
    values = changes.applied_to(usual)
    values.check()
    values = values.within(beginning.config.max_position_embeddings, changes.max_length)
    values = replace(values, batch_size=min(values.batch_size, examples))
    factor = 1.0
    if "learning_rate" not in explicit:
        rate = rate_for_width(values.learning_rate, beginning.config.hidden_size)
        factor = rate / values.learning_rate
        values = replace(values, learning_rate=rate)
    recorded = None if record is None else record["settings"]
    return Recipe(
        values=values,
        settings=replace(settings, precision=_precision(settings, recorded, usual_precision)),
        by_default=tuple(sorted(_ALL - explicit)),
        examples=examples,
        rate_factor=factor,
    )


def rate_for_width(rate: float, hidden_size: int) -> float:
    """The learning rate for a model of this width: times (768/H)^2.3 below 768, at most 25 times.

    Under Adam the update of a weight matrix should scale with at least the inverse of its width (Yang et al., 2022,
    arXiv 2203.03466), and small BERTs were fine-tuned best at rates up to 3e-4 (Turc et al., 2019, arXiv 1908.08962).
    Measured at H 128, where 5e-4 is best for a recipe with 2e-5, and at 256, where 2.5e-4 is (results/finetuning.md,
    "Small tables" and "Default learning rate at H 256"), not between. At most 1e-3, unless the recipe has more.
    """
    scaled = rate * min(MAX_RATE_FACTOR, max(1.0, FULL_WIDTH / hidden_size) ** RATE_EXPONENT)
    return min(scaled, max(rate, MAX_RATE))


# --------------------------------------------------------------------------------------------------------------------
# Its steps, in the order of `fill_in`.


def given_values(task: DeclaredTask, given: RecipeLike) -> tuple[TaskRecipe, frozenset[str]]:
    """The values of a task with those that are given, and the names of the explicit ones.

    The task's recipe is a default if it is published or of your table; any other was written by the caller.
    """
    if isinstance(given, TaskRecipe):
        given.check()
        return given, _ALL
    changes = given or RecipeChanges()
    values = changes.applied_to(task.recipe)
    values.check()
    if isinstance(task.source, TableSource):
        return values, _explicit(changes) | _explicit(task.source.table_task.recipe)
    if any(task.recipe == declared.recipe for declared in DECLARED.values()):
        return values, _explicit(changes)
    return values, _ALL


def _explicit(changes: RecipeChanges) -> frozenset[str]:
    """The fields that are set; `epochs` and `steps` count as one field."""
    names = {field.name for field in fields(changes) if getattr(changes, field.name) is not None}
    return frozenset(names | _DURATION | {"examples"} if names & _DURATION else names)


def choose_pairs(
    task: DeclaredTask,
    beginning: Beginning,
    pairs: PairEncoding | None,
    matching: bool | None,
    recorded: Mapping[str, Any] | None,
) -> tuple[PairEncoding, bool]:
    """How a run encodes pairs, and whether tokens that occur in the other segment are marked.

    As requested, as recorded if the run is resumed, or as the model does; else together, and marked if two segments are
    read in one sequence by a narrow model (results/models.md, "Match embedding").
    """
    has_pairs = len(task.inputs.columns) == 2
    config = beginning.config
    encoding = "together"
    if has_pairs and task.target.encodes_pairs:
        of_head = beginning.head_reads_pairs
        if beginning.keeps_head and pairs not in (None, of_head):
            raise InvalidConfiguration("encode_pairs", f"{pairs}: the kept head reads pairs {of_head}", _LEAVE_OUT)
        before = of_head if beginning.keeps_head else "together"
        encoding = pairs or (before if recorded is None else recorded["encode_pairs"])
    elif pairs == "separately":
        why = f"separately needs pairs of texts, {task.title} has none"
        raise InvalidConfiguration("encode_pairs", why, _LEAVE_OUT)
    two_segments = has_pairs and encoding == "together"
    if matching and not two_segments:
        why = f"needs two texts in one sequence, {task.title} has none"
        raise InvalidConfiguration("match_embedding", why, _LEAVE_OUT)
    if config.match_embedding and matching is False:
        raise InvalidConfiguration("match_embedding", "cannot be removed from a model", _LEAVE_OUT)
    if matching is not None or config.match_embedding:
        return encoding, bool(matching) or config.match_embedding
    if recorded is not None:
        return encoding, recorded["match_embedding"]
    is_narrow = config.family == "albert" and config.hidden_size < FULL_WIDTH
    return encoding, two_segments and is_narrow and not beginning.keeps_head


def _threshold(
    task: DeclaredTask, settings: FinetuningSettings, recorded: Mapping[str, Any] | None
) -> float | Literal["train"] | None:
    """The threshold of several labels: as requested, as recorded, or chosen on rows held out of training."""
    if settings.threshold not in (None, "train") and not task.target.takes_threshold:
        why = f"needs several labels per example, {task.title} has none"
        raise InvalidConfiguration("threshold", why, _LEAVE_OUT)
    if not task.target.is_tuned:
        return None
    if settings.threshold is not None or recorded is None:
        return settings.threshold or "train"
    return recorded["threshold"]


def _solves_head(
    task: DeclaredTask, beginning: Beginning, settings: FinetuningSettings, recorded: Mapping[str, Any] | None
) -> bool:
    """Whether the head is solved first, on frozen features: as requested, as recorded, or for your table.

    Not for numbers: a random head was better on both tables with numbers (results/finetuning.md, "Small tables: the
    head solved first").
    """
    reason = None
    if not isinstance(task.target, LinearTask):
        reason = f"{task.title} has spans as answers, whose head is not solved"
    elif beginning.keeps_head:
        reason = "the model's own head is kept"
    if reason is not None:
        for name in ("frozen", "solve_head"):
            if getattr(settings, name):
                raise InvalidConfiguration(name, reason, _LEAVE_OUT)
        return False
    if settings.solve_head is not None or settings.frozen:
        return settings.solve_head is not False
    if recorded is not None:
        return recorded["solve_head"]
    return isinstance(task.source, TableSource) and task.target.problem_type != "regression"


def _precision(settings: FinetuningSettings, recorded: Mapping[str, Any] | None, usual: Precision) -> Precision:
    """As requested, as recorded, or the device's default."""
    return settings.precision or (usual if recorded is None else recorded["precision"])


def _selection(recipe: Recipe, recorded: Mapping[str, Any] | None, table_dev_examples: int) -> dict[str, Any]:
    """Which model is the result, when it is evaluated and when the run ends early. For your table the best
    evaluation is the result, unless the development set is too small.

    Args:
        table_dev_examples: the development rows of your table; 0 for other tasks.
    """
    settings = recipe.settings
    if settings.frozen:
        return {"select": "last", "evaluate_every": None, "patience": None}
    if settings.patience is not None:
        if settings.select == "last":
            raise InvalidConfiguration("patience", "keeps the best evaluation, not the last", "leave select=last out")
        return {"select": "best"}
    if settings.select is not None:
        return {}
    if recorded is not None:
        every = settings.evaluate_every or recorded["evaluate_every"]
        return {"select": recorded["select"], "patience": recorded["patience"], "evaluate_every": every}
    if table_dev_examples < MIN_SELECTING_ROWS:
        return {"select": "last"}
    every = settings.evaluate_every or evaluation_interval(recipe, table_dev_examples)
    return {"select": "best", "patience": PATIENCE, "evaluate_every": every}


def evaluation_interval(recipe: Recipe, dev_examples: int) -> int:
    """Updates between evaluations of your table: `EVALUATIONS` of them, fewer if the development set is large.

    An example costs about three times as much in an update as in an evaluation.
    """
    by_time = dev_examples / (3 * EVALUATION_SHARE * recipe.values.batch_size)
    return max(1, math.ceil(recipe.updates / EVALUATIONS), math.ceil(by_time))


# --------------------------------------------------------------------------------------------------------------------
# In the record of a run.


def read_record(folder: RunFolder, task: str) -> dict[str, Any] | None:
    """The record of a fine-tuning run of this task; None if the folder has none."""
    if not folder.recipe_path.exists():
        return None
    record = read_versioned(folder.recipe_path)
    return record if record.get("task") == task and isinstance(record.get("recipe"), dict) else None


def recipe_record(recipe: Recipe, teacher: str | None = None) -> dict[str, Any]:
    """The values and settings of a recipe in `recipe.json`; a teacher is recorded by its name, not by its path."""
    settings = to_json(recipe.settings)
    if teacher is not None:
        settings["distillation"]["teacher"] = teacher
    return {"recipe": to_json(recipe.values), BY_DEFAULT: list(recipe.by_default), "settings": settings}
