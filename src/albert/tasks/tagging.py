"""Token classification: one of several tags for every word, as named entities or parts of speech.

Each word is encoded by itself, so that its pieces do not depend on its neighbours, and predicted at its first piece
(Devlin et al. 2019, §5.3). A word without pieces, such as a single combining mark, becomes the unknown piece. A long
sentence is read in windows that overlap by half; a word is predicted where its first piece has most context."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, TypedDict

import numpy as np

from albert.recipes.finetuning import PairEncoding
from albert.runtime.errors import DamagedData, InvalidConfiguration, UsageError
from albert.tables.records import Record
from albert.tables.table import TAGS, WORDS, Field, Row, Table
from albert.tasks.cells import lists_read
from albert.tasks.error_analysis import tag_analysis
from albert.tasks.examples import IGNORE_INDEX, Example, Features, asked
from albert.tasks.from_table import Inferred, Recognised, TableDeclaration, metrics_by_name
from albert.tasks.inputs import Words
from albert.tasks.labels import labels_inferred, names_of_labels, refuse_unknown_labels, with_label_names
from albert.tasks.marked_texts import (
    NAMES_OF_MARKS,
    grouped_words,
    has_marks,
    may_have_marks,
    refuse_marked_words,
    refuse_unknown_objects,
    tagged_words,
)
from albert.tasks.metrics import (
    OUTSIDE,
    Metric,
    count_invalid_continuations,
    entities_of,
    entity_scores,
    has_prefixes,
    run_scores,
    runs_of,
    tag_metrics,
    word_scores,
)
from albert.tasks.outside_shift import OutsideShift, best_shift
from albert.tasks.pipeline import End, Fields, Head, Lengths, Settings, Start, Texts, text_of
from albert.tasks.table_task import TableTask
from albert.tasks.task import (
    Labelled,
    LinearHead,
    Predictions,
    cross_entropy,
    keep_back_examples,
    label_id,
    object_file,
    softmax,
    solve_classes,
)
from albert.tasks.word_windows import TagFeatures, tag_features
from albert.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from albert.inference.onnx_graph import GraphWriter, Output

MIN_SENTENCES = 500
"""With fewer sentences none is kept back, because training needs them more: of 400 a fifth cost a point of F1."""


@dataclass(frozen=True)
class TagRequest:
    """One text or many."""

    texts: Texts


class TaggedWord(TypedDict):
    """A word with its label, `entity`, and the label's probability."""

    word: str
    entity: str
    score: float


class WordInText(TaggedWord):
    """A tagged word and its characters in the text."""

    start: Start
    end: End


