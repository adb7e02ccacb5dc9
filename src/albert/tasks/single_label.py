"""Classification: one of several classes for each text or pair of texts."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, ClassVar, NotRequired, TypedDict

import numpy as np

from albert.runtime.errors import InvalidConfiguration
from albert.tables.table import Row
from albert.tasks.error_analysis import class_analysis
from albert.tasks.examples import Example, Features
from albert.tasks.metrics import Metric
from albert.tasks.pipeline import Empty, Head, TokensCut
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
    stacked,
    table_file,
)
from albert.tasks.texts import TextTask, costs


class LabelScore(TypedDict):
    """A label and its probability; with several labels per text `predicted` says whether it is given."""

    label: str
    score: float
    predicted: NotRequired[
        Annotated[bool, "If the model gives several labels to a text: whether it gives this one, by its threshold."]
    ]
    tokens_cut: NotRequired[TokensCut]
    empty: NotRequired[Empty]


@dataclass(frozen=True)
class SingleLabel(TextTask, Labelled):
    """One of several classes. `labels` are the values of `column`, in the order of their ids.

    `names` are readable names for labels that are digits in the files; a model directory shows the names. A model of
    another library may have several numbers instead (`are_numbers`), which are given by their names like classes.
    """

    labels: tuple[str, ...]
    column: str
    names: tuple[str, ...] | None = None
    are_numbers: bool = False

    name = "classify"
    about = "Every label with its probability, most likely first; with several labels per text, which are predicted."
    needs = "classify texts"
    kind: ClassVar[str] = "classification"
    loss_name: ClassVar[str] = "choice"
    problem_type: ClassVar[str | None] = "single_label_classification"

    @classmethod
    def of_head(cls, head: Head) -> "SingleLabel | None":
        has_classes = len(head.labels) > 1 and head.problem_type != "multi_label_classification"
        if not has_classes or not head.is_trained(cls.heads):
            return None
        return cls(head.labels, "label", are_numbers=head.problem_type == "regression")

    # ---- From a row of a table to an example ------------------------------------------------------------------------

    @property
    def strata(self) -> tuple[str, ...]:
        return self.labels

    def gold(self, row: Row, texts: Sequence[str]) -> int:
        """The id of the row's label."""
        label = row.text(self.column)
        return label_id(row, label, self._ids, f"unknown label {label!r} in column {self.column!r}")

    # ---- The head, its loss, and the head solved on frozen features -------------------------------------------------

    def check_head(self, problem_type: Any, model: str) -> None:
        if problem_type == "multi_label_classification":  # a sigmoid head
            why = "was trained for several labels at once, the task has one"
            raise InvalidConfiguration(model, why, "give another model")

    def loss(self, output: Any, batch: Any) -> tuple[Any, Any]:
        """Cross entropy."""
        return cross_entropy(self.logits(output, batch), batch)

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

    # ---- From outputs to a reply ------------------------------------------------------------------------------------

    def decode(self, outputs: Iterable[Any], features: Features) -> np.ndarray:
        """Probabilities [examples, labels]."""
        logits = stacked(outputs, len(self.labels))
        return logits if self.are_numbers else softmax(logits)

    Reply = list[LabelScore]
    about_reply = "For each text, every label, most likely first."

    def reply(self, example: Example, decoded: np.ndarray, cut: Sequence[int]) -> list[LabelScore]:
        return ranked_labels(self.shown, decoded, example, cut)

    def cell_types(self) -> dict[str, Any]:
        """The most likely label, and the scores of all in the model's order."""
        return {"label": str, "score": float, "scores": dict.fromkeys(self.shown, float), "tokens_cut": int}

    def cells(self, reply: list[LabelScore]) -> dict[str, Any]:
        return {**reply[0], "scores": scores_by_label(self.shown, reply)}

    # ---- From probabilities to scores -------------------------------------------------------------------------------

    def judge(self, examples: Sequence[Example], decoded: np.ndarray) -> Predictions:
        """The most probable label."""
        return class_predictions(self.labels, examples, decoded)

    def constants(self, gold: Any) -> Iterator[np.ndarray]:
        return most_frequent_class(gold, len(self.labels))

    def constant_label(self, predicted: np.ndarray) -> str | None:
        return self.shown[int(predicted[0])] if len(predicted) else None

    def word_model(
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


def ranked_labels(names: Sequence[str], scores: np.ndarray, example: Example, cut: Sequence[int]) -> list[LabelScore]:
    """Every label with its score, the highest first; equals in the order of the labels."""
    of_text = costs(example, cut)
    values: list[float] = scores.tolist()
    order: list[int] = np.argsort(-scores, kind="stable").tolist()
    return [{"label": names[label], "score": values[label], **of_text} for label in order]


def scores_by_label(names: Sequence[str], reply: Sequence[LabelScore]) -> dict[str, float]:
    """The scores of a reply, in the order of the labels."""
    scores = {entry["label"]: entry["score"] for entry in reply}
    return {label: scores[label] for label in names}
