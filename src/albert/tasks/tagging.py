"""Token classification: one of several tags for every word, as named entities or parts of speech.

Each word is encoded by itself, so that its pieces do not depend on its neighbours, and predicted at its first piece
(Devlin et al. 2019, §5.3). A word without pieces, such as a single combining mark, becomes the unknown piece. A long
sentence is read in windows that overlap by half; a word is predicted where its first piece has most context."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float

from albert.runtime.errors import DamagedData, InvalidConfiguration
from albert.tables.table import Row
from albert.tasks.error_analysis import NONE, calibration, confusion, excerpt, most_confident, per_class
from albert.tasks.examples import (
    IGNORE_INDEX,
    Example,
    Features,
    Sequences,
    best_windows,
    cut_windows,
    encode_all,
    join_sequences,
)
from albert.tasks.inputs import PairEncoding
from albert.tasks.metrics import (
    OUTSIDE,
    Metric,
    count_invalid_continuations,
    entities_of,
    entity_scores,
    has_prefixes,
    runs_of,
)
from albert.tasks.recipe import TaskRecipe
from albert.tasks.task import (
    Labelled,
    Predictions,
    cross_entropy,
    held_out_cross_entropy,
    hold_out_examples,
    label_id,
    object_file,
    softmax,
    solve_classes,
)
from albert.text.tokenizer import Tokenizer

MAX_SHIFT = 3.0
SHIFT_STEP = 0.25
MIN_SENTENCES = 500
"""With fewer sentences none is held out, because training needs them more: of 400 a fifth cost a point of F1."""


@dataclass(frozen=True)
class OutsideShift:
    """How much the logit of `O` is lowered, so that entities are predicted more readily.

    With few entities a trained model predicts too few of them, because most words are `O` (Menon et al. 2021,
    "Long-tail learning via logit adjustment", arXiv 2007.07314; there the shift is the logarithm of a class's share,
    times a constant). It becomes part of the head's bias when the model is written.
    """

    value: float
    chosen_on: str

    keys: ClassVar[dict[str, Any]] = {}

    @property
    def note(self) -> str:
        change = f"is lowered by {self.value:g}" if self.value else "stays as it was trained"
        return f"the logit of {OUTSIDE} {change}: the best F1 of entities on {self.chosen_on}"

    def applied_to(self, probabilities: Float[np.ndarray, "words tags"], outside: int) -> np.ndarray:
        """The probabilities after the shift."""
        if not probabilities.size:
            return probabilities
        weights = probabilities.copy()
        weights[:, outside] *= np.exp(-self.value)
        return weights / weights.sum(axis=1, keepdims=True)


@dataclass(frozen=True)
class TokenTagging(Labelled):
    """One of several classes for every word (token classification). `labels` are in the order of their ids.

    `column` holds a list with a tag for each word, or a text with whitespace between tags. `names` are readable names
    for tags that are digits in the files; they say whether tags are those of entities, and are what is scored.
    """

    labels: tuple[str, ...]
    column: str
    names: tuple[str, ...] | None = None

    kind: ClassVar[str] = "token-classification"
    loss_name: ClassVar[str] = "tags"
    per_sequence: ClassVar[bool] = False
    per_token: ClassVar[bool] = True

    # ---- From a row to an example, and to token ids -----------------------------------------------------------------

    def written_labels(self, row: Row) -> tuple[str, ...]:
        return row.texts(self.column) if self.column in row.fields else ()

    def gold(self, row: Row, texts: Sequence[str]) -> tuple[int, ...]:
        """The id of the tag of each word."""
        tags = row.texts(self.column)
        if len(tags) != len(texts):
            why = f"has {len(tags)} tags in column {self.column!r} for {len(texts)} words"
            raise DamagedData(row.where, why, "every word needs one")
        ids = []
        for word, tag in enumerate(tags, start=1):
            ids.append(label_id(row, tag, self._ids, f"unknown tag {tag!r} in column {self.column!r}, at word {word}"))
        return tuple(ids)

    def refuse_empty(self, row: Row) -> None:
        """A sentence without words has no tags."""

    def features(self, examples: Sequence[Example], tokenizer: Tokenizer, recipe: TaskRecipe) -> "TagFeatures":
        """The windows of all sentences; tags that continue no entity are counted."""
        texts = [example.texts for example in examples]
        tags = [example.target for example in examples]
        features = tag_features(texts, tokenizer, recipe.max_length, tags)
        if not has_prefixes(self.shown):
            return features
        known = (sentence for sentence in tags if isinstance(sentence, tuple))
        invalid = sum(count_invalid_continuations([self.shown[tag] for tag in sentence]) for sentence in known)
        return replace(features, counts={"tags_that_continue_nothing": invalid, **features.counts})

    def training_part(
        self, examples: Sequence[Example], features: Features, title: str
    ) -> tuple[Sequences, np.ndarray]:
        """The sequences in which a word is predicted, and the targets of their tokens."""
        assert isinstance(features, TagFeatures)
        if not len(features.learnable):
            raise InvalidConfiguration(title, "no sentence of the training set has a word")
        tokens = features.sequences.token_indices(features.learnable)
        return features.sequences.select(features.learnable), features.targets[tokens]

    # ---- The head and its loss --------------------------------------------------------------------------------------

    def model_kind(self, pairs: PairEncoding = "together") -> Any:
        return "token_classification"

    def loss(self, output: Any, batch: Any) -> tuple[Any, Any]:
        """Cross entropy of the tag of each word at its first piece; `IGNORE_INDEX` elsewhere."""
        return cross_entropy(self.logits(output, batch), batch)

    # ---- The head solved on frozen features -------------------------------------------------------------------------

    def head_rows(
        self, features: Sequence[Any], batches: Any, members: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """A row for each word with a tag; the words of a sequence are a group."""
        rows = np.concatenate([np.asarray(row) for row in features])
        targets = batches.targets[batches.sequences.token_indices(members)]
        groups = np.repeat(np.arange(len(members)), batches.sequences.lengths[members])
        labelled = targets != IGNORE_INDEX
        return rows[labelled].astype(np.float64), targets[labelled], groups[labelled]

    def solve(
        self, features: np.ndarray, targets: np.ndarray, groups: np.ndarray, options: Mapping[str, Any]
    ) -> tuple[np.ndarray, np.ndarray]:
        """A multinomial logistic regression; rows are words."""
        return solve_classes(features, targets, len(self.labels), options)

    def can_be_solved(self, targets: np.ndarray) -> bool:
        return len(np.unique(targets)) >= 2

    def held_out_loss(self, outputs: np.ndarray, targets: np.ndarray, groups: np.ndarray) -> float:
        """Cross entropy."""
        return held_out_cross_entropy(outputs, targets)

    # ---- The shift of `O` -------------------------------------------------------------------------------------------

    @property
    def is_tuned(self) -> bool:
        """Of entities the logit of `O` is; of other tags nothing."""
        return OUTSIDE in self.shown

    def read(self, tags: Sequence[str]) -> list[Any]:
        """The entities that tags form."""
        return entities_of(tags) if has_prefixes(self.shown) else runs_of(tags)

    def hold_out(self, examples: Sequence[Example], seed: int) -> tuple[list[Example], list[Example]]:
        if not self.is_tuned or len(examples) < MIN_SENTENCES:
            return list(examples), []
        return hold_out_examples(examples, seed)

    def best_threshold(
        self, examples: Sequence[Example], features: Features, decoded: np.ndarray
    ) -> OutsideShift | None:
        """The shift of `O` with the best F1 of entities; that of each shift is its mean with two on either side.

        None if there is no entity to be found.
        """
        assert isinstance(features, TagFeatures)
        targets = [example.target for example in examples]
        gold = [[self.shown[tag] for tag in tags] for tags in targets if isinstance(tags, tuple)]
        assert len(gold) == len(examples), "sentences held out of training have tags"
        if not any(self.read(tags) for tags in gold):
            return None
        about = f"{len(examples):,} sentences held out of training"
        outside = self.shown.index(OUTSIDE)
        shifts = np.arange(0.0, MAX_SHIFT + SHIFT_STEP / 2, SHIFT_STEP)
        scores = []
        for value in shifts:
            shifted = OutsideShift(float(value), about).applied_to(decoded, outside).argmax(axis=1)
            found = [[self.shown[tag] for tag in tags] for tags in features.split_by_sentence(shifted)]
            scores.append(entity_scores(gold, found, self.read)["entity_f1"])
        padded = np.pad(np.array(scores), 2, mode="edge")
        smooth = np.convolve(padded, np.full(5, 0.2), mode="valid")
        return OutsideShift(float(shifts[int(smooth.argmax())]), about)

    def fold(self, threshold: Any, model: Any) -> None:
        """Lower the bias of `O`."""
        if isinstance(threshold, OutsideShift):
            model.classifier.bias.data[self.shown.index(OUTSIDE)] -= threshold.value

    # ---- From outputs to predictions and scores ---------------------------------------------------------------------

    def decode(
        self, outputs: Sequence[Any], examples: Sequence[Example], features: Features, columns: Sequence[int] | None
    ) -> np.ndarray:
        """Probabilities [words of all examples, labels]."""
        assert isinstance(features, TagFeatures)
        logits = features.word_outputs([np.asarray(row) for row in outputs]).astype(np.float64)
        return softmax(logits if columns is None else logits[:, list(columns)])

    def predictions(
        self, examples: Sequence[Example], features: Features, decoded: np.ndarray, threshold: Any
    ) -> tuple[Predictions, OutsideShift | None]:
        """The most probable tag of every word, its probability, and the entities that the tags form."""
        assert isinstance(features, TagFeatures)
        shift = threshold if isinstance(threshold, OutsideShift) else None
        if shift is not None:
            decoded = shift.applied_to(decoded, self.shown.index(OUTSIDE))
        result = Predictions([], [], [])
        for example, rows in zip(examples, features.split_by_sentence(decoded), strict=True):
            gold_ids = example.target if isinstance(example.target, tuple) else ()
            ids = rows.argmax(axis=1).tolist() if len(rows) else []
            gold = tuple(self.shown[tag] for tag in gold_ids)
            predicted = tuple(self.shown[tag] for tag in ids)
            entry: dict[str, Any] = {"id": example.identifier, "words": list(example.texts)}
            entry["prediction"] = [self.labels[tag] for tag in ids]
            entry["gold"] = None if example.target is None else [self.labels[tag] for tag in gold_ids]
            entry["probabilities"] = rows.max(axis=1).tolist() if len(rows) else []
            if has_prefixes(self.shown) or OUTSIDE in self.shown:
                entry["entities"] = [entity._asdict() for entity in self.read(predicted)]
            result.gold.append(gold)
            result.predicted.append(predicted)
            result.entries.append(entry)
        return result, shift

    def constants(self, gold: Any) -> Iterator[list[tuple[str, ...]]]:
        """Every tag that occurs, for every word: one that is rare may have the best F1 of entities."""
        counts = Counter(tag for tags in gold for tag in tags)
        for tag in sorted(counts, key=lambda tag: (-counts[tag], tag)) or self.shown[:1]:
            yield [(tag,) * len(tags) for tags in gold]

    def linear_baseline(
        self,
        metrics: Sequence[Metric],
        train: Sequence[Example],
        dev: Sequence[Example],
        further: Mapping[str, Sequence[Example]],
        balanced: bool = False,
    ) -> Any:
        """A logistic regression over the form of each word and of its neighbours."""
        from albert.tasks.linear_baseline import words_baseline

        return words_baseline(metrics, self.shown, train, dev, further, balanced)

    def analysis(self, examples: Sequence[Example], predictions: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Of entities, or of words if the tags describe none."""
        shown = dict(zip(self.labels, self.shown, strict=True))
        prefixed = has_prefixes(self.shown)
        of_entities = prefixed or OUTSIDE in self.shown
        units: list[tuple[str, str]] = []
        errors = []
        for example, entry in zip(examples, predictions, strict=True):
            tags = [shown[tag] for tag in entry["gold"]]
            found = [shown[tag] for tag in entry["prediction"]]
            if of_entities:
                in_gold = {(entity.start, entity.end): entity.type for entity in self.read(tags)}
                in_predicted = {(entity.start, entity.end): entity.type for entity in self.read(found)}
            else:
                in_gold = {(place, place + 1): tag for place, tag in enumerate(tags)}
                in_predicted = {(place, place + 1): tag for place, tag in enumerate(found)}
            for start, end in sorted({*in_gold, *in_predicted}):
                unit = (in_gold.get((start, end), NONE), in_predicted.get((start, end), NONE))
                units.append(unit)
                if unit[0] == unit[1]:
                    continue
                error = {
                    "id": example.identifier,
                    "text": excerpt(example.texts, start, end),
                    "words": " ".join(example.texts[start:end]),
                    "gold": unit[0],
                    "predicted": unit[1],
                    "probability": float(np.mean(entry["probabilities"][start:end])),
                }
                errors.append(error)
        types = sorted({name for unit in units for name in unit} - {NONE})
        if not of_entities:
            types = [name for name in self.shown if name in types]
        names = [*types, NONE] if of_entities else types
        ids = {name: index for index, name in enumerate(names)}
        gold = np.array([ids[unit[0]] for unit in units], np.int64)
        predicted = np.array([ids[unit[1]] for unit in units], np.int64)
        right = [
            tag == found for entry in predictions for tag, found in zip(entry["gold"], entry["prediction"], strict=True)
        ]
        confidence = list(chain.from_iterable(entry["probabilities"] for entry in predictions))
        return {
            "per_class": per_class(types, gold, predicted),
            "confusion": confusion(names, gold, predicted),
            "errors": most_confident(errors),
            "calibration": calibration(np.array(confidence), np.array(right, np.bool_)),
        }

    def submission_files(self, name: str, entries: Sequence[Mapping[str, Any]]) -> dict[str, str]:
        """An object of example to list of tags."""
        return {f"{name}.json": object_file(entries, "prediction")}


