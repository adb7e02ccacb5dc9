"""Which addresses there are, what a model must be able to do for each, and what `GET /model` tells of a model."""

from dataclasses import asdict
from http import HTTPStatus
from pathlib import Path
from typing import Any

from albert.inference.abilities import ANSWERING, CHOOSING, CLASSIFYING, FILLING, ORDERING, SCORING, TAGGING
from albert.inference.predictor import Predictor
from albert.inference.server.gate import Refused
from albert.inference.server.limits import Limits

_ANY_MODEL = ""
OFFERED = {
    "/classify": CLASSIFYING,
    "/score": SCORING,
    "/answer": ANSWERING,
    "/choose": CHOOSING,
    "/tag": TAGGING,
    "/fill-mask": FILLING,
    "/order": ORDERING,
    "/embed": _ANY_MODEL,
    "/layers": _ANY_MODEL,
}
"""Address -> what the model must be able to do, in words."""


def addresses_of(predictor: Predictor) -> list[str]:
    """The addresses at which this model answers."""
    can = (_ANY_MODEL, *predictor.abilities)
    return [address for address, ability in OFFERED.items() if ability in can]


def refuse_inability(predictor: Predictor, address: str) -> None:
    """Nothing where the model can do what the address is for.

    Raises:
        Refused: it has no head for that.
    """
    if address not in addresses_of(predictor):
        can = " and ".join(predictor.abilities) or "only embed texts"
        why = f"this model cannot {OFFERED[address]}; it can {can}"
        raise Refused(HTTPStatus.UNPROCESSABLE_ENTITY, "inability", why)


def model_facts(predictor: Predictor, limits: Limits) -> dict[str, Any]:
    """What a caller needs to know of a model; not where it lies on this machine."""
    config = predictor.config
    labelled = {CLASSIFYING, SCORING, TAGGING} & set(predictor.abilities)
    return {
        "name": Path(predictor.name).name,
        "abilities": list(predictor.abilities),
        "addresses": addresses_of(predictor),
        "labels": predictor.labels if labelled else [],
        "problem_type": predictor.extra.get("problem_type"),
        "precision": predictor.precision,
        "depth": predictor.depth,
        "patience": predictor.patience,
        "device": str(predictor.device),
        "max_length": predictor.max_length,
        "vocab_size": config.vocab_size,
        "hidden_size": config.hidden_size,
        "num_hidden_layers": config.num_hidden_layers,
        "num_attention_heads": config.num_attention_heads,
        "limits": asdict(limits),
    }
