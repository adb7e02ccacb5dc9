"""Nested rows of annotation tools and published data sets, made flat: marked parts of texts, words with tags, options.

Label Studio, Prodigy, spaCy's training data, DataTurks, CLUENER, SciERC and its relatives, TruthfulQA. A marked part is
`[start, end, label]`, in characters from 0, without the character at `end`."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from albert.runtime.errors import DamagedData
from albert.text.readers import Record

Convert = Callable[[Record, Counter[str] | None], Iterator[Record]]
"""The flat rows of a row. Rows that nobody has annotated are left out and counted, if there are counts (to learn)."""


class Nested(NamedTuple):
    """How the rows of a file are made flat, with a line that says so."""

    convert: Convert
    note: str


def nested_layout(rows: Sequence[Record]) -> Nested | None:
    """The layout of nested rows, by the first ones of a file; None for rows that are read as they are."""
    first = rows[0].fields if rows else {}
    if isinstance(first.get("data"), dict) and any(isinstance(first.get(name), list) for name in _ANNOTATIONS):
        note = "Label Studio's export: the columns of each task, marked parts in 'label', choices by their name"
        return Nested(_of_label_studio, note)
    if {"_input_hash", "_task_hash"} & set(first) and any("answer" in row.fields for row in rows):
        return Nested(_of_prodigy, "Prodigy's export: only rows whose answer is 'accept' have an annotation")
    if isinstance(first.get("annotation"), list) and isinstance(first.get("content"), str):
        return Nested(
            _of_dataturks, "DataTurks' export: 'content' is the column 'text', its marked parts are in 'label'"
        )
    if _is_dygie(first):
        note = "documents of sentences with marked words (SciERC): every sentence is a row with words and tags"
        return Nested(_of_dygie, note)
    if isinstance(first.get("text"), str):
        labels = [row.fields.get("label") for row in rows]
        if any(labels) and all(label is None or _is_by_type(label) for label in labels):
            return Nested(_of_cluener, "the marked parts in 'label' are listed by type and text (CLUENER)")
    for name, value in first.items():
        values: list[Any] = [row.fields.get(name) for row in rows[1:]]
        others = [each for each in values if isinstance(each, dict)]
        if _is_truth_by_text(value) and others and not any(set(value) <= set(other) for other in others):
            note = "objects with texts and 0 or 1, such as {name!r}, are options: the right one has the 1"
            return Nested(_of_truths, note.format(name=name))
    return None


# ---- Label Studio ---------------------------------------------------------------------------------------------------

_ANNOTATIONS = ("annotations", "completions")
_MARKS = ("labels", "hypertextlabels")


def _of_label_studio(record: Record, counts: Counter[str] | None) -> Iterator[Record]:
    fields = record.fields
    made = [
        each
        for name in _ANNOTATIONS
        for each in fields.get(name) or ()
        if isinstance(each, dict) and not each.get("was_cancelled")
    ]
    if counts is not None:
        if not made:
            counts["tasks_without_annotation_left_out"] += 1
            return
        counts["tasks_with_further_annotations_not_read"] += len(made) > 1
    row: dict[str, Any] = dict(fields["data"])
    if "id" in fields:
        row.setdefault("id", fields["id"])
    marks: list[list[Any]] = []
    others: dict[str, Any] = {}
    for result in made[0].get("result") or () if made else ():
        kind = result.get("type")
        value = result.get("value") or {}
        name = result.get("from_name") or "label"
        if kind in _MARKS:
            place = value.get("globalOffsets") or value
            for label in value.get(kind) or ():
                marks.append([place.get("start"), place.get("end"), label])
                if not all(type(each) is int for each in marks[-1][:2]):
                    raise DamagedData(record.where, f"has a mark from {marks[-1][0]!r}, not from a character")
        elif kind in ("choices", "rating", "number"):
            others[name] = value.get(kind)
        elif counts is not None:
            counts[f"results_of_type_{kind}_not_read"] += 1
    if made and not others:
        others["label"] = marks
    elif marks:
        others.setdefault("label", marks)
    for name, value in others.items():
        row[name if name not in fields["data"] else f"annotated {name}"] = value
    yield Record(record.where, row)


# ---- Prodigy --------------------------------------------------------------------------------------------------------


def _of_prodigy(record: Record, counts: Counter[str] | None) -> Iterator[Record]:
    fields = record.fields
    answer = fields.get("answer")
    if answer == "accept" or counts is None:
        yield record
    elif answer == "reject" and "label" in fields and "spans" not in fields:
        # the text does not have this label: which other one it has is not known, unless 'answer' is the label
        yield Record(record.where, {name: value for name, value in fields.items() if name != "label"})
    else:
        counts[f"rows_with_the_answer_{answer}_left_out"] += 1


# ---- DataTurks, CLUENER: marked parts with their text, ends included or not ------------------------------------------


def marked_part(text: str, start: int, end: int, marked: str) -> tuple[int, int] | None:
    """Start and end of a marked part whose text is known, if `end` is its last character or the one after it."""
    for stop in (end + 1, end):
        part = text[start:stop]
        if part.strip() and part.strip() == marked.strip():
            first = start + len(part) - len(part.lstrip())
            return first, first + len(part.strip())
    return None


def _of_dataturks(record: Record, counts: Counter[str] | None) -> Iterator[Record]:
    fields = record.fields
    text = fields["content"]
    marks = []
    for each in fields["annotation"] or ():
        for point in each.get("points") or ():
            for label in each.get("label") or ():
                _add_mark(marks, text, point.get("start"), point.get("end"), point.get("text"), label, counts)
    rest = {name: value for name, value in fields.items() if name not in ("content", "annotation", "extras")}
    yield Record(record.where, {"text": text, "label": marks, **rest})


def _of_cluener(record: Record, counts: Counter[str] | None) -> Iterator[Record]:
    fields = record.fields
    marks = []
    for label, parts in (fields.get("label") or {}).items():
        for marked, places in parts.items():
            for start, end in places:
                _add_mark(marks, fields["text"], start, end, marked, label, counts)
    marked_parts = {} if fields.get("label") is None else {"label": marks}
    yield Record(record.where, {**fields, **marked_parts})


def _add_mark(
    marks: list[list[Any]], text: str, start: Any, end: Any, marked: Any, label: str, counts: Counter[str] | None
) -> None:
    part = None
    if type(start) is int and type(end) is int and isinstance(marked, str):
        part = marked_part(text, start, end, marked)
    if part is not None:
        marks.append([*part, label])
    elif counts is not None:
        counts["marked_parts_at_another_place_than_their_text_left_out"] += 1


def _is_by_type(label: Any) -> bool:
    """Return whether a value is `{"name": {"Anna": [[0, 3]]}}`."""
    if not isinstance(label, dict) or not all(isinstance(parts, dict) for parts in label.values()):
        return False
    places = [places for parts in label.values() for places in parts.values()]
    return all(isinstance(each, list) and all(isinstance(p, list) and len(p) == 2 for p in each) for each in places)


# ---- SciERC, DyGIE and the like: the words of a document are numbered through its sentences, ends included ----------


def _is_dygie(fields: Mapping[str, Any]) -> bool:
    sentences = fields.get("sentences")
    marks = fields.get("ner")
    if not isinstance(sentences, list) or not isinstance(marks, list) or len(sentences) != len(marks) or not marks:
        return False
    words = all(
        isinstance(sentence, list) and all(isinstance(word, str) for word in sentence) for sentence in sentences
    )
    return words and all(isinstance(each, list) and all(map(_is_word_mark, each)) for each in marks)


def _is_word_mark(mark: Any) -> bool:
    return isinstance(mark, list) and len(mark) >= 3 and type(mark[0]) is int and type(mark[1]) is int


def _of_dygie(record: Record, counts: Counter[str] | None) -> Iterator[Record]:
    fields = record.fields
    if not _is_dygie(fields):
        raise DamagedData(record.where, "has not as many lists in 'ner' as sentences", "write one for each sentence")
    first = 0
    for number, (words, marks) in enumerate(zip(fields["sentences"], fields["ner"], strict=True)):
        where = f"{record.where}: sentence {number}"
        spans = [(start - first, end + 1 - first, str(label)) for start, end, label, *_ in marks]
        tags = tags_of_words(where, words, spans, Counter() if counts is None else counts)
        first += len(words)
        if words:
            yield Record(where, {"doc_key": str(fields.get("doc_key", "")), "words": words, "tags": list(tags)})


def tags_of_words(
    where: str, words: Sequence[str], spans: Sequence[tuple[int, int, str]], counts: Counter[str]
) -> tuple[str, ...]:
    """A tag for each word (IOB2) from marked words, `(start, end, label)` without the word at `end`.

    Of marks that overlap, the longest is kept; the others are counted.
    """
    tags = ["O"] * len(words)
    for start, end, label in sorted(spans, key=lambda span: (span[0] - span[1], span[0])):
        if not 0 <= start < end <= len(words):
            why = f"marks the words {start} to {end} of a sentence with {len(words)}"
            raise DamagedData(where, why, "words are counted from 0")
        if any(tag != "O" for tag in tags[start:end]):
            counts["marked_parts_that_overlap_with_a_longer_one_left_out"] += 1
            continue
        tags[start:end] = [f"I-{label}"] * (end - start)
        tags[start] = f"B-{label}"
    return tuple(tags)


# ---- TruthfulQA: {"the right answer": 1, "a wrong one": 0} ----------------------------------------------------------


def _is_truth_by_text(value: Any) -> bool:
    numbers = list(value.values()) if isinstance(value, dict) else []
    return len(numbers) > 1 and all(type(each) in (int, bool) and each in (0, 1) for each in numbers) and any(numbers)


def _of_truths(record: Record, counts: Counter[str] | None) -> Iterator[Record]:
    row = {}
    for name, value in record.fields.items():
        if _is_truth_by_text(value):
            value = {"text": list(value), "label": [int(each) for each in value.values()]}
        row[name] = value
    yield Record(record.where, row)


# ---- spaCy: ["Anna in Rome", {"entities": [[8, 12, "place"]]}], or {"cats": {"A": 1, "B": 0}} ------------------------


def is_of_spacy(item: Any) -> bool:
    """Return whether a value is a text with its entities or categories, as spaCy is trained on."""
    if not isinstance(item, list) or len(item) != 2 or not isinstance(item[0], str) or not isinstance(item[1], dict):
        return False
    return any(isinstance(item[1].get(name), kind) for name, kind in (("entities", list), ("cats", dict)))


def row_of_spacy(item: Any) -> dict[str, Any]:
    """The row of a text with entities or categories: `text`, and `label` with marked parts or labels."""
    text, annotated = item
    if "entities" in annotated:
        return {"text": text, "label": annotated["entities"]}
    return {"text": text, "label": [name for name, value in annotated["cats"].items() if value and value >= 0.5]}
