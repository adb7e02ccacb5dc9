"""The learning rate of a fine-tuning run, and the default batch size, epochs and length of a task, the same from every
entry point.

A published task keeps its published recipe (Lan et al. 2019, A.4); only the learning rate is adapted to models narrower
than the published ones. The user's table has no published recipe: its epochs are chosen so that there are enough
updates. Explicit values are never changed. A resumed run keeps the defaults it was started with."""

import math
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

from albert.columns.read import TableSource
from albert.recipes.architecture import FULL_WIDTH
from albert.recipes.finetuning import RecipeChanges, TaskRecipe
from albert.recipes.optimizer import OptimizerRecipe, warmup_then_linear
from albert.runtime.json_files import from_json
from albert.tasks.declared import DeclaredTask
from albert.tasks.submission import DECLARED

RecipeLike = TaskRecipe | RecipeChanges | None
"""A complete recipe, changes to the default recipe, or None for the default."""
RATE_EXPONENT = 2.3
MAX_RATE_FACTOR = 25.0
MAX_RATE = 1e-3
MIN_UPDATES = 750
"""For users' tables; the paper has 800 for its smallest tasks (A.4). See "Small tables" in results/finetuning.md."""
MAX_EPOCHS = 50.0
"""For a user's table; as many as the paper has for its smallest task, 635 rows."""
SMALL_TABLE = 5000
SMALL_BATCH = 16
"""A table with fewer rows is trained with this batch size."""
UPDATES_PER_CLASS = 24
"""For tables of users: many classes need more updates, as each is seen less often."""
PATIENCE = 5
EVALUATIONS = 10
"""For tables of users: at most so many evaluations, of which so many in a row may be no better than the best."""
EVALUATION_SHARE = 0.2
"""For tables of users: evaluations take at most about this share of the time of the updates."""
MIN_SELECTING_ROWS = 100
"""With fewer development rows, which evaluation is best says little: the last model is kept."""
BY_DEFAULT = "by_default"
"""The key of recipe.json with the names of the fields that were not set explicitly."""
_DURATION = {"epochs", "steps"}
_ALL = frozenset(field.name for field in fields(TaskRecipe))


def rate_for_width(rate: float, hidden_size: int) -> float:
    """The learning rate for a model of this width: times (768/H)^2.3 below 768, at most 25 times.

    Under Adam the update of a weight matrix should scale with at least the inverse of its width (Yang et al., 2022,
    arXiv 2203.03466), and small BERTs were fine-tuned best at rates up to 3e-4 (Turc et al., 2019, arXiv 1908.08962).
    Measured at H 128, where 5e-4 is best for a recipe with 2e-5, and at 256, where 2.5e-4 is (results/finetuning.md,
    "Small tables" and "Default learning rate at H 256"), not between. At most 1e-3, unless the recipe has more.
    """
    scaled = rate * min(MAX_RATE_FACTOR, max(1.0, FULL_WIDTH / hidden_size) ** RATE_EXPONENT)
    return min(scaled, max(rate, MAX_RATE))


@dataclass(frozen=True)
class RequestedRecipe:
    """A recipe before it is fitted to the model and the number of rows.

    Attributes:
        by_default: the fields that were not set explicitly.
        to_fit: those of them that are not taken from the record of a resumed run.
        own_table: whether the task is a user's table, whose duration is fitted.
    """

    recipe: TaskRecipe
    by_default: frozenset[str]
    to_fit: frozenset[str]
    own_table: bool


@dataclass(frozen=True, kw_only=True)
class LearningPlan:
    """The recipe of a run after fitting, and what follows from it."""

    recipe: TaskRecipe
    by_default: tuple[str, ...]
    examples: int
    updates: int
    warmup_updates: int
    epochs: float
    rate_factor: float
    optimizer: OptimizerRecipe
    """With the peak of the learning rate."""

    def learning_rate(self, step: int) -> float:
        """The rate of an update, counted from 0: it rises to its peak, and falls to 0 linearly."""
        return warmup_then_linear(step, self.optimizer.learning_rate, self.warmup_updates, self.updates)

    def epochs_of(self, updates: int) -> float:
        """The epochs of so many updates of the run."""
        return self.epochs * updates / self.updates if self.updates else 0.0

    def figures(self, precision: str, device: str, workers: int = 1) -> dict[str, Any]:
        """How a run trains: `learning_rate` (peak), `rate_factor` (by which the recipe's rate was multiplied for the
        model's width), `batch_size`, `epochs`, `steps` (updates), `examples`, `max_length` (tokens), `precision`,
        `device` and `workers` (parallel threads)."""
        return {
            "learning_rate": self.optimizer.learning_rate,
            "rate_factor": self.rate_factor,
            "batch_size": self.recipe.batch_size,
            "epochs": self.epochs,
            "steps": self.updates,
            "examples": self.examples,
            "max_length": self.recipe.max_length,
            "precision": precision,
            "device": device,
            "workers": workers,
        }


