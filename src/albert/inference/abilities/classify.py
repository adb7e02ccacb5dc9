"""Texts, or pairs of texts, to labels with their probabilities (`Classify`), or to a number (`Score`).

Both read the same rows and requests, and have the same head. A model has one of them: it scores if its head has one
output, a number, and classifies otherwise."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, NamedTuple, NotRequired, TypedDict

import numpy as np
from jaxtyping import Float32

from albert.inference.abilities.base import (
    Ability,
    Costs,
    Empty,
    Fields,
    Settings,
    Texts,
    TokensCut,
    compute_apart,
    empty_field,
    optional_text_of,
    text_of,
    tokens_cut_field,
)
from albert.inference.texts import check_pairs, check_texts, encode_texts, note_cut
from albert.runtime.errors import UsageError
from albert.runtime.words import counted
from albert.tables.records import Record

if TYPE_CHECKING:
    from albert.checkpoints.model_directory import OpenedModel
    from albert.inference.onnx_graph import GraphWriter, Output
    from albert.inference.predictor import Predictor


class TextOrPair(NamedTuple):
    """An input: a text, or two."""

    text: str
    pair: str | None = None


@dataclass(frozen=True)
class TextsOrPairs:
    """Texts, or pairs of texts."""

    texts: Texts
    pairs: Annotated[Texts | None, "The second text of each pair, where the model was trained on pairs."] = None


class LabelScore(TypedDict):
    """A label and its probability; with several labels per text `predicted` says whether it is given."""

    label: str
    score: float
    predicted: NotRequired[
        Annotated[bool, "If the model gives several labels to a text: whether it gives this one, by its threshold."]
    ]
    tokens_cut: NotRequired[TokensCut]
    empty: NotRequired[Empty]


class Number(TypedDict):
    """The number that a regression model predicts, `score`, and the name of what it measures."""

    label: str
    score: float
    tokens_cut: NotRequired[TokensCut]
    empty: NotRequired[Empty]


class _TextOrPairAbility(Ability):
    """What classifying and scoring have in common."""

    # ---- Which models have it: those with a head on a whole text, or on two ----------------------------------------

    heads: ClassVar = {
        "classification": ("classifier.", "albert.pooler."),
        "pair_classification": ("pair_classifier.",),
    }
    has_labels = True

    # ---- A row of a file: a text, and a second one if it is there or was named -------------------------------------

    options = ("--text", "--pair-field")

    def read(self, record: Record, fields: Fields) -> TextOrPair:
        text = text_of(record, fields.text, "--text")
        return TextOrPair(text, optional_text_of(record, fields.pair, Fields.pair, "--pair"))

    def expects_pairs(self, predictor: "Predictor") -> bool | None:
        return predictor.reads_pairs

    # ---- A request -------------------------------------------------------------------------------------------------

    request = TextsOrPairs
    example: ClassVar = {"texts": ["A fine film, from its first minute to its last.", "Dull."]}

    def inputs(self, request: TextsOrPairs) -> list[TextOrPair]:
        if request.pairs is None:
            return [TextOrPair(text) for text in request.texts]
        if len(request.pairs) != len(request.texts):
            why = f"{len(request.pairs)} for {counted(len(request.texts), 'texts')}"
            raise UsageError("pairs", why, "give one for each")
        return [TextOrPair(text, pair) for text, pair in zip(request.texts, request.pairs, strict=True)]

    # ---- How it is computed: single texts together, and pairs together ---------------------------------------------

    def compute(self, predictor: "Predictor", inputs: Sequence[TextOrPair], settings: Settings) -> list[Any]:
        def ranked(members: list[TextOrPair]) -> list[Any]:
            pairs = None if members[0].pair is None else [entry.pair or "" for entry in members]
            return rank_labels(predictor, [entry.text for entry in members], pairs)

        return compute_apart(inputs, lambda entry: entry.pair is None, ranked, ranked)

    # ---- Its outputs in an ONNX file -------------------------------------------------------------------------------

    def onnx_outputs(self, graph: "GraphWriter", model: Any, hidden: str) -> "list[Output]":
        from albert.inference.onnx_graph import Output, read_by_head

        logits = graph.layer(read_by_head(graph, model, hidden), "classifier", model.classifier)
        return [Output("logits", logits, ("batch", model.classifier.out_features))]


class Classify(_TextOrPairAbility):
    """Every label of a text with its probability."""

    name = "classify"
    about = "Every label with its probability, most likely first; with several labels per text, which are predicted."
    needs = "classify texts"

    def is_trained(self, kind: str, opened: "OpenedModel") -> bool:
        return super().is_trained(kind, opened) and not _has_one_number(opened)

    # ---- The reply -------------------------------------------------------------------------------------------------

    reply = list[LabelScore]
    about_reply = "For each text, every label, most likely first."

    # ---- The columns of a file: the label or the labels, and the scores of all in the model's order ----------------

    def columns(self, predictor: "Predictor", settings: Settings) -> dict[str, Any]:
        columns: dict[str, Any] = {"label": str, "score": float}
        if predictor.extra.get("problem_type") == "multi_label_classification":
            columns = {"labels": [str]}
        columns["scores"] = dict.fromkeys(predictor.labels, float)
        return columns | {"tokens_cut": int}

    def row(self, predictor: "Predictor", result: list[LabelScore]) -> dict[str, Any]:
        scores = {entry["label"]: entry["score"] for entry in result}
        return {
            **result[0],
            "labels": [entry["label"] for entry in result if entry.get("predicted")],
            "scores": {label: scores[label] for label in predictor.labels},
        }


class Score(_TextOrPairAbility):
    """The number of a text."""

    name = "score"
    about = "The number that a regression model or a cross-encoder predicts."
    needs = "score texts"

    def is_trained(self, kind: str, opened: "OpenedModel") -> bool:
        return super().is_trained(kind, opened) and _has_one_number(opened)

    def compute(self, predictor: "Predictor", inputs: Sequence[TextOrPair], settings: Settings) -> list[Any]:
        return [number for (number,) in super().compute(predictor, inputs, settings)]

    # ---- The reply, and the columns of a file ----------------------------------------------------------------------

    reply = Number
    about_reply = "For each text, its number."

    def columns(self, predictor: "Predictor", settings: Settings) -> dict[str, Any]:
        return {"score": float, "tokens_cut": int}


CLASSIFY = Classify()
SCORE = Score()


def _has_one_number(opened: "OpenedModel") -> bool:
    """Several numbers are given like classes, by their names, as by transformers' pipeline."""
    model: Any = opened.model
    return model.classifier.out_features == 1 and opened.extra.get("problem_type") != "multi_label_classification"


