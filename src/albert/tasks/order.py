"""Sentence order: whether two adjacent segments are in order or swapped (paper §3.1).

A model that was trained on next-sentence prediction says instead whether the second segment follows the first in their
text or comes from another one."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, NotRequired, TypedDict

from albert.tables.records import Record
from albert.tasks.examples import Example, Features, asked, text_features
from albert.tasks.pipeline import (
    Bounds,
    Empty,
    Fields,
    Head,
    Lengths,
    RowPipeline,
    TokensCut,
    empty_field,
    text_of,
)
from albert.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from albert.inference.onnx_graph import GraphWriter, Output

OBJECTIVE_KEY = "sentence_objective"
"""Key of `config.json`: what the head was trained on (`albert.checkpoints.huggingface`, which imports torch)."""


@dataclass(frozen=True)
class OrderRequest:
    """Pairs of segments."""

    pairs: Annotated[list[Annotated[list[str], Bounds(2, 2)]], Bounds(1)]


class PredictedOrder(TypedDict):
    """A label, its probability, and that of the head's first class, under a name that says which that is."""

    label: str
    score: float
    probability_in_order: NotRequired[float]
    probability_next: NotRequired[float]
    tokens_cut: NotRequired[TokensCut]
    empty: NotRequired[Empty]


@dataclass(frozen=True)
class Order(RowPipeline):
    """The order of two segments, or whether the second is the next one."""

    is_next_sentence: bool = False

    name = "order"
    about = "Whether two adjacent segments are in order or swapped."
    needs = "judge the order of segments"
    heads: ClassVar = {"pretraining": ("sop_classifier.", "albert.pooler.")}

    @classmethod
    def of_head(cls, head: Head) -> "Order | None":
        objective = head.config.get(OBJECTIVE_KEY)
        if objective == "none" or not head.is_trained(cls.heads):
            return None
        return cls(is_next_sentence=objective == "nsp")

    @property
    def labels(self) -> tuple[str, str]:
        """The names of the head's two classes."""
        return ("next", "foreign") if self.is_next_sentence else ("in order", "swapped")

    # ---- A row of a file --------------------------------------------------------------------------------------------

    file_options = ("--text", "--pair")

    def read(self, record: Record, fields: Fields) -> Example:
        first = text_of(record, fields.text, "--text")
        return asked(first, text_of(record, fields.pair, "--pair"))

    # ---- A request --------------------------------------------------------------------------------------------------

    Request = OrderRequest
    request_example: ClassVar = {"pairs": [["She opened the letter.", "It was from her brother in Lisbon."]]}

    def examples(self, request: OrderRequest) -> list[Example]:
        return [asked(first, second) for first, second in request.pairs]

    # ---- From texts to token ids, and from the head's outputs to a reply --------------------------------------------

    runs = "masks"

    def encode(self, examples: Sequence[Example], tokenizer: Tokenizer, lengths: Lengths) -> Features:
        """Pre-training puts one [SEP] between segments, whatever the tokenizer."""
        return text_features(examples, tokenizer, lengths.max_length, separators=1)

    def decode(self, outputs: Iterable[Any], features: Features) -> list[float]:
        """The probability of the head's first class; the outputs come in any order."""
        probabilities = [0.0] * len(features.sequences)
        for number, _, order in outputs:
            assert order is not None, "the model has no sentence-order head"
            probabilities[number] = float(order.float().softmax(dim=-1)[0])
        return probabilities

    Reply = PredictedOrder
    about_reply = "For each pair, its order; a model trained on next-sentence prediction gives `probability_next`."

    def reply(self, example: Example, decoded: float, cut: Sequence[int]) -> PredictedOrder:
        yes, no = self.labels
        is_first = decoded >= 0.5
        prediction: PredictedOrder = {
            "label": yes if is_first else no,
            "score": decoded if is_first else 1 - decoded,
            **empty_field(*example.texts),
        }
        if self.is_next_sentence:
            prediction["probability_next"] = decoded
        else:
            prediction["probability_in_order"] = decoded
        if cut[0]:
            prediction["tokens_cut"] = cut[0]
        return prediction

    def cell_types(self) -> dict[str, Any]:
        probability = "probability_next" if self.is_next_sentence else "probability_in_order"
        return {"label": str, "score": float, probability: float, "tokens_cut": int, "empty": bool}

    # ---- Its output in an ONNX file ---------------------------------------------------------------------------------

    def onnx(self, graph: "GraphWriter", model: Any, hidden: str) -> "list[Output]":
        order = graph.layer(graph.pooled(model.albert, hidden), "sop_classifier", model.sop_classifier.classifier)
        return [graph.output("sentence_logits", order, ("batch", 2))]

    def onnx_expected(self, model: Any, hidden: Any, packed: Any) -> dict[str, Any]:
        return {"sentence_logits": model.sop_classifier(model.albert.pool(hidden, packed))}
