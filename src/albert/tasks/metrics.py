"""Metrics in points of 100, entity scores, constant baselines, and regression targets as standard scores.

`accuracy`, `f1`, `matthews_correlation` are scikit-learn's, `pearson` and `spearman` SciPy's, times 100; an undefined
value (no rows, a constant column in a correlation) is None and never NaN. scikit-learn and SciPy are imported when a
score needs them. Scores of SQuAD are in `albert.tasks.answers`."""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain, groupby
from typing import Any, NamedTuple

import numpy as np

from albert.runtime.environment import lazy_import
from albert.runtime.errors import DamagedData

Metric = Callable[[Any, Any], float | dict[str, float | None] | None]
"""From gold and predicted values to a score, or several by name; None if it is undefined."""


def _points(metric: str, gold: Any, predicted: Any, **options: Any) -> float | None:
    """A score of scikit-learn in points of 100; None without rows."""
    if len(gold) == 0:
        return None
    return 100.0 * float(getattr(lazy_import("sklearn.metrics"), metric)(gold, predicted, **options))


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
    """Linear correlation. None with fewer than two rows or a constant side (to 13 digits, SciPy's limit)."""
    return _correlation("pearsonr", gold, predicted, 1e-13)


def spearman(gold: Any, predicted: Any) -> float | None:
    """Rank correlation (mean rank for ties). None with fewer than two rows or a constant side."""
    return _correlation("spearmanr", gold, predicted)


def _correlation(name: str, gold: Any, predicted: Any, constant: float = 0.0) -> float | None:
    sides = [np.asarray(side, np.float64) for side in (gold, predicted)]
    if len(gold) < 2 or any(np.ptp(side) == 0 for side in sides):
        return None
    if any(np.linalg.norm(side - side.mean()) < constant * abs(side.mean()) for side in sides):
        return None
    value = float(getattr(lazy_import("scipy.stats"), name)(*sides)[0])
    return 100.0 * value if math.isfinite(value) else None


def multi_label_scores(gold: Any, predicted: Any) -> dict[str, float | None]:
    """Multi-label scores of scikit-learn for bool [examples, labels], in points of 100; None without rows.

    `micro_f1` over all decisions; `macro_f1`, the mean over all labels, where one that is neither gold nor predicted
    counts 0; `exact_match`, the share of examples whose set is right; `hamming_loss`, the share of wrong decisions.
    """
    gold = np.asarray(gold, np.int64)
    predicted = np.asarray(predicted, np.int64)
    by_label = [score for column in zip(gold.T, predicted.T, strict=True) if (score := f1(*column)) is not None]
    return {
        "micro_f1": f1(gold.ravel(), predicted.ravel()),
        "macro_f1": float(np.mean(by_label)) if by_label else None,
        "exact_match": accuracy(gold, predicted),
        "hamming_loss": _points("hamming_loss", gold, predicted),
    }


def mean_absolute_error(gold: Any, predicted: Any) -> float | None:
    """Mean distance between gold and predicted numbers, in the target's own unit (not points)."""
    return float(lazy_import("sklearn.metrics").mean_absolute_error(gold, predicted)) if len(gold) else None


def predictions_in_order(identifiers: Sequence[str], predictions: Mapping[str, Any], where: str) -> list[Any]:
    """Predictions in the order of the rows; DamagedData if one is missing."""
    missing = [identifier for identifier in identifiers if identifier not in predictions]
    if missing:
        raise DamagedData(
            where,
            f"{len(missing):,} of {len(identifiers):,} rows have no prediction, the first is {missing[0]!r}",
            "predict every row; a subset is not scored",
        )
    return [predictions[identifier] for identifier in identifiers]


