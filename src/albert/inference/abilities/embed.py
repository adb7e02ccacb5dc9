"""Vectors of texts: the last layer's output, pooled; any model has them.

Pooling, prompts and Dense modules are those of sentence-transformers, if the model has its files. "weighted" is a mean
that weights rare pieces higher (Arora et al. 2017), better for models that were not trained for vectors."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, NamedTuple, NotRequired, TypedDict, get_args

import numpy as np
from jaxtyping import Float32

from albert.inference.abilities.base import (
    Ability,
    Empty,
    Fields,
    Settings,
    Texts,
    TokensCut,
    empty_field,
    text_of,
    tokens_cut_field,
)
from albert.inference.texts import check_texts, encode_texts
from albert.runtime.errors import UsageError
from albert.tables.records import Record

if TYPE_CHECKING:
    from albert.inference.onnx_graph import GraphWriter, Output
    from albert.inference.predictor import Predictor
    from albert.text.tokenizer import Tokenizer

Pooling = Literal["mean", "cls", "max", "weighted"]
HALF_WEIGHT_AT = 1e-3
"""The probability of a piece that gets weight 1/2 (rarest: 1); Arora et al. use 1e-3 to 1e-4."""
SPECIAL_WEIGHT = 1e-6
"""Weight of [CLS] and [SEP]: negligible beside words, but a text without words still has a vector."""


class TextToEmbed(NamedTuple):
    """An input."""

    text: str


@dataclass(frozen=True)
class EmbedRequest:
    """Texts to embed."""

    texts: Texts
    pooling: Annotated[
        Pooling | None,
        "Mean of the tokens, the [CLS] token, the maximum, or a mean that weights rare tokens higher; the model's "
        "own if it is not given.",
    ] = None
    normalize: Annotated[bool | None, "Scale vectors to length 1, so that dot products are cosines."] = None
    prompt: Annotated[str | None, "The name of one of the model's prompts, which is written before every text."] = None


class EmbeddedText(TypedDict):
    """The vector of a text: an array of float32, in JSON a list."""

    vector: list[float]
    tokens_cut: NotRequired[TokensCut]
    empty: NotRequired[Empty]


class Embed(Ability):
    """The vector of a text."""

    name = "embed"
    about = "A vector for each text."

    def max_length(self, predictor: "Predictor") -> int:
        return predictor.embedding_length

    # ---- A row of a file -------------------------------------------------------------------------------------------

    options = ("--text", "--pooling", "--normalize", "--prompt")

    def read(self, record: Record, fields: Fields) -> TextToEmbed:
        return TextToEmbed(text_of(record, fields.text, "--text"))

    # ---- A request -------------------------------------------------------------------------------------------------

    request = EmbedRequest
    example: ClassVar = {"texts": ["A storm at sea.", "Wind and high waves."], "normalize": True}

    def inputs(self, request: EmbedRequest) -> list[TextToEmbed]:
        return [TextToEmbed(text) for text in request.texts]

    def settings(self, request: EmbedRequest) -> Settings:
        return Settings(pooling=request.pooling, normalize=request.normalize, prompt=request.prompt)

    # ---- How it is computed ----------------------------------------------------------------------------------------

    def compute(self, predictor: "Predictor", inputs: Sequence[TextToEmbed], settings: Settings) -> list[Any]:
        texts = [text for (text,) in inputs]
        vectors, cut = embed_texts(predictor, texts, settings.pooling, settings.normalize, settings.prompt)
        return [
            {"vector": vector, **tokens_cut_field(tokens), **empty_field(text)}
            for text, vector, tokens in zip(texts, vectors, cut, strict=True)
        ]

    # ---- The reply -------------------------------------------------------------------------------------------------

    reply = EmbeddedText
    about_reply = "For each text, its vector of numbers."

    # ---- The columns of a file -------------------------------------------------------------------------------------

    def columns(self, predictor: "Predictor", settings: Settings) -> dict[str, Any]:
        return {"embedding": [float], "tokens_cut": int}

    def row(self, predictor: "Predictor", result: EmbeddedText) -> dict[str, Any]:
        return {**result, "embedding": result["vector"]}

    # ---- The outputs of an encoder in an ONNX file: its states, and those at [CLS] if its pooler was trained -------

    def onnx_outputs(self, graph: "GraphWriter", model: Any, hidden: str) -> "list[Output]":
        from albert.inference.onnx_graph import Output, pooled

        width = model.config.hidden_size
        outputs = [Output("last_hidden_state", hidden, ("batch", "sequence", width))]
        if model.pooler is not None:
            outputs.append(Output("pooler_output", pooled(graph, model, hidden), ("batch", width)))
        return outputs

    def head_outputs(self, model: Any, hidden: Any, packed: Any) -> dict[str, list[Any]]:
        from albert.model.albert import output_rows

        outputs: dict[str, list[Any]] = {"last_hidden_state": output_rows(hidden, packed.lengths)}
        if model.pooler is not None:
            outputs["pooler_output"] = [row.numpy() for row in model.pool(hidden, packed)]
        return outputs


EMBED = Embed()


def embed_texts(
    predictor: "Predictor",
    texts: Sequence[str],
    pooling: Pooling | None = None,
    normalize: bool | None = None,
    prompt: str | None = None,
) -> tuple[Float32[np.ndarray, "texts D"], list[int]]:
    """What `Predictor.embed_counted` gives: the vectors, and the number of tokens of each text that did not fit."""
    import torch

    check_texts("texts", texts)
    own = predictor.sentence_vectors
    pooling = own.pooling if pooling is None else pooling
    asked = normalize is not None
    normalize = own.normalize if normalize is None else normalize
    if pooling not in get_args(Pooling):
        raise UsageError(f"pooling {pooling!r}", "unknown", f"use {', '.join(get_args(Pooling))}")
    if not isinstance(normalize, bool | np.bool_):
        raise UsageError("normalize", f"is {normalize!r}, true or false is expected")
    before = own.prompt(prompt, predictor.name)
    if before or own.lower_case:
        texts = [(before + text).lower() if own.lower_case else before + text for text in texts]
    encoded = encode_texts(predictor.tokenizer, (texts,), predictor.embedding_length)
    rows = predictor.pooled_model(pooling).rows(encoded.ids, encoded.token_types)
    vectors = np.asarray(rows, np.float32).reshape(len(texts), predictor.config.hidden_size)
    if predictor.dense is not None:
        with torch.inference_mode():
            vectors = predictor.dense(torch.from_numpy(vectors)).numpy()
    if own.truncate_dim is not None:
        if own.normalize:  # before the vectors are cut, as in sentence-transformers
            vectors = _of_length_1(vectors)
        vectors = vectors[:, : own.truncate_dim]
        normalize = normalize and asked
    if normalize:
        vectors = _of_length_1(vectors)
    return np.ascontiguousarray(vectors), encoded.cut


def _of_length_1(vectors: Float32[np.ndarray, "texts D"]) -> Float32[np.ndarray, "texts D"]:
    return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), np.finfo(np.float32).tiny)


def piece_weights(tokenizer: "Tokenizer") -> Float32[np.ndarray, " V"]:
    """a / (a + p) for a piece of probability p (Arora et al. 2017, "A simple but tough-to-beat baseline for sentence
    embeddings"), with p of the tokenizer's unigram model."""
    log_probabilities = tokenizer.log_probabilities()
    if log_probabilities is None:
        why = "needs a SentencePiece vocabulary, whose pieces have probabilities"
        raise UsageError("pooling 'weighted'", why, "use mean")
    weights = HALF_WEIGHT_AT / (HALF_WEIGHT_AT + np.exp(log_probabilities))
    weights[[piece for piece in tokenizer.special_ids if piece != tokenizer.unk_id]] = SPECIAL_WEIGHT
    weights[tokenizer.unk_id] = 1.0
    return weights.astype(np.float32)
