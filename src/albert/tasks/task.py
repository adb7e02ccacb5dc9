"""`Task`, a pipeline that can be trained; each kind is a subclass in a file of its own.

The fields of a task are what is declared (columns, labels) and what was tuned (a threshold). The methods are all that
the rest of the program needs to know about it, from the row of a table to the report; none keeps a model. Methods that
compute with torch import it themselves."""

import json
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float

from albert.recipes.finetuning import PairEncoding
from albert.runtime.errors import DamagedData
from albert.runtime.random_streams import stream
from albert.tables.table import Row
from albert.tasks.examples import Example, Features
from albert.tasks.from_table import FromTable
from albert.tasks.inputs import ReadColumns
from albert.tasks.metrics import Metric, NumberScale
from albert.tasks.pipeline import RowPipeline

KEPT_BACK_SHARE = 0.05
MIN_KEPT_BACK = 100
"""Examples; of fewer than five times as many a fifth is kept back."""
MIN_EXAMPLES = 100
"""With fewer examples none is kept back, and nothing is tuned."""
MAJORITY = "majority baseline"
BEST_CONSTANT = "best constant"


@dataclass(frozen=True)
class Predictions:
    """Gold and predicted values for the metrics, and a JSON object for each example, all in file order."""

    gold: Any
    predicted: Any
    entries: list[dict[str, Any]]


@dataclass(frozen=True)
class LinearHead:
    """A linear head that was solved on features.

    Attributes:
        loss_of: the loss of rows that it was not solved on, summed, of outputs, targets and groups.
        is_constant: whether all rows were of one class, so that nothing was solved.
    """

    weight: Float[np.ndarray, "outputs features"]
    bias: Float[np.ndarray, " outputs"]
    loss_of: Callable[[np.ndarray, np.ndarray, np.ndarray], float]
    is_constant: bool = False

    def loss_on(self, features: np.ndarray, targets: np.ndarray, groups: np.ndarray) -> float:
        """The loss of rows that it was not solved on, summed."""
        return self.loss_of(features @ self.weight.T + self.bias, targets, groups)


