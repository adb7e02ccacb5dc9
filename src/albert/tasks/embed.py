"""Vectors of texts: the last layer's output, pooled; any model has them.

Pooling, prompts and Dense modules are those of sentence-transformers, if the model has its files. "weighted" is a mean
that weights rare pieces higher (Arora et al. 2017), better for models that were not trained for vectors."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, NotRequired, TypedDict, get_args

import numpy as np
from jaxtyping import Float32

from albert.runtime.errors import UsageError
from albert.tables.records import Record
from albert.tasks.examples import Example, Features, asked, text_features
from albert.tasks.pipeline import (
    Empty,
    Fields,
    Head,
    Lengths,
    RowPipeline,
    Settings,
    Texts,
    TokensCut,
    text_of,
)
from albert.tasks.texts import costs
from albert.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from albert.inference.onnx_graph import GraphWriter, Output

Pooling = Literal["mean", "cls", "max", "weighted"]
HALF_WEIGHT_AT = 1e-3
"""The probability of a piece that gets weight 1/2 (rarest: 1); Arora et al. use 1e-3 to 1e-4."""
SPECIAL_WEIGHT = 1e-6
"""Weight of [CLS] and [SEP]: negligible beside words, but a text without words still has a vector."""


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


@dataclass(frozen=True)
class Embed(RowPipeline):
    """The vector of a text.

    Attributes:
        vectors: how a text becomes one, a `SentenceVectors` of the model.
        max_length: tokens that are read.
        model: its name, for errors.
        pooling: None for the model's own.
        normalize: whether vectors are scaled to length 1, where this is asked; None: as the model's own are.
        prompt: the text before every text.
    """

    vectors: Any
    max_length: int
    model: str
    pooling: Pooling
    normalize: bool | None = None
    prompt: str = ""

    name = "embed"
    about = "A vector for each text."

    @classmethod
    def of_head(cls, head: Head) -> "Embed | None":
        """Any model has it."""
        assert head.vectors is not None
        return cls(head.vectors, head.vector_length, head.model, head.vectors.pooling)

    def fitted(self, lengths: Lengths) -> Lengths:
        return lengths._replace(max_length=self.max_length)

    # ---- A row of a file, and a request -----------------------------------------------------------------------------

    file_options = ("--text", "--pooling", "--normalize", "--prompt")

    def read(self, record: Record, fields: Fields) -> Example:
        return asked(text_of(record, fields.text, "--text"))

    Request = EmbedRequest
    request_example: ClassVar = {"texts": ["A storm at sea.", "Wind and high waves."], "normalize": True}

    def examples(self, request: EmbedRequest) -> list[Example]:
        return [asked(text) for text in request.texts]

    def with_options_of(self, request: EmbedRequest) -> "Embed":
        return self.changed(request.pooling, request.normalize, request.prompt)

    def with_settings(self, settings: Settings) -> "Embed":
        return self.changed(settings.pooling, settings.normalize, settings.prompt)

    def changed(self, pooling: Any, normalize: Any, prompt: Any) -> "Embed":
        """With another pooling, with or without scaling, with the prompt of this name; raises UsageError."""
        pooling = self.vectors.pooling if pooling is None else pooling
        if pooling not in get_args(Pooling):
            raise UsageError(f"pooling {pooling!r}", "unknown", f"use {', '.join(get_args(Pooling))}")
        if normalize is not None and not isinstance(normalize, bool | np.bool_):
            raise UsageError("normalize", f"is {normalize!r}, true or false is expected")
        is_scaled = None if normalize is None else bool(normalize)
        return replace(self, pooling=pooling, normalize=is_scaled, prompt=self.vectors.prompt(prompt, self.model))

    # ---- From texts to token ids, and from the pooled states to a reply ---------------------------------------------

    runs = "vectors"

    def encode(self, examples: Sequence[Example], tokenizer: Tokenizer, lengths: Lengths) -> Features:
        """The texts with the prompt before them."""
        if self.prompt or self.vectors.lower_case:
            written = [self.prompt + example.texts[0] for example in examples]
            examples = [asked(text.lower() if self.vectors.lower_case else text) for text in written]
        return text_features(examples, tokenizer, lengths.max_length)

    def decode(self, outputs: Iterable[Any], features: Features) -> Float32[np.ndarray, "texts D"]:
        """Vectors, cut and scaled; the outputs are an array."""
        vectors = np.asarray(outputs)
        normalizes = self.vectors.normalize if self.normalize is None else self.normalize
        if self.vectors.truncate_dim is not None:
            if self.vectors.normalize:  # before the vectors are cut, as in sentence-transformers
                vectors = _of_length_1(vectors)
            vectors = vectors[:, : self.vectors.truncate_dim]
            normalizes = normalizes and self.normalize is not None
        if normalizes:
            vectors = _of_length_1(vectors)
        return np.ascontiguousarray(vectors)

    Reply = EmbeddedText
    about_reply = "For each text, its vector of numbers."

    def reply(self, example: Example, decoded: Float32[np.ndarray, " D"], cut: Sequence[int]) -> Any:
        return {"vector": decoded, **costs(example, cut)}

    def cell_types(self) -> dict[str, Any]:
        return {"embedding": [float], "tokens_cut": int, "empty": bool}

    def cells(self, reply: Any) -> dict[str, Any]:
        return {**reply, "embedding": reply["vector"]}

    # ---- The outputs of an encoder in an ONNX file: its states, and those at [CLS] if its pooler was trained --------

    def onnx(self, graph: "GraphWriter", model: Any, hidden: str) -> "list[Output]":
        width = model.config.hidden_size
        outputs = [graph.output("last_hidden_state", hidden, ("batch", "sequence", width))]
        if model.pooler is not None:
            outputs.append(graph.output("pooler_output", graph.pooled(model, hidden), ("batch", width)))
        return outputs

    def onnx_expected(self, model: Any, hidden: Any, packed: Any) -> dict[str, Any]:
        outputs = {"last_hidden_state": hidden}
        if model.pooler is not None:
            outputs["pooler_output"] = model.pool(hidden, packed)
        return outputs


def _of_length_1(vectors: Float32[np.ndarray, "texts D"]) -> Float32[np.ndarray, "texts D"]:
    return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), np.finfo(np.float32).tiny)


def piece_weights(tokenizer: Tokenizer) -> Float32[np.ndarray, " V"]:
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
