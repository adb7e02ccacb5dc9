"""Metrics in points of 100, entity scores, constant baselines, and regression targets as standard scores.

`accuracy`, `f1`, `matthews_correlation` are scikit-learn's, `pearson` and `spearman` SciPy's, times 100; an
undefined value (no rows, a constant column in a correlation) is None and never NaN. scikit-learn and SciPy are imported
when a score needs them: a model is used without them. Scores of answers in words are in `albert.tasks.answers`."""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Literal, NamedTuple

import numpy as np
from jaxtyping import Bool

from albert.runtime.environment import load_by_name
from albert.runtime.errors import DamagedData, InvalidConfiguration
from albert.tasks.answers import never_answered, normalize_answer
from albert.tasks.task import Choice, Labels, Metric, Option, Score, Span, Tags, Target, Task


def _points(metric: str, gold: Any, predicted: Any, **options: Any) -> float | None:
    """A score of scikit-learn in points of 100; None without rows."""
    if len(gold) == 0:
        return None
    return 100.0 * float(getattr(load_by_name("sklearn.metrics"), metric)(gold, predicted, **options))


def accuracy(gold: Any, predicted: Any) -> float | None:
    """Share of equal label ids. None without rows."""
    return _points("accuracy_score", gold, predicted)


def f1(gold: Any, predicted: Any) -> float | None:
    """F1 of the class with id 1, as GLUE scores paraphrases; 0 when it is neither gold nor predicted."""
    return _points("f1_score", gold, predicted, pos_label=1, average="binary", zero_division=0.0)


def macro_f1(gold: Any, predicted: Any) -> float | None:
    """Mean over the classes seen (gold or predicted) of their F1."""
    return _points("f1_score", gold, predicted, average="macro", zero_division=0.0)


def matthews_correlation(gold: Any, predicted: Any) -> float | None:
    """Matthews correlation; 0 by convention when gold or predicted is one class only."""
    if len(gold) and len(np.unique(np.concatenate([np.asarray(gold), np.asarray(predicted)]))) < 2:
        return 0.0  # scikit-learn's convention, without its warning about a single label
    return _points("matthews_corrcoef", gold, predicted)


def pearson(gold: Any, predicted: Any) -> float | None:
    """Linear correlation. None with fewer than two rows or when a side is constant (to 13 digits, SciPy's
    limit).
    """
    return _correlation("pearsonr", gold, predicted, 1e-13)


def spearman(gold: Any, predicted: Any) -> float | None:
    """Rank correlation (mean rank for ties). None with fewer than two rows or when a side is constant."""
    return _correlation("spearmanr", gold, predicted)


def _correlation(name: str, gold: Any, predicted: Any, constant: float = 0.0) -> float | None:
    sides = [np.asarray(side, np.float64) for side in (gold, predicted)]
    if len(gold) < 2 or any(np.ptp(side) == 0 for side in sides):
        return None
    if any(np.linalg.norm(side - side.mean()) < constant * abs(side.mean()) for side in sides):
        return None
    value = float(getattr(load_by_name("scipy.stats"), name)(*sides)[0])
    return 100.0 * value if math.isfinite(value) else None


def multi_label_scores(gold: Any, predicted: Any) -> dict[str, float | None]:
    """Scores of sets of labels (bool [examples, labels]), scikit-learn's in points of 100; None without rows.

    `micro_f1` over all decisions; `macro_f1`, the mean over all labels, of which one that is neither gold nor predicted
    counts 0; `exact_match`, the share of examples whose set is right; `hamming_loss`, the share of wrong decisions.
    """
    gold, predicted = np.asarray(gold, np.int64), np.asarray(predicted, np.int64)
    each = [score for column in zip(gold.T, predicted.T, strict=True) if (score := f1(*column)) is not None]
    return {
        "micro_f1": f1(gold.ravel(), predicted.ravel()),
        "macro_f1": float(np.mean(each)) if each else None,
        "exact_match": accuracy(gold, predicted),
        "hamming_loss": _points("hamming_loss", gold, predicted),
    }


def mean_absolute_error(gold: Any, predicted: Any) -> float | None:
    """Mean distance between gold and predicted numbers, in the target's own unit (not points)."""
    return float(load_by_name("sklearn.metrics").mean_absolute_error(gold, predicted)) if len(gold) else None


