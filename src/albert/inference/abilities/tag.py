"""Word tagging: the label of every word of a text, such as a part of speech or a named entity.

A word gets the label of its first piece, as in training (`albert.tasks.tagging`; Devlin et al. 2019, §5.3). Long
texts are read in overlapping windows; a word's label comes from the window where it has most context."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypedDict

import numpy as np

from albert.inference.abilities.base import Ability, End, Fields, Settings, Start, Texts, compute_apart, text_of
from albert.inference.texts import check_lists, check_texts
from albert.tables.records import Record

if TYPE_CHECKING:
    from albert.inference.onnx_graph import GraphWriter, Output
    from albert.inference.predictor import Predictor


class TextOrWords(NamedTuple):
    """An input: a text, or the words of one."""

    text: str | list[str]


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


class Tag(Ability):
    """The label of every word."""

    name = "tag"
    about = "The most likely label of every word, with the word's position in the text; long texts are read in full."
    needs = "tag words"
    heads: ClassVar = {"token_classification": ("classifier.",)}
    has_labels = True

    # ---- A row of a file: a text, or a list of its words -----------------------------------------------------------

    options = ("--text", "--words", "--group")
    reads_words = True

    def read(self, record: Record, fields: Fields) -> TextOrWords:
        value = record.fields.get(fields.text)
        if isinstance(value, list) and all(isinstance(word, str) for word in value):
            return TextOrWords(value)
        return TextOrWords(text_of(record, fields.text, "--text"))

    # ---- A request -------------------------------------------------------------------------------------------------

    request = TagRequest
    example: ClassVar = {"texts": ["The captain of the Nautilus was a strange man."]}
    windowed = True

    def inputs(self, request: TagRequest) -> list[TextOrWords]:
        return [TextOrWords(text) for text in request.texts]

    # ---- How it is computed: texts together, and lists of words together -------------------------------------------

    def compute(self, predictor: "Predictor", inputs: Sequence[TextOrWords], settings: Settings) -> list[Any]:
        texts = [text.split() if settings.words and isinstance(text, str) else text for (text,) in inputs]
        return compute_apart(
            texts,
            lambda text: isinstance(text, str),
            lambda alone: tag_texts(predictor, alone),
            lambda sentences: tag_sentences(predictor, sentences),
        )

    # ---- The reply -------------------------------------------------------------------------------------------------

    reply = list[WordInText]
    about_reply = "For each text, its words, with their characters `start`..`end` in it."

    # ---- The column of a file --------------------------------------------------------------------------------------

    def columns(self, predictor: "Predictor", settings: Settings) -> dict[str, Any]:
        return {"tags": [WordInText]}

    def row(self, predictor: "Predictor", result: list[TaggedWord]) -> dict[str, Any]:
        return {"tags": result}

    # ---- Its outputs in an ONNX file -------------------------------------------------------------------------------

    def onnx_outputs(self, graph: "GraphWriter", model: Any, hidden: str) -> "list[Output]":
        from albert.inference.onnx_graph import Output

        logits = graph.layer(hidden, "classifier", model.classifier)
        return [Output("logits", logits, ("batch", "sequence", model.classifier.out_features))]


TAG = Tag()


def tag_texts(predictor: "Predictor", texts: Sequence[str]) -> list[list[WordInText]]:
    """What `Predictor.tag_batch` gives: texts are split into words as `albert.text.word_split` does."""
    from albert.text.word_split import word_spans

    predictor.require(TAG)
    check_texts("texts", texts)
    spans = [word_spans(text) for text in texts]
    sentences = [[text[start:end] for start, end in own] for text, own in zip(texts, spans, strict=True)]
    return [
        [{**word, "start": start, "end": end} for word, (start, end) in zip(words, own, strict=True)]
        for words, own in zip(tag_sentences(predictor, sentences), spans, strict=True)
    ]


def tag_sentences(predictor: "Predictor", sentences: Sequence[Sequence[str]]) -> list[list[TaggedWord]]:
    """What `Predictor.tag_sentences` gives: every word has an entry, even one without a piece of its own."""
    from albert.tasks.tagging import tag_features
    from albert.tasks.task import softmax

    predictor.require(TAG)
    check_lists("sentences", sentences)
    names = predictor.labels
    encoded = tag_features(sentences, predictor.tokenizer, predictor.max_length)
    ids = [encoded.sequences.token_ids(index) for index in range(len(encoded.sequences))]
    types = [np.zeros_like(sequence) for sequence in ids]
    logits = encoded.word_outputs(predictor.packed_model.rows(ids, types))
    tagged: list[list[TaggedWord]] = []
    for words, rows in zip(sentences, encoded.split_by_sentence(logits.astype(np.float64)), strict=True):
        probabilities = softmax(rows)
        labels = probabilities.argmax(axis=1).tolist()
        scores = probabilities.max(axis=1).tolist()
        tagged.append(
            [
                {"word": word, "entity": names[label], "score": score}
                for word, label, score in zip(words, labels, scores, strict=True)
            ]
        )
    return tagged