class Task(RowPipeline, FromTable):
    """A pipeline that can be trained: one kind of task with its columns and labels."""

    kind: ClassVar[str]
    """Its name, as in task files."""
    loss_name: ClassVar[str]
    """The name of its loss in the journal."""
    per_sequence: ClassVar[bool] = True
    """Whether the head gives outputs for each sequence as a whole, which a teacher can give too."""
    per_token: ClassVar[bool] = False
    """Whether targets belong to tokens instead of sequences."""
    encodes_pairs: ClassVar[bool] = False
    """Whether the texts of a pair may be encoded separately."""
    problem_type: ClassVar[str | None] = None
    """In `config.json`, as in transformers."""
    may_be_unlabelled: ClassVar[bool] = False
    """Whether no label is an answer, too."""
    baseline_name: ClassVar[str] = MAJORITY
    """What the best constant prediction is called beside scores."""
    takes_threshold: ClassVar[bool] = False
    """Whether labels are predicted from a probability on, which a user may give."""
    may_be_absent: bool = False
    """Whether a question may have no answer."""

    # ---- From a row to an example -----------------------------------------------------------------------------------

    @property
    @abstractmethod
    def gold_column(self) -> str | None:
        """The column that holds what is to be predicted; None if that is not in a column."""

    @property
    def option_columns(self) -> tuple[str, ...]:
        """The columns of the options of a question."""
        return ()

    @property
    def strata(self) -> tuple[str, ...]:
        """The classes of which every row has one, which a split keeps in proportion; none if there are no such."""
        return ()

    def written_labels(self, row: Row) -> tuple[str, ...]:
        """The labels of a row as they are written: none, one, several, or one for each word."""
        value = row.fields.get(self.gold_column or "")
        return (value,) if isinstance(value, str) and value.strip() else ()

    def written_numbers(self, labels: Iterable[str]) -> np.ndarray | None:
        """The finite numbers among labels as they are written; None if the kind predicts no numbers."""
        return None

    def is_labelled(self, rows: Iterable[Row]) -> bool:
        """Return whether at least one row has a gold answer."""
        return any(self.gold_column in row.fields for row in rows)

    @abstractmethod
    def gold(self, row: Row, texts: Sequence[str]) -> Any:
        """What is to be predicted for a row, the `target` of its example; DamagedData if it has none."""

    def example(self, row: Row, inputs: ReadColumns, labelled: bool = True) -> Example:
        """The example of a row; without a gold answer if not `labelled`."""
        texts = inputs.texts(row)
        gold = self.gold(row, texts) if labelled else None
        return Example(row.identifier, row.where, texts, gold, group=row.group)

    def sequences_of(self, row: Row, inputs: ReadColumns) -> tuple[list[str], list[str]]:
        """The texts of a row that are read in one sequence; and those of which each is read in a sequence with them."""
        values = (row.fields.get(column) for column in inputs.columns)
        return [value if isinstance(value, str) else " ".join(value or ()) for value in values], []

    def refuse_empty(self, row: Row) -> None:
        """Raise DamagedData if the label of a row is empty where each needs one."""
        label = row.fields.get(self.gold_column or "", "")
        if self.gold_column is not None and isinstance(label, str) and not label.strip():
            why = f"empty label in column {self.gold_column!r}"
            raise DamagedData(row.where, why, "reading.drop_unlabelled=true leaves such rows out")

    # ---- What is trained on, of the `Features` of all examples ------------------------------------------------------

    def to_train(self, examples: Sequence[Example], features: Features, title: str) -> Features:
        """The sequences to train on; InvalidConfiguration about the `title` if there are none."""
        return features

    def number_scale(self, targets: np.ndarray) -> NumberScale | None:
        """The scale of numbers to predict; InvalidConfiguration if all are equal."""
        return None

    # ---- The head ---------------------------------------------------------------------------------------------------

    @property
    def n_outputs(self) -> int | None:
        """Outputs of the head for each sequence or token; None if the head itself determines them."""
        return None

    @property
    def output_names(self) -> tuple[str, ...] | None:
        """A name for each output, for `id2label` in `config.json`."""
        return None

    @property
    def class_names(self) -> tuple[str, ...]:
        """The labels, as in the files, of a head with an output for each of them."""
        return ()

    def model_kind(self, pairs: PairEncoding = "together") -> Any:
        """The kind of model, a `Kind` of `albert.checkpoints.huggingface`."""
        return "classification" if pairs == "together" else "pair_classification"

    def model_kind_of(self, saved: str) -> Any:
        """The kind of model of a fine-tuned one, whose files say `saved`."""
        return saved if self.encodes_pairs and saved == "pair_classification" else self.model_kind()

    def check_head(self, problem_type: Any, model: str) -> None:
        """Raise InvalidConfiguration if the `problem_type` of a fine-tuned model is that of another kind."""
        return None

    # ---- The loss ---------------------------------------------------------------------------------------------------

    @property
    def term(self) -> str:
        """The name of the loss in the journal."""
        return self.loss_name

    def head_inputs(self, batch: Any) -> tuple[Any, ...]:
        """Inputs of the head besides the states, while training."""
        return ()

    def logits(self, output: Any, batch: Any) -> Any:
        """The head's output as a Tensor [examples, outputs]."""
        return output.reshape(len(batch.targets), -1)

    @abstractmethod
    def loss(self, output: Any, batch: Any) -> tuple[Any, Any]:
        """The loss of a micro-batch and the number of examples that are right.

        Args:
            output: of the head, a Tensor [sequences, outputs] or [tokens, outputs].
            batch: a `TaskBatch` of `albert.finetuning.batches`.

        Returns:
            The sum over the examples, and how many are predicted rightly; None if that cannot be said.
        """

    def soft_loss(self, logits: Any, teacher: Any, temperature: float) -> Any:
        """The distillation loss of Tensors [examples, outputs], summed over examples.

        Cross entropy of the softened probabilities, times the squared temperature so that gradients keep their size
        (Hinton et al., 2015, §2).
        """
        import torch

        ours = logits.float() / temperature
        theirs = teacher.float() / temperature
        present = torch.isfinite(ours)
        losses = theirs.softmax(dim=1) * ours.log_softmax(dim=1).masked_fill(~present, 0.0)
        return temperature**2 * -losses.sum()

    # ---- What is tuned on examples that are kept back from training: a field of the task ----------------------------

    @property
    def is_tuned(self) -> bool:
        """Whether something is tuned when a user's table is learned."""
        return self.takes_threshold

    def keep_back(self, examples: Sequence[Example], seed: int) -> tuple[list[Example], list[Example]]:
        """Examples to train on, and others to tune on; a kind that is not tuned needs no others."""
        return list(examples), []

    def tuned(self, examples: Sequence[Example], decoded: Any) -> "Task":
        """The task with what is best for examples that were kept back from training."""
        return self

    def tuned_as(self, config: Mapping[str, Any], model: str, threshold: float | None = None) -> "Task":
        """The task with what a model's `config.json` holds; a `threshold` replaces it where a user may give one."""
        return self

    def tuned_on_scored(self, examples: Sequence[Example], decoded: Any) -> "Task":
        """The task for examples that are scored, if nothing was tuned before and something has to be."""
        return self

    @property
    def tuned_keys(self) -> dict[str, Any]:
        """The keys of `config.json` for what was tuned."""
        return {}

    @property
    def tuned_note(self) -> str | None:
        """What was tuned, as a line; None if nothing was."""
        return None

    def bake(self, model: Any) -> None:
        """Change the head of a trained model by what was tuned and has no key in `config.json`."""
        return None

    def averaged(self, models: Sequence[tuple[Any, Any]]) -> "tuple[Task, Any]":
        """The mean of what several models decoded, from each model's task and what it decoded; and its task."""
        return self, np.mean([decoded for _, decoded in models], axis=0)

    # ---- Scores -----------------------------------------------------------------------------------------------------

    @abstractmethod
    def judge(self, examples: Sequence[Example], decoded: Any) -> Predictions:
        """What is predicted for each example, beside what is right."""

    def of_entries(self, entries: Sequence[Mapping[str, Any]]) -> tuple[Any, Any] | None:
        """Gold and predicted values for the metrics, of saved entries of `judge`; None if they do not hold them."""
        answers = [list(entry["probabilities"]) for entry in entries]  # in the order of the classes
        gold, predicted = (
            np.array([own.index(entry[key]) for own, entry in zip(answers, entries, strict=True)], np.int64)
            for key in ("gold", "prediction")
        )
        return gold, predicted

    @property
    def score_note(self) -> str | None:
        """A remark on the scores."""
        return None

    @abstractmethod
    def constants(self, gold: Any) -> Iterator[Any]:
        """Constant predictions for the majority baseline, one of them best for each metric; the most frequent first."""

    def constant_label(self, predicted: Any) -> str | None:
        """The label that a constant prediction of `constants` gives to every row; None if the kind has no classes."""
        return None

    def word_model(
        self,
        metrics: Sequence[Metric],
        train: Sequence[Example],
        dev: Sequence[Example],
        further: Mapping[str, Sequence[Example]],
        balanced: bool = False,
    ) -> Any:
        """A `LinearBaseline` on words, fitted to `train` and scored on the other sets; None if the kind has none.

        Args:
            balanced: whether each class, label or tag is weighted by its inverse frequency.
        """
        return None

    @abstractmethod
    def analysis(self, examples: Sequence[Example], predictions: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Where a model is right and wrong, as plain values.

        Args:
            predictions: an object for each example, in the same order, as `predictions-dev.jsonl` has them.

        Returns:
            `per_class`: class, precision, recall, F1 (points), count (gold) and predicted (count) of each class, label,
            entity type or tag; None for numbers and answers.
            `confusion`: labels, counts [gold, predicted] (several labels per example: [labels, gold, predicted] of 2
            by 2), and the largest confusions; None for numbers and answers.
            `errors`: the most confident first; of numbers the largest difference first. With several labels per
                example, `probability` is that of `label`, the most confidently wrong one, which is missed or wrongly
                predicted.
            `calibration`: expected calibration error (points; Guo et al. 2017, arXiv 1706.04599) and bins; None for
            numbers. With several labels per example the probability of each label is compared with its frequency.
        """

    @abstractmethod
    def submission_files(self, name: str, entries: Sequence[Mapping[str, Any]]) -> dict[str, str]:
        """The files that a benchmark's server takes: name to content."""


class LinearTask(Task):
    """A kind whose head is one linear map, which can be solved on frozen features: the linear probe."""

    def head_rows(
        self, features: Sequence[Any], batches: Any, members: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """What a head is solved on: an example for each row, or a word with a tag, or an option.

        Args:
            features: of each sequence of the members, [features]; [tokens, features] if targets belong to tokens.
            batches: the `TaskBatches` of `albert.finetuning.batches`.
            members: indices of examples.

        Returns:
            Features [rows, features], targets [rows], and groups [rows]: rows of a sentence or question have the same.
        """
        rows = np.stack([np.asarray(row) for row in features]).astype(np.float64)
        return rows, batches.targets[members], np.arange(len(members))

    @abstractmethod
    def solve(
        self, features: np.ndarray, targets: np.ndarray, groups: np.ndarray, options: Mapping[str, Any]
    ) -> LinearHead:
        """The best linear head.

        Args:
            features, targets, groups: of `head_rows`, features standardised.
            options: of scikit-learn's `LogisticRegression`; `C` is the inverse of the regularisation.
        """


class Labelled(LinearTask):
    """A kind with a fixed set of labels, each with an output of the head."""

    labels: tuple[str, ...]
    """As in the files, in the order of their ids."""
    column: str
    """Holds the label, or the labels."""
    names: tuple[str, ...] | None
    """Readable names of the labels; None: the labels themselves."""

    @property
    def shown(self) -> tuple[str, ...]:
        """The names of the labels, or else the labels."""
        return self.names if self.names is not None else self.labels

    @property
    def gold_column(self) -> str:
        return self.column

    @property
    def n_outputs(self) -> int:
        return len(self.labels)

    @property
    def output_names(self) -> tuple[str, ...]:
        return self.shown

    @property
    def class_names(self) -> tuple[str, ...]:
        return self.labels

    @cached_property
    def _ids(self) -> dict[str, int]:
        return {label: index for index, label in enumerate(self.labels)}


def label_id(row: Row, label: str, ids: Mapping[str, int], why: str) -> int:
    """The id of a label; DamagedData with the reason `why` if there is no such label."""
    if label not in ids:
        known = ", ".join(map(repr, list(ids)[:8])) + (", ..." if len(ids) > 8 else "")
        raise DamagedData(row.where, why, f"known: {known}")
    return ids[label]


def most_frequent_class(gold: Any, n_classes: int) -> Iterator[np.ndarray]:
    """The most frequent class for every example; of two classes each of them, as F1 may be best for the other one."""
    most_frequent = int(np.bincount(gold, minlength=n_classes).argmax())
    for label in dict.fromkeys((most_frequent, 0, 1) if n_classes == 2 else (most_frequent,)):
        yield np.full(len(gold), label)


def softmax(logits: np.ndarray) -> np.ndarray:
    """Probabilities over the last axis, in the type of the logits; in float32 rounded as by torch."""
    if logits.dtype == np.float32:
        import torch

        return torch.from_numpy(logits).softmax(dim=-1).numpy()
    exponentials = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return exponentials / exponentials.sum(axis=-1, keepdims=True)


def class_predictions(names: Sequence[str], examples: Sequence[Example], probabilities: np.ndarray) -> Predictions:
    """The most probable of some classes or options; `probabilities` are [examples, classes]."""
    gold = np.array([0 if example.target is None else example.target for example in examples], np.int64)
    predicted = probabilities.argmax(axis=1)
    entries = [
        {
            "id": example.identifier,
            "prediction": names[int(label)],
            "gold": None if example.target is None else names[int(true)],
            "probabilities": dict(zip(names, map(float, row), strict=True)),
        }
        for example, label, true, row in zip(examples, predicted, gold, probabilities, strict=True)
    ]
    return Predictions(gold, predicted, entries)


def stacked(outputs: Iterable[Any], width: int) -> np.ndarray:
    """The outputs for some sequences as one array [sequences, width]."""
    rows = [np.asarray(row) for row in outputs]
    return np.stack(rows) if rows else np.zeros((0, width), np.float32)


def cross_entropy(logits: Any, batch: Any) -> tuple[Any, Any]:
    """Cross entropy of Tensor logits [examples, classes], summed, and the number of right examples."""
    from torch.nn import functional

    loss = functional.cross_entropy(logits.float(), batch.targets, weight=batch.class_weights, reduction="sum")
    return loss, (logits.argmax(1) == batch.targets).sum()


def solve_classes(features: np.ndarray, targets: np.ndarray, n_classes: int, options: Mapping[str, Any]) -> LinearHead:
    """A multinomial logistic regression; a class without an example gets a bias below all others."""
    from sklearn.linear_model import LogisticRegression

    weight = np.zeros((n_classes, features.shape[1]))
    bias = np.zeros(n_classes)
    present = np.unique(targets)
    if len(present) == 1:
        bias[present] = 1.0
        return LinearHead(weight, bias, summed_cross_entropy, is_constant=True)
    regression: Any = LogisticRegression(**options).fit(features, targets)
    if len(present) == 2:
        weight[present] = np.concatenate([-regression.coef_, regression.coef_]) / 2
        bias[present] = np.concatenate([-regression.intercept_, regression.intercept_]) / 2
    else:
        weight[present] = regression.coef_
        bias[present] = regression.intercept_
    absent = np.setdiff1d(np.arange(n_classes), present)
    bias[absent] = bias[present].min() - np.log(len(features))
    return LinearHead(weight, bias, summed_cross_entropy)


def keep_back_examples(examples: Sequence[Example], seed: int) -> tuple[list[Example], list[Example]]:
    """Split off a twentieth of the examples, at least 100 or a fifth, to choose a threshold on.

    None are split off from fewer than `MIN_EXAMPLES`.
    """
    if len(examples) < MIN_EXAMPLES:
        return list(examples), []
    n_held = max(round(KEPT_BACK_SHARE * len(examples)), min(MIN_KEPT_BACK, len(examples) // 5))
    held = set(stream("finetuning.held_out", seed).permutation(len(examples))[:n_held].tolist())
    train = [example for index, example in enumerate(examples) if index not in held]
    return train, [example for index, example in enumerate(examples) if index in held]


def summed_cross_entropy(outputs: np.ndarray, targets: np.ndarray, groups: np.ndarray) -> float:
    """Cross entropy of outputs [rows, classes], summed."""
    largest = outputs.max(axis=1, keepdims=True)
    normalizers = largest[:, 0] + np.log(np.exp(outputs - largest).sum(axis=1))
    return float((normalizers - outputs[np.arange(len(targets)), targets]).sum())


def table_file(entries: Sequence[Mapping[str, Any]], write: Callable[[Any], str]) -> str:
    """GLUE's prediction file: a table of `index` and `prediction`."""
    rows = [f"{entry['id']}\t{write(entry['prediction'])}\n" for entry in entries]
    return "index\tprediction\n" + "".join(rows)


def object_file(entries: Sequence[Mapping[str, Any]], key: str) -> str:
    """SQuAD's prediction file: a JSON object of example to the value of a key."""
    return json.dumps({entry["id"]: entry[key] for entry in entries}, allow_nan=False, indent=1) + "\n"