def predictions_in_order(identifiers: Sequence[str], predictions: Mapping[str, Any], where: str) -> list[Any]:
    """Predictions in the order of the rows; DamagedData when one is missing: no subset is scored."""
    missing = [identifier for identifier in identifiers if identifier not in predictions]
    if missing:
        raise DamagedData(
            where,
            f"{len(missing):,} of {len(identifiers):,} rows have no prediction, the first is {missing[0]!r}",
            "predict every row; a subset is not scored",
        )
    return [predictions[identifier] for identifier in identifiers]


# --------------------------------------------------------------------------------------------------------------------
# Tags to entities, and their scores: an entity is right when its type and both of its ends are.
#
# Three ways of writing entities as tags are told apart by the labels of the task alone:
#
# - IOB2: `B-PER` begins an entity, `I-PER` continues it, `O` is outside (IOB1, where `B-` only separates neighbours,
#   reads the same);
# - IOBES: `E-` is an entity's last word, `S-` its only one; BILOU says `L-` and `U-`;
# - plain: no prefixes. Where `O` is among the labels, a run of one other label is an entity.
#
# Tags may contradict each other: a model decides word by word, and files err. As the official script of CoNLL-2003
# (conlleval) and seqeval have it, nothing is thrown away: `I-` or `E-` that continues nothing, or an entity of
# another type, begins one; an entity without its `E-` ends where the next one begins, at `O`, or with the sentence.

OUTSIDE = "O"
TagScheme = Literal["IOB2", "IOBES", "plain"]
_BILOU = {"L": "E", "U": "S"}
_INSIDE, _BEGINNING = ("I", "E"), ("B", "S")


class Entity(NamedTuple):
    """The words `start`..`end` of a sentence, the end excluded, and what they are."""

    type: str
    start: int
    end: int


def tag_scheme(labels: Sequence[str]) -> TagScheme:
    """How a task's labels write entities: with prefixes when every label but `O` has one, and `B-` or `I-` is there."""
    prefixes = {label.partition("-")[0] for label in labels if label != OUTSIDE}
    if not prefixes <= set("BIESLU") or not prefixes & {"B", "I"}:
        return "plain"
    return "IOB2" if prefixes <= {"B", "I"} else "IOBES"


def tag_metrics(labels: Sequence[str]) -> tuple[Metric, ...]:
    """The metrics of a task with these tags: of entities, or of words where the tags write none."""
    if tag_scheme(labels) != "plain":
        return (entity_scores,)
    return (run_scores,) if OUTSIDE in labels else (word_scores,)


def entities_of(tags: Sequence[str]) -> list[Entity]:
    """The entities of a sentence in IOB2 or IOBES."""
    found: list[Entity] = []
    open_type, start, ended = None, 0, False
    for place, tag in enumerate([*tags, OUTSIDE]):
        prefix, type_ = _read(tag)
        begins = prefix in _BEGINNING or (prefix in _INSIDE and (open_type != type_ or ended))
        if open_type is not None and (begins or prefix == OUTSIDE):
            found.append(Entity(open_type, start, place))
            open_type = None
        if begins:
            open_type, start = type_, place
        ended = prefix in ("E", "S")
    return found


def runs_of(tags: Sequence[str]) -> list[Entity]:
    """The entities of a sentence in plain tags: runs of one label other than `O`."""
    found, start = [], 0
    for tag, run in groupby(tags):
        end = start + len(list(run))
        if tag != OUTSIDE:
            found.append(Entity(tag, start, end))
        start = end
    return found


def count_invalid_continuations(tags: Sequence[str]) -> int:
    """How many tags of a sentence in IOB2 or IOBES go on with an entity that none began; each is read as its first."""
    beginnings = {entity.start for entity in entities_of(tags)}
    return sum(place in beginnings and _read(tag)[0] in _INSIDE for place, tag in enumerate(tags))


