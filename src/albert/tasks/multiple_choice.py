"""Multiple choice: one of the options of each question, as RACE (Lai et al. 2017) and tables with columns of options.

Each option of a question becomes a sequence, `[CLS] passage [SEP] question option [SEP]`; the head gives a score to
each sequence, and the scores of a question's options compete. As in the reference, an option replaces every `_` in the
question, or follows it; question and option are cut at the start, the passage at its end."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, ClassVar

import numpy as np

from albert.runtime.errors import DamagedData, InvalidConfiguration
from albert.runtime.progress import progress
from albert.tables.table import Row
from albert.tasks.error_analysis import class_analysis
from albert.tasks.examples import Example, Features, join_sequences
from albert.tasks.inputs import Inputs, PairEncoding
from albert.tasks.recipe import TaskRecipe
from albert.tasks.task import (
    Predictions,
    Task,
    class_predictions,
    cross_entropy,
    label_id,
    most_frequent_class,
    object_file,
    softmax,
)
from albert.text.tokenizer import Tokenizer

OPTION_LABELS = "(option labels)"
"""A column with how each option is called in the labels of the file, where that is not the name of its column."""


def labels_of_options(meaning: str, names: Sequence[str], texts: Sequence[str], listed: Sequence[str]) -> list[str]:
    """How a file with labels of this meaning (`TableTask.option_labels`) calls each option."""
    match meaning:
        case "letter":
            return [chr(ord("A") + index) for index in range(len(names))]
        case "from-0" | "from-1":
            return [str(index + (meaning == "from-1")) for index in range(len(names))]
        case "text":
            return list(texts)
    return [*listed, *[""] * len(names)][: len(names)] if listed else list(names)


@dataclass(frozen=True)
class MultipleChoice(Task):
    """One of the options of each question: `options` are the columns of their texts, `column` holds the name of the
    right one's column. A question may have fewer options: the others are absent.
    """

    options: tuple[str, ...]
    column: str

    kind: ClassVar[str] = "multiple-choice"
    loss_name: ClassVar[str] = "option"

    # ---- From a row to an example -----------------------------------------------------------------------------------

    @property
    def gold_column(self) -> str:
        return self.column

    @property
    def option_columns(self) -> tuple[str, ...]:
        return self.options

    @cached_property
    def _ids(self) -> dict[str, int]:
        return {option: index for index, option in enumerate(self.options)}

    def gold(self, row: Row, texts: Sequence[str]) -> int:
        """The index of the right option."""
        name = row.text(self.column)
        return label_id(row, name, self._ids, f"{name!r} in column {self.column!r} names no option")

    def example(self, row: Row, inputs: Inputs, labelled: bool = True) -> Example:
        """Question, passage and the texts of all options; an absent option is empty."""
        texts = inputs.texts(row)
        options = tuple(row.text(option) if option in row.fields else "" for option in self.options)
        if sum(option in row.fields for option in self.options) < 2:
            why = f"has fewer than two options in the columns {', '.join(self.options[:8])}"
            raise DamagedData(row.where, why, "a question needs at least two")
        gold = self.gold(row, texts) if labelled else None
        labels = row.texts(OPTION_LABELS) if OPTION_LABELS in row.fields else ()
        return Example(row.identifier, row.where, texts, gold, options=options, group=row.group, option_labels=labels)

    # ---- From examples to token ids ---------------------------------------------------------------------------------

    def features(self, examples: Sequence[Example], tokenizer: Tokenizer, recipe: TaskRecipe) -> Features:
        """A sequence for each option of each example; targets are the indices of the right ones, int64 [examples]."""
        return option_features(examples, tokenizer, recipe.max_length, recipe.question_length)

    # ---- The head and its loss --------------------------------------------------------------------------------------

    def model_kind(self, pairs: PairEncoding = "together") -> Any:
        """One output for each sequence."""
        return "multiple_choice"

    def logits(self, output: Any, batch: Any) -> Any:
        """The scores of the options of each example, [examples, options]; minus infinity for absent options."""
        if batch.options is None:
            return output.reshape(len(batch.targets), -1)
        logits = output.new_full(batch.options.shape, float("-inf"))
        logits[batch.options] = output.reshape(-1)
        return logits

    def loss(self, output: Any, batch: Any) -> tuple[Any, Any]:
        """Cross entropy over the options of each question."""
        return cross_entropy(self.logits(output, batch), batch)

    # ---- The head solved on frozen features -------------------------------------------------------------------------

    def head_rows(
        self, features: Sequence[Any], batches: Any, members: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """A row for each option, whose target says whether it is the right one; a question is a group."""
        rows = np.stack([np.asarray(row) for row in features]).astype(np.float64)
        shape = (batches.n_examples, batches.n_options)
        present = np.ones(shape, np.bool_) if batches.options is None else batches.options
        groups, columns = np.nonzero(present[members])
        return rows, columns == batches.targets[members][groups], groups

    def solve(
        self, features: np.ndarray, targets: np.ndarray, groups: np.ndarray, options: Mapping[str, Any]
    ) -> tuple[np.ndarray, np.ndarray]:
        """A conditional logistic regression: the right option has the largest score.

        The regression is on the differences of the right option to each wrong one, once with either sign.
        """
        from sklearn.linear_model import LogisticRegression

        differences = option_differences(features, targets, groups)
        both = np.concatenate([differences, -differences])
        signs = np.repeat([1, 0], len(differences))
        regression: Any = LogisticRegression(fit_intercept=False, **options).fit(both, signs)
        return regression.coef_, np.zeros(1)

    def held_out_loss(self, outputs: np.ndarray, targets: np.ndarray, groups: np.ndarray) -> float:
        """Cross entropy over the options of each question."""
        starts = np.flatnonzero(np.diff(groups, prepend=-1))
        return float(np.logaddexp.reduceat(outputs[:, 0], starts).sum() - outputs[targets, 0].sum())

    # ---- From outputs to predictions and scores ---------------------------------------------------------------------

    def decode(
        self, outputs: Sequence[Any], examples: Sequence[Example], features: Features, columns: Sequence[int] | None
    ) -> np.ndarray:
        """The probability of each option, [examples, options]; 0 for absent ones."""
        scores = np.stack([np.asarray(row) for row in outputs]).astype(np.float64)
        if features.options is None:
            return softmax(scores.reshape(-1, features.n_options))
        logits = np.full((len(features.options), len(self.options)), -np.inf)
        logits[:, : features.options.shape[1]][features.options] = scores.reshape(-1)
        return softmax(logits)

    def predictions(
        self, examples: Sequence[Example], features: Features, decoded: np.ndarray, threshold: Any
    ) -> tuple[Predictions, None]:
        """The most probable option, as the labels of the file call it, or else by the name of its column."""
        found = class_predictions(self.options, examples, features.targets, decoded)
        for example, entry in zip(examples, found.entries, strict=True):
            labels = self._labels_of(example)
            entry["prediction"] = labels[entry["prediction"]]
            entry["gold"] = None if entry["gold"] is None else labels[entry["gold"]]
            entry["probabilities"] = {labels[name]: value for name, value in entry["probabilities"].items()}
        return found, None

    def _labels_of(self, example: Example) -> dict[str, str]:
        """What each column of an option is called; its own name if two have the same label."""
        labels = dict(zip(self.options, example.option_labels, strict=False))
        labels = {name: labels.get(name) or name for name in self.options}
        return labels if len({*labels.values()}) == len(labels) else {name: name for name in self.options}

    def constants(self, gold: Any) -> Iterator[np.ndarray]:
        return most_frequent_class(gold, len(self.options))

    def analysis(self, examples: Sequence[Example], predictions: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        by_column = []
        for example, entry in zip(examples, predictions, strict=True):
            columns = {label: name for name, label in self._labels_of(example).items()}
            probabilities = {columns[label]: value for label, value in entry["probabilities"].items()}
            named = {"prediction": columns[entry["prediction"]], "gold": columns[entry["gold"]]}
            by_column.append({**entry, **named, "probabilities": probabilities})
        return class_analysis(self.options, self.options, examples, by_column)

    def submission_files(self, name: str, entries: Sequence[Mapping[str, Any]]) -> dict[str, str]:
        """An object of question to the name of an option."""
        return {f"{name}.json": object_file(entries, "prediction")}


def question_with_option(question: str, option: str) -> str:
    """The question with every blank `_` replaced by the option, or followed by it.

    Blanks around the option are dropped: byte-level pieces would hold them.
    """
    option = option.strip()
    return question.replace("_", option) if "_" in question else f"{question} {option}".strip()


def join_option(
    passage: Sequence[int], question: Sequence[int], tokenizer: Tokenizer, max_length: int, question_length: int
) -> tuple[list[int], int, int, int]:
    """One option's sequence.

    Args:
        passage, question: token ids; the question includes the option.

    Returns:
        ids, their number up to the second text, tokens cut from the passage, tokens cut from the question.
    """
    special = 2 + tokenizer.separators
    room = max_length - question_length - special
    if room < 1:
        why = f"{max_length} leaves no room for a passage beside {question_length} tokens of question and option"
        raise InvalidConfiguration("max_length", why, "use a larger value, or a smaller question length")
    kept_question = question[-question_length:]
    kept_passage = passage[: max_length - special - len(kept_question)]
    between = [tokenizer.sep_id] * tokenizer.separators
    ids = [tokenizer.cls_id, *kept_passage, *between, *kept_question, tokenizer.sep_id]
    cut = (len(passage) - len(kept_passage), len(question) - len(kept_question))
    return ids, len(kept_passage) + 1 + len(between), *cut


def option_features(
    examples: Sequence[Example], tokenizer: Tokenizer, max_length: int, question_length: int
) -> Features:
    """A sequence for each option of each example; targets are the indices of the right ones. Empty options are absent.

    `passages_truncated` and `questions_truncated` count questions, `tokens_cut` tokens over all sequences.
    """
    n_options = max((len(example.options) for example in examples), default=1)
    present = np.zeros((len(examples), n_options), np.bool_)
    counts: dict[str, int] = dict.fromkeys(("passages_truncated", "questions_truncated", "tokens_cut"), 0)
    parts: list[tuple[list[int], int]] = []
    encode = lru_cache(maxsize=1)(tokenizer.encode)  # questions on the same passage are consecutive
    with progress("Encoding", total=len(examples), unit="questions") as bar:
        for number, example in enumerate(examples):
            question, passage = example.texts
            texts = [option for option in example.options if option]
            present[number, : len(example.options)] = [bool(option) for option in example.options]
            options = [tokenizer.encode(question_with_option(question, option)) for option in texts]
            joined = [join_option(encode(passage), ids, tokenizer, max_length, question_length) for ids in options]
            parts += [(ids, first) for ids, first, _, _ in joined]
            counts["passages_truncated"] += any(cut for _, _, cut, _ in joined)
            counts["questions_truncated"] += any(cut for _, _, _, cut in joined)
            counts["tokens_cut"] += sum(sum(cuts) for _, _, *cuts in joined)
            bar.advance()
    targets = np.array([0 if example.target is None else example.target for example in examples], np.int64)
    if present.all():
        return Features(join_sequences(parts), targets, counts, n_options)
    return Features(join_sequences(parts), targets, counts, options=present)


def option_differences(features: np.ndarray, is_right: np.ndarray, groups: np.ndarray) -> np.ndarray:
    """The features of each right option less those of each wrong option of its question."""
    _, question = np.unique(groups, return_inverse=True)
    right = features[is_right]
    return right[question[~is_right]] - features[~is_right]
