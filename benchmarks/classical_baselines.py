"""What a task's score is without any network: TF-IDF with a linear model, or words counted, on the same files.

Classes: logistic regression over TF-IDF. Numbers: ridge regression on what two texts share.
Options: the sliding window that RACE's authors compare with. Spans: the nearest run of words in the sentence that
shares most with the question. Read through the tasks' own declarations, scored by their own
metrics, on every row of the development set; the best constant answer stands beside. The same files give the same
figures. A few minutes on one core; the models of `albert finetune` should be above them.

    python benchmarks/classical_baselines.py --data data data/glue \
        --files squad-1.1/train=squad/train.json race-middle/train=race/train.jsonl race-middle/dev=race/dev.jsonl
"""

import math
import re
import sys
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from harness import append_rows
from rich.console import Console
from rich.table import Table
from scipy import sparse
from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS, TfidfVectorizer
from sklearn.linear_model import LogisticRegression, RidgeCV
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.preprocessing import StandardScaler
from task_files import FoundTask, find_files

from albert.cli.options import parse
from albert.runtime.errors import InvalidConfiguration
from albert.runtime.progress import progress
from albert.tasks.answers import OpenAnswer, choose_threshold
from albert.tasks.examples import Example
from albert.tasks.linear_baseline import WORD, pair_figures
from albert.tasks.metrics import baseline_scores, task_scores
from albert.tasks.task import Choice, Option, Score, Span, Task
from albert.text.sentences import split_sentences

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


# --------------------------------------------------------------------------------------------------------------------
# Linear models over TF-IDF, for classes and numbers: what words alone say, without their order beyond two.

FOLDS = StratifiedKFold(5, shuffle=True, random_state=0)
STRENGTHS = (0.1, 1.0, 10.0)
RIDGE_STRENGTHS = tuple(10.0**power for power in range(-3, 4))


def predict_classes(task: Task, train: Sequence[Example], dev: Sequence[Example]) -> tuple[np.ndarray, str]:
    """Label ids (int64 [dev]) by logistic regression, and how it was chosen in words."""
    if not isinstance(task.target, Choice):
        raise InvalidConfiguration(task.name, "has no classes")
    learnt, asked = _class_features(train, dev)
    labels = np.array([example.target for example in train])

    def first_score(model: Any, features: Any, gold: np.ndarray) -> float:
        return next(iter(task_scores(task, gold, model.predict(features)).values())) or 0.0

    grid = {"C": STRENGTHS, "class_weight": [None, "balanced"]}
    search = GridSearchCV(LogisticRegression(max_iter=2000), grid, scoring=first_score, cv=FOLDS)
    search.fit(learnt, labels)
    chosen = ", ".join(f"{name}={value}" for name, value in search.best_params_.items())
    return search.predict(asked), f"TF-IDF and logistic regression, {chosen}"


def predict_numbers(task: Task, train: Sequence[Example], dev: Sequence[Example]) -> tuple[np.ndarray, str]:
    """Numbers (float64 [dev]) by ridge regression on cosine, overlaps and lengths, and how it was chosen."""
    if not isinstance(task.target, Score):
        raise InvalidConfiguration(task.name, "has no numbers")
    vectors = _fitted([text for example in train for text in example.texts])
    learnt, asked = (pair_figures(examples, *_sides(vectors, examples)) for examples in (train, dev))
    scale, ridge = StandardScaler().fit(learnt), RidgeCV(RIDGE_STRENGTHS)
    ridge.fit(scale.transform(learnt), [example.target for example in train])
    return ridge.predict(scale.transform(asked)), f"TF-IDF cosine, overlaps, lengths and ridge, alpha={ridge.alpha_:g}"


def _class_features(train: Sequence[Example], dev: Sequence[Example]) -> tuple[Any, Any]:
    vectors = _fitted([text for example in train for text in example.texts])
    if len(train[0].texts) == 1:
        first, second = ([example.texts[0] for example in examples] for examples in (train, dev))
        return vectors.transform(first), vectors.transform(second)
    sides = [_sides(vectors, examples) for examples in (train, dev)]
    figures = [pair_figures(examples, *side) for examples, side in zip((train, dev), sides, strict=True)]
    scale = StandardScaler().fit(figures[0])
    joined = (
        sparse.hstack([left.multiply(right), abs(left - right), sparse.csr_matrix(scale.transform(figure))]).tocsr()
        for (left, right), figure in zip(sides, figures, strict=True)
    )
    learnt, asked = joined
    return learnt, asked


def _fitted(texts: Sequence[str]) -> TfidfVectorizer:
    vectors = TfidfVectorizer(ngram_range=(1, 2), token_pattern=WORD.pattern, sublinear_tf=True)
    return vectors.fit(texts)


def _sides(vectors: TfidfVectorizer, examples: Sequence[Example]) -> tuple[Any, Any]:
    left, right = (vectors.transform([example.texts[side] for example in examples]) for side in (0, 1))
    return left, right


if __name__ == "__main__":
    main(sys.argv[1:])