def entity_scores(
    gold: Sequence[Sequence[str]],
    predicted: Sequence[Sequence[str]],
    read: Callable[[Sequence[str]], list[Entity]] = entities_of,
) -> dict[str, float | None]:
    """Scores of entities written with prefixes, in points of 100, and the share of right tags.

    `entity_f1` first, over all entities of all sentences (micro), then precision and recall, then F1 of each type that
    is in `gold` when there are several. No entities at all give 0, as seqeval has it.
    """
    there, said, right = Counter[str](), Counter[str](), Counter[str]()
    for wanted, found in zip(map(read, gold), map(read, predicted), strict=True):
        there.update(entity.type for entity in wanted)
        said.update(entity.type for entity in found)
        right.update(entity.type for entity in set(wanted) & set(found))

    def share(part: int, whole: int) -> float:
        return 100.0 * part / whole if whole else 0.0

    n_there, n_said, n_right = there.total(), said.total(), right.total()
    scores: dict[str, float | None] = {
        "entity_f1": share(2 * n_right, n_there + n_said),
        "entity_precision": share(n_right, n_said),
        "entity_recall": share(n_right, n_there),
    }
    for type_ in sorted(there) if len(there) > 1 else ():
        scores[f"entity_f1_{type_}"] = share(2 * right[type_], there[type_] + said[type_])
    return {**scores, "tag_accuracy": accuracy(_words(gold), _words(predicted))}


def run_scores(gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]) -> dict[str, float | None]:
    """The same of entities that are runs of plain tags."""
    return entity_scores(gold, predicted, runs_of)


def word_scores(gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]) -> dict[str, float | None]:
    """Tags that write no entities, parts of speech say: the share of right ones, and the mean F1 over those seen."""
    words = _words(gold), _words(predicted)
    return {"tag_accuracy": accuracy(*words), "tag_macro_f1": macro_f1(*words)}


def _words(sentences: Sequence[Sequence[str]]) -> list[str]:
    return [tag for tags in sentences for tag in tags]


def _read(tag: str) -> tuple[str, str]:
    """The prefix of a tag as IOBES has it, and the type."""
    prefix, _, type_ = tag.partition("-")
    return _BILOU.get(prefix, prefix), type_


# --------------------------------------------------------------------------------------------------------------------
# What a model must beat: for each metric the best answer that looks at no text.

LOWER_IS_BETTER = ("mean_absolute_error", "hamming_loss")


def is_better(metric: str, score: float | None, other: float | None) -> bool:
    """Whether a score is better than another one by its metric; undefined is below all."""
    if score is None or other is None:
        return score is not None
    return score < other if metric.startswith(LOWER_IS_BETTER) else score > other


def baseline_scores(task: Task, gold: Any) -> dict[str, float | None]:
    """The task's metrics for the same answer to every row: for each metric the constant that is best for it.

    Constants are classes, options and tags, a set of labels, a number, and the commonest answer or none to a question;
    they are chosen on the very rows scored, so that none can do better.

    Args:
        gold: label ids, places of options, sets of labels, tags, numbers, or answers of the rows.
    """
    best: dict[str, float | None] = {}
    for predicted in _constants(task.target, gold):
        scores = task_scores(task, gold, predicted)
        best |= {
            name: value for name, value in scores.items() if name not in best or is_better(name, value, best[name])
        }
    return best


def _constants(target: Target, gold: Any) -> Iterator[Any]:
    """Predictions of which one is best by each metric; the commonest first."""
    match target:
        case Choice(names) | Option(names):
            commonest = int(np.bincount(gold, minlength=len(names)).argmax())
            # F1 of the second class of two is best by that class; all other metrics by the commonest.
            for answer in dict.fromkeys((commonest, 1) if len(names) == 2 else (commonest,)):
                yield np.full(len(gold), answer)
        case Labels():
            for chosen in _label_sets(np.asarray(gold, np.bool_)):
                yield np.tile(chosen, (len(gold), 1))
        case Tags(labels):
            counts = Counter(tag for tags in gold for tag in tags)
            commonest = max(sorted(labels), key=lambda label: counts[label])
            for tag in dict.fromkeys((commonest, OUTSIDE) if OUTSIDE in labels else (commonest,)):
                yield [(tag,) * len(tags) for tags in gold]
        case Span(may_be_absent):
            # the answer that is right for most questions, the first of equals; "" where nothing is answered
            counts = Counter(normal for answers in gold for normal in dict.fromkeys(map(normalize_answer, answers)))
            commonest = max(counts, key=lambda normal: counts[normal], default="")
            yield never_answered(gold) if may_be_absent else [commonest] * len(gold)
        case Score():
            yield np.full(len(gold), np.median(gold) if len(gold) else 0.0)  # nearest to all in absolute error


