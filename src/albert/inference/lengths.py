"""How many tokens of what a model reads: as many as when it was fine-tuned, which `config.json` says."""

from dataclasses import dataclass, replace
from typing import Any

from albert.checkpoints.model_directory import Kind, OpenedModel
from albert.runtime.errors import InvalidConfiguration

SHORTEST = 5  # [CLS] a [SEP] b [SEP]


@dataclass(frozen=True)
class Lengths:
    """Tokens of a sequence with its special ones, of a question in it, and from one window of a context to the next."""

    max_length: int
    question_length: int
    stride: int


_QUESTIONS = Lengths(384, 64, 128)  # of the paper's recipe for SQuAD (Table 14)
_DEFAULTS: dict[Kind, Lengths] = {
    "question_answering": _QUESTIONS,
    "joint_question_answering": _QUESTIONS,
    "multiple_choice": Lengths(512, 128, 128),  # and for RACE
}


def lengths_of(kind: Kind, opened: OpenedModel) -> Lengths:
    """The lengths that a model was fine-tuned with, or the paper's where it does not say, and no more than it has
    positions.

    Raises:
        InvalidConfiguration: a length that is none, or too short for any text.
    """
    positions = opened.config.max_position_embeddings
    default = _DEFAULTS.get(kind, Lengths(positions, 64, 128))
    stated = dict(opened.extra.get("finetuning") or {})
    if "max_sequence_length" in opened.extra:
        stated["max_length"] = opened.extra["max_sequence_length"]
    place = opened.directory / "config.json"
    lengths = Lengths(
        _length(stated, "max_length", default.max_length, SHORTEST, place),
        _length(stated, "question_length", default.question_length, 1, place),
        _length(stated, "stride", default.stride, 1, place),
    )
    return replace(lengths, max_length=min(lengths.max_length, positions))


def _length(stated: dict[str, Any], name: str, default: int, least: int, place: object) -> int:
    value = stated.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        shown = "max_sequence_length" if name == "max_length" else f"finetuning: {name}"
        raise InvalidConfiguration(f"{place}: {shown}", f"is {value!r}, at least {least} tokens are needed")
    return value
