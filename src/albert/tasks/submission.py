"""All declared tasks by name, benchmark averages, ensembles, and prediction files as the benchmarks' servers take them.

GLUE: a table of `index` and `prediction`, a label in the words of the data, or a number within the range of the scores.
SQuAD: an object of question to text, "" for none; and where a question may have no answer, one of question to the
probability of that, which the official script takes as `--na-prob-file` (as a probability, never above its threshold of
1: it changes no decision). RACE has no server, its answers are public: an object of question to letter; and so of
sets of labels and of tags, an object of example to list."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from albert.runtime.errors import UsageError, did_you_mean
from albert.tasks import glue, race, squad
from albert.tasks.answers import Answers, Candidate, NullThreshold
from albert.tasks.task import Choice, Labels, Option, Published, Score, Span, Tags, Task


def submission_files(task: Task, split: str, entries: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """The files to hand in for a split: name to content.

    Args:
        split: a split of other names is called after task and split.
        entries: one object per example with `id` and `prediction`, as `albert evaluate --predictions` writes them.
    """
    name = task.submission.get(split, f"{task.name}-{split}")
    match task.target:
        case Choice():
            return {f"{name}.tsv": _table(entries, str)}
        case Score(_, low, high):
            low, high = (-math.inf if low is None else low), (math.inf if high is None else high)
            return {f"{name}.tsv": _table(entries, lambda number: f"{min(max(number, low), high):.6f}")}
        case Option() | Labels() | Tags() | Span(may_be_absent=False):
            return {f"{name}.json": _object(entries, "prediction")}
        case Span():
            odds = _object(entries, "no_answer_probability")
            return {f"{name}.json": _object(entries, "prediction"), f"{name}-null-odds.json": odds}


def _table(entries: Sequence[Mapping[str, Any]], shown: Any) -> str:
    rows = [f"{entry['id']}\t{shown(entry['prediction'])}\n" for entry in entries]
    return "index\tprediction\n" + "".join(rows)


def _object(entries: Sequence[Mapping[str, Any]], key: str) -> str:
    return json.dumps({entry["id"]: entry[key] for entry in entries}, allow_nan=False, indent=1) + "\n"


# --------------------------------------------------------------------------------------------------------------------
# What several models say together, as the paper averages (section 4.9).
#
# Of labels, options and numbers it is the mean of the predictions. Of spans it is the mean over those models that
# proposed the span, so that one which a single model is sure of may win; and the mean of what speaks for no answer,
# over all models.

OWN_THRESHOLDS = NullThreshold(0.0, "nothing: each model's own was subtracted before the mean")


def average_numbers(models: Sequence[np.ndarray]) -> np.ndarray:
    """The mean of probabilities [examples, labels], or of numbers [examples], of models with the same labels."""
    return np.mean(np.stack(models), axis=0)


def average_answers(models: Sequence[tuple[Sequence[Answers], NullThreshold]]) -> list[Answers]:
    """The answers of several models to the same questions, to be decided at `OWN_THRESHOLDS`.

    What speaks against an answer is measured from each model's own threshold. The probabilities are those of the
    spans' means, scaled so that with the mean probability of no answer they sum to 1.
    """
    thresholds = [threshold for _, threshold in models]
    questions = zip(*(answers for answers, _ in models), strict=True)
    return [_together(said, thresholds) for said in questions]


def _together(said: Sequence[Answers], thresholds: Sequence[NullThreshold]) -> Answers:
    proposed: dict[tuple[int, int], list[Candidate]] = {}
    for answers in said:
        for candidate in answers.candidates:
            proposed.setdefault((candidate.start, candidate.end), []).append(candidate)
    means = {place: float(np.mean([each.probability for each in own])) for place, own in proposed.items()}
    none = float(np.mean([answers.no_answer_probability for answers in said]))
    scale = (1 - none) / total if (total := sum(means.values())) > 0 else 0.0
    ranked = sorted(proposed, key=lambda place: (-means[place], -len(proposed[place]), place))
    candidates = [Candidate(proposed[p][0].text, *p, score=means[p], probability=means[p] * scale) for p in ranked]
    against = [
        answers.no_answer - threshold.value
        for answers, threshold in zip(said, thresholds, strict=True)
        if answers.no_answer is not None
    ]
    return Answers(candidates, float(np.mean(against)) if against else None, none)


# --------------------------------------------------------------------------------------------------------------------
# The averages that papers print: which scores of which tasks they are the mean of.


@dataclass(frozen=True)
class Average:
    """The mean over tasks of the mean of some scores of each: `parts` maps a task's name to them.

    `published` are averages from the literature. `diagnostics` are sets that belong to the benchmark and not to the
    average, each with the task whose model answers it.
    """

    name: str
    parts: Mapping[str, tuple[str, ...]]
    published: tuple[Published, ...] = ()
    diagnostics: Mapping[str, str] = field(default_factory=dict)

    def of(self, scores: Mapping[str, Mapping[str, float | None]]) -> float | None:
        """The average in points; None when a score is missing or undefined: no subset is averaged.

        Args:
            scores: of each task by name. Those on a further split of a task are called `score/split`.
        """
        means = []
        for task, names in self.parts.items():
            values = [scores.get(task, {}).get(name) for name in names]
            known = [value for value in values if value is not None]
            if len(known) < len(names):
                return None
            means.append(sum(known) / len(known))
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
"""Table 9's Avg of test sets: of the pairs, which count half each, the table shows one. Without the diagnostic set."""

BENCHMARKS = {"glue": GLUE_AVERAGE}
"""What can be fine-tuned as a whole, by name."""


DECLARED: dict[str, Task] = {task.name: task for task in (*glue.TASKS, *squad.TASKS, *race.TASKS)}


def find_task(name: str) -> Task:
    """The task of that name; upper case, and dots, hyphens and underscores left out, are forgiven.

    Raises:
        UsageError: no such task; the closest one is suggested.
    """
    plain = {_plain(known): task for known, task in DECLARED.items()}
    if _plain(name) not in plain:
        raise UsageError(f"task {name}", "unknown", did_you_mean(name.lower(), DECLARED))
    return plain[_plain(name)]


def _plain(name: str) -> str:
    return "".join(character for character in name.lower() if character.isalnum())
