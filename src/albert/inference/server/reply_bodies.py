"""What replies say, as the OpenAPI document shows it."""

from pydantic import BaseModel, ConfigDict, Field


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
