"""Sentence order: whether two adjacent segments are in order or swapped (paper §3.1).

A model that was trained on next-sentence prediction says instead whether the second segment follows the first in their
text or comes from another one."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, NamedTuple, NotRequired, TypedDict

import numpy as np

from albert.inference.abilities.base import (
    Ability,
    Bounds,
    Empty,
    Fields,
    Settings,
    TokensCut,
    empty_field,
    text_of,
)
from albert.inference.texts import check_pairs, encode_texts
from albert.tables.records import Record

if TYPE_CHECKING:
    from albert.checkpoints.model_directory import OpenedModel
    from albert.inference.onnx_graph import GraphWriter, Output
    from albert.inference.predictor import Predictor

OBJECTIVE_KEY = "sentence_objective"
"""Key of `config.json`: what the head was trained on (`albert.checkpoints.huggingface`, which imports torch)."""


class Segments(NamedTuple):
    """An input."""

    first: str
    second: str


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


class Order(Ability):
    """The order of two segments."""

    name = "order"
    about = "Whether two adjacent segments are in order or swapped."
    needs = "judge the order of segments"
    heads: ClassVar = {"pretraining": ("sop_classifier.", "albert.pooler.")}

    def is_trained(self, kind: str, opened: "OpenedModel") -> bool:
        return super().is_trained(kind, opened) and opened.extra.get(OBJECTIVE_KEY) != "none"

    # ---- A row of a file -------------------------------------------------------------------------------------------

    options = ("--text", "--pair-field")

    def read(self, record: Record, fields: Fields) -> Segments:
        first = text_of(record, fields.text, "--text")
        return Segments(first, text_of(record, fields.pair, "--pair"))

    # ---- A request -------------------------------------------------------------------------------------------------

    request = OrderRequest
    example: ClassVar = {"pairs": [["She opened the letter.", "It was from her brother in Lisbon."]]}

    def inputs(self, request: OrderRequest) -> list[Segments]:
        return [Segments(first, second) for first, second in request.pairs]

    # ---- How it is computed ----------------------------------------------------------------------------------------

    def compute(self, predictor: "Predictor", inputs: Sequence[Segments], settings: Settings) -> list[PredictedOrder]:
        return predict_orders(predictor, [entry.first for entry in inputs], [entry.second for entry in inputs])

    # ---- The reply -------------------------------------------------------------------------------------------------

    reply = PredictedOrder
    about_reply = "For each pair, its order; a model trained on next-sentence prediction gives `probability_next`."

    # ---- The columns of a file -------------------------------------------------------------------------------------

    def columns(self, predictor: "Predictor", settings: Settings) -> dict[str, Any]:
        probability = "probability_next" if _is_next_sentence(predictor) else "probability_in_order"
        return {"label": str, "score": float, probability: float, "tokens_cut": int}

    # ---- Its outputs in an ONNX file -------------------------------------------------------------------------------

    def onnx_outputs(self, graph: "GraphWriter", model: Any, hidden: str) -> "list[Output]":
        from albert.inference.onnx_graph import Output, pooled

        order = graph.layer(pooled(graph, model.albert, hidden), "sop_classifier", model.sop_classifier.classifier)
        return [Output("sentence_logits", order, ("batch", 2))]

    def head_outputs(self, model: Any, hidden: Any, packed: Any) -> dict[str, list[Any]]:
        order = model.sop_classifier(model.albert.pool(hidden, packed))
        return {"sentence_logits": [row.numpy() for row in order]}


ORDER = Order()


def _is_next_sentence(predictor: "Predictor") -> bool:
    return predictor.extra.get(OBJECTIVE_KEY) == "nsp"


def order_labels(predictor: "Predictor") -> tuple[str, str]:
    """The names of the head's two classes."""
    return ("next", "foreign") if _is_next_sentence(predictor) else ("in order", "swapped")


def predict_orders(predictor: "Predictor", firsts: Sequence[str], seconds: Sequence[str]) -> list[PredictedOrder]:
    """What `Predictor.order_batch` gives."""
    predictor.require(ORDER)
    check_pairs("seconds", seconds, "firsts", firsts)
    # Pre-training puts one [SEP] between segments, whatever the tokenizer.
    encoded = encode_texts(predictor.tokenizer, (firsts, seconds), predictor.max_length, separators=1)
    no_masks = [np.zeros(0, np.int64)] * len(firsts)
    yes, no = order_labels(predictor)
    found: dict[int, PredictedOrder] = {}
    for number, _, order in predictor.packed_model.at(encoded.ids, encoded.token_types, no_masks):
        assert order is not None, "the model has no sentence-order head"
        first_class = float(order.float().softmax(dim=-1)[0])
        is_first = first_class >= 0.5
        prediction: PredictedOrder = {
            "label": yes if is_first else no,
            "score": first_class if is_first else 1 - first_class,
            **empty_field(firsts[number], seconds[number]),
        }
        if _is_next_sentence(predictor):
            prediction["probability_next"] = first_class
        else:
            prediction["probability_in_order"] = first_class
        if encoded.cut[number]:
            prediction["tokens_cut"] = encoded.cut[number]
        found[number] = prediction
    return [found[number] for number in range(len(firsts))]
