"""What a task's score is without any network: TF-IDF with a linear model, or words counted, on the same files.

    python benchmarks/classical_baselines.py --data data data/glue \
        --files squad-1.1/train=squad/train.json race-middle/train=race/train.jsonl race-middle/dev=race/dev.jsonl

Classes and numbers: the linear model over TF-IDF that `albert finetune` shows beside a score.
Options: the sliding window that RACE's authors compare with. Spans: the nearest run of words in the sentence that
shares most with the question. Read through the tasks' own declarations, scored by their own
metrics, on every row of the development set; the best constant answer stands beside. The same files give the same
figures. A few minutes on one core; the models of `albert finetune` should be above them.
"""

import math
import re
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import harness
import numpy as np
from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS
from task_files import FoundTask, find_files

from albert.runtime.errors import InvalidConfiguration
from albert.tasks.answers import OpenAnswer, choose_threshold
from albert.tasks.examples import Example
from albert.tasks.linear_baseline import linear_baseline
from albert.tasks.metrics import baseline_scores, task_scores
from albert.tasks.task import Option, Span
from albert.text.sentences import split_sentences

COLUMNS = ("task", "metric", "score", "constant", "method", "train_examples", "dev_examples", "seconds")


@dataclass(frozen=True, kw_only=True)
class Benchmark:
    """Score classical models on declared tasks."""

    data: tuple[Path, ...]
    """Folders of task files; of each task the first that has its development set."""
    files: tuple[str, ...] = ()
    """TASK/SPLIT=FILE: a file in the place of the published one, a part of a training set say."""
    tasks: tuple[str, ...] = ("sst-2", "cola", "rte", "mrpc", "sts-b", "qnli", "squad-1.1", "squad-2.0", "race-middle")
    output: Path = Path("results/benchmark-classical-baselines.csv")


class Baseline(NamedTuple):
    """Scores, those of the best constant answer, how they were made, and from how many examples."""

    scores: Mapping[str, float | None]
    constant: Mapping[str, float | None]
    method: str
    learnt: int


def measure(asked: Benchmark) -> Iterator[dict[str, object]]:
    """A row for each score of each task."""
    for found in [find_files(name, asked.data, asked.files) for name in asked.tasks]:
        started = time.perf_counter()
        dev = found.examples("dev")
        baseline = baseline_of(found, dev)
        seconds = time.perf_counter() - started
        for metric, score in baseline.scores.items():
            constant = baseline.constant.get(metric)
            if score is not None and "thresh" not in metric:
                yield {
                    "task": found.task.name, "metric": metric, "score": f"{score:.2f}",
                    "constant": "" if constant is None else f"{constant:.2f}", "method": baseline.method,
                    "train_examples": baseline.learnt, "dev_examples": len(dev), "seconds": f"{seconds:.1f}",
                }  # fmt: skip


def baseline_of(found: FoundTask, dev: Sequence[Example]) -> Baseline:
    """The classical model that the kind of target has, on the whole development set."""
    task, train = found.task, [] if isinstance(found.task.target, Option) else found.examples("train")
    gold: Any = np.array([example.target for example in dev])
    if isinstance(task.target, Option):
        said, method = np.array([choose_option(example) for example in dev]), "sliding window and distance"
    elif isinstance(task.target, Span):
        gold = _texts(dev)
        said, method = find_answers(train, dev, task.target.may_be_absent)
    else:
        linear = linear_baseline(task, train, dev)
        if linear is None or linear.left_out:
            raise InvalidConfiguration(task.name, (linear and linear.left_out) or "has another kind of target")
        return Baseline(linear.scores, baseline_scores(task, gold) or {}, linear.method, linear.train_examples)
    return Baseline(task_scores(task, gold, said), baseline_scores(task, gold) or {}, method, len(train))


def find_answers(train: Sequence[Example], dev: Sequence[Example], may_be_absent: bool) -> tuple[Any, str]:
    """An answer to every question, and how it was found."""
    rare = rarity(example.texts[1] for example in train)
    method = "nearest run of words in the best sentence"
    said = [find_answer(example, rare) for example in dev]
    if not may_be_absent:
        return [text for text, _ in said], method
    known = [OpenAnswer(*find_answer(example, rare), answered=True) for example in train]
    threshold = choose_threshold(_texts(train), known)
    decided = [OpenAnswer(text, against, answered=against <= threshold) for text, against in said]
    return decided, f"{method}, none above {threshold:.3f}"


def _texts(examples: Sequence[Example]) -> list[tuple[str, ...]]:
    return [tuple(answer.text for answer in example.answers) for example in examples]


# --------------------------------------------------------------------------------------------------------------------
# Answers from a passage by counting words alone, for options and spans: nothing is learnt but how rare a word is.

WORD_OR_NUMBER = re.compile(r"[$£€]?\w+(?:[.,'’–-]\w+)*%?")
QUESTION_WORDS = frozenset(
    {"who", "whom", "whose", "what", "which", "when", "where", "why", "how", "many", "much", "do", "does", "did"}
)
_WANTS_DIGITS = re.compile(r"\b(when|how (many|much|old|long|far|often)|(what|which) (year|date|day|century))\b")
_WANTS_A_NAME = re.compile(r"\b(who|whom|whose|where)\b")


