"""One way to ask the rows of a file: the fields that it needs, and the fields that it gives."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from albert.inference.embedding import Pooling
from albert.inference.encoding import UnansweredTexts
from albert.inference.files.asked_fields import Fields, Inputs
from albert.inference.files.records import Record
from albert.inference.predictor import Predictor

ERROR = "error"
"""The field that says why a row has no answer, null where it has one."""
Value = str | list[Any] | dict[str, Any]
"""What a field of an answer holds: "text", "number", "count"; a list of such; or names with such."""


@dataclass(frozen=True)
class Settings:
    """How a row is answered: guesses for a mask, answers to a question, how vectors are pooled, what the words are."""

    top_k: int | None = None
    pooling: Pooling = "mean"
    normalize: bool = False
    words: bool = False
    """Whether the words to be tagged stand between blanks."""


@dataclass(frozen=True)
class Asking:
    """One way to ask.

    Attributes:
        name: on the command line.
        ability: that a model must have, None where any has it.
        inputs: takes from a row what is asked about; raises DamagedData.
        predict: answers to many of them, each with the fields that `gives` names.
        gives: the fields of an answer, and what each holds.
    """

    name: str
    ability: str | None
    inputs: Callable[[Record, Fields], Inputs]
    predict: Callable[[Predictor, Sequence[Inputs], Settings], list[dict[str, Any]]]
    gives: Callable[[Predictor, Settings], dict[str, Value]]


def answers_to(
    asking: Asking, predictor: Predictor, inputs: Sequence[Inputs], settings: Settings
) -> list[dict[str, Any]]:
    """An answer to each row; one that cannot be given has all fields null but the one that says why."""
    names = asking.gives(predictor, settings)
    refused: dict[int, tuple[str, str | None]] = {}
    try:
        found = asking.predict(predictor, inputs, settings)
    except UnansweredTexts as error:
        refused = error.reasons
        others = [each for number, each in enumerate(inputs) if number not in refused]
        answered = iter(asking.predict(predictor, others, settings) if others else [])
        nothing: dict[str, Any] = dict.fromkeys(names)
        found = [nothing if number in refused else next(answered) for number in range(len(inputs))]
    if ERROR not in names:
        return found
    return [{**answer, ERROR: refused[number][0] if number in refused else None} for number, answer in enumerate(found)]
