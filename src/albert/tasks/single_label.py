"""Classification: one of several classes for each text or pair of texts."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np

from albert.runtime.errors import InvalidConfiguration
from albert.tables.table import Row
from albert.tasks.error_analysis import class_analysis
from albert.tasks.examples import Example, Features, text_features
from albert.tasks.metrics import Metric
from albert.tasks.recipe import TaskRecipe
from albert.tasks.task import (
    Labelled,
    Predictions,
    class_predictions,
    cross_entropy,
    held_out_cross_entropy,
    label_id,
    most_frequent_class,
    softmax,
    solve_classes,
    table_file,
)
from albert.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class SingleLabel(Labelled):
    """One of several classes. `labels` are the values of `column`, in the order of their ids.

    `names` are readable names for labels that are digits in the files; a model directory shows the names.
    """

    labels: tuple[str, ...]
    column: str
    names: tuple[str, ...] | None = None

    kind: ClassVar[str] = "classification"
    loss_name: ClassVar[str] = "choice"
    encodes_pairs: ClassVar[bool] = True
    problem_type: ClassVar[str | None] = "single_label_classification"

    # ---- From a row to an example, and to token ids -----------------------------------------------------------------

    @property
    def strata(self) -> tuple[str, ...]:
        return self.labels

    def gold(self, row: Row, texts: Sequence[str]) -> int:
        """The id of the row's label."""
        label = row.text(self.column)
        return label_id(row, label, self._ids, f"unknown label {label!r} in column {self.column!r}")

    def features(self, examples: Sequence[Example], tokenizer: Tokenizer, recipe: TaskRecipe) -> Features:
        """One sequence for each example; targets are the ids of the labels, int64 [examples]."""
        return text_features(examples, tokenizer, recipe.max_length)

    # ---- The head and its loss --------------------------------------------------------------------------------------

    def check_head(self, problem_type: Any, model: str) -> None:
        if problem_type == "multi_label_classification":  # a sigmoid head
            why = "was trained for several labels at once, the task has one"
            raise InvalidConfiguration(model, why, "give another model")

    def loss(self, output: Any, batch: Any) -> tuple[Any, Any]:
        """Cross entropy."""
        return cross_entropy(self.logits(output, batch), batch)

    # ---- The head solved on frozen features -------------------------------------------------------------------------

    def solve(
        self, features: np.ndarray, targets: np.ndarray, groups: np.ndarray, options: Mapping[str, Any]
    ) -> tuple[np.ndarray, np.ndarray]:
        """A multinomial logistic regression."""
        return solve_classes(features, targets, len(self.labels), options)

    def can_be_solved(self, targets: np.ndarray) -> bool:
        return len(np.unique(targets)) >= 2

    def held_out_loss(self, outputs: np.ndarray, targets: np.ndarray, groups: np.ndarray) -> float:
        """Cross entropy."""
        return held_out_cross_entropy(outputs, targets)

    # ---- From outputs to predictions and scores ---------------------------------------------------------------------

    def decode(
        self, outputs: Sequence[Any], examples: Sequence[Example], features: Features, columns: Sequence[int] | None
    ) -> np.ndarray:
        """Probabilities [examples, labels]."""
        logits = np.stack([np.asarray(row) for row in outputs]).astype(np.float64)
        return softmax(logits if columns is None else logits[:, list(columns)])

    def predictions(
        self, examples: Sequence[Example], features: Features, decoded: np.ndarray, threshold: Any
    ) -> tuple[Predictions, None]:
        """The most probable label."""
        return class_predictions(self.labels, examples, features.targets, decoded), None

    def constants(self, gold: Any) -> Iterator[np.ndarray]:
        return most_frequent_class(gold, len(self.labels))

    def constant_label(self, predicted: np.ndarray) -> str | None:
        return self.shown[int(predicted[0])] if len(predicted) else None

    def linear_baseline(
        self,
        metrics: Sequence[Metric],
        train: Sequence[Example],
        dev: Sequence[Example],
        further: Mapping[str, Sequence[Example]],
        balanced: bool = False,
    ) -> Any:
        """TF-IDF with logistic regression."""
        from albert.tasks import linear_baseline as linear

        train = linear.sample(train)
        one_class = len({example.target for example in train}) < 2
        return linear.texts_baseline(
            metrics,
            train,
            dev,
            further,
            method=linear.TEXTS_METHOD[balanced],
            n_outputs=len(self.labels),
            fit=partial(linear.fit_classes, n_classes=len(self.labels), balanced=balanced),
            left_out="the training rows have one class" if one_class else None,
        )

    def analysis(self, examples: Sequence[Example], predictions: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        return class_analysis(self.labels, self.shown, examples, predictions)

    def submission_files(self, name: str, entries: Sequence[Mapping[str, Any]]) -> dict[str, str]:
        """GLUE's: a table of the labels."""
        return {f"{name}.tsv": table_file(entries, str)}
