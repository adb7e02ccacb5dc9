"""Classification: one of several classes for each text or pair of texts.

What a text passes: `TextTask` (`albert.tasks.texts`) makes an `Example` of a text or a pair, and of that one sequence
of token ids, `[CLS] text [SEP]` or `[CLS] text [SEP] pair [SEP]`, cut at the ends of the texts. The head gives a logit
for each class. `decode` makes probabilities of them, and `reply` ranks the labels."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Any, ClassVar, NotRequired, TypedDict

import numpy as np

from albert.runtime.errors import DamagedData, InvalidConfiguration, UsageError, did_you_mean
from albert.tables.fields import as_number
from albert.tables.table import Field, Row, Table
from albert.tasks import metrics
from albert.tasks.error_analysis import class_analysis
from albert.tasks.examples import Example, Features
from albert.tasks.from_table import Inferred, Recognised, TableDeclaration, metrics_by_name, quoted_columns
from albert.tasks.label_doubts import MANY_VALUES, refuse_doubtful_classes
from albert.tasks.labels import (
    are_vectors,
    columns_joined,
    doubtful_labels,
    equal_labels,
    label_key,
    labels_inferred,
    names_of_labels,
    one_label,
    ones_of_vectors,
    refuse_unknown_labels,
    spelled_labels,
    vectors_read,
    with_label_names,
)
from albert.tasks.metrics import Metric
from albert.tasks.numbers import refuse_comma_numbers
from albert.tasks.pipeline import Empty, Head, TokensCut
from albert.tasks.table_task import TableTask
from albert.tasks.task import (
    Labelled,
    LinearHead,
    Predictions,
    class_predictions,
    cross_entropy,
    label_id,
    most_frequent_class,
    softmax,
    solve_classes,
    stacked,
    table_file,
)
from albert.tasks.texts import TextTask, costs, has_text_and_label, text_inputs

MAX_NAMED = 10
"""The largest number of labels that a description names."""
MOSTLY_ONE_CLASS = 0.8
"""The share of the most frequent class from which on accuracy says little, so that F1 chooses the best evaluation."""
RARE_CLASS = 0.5
"""A class is rare, so that F1 chooses, too, if its share is below this part of that of equally frequent classes."""
MIN_RARE_ROWS = 10
"""A class with fewer rows does not count as rare: its F1 is that of a few rows."""


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

    # ---- From a table to the task -----------------------------------------------------------------------------------

    own_settings = ("labels", "label_names", "label_columns", "positive")

    @classmethod
    def recognised(cls, task: TableTask, table: Table) -> Recognised | None:
        """What no other kind recognises is classification; UsageError for values that are hardly classes."""
        if task.label is None or not has_text_and_label(task, table):
            return Recognised(task, "a text and a label are named", "")
        label = task.label
        override = "--kind multi-label"
        if are_vectors(table, label):
            return Recognised(task, f"{label!r} holds vectors with one 1 each", override)
        values = table.values(label)
        if any(isinstance(value, tuple) for value in values):
            return Recognised(task, f"every list in {label!r} has one label", override)
        texts = [value.strip() for value in values if isinstance(value, str) and value.strip()]
        different = set(texts)
        why = f"{len(different):,} different values in {label!r}"
        override = "--kind number, --kind multi-label"
        if all(as_number(value) is not None for value in different):
            return Recognised(task, f"{why}, at most {MANY_VALUES}", override)
        refuse_doubtful_classes(texts, label)
        return Recognised(task, f"{why}, not all of them numbers", override)

    @classmethod
    def converted(
        cls, task: TableTask, table: Table, source: object, inferred: list[Inferred]
    ) -> tuple[TableTask, Table]:
        """One label in each row, from a column, from several columns, or from vectors."""
        if task.label_columns is not None:
            task, table = columns_joined(task, table, source)
            return task, _only_labels(table, str(task.label))
        if task.label is None:
            return task, table
        if are_vectors(table, task.label):
            if any(ones != 1 for ones in ones_of_vectors(table, task.label)):
                why = f"the vectors in {task.label!r} have several ones"
                raise UsageError("--kind classification", why, "say --kind multi-label")
            task, table = vectors_read(task, table)
        return task, one_label(table, str(task.label))

    @classmethod
    def completed(
        cls, task: TableTask, table: Table, source: object, inferred: list[Inferred], to_learn: bool
    ) -> tuple[TableTask, Table]:
        """The labels, the class whose F1 matters, and the metrics if one class is rare."""
        refuse_unknown_labels(task, to_learn)
        column = str(task.label)
        counts = Counter(value for value in table.values(column) if isinstance(value, str) and value.strip())
        if task.labels is None:
            refuse_comma_numbers(counts, column)
            task = labels_inferred(task, table, source, column, set(equal_labels(counts).values()), inferred)
            inferred += doubtful_labels(task.labels or ())
        rows_of = Counter({label_key(label): 0 for label in task.labels or ()})
        for label, count in counts.items():
            rows_of[label_key(label)] += count
        task = _with_positive(task, rows_of, inferred, to_learn)
        if task.metrics is None and to_learn:
            task = _with_metrics_of_rare_classes(task, rows_of, inferred)
        task = with_label_names(task, inferred)
        return task, spelled_labels(task, table)

    @classmethod
    def of_table(cls, task: TableTask, tables: Mapping[str, Table]) -> TableDeclaration:
        assert task.label is not None and task.labels is not None
        names = names_of_labels(task)
        classes = f"one of {len(task.labels)} classes"
        if len(task.labels) <= MAX_NAMED:
            classes = ", ".join(names or task.labels)
        about = f"Predicts `{task.label}` ({classes}) from {quoted_columns(task.text, task.pair)}"
        return TableDeclaration(task, text_inputs(task), cls(task.labels, task.label, names), about)

    @classmethod
    def possible_metrics(cls, task: TableTask) -> dict[str, Metric]:
        """Of two classes F1 is that of one of them, and named after it."""
        possible = metrics_by_name(metrics.accuracy, metrics.macro_f1, metrics.matthews_correlation)
        labels = task.labels or ()
        if len(labels) == 2:
            names = names_of_labels(task) or labels
            own = [f1_of(at, name) for at, name in enumerate(names)]
            possible |= metrics_by_name(*own) | {"f1": own[labels.index(task.positive or labels[1])]}
        return possible

    @classmethod
    def usual_metrics(cls, task: TableTask) -> tuple[Metric, ...]:
        possible = cls.possible_metrics(task)
        return tuple(possible[name] for name in ("accuracy", "f1", "macro_f1") if name in possible)

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
    ) -> LinearHead:
        """A multinomial logistic regression."""
        return solve_classes(features, targets, len(self.labels), options)

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
        scores = dict.fromkeys(self.shown, float)
        return {"label": str, "score": float, "scores": scores, "tokens_cut": int, "empty": bool}

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


# ---- A table's labels: the only one of a row, the class that matters, and rare classes -------------------------------


def _only_labels(table: Table, column: str) -> Table:
    """The table with the label of each row in the place of a list of those in several columns."""

    def only(row: Row, value: Field) -> Field:
        if len(value) != 1:
            remedy = "--kind classification needs exactly one, leave it out for several labels"
            raise DamagedData(row.where, f"has {len(value)} labels in {column}", remedy)
        return value[0]

    return table.changed(column, only)


def _with_positive(task: TableTask, rows_of: Counter[str], inferred: list[Inferred], to_learn: bool) -> TableTask:
    """The task with the class of two whose F1 is reported: the rarer one."""
    known = task.labels or ()
    if len(known) == 2 and task.positive is None and to_learn:
        first, second = known
        of_first = rows_of[label_key(first)]
        of_second = rows_of[label_key(second)]
        task = replace(task, positive=first if of_first < of_second else second)
        why = "the rarer class" if of_first != of_second else "the second class"
        inferred.append(Inferred("F1 is that of", str(task.positive), why, "positive=LABEL"))
    if task.positive is not None and task.positive not in known:
        named = {name: label for label, name in (task.label_names or {}).items()}
        if task.positive not in named:
            raise UsageError("positive", f"{task.positive!r} is not a label", did_you_mean(task.positive, known))
        task = replace(task, positive=named[task.positive])
    return task


def _with_metrics_of_rare_classes(task: TableTask, rows_of: Counter[str], inferred: list[Inferred]) -> TableTask:
    """The task with F1 of the rare class, or macro F1 of several classes, as its first score if one class has most of
    the rows or another one is rare."""
    labels = task.labels or ()
    most = max(labels, key=lambda label: rows_of[label_key(label)])
    total = max(1, rows_of.total())
    share = rows_of[label_key(most)] / total
    large = [label for label in labels if rows_of[label_key(label)] >= MIN_RARE_ROWS]
    rarest = min(large, key=lambda label: rows_of[label_key(label)], default=most)
    share_of_rarest = rows_of[label_key(rarest)] / total
    has_rare = share_of_rarest < RARE_CLASS / max(1, len(labels))
    if (share < MOSTLY_ONE_CLASS and not has_rare) or task.positive == most:
        return task
    names = ("f1", "accuracy", "macro_f1") if len(labels) == 2 else ("macro_f1", "accuracy")
    what = f"f1 of {task.positive}" if len(labels) == 2 else "macro_f1"
    all_rows = f"all {total:,} rows with a label"  # also those that are kept back for dev
    why = f"{share:.0%} of {all_rows} have the label {most!r}, so that accuracy says little"
    if share < MOSTLY_ONE_CLASS:
        why = f"{share_of_rarest:.1%} of {all_rows} have the label {rarest!r}, of which accuracy says little"
        if len(large) < len(labels):
            why += f" (labels with fewer than {MIN_RARE_ROWS} rows do not count)"
    inferred.append(Inferred("first score", what, why, f"--metrics accuracy {names[0]}"))
    return replace(task, metrics=names)


def f1_of(label: int, name: str) -> Metric:
    """F1 of one of two classes, named after it."""

    def f1(gold: Any, predicted: Any) -> float | None:
        return metrics.f1(np.asarray(gold) == label, np.asarray(predicted) == label)

    f1.__name__ = f"f1 ({name})"
    return f1
