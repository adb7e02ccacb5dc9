"""Multi-label classification: any number of labels for each text or pair of texts."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np

from albert.runtime.environment import lazy_import
from albert.runtime.errors import InvalidConfiguration
from albert.tables.table import Row
from albert.tasks.error_analysis import MAX_ERRORS, NONE, calibration, first_of_equal, largest, per_class, text_of
from albert.tasks.examples import Example, Features, label_sets, text_features
from albert.tasks.label_threshold import LabelThreshold, choose_label_threshold, saved_label_threshold
from albert.tasks.metrics import Metric
from albert.tasks.recipe import TaskRecipe
from albert.tasks.task import Labelled, Predictions, hold_out_examples, label_id, object_file
from albert.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class MultiLabel(Labelled):
    """Any number of classes at once (multi-label classification). `labels` are in the order of their ids.

    `column` holds a list of labels, or a text with `separator` between them, where whitespace around labels is ignored,
    and a separator at an end; an empty value means no label.
    """

    labels: tuple[str, ...]
    column: str
    separator: str = "|"
    names: tuple[str, ...] | None = None

    kind: ClassVar[str] = "multi-label"
    loss_name: ClassVar[str] = "labels"
    encodes_pairs: ClassVar[bool] = True
    problem_type: ClassVar[str | None] = "multi_label_classification"
    may_be_unlabelled: ClassVar[bool] = True
    takes_threshold: ClassVar[bool] = True

    # ---- From a row to an example, and to token ids -----------------------------------------------------------------

    def written_labels(self, row: Row) -> tuple[str, ...]:
        return row.texts(self.column, self.separator) if self.column in row.fields else ()

    def gold(self, row: Row, texts: Sequence[str]) -> tuple[int, ...]:
        """The ids of the row's labels, ascending; none if the value is empty."""
        ids = set()
        for label in row.texts(self.column, self.separator):
            ids.add(label_id(row, label, self._ids, f"unknown label {label!r} in column {self.column!r}"))
        return tuple(sorted(ids))

    def refuse_empty(self, row: Row) -> None:
        """No label is a label set, too."""

    def features(self, examples: Sequence[Example], tokenizer: Tokenizer, recipe: TaskRecipe) -> Features:
        """One sequence for each example; targets say which labels are true, float32 [examples, labels]."""
        features = text_features(examples, tokenizer, recipe.max_length)
        return replace(features, targets=label_sets(examples, len(self.labels)))

    # ---- The head and its loss --------------------------------------------------------------------------------------

    def check_head(self, problem_type: Any, model: str) -> None:
        if problem_type != self.problem_type:  # a softmax head
            why = f"was not trained for several labels at once (its problem_type is {problem_type!r})"
            raise InvalidConfiguration(model, why, "give another model")

    def loss(self, output: Any, batch: Any) -> tuple[Any, Any]:
        """The mean of the labels' binary cross entropies; an example is right if all of its labels are."""
        import torch
        from torch.nn import functional

        weights = None
        if batch.class_weights is not None:
            weights = torch.where(batch.targets > 0, batch.class_weights[1], batch.class_weights[0])
        targets = batch.targets.float()
        losses = functional.binary_cross_entropy_with_logits(output.float(), targets, weight=weights, reduction="none")
        right = ((output > 0) == batch.targets.bool()).all(dim=1)
        return losses.mean(dim=1).sum(), right.sum()

    def soft_loss(self, logits: Any, teacher: Any, temperature: float) -> Any:
        """The mean of the labels' binary cross entropies with the teacher's probabilities, softened."""
        from torch.nn import functional

        ours = logits.float() / temperature
        theirs = teacher.float() / temperature
        losses = functional.binary_cross_entropy_with_logits(ours, theirs.sigmoid(), reduction="none")
        return temperature**2 * losses.mean(dim=1).sum()

    # ---- The head solved on frozen features -------------------------------------------------------------------------

    def solve(
        self, features: np.ndarray, targets: np.ndarray, groups: np.ndarray, options: Mapping[str, Any]
    ) -> tuple[np.ndarray, np.ndarray]:
        """A logistic regression for each label; one that all or no examples have gets its smoothed log-odds as bias."""
        from sklearn.linear_model import LogisticRegression

        n_labels = targets.shape[1]
        weight = np.zeros((n_labels, features.shape[1]))
        bias = np.zeros(n_labels)
        for label in range(n_labels):
            present = (targets[:, label] > 0).astype(np.int64)
            if 0 < present.sum() < len(present):
                regression: Any = LogisticRegression(**options).fit(features, present)
                weight[label] = regression.coef_[0]
                bias[label] = regression.intercept_[0]
            else:
                share = (present.sum() + 0.5) / (len(present) + 1)
                bias[label] = np.log(share / (1 - share))
        return weight, bias

    def held_out_loss(self, outputs: np.ndarray, targets: np.ndarray, groups: np.ndarray) -> float:
        """The mean of the labels' binary cross entropies."""
        return float((np.logaddexp(0, outputs) - outputs * targets).sum() / targets.shape[1])

    # ---- From outputs to predictions and scores ---------------------------------------------------------------------

    def decode(
        self, outputs: Sequence[Any], examples: Sequence[Example], features: Features, columns: Sequence[int] | None
    ) -> np.ndarray:
        """The probability of each label, [examples, labels]."""
        import torch

        logits = np.stack([np.asarray(row) for row in outputs]).astype(np.float64)
        return torch.from_numpy(logits if columns is None else logits[:, list(columns)]).sigmoid().numpy()

    def saved_threshold(self, config: Mapping[str, Any], model: str, value: float | None = None) -> LabelThreshold:
        return saved_label_threshold(config, model, value)

    def hold_out(self, examples: Sequence[Example], seed: int) -> tuple[list[Example], list[Example]]:
        return hold_out_examples(examples, seed)

    def best_threshold(self, examples: Sequence[Example], features: Features, decoded: np.ndarray) -> LabelThreshold:
        """The threshold with the best micro F1."""
        about = f"{len(examples):,} rows held out of the training set"
        return choose_label_threshold(features.targets > 0, decoded, about)

    def predictions(
        self, examples: Sequence[Example], features: Features, decoded: np.ndarray, threshold: Any
    ) -> tuple[Predictions, LabelThreshold]:
        """The labels from the threshold on."""
        chosen = threshold if isinstance(threshold, LabelThreshold) else LabelThreshold()
        predicted = chosen.predicted(decoded)
        gold = features.targets > 0
        names = np.array(self.labels, object)
        entries = [
            {
                "id": example.identifier,
                "prediction": names[labels].tolist(),
                "gold": None if example.target is None else names[true].tolist(),
                "probabilities": dict(zip(names, map(float, row), strict=True)),
            }
            for example, labels, true, row in zip(examples, predicted, gold, decoded, strict=True)
        ]
        return Predictions(gold, predicted, entries), chosen

    def average(self, models: Sequence[tuple[Any, Any]]) -> tuple[np.ndarray, LabelThreshold]:
        """The mean of the probabilities, and of the thresholds."""
        mean = np.mean([decoded for decoded, _ in models], axis=0)
        value = float(np.mean([threshold.value for _, threshold in models]))
        may_be_empty = all(threshold.may_be_empty for _, threshold in models)
        return mean, LabelThreshold(value, may_be_empty, "nothing: the mean of the models' own")

    def constants(self, gold: Any) -> Iterator[np.ndarray]:
        """The sets that are best for micro F1 (some of the most frequent labels), hamming loss (the labels of most
        rows), macro F1 (all labels), and exact match (the most frequent set)."""
        gold = np.asarray(gold, np.bool_)
        counts = gold.sum(axis=0)
        order = np.argsort(-counts, kind="stable")
        right = np.cumsum(counts[order])
        scores = 2 * right / (counts.sum() + len(gold) * np.arange(1, len(counts) + 1))
        frequent = np.zeros(len(counts), np.bool_)
        frequent[order[: scores.argmax() + 1]] = counts.any()
        sets = [frequent, counts > len(gold) / 2, np.ones(len(counts), np.bool_)]
        if len(gold):
            distinct, set_counts = np.unique(gold, axis=0, return_counts=True)
            sets.append(distinct[set_counts.argmax()])
        for labels in sets:
            yield np.tile(labels, (len(gold), 1))

    def linear_baseline(
        self,
        metrics: Sequence[Metric],
        train: Sequence[Example],
        dev: Sequence[Example],
        further: Mapping[str, Sequence[Example]],
        balanced: bool = False,
    ) -> Any:
        """TF-IDF with a logistic regression for each label."""
        from albert.tasks import linear_baseline as linear

        return linear.texts_baseline(
            metrics,
            linear.sample(train),
            dev,
            further,
            method=linear.TEXTS_METHOD[balanced],
            n_outputs=len(self.labels),
            fit=partial(linear.fit_labels, n_labels=len(self.labels), balanced=balanced),
        )

    def analysis(self, examples: Sequence[Example], predictions: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Scores and a 2 by 2 matrix of each label, the most confidently wrong examples, calibration."""
        names = self.shown
        gold = np.array([[label in entry["gold"] for label in self.labels] for entry in predictions], np.bool_)
        predicted = np.array(
            [[label in entry["prediction"] for label in self.labels] for entry in predictions], np.bool_
        )
        probabilities = np.array([[entry["probabilities"][label] for label in self.labels] for entry in predictions])
        shape = (len(predictions), len(names))
        gold, predicted, probabilities = (values.reshape(shape) for values in (gold, predicted, probabilities))
        confidence = np.where(predicted, probabilities, 1 - probabilities)
        errors = []
        wrong_confidence = np.where(gold != predicted, confidence, 0.0).max(axis=1, initial=0.0)
        for index in np.argsort(-wrong_confidence, kind="stable").tolist():
            wrong = np.flatnonzero(gold[index] != predicted[index])
            if not len(wrong):
                continue
            worst = wrong[confidence[index, wrong].argmax()]
            error = {
                "id": examples[index].identifier,
                "text": text_of(examples[index]),
                "gold": [names[label] for label in np.flatnonzero(gold[index])],
                "predicted": [names[label] for label in np.flatnonzero(predicted[index])],
                "label": names[worst],
                "probability": float(probabilities[index, worst]),
            }
            errors.append(error)
        metrics = lazy_import("sklearn.metrics")
        rows = []
        matrices = []
        confusions = []
        for column, name in enumerate(names):
            of_label = (gold[:, column].astype(np.int64), predicted[:, column].astype(np.int64))
            rows.append(per_class((NONE, name), *of_label)[1])
            matrix = metrics.confusion_matrix(*of_label, labels=[0, 1]).tolist()
            matrices.append(matrix)
            confusions.append({"gold": name, "predicted": NONE, "count": matrix[1][0]})
            confusions.append({"gold": NONE, "predicted": name, "count": matrix[0][1]})
        return {
            "per_class": rows,
            "confusion": {"labels": list(names), "counts": matrices, "largest": largest(confusions)},
            "errors": first_of_equal(errors)[:MAX_ERRORS],
            "calibration": calibration(probabilities.ravel(), gold.ravel()),
        }

    def submission_files(self, name: str, entries: Sequence[Mapping[str, Any]]) -> dict[str, str]:
        """An object of example to list of labels."""
        return {f"{name}.json": object_file(entries, "prediction")}
