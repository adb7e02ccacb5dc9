"""Multi-label classification: any number of labels for each text or pair of texts.

What a text passes: as in `single_label`, but each logit is a probability of its own, and a threshold decides which
labels are predicted."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np

from albert.runtime.environment import lazy_import
from albert.runtime.errors import InvalidConfiguration
from albert.tables.table import Row, Table
from albert.tasks.error_analysis import MAX_ERRORS, NONE, calibration, first_of_equal, largest, per_class, text_of
from albert.tasks.examples import Example, Features, label_sets
from albert.tasks.from_table import Inferred, Recognised, TableDeclaration, metrics_by_name, quoted_columns
from albert.tasks.label_doubts import separator_of
from albert.tasks.label_threshold import LabelThreshold, choose_label_threshold, saved_label_threshold
from albert.tasks.labels import (
    are_vectors,
    columns_joined,
    doubtful_labels,
    equal_labels,
    labels_inferred,
    names_of_labels,
    ones_of_vectors,
    refuse_unknown_labels,
    spelled_labels,
    vectors_read,
    with_label_cells,
    with_label_names,
)
from albert.tasks.metrics import Metric, multi_label_scores
from albert.tasks.pipeline import Head, Lengths
from albert.tasks.single_label import LabelScore, SingleLabel, ranked_labels, scores_by_label
from albert.tasks.table_task import TableTask
from albert.tasks.task import Labelled, LinearHead, Predictions, keep_back_examples, label_id, object_file, stacked
from albert.tasks.texts import TextTask, has_text_and_label, text_inputs
from albert.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class MultiLabel(TextTask, Labelled):
    """Any number of classes at once (multi-label classification). `labels` are in the order of their ids.

    `column` holds a list of labels, or a text with `separator` between them, where whitespace around labels is ignored,
    and a separator at an end; an empty value means no label. The `threshold` decides which labels are predicted.
    """

    labels: tuple[str, ...]
    column: str
    separator: str = "|"
    names: tuple[str, ...] | None = None
    threshold: LabelThreshold = field(default_factory=LabelThreshold)

    name = SingleLabel.name
    about = SingleLabel.about
    needs = SingleLabel.needs
    kind: ClassVar[str] = "multi-label"
    loss_name: ClassVar[str] = "labels"
    problem_type: ClassVar[str | None] = "multi_label_classification"
    may_be_unlabelled: ClassVar[bool] = True
    takes_threshold: ClassVar[bool] = True

    @classmethod
    def of_head(cls, head: Head) -> "MultiLabel | None":
        if head.problem_type != cls.problem_type or not head.is_trained(cls.heads):
            return None
        return cls(head.labels, "label").tuned_as(head.config, head.model, head.threshold)

    # ---- From a table to the task -----------------------------------------------------------------------------------

    own_settings = ("labels", "label_names", "label_columns", "separator")

    @classmethod
    def recognised(cls, task: TableTask, table: Table) -> Recognised | None:
        """Several columns of labels, lists beside a text, or vectors with any number of ones."""
        if task.label_columns is not None:
            task = with_label_cells(task, table)
            cells = "0 or 1" if task.label_cells == "one_hot" else "a label, or nothing,"
            why = f"--label names {len(task.label_columns or ())} columns, and each row has {cells} in each"
            return Recognised(task, why, "--kind classification")
        if task.label is None or not has_text_and_label(task, table):
            return None
        if are_vectors(table, task.label):
            if all(ones == 1 for ones in ones_of_vectors(table, task.label)):
                return None
            return Recognised(task, f"{task.label!r} holds vectors with any number of ones", "a column of labels")
        lists = [value for value in table.values(task.label) if isinstance(value, tuple)]
        if all(len(value) == 1 for value in lists):
            return None
        return Recognised(task, f"{task.label!r} holds lists", "a column of one label a row")

    @classmethod
    def converted(
        cls, task: TableTask, table: Table, source: object, inferred: list[Inferred]
    ) -> tuple[TableTask, Table]:
        """A list of labels in each row, from a column, from several columns, or from vectors."""
        if task.label_columns is not None:
            return columns_joined(task, table, source)
        return vectors_read(task, table)

    @classmethod
    def completed(
        cls, task: TableTask, table: Table, source: object, inferred: list[Inferred], to_learn: bool
    ) -> tuple[TableTask, Table]:
        """The separator and the labels."""
        refuse_unknown_labels(task, to_learn)
        column = str(task.label)
        task = _with_separator(task, table, column, inferred)
        own = cls((), column, task.separator or "|")
        counts = Counter(label for row in table.rows for label in own.written_labels(row) if label)
        if task.labels is None:
            task = labels_inferred(task, table, source, column, set(equal_labels(counts).values()), inferred)
            inferred += doubtful_labels(task.labels or ())
        task = with_label_names(task, inferred)
        return task, spelled_labels(task, table, task.separator)

    @classmethod
    def of_table(cls, task: TableTask, tables: Mapping[str, Table]) -> TableDeclaration:
        assert task.label is not None and task.labels is not None
        target = cls(task.labels, task.label, task.separator or "|", names_of_labels(task))
        texts = quoted_columns(task.text, task.pair)
        about = f"Predicts which of {len(task.labels)} labels `{task.label}` has, from {texts}"
        return TableDeclaration(task, text_inputs(task), target, about)

    @classmethod
    def possible_metrics(cls, task: TableTask) -> dict[str, Metric]:
        return metrics_by_name(multi_label_scores)

    # ---- From a row of a table to an example, and to token ids ------------------------------------------------------

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

    def encode(self, examples: Sequence[Example], tokenizer: Tokenizer, lengths: Lengths) -> Features:
        """A sequence for each example; targets say which labels are true, float32 [examples, labels]."""
        features = super().encode(examples, tokenizer, lengths)
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
    ) -> LinearHead:
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
        return LinearHead(weight, bias, mean_cross_entropy)

    # ---- From outputs to a reply ------------------------------------------------------------------------------------

    def decode(self, outputs: Iterable[Any], features: Features) -> np.ndarray:
        """The probability of each label, [examples, labels]."""
        import torch

        return torch.from_numpy(stacked(outputs, len(self.labels))).sigmoid().numpy()

    Reply = list[LabelScore]
    about_reply = SingleLabel.about_reply

    def reply(self, example: Example, decoded: np.ndarray, cut: Sequence[int]) -> list[LabelScore]:
        predicted = dict(zip(self.shown, self.threshold.predicted(decoded[None])[0].tolist(), strict=True))
        entries = ranked_labels(self.shown, decoded, example, cut)
        for entry in entries:
            entry["predicted"] = predicted[entry["label"]]
        return entries

    def cell_types(self) -> dict[str, Any]:
        """The labels that are predicted, and the scores of all in the model's order."""
        return {"labels": [str], "scores": dict.fromkeys(self.shown, float), "tokens_cut": int, "empty": bool}

    def cells(self, reply: list[LabelScore]) -> dict[str, Any]:
        labels = [entry["label"] for entry in reply if entry.get("predicted")]
        return {**reply[0], "labels": labels, "scores": scores_by_label(self.shown, reply)}

    # ---- The threshold ----------------------------------------------------------------------------------------------

    def keep_back(self, examples: Sequence[Example], seed: int) -> tuple[list[Example], list[Example]]:
        return keep_back_examples(examples, seed)

    def tuned(self, examples: Sequence[Example], decoded: np.ndarray) -> "MultiLabel":
        """The threshold with the best micro F1."""
        about = f"{len(examples):,} rows held out of the training set"
        gold = label_sets(examples, len(self.labels)) > 0
        return replace(self, threshold=choose_label_threshold(gold, decoded, about))

    def tuned_as(self, config: Mapping[str, Any], model: str, threshold: float | None = None) -> "MultiLabel":
        return replace(self, threshold=saved_label_threshold(config, model, threshold))

    @property
    def tuned_keys(self) -> dict[str, Any]:
        return self.threshold.keys

    @property
    def tuned_note(self) -> str:
        return self.threshold.note

    def averaged(self, models: Sequence[tuple[Any, Any]]) -> "tuple[MultiLabel, np.ndarray]":
        """The mean of the probabilities, and of the thresholds."""
        value = float(np.mean([task.threshold.value for task, _ in models]))
        may_be_empty = all(task.threshold.may_be_empty for task, _ in models)
        threshold = LabelThreshold(value, may_be_empty, "nothing: the mean of the models' own")
        return replace(self, threshold=threshold), np.mean([decoded for _, decoded in models], axis=0)

    # ---- From probabilities to scores -------------------------------------------------------------------------------

    def judge(self, examples: Sequence[Example], decoded: np.ndarray) -> Predictions:
        """The labels from the threshold on."""
        predicted = self.threshold.predicted(decoded)
        gold = label_sets(examples, len(self.labels)) > 0
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
        return Predictions(gold, predicted, entries)

    def of_entries(self, entries: Sequence[Mapping[str, Any]]) -> tuple[np.ndarray, np.ndarray]:
        gold, predicted = (
            np.array([[label in entry[key] for label in self.labels] for entry in entries], np.bool_)
            for key in ("gold", "prediction")
        )
        return gold, predicted

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

    def word_model(
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


def _with_separator(task: TableTask, table: Table, column: str, inferred: list[Inferred]) -> TableTask:
    """The task with the sign between several labels in one text."""
    if task.separator is not None:
        return task
    texts = [value for value in table.values(column) if isinstance(value, str)]
    separator = separator_of(dict.fromkeys(texts))
    if separator is None:  # few combinations of many labels
        separator = next((each for each in "|;," if any(each in text.strip() for text in texts)), None)
    if separator is not None:
        share = sum(separator in text for text in texts) / len(texts)
        why = f"{share:.0%} of {len(texts):,} rows have it"
        inferred.append(Inferred("separator", repr(separator), why, "--separator ;"))
    elif texts and len(texts) == len(table.rows):  # no row has a list
        inferred.append(Inferred("separator", "'|'", "no row has several labels", "--separator ;"))
    return replace(task, separator=separator or "|")


def mean_cross_entropy(outputs: np.ndarray, targets: np.ndarray, groups: np.ndarray) -> float:
    """The mean of the labels' binary cross entropies, summed over rows."""
    return float((np.logaddexp(0, outputs) - outputs * targets).sum() / targets.shape[1])
