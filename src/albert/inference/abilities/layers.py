"""What a head would predict from the output of every layer (the "logit lens").

The heads were trained on the last layer's output; earlier layers share its parameters, so the heads can read theirs."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, NamedTuple, TypedDict

import numpy as np

from albert.inference.abilities.base import Ability, Fields, Settings
from albert.inference.abilities.classify import CLASSIFY
from albert.inference.abilities.fill_mask import FILL_MASK
from albert.inference.abilities.order import ORDER, order_labels
from albert.inference.texts import encode_texts
from albert.tables.records import Record

if TYPE_CHECKING:
    from albert.inference.predictor import Predictor

MAX_TOKENS = 64
"""Tokens of a text that are read; the rest is cut."""
MASK_TOP_K = 5
"""Predictions shown for a mask after each layer."""


class TextOrPair(NamedTuple):
    """An input."""

    text: str
    pair: str | None


@dataclass(frozen=True)
class LayersRequest:
    """A text, or a pair of texts."""

    text: str
    pair: str | None = None


class Piece(TypedDict):
    """A piece that the head predicts for a mask."""

    piece: str
    score: float


class MaskInLayers(TypedDict):
    """A mask, and the predictions for it after each layer."""

    position: int
    layers: list[list[Piece]]


class LayersOfText(TypedDict):
    """What the head predicts after each layer; layer 0 is the input of the first one."""

    tokens: list[str]
    tokens_cut: Annotated[int, "Tokens of the text that did not fit and were not read."]
    masks: Annotated[
        list[MaskInLayers], "If the model fills masks and the text has any: the head's predictions after each layer."
    ]
    labels: Annotated[list[str], "If the model classifies: the names of the labels."]
    label_scores: Annotated[list[list[float]], "Probabilities of the classifier, [after layer][label]."]


class Layers(Ability):
    """The layers of a text; only the server has it."""

    name = "layers"
    about = "What a head that fills masks, classifies or judges an order would predict from every layer's output."

    # ---- A row of a file: none -------------------------------------------------------------------------------------

    reads_rows = False

    def read(self, record: Record, fields: Fields) -> TextOrPair:
        raise AssertionError("the layers of a file are not shown")

    def columns(self, predictor: "Predictor", settings: Settings) -> dict[str, Any]:
        return {}

    def expects_pairs(self, predictor: "Predictor") -> bool | None:
        return predictor.reads_pairs

    # ---- A request -------------------------------------------------------------------------------------------------

    request = LayersRequest
    example: ClassVar = {"text": "The captain stood on the [MASK] of the ship."}

    def inputs(self, request: LayersRequest) -> list[TextOrPair]:
        return [TextOrPair(request.text, request.pair)]

    # ---- How it is computed ----------------------------------------------------------------------------------------

    def compute(self, predictor: "Predictor", inputs: Sequence[TextOrPair], settings: Settings) -> list[LayersOfText]:
        return [show_layers(predictor, entry.text, entry.pair) for entry in inputs]

    # ---- The reply -------------------------------------------------------------------------------------------------

    reply = LayersOfText
    about_reply = "The layers of the text; layer 0 is the input of the first one."


LAYERS = Layers()


def show_layers(predictor: "Predictor", text: str, pair: str | None) -> LayersOfText:
    """The head's predictions after each layer for a text or a pair, cut to `MAX_TOKENS`."""
    import torch

    from albert.model.packing import pack

    tokenizer = predictor.tokenizer
    model: Any = predictor.network
    texts = (text,) if pair is None else (text, pair)
    max_length = min(MAX_TOKENS, predictor.max_length)
    encoded = encode_texts(tokenizer, [[part] for part in texts], max_length, masked=True)
    ids = encoded.ids[0]
    packed = pack(encoded.ids, encoded.token_types).to(predictor.device)
    body: Any = getattr(model, "albert", model)
    with torch.inference_mode():
        states = [state.float() for state in body.hidden_states(packed)]
        labels, label_scores = _label_scores(predictor, states, packed, pair is not None)
        return {
            "tokens": [tokenizer.piece(int(piece)) for piece in ids],
            "tokens_cut": encoded.cut[0],
            "masks": _mask_predictions(predictor, states, ids),
            "labels": labels,
            "label_scores": label_scores,
        }


def _mask_predictions(predictor: "Predictor", states: Sequence[Any], ids: np.ndarray) -> list[MaskInLayers]:
    """What the masked-token head predicts for each mask after each layer."""
    import torch

    if not predictor.can(FILL_MASK):
        return []
    tokenizer = predictor.tokenizer
    model: Any = predictor.network
    words = model.albert.embeddings.word_embeddings.weight
    predictions: list[MaskInLayers] = []
    for position in np.flatnonzero(ids == tokenizer.mask_id).tolist():
        logits = model.predictions(torch.stack([state[position] for state in states]), words)
        scores, pieces = logits.float().softmax(dim=-1)[:, : tokenizer.vocab_size].topk(MASK_TOP_K, dim=-1)
        layers: list[list[Piece]] = [
            [{"piece": tokenizer.piece(piece), "score": score} for piece, score in zip(*row, strict=True)]
            for row in zip(pieces.tolist(), scores.tolist(), strict=True)
        ]
        predictions.append({"position": position, "layers": layers})
    return predictions


def _label_scores(
    predictor: "Predictor", states: Sequence[Any], packed: Any, paired: bool
) -> tuple[list[str], list[list[float]]]:
    """Probabilities after each layer, of a classifier with a pooler or, for a pair, of the sentence-order head."""
    import torch

    from albert.model.albert import AlbertForSequenceClassification

    model: Any = predictor.network
    if predictor.can(CLASSIFY) and isinstance(model, AlbertForSequenceClassification):
        labels = predictor.labels
        logits = torch.cat([model.head_outputs(state, packed) for state in states]).float()
    elif predictor.can(ORDER) and paired:
        labels = list(order_labels(predictor))
        logits = torch.cat([model.sop_classifier(model.albert.pool(state, packed)) for state in states]).float()
    else:
        return [], []
    problem = predictor.extra.get("problem_type")
    if problem != "regression":
        logits = logits.sigmoid() if problem == "multi_label_classification" else logits.softmax(dim=-1)
    return labels, logits.tolist()
