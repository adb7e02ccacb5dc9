"""Multiple choice: one of the options of each question, as RACE (Lai et al. 2017) and tables with columns of options.

What a question passes, by the methods below:

1. `examples` (of a request), `read` (of a row to predict) or `example` (of a row to learn from) makes an `Example`: its
   `texts` are the question and the passage, beside its `options`.
2. `encode` makes a sequence of token ids for each option, `[CLS] passage [SEP] question option [SEP]`. As in the
   reference, the option replaces every `_` in the question, or follows it; question and option are cut at the start,
   the passage at its end.
3. The head, a linear map of the pooled state at [CLS], gives a score to each sequence.
4. `decode` makes probabilities of the scores of a question's options, and `reply` ranks the options by them."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, NotRequired, TypedDict

import numpy as np

from albert.recipes.finetuning import PairEncoding, TaskRecipe
from albert.runtime.errors import DamagedData, InvalidConfiguration, UsageError
from albert.runtime.progress import progress
from albert.tables.records import Record
from albert.tables.table import Row, Table
from albert.tasks.cells import lists_read
from albert.tasks.error_analysis import class_analysis
from albert.tasks.examples import ENCODING_CHUNK, Example, Features, asked, join_sequences
from albert.tasks.from_table import Inferred, Recognised, TableDeclaration, metrics_by_name, quoted_columns
from albert.tasks.inputs import QuestionInContext, ReadColumns
from albert.tasks.metrics import Metric, accuracy
from albert.tasks.option_columns import (
    LABELS_OF_OPTIONS,
    NO_QUESTION,
    NO_TEXT,
    OPTION_LABELS,
    infer_option_labels,
    labels_of_record,
    named_options,
    option_names,
    with_options,
)
from albert.tasks.pipeline import (
    Bounds,
    Fields,
    Head,
    Lengths,
    Settings,
    TokensCut,
    optional_text_of,
    text_of,
    tokens_cut_field,
)
from albert.tasks.table_task import TableTask
from albert.tasks.task import (
    LinearHead,
    LinearTask,
    Predictions,
    class_predictions,
    cross_entropy,
    label_id,
    most_frequent_class,
    object_file,
    softmax,
)
from albert.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from albert.inference.onnx_graph import GraphWriter, Output


@dataclass(frozen=True)
class ChooseQuestion:
    """One of them."""

    context: str
    options: Annotated[list[str], Bounds(2)]
    question: str = ""


@dataclass(frozen=True)
class ChooseRequest:
    """Questions with options to choose from."""

    questions: Annotated[list[ChooseQuestion], Bounds(1)]


class RankedOption(TypedDict):
    """An option, its index in the input, and its probability."""

    option: str
    index: int
    score: float
    tokens_cut: NotRequired[TokensCut]


class LabelledOption(RankedOption):
    """An option of a row of a file, and how the labels of the training file call it."""

    label: str


@dataclass(frozen=True)
class MultipleChoice(LinearTask):
    """One of the options of each question: `options` are the columns of their texts, `column` holds the name of the
    right one's column. A question may have fewer options: the others are absent. What is asked has no columns; of the
    rows of a file the chosen option is also called as in the training file, where `option_labels` says how.
    """

    options: tuple[str, ...]
    column: str
    option_labels: str | None = None

    name = "choose"
    about = "The options, most likely first; each counts as a text."
    needs = "choose among options"
    kind: ClassVar[str] = "multiple-choice"
    loss_name: ClassVar[str] = "option"
    heads: ClassVar = {"multiple_choice": ("classifier.", "albert.pooler.")}
    lengths = Lengths(512, 128, 128)  # of the paper's recipe for RACE (Table 14)

    @classmethod
    def of_head(cls, head: Head) -> "MultipleChoice | None":
        return cls((), "") if head.is_trained(cls.heads) else None

    def fitted(self, lengths: Lengths) -> Lengths:
        """If no run accepts the question length, question and option take at most half."""
        if lengths.question_length < lengths.max_length - 3:
            return lengths
        return lengths._replace(question_length=(lengths.max_length - 3) // 2)

    # ---- From a table to the task -----------------------------------------------------------------------------------

    needed_columns = ("options", "label")
    further_columns = ("text", "question")
    own_settings = ("option_labels",)
    table_recipe = TaskRecipe(learning_rate=2e-5, batch_size=32, epochs=3.0, max_length=512, question_length=128)

    @classmethod
    def named_columns(cls, task: TableTask, table: Table, inferred: list[Inferred]) -> TableTask | None:
        """Options, in columns or in lists, and a label that names one of them."""
        if task.options is None and (task.given_columns or task.label_columns is not None):
            return None
        if task.options is None:
            return named_options(task, table, inferred)
        inner = f"{task.options[0]}.text"
        is_object = len(task.options) == 1 and task.options[0] not in table.columns and inner in table.columns
        return replace(task, options=(inner,)) if is_object else task

    @classmethod
    def recognised(cls, task: TableTask, table: Table) -> Recognised | None:
        return None if task.options is None else Recognised(task, "options are named", "leave out --options")

    @classmethod
    def converted(
        cls, task: TableTask, table: Table, source: object, inferred: list[Inferred]
    ) -> tuple[TableTask, Table]:
        return task, lists_read(table, task.options if task.options is not None and len(task.options) == 1 else ())

    @classmethod
    def completed(
        cls, task: TableTask, table: Table, source: object, inferred: list[Inferred], to_learn: bool
    ) -> tuple[TableTask, Table]:
        """What a label means: the name, the letter, the number or the text of an option."""
        if task.text is None and task.question is None:
            raise UsageError(cls.kind, "needs --text or --question, or both")
        if any(isinstance(value, tuple) for value in table.values(str(task.label))):
            why = "holds lists, and a multiple choice has one right option"
            raise UsageError(f"column {task.label!r}", why, LABELS_OF_OPTIONS)
        if task.option_labels is None:
            task = replace(task, option_labels=infer_option_labels(task, table))
            why = f"this way fits the labels in {task.label!r}"
            inferred.append(Inferred("labels of options", str(task.option_labels), why, "option_labels=from-1"))
        return task, table

    @classmethod
    def prepared(cls, task: TableTask, table: Table) -> Table:
        return with_options(task, table)

    @classmethod
    def of_table(cls, task: TableTask, tables: Mapping[str, Table]) -> TableDeclaration:
        options = max((option_names(task, table) for table in tables.values()), key=len)
        texts = quoted_columns(task.question, task.text)
        about = "Chooses among options" + (f", given {texts}" if texts else "")
        inputs = QuestionInContext(task.question or NO_QUESTION, task.text or NO_TEXT)
        return TableDeclaration(task, inputs, cls(options, str(task.label)), about)

    @classmethod
    def possible_metrics(cls, task: TableTask) -> dict[str, Metric]:
        return metrics_by_name(accuracy)

    # ---- From a row of a table to an example ------------------------------------------------------------------------

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

    def example(self, row: Row, inputs: ReadColumns, labelled: bool = True) -> Example:
        """Question, passage and the texts of all options; an absent option is empty."""
        texts = inputs.texts(row)
        options = tuple(row.text(option) if option in row.fields else "" for option in self.options)
        if sum(option in row.fields for option in self.options) < 2:
            why = f"has fewer than two options in the columns {', '.join(self.options[:8])}"
            raise DamagedData(row.where, why, "a question needs at least two")
        gold = self.gold(row, texts) if labelled else None
        labels = row.texts(OPTION_LABELS) if OPTION_LABELS in row.fields else ()
        return Example(row.identifier, row.where, texts, gold, options=options, group=row.group, option_labels=labels)

    def sequences_of(self, row: Row, inputs: ReadColumns) -> tuple[list[str], list[str]]:
        """The passage, and the question with each option."""
        (question, context), _ = super().sequences_of(row, inputs)
        options = (row.fields.get(column) for column in self.options)
        return [context], [question_with_option(question, option) for option in options if isinstance(option, str)]

    # ---- A row of a file: a context, at least two options, and a question if there is one ---------------------------

    file_options = ("--question", "--context", "--options")

    def read(self, record: Record, fields: Fields) -> Example:
        """Options are a list in one field, or each has its own field, where empty ones are absent."""
        question = None
        if fields.question:
            question = optional_text_of(record, fields.question, Fields.question, "--question")
        context = text_of(record, fields.context, "--context") if fields.context else ""
        field, *others = fields.options
        texts: Any
        if others or field not in record.fields:
            texts = [text_of(record, field, "--options"), *(record.fields.get(name) or "" for name in others)]
        else:
            texts = record.fields[field]
        is_list = isinstance(texts, list) and all(isinstance(option, str) for option in texts)
        options = tuple(option for option in texts if option.strip()) if is_list else ()
        if len(options) < 2:
            raise DamagedData(record.where, f"field {field!r} must be a list of at least two strings")
        labels: tuple[str, ...] = ()
        if self.option_labels is not None:
            labels = labels_of_record(self.option_labels, record.fields, fields.options)
        return asked(question or "", context, options=options, option_labels=labels)

    def with_settings(self, settings: Settings) -> "MultipleChoice":
        return replace(self, option_labels=settings.option_labels)

    # ---- A request --------------------------------------------------------------------------------------------------

    Request = ChooseRequest
    request_example: ClassVar = {
        "questions": [
            {
                "context": "The sea was calm, and the sailors slept on the deck.",
                "question": "Where did the sailors sleep?",
                "options": ["on the deck", "in the harbour", "on the island"],
            }
        ]
    }

    def examples(self, request: ChooseRequest) -> list[Example]:
        for number, each in enumerate(request.questions):
            if not all(each.options):
                raise UsageError(f"questions[{number}].options", "one of them is empty", "leave it out")
        return [asked(each.question, each.context, options=tuple(each.options)) for each in request.questions]

    # ---- From examples to token ids ---------------------------------------------------------------------------------

    def encode(self, examples: Sequence[Example], tokenizer: Tokenizer, lengths: Lengths) -> "OptionFeatures":
        """A sequence for each option of each example; an empty option is absent and has none.

        Targets are the indices of the right options, int64 [examples]. `passages_truncated` and `questions_truncated`
        count questions, `tokens_cut` tokens over all sequences.
        """
        max_length, question_length, _ = lengths
        counts: dict[str, int] = dict.fromkeys(("passages_truncated", "questions_truncated", "tokens_cut"), 0)
        parts: list[tuple[list[int], int]] = []
        example_of: list[int] = []
        slot_of: list[int] = []
        cut: list[int] = []
        encode = lru_cache(maxsize=1)(tokenizer.encode)  # questions on the same passage are consecutive
        quiet = len(examples) <= ENCODING_CHUNK
        with progress("Encoding", total=len(examples), unit="questions", quiet=quiet) as bar:
            for number, example in enumerate(examples):
                question, passage = example.texts
                slots = [slot for slot, option in enumerate(example.options) if option]
                texts = [question_with_option(question, example.options[slot]) for slot in slots]
                options = tokenizer.encode_batch(texts)
                joined = [join_option(encode(passage), ids, tokenizer, max_length, question_length) for ids in options]
                parts += [(ids, first) for ids, first, _, _ in joined]
                example_of += [number] * len(slots)
                slot_of += slots
                cut += [passage_cut + question_cut for _, _, passage_cut, question_cut in joined]
                counts["passages_truncated"] += any(passage_cut for _, _, passage_cut, _ in joined)
                counts["questions_truncated"] += any(question_cut for _, _, _, question_cut in joined)
                bar.advance()
        counts["tokens_cut"] = sum(cut)
        return OptionFeatures(
            sequences=join_sequences(parts),
            targets=np.array([0 if example.target is None else example.target for example in examples], np.int64),
            counts=counts,
            example_of=np.array(example_of, np.int64),
            slot_of=np.array(slot_of, np.int64),
            cut=np.array(cut, np.int64),
            n_options=[len(example.options) for example in examples],
        )

    # ---- The head and its loss --------------------------------------------------------------------------------------

    def model_kind(self, pairs: PairEncoding = "together") -> Any:
        """One output for each sequence."""
        return "multiple_choice"

    def logits(self, output: Any, batch: Any) -> Any:
        """The scores of the options of each example, [examples, options]; minus infinity for absent options."""
        logits = output.new_full((len(batch.targets), batch.n_slots), float("-inf"))
        logits[batch.example_of, batch.slot_of] = output.reshape(-1)
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
        sequences = batches.sequences_of(members)
        groups = np.repeat(np.arange(len(members)), np.bincount(batches.example_of)[members])
        return rows, batches.slot_of[sequences] == batches.targets[members][groups], groups

    def solve(
        self, features: np.ndarray, targets: np.ndarray, groups: np.ndarray, options: Mapping[str, Any]
    ) -> LinearHead:
        """A conditional logistic regression: the right option has the largest score.

        The regression is on the differences of the right option to each wrong one, once with either sign.
        """
        from sklearn.linear_model import LogisticRegression

        differences = option_differences(features, targets, groups)
        both = np.concatenate([differences, -differences])
        signs = np.repeat([1, 0], len(differences))
        regression: Any = LogisticRegression(fit_intercept=False, **options).fit(both, signs)
        return LinearHead(regression.coef_, np.zeros(1), choice_cross_entropy)

    # ---- From outputs to a reply ------------------------------------------------------------------------------------

    def decode(self, outputs: Iterable[Any], features: Features) -> list[np.ndarray]:
        """For each example the probability of each option, float64 [options]; 0 for absent ones.

        Args:
            outputs: a score for each sequence of the features, in their order.
        """
        assert isinstance(features, OptionFeatures)
        scores = np.array([np.asarray(score).item() for score in outputs], np.float64)
        logits = np.full((len(features.n_options), max(features.n_options, default=1)), -np.inf)
        logits[features.example_of, features.slot_of] = scores
        return [softmax(row[:width]) for row, width in zip(logits, features.n_options, strict=True)]

    Reply = list[RankedOption]
    about_reply = "For each question, its options, most likely first."

    def reply(self, example: Example, decoded: np.ndarray, cut: Sequence[int]) -> list[RankedOption]:
        entries: list[RankedOption] = [
            {"option": option, "index": index, "score": score, **tokens_cut_field(tokens)}
            for index, (option, score, tokens) in enumerate(zip(example.options, decoded.tolist(), cut, strict=True))
        ]
        if self.option_labels is not None:
            pairs = zip(entries, example.option_labels, strict=True)
            entries = [LabelledOption(**entry, label=label) for entry, label in pairs]
        return sorted(entries, key=lambda entry: -entry["score"])

    def cell_types(self) -> dict[str, Any]:
        """The best option, and the scores of all in the order of the row."""
        label = {} if self.option_labels is None else {"label": str}
        return {**label, "option": str, "index": int, "score": float, "scores": [float], "tokens_cut": int}

    def cells(self, reply: list[RankedOption]) -> dict[str, Any]:
        scores = [entry["score"] for entry in sorted(reply, key=lambda entry: entry["index"])]
        return {**reply[0], "scores": scores, "tokens_cut": sum(entry.get("tokens_cut", 0) for entry in reply)}

    # ---- Its output in an ONNX file: the encoder reads all options as one batch -------------------------------------

    onnx_axes = ("batch", "choices", "sequence")

    def onnx_inputs(self, graph: "GraphWriter", model: Any) -> None:
        shape = graph.node("Concat", [-1], graph.node("Shape", graph.ids, start=2, end=3), axis=0)
        graph.ids = graph.node("Reshape", graph.ids, shape)
        graph.mask = graph.node("Reshape", graph.mask, shape)
        if model.albert.embeddings.has_types:
            graph.types = graph.node("Reshape", graph.types, shape)

    def onnx(self, graph: "GraphWriter", model: Any, hidden: str) -> "list[Output]":
        scores = graph.layer(graph.read_by_head(model, hidden), "classifier", model.classifier)
        batch_and_choices = graph.node("Shape", graph.input_ids, start=0, end=2)
        return [graph.output("logits", graph.node("Reshape", scores, batch_and_choices), ("batch", "choices"))]

    # ---- From probabilities to scores -------------------------------------------------------------------------------

    def judge(self, examples: Sequence[Example], decoded: Sequence[np.ndarray]) -> Predictions:
        """The most probable option, as the labels of the file call it, or else by the name of its column."""
        probabilities = np.stack(decoded) if len(decoded) else np.zeros((0, len(self.options)))
        found = class_predictions(self.options, examples, probabilities)
        for example, entry in zip(examples, found.entries, strict=True):
            labels = self._labels_of(example)
            entry["prediction"] = labels[entry["prediction"]]
            entry["gold"] = None if entry["gold"] is None else labels[entry["gold"]]
            entry["probabilities"] = {labels[name]: value for name, value in entry["probabilities"].items()}
        return found

    def _labels_of(self, example: Example) -> dict[str, str]:
        """What each column of an option is called; its own name if two have the same label."""
        labels = dict(zip(self.options, example.option_labels, strict=False))
        labels = {name: labels.get(name) or name for name in self.options}
        return labels if len({*labels.values()}) == len(labels) else {name: name for name in self.options}

    def averaged(self, models: Sequence[tuple[Any, Any]]) -> "tuple[MultipleChoice, list[np.ndarray]]":
        """The mean of the probabilities of each option."""
        return self, list(np.mean([decoded for _, decoded in models], axis=0))

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


@dataclass(frozen=True, kw_only=True)
class OptionFeatures(Features):
    """A sequence for each option that is there; `n_options` of each example counts absent ones too."""

    n_options: list[int]


def choice_cross_entropy(outputs: np.ndarray, targets: np.ndarray, groups: np.ndarray) -> float:
    """Cross entropy over the options of each question, summed."""
    starts = np.flatnonzero(np.diff(groups, prepend=-1))
    return float(np.logaddexp.reduceat(outputs[:, 0], starts).sum() - outputs[targets, 0].sum())


def option_differences(features: np.ndarray, is_right: np.ndarray, groups: np.ndarray) -> np.ndarray:
    """The features of each right option less those of each wrong option of its question."""
    _, question = np.unique(groups, return_inverse=True)
    right = features[is_right]
    return right[question[~is_right]] - features[~is_right]
