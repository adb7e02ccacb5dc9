"""What tasks on a text, or a pair of texts, have in common: requests, the way to token ids, and the output in ONNX.

`single_label`, `multi_label` and `regression` are such tasks: a vector for each sequence, and a linear map on it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from albert.runtime.errors import UsageError
from albert.runtime.words import counted
from albert.tables.records import Record
from albert.tables.table import Table
from albert.tasks.examples import Example, Features, asked, text_features
from albert.tasks.inputs import Pair, Single
from albert.tasks.pipeline import (
    Costs,
    Fields,
    Lengths,
    Texts,
    empty_field,
    optional_text_of,
    text_of,
    tokens_cut_field,
)
from albert.tasks.table_task import TableTask
from albert.tasks.task import LinearTask
from albert.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from albert.inference.onnx_graph import GraphWriter, Output


@dataclass(frozen=True)
class TextsOrPairs:
    """Texts, or pairs of texts."""

    texts: Texts
    pairs: Annotated[Texts | None, "The second text of each pair, where the model was trained on pairs."] = None


class TextTask(LinearTask):
    """A task with an output for each text, or for each pair of texts."""

    heads: ClassVar = {
        "classification": ("classifier.", "albert.pooler."),
        "pair_classification": ("pair_classifier.",),
    }
    has_labels = True
    encodes_pairs = True

    needed_columns = ("text", "label")
    further_columns = ("pair",)

    @classmethod
    def text_columns(cls, task: TableTask) -> tuple[str | None, ...]:
        return task.text, task.pair

    # ---- A row of a file: a text, and a second one if it is there or was named --------------------------------------

    file_options = ("--text", "--pair")
    takes_pair = True

    def read(self, record: Record, fields: Fields) -> Example:
        text = text_of(record, fields.text, "--text")
        pair = optional_text_of(record, fields.pair, Fields.pair, "--pair")
        return asked(text) if pair is None else asked(text, pair)

    # ---- A request --------------------------------------------------------------------------------------------------

    Request = TextsOrPairs
    request_example: ClassVar = {"texts": ["A fine film, from its first minute to its last.", "Dull."]}

    def examples(self, request: TextsOrPairs) -> list[Example]:
        if request.pairs is None:
            return [asked(text) for text in request.texts]
        if len(request.pairs) != len(request.texts):
            why = f"{len(request.pairs)} for {counted(len(request.texts), 'texts')}"
            raise UsageError("pairs", why, "give one for each")
        return [asked(text, pair) for text, pair in zip(request.texts, request.pairs, strict=True)]

    # ---- From examples to token ids ---------------------------------------------------------------------------------

    def encode(self, examples: Sequence[Example], tokenizer: Tokenizer, lengths: Lengths) -> Features:
        """A sequence for each example."""
        return text_features(examples, tokenizer, lengths.max_length)

    # ---- Its output in an ONNX file ---------------------------------------------------------------------------------

    def onnx(self, graph: "GraphWriter", model: Any, hidden: str) -> "list[Output]":
        logits = graph.layer(graph.read_by_head(model, hidden), "classifier", model.classifier)
        return [graph.output("logits", logits, ("batch", model.classifier.out_features))]


def has_text_and_label(task: TableTask, table: Table) -> bool:
    """Return whether the columns of the text and of the label are there."""
    return task.text in table.columns and task.label in table.columns


def text_inputs(task: TableTask) -> Single | Pair:
    """What is read of a row: a text, and a second one if its column is named."""
    assert task.text is not None
    return Single(task.text) if task.pair is None else Pair(task.text, task.pair)


def costs(example: Example, cut: Sequence[int]) -> Costs:
    """What was cut of a text, and whether it is empty; a part of its reply."""
    return {**tokens_cut_field(sum(cut)), **empty_field(*example.texts)}
