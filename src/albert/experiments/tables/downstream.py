"""The tasks that a scale learns after pre-training, and how: the paper's five, GLUE, or what small models can do."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from albert.finetuning.best_model import SelectedBy
from albert.finetuning.run_record import FinetuningSettings
from albert.tasks.declared import find_task
from albert.tasks.task import Task, TaskRecipe


@dataclass(frozen=True, kw_only=True)
class Downstream:
    """A task, how it is learnt, and what of its scores is told.

    Args:
        task: its declared name.
        columns: what a table calls its scores: column -> score of the task.
        recipe: how it is learnt; None: the paper's Table 14.
        max_train_examples: learn from a sample of the training rows; None: from all.
        select: which model is scored; the paper takes the best on the development set.
    """

    task: str
    columns: Mapping[str, str]
    recipe: TaskRecipe | None = None
    max_train_examples: int | None = None
    select: SelectedBy = "last"

    @property
    def declared(self) -> Task:
        """The task."""
        return find_task(self.task)

    @property
    def settled_recipe(self) -> TaskRecipe:
        """How it is learnt."""
        return self.declared.recipe if self.recipe is None else self.recipe

    def settings(self, seed: int) -> FinetuningSettings:
        """How a run of that seed computes."""
        return FinetuningSettings(
            seed=seed,
            select=self.select,
            max_train_examples=self.max_train_examples,
            null_threshold="dev" if self.select == "best" else "train",
        )


def _short(task: str, score: str, epochs: float, max_length: int, max_train_examples: int | None = None) -> Downstream:
    """A task for a small model: the published batch and dropout, a rate as its width wants it, fewer tokens."""
    published = find_task(task).recipe
    recipe = replace(
        published,
        learning_rate=3e-4,
        batch_size=32,
        steps=None,
        examples=None,
        epochs=epochs,
        max_length=min(max_length, published.max_length),
    )
    return Downstream(task=task, columns={task: score}, recipe=recipe, max_train_examples=max_train_examples)


def _best(task: str, score: str) -> Downstream:
    return Downstream(task=task, columns={task: score}, select="best")


FIVE_TASKS = (
    Downstream(
        task="squad-1.1",
        columns={"squad-1.1 f1": "span_f1", "squad-1.1 exact": "span_exact_match"},
        select="best",
    ),
    Downstream(
        task="squad-2.0",
        columns={"squad-2.0 f1": "best_f1", "squad-2.0 exact": "best_exact"},
        select="best",
    ),
    _best("mnli", "accuracy"),
    _best("sst-2", "accuracy"),
    _best("race", "accuracy"),
)
"""Tables 2 to 8 and 11 to 13, by Table 14."""

GLUE_TASKS = (
    _best("qnli", "accuracy"),
    _best("qqp", "accuracy"),
    _best("rte", "accuracy"),
    _best("mrpc", "accuracy"),
    _best("cola", "matthews_correlation"),
    _best("sts-b", "pearson"),
)
"""The rest of Table 9."""

TINY_TASKS = (
    _short("sst-2", "accuracy", epochs=1, max_length=64),
    _short("qnli", "accuracy", epochs=2, max_length=64, max_train_examples=20_000),
)
"""A sentence, and a pair of them: minutes of one core each."""

SMALL_TASKS = (
    _short("sst-2", "accuracy", epochs=2, max_length=128),
    _short("qnli", "accuracy", epochs=2, max_length=128),
    _short("mnli", "accuracy", epochs=2, max_length=128),
)
"""Minutes of a GPU each."""
