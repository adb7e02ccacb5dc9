"""What a task's score is without any network: TF-IDF with a linear model, or words counted, on the same files.

Classes: logistic regression over TF-IDF (linear_baselines.py). Numbers: ridge regression on what two texts share.
Options: the sliding window that RACE's authors compare with. Spans: the nearest run of words in the sentence that
shares most with the question (lexical_baselines.py). Read through the tasks' own declarations, scored by their own
metrics, on every row of the development set; the best constant answer stands beside. The same files give the same
figures. A few minutes on one core; the models of `albert finetune` should be above them.

    python benchmarks/classical_baselines.py --data data data/glue \
        --files squad-1.1/train=squad/train.json race-middle/train=race/train.jsonl race-middle/dev=race/dev.jsonl
"""

import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from lexical_baselines import choose_option, find_answer, rarity
from linear_baselines import predict_classes, predict_numbers
from result_rows import append_rows
from rich.console import Console
from rich.table import Table
from task_files import FoundTask, find_files

from albert.cli.options import parse
from albert.runtime.progress import progress
from albert.tasks.answers import OpenAnswer, choose_threshold
from albert.tasks.examples import Example
from albert.tasks.metrics import baseline_scores, task_scores
from albert.tasks.task import Choice, Option, Score, Span

COLUMNS = ("task", "metric", "score", "constant", "method", "train_examples", "dev_examples", "seconds")


@dataclass(frozen=True, kw_only=True)
class Benchmark:
    """Score classical models on declared tasks.

    Example: python benchmarks/classical_baselines.py --data data data/glue --tasks sst-2 cola
    """

    data: tuple[Path, ...]
    """Folders of task files; of each task the first that has its development set."""
    files: tuple[str, ...] = ()
    """TASK/SPLIT=FILE: a file in the place of the published one, a part of a training set say."""
    tasks: tuple[str, ...] = ("sst-2", "cola", "rte", "mrpc", "sts-b", "squad-1.1", "squad-2.0", "race-middle")
    output: Path = Path("results/benchmark-classical-baselines.csv")


@dataclass(frozen=True)
class Predicted:
    """What a metric takes: gold and predicted of the development set, how that was made, and from how many examples."""

    gold: Any
    predicted: Any
    method: str
    learnt: int


def main(arguments: list[str]) -> None:
    """Run and report."""
    asked = parse(Benchmark, arguments, "classical_baselines.py")
    found = [find_files(name, asked.data, asked.files) for name in asked.tasks]
    rows: list[dict[str, object]] = []
    with progress("Classical models", len(found), "tasks") as bar:
        for each in found:
            rows += rows_of(each)
            bar.advance()
    append_rows(asked.output, COLUMNS, rows, same=("task", "metric", "train_examples", "dev_examples"))
    _show(rows)


def rows_of(found: FoundTask) -> list[dict[str, object]]:
    """A row for each score of a task."""
    started = time.perf_counter()
    answered = predict(found)
    seconds = time.perf_counter() - started
    scores = task_scores(found.task, answered.gold, answered.predicted)
    constant = baseline_scores(found.task, answered.gold) or {}
    return [
        {
            "task": found.task.name,
            "metric": metric,
            "score": f"{score:.2f}",
            "constant": "" if constant.get(metric) is None else f"{constant[metric]:.2f}",
            "method": answered.method,
            "train_examples": answered.learnt,
            "dev_examples": len(answered.gold),
            "seconds": f"{seconds:.1f}",
        }
        for metric, score in scores.items()
        if score is not None and "thresh" not in metric
    ]


def predict(found: FoundTask) -> Predicted:
    """The classical model that the kind of target has, on the whole development set."""
    task, dev = found.task, found.examples("dev")
    gold = np.array([example.target for example in dev]) if not isinstance(task.target, Span) else _texts(dev)
    if isinstance(task.target, Option):
        return Predicted(gold, np.array([choose_option(example) for example in dev]), "sliding window and distance", 0)
    train = found.examples("train")
    match task.target:
        case Choice():
            return Predicted(gold, *predict_classes(task, train, dev), len(train))
        case Score():
            return Predicted(gold, *predict_numbers(task, train, dev), len(train))
        case Span(may_be_absent):
            return _spans(train, dev, gold, may_be_absent)
    raise TypeError(f"{task.name} has a target of another kind: {task.target}")


def _spans(train: Sequence[Example], dev: Sequence[Example], gold: Any, may_be_absent: bool) -> Predicted:
    rare = rarity(example.texts[1] for example in train)
    method = "nearest run of words in the best sentence"
    said = [find_answer(example, rare) for example in dev]
    if not may_be_absent:
        return Predicted(gold, [text for text, _ in said], method, len(train))
    known = [OpenAnswer(*find_answer(example, rare), answered=True) for example in train]
    threshold = choose_threshold(_texts(train), known)
    decided = [OpenAnswer(text, against, answered=against <= threshold) for text, against in said]
    return Predicted(gold, decided, f"{method}, none above {threshold:.3f}", len(train))


def _texts(examples: Sequence[Example]) -> list[tuple[str, ...]]:
    return [tuple(answer.text for answer in example.answers) for example in examples]


def _show(rows: Sequence[Mapping[str, object]]) -> None:
    table = Table(*(name.replace("_", " ") for name in COLUMNS), box=None)
    for row in rows:
        table.add_row(*(str(row[name]) for name in COLUMNS))
    Console(width=160).print(table)


if __name__ == "__main__":
    main(sys.argv[1:])
