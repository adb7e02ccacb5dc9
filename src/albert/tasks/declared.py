"""`DeclaredTask`, the declaration of a task: source, inputs, target, recipe, published scores.

The target is the kind of the task (`albert.tasks.task`), which knows what depends on it; no code depends on the name
of a task."""

import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any

from albert.recipes.finetuning import TaskRecipe
from albert.tables.source import Source
from albert.tables.table import Row
from albert.tasks.examples import Example
from albert.tasks.inputs import ReadColumns
from albert.tasks.metrics import Metric, is_better, task_scores
from albert.tasks.table_task import UNNAMED
from albert.tasks.task import Task


@dataclass(frozen=True)
class Published:
    """A published score in points of 100, on the development set unless its source says otherwise."""

    model: str
    metric: str
    score: float
    source: str


@dataclass(frozen=True, kw_only=True)
class DeclaredTask:
    """A declared task.

    Attributes:
        metrics: each returns one score, named like the function, or several by name; the first score selects models.
        further_splits: also scored after fine-tuning, if their files exist.
        submission: file names that the benchmark's server expects, by split.
        intermediate: the task whose model the paper starts from.
    """

    name: str
    source: Source
    inputs: ReadColumns
    target: Task
    metrics: tuple[Metric, ...]
    recipe: TaskRecipe
    further_splits: tuple[str, ...] = ()
    submission: Mapping[str, str] = field(default_factory=dict)
    intermediate: str | None = None
    published: tuple[Published, ...] = ()
    description: str = ""

    @property
    def title(self) -> str:
        return "your table" if self.name == UNNAMED else self.name

    def examples(self, rows: Iterable[Row], labelled: bool = True) -> list[Example]:
        """One example for each row, in order; without gold answers if not `labelled`."""
        return [self.target.example(row, self.inputs, labelled) for row in rows]

    def scores(self, gold: object, predicted: object) -> dict[str, float | None]:
        """The scores by name, in the order of the metrics."""
        return task_scores(self.metrics, gold, predicted)

    def baseline_scores(self, gold: Any) -> dict[str, float | None]:
        """The scores of a constant prediction, for each metric the best one on the scored rows (majority baseline).

        Args:
            gold: label ids, indices of options, sets of labels, tags, numbers, or answers of the rows.
        """
        return self.majority_baseline(gold)[0]

    def majority_baseline(self, gold: Any) -> tuple[dict[str, float | None], str | None]:
        """The `baseline_scores`, and a line about them if the best label differs between the scores."""
        best: dict[str, float | None] = {}
        labels: dict[str, str | None] = {}
        for predicted in self.target.constants(gold):
            for name, value in self.scores(gold, predicted).items():
                if name not in best or is_better(name, value, best[name]):
                    best[name] = value
                    labels[name] = self.target.constant_label(predicted)
        scores_of: dict[str | None, list[str]] = {}
        for name, label in labels.items():
            scores_of.setdefault(label, []).append(name)
        if len(scores_of) < 2:
            return best, None
        parts = [f"for {' and '.join(names)} it is {label!r}" for label, names in scores_of.items()]
        what = f"the {self.target.baseline_name} gives every row the same label, the best one for each score"
        return best, f"{what}: {', '.join(parts)}"


def load_tasks(
    file: str, metrics: Sequence[Metric], parts: Callable[[Mapping[str, Any]], tuple[Source, ReadColumns, Task]]
) -> tuple[DeclaredTask, ...]:
    """The tasks that a file of this folder declares; `glue.toml` describes its keys.

    Args:
        metrics: those that entries may name.
        parts: returns source, inputs and target of an entry.
    """
    declared = tomllib.loads((files("albert.tasks") / file).read_text(encoding="utf-8"))
    known = {metric.__name__: metric for metric in metrics}
    tasks = []
    for entry in declared["task"]:
        entry = declared["defaults"] | entry
        recipe = dict(entry["recipe"])
        recipe = TaskRecipe(warmup_share=recipe.pop("warmup") / recipe["steps"], **recipe)
        source, inputs, target = parts(entry)
        task = DeclaredTask(
            name=entry["name"],
            description=entry["description"],
            source=source,
            inputs=inputs,
            target=target,
            metrics=tuple(known[name] for name in entry["metrics"]),
            recipe=recipe,
            further_splits=tuple(entry.get("further_splits", ())),
            submission=entry.get("submission", {}),
            intermediate=entry.get("intermediate"),
            published=tuple(
                Published(model, metric, score, declared["sources"][where])
                for metric, where, scores in entry.get("published", ())
                for model, score in scores.items()
            ),
        )
        tasks.append(task)
    return tuple(tasks)
