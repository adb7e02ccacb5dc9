"""How a task is learnt where nobody says: rate, batch size, epochs and length, the same from every door."""

import math
from dataclasses import dataclass, fields, replace
from typing import Any

from albert.model.config import FULL_WIDTH
from albert.runtime.json_files import from_json, read_json_object
from albert.tasks.custom import TableSource
from albert.tasks.submission import DECLARED
from albert.tasks.table_task import RecipeChanges
from albert.tasks.task import Task, TaskRecipe
from albert.training.run_folder import RunFolder

# --------------------------------------------------------------------------------------------------------------------
# How a task is learnt where nobody says: rate, batch size, epochs and length, the same from every door. A published
# task keeps its published recipe (Lan et al. 2019, A.4); only its rate is fitted to models narrower than the
# published ones. Your own table has none: it is learnt for enough updates, however few rows it has. What is asked for
# stays as it is. A run that goes on keeps the defaults that it began with.


RecipeLike = TaskRecipe | RecipeChanges | None
"""A recipe that is taken as it is; or what is to be another than the default; or nothing but defaults."""
RATE_EXPONENT, MAX_RATE_FACTOR = 2.3, 25.0
MAX_RATE = 1e-3
MIN_UPDATES = 750
"""For your own table; the paper has 800 for its smallest tasks (A.4). Measured: results/README.md, "Small tables"."""
MAX_EPOCHS = 50.0
"""For your own table; as many as the paper has for its smallest task, 635 rows."""
SMALL_TABLE, SMALL_BATCH = 5000, 16
"""Fewer rows than that are learnt in batches of that size."""
_DURATION = ("epochs", "steps")
BY_DEFAULT = "by_default"
"""The key of a run's recipe.json that names what nobody set."""
_ALL = frozenset(each.name for each in fields(TaskRecipe))


def rate_for_width(rate: float, hidden_size: int) -> float:
    """A recipe's learning rate for a model of this width: times (768/H)^2.3 below 768, at most 25 times.

    Under Adam the step of a weight matrix is to go with the inverse of its width at least (Yang et al., 2022, arXiv
    2203.03466), and small BERTs were fine-tuned best at rates of up to 3e-4 (Turc et al., 2019, arXiv 1908.08962).
    Measured at H 128, where 5e-4 suits when the recipe has 2e-5, and at 256, where 2.5e-4 does (results/README.md,
    "Small tables"); between 256 and 768 it is a guess. The result is 1e-3 at most, unless the recipe has more.
    """
    wanted = rate * min(MAX_RATE_FACTOR, max(1.0, FULL_WIDTH / hidden_size) ** RATE_EXPONENT)
    return min(wanted, max(rate, MAX_RATE))


@dataclass(frozen=True)
class RequestedRecipe:
    """What is known of a recipe before model and rows are.

    Attributes:
        recipe: complete; dropout and lengths are final but for the positions of the model.
        to_fit: those of them that no earlier call of the same run has fitted to model and rows.
        own_table: whether the task is the user's own, so that its duration may be fitted.
    """

    recipe: TaskRecipe
    by_default: frozenset[str]
    to_fit: frozenset[str]
    own_table: bool


@dataclass(frozen=True, kw_only=True)
class LearningPlan:
    """What a run is going to do, complete, before it trains.

    Attributes:
        warmup_updates: of which the rate rises.
    """

    recipe: TaskRecipe
    by_default: tuple[str, ...]
    examples: int
    updates: int
    warmup_updates: int
    epochs: float
    rate_factor: float

    def figures(self, learning_rate: float, precision: str, device: str, workers: int = 1) -> dict[str, Any]:
        """How a run learns: `learning_rate` at its peak, `rate_factor` (by which the recipe's was multiplied for the
        model's width), `batch_size`, `epochs`, `steps` (updates), `examples`, `max_length` in tokens, `precision`,
        `device` and `workers` (threads that compute at the same time)."""
        return {
            "learning_rate": learning_rate,
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


def requested_recipe(task: Task, asked: RecipeLike = None, kept: dict[str, Any] | None = None) -> RequestedRecipe:
    """What is asked of a recipe, over what the task's own table says of it, over the defaults.

    Args:
        task: its recipe is a default where it is a published one, or that of the user's own table; any other was
            written by the caller and is taken as it is.
        asked: by flags, or in Python.

    Raises:
        InvalidConfiguration: both epochs and steps are asked for, or a value that cannot work.
    """
    said, own_table = _ALL, isinstance(task.source, TableSource)
    if isinstance(asked, TaskRecipe):
        asked.check()
        return RequestedRecipe(asked, frozenset(), frozenset(), own_table)
    changes = asked or RecipeChanges()
    if isinstance(task.source, TableSource):
        said = _said(changes) | _said(task.source.table_task.recipe)
    elif any(task.recipe in (known.recipe, known.second_recipe) for known in DECLARED.values()):
        said = _said(changes)
    recipe, by_default, known = changes.applied_to(task.recipe), _ALL - said, frozenset()
    if kept is not None:
        earlier = from_json(TaskRecipe, kept["recipe"], "recipe.json: recipe")
        known = by_default & frozenset(kept.get(BY_DEFAULT, _ALL))
        recipe = replace(recipe, **{name: getattr(earlier, name) for name in known})
    recipe.check()
    return RequestedRecipe(recipe, by_default, by_default - known, own_table)


def read_run_record(run: RunFolder, task: Task) -> dict[str, Any] | None:
    """What an unfinished or finished run of this task in the folder recorded of its recipe; None where there is none.

    A run that was recorded before defaults were told apart from what was asked for counts as learnt by defaults.
    """
    if not run.recipe_path.exists():
        return None
    record = read_json_object(run.recipe_path)
    return record if record.get("task") == task.name and isinstance(record.get("recipe"), dict) else None


def plan_learning(basis: RequestedRecipe, hidden_size: int, examples: int) -> LearningPlan:
    """The recipe fitted to a model of this width and so many training examples."""
    recipe, factor, to_fit = basis.recipe, 1.0, basis.to_fit
    if "learning_rate" in to_fit:
        rate = rate_for_width(recipe.learning_rate, hidden_size)
        factor = rate / recipe.learning_rate
        recipe = replace(recipe, learning_rate=rate)
    if basis.own_table and "batch_size" in to_fit and examples < SMALL_TABLE:
        recipe = replace(recipe, batch_size=min(recipe.batch_size, SMALL_BATCH))
    if basis.own_table and to_fit.issuperset(_DURATION) and recipe.epochs is not None:
        enough = math.ceil(MIN_UPDATES * recipe.batch_size / examples)
        recipe = replace(recipe, epochs=max(recipe.epochs, min(float(enough), MAX_EPOCHS)))
    updates = recipe.total_steps(examples)
    return LearningPlan(
        recipe=recipe,
        by_default=tuple(sorted(basis.by_default)),
        examples=examples,
        updates=updates,
        warmup_updates=round(recipe.warmup_share * updates),
        epochs=updates * recipe.batch_size / examples,
        rate_factor=factor,
    )


def _said(changes: RecipeChanges) -> frozenset[str]:
    """The fields that are set; epochs and steps say one thing."""
    said = {each.name for each in fields(changes) if getattr(changes, each.name) is not None}
    return frozenset(said | {*_DURATION, "examples"} if said & {*_DURATION} else said)