# --------------------------------------------------------------------------------------------------------------------
# Tags to entities, and their scores: an entity is right if its type and both ends are right.
#
# The labels of a task show which scheme its tags use:
#
# - IOB2: `B-PER` begins an entity, `I-PER` continues it, `O` is outside (also read: IOB1, where `B-` only separates
#   neighbours);
# - IOBES: `E-` is an entity's last word, `S-` its only one; BILOU uses `L-` and `U-`;
# - plain: no prefixes. If `O` is a label, a run of one other label is an entity.
#
# Sequences of tags may be invalid. As in the official script of CoNLL-2003 (conlleval) and seqeval, no tag is ignored:
# `I-` or `E-` without an entity of the same type before it begins one; an entity without its `E-` ends where the next
# one begins, at `O`, or with the sentence.

OUTSIDE = "O"
_BILOU = {"L": "E", "U": "S"}
_INSIDE = ("I", "E")
_BEGINNING = ("B", "S")


class Entity(NamedTuple):
    """The words `start`..`end` (excluded) of a sentence, and their type."""

    type: str
    start: int
    end: int


def has_prefixes(labels: Sequence[str]) -> bool:
    """Return whether labels are of IOB2 or IOBES: every label but `O` has a prefix, `B-` or `I-` among them."""
    prefixes = {label.partition("-")[0] for label in labels if label != OUTSIDE}
    return prefixes <= set("BIESLU") and bool(prefixes & {"B", "I"})


def tag_metrics(labels: Sequence[str]) -> tuple[Metric, ...]:
    """The metrics of a task with these tags: of entities, or of words if the tags describe none."""
    if has_prefixes(labels):
        return (entity_scores,)
    return (run_scores,) if OUTSIDE in labels else (word_scores,)


def entities_of(tags: Sequence[str]) -> list[Entity]:
    """The entities of a sentence in IOB2 or IOBES."""
    entities: list[Entity] = []
    open_type = None
    start = 0
    ended = False
    for position, tag in enumerate([*tags, OUTSIDE]):
        prefix, type_ = _split(tag)
        begins = prefix in _BEGINNING or (prefix in _INSIDE and (open_type != type_ or ended))
        if open_type is not None and (begins or prefix == OUTSIDE):
            entities.append(Entity(open_type, start, position))
            open_type = None
        if begins:
            open_type = type_
            start = position
        ended = prefix in ("E", "S")
    return entities


def runs_of(tags: Sequence[str]) -> list[Entity]:
    """The entities of a sentence in plain tags: runs of one label other than `O`."""
    entities = []
    start = 0
    for tag, run in groupby(tags):
        end = start + len(list(run))
        if tag != OUTSIDE:
            entities.append(Entity(tag, start, end))
        start = end
    return entities


def count_invalid_continuations(tags: Sequence[str]) -> int:
    """The number of `I-` and `E-` tags without an entity before them, which are read as the first word of one."""
    starts = {entity.start for entity in entities_of(tags)}
    return sum(position in starts and _split(tag)[0] in _INSIDE for position, tag in enumerate(tags))


def entity_scores(
    gold: Sequence[Sequence[str]],
    predicted: Sequence[Sequence[str]],
    read: Callable[[Sequence[str]], list[Entity]] = entities_of,
) -> dict[str, float | None]:
    """Scores of entities in points of 100, and the share of right tags.

    `entity_f1` first, over all entities of all sentences (micro), then precision and recall, then F1 of each type in
    `gold` if there are several. Without any entities they are 0, as in seqeval.
    """
    in_gold = Counter[str]()
    in_predicted = Counter[str]()
    right = Counter[str]()
    for expected, found in zip(map(read, gold), map(read, predicted), strict=True):
        in_gold.update(entity.type for entity in expected)
        in_predicted.update(entity.type for entity in found)
        right.update(entity.type for entity in set(expected) & set(found))
    n_gold = in_gold.total()
    n_predicted = in_predicted.total()
    n_right = right.total()
    scores: dict[str, float | None] = {
        "entity_f1": _percent(2 * n_right, n_gold + n_predicted),
        "entity_precision": _percent(n_right, n_predicted),
        "entity_recall": _percent(n_right, n_gold),
    }
    for type_ in sorted(in_gold) if len(in_gold) > 1 else ():
        scores[f"entity_f1_{type_}"] = _percent(2 * right[type_], in_gold[type_] + in_predicted[type_])
    return {**scores, "tag_accuracy": accuracy([*chain(*gold)], [*chain(*predicted)])}


