"""Tags to entities, and their scores: an entity is right when its type and both of its ends are.

Three ways of writing entities as tags are told apart by the labels of the task alone:

- IOB2: `B-PER` begins an entity, `I-PER` goes on with it, `O` is outside (IOB1, where `B-` only parts neighbours, reads
  the same);
- IOBES: `E-` is an entity's last word, `S-` its only one; BILOU says `L-` and `U-`;
- plain: no prefixes. Where `O` is among the labels, a run of one other label is an entity.

Tags may contradict each other: a model decides word by word, and files err. As the official script of CoNLL-2003
(conlleval) and seqeval have it, nothing is thrown away: `I-` or `E-` that continues nothing, or an entity of another
type, begins one; an entity without its `E-` ends where the next one begins, at `O`, or with the sentence.
"""

from collections import Counter
from collections.abc import Sequence
from itertools import groupby
from typing import Literal, NamedTuple

from albert.tasks.metrics import accuracy, macro_f1
from albert.tasks.task import Metric

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


def continues_nothing(tags: Sequence[str]) -> int:
    """How many tags of a sentence in IOB2 or IOBES go on with an entity that none began; each is read as its first."""
    beginnings = {entity.start for entity in entities_of(tags)}
    return sum(place in beginnings and _read(tag)[0] in _INSIDE for place, tag in enumerate(tags))


def entity_scores(gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]) -> dict[str, float | None]:
    """Scores of entities written with prefixes, in points of 100, and the share of right tags.

    `entity_f1` first, over all entities of all sentences (micro), then precision and recall, then F1 of each type that
    is in `gold` when there are several. No entities at all give 0, as seqeval has it.

    Args:
        gold, predicted: the tags of each sentence.
    """
    return _scores(gold, predicted, [entities_of(tags) for tags in gold], [entities_of(tags) for tags in predicted])


def run_scores(gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]) -> dict[str, float | None]:
    """The same of entities that are runs of plain tags."""
    return _scores(gold, predicted, [runs_of(tags) for tags in gold], [runs_of(tags) for tags in predicted])


def word_scores(gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]) -> dict[str, float | None]:
    """Tags that write no entities, parts of speech say: the share of right ones, and the mean F1 over those seen."""
    words = _words(gold), _words(predicted)
    return {"tag_accuracy": accuracy(*words), "tag_macro_f1": macro_f1(*words)}


def _scores(
    gold: Sequence[Sequence[str]],
    predicted: Sequence[Sequence[str]],
    wanted: Sequence[list[Entity]],
    found: Sequence[list[Entity]],
) -> dict[str, float | None]:
    there, said, right = Counter[str](), Counter[str](), Counter[str]()
    for wanted_here, found_here in zip(wanted, found, strict=True):
        there.update(entity.type for entity in wanted_here)
        said.update(entity.type for entity in found_here)
        right.update(entity.type for entity in set(wanted_here) & set(found_here))
    n_there, n_said, n_right = there.total(), said.total(), right.total()
    scores = {
        "entity_f1": _points(2 * n_right, n_there + n_said),
        "entity_precision": _points(n_right, n_said),
        "entity_recall": _points(n_right, n_there),
    }
    if len(there) > 1:
        each = {type_: _points(2 * right[type_], there[type_] + said[type_]) for type_ in sorted(there)}
        scores |= {f"entity_f1_{type_}": value for type_, value in each.items()}
    return {**scores, "tag_accuracy": accuracy(_words(gold), _words(predicted))}


def _words(sentences: Sequence[Sequence[str]]) -> list[str]:
    return [tag for tags in sentences for tag in tags]


def _points(part: int, whole: int) -> float:
    return 100.0 * part / whole if whole else 0.0


def _read(tag: str) -> tuple[str, str]:
    """The prefix of a tag as IOBES has it, and the type."""
    prefix, _, type_ = tag.partition("-")
    return _BILOU.get(prefix, prefix), type_
