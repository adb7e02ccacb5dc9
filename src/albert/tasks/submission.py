"""Predictions as the benchmarks' servers take them, and as official scripts read them.

GLUE: a table of `index` and `prediction`, a label in the words of the data, or a number within the range of the scores.
SQuAD: an object of question to text, "" for none; and where a question may have no answer, one of question to the
probability of that, which the official script takes as `--na-prob-file` (as a probability, never above its threshold of
1: it changes no decision). RACE has no server, its answers are public: an object of question to letter; and so of
sets of labels and of tags, an object of example to list.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from albert.tasks.task import Choice, Labels, Option, Score, Span, Tags, Task


def submission_files(task: Task, split: str, entries: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """The files to hand in for a split: name to content.

    Args:
        task: the declaration; it says what the server calls the file of a split.
        split: a split of other names is called after task and split.
        entries: one object per example with `id` and `prediction`, as `albert evaluate --predictions` writes them.
    """
    name = task.submission.get(split, f"{task.name}-{split}")
    match task.target:
        case Choice():
            return {f"{name}.tsv": _table(entries, str)}
        case Score():
            return {f"{name}.tsv": _table(entries, lambda number: f"{_within(task.target, number):.6f}")}
        case Option() | Labels() | Tags():
            return {f"{name}.json": _object(entries, "prediction")}
        case Span(may_be_absent=False):
            return {f"{name}.json": _object(entries, "prediction")}
        case Span():
            odds = _object(entries, "no_answer_probability")
            return {f"{name}.json": _object(entries, "prediction"), f"{name}-null-odds.json": odds}


def _table(entries: Sequence[Mapping[str, Any]], shown: Any) -> str:
    rows = [f"{entry['id']}\t{shown(entry['prediction'])}\n" for entry in entries]
    return "index\tprediction\n" + "".join(rows)


def _within(target: Any, number: float) -> float:
    low = -float("inf") if target.low is None else target.low
    high = float("inf") if target.high is None else target.high
    return min(max(number, low), high)


def _object(entries: Sequence[Mapping[str, Any]], key: str) -> str:
    return json.dumps({entry["id"]: entry[key] for entry in entries}, allow_nan=False, indent=1) + "\n"
