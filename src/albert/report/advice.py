"""What the scores of a finished run say: which simpler models are not beaten, and what to try next.

All functions take values of results.json, and return what is written there."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from albert.report.tables import Scores, format_score
from albert.tasks.metrics import LOWER_IS_BETTER, is_beaten, is_better
from albert.tasks.task import BEST_CONSTANT, MAJORITY

AT_RANDOM = "random choice"
"""The baseline of finding the second text of a pair among others: one of them at random."""
FROZEN = "frozen model with a linear head"
CONSTANTS = (MAJORITY, BEST_CONSTANT)
"""The names of the baseline that gives every row the same answer."""
TEST = "/test"
"""The end of the names of scores on a user's test set, as in `all_scores`."""
FEW_ROWS = 30
"""Scores on fewer rows prove nothing: they say neither which model is better nor what to change."""
MOSTLY_ONE_CLASS = 80.0
"""Accuracy of the majority baseline from which on accuracy says little about a model."""
PARTS_OF_SCORES = ("precision", "recall", "thresh", "best_", "entity_f1_", "tag_accuracy")
"""In the names of scores that say little beside another one: most tags are outside of entities."""

# --------------------------------------------------------------------------------------------------------------------
# The scores of a run, and those of simpler models on the same rows.


def baseline_name(report: Mapping[str, Any]) -> str:
    """What the values of `baseline` are the scores of."""
    return report.get("baseline_name", MAJORITY)


def baselines(report: Mapping[str, Any]) -> dict[str, Scores]:
    """Name -> scores of simpler models on the development set: a constant answer, a linear model on words, the frozen
    model with a linear head; of vectors, the model as it was before."""
    linear = report.get("linear_baseline")
    frozen = report.get("frozen_head")
    found: dict[str, Scores | None] = {baseline_name(report): report.get("baseline")}
    if linear is not None:
        found[linear["method"]] = linear["scores"]
    found["before training"] = report.get("before")
    if frozen is not None and not is_frozen(report):
        found[FROZEN] = frozen["scores"]
    return {name: dict(scores) for name, scores in found.items() if scores}


def is_frozen(report: Mapping[str, Any]) -> bool:
    """Whether the result of a run is the frozen model with a linear head itself."""
    return report.get("settings", {}).get("frozen", False)


def all_scores(report: Mapping[str, Any]) -> dict[str, float | None]:
    """The scores of a finished run on the development set, and on further splits as `score/split`."""
    scores = dict(report.get("scores", {}))
    for split, further in report.get("further_scores", {}).items():
        scores |= {f"{name}/{split}": value for name, value in further.items()}
    return scores


def simpler_models(report: Mapping[str, Any]) -> dict[str, dict[str, float | None]]:
    """The scores of the `baselines` on all splits, named as in `all_scores`."""
    models = {name: dict(scores) for name, scores in baselines(report).items()}
    for split, compared in report.get("further_baselines", {}).items():
        for model, scores in compared.items():
            if model in models and scores:
                models[model] |= {f"{name}/{split}": value for name, value in scores.items()}
    return models


def rows_that_decide(report: Mapping[str, Any]) -> int:
    """The number of scored rows of the test set if there is one, else of the development set."""
    return report.get("further_examples", {}).get("test", report["evaluation"]["examples"])


def deciding_score(scores: Scores, simpler: Mapping[str, Scores]) -> str:
    """The name of the score by which a model is compared with simpler ones: the first one, of the test set if there is
    one, which chose nothing; F1 instead of accuracy if most rows have one class."""
    name = next(iter(scores), "")
    where = TEST if name + TEST in scores else ""
    if name == "accuracy" and (simpler.get(MAJORITY, {}).get(name + where) or 0.0) >= MOSTLY_ONE_CLASS:
        name = next((each for each in scores if each.startswith(("f1", "macro_f1"))), name)
    return name + where if name + where in scores else name


