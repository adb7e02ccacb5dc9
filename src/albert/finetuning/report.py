"""An evaluation in lines for people: scores, what they are compared with, published scores, and what was shortened."""

from collections.abc import Mapping
from typing import Any

from albert.tasks.metrics import is_better
from albert.tasks.task import Task

_WORDS = {
    "unlabelled": "examples without a label: nothing is scored",
    "truncated": "examples cut to the maximum length",
    "passages_truncated": "questions whose passage was cut",
    "questions_truncated": "questions cut",
    "sentences_in_several_windows": "sentences in several windows",
    "sentences_without_words": "sentences without a word",
    "words_without_pieces": "words without a piece, read as the unknown one",
    "tags_that_continue_nothing": "tags that go on with an entity that none began: they begin it, as conlleval has it",
    "contexts_in_several_windows": "contexts in several windows",
    "answers_relocated": "answers found away from their offset",
    "answers_not_found": "answers not in their context, or there more than once",
    "answers_not_aligned": "answers without a place in the context's tokens",
}


def scores_table(
    task: Task,
    scores: Mapping[str, float | None],
    baseline: Mapping[str, float | None] | None,
    linear: Mapping[str, Any] | None = None,
) -> list[str]:
    """Each metric with the best constant answer for it and the linear model's score beside it, then published scores.

    Args:
        task: what is scored.
        scores: of the model.
        baseline: of constant answers.
        linear: a `LinearBaseline` as plain values.
    """
    lines = []
    for name, value in scores.items():
        line = f"{name:<20} {shown(value):>9}"
        beside = []
        if baseline is not None and name in baseline and "thresh" not in name:
            beside.append(f"best constant answer: {shown(baseline[name])}")
        if linear is not None and name in linear["scores"]:
            beside.append(f"{linear['method']}: {shown(linear['scores'][name])}")
        lines.append(line + (f"   ({'; '.join(beside)})" if beside else ""))
    if linear is not None and linear["left_out"] is not None:
        lines.append(f"{linear['method']} is left out: {linear['left_out']}")
    return lines + published_lines(task)


def advice(
    scores: Mapping[str, float | None],
    baseline: Mapping[str, float | None] | None,
    linear: Mapping[str, Any] | None = None,
) -> str | None:
    """What to try when the first score is not better than a constant answer or the linear model; None when it is.

    For the arguments see `scores_table`.
    """
    name, score = next(iter(scores.items()), ("", None))
    rivals: dict[str, float | None] = {}
    if baseline is not None and name in baseline:
        rivals["the best constant answer's"] = baseline[name] or 0.0  # the correlation with a constant is undefined
    if linear is not None and name in linear["scores"]:
        rivals[f"that of {linear['method']},"] = linear["scores"][name]
    ahead = [f"{rival} {shown(value)}" for rival, value in rivals.items() if not is_better(name, score, value)]
    if not ahead:
        return None
    why = f"{name} {shown(score)} is not better than {' and '.join(ahead)}"
    return f"{why}: try more --epochs, another --learning-rate, or a larger --model"


def published_lines(task: Task) -> list[str]:
    """Published scores, a line for each metric and source."""
    groups: dict[tuple[str, str], list[str]] = {}
    for published in task.published:
        group = groups.setdefault((published.metric, published.source), [])
        group.append(f"{published.model} {published.score:g}")
    return [f"published {name}: {', '.join(found)} ({source})" for (name, source), found in groups.items()]


def shortened(counts: Mapping[str, Any]) -> list[str]:
    """Lines on whatever was cut, moved or not found; none when nothing was."""
    return [f"{counts[key]:,} {what}" for key, what in _WORDS.items() if counts.get(key)]


def shown(value: float | None) -> str:
    """A score with two decimals."""
    return "undefined" if value is None else f"{value:.2f}"
