"""The scores of a run for the card of its model."""

from collections.abc import Mapping
from typing import Any

from albert.checkpoints.card import Measured
from albert.report.advice import baselines
from albert.report.tables import without_thresholds


def card_scores(report: Mapping[str, Any]) -> dict[str, float]:
    """Every score that is defined on the development set, beside those of simpler models; thresholds alone."""
    simpler = {name: without_thresholds(scores) for name, scores in baselines(report).items()}
    scores: dict[str, float] = {}
    for metric, score in report["scores"].items():
        if score is None:
            continue
        scores[f"{metric}, development set"] = score
        for name, others in simpler.items():
            value = others.get(metric)
            if value is not None:
                scores[f"{metric}, {name}"] = value
    return scores


def measured_scores(report: Mapping[str, Any], dataset: str) -> list[Measured]:
    """The scores for the header of the card: of the development set, and of the further sets."""
    splits = {"development": report["scores"], **report["further_scores"]}
    return [
        Measured(
            dataset=dataset,
            split=split,
            scores={name: value for name, value in without_thresholds(scores).items() if value is not None},
        )
        for split, scores in splits.items()
    ]
