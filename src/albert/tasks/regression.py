"""Regression: a number for each text or pair of texts.

During training the head predicts standard scores (`NumberScale` in `albert.tasks.metrics`); a saved model predicts
numbers in the unit of the data. A cross-encoder of sentence-transformers has such a head, and a function on it.

What a text passes: as in `single_label`, with one output, which `decode` takes as the number."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NotRequired, TypedDict

import numpy as np

from albert.runtime.errors import DamagedData, InvalidConfiguration, UsageError
from albert.tables.fields import as_number
from albert.tables.table import Row, Table
from albert.tasks.error_analysis import MAX_ERRORS, first_of_equal, text_of
from albert.tasks.examples import Example, Features
from albert.tasks.from_table import Inferred, Recognised, TableDeclaration, metrics_by_name, quoted_columns
from albert.tasks.label_doubts import MANY_VALUES
from albert.tasks.labels import are_vectors, one_label
from albert.tasks.metrics import Metric, NumberScale, mean_absolute_error, pearson, spearman
from albert.tasks.numbers import refuse_signs_of_thousands, refuse_written_numbers
from albert.tasks.pipeline import Empty, Head, TokensCut
from albert.tasks.table_task import TableTask
from albert.tasks.task import BEST_CONSTANT, LinearHead, Predictions, stacked, table_file
from albert.tasks.texts import TextTask, costs, has_text_and_label, text_inputs

MAX_CLASSES = 200
"""More different whole numbers than this are not ids of classes."""
MAX_NUMBER = 3.4e38
"""Numbers are learned and predicted in float32."""


class Number(TypedDict):
    """The number that a regression model predicts, `score`, and the name of what it measures."""

    label: str
    score: float
    tokens_cut: NotRequired[TokensCut]
    empty: NotRequired[Empty]


@dataclass(frozen=True)
class Regression(TextTask):
    """A number (regression); values outside `low`..`high` are errors in the data, None is no limit. The `activation`, a
    class of `torch.nn`, makes the number of the head's output."""

    column: str
    low: float | None = None
    high: float | None = None
    activation: str = "Identity"

    name = "score"
    about = "The number that a regression model or a cross-encoder predicts."
    needs = "score texts"
    kind: ClassVar[str] = "regression"
    loss_name: ClassVar[str] = "score"
    problem_type: ClassVar[str | None] = "regression"
    baseline_name: ClassVar[str] = BEST_CONSTANT

    @classmethod
    def of_head(cls, head: Head) -> "Regression | None":
        is_number = len(head.labels) == 1 and head.problem_type != "multi_label_classification"
        if not is_number or not head.is_trained(cls.heads):
            return None
        return cls(head.labels[0], activation=head.score_activation)

    # ---- From a table to the task -----------------------------------------------------------------------------------

    own_settings = ("decimal",)

    @classmethod
    def recognised(cls, task: TableTask, table: Table) -> Recognised | None:
        """Numbers with fractions, or more than 20 different ones. Raises UsageError if these may be ids of classes: at
        most 200 whole numbers from 0 or 1 on, without gaps, with two rows each on average."""
        if task.label is None or not has_text_and_label(task, table):
            return None
        label = task.label
        values = table.values(label)
        texts = [value.strip() for value in values if isinstance(value, str) and value.strip()]
        different = set(texts)
        numbers = {number for value in different if (number := as_number(value)) is not None}
        are_whole = all(number.is_integer() for number in numbers)
        has_lists = any(isinstance(value, tuple) for value in values)
        if has_lists or any(as_number(value) is None for value in different):
            return None
        why = f"{len(different):,} different values in {label!r}"
        if not are_whole:
            return Recognised(task, f"{why}, numbers with fractions", "--kind classification")
        if len(different) <= MANY_VALUES:
            return None
        low = min(numbers)
        high = max(numbers)
        without_gaps = low in (0, 1) and high - low + 1 == len(numbers)
        if without_gaps and len(texts) >= 2 * len(different) and len(numbers) <= MAX_CLASSES:
            why = f"holds every whole number from {low:.0f} to {high:.0f}, which may be classes or numbers to predict"
            raise UsageError(f"column {label!r}", why, "say --kind classification or --kind number")
        return Recognised(task, f"{why}, whole numbers from {low:.0f} to {high:.0f}", "--kind classification")

    @classmethod
    def converted(
        cls, task: TableTask, table: Table, source: object, inferred: list[Inferred]
    ) -> tuple[TableTask, Table]:
        """One number in each row."""
        if task.label is None:
            return task, table
        if are_vectors(table, task.label):
            why = "holds vectors of 0 and 1"
            raise UsageError(f"column {task.label!r}", why, "they are labels: leave out --kind number")
        refuse_written_numbers(table, task.label)
        return task, one_label(table, task.label)

    @classmethod
    def completed(
        cls, task: TableTask, table: Table, source: object, inferred: list[Inferred], to_learn: bool
    ) -> tuple[TableTask, Table]:
        if to_learn:
            refuse_signs_of_thousands(task, table, str(task.label))
        return task, table

    @classmethod
    def of_table(cls, task: TableTask, tables: Mapping[str, Table]) -> TableDeclaration:
        assert task.label is not None
        about = f"Predicts the number `{task.label}` from {quoted_columns(task.text, task.pair)}"
        return TableDeclaration(task, text_inputs(task), cls(task.label), about)

    @classmethod
    def possible_metrics(cls, task: TableTask) -> dict[str, Metric]:
        return metrics_by_name(pearson, spearman, mean_absolute_error)

    # ---- From a row of a table to an example ------------------------------------------------------------------------

    @property
    def gold_column(self) -> str:
        return self.column

    def gold(self, row: Row, texts: Sequence[str]) -> float:
        """The number of a row, which is finite and within the limits."""
        text = row.text(self.column).strip()
        value = as_number(text.lstrip("0") if text.isdecimal() and text.isascii() and text.strip("0") else text)
        if value is None:
            has_digits = any(character.isdecimal() for character in text)
            remedy = "write it as 1164.5" if has_digits else "name a column of numbers, or leave --kind number out"
            raise DamagedData(row.where, f"{text!r} in column {self.column!r} is not a number", remedy)
        if not abs(value) <= MAX_NUMBER:
            why = f"{text!r} in column {self.column!r} is not a finite number of at most 3.4e38"
            raise DamagedData(row.where, why)
        low = -math.inf if self.low is None else self.low
        high = math.inf if self.high is None else self.high
        if not low <= value <= high:
            why = f"{value:g} in column {self.column!r} is not between {low:g} and {high:g}"
            raise DamagedData(row.where, why)
        return value

    def written_numbers(self, labels: Iterable[str]) -> np.ndarray:
        values = np.array([as_number(label) for label in labels], np.float64)  # None becomes NaN
        return values[np.isfinite(values)]

    def number_scale(self, targets: np.ndarray) -> NumberScale:
        """Mean and deviation of the training targets; InvalidConfiguration if they are all equal."""
        if np.ptp(targets) == 0:
            why = f"holds the number {targets[0]:g} in all {len(targets):,} training rows, there is nothing to learn"
            raise InvalidConfiguration(f"column {self.column!r}", why, "name another column with --label")
        return NumberScale.of(targets)

    # ---- The head and its loss --------------------------------------------------------------------------------------

    @property
    def n_outputs(self) -> int:
        return 1

    @property
    def output_names(self) -> tuple[str, ...]:
        return (self.column,)

    def loss(self, output: Any, batch: Any) -> tuple[Any, None]:
        """Squared error of the standard score (of the number itself in the reference)."""
        from torch.nn import functional

        return functional.mse_loss(output.float().squeeze(1), batch.targets.float(), reduction="sum"), None

    def soft_loss(self, logits: Any, teacher: Any, temperature: float) -> Any:
        """Squared error."""
        from torch.nn import functional

        return functional.mse_loss(logits.float(), teacher.float(), reduction="sum")

    # ---- The head solved on frozen features -------------------------------------------------------------------------

    def solve(
        self, features: np.ndarray, targets: np.ndarray, groups: np.ndarray, options: Mapping[str, Any]
    ) -> LinearHead:
        """A ridge regression, whose penalty is 1 / C."""
        from sklearn.linear_model import Ridge

        ridge = Ridge(alpha=1 / options["C"], solver="cholesky").fit(features, targets)
        return LinearHead(ridge.coef_[None], np.array([ridge.intercept_]), squared_error)

    # ---- From outputs to a reply ------------------------------------------------------------------------------------

    def decode(self, outputs: Iterable[Any], features: Features) -> np.ndarray:
        """Numbers [examples]."""
        import torch

        numbers = torch.from_numpy(stacked(outputs, 1))
        return getattr(torch.nn, self.activation)()(numbers).numpy()[:, 0]

    Reply = Number
    about_reply = "For each text, its number."

    def reply(self, example: Example, decoded: Any, cut: Sequence[int]) -> Number:
        return {"label": self.column, "score": float(decoded), **costs(example, cut)}

    def cell_types(self) -> dict[str, Any]:
        return {"score": float, "tokens_cut": int, "empty": bool}

    # ---- From numbers to scores -------------------------------------------------------------------------------------

    def judge(self, examples: Sequence[Example], decoded: np.ndarray) -> Predictions:
        """The numbers."""
        pairs = zip(examples, map(float, decoded), strict=True)
        entries = [{"id": row.identifier, "prediction": number, "gold": row.target} for row, number in pairs]
        gold = np.array([0.0 if row.target is None else row.target for row in examples], np.float32)
        return Predictions(gold.astype(np.float64), decoded, entries)

    def of_entries(self, entries: Sequence[Mapping[str, Any]]) -> tuple[np.ndarray, np.ndarray]:
        gold, predicted = (np.array([entry[key] for entry in entries], np.float64) for key in ("gold", "prediction"))
        return gold, predicted

    def constants(self, gold: Any) -> Iterator[np.ndarray]:
        """The median, which has the smallest absolute error."""
        yield np.full(len(gold), np.median(gold) if len(gold) else 0.0)

    def word_model(
        self,
        metrics: Sequence[Metric],
        train: Sequence[Example],
        dev: Sequence[Example],
        further: Mapping[str, Sequence[Example]],
        balanced: bool = False,
    ) -> Any:
        """TF-IDF with ridge regression."""
        from albert.tasks import linear_baseline as linear

        return linear.texts_baseline(
            metrics,
            linear.sample(train),
            dev,
            further,
            method="TF-IDF with ridge regression",
            n_outputs=1,
            fit=linear.fit_numbers,
        )

    def analysis(self, examples: Sequence[Example], predictions: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """The largest differences; there are no classes and no calibration."""
        errors = []
        for example, entry in zip(examples, predictions, strict=True):
            error = {
                "id": example.identifier,
                "text": text_of(example),
                "gold": float(entry["gold"]),
                "predicted": float(entry["prediction"]),
                "difference": float(entry["prediction"]) - float(entry["gold"]),
            }
            errors.append(error)
        errors.sort(key=lambda error: -abs(error["difference"]))
        return {
            "per_class": None,
            "confusion": None,
            "errors": first_of_equal(errors)[:MAX_ERRORS],
            "calibration": None,
        }

    def submission_files(self, name: str, entries: Sequence[Mapping[str, Any]]) -> dict[str, str]:
        """GLUE's: a table of the numbers, within the range of the scores."""
        low = -math.inf if self.low is None else self.low
        high = math.inf if self.high is None else self.high
        return {f"{name}.tsv": table_file(entries, lambda number: f"{min(max(number, low), high):.6f}")}


def squared_error(outputs: np.ndarray, targets: np.ndarray, groups: np.ndarray) -> float:
    """The squared error of outputs [rows, 1], summed."""
    return float(np.square(outputs[:, 0] - targets).sum())
