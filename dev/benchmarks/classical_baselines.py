"""Scores without a neural network: TF-IDF with a linear model, or counting words, on the files of the tasks.

    python dev/benchmarks/classical_baselines.py --data data data/glue \
        --files squad-1.1/train=squad/train.json race-middle/train=race/train.jsonl race-middle/dev=race/dev.jsonl

Classes and numbers: the linear model over TF-IDF that `albert finetune` compares with.
Options: the sliding window of RACE's authors. Spans: the nearest run of words in the sentence that shares most with the
question. Files are read and scored as the tasks declare, on every row of the development set; the score of the best
constant answer is added. The same files give the same figures. A few minutes on one core; models of `albert finetune`
should have higher scores.
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
from albert.tasks.kinds.choice import Option
from albert.tasks.kinds.span import Span
from albert.text.sentences import split_sentences

COLUMNS = ("task", "metric", "score", "constant", "method", "train_examples", "dev_examples", "seconds")


@dataclass(frozen=True, kw_only=True)
class Benchmark:
    """Score classical models on declared tasks."""

    data: tuple[Path, ...]
    """Folders of task files; the first one with a task's development set is used."""
    files: tuple[str, ...] = ()
    """TASK/SPLIT=FILE: a file that replaces the published one, e.g. a part of a training set."""
    tasks: tuple[str, ...] = ("sst-2", "cola", "rte", "mrpc", "sts-b", "qnli", "squad-1.1", "squad-2.0", "race-middle")
    output: Path = Path("results/benchmark-classical-baselines.csv")


class Baseline(NamedTuple):
    """Scores, those of the best constant answer, the method, and the number of training examples."""

    scores: Mapping[str, float | None]
    constant: Mapping[str, float | None]
    method: str
    train_examples: int


def measure(args: Benchmark) -> Iterator[dict[str, object]]:
    """A row for each score of each task."""
    for inputs in [find_files(name, args.data, args.files) for name in args.tasks]:
        started = time.perf_counter()
        dev = inputs.examples("dev")
        baseline = baseline_of(inputs, dev)
        seconds = time.perf_counter() - started
        for metric, score in baseline.scores.items():
            constant = baseline.constant.get(metric)
            if score is not None and "thresh" not in metric:
                yield {
                    "task": inputs.task.name, "metric": metric, "score": f"{score:.2f}",
                    "constant": "" if constant is None else f"{constant:.2f}", "method": baseline.method,
                    "train_examples": baseline.train_examples, "dev_examples": len(dev), "seconds": f"{seconds:.1f}",
                }  # fmt: skip


def baseline_of(inputs: FoundTask, dev: Sequence[Example]) -> Baseline:
    """Score the classical model for the kind of target on the whole development set."""
    task = inputs.task
    train = [] if isinstance(task.target, Option) else inputs.examples("train")
    gold: Any = np.array([example.target for example in dev])
    if isinstance(task.target, Option):
        predicted, method = np.array([choose_option(example) for example in dev]), "sliding window and distance"
    elif isinstance(task.target, Span):
        gold = _texts(dev)
        predicted, method = find_answers(train, dev, task.target.may_be_absent)
    else:
        linear = task.target.linear_baseline(task.metrics, train, dev, {})
        if linear is None or linear.left_out:
            raise InvalidConfiguration(task.name, (linear and linear.left_out) or "has another kind of target")
        return Baseline(linear.scores, task.baseline_scores(gold) or {}, linear.method, linear.train_examples)
    return Baseline(task.scores(gold, predicted), task.baseline_scores(gold) or {}, method, len(train))


def find_answers(train: Sequence[Example], dev: Sequence[Example], may_be_absent: bool) -> tuple[Any, str]:
    """An answer to every question, and the method."""
    rare = rarity(example.texts[1] for example in train)
    method = "nearest run of words in the best sentence"
    predicted = [find_answer(example, rare) for example in dev]
    if not may_be_absent:
        return [text for text, _ in predicted], method
    of_train = [OpenAnswer(*find_answer(example, rare), answered=True) for example in train]
    threshold = choose_threshold(_texts(train), of_train)
    answers = [OpenAnswer(text, no_answer, answered=no_answer <= threshold) for text, no_answer in predicted]
    return answers, f"{method}, none above {threshold:.3f}"


def _texts(examples: Sequence[Example]) -> list[tuple[str, ...]]:
    return [tuple(answer.text for answer in example.answers) for example in examples]


