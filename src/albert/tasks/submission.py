"""All declared tasks by name, benchmark averages, ensembles, and prediction files for the benchmarks' servers.

GLUE: a table of `index` and `prediction`, which is a label of the data, or a number within the range of the scores.
SQuAD: an object of question to text, "" for no answer; if a question may have no answer, also an object of question to
the probability of no answer, which the official script takes as `--na-prob-file` (a probability is never above its
threshold of 1, so it changes no decision). RACE: an object of question to letter. Labels and tags: an object of example
to list."""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import numpy as np

from albert.runtime.errors import UsageError, did_you_mean
from albert.tasks import glue, race, squad
from albert.tasks.answers import Answers, Candidate, NullThreshold
from albert.tasks.task import Choice, Labels, Option, Published, Score, Span, Tags, Task


def submission_files(task: Task, split: str, entries: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """The files to submit for a split: name to content. Splits that are not submitted are named after task and split.

    Args:
        entries: one object per example with `id` and `prediction`, as `albert evaluate --predictions` writes them.
    """
    name = task.submission.get(split, f"{task.name}-{split}")
    match task.target:
        case Choice():
            return {f"{name}.tsv": _tsv(entries, str)}
        case Score(_, low, high):
            low = -math.inf if low is None else low
            high = math.inf if high is None else high
            return {f"{name}.tsv": _tsv(entries, lambda number: f"{min(max(number, low), high):.6f}")}
        case Option() | Labels() | Tags() | Span(may_be_absent=False):
            return {f"{name}.json": _json(entries, "prediction")}
        case Span():
            odds = _json(entries, "no_answer_probability")
            return {f"{name}.json": _json(entries, "prediction"), f"{name}-null-odds.json": odds}


def _tsv(entries: Sequence[Mapping[str, Any]], write: Callable[[Any], str]) -> str:
    rows = [f"{entry['id']}\t{write(entry['prediction'])}\n" for entry in entries]
    return "index\tprediction\n" + "".join(rows)


def _json(entries: Sequence[Mapping[str, Any]], key: str) -> str:
    return json.dumps({entry["id"]: entry[key] for entry in entries}, allow_nan=False, indent=1) + "\n"


# --------------------------------------------------------------------------------------------------------------------
# Ensembles, averaged as in the paper (section 4.9).
#
# Labels, options and numbers: the mean of the predictions. Spans: the mean over the models that proposed the span, so
# that a span of a single confident model may win; and the mean no-answer score over all models.

OWN_THRESHOLDS = NullThreshold(0.0, "nothing: each model's own was subtracted before the mean")


def average_answers(models: Sequence[tuple[Sequence[Answers], NullThreshold]]) -> list[Answers]:
    """The averaged answers of several models to the same questions, for the threshold `OWN_THRESHOLDS`.

    Each model's threshold is subtracted from its no-answer scores. Probabilities are means over models, scaled so that
    they sum to 1 with the mean no-answer probability.
    """
    averaged = []
    for answers in zip(*(own for own, _ in models), strict=True):
        proposed: dict[tuple[int, int], list[Candidate]] = {}
        for candidate in chain.from_iterable(each.candidates for each in answers):
            proposed.setdefault((candidate.start, candidate.end), []).append(candidate)
        means = {span: float(np.mean([candidate.probability for candidate in own])) for span, own in proposed.items()}
        none = float(np.mean([each.no_answer_probability for each in answers]))
        scale = (1 - none) / (sum(means.values()) or 1.0)
        ranked = sorted(proposed, key=lambda span: (-means[span], -len(proposed[span]), span))
        candidates = [Candidate(proposed[s][0].text, *s, score=means[s], probability=means[s] * scale) for s in ranked]
        scores = [
            each.no_answer - threshold.value
            for each, (_, threshold) in zip(answers, models, strict=True)
            if each.no_answer is not None
        ]
        averaged.append(Answers(candidates, float(np.mean(scores)) if scores else None, none))
    return averaged


# --------------------------------------------------------------------------------------------------------------------
# Averages over the tasks of a benchmark.


@dataclass(frozen=True)
class Average:
    """The mean over tasks of the mean of some scores of each.

    Attributes:
        parts: task -> scores; those on a further split are called `score/split`.
        diagnostics: tasks that belong to the benchmark but not to the average -> the task whose model predicts them.
    """

    name: str
    parts: Mapping[str, tuple[str, ...]]
    published: tuple[Published, ...] = ()
    diagnostics: Mapping[str, str] = field(default_factory=dict)

    def of(self, scores: Mapping[str, Mapping[str, float | None]]) -> float | None:
        """The average in points, from scores by task and name; None if a score is missing or undefined."""
        means = []
        for task, names in self.parts.items():
            values = [value for name in names if (value := scores.get(task, {}).get(name)) is not None]
            if len(values) < len(names):
                return None
            means.append(sum(values) / len(values))
        return sum(means) / len(means)


GLUE_AVERAGE = Average(
    "GLUE, as its leaderboard averages",
    {
        glue.COLA.name: ("matthews_correlation",),
        glue.SST2.name: ("accuracy",),
        glue.MRPC.name: ("f1", "accuracy"),
        glue.STSB.name: ("pearson", "spearman"),
        glue.QQP.name: ("f1", "accuracy"),
        glue.MNLI.name: ("accuracy", "accuracy/dev_mismatched"),
        glue.QNLI.name: ("accuracy",),
        glue.RTE.name: ("accuracy",),
        glue.WNLI.name: ("accuracy",),
    },
    published=(
        Published("albert-xxlarge-v1, ensemble", "average", 89.4, "arXiv:1909.11942v6 Table 9, test, ensemble"),
    ),
    diagnostics={glue.AX.name: glue.MNLI.name},
)
"""Table 9's Avg of test sets, without the diagnostic set; of pairs of scores, which count half each, it shows one."""

BENCHMARKS = {"glue": GLUE_AVERAGE}
"""Benchmarks that can be fine-tuned as a whole."""


DECLARED: dict[str, Task] = {task.name: task for task in (*glue.TASKS, *squad.TASKS, *race.TASKS)}


def find_task(name: str) -> Task:
    """The task with this name, ignoring case and punctuation; UsageError with the closest name if there is none."""

    def plain(text: str) -> str:
        return "".join(character for character in text.lower() if character.isalnum())

    for task in DECLARED.values():
        if plain(task.name) == plain(name):
            return task
    raise UsageError(f"task {name}", "unknown", did_you_mean(name.lower(), DECLARED))