# --------------------------------------------------------------------------------------------------------------------
# Words to pieces, in overlapping windows in which every word is predicted once.


@dataclass(frozen=True, kw_only=True)
class TagFeatures(Features):
    """The windows of all sentences in order; an empty sentence is `[CLS] [SEP]`.

    `targets` has a label id for every token (int64 [tokens]): `IGNORE_INDEX` except at `first_pieces`.

    Attributes:
        first_pieces: for every word of all sentences, the index into `sequences.tokens` at which it is predicted
            (int64 [words]).
        n_words: words of each sentence (int64 [sentences]).
    """

    first_pieces: np.ndarray
    n_words: np.ndarray

    @property
    def learnable(self) -> np.ndarray:
        """Indices of the sequences in which a word is predicted."""
        labelled = np.concatenate([[0], np.cumsum(self.targets != IGNORE_INDEX)])
        return np.flatnonzero(np.diff(labelled[self.sequences.starts]))

    def word_outputs(self, rows: Sequence[np.ndarray]) -> np.ndarray:
        """Outputs by word [words, labels], from those of each sequence [length, labels]."""
        return np.concatenate(rows)[self.first_pieces] if rows else np.zeros((0, 0))

    def split_by_sentence(self, words: np.ndarray) -> list[np.ndarray]:
        """An array over all words, split into sentences."""
        return np.split(words, np.cumsum(self.n_words)[:-1]) if len(self.n_words) else []