def scores_not_beaten(scores: Scores, simpler: Mapping[str, Scores]) -> dict[str, dict[str, float | None]]:
    """The scores of a model that are not better than those of simpler models, which are the values: the
    `deciding_score` first, then all others that are printed of the same rows. A constant answer counts for the deciding
    score alone: of any other one, the best constant may be of no use."""
    deciding = deciding_score(scores, simpler)
    where = TEST if deciding.endswith(TEST) else ""
    found = {}
    for name in dict.fromkeys((deciding, *scores)):
        in_part = name != deciding and any(part in name for part in PARTS_OF_SCORES)
        if in_part or name.endswith(TEST) != bool(where) or name not in scores:
            continue
        rivals: dict[str, float | None] = {}
        for rival in dict.fromkeys((*CONSTANTS, FROZEN, *simpler)):
            if name not in simpler.get(rival, {}):
                continue
            if rival not in CONSTANTS:
                rivals[rival] = simpler[rival][name]
            elif name == deciding:
                rivals[rival] = simpler[rival][name] or 0.0  # the correlation with a constant is undefined
        ahead = {rival: value for rival, value in rivals.items() if not is_beaten(name, scores[name], value)}
        if ahead:
            found[name] = ahead
    return found


# --------------------------------------------------------------------------------------------------------------------
# What to do about it.


def advice(
    scores: Scores,
    simpler: Mapping[str, Scores],
    *,
    is_frozen: bool = False,
    is_weighted: bool = False,
    step: Mapping[str, str] | None = None,
    is_probe: bool = False,
    rows: int = FEW_ROWS,
) -> str | None:
    """Which model to use, and what to try, if a score is not better than those of simpler models, else None; None for
    scores on few rows.

    Args:
        scores: see `all_scores`.
        simpler: see `simpler_models`.
        is_frozen: whether the scored model is the frozen one with a linear head itself.
        is_weighted: whether classes were weighted.
        step: a `next_step`.
        is_probe: whether fine-tuning did not improve on the head solved on frozen features, so that it is the result.
        rows: the number of rows that were scored.
    """
    if rows < FEW_ROWS:
        return None
    found = scores_not_beaten(scores, {name: own for name, own in simpler.items() if name != FROZEN or not is_probe})
    if not found:
        if is_probe and step is not None:
            return f"fine-tuning did not improve on the {FROZEN}, which is the result: try {step['try']}"
        return None
    deciding = deciding_score(scores, simpler)
    name, ahead = next(iter(found.items()))
    where = TEST if name.endswith(TEST) else ""
    on_test = " on the test set" if where else ""
    clauses = []
    for each, rivals in found.items():
        names = [f"{_named(rival)} ({format_score(rivals[rival])})" for rival in rivals]
        shown = f"{each.removesuffix(TEST)} {format_score(scores[each])}{on_test}"
        clauses.append(f"{shown} does not beat {' or '.join(names)}")
    said = "; ".join(clauses)
    if name != deciding:
        said += f", although {deciding.removesuffix(TEST)} does"
    best = next(iter(ahead))
    for rival in ahead:
        is_simpler = best == FROZEN and ahead[rival] == ahead[best]  # the one that the frozen model does not beat
        best = rival if is_simpler or is_better(name, ahead[rival], ahead[best]) else best
    use = f"use {_named(best)} for such rows" + (" (--frozen)" if best == FROZEN else "")
    mostly_one = (simpler.get(MAJORITY, {}).get("accuracy" + where) or 0.0) >= MOSTLY_ONE_CLASS
    by_f1 = deciding.startswith(("f1 (", "macro_f1"))
    weights = "class_weights=balanced, " if (mostly_one or by_f1) and not is_weighted else ""
    if is_frozen:
        remedy = ("try " + weights + "or " if weights else "") + "fine-tune the whole model, without --frozen"
    elif step is not None:
        remedy = "try " + (weights + "or " if weights else "") + step["try"]
    else:
        remedy = f"try {weights}more epochs, another learning_rate, or a larger --model"
    if mostly_one and next(iter(scores)) == "accuracy":
        chosen = "f1" if deciding.startswith("f1") else "macro_f1"
        remedy += f"; --metrics {chosen} chooses the best evaluation by it, not by accuracy"
    is_named = best == FROZEN and "--frozen" in remedy
    remedy = remedy if best in CONSTANTS or is_named else f"{use}, or {remedy}"
    return f"{said}: {remedy}"


def _named(model: str) -> str:
    """A simpler model inside a sentence."""
    return model if "TF-IDF" in model else f"the {model}"


