"""What a model's outputs say to each example: gold and prediction as the metrics take them, and an entry for people."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from albert.tasks.answers import Answers
from albert.tasks.entities import OUTSIDE, entities_of, runs_of, tag_scheme
from albert.tasks.examples import Example
from albert.tasks.null_threshold import NullThreshold, decide
from albert.tasks.task import Choice, Labels, Option, Tags

SHOWN_ANSWERS = 5
LIKELY = 0.5
"""The probability from which on a label counts as true where several may be."""


@dataclass(frozen=True)
class Decisions:
    """One of each for every example, in order.

    `gold` and `predicted` are label ids, places of options, sets of labels, tags, numbers, or answers; `entries` are
    JSON objects.
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
            "gold": None if example.target is None else names[int(right)],
            "probabilities": dict(zip(names, map(float, row), strict=True)),
        }
        for example, choice, right, row in zip(examples, predicted, gold, probabilities, strict=True)
    ]
    return Decisions(gold, predicted, entries)


def decided_label_sets(
    examples: Sequence[Example], target: Labels, gold: np.ndarray, probabilities: np.ndarray
) -> Decisions:
    """Every label that is likelier true than not: probabilities are [examples, labels], in the task's order."""
    predicted = probabilities >= LIKELY
    gold = gold > 0
    names = np.array(target.labels, object)
    entries = [
        {
            "id": example.identifier,
            "prediction": names[said].tolist(),
            "gold": None if example.target is None else names[true].tolist(),
            "probabilities": dict(zip(target.labels, map(float, row), strict=True)),
        }
        for example, said, true, row in zip(examples, predicted, gold, probabilities, strict=True)
    ]
    return Decisions(gold, predicted, entries)


def decided_tags(examples: Sequence[Example], target: Tags, probabilities: Sequence[np.ndarray]) -> Decisions:
    """The likeliest tag of every word, and the entities that they write; probabilities are [words, labels] for each
    example, in the task's order. Each tag has its probability beside it.
    """
    labels = target.labels
    plain = tag_scheme(labels) == "plain"
    read = runs_of if plain else entities_of
    writes_entities = not plain or OUTSIDE in labels
    gold, predicted, entries = [], [], []
    for example, rows in zip(examples, probabilities, strict=True):
        true = tuple(labels[tag] for tag in example.target) if isinstance(example.target, tuple) else ()
        said = tuple(labels[tag] for tag in rows.argmax(axis=1)) if len(rows) else ()
        entry: dict[str, Any] = {"id": example.identifier, "words": list(example.texts), "prediction": list(said)}
        entry |= {"gold": None if example.target is None else list(true)}
        entry |= {"probabilities": rows.max(axis=1).tolist() if len(rows) else []}
        if writes_entities:
            entry["entities"] = [entity._asdict() for entity in read(said)]
        gold.append(true)
        predicted.append(said)
        entries.append(entry)
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
