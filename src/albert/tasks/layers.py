"""What a head would predict from the output of every layer (the "logit lens").

The heads were trained on the last layer's output; earlier layers share its parameters, so the heads can read theirs."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, TypedDict

from albert.tasks.examples import Example, Features, asked
from albert.tasks.fill_mask import FillMask, MaskFeatures, mask_features
from albert.tasks.order import Order
from albert.tasks.pipeline import Head, Lengths, Pipeline
from albert.text.tokenizer import Tokenizer

MAX_TOKENS = 64
"""Tokens of a text that are read; the rest is cut."""
MASK_TOP_K = 5
"""Predictions shown for a mask after each layer."""


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


@dataclass(frozen=True)
class Layers(Pipeline):
    """The layers of a text; only the server has it.

    Attributes:
        fills_masks: whether the model has a head for masked tokens.
        order: how it judges the order of a pair, if it does.
        labels: the classes of a classifier with a pooler.
        problem_type: what its outputs are.
    """

    fills_masks: bool = False
    order: Order | None = None
    labels: tuple[str, ...] = ()
    problem_type: Any = None

    name = "layers"
    about = "What a head that fills masks, classifies or judges an order would predict from every layer's output."

    @classmethod
    def of_head(cls, head: Head) -> "Layers | None":
        """Any model has it."""
        is_number = len(head.labels) == 1 and head.problem_type != "multi_label_classification"
        is_classifier = head.is_trained({"classification": ("classifier.", "albert.pooler.")}) and not is_number
        return cls(
            FillMask.of_head(head) is not None,
            Order.of_head(head),
            head.labels if is_classifier else (),
            head.problem_type,
        )

    def fitted(self, lengths: Lengths) -> Lengths:
        return lengths._replace(max_length=min(MAX_TOKENS, lengths.max_length))

    # ---- A request --------------------------------------------------------------------------------------------------

    takes_pair = True

    Request = LayersRequest
    request_example: ClassVar = {"text": "The captain stood on the [MASK] of the ship."}

    def examples(self, request: LayersRequest) -> list[Example]:
        return [asked(request.text) if request.pair is None else asked(request.text, request.pair)]

    # ---- From a text to token ids, and from what the heads give to a reply ------------------------------------------

    runs = "layers"

    def encode(self, examples: Sequence[Example], tokenizer: Tokenizer, lengths: Lengths) -> MaskFeatures:
        return mask_features(examples, tokenizer, lengths.max_length)

    def decode(self, outputs: Iterable[Any], features: Features) -> list[LayersOfText]:
        """The outputs are `HeadsAfterLayers` of `albert.inference.engine`, one for each text."""
        assert isinstance(features, MaskFeatures)
        tokenizer = features.tokenizer
        decoded: list[LayersOfText] = []
        for number, output in enumerate(outputs):
            masks: list[MaskInLayers] = []
            for position, logits in zip(features.positions[number].tolist(), output.masks, strict=False):
                probabilities = logits.float().softmax(dim=-1)[:, : tokenizer.vocab_size]
                scores, pieces = probabilities.topk(MASK_TOP_K, dim=-1)
                layers: list[list[Piece]] = [
                    [{"piece": tokenizer.piece(piece), "score": score} for piece, score in zip(*row, strict=True)]
                    for row in zip(pieces.tolist(), scores.tolist(), strict=True)
                ]
                masks.append({"position": position, "layers": layers})
            labels, scores_of_labels = self._label_scores(output)
            ids = features.sequences.token_ids(number).tolist()
            text: LayersOfText = {
                "tokens": [tokenizer.piece(piece) for piece in ids],
                "tokens_cut": int(features.cut[number]),
                "masks": masks,
                "labels": labels,
                "label_scores": scores_of_labels,
            }
            decoded.append(text)
        return decoded

    def _label_scores(self, output: Any) -> tuple[list[str], list[list[float]]]:
        """Probabilities after each layer, of a classifier with a pooler or, for a pair, of the sentence-order head."""
        if output.labels is None:
            return [], []
        logits = output.labels
        if self.problem_type == "multi_label_classification":
            logits = logits.sigmoid()
        elif self.problem_type != "regression":
            logits = logits.softmax(dim=-1)
        names = self.labels or (() if self.order is None else self.order.labels)
        return list(names), logits.tolist()

    Reply = LayersOfText
    about_reply = "The layers of the text; layer 0 is the input of the first one."

    def reply(self, example: Example, decoded: LayersOfText, cut: Sequence[int]) -> LayersOfText:
        return decoded
