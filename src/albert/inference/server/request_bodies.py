"""What requests hold, as the OpenAPI document shows it; a key that is not listed is an error."""

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