def words_of(text: str) -> list[str]:
    """The words, in lower case."""
    return [word.lower() for word in WORD_OR_NUMBER.findall(text)]


def choose_option(example: Example) -> int:
    """The option whose words and the question's stand together best in the passage (MCTest's SW+D)."""
    question, passage = example.texts
    place_of: dict[str, list[int]] = {}
    words = words_of(passage)
    for place, word in enumerate(words):
        place_of.setdefault(word, []).append(place)
    asked = set(words_of(question))
    scores = [
        _window(words, place_of, asked | set(words_of(option))) - _distance(place_of, len(words), asked, option)
        for option in example.options
    ]
    return int(np.argmax(scores))


def _window(words: Sequence[str], place_of: Mapping[str, Sequence[int]], wanted: set[str]) -> float:
    """The largest sum of log(1 + 1 / count) of wanted words over windows of as many words as are wanted."""
    weights = np.array([math.log(1 + 1 / len(place_of[word])) if word in wanted else 0.0 for word in words])
    sums = np.concatenate([np.zeros(1), np.cumsum(weights)])
    size = min(len(wanted), len(words))
    return float((sums[size:] - sums[: len(sums) - size]).max())


def _distance(place_of: Mapping[str, Sequence[int]], n_words: int, asked: set[str], option: str) -> float:
    """The smallest share of the passage between a word of the question and one of the option; 1 where there is none."""
    asked = {word for word in asked if word in place_of} - ENGLISH_STOP_WORDS
    offered = {word for word in words_of(option) if word in place_of} - asked - ENGLISH_STOP_WORDS
    if not asked or not offered or n_words < 2:
        return 1.0
    ours, theirs = (np.concatenate([place_of[word] for word in sorted(words)]) for words in (asked, offered))
    return float((np.abs(ours[:, None] - theirs[None]).min() + 1) / (n_words - 1))


def rarity(texts: Iterable[str]) -> Mapping[str, float]:
    """log(texts / texts with it) of every word; the key "" is that of a word in none of them."""
    texts = set(texts)
    counts = Counter(word for text in texts for word in set(words_of(text)))
    found = {word: math.log((1 + len(texts)) / count) for word, count in counts.items()}
    return {**found, "": math.log(1 + len(texts))}


def find_answer(example: Example, rare: Mapping[str, float]) -> tuple[str, float]:
    """A piece of the context, and how much speaks against it: the share of the question that its sentence lacks."""
    question, context = example.texts
    asked = {word: rare.get(word, rare[""]) for word in words_of(question) if word not in QUESTION_WORDS}
    total = math.fsum(asked.values()) or 1.0
    sentences = [(_shared(asked, each), each) for each in split_sentences(context)]
    best = max((found for found, _ in sentences), default=0.0)
    sentence = next((each for found, each in sentences if found == best), context)
    return _best_run(sentence, question.lower(), asked), 1.0 - best / total


def _shared(asked: Mapping[str, float], sentence: str) -> float:
    """The weight of the question's words in a sentence, exactly rounded: the order of a set is another in every run."""
    return math.fsum(asked.get(word, 0.0) for word in set(words_of(sentence)))


def _best_run(sentence: str, question: str, asked: Mapping[str, float]) -> str:
    """Of the runs of words that may be an answer the best; the whole sentence where there is none."""
    words = list(WORD_OR_NUMBER.finditer(sentence))
    here = [(place, asked[low]) for place, word in enumerate(words) if (low := word[0].lower()) in asked]
    best, best_score = sentence, -math.inf
    for run in _runs(sentence, words, asked):
        text = sentence[words[run[0]].start() : words[run[-1]].end()]
        near = sum(weight / min(abs(place - run[0]), abs(place - run[-1])) for place, weight in here)
        score = near + 100.0 * _fits(text, question)
        if score > best_score:
            best, best_score = text, score
    return best


def _runs(sentence: str, words: Sequence[re.Match[str]], asked: Mapping[str, float]) -> list[list[int]]:
    """Places of neighbouring words that are no function words, not in the question, without marks between them."""
    runs: list[list[int]] = []
    for place, word in enumerate(words):
        lower = word[0].lower()
        if lower in asked or lower in ENGLISH_STOP_WORDS:
            continue
        joined = runs and runs[-1][-1] == place - 1 and sentence[words[place - 1].end() : word.start()].isspace()
        if joined:
            runs[-1].append(place)
        else:
            runs.append([place])
    return runs


def _fits(text: str, question: str) -> bool:
    """Whether the answer is of the kind that the question asks for, where it says one."""
    if _WANTS_DIGITS.search(question):
        return any(character.isdigit() for character in text)
    return bool(_WANTS_A_NAME.search(question)) and text[0].isupper()


main = harness.script(Benchmark, COLUMNS, measure, same=("task", "metric", "train_examples", "dev_examples"))

if __name__ == "__main__":
    main()