def requested_recipe(
    task: DeclaredTask, recipe: RecipeLike = None, record: dict[str, Any] | None = None
) -> RequestedRecipe:
    """Explicit values of a recipe, over those of the user's table, over the record of a run to resume, over defaults.

    The task's recipe is a default if it is published or of a user's table; any other was written by the caller.
    """
    explicit = _ALL
    own_table = isinstance(task.source, TableSource)
    if isinstance(recipe, TaskRecipe):
        recipe.check()
        return RequestedRecipe(recipe, frozenset(), frozenset(), own_table)
    changes = recipe or RecipeChanges()
    if isinstance(task.source, TableSource):
        explicit = _explicit(changes) | _explicit(task.source.table_task.recipe)
    elif any(task.recipe == declared.recipe for declared in DECLARED.values()):
        explicit = _explicit(changes)
    complete = changes.applied_to(task.recipe)
    by_default = _ALL - explicit
    recorded = frozenset()
    if record is not None:
        earlier = from_json(TaskRecipe, record["recipe"], "recipe.json: recipe")
        recorded = by_default & frozenset(record.get(BY_DEFAULT, ()))
        complete = replace(complete, **{name: getattr(earlier, name) for name in recorded})
    complete.check()
    return RequestedRecipe(complete, by_default, by_default - recorded, own_table)


def plan_learning(
    requested: RequestedRecipe,
    hidden_size: int,
    examples: int,
    n_classes: int = 0,
    optimizer: OptimizerRecipe | Literal["adamw", "lamb"] | None = None,
) -> LearningPlan:
    """Fit a recipe to the model's width, the number of training examples, and that of classes, labels or tags.

    Args:
        optimizer: complete, or a name that takes rate and weight decay from the recipe; None: AdamW.
    """
    recipe = requested.recipe
    factor = 1.0
    to_fit = requested.to_fit
    if "learning_rate" in to_fit:
        rate = rate_for_width(recipe.learning_rate, hidden_size)
        factor = rate / recipe.learning_rate
        recipe = replace(recipe, learning_rate=rate)
    if requested.own_table and "batch_size" in to_fit and examples < SMALL_TABLE:
        recipe = replace(recipe, batch_size=min(recipe.batch_size, SMALL_BATCH))
    if requested.own_table and to_fit >= _DURATION and recipe.epochs is not None:
        updates = max(MIN_UPDATES, UPDATES_PER_CLASS * n_classes)
        enough = math.ceil(updates * recipe.batch_size / examples)
        recipe = replace(recipe, epochs=max(recipe.epochs, min(float(enough), MAX_EPOCHS)))
    updates = recipe.total_steps(examples)
    if not isinstance(optimizer, OptimizerRecipe):
        optimizer = OptimizerRecipe(
            kind=optimizer or "adamw", learning_rate=recipe.learning_rate, weight_decay=recipe.weight_decay
        )
    return LearningPlan(
        recipe=recipe,
        by_default=tuple(sorted(requested.by_default)),
        examples=examples,
        updates=updates,
        warmup_updates=round(recipe.warmup_share * updates),
        epochs=_planned_epochs(recipe, updates, examples),
        rate_factor=factor,
        optimizer=optimizer,
    )


def _planned_epochs(recipe: TaskRecipe, updates: int, examples: int) -> float:
    """The epochs that the recipe asks for, where only rounding to whole updates keeps the run from them; else those
    that the updates are."""
    seen = updates * recipe.batch_size
    if recipe.epochs is not None and abs(seen - recipe.epochs * examples) <= recipe.batch_size / 2:
        return recipe.epochs
    return seen / examples


def evaluation_interval(plan: LearningPlan, dev_examples: int) -> int:
    """Updates between evaluations of a table of a user: `EVALUATIONS` of them, fewer if the development set is large.

    An example costs about three times as much in an update as in an evaluation.
    """
    by_time = dev_examples / (3 * EVALUATION_SHARE * plan.recipe.batch_size)
    return max(1, math.ceil(plan.updates / EVALUATIONS), math.ceil(by_time))


def _explicit(changes: RecipeChanges) -> frozenset[str]:
    """The fields that are set; `epochs` and `steps` count as one field."""
    names = {field.name for field in fields(changes) if getattr(changes, field.name) is not None}
    return frozenset(names | _DURATION | {"examples"} if names & _DURATION else names)