# --------------------------------------------------------------------------------------------------------------------
# Answers from a passage by counting words, for options and spans; only the rarity of words is estimated.

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
    """The option whose words are nearest to the question's in the passage (MCTest's SW+D)."""
    question, passage = example.texts
    positions: dict[str, list[int]] = {}
    words = words_of(passage)
    for position, word in enumerate(words):
        positions.setdefault(word, []).append(position)
    query = set(words_of(question))
    scores = [
        _window(words, positions, query | set(words_of(option))) - _distance(positions, len(words), query, option)
        for option in example.options
    ]
    return int(np.argmax(scores))


def _window(words: Sequence[str], positions: Mapping[str, Sequence[int]], wanted: set[str]) -> float:
    """The largest sum of log(1 + 1 / count) of wanted words over windows with as many words."""
    weights = np.array([math.log(1 + 1 / len(positions[word])) if word in wanted else 0.0 for word in words])
    sums = np.concatenate([np.zeros(1), np.cumsum(weights)])
    size = min(len(wanted), len(words))
    return float((sums[size:] - sums[: len(sums) - size]).max())


def _distance(positions: Mapping[str, Sequence[int]], n_words: int, query: set[str], option: str) -> float:
    """The smallest share of the passage between a word of the question and one of the option; 1 if there is none."""
    query = {word for word in query if word in positions} - ENGLISH_STOP_WORDS
    option_words = {word for word in words_of(option) if word in positions} - query - ENGLISH_STOP_WORDS
    if not query or not option_words or n_words < 2:
        return 1.0
    ours, theirs = (np.concatenate([positions[word] for word in sorted(words)]) for words in (query, option_words))
    return float((np.abs(ours[:, None] - theirs[None]).min() + 1) / (n_words - 1))


def rarity(texts: Iterable[str]) -> Mapping[str, float]:
    """log(texts / texts with the word) of every word; the key "" is for unknown words."""
    texts = set(texts)
    counts = Counter(word for text in texts for word in set(words_of(text)))
    weights = {word: math.log((1 + len(texts)) / count) for word, count in counts.items()}
    return {**weights, "": math.log(1 + len(texts))}


def find_answer(example: Example, rare: Mapping[str, float]) -> tuple[str, float]:
    """A piece of the context, and a no-answer score: the share of the question that its sentence lacks."""
    question, context = example.texts
    query = {word: rare.get(word, rare[""]) for word in words_of(question) if word not in QUESTION_WORDS}
    total = math.fsum(query.values()) or 1.0
    sentences = [(_shared(query, sentence), sentence) for sentence in split_sentences(context)]
    best = max((weight for weight, _ in sentences), default=0.0)
    sentence = next((sentence for weight, sentence in sentences if weight == best), context)
    return _best_run(sentence, question.lower(), query), 1.0 - best / total


def _shared(query: Mapping[str, float], sentence: str) -> float:
    """The weight of the question's words in a sentence; `fsum`, because the order of a set varies between runs."""
    return math.fsum(query.get(word, 0.0) for word in set(words_of(sentence)))


def _best_run(sentence: str, question: str, query: Mapping[str, float]) -> str:
    """The best run of words that may be an answer; the whole sentence if there is none."""
    words = list(WORD_OR_NUMBER.finditer(sentence))
    weighted = [(position, query[low]) for position, word in enumerate(words) if (low := word[0].lower()) in query]
    best, best_score = sentence, -math.inf
    for run in _runs(sentence, words, query):
        text = sentence[words[run[0]].start() : words[run[-1]].end()]
        near = sum(weight / min(abs(position - run[0]), abs(position - run[-1])) for position, weight in weighted)
        score = near + 100.0 * _fits(text, question)
        if score > best_score:
            best, best_score = text, score
    return best


def _runs(sentence: str, words: Sequence[re.Match[str]], query: Mapping[str, float]) -> list[list[int]]:
    """Runs of adjacent words, by position, without function words, words of the question or punctuation."""
    runs: list[list[int]] = []
    for position, word in enumerate(words):
        lower = word[0].lower()
        if lower in query or lower in ENGLISH_STOP_WORDS:
            continue
        joined = runs and runs[-1][-1] == position - 1 and sentence[words[position - 1].end() : word.start()].isspace()
        if joined:
            runs[-1].append(position)
        else:
            runs.append([position])
    return runs


def _fits(text: str, question: str) -> bool:
    """Whether the answer is of the kind that the question asks for."""
    if _WANTS_DIGITS.search(question):
        return any(character.isdigit() for character in text)
    return bool(_WANTS_A_NAME.search(question)) and text[0].isupper()


main = harness.script(Benchmark, COLUMNS, measure, same=("task", "metric", "train_examples", "dev_examples"))

if __name__ == "__main__":
    main()
