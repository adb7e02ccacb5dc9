"""What a model can do with texts: an `Ability` for each inference task, in a file of its own.

How does a request become an answer? The server (`albert.inference.server.routes`) makes the ability's inputs of it,
the queue hands them to the ability's `compute`, and the results are the reply. A file takes the same way: `read` makes
the inputs of its rows, and `answers` the columns. To add a task, write a subclass and add it to `ABILITIES`: `albert
predict --task`, the endpoint, its part of `/openapi.json` and a tab of the page follow."""

from typing import TYPE_CHECKING

from albert.inference.abilities.answer import ANSWER
from albert.inference.abilities.base import (
    ENDINGS,
    ERROR,
    Ability,
    Fields,
    Lengths,
    Settings,
    UnansweredTexts,
)
from albert.inference.abilities.choose import CHOOSE
from albert.inference.abilities.classify import CLASSIFY, SCORE
from albert.inference.abilities.embed import EMBED
from albert.inference.abilities.fill_mask import FILL_MASK
from albert.inference.abilities.layers import LAYERS
from albert.inference.abilities.order import ORDER
from albert.inference.abilities.tag import TAG
from albert.runtime.errors import InvalidConfiguration, UsageError

if TYPE_CHECKING:
    from albert.inference.predictor import Predictor

__all__ = [
    "ABILITIES",
    "ANSWER",
    "CHOOSE",
    "CLASSIFY",
    "EMBED",
    "ENDINGS",
    "ERROR",
    "FILL_MASK",
    "LAYERS",
    "ORDER",
    "SCORE",
    "TAG",
    "Ability",
    "Fields",
    "Lengths",
    "Settings",
    "UnansweredTexts",
    "ability_for",
    "possible_abilities",
]

ABILITIES: dict[str, Ability] = {
    ability.name: ability for ability in (CLASSIFY, SCORE, ANSWER, CHOOSE, TAG, FILL_MASK, ORDER, EMBED, LAYERS)
}
"""Name -> ability."""


def possible_abilities(predictor: "Predictor") -> list[Ability]:
    """The abilities of a model."""
    return [ability for ability in ABILITIES.values() if predictor.can(ability)]


def ability_for(predictor: "Predictor", name: str | None) -> Ability:
    """The ability of this name, or the one of the model's head; raises UsageError if it has several."""
    of_head = [ability for ability in possible_abilities(predictor) if ability.needs is not None]
    if name is None:
        if len(of_head) > 1:
            known = " or ".join(ability.name for ability in of_head)
            raise UsageError("--task", f"{predictor.name} supports several tasks", f"choose {known}")
        return of_head[0] if of_head else EMBED
    ability = ABILITIES[name]
    if not predictor.can(ability):
        can = " and ".join(predictor.abilities) or "only embed texts"
        raise InvalidConfiguration(predictor.name, f"has no trained head to {ability.needs}", f"this model can {can}")
    return ability
