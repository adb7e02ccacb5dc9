"""Regression: a number for each text or pair of texts.

During training the head predicts standard scores (`NumberScale` in `albert.tasks.metrics`); a saved model predicts
numbers in the unit of the data. A cross-encoder of sentence-transformers has such a head, and a function on it."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NotRequired, TypedDict

import numpy as np

from albert.runtime.errors import DamagedData, InvalidConfiguration
from albert.tables.fields import as_number
from albert.tables.table import Row
from albert.tasks.error_analysis import MAX_ERRORS, first_of_equal, text_of
from albert.tasks.examples import Example, Features
from albert.tasks.metrics import Metric, NumberScale
from albert.tasks.pipeline import Empty, Head, TokensCut
from albert.tasks.task import BEST_CONSTANT, Predictions, stacked, table_file
from albert.tasks.texts import TextTask, costs

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
    ) -> tuple[np.ndarray, np.ndarray]:
        """A ridge regression, whose penalty is 1 / C."""
        from sklearn.linear_model import Ridge

        ridge = Ridge(alpha=1 / options["C"], solver="cholesky").fit(features, targets)
        return ridge.coef_[None], np.array([ridge.intercept_])

    def held_out_loss(self, outputs: np.ndarray, targets: np.ndarray, groups: np.ndarray) -> float:
        """Squared error."""
        return float(np.square(outputs[:, 0] - targets).sum())

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
        return {"score": float, "tokens_cut": int}

    # ---- From numbers to scores -------------------------------------------------------------------------------------

    def judge(self, examples: Sequence[Example], decoded: np.ndarray) -> Predictions:
        """The numbers."""
        pairs = zip(examples, map(float, decoded), strict=True)
        entries = [{"id": row.identifier, "prediction": number, "gold": row.target} for row, number in pairs]
        gold = np.array([0.0 if row.target is None else row.target for row in examples], np.float32)
        return Predictions(gold.astype(np.float64), decoded, entries)

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