@dataclass(frozen=True)
class TokenTagging(Labelled):
    """One of several classes for every word (token classification). `labels` are in the order of their ids.

    `column` holds a list with a tag for each word, or a text with whitespace between tags. `names` are readable names
    for tags that are digits in the files; they say whether tags are those of entities, and are what is scored. `shift`
    lowers the logit of `O`. A text that is asked is split at blanks, or as the sentences of CoNLL.
    """

    labels: tuple[str, ...]
    column: str
    names: tuple[str, ...] | None = None
    shift: OutsideShift | None = None
    at_blanks: bool = False

    name = "tag"
    about = "The most likely label of every word, with the word's position in the text; long texts are read in full."
    needs = "tag words"
    kind: ClassVar[str] = "token-classification"
    loss_name: ClassVar[str] = "tags"
    per_sequence: ClassVar[bool] = False
    per_token: ClassVar[bool] = True
    heads: ClassVar = {"token_classification": ("classifier.",)}
    has_labels = True

    @classmethod
    def of_head(cls, head: Head) -> "TokenTagging | None":
        return cls(head.labels, "tags") if head.is_trained(cls.heads) else None

    # ---- From a table to the task -----------------------------------------------------------------------------------

    needed_columns = ("words", "tags")
    own_settings = ("labels", "label_names", "group")

    @classmethod
    def named_columns(cls, task: TableTask, table: Table, inferred: list[Inferred]) -> TableTask | None:
        """Words and tags, or a text whose parts another column marks."""
        known = table.columns
        if task.spans is not None:
            return task
        if task.given_columns or task.label_columns is not None:
            return None
        words = next((name for name in ("words", "tokens") if name in known), None)
        tags = next((name for name in ("tags", "ner_tags", "pos_tags", "ner") if name in known), None)
        if words is not None and tags is not None:
            if words != WORDS:
                inferred.append(Inferred("words", words, "a column has this name", "--words"))
                inferred.append(Inferred("tags", tags, "a column has this name", "--tags"))
            return replace(task, words=words, tags=tags)
        marks = [name for name in NAMES_OF_MARKS if may_have_marks(table, name)]
        is_free = task.kind == cls.kind or not {"label", "labels"} & set(known)
        if "text" not in known or len(marks) != 1 or not is_free:
            return None
        inferred.append(Inferred("text", "text", "a column has this name", "--text"))
        inferred.append(Inferred("label", marks[0], "it marks parts of texts", "--label"))
        if task.kind == cls.kind:
            return replace(task, spans=("text", marks[0]), words=WORDS, tags=TAGS)
        return replace(task, text="text", label=marks[0])

    @classmethod
    def recognised(cls, task: TableTask, table: Table) -> Recognised | None:
        """Columns of words or tags, marked parts of a text, or lists beside lists."""
        is_tagged_text = not task.given_columns and {WORDS, TAGS} <= set(table.columns)
        if is_tagged_text or task.words is not None or task.tags is not None:
            return Recognised(task, "every word has a tag", "name --text and --label")
        if task.text is None or task.label is None or task.options is not None or task.label_columns is not None:
            return None
        refuse_unknown_objects(table, task.label)
        as_lists = replace(task, text=None, label=None, words=task.text, tags=task.label)
        if has_marks(table, task.label):
            marked = replace(as_lists, spans=(task.text, task.label), words=WORDS, tags=TAGS)
            return Recognised(marked, f"{task.label!r} marks parts of {task.text!r}", "another --label")
        if all(any(isinstance(value, tuple) for value in table.values(name)) for name in (task.label, task.text)):
            return Recognised(as_lists, f"{task.text!r} and {task.label!r} hold lists", "--kind multi-label")
        return None

    @classmethod
    def converted(
        cls, task: TableTask, table: Table, source: object, inferred: list[Inferred]
    ) -> tuple[TableTask, Table]:
        """A list of words and a list of tags in each row."""
        if task.spans is not None:
            return task, tagged_words(table, *task.spans)
        words, tags = (name if name in table.columns else None for name in (WORDS, TAGS))  # of tagged text
        task = replace(task, words=task.words or words, tags=task.tags or tags)
        if task.words is None and task.group is not None:
            raise UsageError("--group", "goes with --words and --tags", "name the columns of words and of their tags")
        if task.words is not None:
            table = grouped_words(task, table, source)
        if task.tags is not None:
            refuse_marked_words(table, task.tags)
        table = lists_read(table, (task.tags, task.words))

        def stripped(row: Row, value: Field) -> Field:
            return value if isinstance(value, str) else tuple(each.strip() for each in value)

        return task, table if task.tags is None else table.changed(task.tags, stripped)

    @classmethod
    def text_columns(cls, task: TableTask) -> tuple[str | None, ...]:
        return (task.words,)

    @classmethod
    def completed(
        cls, task: TableTask, table: Table, source: object, inferred: list[Inferred], to_learn: bool
    ) -> tuple[TableTask, Table]:
        """The tags; if they are not of entities though they look like it, words are scored."""
        refuse_unknown_labels(task, to_learn)
        column = str(task.tags)
        are_inferred = task.labels is None
        own = cls((), column)
        counts = Counter(tag for row in table.rows for tag in own.written_labels(row) if tag) if are_inferred else None
        if counts is not None:
            task = labels_inferred(task, table, source, column, set(counts), inferred)
        task = with_label_names(task, inferred)
        if counts is not None and task.metrics is None:
            task = _with_scores_of_words(task, counts, inferred)
        return task, table

    @classmethod
    def of_table(cls, task: TableTask, tables: Mapping[str, Table]) -> TableDeclaration:
        assert task.words is not None and task.tags is not None and task.labels is not None
        target = cls(task.labels, task.tags, names_of_labels(task))
        about = f"Predicts the tag of each word of `{task.words}`, one of {len(task.labels)}"
        return TableDeclaration(task, Words(task.words), target, about)

    @classmethod
    def possible_metrics(cls, task: TableTask) -> dict[str, Metric]:
        return metrics_by_name(entity_scores, run_scores, word_scores)

    @classmethod
    def usual_metrics(cls, task: TableTask) -> tuple[Metric, ...]:
        return tag_metrics(names_of_labels(task) or task.labels or ())

    # ---- From a row of a table to an example ------------------------------------------------------------------------

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

    # ---- A row of a file: a text, or a list of its words; a request: texts ------------------------------------------

    file_options = ("--text", "--words", "--group")
    reads_words = True

    def read(self, record: Record, fields: Fields) -> Example:
        value = record.fields.get(fields.text)
        if isinstance(value, list) and all(isinstance(word, str) for word in value):
            return asked(*value)
        text = text_of(record, fields.text, "--text")
        return asked(*text.split()) if self.at_blanks else text_to_tag(text)

    Request = TagRequest
    request_example: ClassVar = {"texts": ["The captain of the Nautilus was a strange man."]}
    is_windowed = True

    def examples(self, request: TagRequest) -> list[Example]:
        return [text_to_tag(text) for text in request.texts]

    def with_settings(self, settings: Settings) -> "TokenTagging":
        return replace(self, at_blanks=settings.words)

    # ---- From examples to token ids ---------------------------------------------------------------------------------

    def encode(self, examples: Sequence[Example], tokenizer: Tokenizer, lengths: Lengths) -> TagFeatures:
        """The windows of all sentences; tags that continue no entity are counted."""
        texts = [example.texts for example in examples]
        tags = [example.target for example in examples]
        features = tag_features(texts, tokenizer, lengths.max_length, tags)
        if not has_prefixes(self.shown):
            return features
        known = (sentence for sentence in tags if isinstance(sentence, tuple))
        invalid = sum(count_invalid_continuations([self.shown[tag] for tag in sentence]) for sentence in known)
        return replace(features, counts={"tags_that_continue_nothing": invalid, **features.counts})

    def to_train(self, examples: Sequence[Example], features: Features, title: str) -> Features:
        """The sequences in which a word is predicted, and the targets of their tokens."""
        assert isinstance(features, TagFeatures)
        members = features.learnable
        if not len(members):
            raise InvalidConfiguration(title, "no sentence of the training set has a word")
        return features.only(members, features.targets[features.sequences.token_indices(members)])

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
    ) -> LinearHead:
        """A multinomial logistic regression; rows are words."""
        return solve_classes(features, targets, len(self.labels), options)

    # ---- The shift of `O` -------------------------------------------------------------------------------------------

    @property
    def is_tuned(self) -> bool:
        """Of entities the logit of `O` is; of other tags nothing."""
        return OUTSIDE in self.shown

    def entities(self, tags: Sequence[str]) -> list[Any]:
        """The entities that tags form."""
        return entities_of(tags) if has_prefixes(self.shown) else runs_of(tags)

    def keep_back(self, examples: Sequence[Example], seed: int) -> tuple[list[Example], list[Example]]:
        if not self.is_tuned or len(examples) < MIN_SENTENCES:
            return list(examples), []
        return keep_back_examples(examples, seed)

    def tuned(self, examples: Sequence[Example], decoded: Sequence[np.ndarray]) -> "TokenTagging":
        """The task with the shift of `O` with the best F1 of entities; as it is if there is no entity to be found."""
        targets = [example.target for example in examples]
        gold = [[self.shown[tag] for tag in tags] for tags in targets if isinstance(tags, tuple)]
        assert len(gold) == len(examples), "sentences kept back from training have tags"
        if not any(self.entities(tags) for tags in gold):
            return self
        return replace(self, shift=best_shift(gold, decoded, self.shown, self.entities))

    @property
    def tuned_note(self) -> str | None:
        return None if self.shift is None else self.shift.note

    def bake(self, model: Any) -> None:
        """Lower the bias of `O`."""
        if self.shift is not None:
            model.classifier.bias.data[self.shown.index(OUTSIDE)] -= self.shift.value

    def averaged(self, models: Sequence[tuple[Any, Any]]) -> "tuple[TokenTagging, list[np.ndarray]]":
        """The mean of the probabilities of each word."""
        sentences = zip(*(decoded for _, decoded in models), strict=True)
        return self, [np.mean(of_models, axis=0) for of_models in sentences]

    # ---- From outputs to a reply ------------------------------------------------------------------------------------

    def decode(self, outputs: Iterable[Any], features: Features) -> list[np.ndarray]:
        """For each example the probabilities [words, labels]."""
        assert isinstance(features, TagFeatures)
        logits = features.word_outputs(np.asarray(row) for row in outputs).astype(np.float64)
        return features.split_by_sentence(softmax(logits) if logits.size else logits)

    Reply = list[WordInText]
    about_reply = "For each text, its words, with their characters `start`..`end` in it."

    def reply(self, example: Example, decoded: np.ndarray, cut: Sequence[int]) -> list[TaggedWord]:
        """Every word with its most probable label, even one without a piece of its own."""
        if not len(decoded):
            return []
        labels = decoded.argmax(axis=1).tolist()
        scores = decoded.max(axis=1).tolist()
        words: list[TaggedWord] = [
            {"word": word, "entity": self.shown[label], "score": score}
            for word, label, score in zip(example.texts, labels, scores, strict=True)
        ]
        if not example.source:
            return words
        places = zip(words, example.offsets, strict=True)
        in_text: list[TaggedWord] = [WordInText(**word, start=start, end=end) for word, (start, end) in places]
        return in_text

    def cell_types(self) -> dict[str, Any]:
        return {"tags": [WordInText]}

    def cells(self, reply: list[TaggedWord]) -> dict[str, Any]:
        return {"tags": reply}

    # ---- Its output in an ONNX file ---------------------------------------------------------------------------------

    def onnx(self, graph: "GraphWriter", model: Any, hidden: str) -> "list[Output]":
        logits = graph.layer(hidden, "classifier", model.classifier)
        return [graph.output("logits", logits, ("batch", "sequence", model.classifier.out_features))]

    # ---- From probabilities to scores -------------------------------------------------------------------------------

    def judge(self, examples: Sequence[Example], decoded: Sequence[np.ndarray]) -> Predictions:
        """The most probable tag of every word, its probability, and the entities that the tags form."""
        result = Predictions([], [], [])
        for example, probabilities in zip(examples, decoded, strict=True):
            rows = probabilities
            if self.shift is not None:
                rows = self.shift.applied_to(rows, self.shown.index(OUTSIDE))
            gold_ids = example.target if isinstance(example.target, tuple) else ()
            ids = rows.argmax(axis=1).tolist() if len(rows) else []
            gold = tuple(self.shown[tag] for tag in gold_ids)
            predicted = tuple(self.shown[tag] for tag in ids)
            entry: dict[str, Any] = {"id": example.identifier, "words": list(example.texts)}
            entry["prediction"] = [self.labels[tag] for tag in ids]
            entry["gold"] = None if example.target is None else [self.labels[tag] for tag in gold_ids]
            entry["probabilities"] = rows.max(axis=1).tolist() if len(rows) else []
            if has_prefixes(self.shown) or OUTSIDE in self.shown:
                entry["entities"] = [entity._asdict() for entity in self.entities(predicted)]
            result.gold.append(gold)
            result.predicted.append(predicted)
            result.entries.append(entry)
        return result

    def of_entries(self, entries: Sequence[Mapping[str, Any]]) -> tuple[list[tuple[str, ...]], list[tuple[str, ...]]]:
        names = dict(zip(self.labels, self.shown, strict=True))
        gold, predicted = (
            [tuple(names[tag] for tag in entry[key]) for entry in entries] for key in ("gold", "prediction")
        )
        return gold, predicted

    def constants(self, gold: Any) -> Iterator[list[tuple[str, ...]]]:
        """Every tag that occurs, for every word: one that is rare may have the best F1 of entities."""
        counts = Counter(tag for tags in gold for tag in tags)
        for tag in sorted(counts, key=lambda tag: (-counts[tag], tag)) or self.shown[:1]:
            yield [(tag,) * len(tags) for tags in gold]

    def word_model(
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
        has_entities = has_prefixes(self.shown) or OUTSIDE in self.shown
        names = dict(zip(self.labels, self.shown, strict=True))
        return tag_analysis(names, examples, predictions, self.entities if has_entities else None)

    def submission_files(self, name: str, entries: Sequence[Mapping[str, Any]]) -> dict[str, str]:
        """An object of example to list of tags."""
        return {f"{name}.json": object_file(entries, "prediction")}


def text_to_tag(text: str) -> Example:
    """The words of a text, split as the sentences of CoNLL, with their characters in it."""
    from albert.text.word_split import word_spans

    offsets = word_spans(text)
    return asked(*(text[start:end] for start, end in offsets), source=text, offsets=tuple(map(tuple, offsets)))


RARE_OUTSIDE = 0.01
"""If fewer of the tags are O, it is not the tag of words outside of entities."""


def _with_scores_of_words(task: TableTask, counts: Counter[str], inferred: list[Inferred]) -> TableTask:
    """The task scored by words if its tags are not of entities though they look like it."""
    names = task.label_names or {}
    labels = [names.get(label, label) for label in task.labels or ()]
    if has_prefixes(labels):
        return task
    share = sum(count for label, count in counts.items() if names.get(label, label) == OUTSIDE) / counts.total()
    if OUTSIDE in labels and share < RARE_OUTSIDE:
        why = f"{OUTSIDE} is {share:.2%} of all {counts.total():,} tags, too rare for the words outside of entities"
        inferred.append(Inferred("scored by", "word_scores", why, "--metrics run_scores"))
        return replace(task, metrics=("word_scores",))
    if has_prefixes([label.upper() for label in labels]):
        why = f"tags such as {labels[0]!r} are in small letters, and entities need B-, I- and O"
        inferred.append(Inferred("scored by", "words", why, "capitals in the file"))
    return task