def tag_features(
    sentences: Sequence[Sequence[str]], tokenizer: Tokenizer, max_length: int, tags: Sequence[Any] | None = None
) -> TagFeatures:
    """Sentences of words as sequences of at most `max_length` tokens with `[CLS]` and `[SEP]`.

    Args:
        tags: label ids of the words of each sentence; None, also for a single sentence, if they are unknown.
    """
    room = max_length - 2
    if room < 1:
        raise InvalidConfiguration("max_length", f"{max_length} leaves no room for text", "use a larger value")
    vocabulary = list(dict.fromkeys(chain.from_iterable(sentences)))
    pieces = dict(zip(vocabulary, encode_all(vocabulary, tokenizer, "words"), strict=True))
    parts: list[tuple[list[int], int]] = []
    positions: list[np.ndarray] = [np.zeros(0, np.int64)]
    counts = dict.fromkeys(("words_without_pieces", "sentences_without_words", "sentences_in_several_windows"), 0)
    end = 0
    for words in sentences:
        word_pieces = [pieces[word] or [tokenizer.unk_id] for word in words]
        ids = [*chain.from_iterable(word_pieces)]
        windows = cut_windows(len(ids), room, max(1, room // 2))
        best_positions = np.zeros(len(ids), np.int64)  # of each piece among all tokens, in the window with most context
        for (start, stop), best in zip(windows, best_windows(windows, len(ids)), strict=True):
            parts.append(([tokenizer.cls_id, *ids[start:stop], tokenizer.sep_id], stop - start + 2))
            best_positions[start:stop][best] = end + 1 + np.flatnonzero(best)
            end += stop - start + 2
        positions.append(best_positions[np.cumsum([0, *map(len, word_pieces)])[:-1]])
        counts["words_without_pieces"] += sum(not pieces[word] for word in words)
        counts["sentences_without_words"] += len(words) == 0
        counts["sentences_in_several_windows"] += len(windows) > 1
    n_words = np.fromiter(map(len, sentences), np.int64, len(sentences))
    first_pieces = np.concatenate(positions)
    sequences = join_sequences(parts)
    counts = {"words": len(first_pieces), **counts}
    targets = np.full(len(sequences.tokens), IGNORE_INDEX, np.int64)
    for words, own in zip(np.split(first_pieces, np.cumsum(n_words)[:-1]), tags or (), strict=False):
        targets[words] = IGNORE_INDEX if own is None else own
    return TagFeatures(sequences, targets, counts, first_pieces=first_pieces, n_words=n_words)
