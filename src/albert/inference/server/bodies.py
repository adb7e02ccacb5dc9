"""JSON bodies of requests and replies, as the OpenAPI document shows them; an unknown key is an error."""

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from pydantic_core import PydanticCustomError

_MOST_ANSWERS = 100


def _whole(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise PydanticCustomError("half_character", "holds half of a character") from None
    return text


Text = Annotated[str, AfterValidator(_whole)]
TopK = Annotated[int, Field(ge=1, le=_MOST_ANSWERS)]
Texts = Annotated[list[Text], Field(min_length=1)]


def _shown(example: dict[str, Any]) -> ConfigDict:
    return ConfigDict(extra="forbid", strict=True, json_schema_extra={"examples": [example]})


class TextsRequest(BaseModel):
    """One text or many."""

    model_config = _shown({"texts": ["The captain of the Nautilus was a strange man."]})
    texts: Texts


class PairsRequest(BaseModel):
    """Texts, or as many pairs of a text and a second one."""

    model_config = _shown({"texts": ["A fine film, from its first minute to its last.", "Dull."]})
    texts: Texts
    pairs: Texts | None = Field(None, description="The second text of each pair, where the model was trained on pairs.")


class MaskedRequest(BaseModel):
    """Texts with `[MASK]` in them, once or several times."""

    model_config = _shown({"texts": ["The captain stood on the [MASK] of the ship."], "top_k": 5})
    texts: Texts
    top_k: TopK = Field(5, description="How many pieces a mask gets.")


class Question(BaseModel):
    """A question and the text that answers it."""

    model_config = ConfigDict(extra="forbid", strict=True)
    question: Text
    context: Text


class QuestionsRequest(BaseModel):
    """Questions, each with the text that answers it."""

    model_config = _shown(
        {
            "questions": [
                {
                    "question": "Where was the whale seen?",
                    "context": "In 1866 a whale was seen off the coast of Australia.",
                }
            ],
            "top_k": 1,
        }
    )
    questions: Annotated[list[Question], Field(min_length=1)]
    top_k: TopK = Field(1, description="How many answers a question gets.")


class Options(BaseModel):
    """A text, options to choose from, and the question about it, which may be empty."""

    model_config = ConfigDict(extra="forbid", strict=True)
    context: Text
    options: Annotated[list[Text], Field(min_length=2)]
    question: Text = ""


class OptionsRequest(BaseModel):
    """Questions with options."""

    model_config = _shown(
        {
            "questions": [
                {
                    "context": "The sea was calm, and the sailors slept on the deck.",
                    "question": "Where did the sailors sleep?",
                    "options": ["on the deck", "in the harbour", "on the island"],
                }
            ]
        }
    )
    questions: Annotated[list[Options], Field(min_length=1)]


class OrderRequest(BaseModel):
    """Two segments each, which are in their order or swapped."""

    model_config = _shown({"pairs": [["She opened the letter.", "It was from her brother in Lisbon."]]})
    pairs: Annotated[list[Annotated[list[Text], Field(min_length=2, max_length=2)]], Field(min_length=1)]


class EmbedRequest(BaseModel):
    """Texts to become vectors."""

    model_config = _shown({"texts": ["A storm at sea.", "Wind and high waves."], "normalize": True})
    texts: Texts
    pooling: Literal["mean", "cls"] = Field("mean", description="The mean of a text's tokens, or its [CLS].")
    normalize: bool = Field(False, description="Vectors of length one, whose products are cosines.")


class LayersRequest(BaseModel):
    """A text, or a pair, whose way through the layers is shown."""

    model_config = _shown({"text": "The captain stood on the [MASK] of the ship."})
    text: Text
    pair: Text | None = None


# --------------------------------------------------------------------------------------------------------------------
# What replies say, as the OpenAPI document shows it.


class LabelScore(BaseModel):
    """A label and its probability."""

    label: str
    score: float
    tokens_cut: int | None = Field(None, description="Tokens of the text that did not fit and were not read.")
    depth: int | None = Field(None, description="Layers after which the text was decided, where that may be early.")


class LabelsReply(BaseModel):
    """For each text every label, the likeliest first."""

    results: list[list[LabelScore]]


class Number(BaseModel):
    """The number that the model predicts."""

    label: str
    score: float
    tokens_cut: int | None = None
    depth: int | None = None


class NumbersReply(BaseModel):
    """For each text its number."""

    results: list[Number]


class FilledMask(BaseModel):
    """A piece in the place of a mask."""

    score: float
    token: int
    token_str: str
    sequence: str


class MasksReply(BaseModel):
    """For each text and each of its masks, the likeliest pieces."""

    results: list[list[list[FilledMask]]]


class Answer(BaseModel):
    """A slice of the context, `start`..`end` in characters; an empty one says that there is no answer."""

    answer: str
    score: float
    start: int
    end: int
    tokens_cut: int | None = Field(None, description="Tokens of the question that were not read.")


class AnswersReply(BaseModel):
    """For each question its answers, the likeliest first."""

    results: list[list[Answer]]


class Chosen(BaseModel):
    """An option, its place among those given, and its probability."""

    option: str
    index: int
    score: float
    tokens_cut: int | None = None


class ChoicesReply(BaseModel):
    """For each question its options, the likeliest first."""

    results: list[list[Chosen]]


class TaggedWord(BaseModel):
    """A word, its label, and its characters `start`..`end` in the text."""

    word: str
    entity: str
    score: float
    start: int
    end: int


class TagsReply(BaseModel):
    """For each text its words."""

    results: list[list[TaggedWord]]


class Order(BaseModel):
    """Whether two segments are in order; a model that learnt next sentences says `probability_next` instead."""

    label: str
    score: float
    probability_in_order: float | None = None
    probability_next: float | None = None
    tokens_cut: int | None = None


class OrdersReply(BaseModel):
    """For each pair its order."""

    results: list[Order]


class Vector(BaseModel):
    """As many numbers as the model is wide."""

    vector: list[float]
    tokens_cut: int | None = None


class VectorsReply(BaseModel):
    """For each text its vector."""

    results: list[Vector]


class TokenPrediction(BaseModel):
    """A piece and its probability."""

    piece: str
    score: float


class MaskPredictions(BaseModel):
    """What the masked-token head says at one mask, read after each layer."""

    position: int
    layers: list[list[TokenPrediction]]


class Layers(BaseModel):
    """A text's way through the model; layer 0 is what goes into the first one."""

    tokens: list[str]
    tokens_cut: int
    heads: int
    attention: str = Field(
        description="Base64 of one byte for each [layer][head][from token][to token]; 255 stands for 1."
    )
    distance: list[float] = Field(description="Mean L2 distance between each layer's input and output (Figure 1).")
    angle: list[float] = Field(description="Mean angle between them, in degrees (Figure 1).")
    token_distance: list[list[float]] = Field(description="[layer][token]: the same distance, of each token.")
    masks: list[MaskPredictions] = Field(description="Where the model fills masks and the text has some.")
    labels: list[str] = Field(description="Where the model classifies: the names, of the probabilities below.")
    label_scores: list[list[float]] = Field(description="What the classifier says [after layer][label].")


class LayersReply(BaseModel):
    """The one text's layers."""

    results: list[Layers]


class ModelReply(BaseModel):
    """What a model can do, how it computes, and what the server takes on at most."""

    model_config = ConfigDict(protected_namespaces=())
    name: str
    abilities: list[str]
    addresses: list[str]
    labels: list[str]
    problem_type: str | None
    precision: str
    depth: int
    patience: int | None
    device: str
    max_length: int
    vocab_size: int
    hidden_size: int
    num_hidden_layers: int
    num_attention_heads: int
    limits: dict[str, float]


class ErrorReply(BaseModel):
    """What was wrong, in one sentence."""

    error: str