def _percent(part: int, total: int) -> float:
    return 100.0 * part / total if total else 0.0


def run_scores(gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]) -> dict[str, float | None]:
    """Scores of entities that are runs of plain tags."""
    return entity_scores(gold, predicted, runs_of)


def word_scores(gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]) -> dict[str, float | None]:
    """Scores of tags that describe no entities, such as parts of speech: share of right tags, and mean F1 over tags."""
    tags = [*chain(*gold)], [*chain(*predicted)]
    return {"tag_accuracy": accuracy(*tags), "tag_macro_f1": macro_f1(*tags)}


def _split(tag: str) -> tuple[str, str]:
    """The prefix of a tag, as in IOBES, and its type."""
    prefix, _, type_ = tag.partition("-")
    return _BILOU.get(prefix, prefix), type_


# --------------------------------------------------------------------------------------------------------------------
# Baselines: for each metric the best constant prediction.

LOWER_IS_BETTER = ("mean_absolute_error", "hamming_loss")


def is_better(metric: str, score: float | None, other: float | None) -> bool:
    """Return whether a score is better than another by its metric; None is worst."""
    if score is None or other is None:
        return score is not None
    return score < other if metric.startswith(LOWER_IS_BETTER) else score > other


def is_beaten(metric: str, score: float | None, other: float | None) -> bool:
    """Return whether `other` is beaten: `score` is better, or cannot be, because it is perfect."""
    perfect = 0.0 if metric.startswith(LOWER_IS_BETTER) else 100.0
    return is_better(metric, score, other) or score == perfect


def task_scores(metrics: Sequence[Metric], gold: object, predicted: object) -> dict[str, float | None]:
    """The scores of some metrics by name, in their order."""
    scores: dict[str, float | None] = {}
    for metric in metrics:
        value = metric(gold, predicted)
        scores |= value if isinstance(value, dict) else {metric.__name__: value}
    return scores


# --------------------------------------------------------------------------------------------------------------------
# Regression targets as standard scores.
#
# During training the head predicts standard scores. For evaluation and saving, mean and deviation are baked into its
# weight and bias, so that the model predicts numbers in the unit of the data, in transformers too.

TARGET_SCALE_KEY = "target_scale"
"""In `config.json` and `recipe.json`: mean and standard deviation of the training targets."""


@dataclass(frozen=True)
class NumberScale:
    """Mean and standard deviation of the training targets, in the unit of the data."""

    mean: float
    deviation: float

    @classmethod
    def of(cls, numbers: np.ndarray) -> "NumberScale":
        """The scale of some numbers, from exact sums, which are the same on every machine."""
        values = [float(number) for number in numbers]
        mean = math.fsum(values) / len(values)
        return cls(mean, math.sqrt(math.fsum((value - mean) ** 2 for value in values) / len(values)))

    def standardised(self, numbers: np.ndarray) -> np.ndarray:
        """Standard scores, float32."""
        return ((numbers.astype(np.float64) - self.mean) / self.deviation).astype(np.float32)

    def bake(self, classifier: Any) -> None:
        """Make a linear head for standard scores predict numbers in the unit of the data: w' = s w, b' = s b + m."""
        classifier.weight.data.mul_(self.deviation)
        classifier.bias.data.mul_(self.deviation).add_(self.mean)

    def take_out(self, classifier: Any) -> None:
        """The inverse of `bake`."""
        classifier.weight.data.div_(self.deviation)
        classifier.bias.data.sub_(self.mean).div_(self.deviation)

    @contextmanager
    def baked(self, classifier: Any) -> Iterator[None]:
        """`bake` during a block; afterwards the head is restored bit for bit."""
        saved = [parameter.detach().clone() for parameter in classifier.parameters()]
        self.bake(classifier)
        try:
            yield
        finally:
            for parameter, values in zip(classifier.parameters(), saved, strict=True):
                parameter.data.copy_(values)
