"""From where on a question is left unanswered, and what a model directory says of it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from albert.runtime.errors import InvalidConfiguration
from albert.tasks.answerability import OpenAnswer
from albert.tasks.answers import Answers

THRESHOLD_KEY, CHOSEN_ON_KEY = "no_answer_threshold", "no_answer_threshold_from"


@dataclass(frozen=True)
class NullThreshold:
    """A question is answered unless more than `value` speaks against an answer; `chosen_on` says why it is that."""

    value: float = 0.0
    chosen_on: str = "nothing: 0, where both are as likely"

    @property
    def keys(self) -> dict[str, Any]:
        """What `config.json` keeps of it."""
        return {THRESHOLD_KEY: self.value, CHOSEN_ON_KEY: self.chosen_on}

    @property
    def note(self) -> str:
        """A line for people."""
        return f"no answer where {self.value:.4g} is exceeded, a threshold chosen on {self.chosen_on}"


def stated_threshold(extra: Mapping[str, Any], model: str) -> NullThreshold:
    """The threshold that a model directory says, 0 where it says none.

    Raises:
        InvalidConfiguration: it is no number.
    """
    if THRESHOLD_KEY not in extra:
        return NullThreshold()
    value = extra[THRESHOLD_KEY]
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidConfiguration(f"{model}: {THRESHOLD_KEY}", f"is {value!r}, a number is needed")
    return NullThreshold(float(value), str(extra.get(CHOSEN_ON_KEY, "questions that nobody names")))


def decide(answers: Sequence[Answers], threshold: NullThreshold) -> list[OpenAnswer]:
    """Answered or not, for answers that may be absent."""
    decided = []
    for each in answers:
        assert each.no_answer is not None, "decoded as if every question had an answer"
        text = each.candidates[0].text if each.candidates else ""
        decided.append(OpenAnswer(text, each.no_answer, answered=each.no_answer <= threshold.value))
    return decided