LARGE_GAP = 10.0
"""Points between the scores of training and development rows from which on the model knows its rows by heart."""
WELL_KNOWN = 95.0
"""The score of training rows from which on little is left to learn from them."""
ALL_KNOWN = 99.95
"""The score of training rows from which on it is shown as 100.0: more epochs do not help."""
LEARNT = 2.0
"""Points above the majority baseline from which on a model has learned something."""
_WITHOUT_PLATEAU = {
    "rising": "; the score was still rising at the end",
    "once": "; the trained model was scored only at the end, so whether its score still rises is not known",
    "unknown": "; the evaluations do not show whether the score still rises",
}
LARGER_MODELS = {384: "small-vectors", 768: "albert/albert-base-v2"}
"""For models that are narrower than the key."""


@dataclass(frozen=True)
class Lost:
    """The scores of the head that was solved first, and after fine-tuning, which is lower by more than chance."""

    solved: float
    tuned: float
    solved_is_result: bool


def next_step(
    metric: str,
    training: float | None,
    development: float | None,
    baseline: float | None,
    *,
    hidden_size: int,
    learning_rate: float,
    higher_rate: float,
    epochs: float,
    trend: Literal["rising", "once", "unknown", "stopped"],
    is_english: bool = True,
    baseline_name: str = MAJORITY,
    steps: int | None = None,
    lost: Lost | None = None,
    rows: int = FEW_ROWS,
) -> dict[str, str] | None:
    """What to change next, by the scores of training and development rows: `why`, and what to `try`.

    None for a score that is not in points of 100 or not defined, and for a model that has nothing left to learn.

    Args:
        higher_rate: a learning rate to try; the same one if there is none.
        trend: a `Trend` of the development score, see `albert.finetuning.selection`.
        is_english: whether the texts are English, so that an English model may be named.
        steps: of the run, if they were given in the place of epochs.
        lost: what fine-tuning lost of the head that was solved first.
        rows: the number of rows of the development set; of few ones only what was lost is said.
    """
    if metric.startswith(LOWER_IS_BETTER) or training is None or development is None:
        return None
    if lost is not None:
        why = f"{metric} on the development set was {lost.solved:.1f} with the head solved first, and "
        why += f"{lost.tuned:.1f} after fine-tuning, which lost what the head had"
        frozen = "" if lost.solved_is_result else ", or --frozen"
        return {"why": why, "try": f"learning_rate={learning_rate / 4:.2g}{frozen}"}
    if rows < FEW_ROWS:
        return None
    larger = next((f"--model {name}" for width, name in LARGER_MODELS.items() if hidden_size < width), None)
    if larger is not None and not is_english:
        larger = "a larger --model that was trained on texts of this language"
    more_rows = {"try": f"{larger}, or more labelled rows" if larger else "more labelled rows"}
    why = f"{metric} is {training:.1f} on training rows and {development:.1f} on the development set"
    if training - development >= LARGE_GAP and (training >= WELL_KNOWN or trend == "stopped"):
        return {"why": f"{why}; more epochs do not close this gap", **more_rows}
    if min(training, development) >= 98.0:
        return None
    if training - (baseline or 0.0) < LEARNT and higher_rate > learning_rate and epochs >= 1:
        why += f", hardly above the {baseline_name}; the model has not learned yet"
        return {"why": why, "try": f"learning_rate={higher_rate:.2g}"}
    if training >= ALL_KNOWN:
        return {"why": f"{why}; more epochs have nothing left to learn from the training rows", **more_rows}
    if trend != "stopped":
        more = f"epochs={math.ceil(2 * epochs)}" if steps is None else f"steps={2 * steps}"
        return {"why": why + _WITHOUT_PLATEAU[trend], "try": more}
    why += "; the last evaluations did not rise by more than chance, so more epochs do not help"
    return {"why": why, "try": larger or "more labelled rows"}


def advice_lines(report: Mapping[str, Any]) -> list[str]:
    """Why something should change, and what to try."""
    found = report.get("advice")
    step = report.get("next_step")
    lines = []
    if step:
        lines.append(step["why"] if found else f"{step['why']}: try {step['try']}")
    if found:
        lines.append(found)
    return lines
