"""What a model's outputs say to each example: gold and prediction as the metrics take them, and an entry for people."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from albert.tasks.answers import Answers
from albert.tasks.examples import Example
from albert.tasks.null_threshold import NullThreshold, decide
from albert.tasks.task import Choice, Option

SHOWN_ANSWERS = 5


@dataclass(frozen=True)
class Decisions:
    """One of each for every example, in order.

    `gold` and `predicted` are label ids, places of options, numbers, or answers; `entries` are JSON objects.
    """

    gold: Any
    predicted: Any
    entries: list[dict[str, Any]]

    def of(self, members: Sequence[int]) -> tuple[Any, Any]:
        """Gold and predicted of some examples."""
        gold, predicted = ([side[member] for member in members] for side in (self.gold, self.predicted))
        return gold, predicted


def decided_labels(
    examples: Sequence[Example], target: Choice | Option, gold: np.ndarray, probabilities: np.ndarray
) -> Decisions:
    """The likeliest label, or option: probabilities are [examples, labels], in the task's order."""
    names = target.labels if isinstance(target, Choice) else target.options
    predicted = probabilities.argmax(axis=1)
    entries = [
        {
            "id": example.identifier,
            "prediction": names[choice],
            "gold": None if example.target is None else names[int(example.target)],
            "probabilities": dict(zip(names, map(float, row), strict=True)),
        }
        for example, choice, row in zip(examples, predicted, probabilities, strict=True)
    ]
    return Decisions(gold, predicted, entries)


def decided_numbers(examples: Sequence[Example], gold: np.ndarray, numbers: np.ndarray) -> Decisions:
    """The numbers as they are."""
    entries = [
        {"id": example.identifier, "prediction": float(number), "gold": example.target}
        for example, number in zip(examples, numbers, strict=True)
    ]
    return Decisions(gold.astype(np.float64), numbers, entries)


def decided_answers(
    examples: Sequence[Example], answers: Sequence[Answers], threshold: NullThreshold | None
) -> Decisions:
    """The best spans, or none where the threshold says so; None for a threshold: every question has an answer."""
    gold = [tuple(answer.text for answer in example.answers) for example in examples]
    open_answers = None if threshold is None else decide(answers, threshold)
    predicted = [each.candidates[0].text if each.candidates else "" for each in answers]
    entries = []
    for place, (example, each) in enumerate(zip(examples, answers, strict=True)):
        entry: dict[str, Any] = {"id": example.identifier, "prediction": predicted[place], "gold": list(gold[place])}
        if each.candidates:
            best = each.candidates[0]
            entry |= {"start": best.start, "end": best.end, "score": best.score}
        if open_answers is not None:
            answered = open_answers[place].answered
            entry |= {"prediction": predicted[place] if answered else "", "no_answer": each.no_answer}
            entry |= {"no_answer_probability": each.no_answer_probability}
        entry["best"] = [
            {"answer": found.text, "start": found.start, "end": found.end, "probability": found.probability}
            for found in each.candidates[:SHOWN_ANSWERS]
        ]
        entries.append(entry)
    return Decisions(gold, predicted if open_answers is None else open_answers, entries)


def groups_of(examples: Sequence[Example]) -> dict[str, list[int]]:
    """The parts of the data that are scored apart too, and their examples; none when there are not two of them."""
    groups: dict[str, list[int]] = {}
    for place, example in enumerate(examples):
        groups.setdefault(example.group, []).append(place)
    return groups if len(groups) > 1 else {}