def outputs_of(
    predictor: "Predictor", texts: Sequence[str], pairs: Sequence[str] | None
) -> tuple[Float32[np.ndarray, "texts labels"], list[Costs]]:
    """Probabilities of texts or pairs, or scores and predicted numbers; and what was cut and computed of each."""
    import torch

    from albert.checkpoints.cross_encoders import ACTIVATIONS, score_activation
    from albert.model.albert import AlbertForPairClassification

    check_texts("texts", texts)
    if pairs is not None:
        check_pairs("pairs", pairs, "texts", texts)
    elif isinstance(predictor.network, AlbertForPairClassification):
        remedy = "give a second text with each (--pair on the command line)"
        raise UsageError("pairs", "are missing: this model compares two texts", remedy)
    parts = (texts,) if pairs is None else (texts, pairs)
    encoded = encode_texts(predictor.tokenizer, parts, predictor.max_length)
    rows = predictor.packed_model.rows(encoded.ids, encoded.token_types)
    n_labels = len(predictor.labels)
    problem_type = predictor.extra.get("problem_type")
    logits = torch.from_numpy(np.stack(rows) if rows else np.zeros((0, n_labels), np.float32))
    if problem_type == "multi_label_classification":
        logits = logits.sigmoid()
    elif n_labels == 1:
        logits = ACTIVATIONS[score_activation(predictor.extra)]()(logits)
    elif problem_type != "regression":
        logits = logits.softmax(dim=-1)
    rows_of_texts = zip(*parts, strict=True)
    costs: list[Costs] = [
        {**tokens_cut_field(cut), **empty_field(*row)} for cut, row in zip(encoded.cut, rows_of_texts, strict=True)
    ]
    return logits.numpy(), costs


def rank_labels(
    predictor: "Predictor", texts: Sequence[str], pairs: Sequence[str] | None = None
) -> list[list[LabelScore]]:
    """What `Predictor.classify_batch` gives."""
    predictor.require(CLASSIFY, SCORE)
    scores, costs = outputs_of(predictor, texts, pairs)
    names = predictor.labels
    threshold = predictor.label_threshold
    orders = np.argsort(-scores, axis=1, kind="stable").tolist()
    ranked: list[list[LabelScore]] = [
        [{"label": names[label], "score": row[label], **cost} for label in order]
        for order, row, cost in zip(orders, scores.tolist(), costs, strict=True)
    ]
    if threshold is not None:
        for entries, order, predicted in zip(ranked, orders, threshold.predicted(scores).tolist(), strict=True):
            for entry, label in zip(entries, order, strict=True):
                entry["predicted"] = predicted[label]
    return ranked


def score_texts(predictor: "Predictor", texts: Sequence[str], pairs: Sequence[str] | None = None) -> list[float]:
    """What `Predictor.score_batch` gives."""
    predictor.require(SCORE)
    numbers, costs = outputs_of(predictor, texts, pairs)
    cut = [cost.get("tokens_cut", 0) for cost in costs]
    note_cut(cut, predictor.max_length, "classify_batch says how many of each text were not")
    return numbers[:, 0].tolist()