def _label_sets(gold: Bool[np.ndarray, "examples labels"]) -> Iterator[Bool[np.ndarray, " labels"]]:
    """The sets that are best by micro F1 (so many of the commonest labels), by hamming loss (the labels of most rows),
    by macro F1 (all labels), and by exact match (the commonest set)."""
    often = gold.sum(axis=0)
    order = np.argsort(-often, kind="stable")
    right = np.cumsum(often[order])
    scores = 2 * right / (often.sum() + len(gold) * np.arange(1, len(often) + 1))
    chosen = np.zeros(len(often), np.bool_)
    chosen[order[: scores.argmax() + 1]] = often.any()
    yield chosen
    yield often > len(gold) / 2
    yield np.ones(len(often), np.bool_)
    if len(gold):
        sets, counts = np.unique(gold, axis=0, return_counts=True)
        yield sets[counts.argmax()]


def task_scores(task: Task, gold: object, predicted: object) -> dict[str, float | None]:
    """The task's scores by name, in the order declared."""
    scores: dict[str, float | None] = {}
    for metric in task.metrics:
        value = metric(gold, predicted)
        scores |= value if isinstance(value, dict) else {metric.__name__: value}
    return scores


# --------------------------------------------------------------------------------------------------------------------
# Numbers to predict as standard scores: the mean and spread of those that are learnt, and how a head bears them.
#
# While a model learns, its head gives standard scores, whatever the unit of the data is. Whatever is evaluated or
# saved has mean and deviation in the weight and bias of its head, so that its outputs are numbers in the unit of
# the data for everyone who opens the model, transformers included.

TARGET_SCALE_KEY = "target_scale"
"""In `config.json` and `recipe.json`: the scale of the numbers that a model learnt to predict."""


@dataclass(frozen=True)
class NumberScale:
    """Mean and standard deviation of the numbers that are learnt, in their own unit."""

    mean: float
    deviation: float

    @classmethod
    def of(cls, numbers: np.ndarray) -> "NumberScale":
        """The scale of the training numbers; the sums are exact, so that every machine finds the same."""
        values = [float(number) for number in numbers]
        mean = math.fsum(values) / len(values)
        return cls(mean, math.sqrt(math.fsum((value - mean) ** 2 for value in values) / len(values)))

    def standardised(self, numbers: np.ndarray) -> np.ndarray:
        """Standard scores, float32."""
        return ((numbers.astype(np.float64) - self.mean) / self.deviation).astype(np.float32)

    def fold_in(self, classifier: Any) -> None:
        """Let a linear head that gives standard scores give numbers in the unit of the data: w' = s w, b' = s b + m."""
        classifier.weight.data.mul_(self.deviation)
        classifier.bias.data.mul_(self.deviation).add_(self.mean)

    def take_out(self, classifier: Any) -> None:
        """The reverse of `fold_in`, for a head that has learnt such numbers before."""
        classifier.weight.data.div_(self.deviation)
        classifier.bias.data.sub_(self.mean).div_(self.deviation)

    @contextmanager
    def folded(self, classifier: Any) -> Iterator[None]:
        """`fold_in` for a while; afterwards the head is bit for bit what it was."""
        before = [parameter.detach().clone() for parameter in classifier.parameters()]
        self.fold_in(classifier)
        try:
            yield
        finally:
            for parameter, kept in zip(classifier.parameters(), before, strict=True):
                parameter.data.copy_(kept)


def check_numbers(target: Score, numbers: np.ndarray) -> None:
    """See to it that numbers can be learnt."""
    column = f"column {target.column!r}"
    if not np.isfinite(numbers).all():
        raise InvalidConfiguration(column, "holds numbers beyond 3.4e38", "give them in a larger unit")
    if np.ptp(numbers) == 0:
        why = f"holds the number {numbers[0]:g} in all {len(numbers):,} training rows, there is nothing to learn"
        raise InvalidConfiguration(column, why, "name another column with --label")


def saved_deviation(extra: Mapping[str, Any], model: str) -> float:
    """The standard deviation of the numbers that a model learnt, as its `config.json` says; 1 where it says nothing."""
    stated = extra.get(TARGET_SCALE_KEY, {"deviation": 1.0})
    deviation = stated.get("deviation") if isinstance(stated, dict) else None
    if not isinstance(deviation, int | float) or not 0 < deviation < math.inf:
        raise InvalidConfiguration(f"{model}: {TARGET_SCALE_KEY}", "holds no deviation above 0", "fine-tune it again")
    return deviation
