"""What the columns of a table mean: which ones are used, and how their values are read.

The steps of `read_columns`, in their order: names and positions of columns; words that are grouped to sentences; marked
parts of texts as tags; lists that are written as text; columns of 0 and 1 and vectors as labels; labels without blanks
and quotes; numbers with a decimal comma. What is decided on the training file is kept in the task, so that other files
are read in the same way."""

import ast
import json
import re
from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from albert.runtime.errors import DamagedData, UsageError, did_you_mean
from albert.runtime.words import counted
from albert.tables.fields import as_number, fields_of
from albert.tables.table import Field, Row, Table
from albert.tables.table_file import TAGS, WORDS
from albert.tasks.option_columns import are_option_labels, columns_of_options
from albert.tasks.table_task import COLUMNS, TableTask
from albert.text.word_split import word_spans


@dataclass(frozen=True)
class Inferred:
    """An inferred setting: its name, value, reason, and the option that overrides it."""

    what: str
    value: str
    why: str
    override: str


def read_columns(
    task: TableTask, rows: Table, source: object, inferred: list[Inferred], to_learn: bool = True
) -> tuple[TableTask, Table]:
    """The task with the names of its columns, and the rows with values that the kinds of tasks understand.

    Args:
        inferred: what is decided here is added.
        to_learn: whether the rows decide; otherwise what the task says is applied.

    Raises:
        UsageError: a column may be read in several ways.
        DamagedData: a value cannot be read; named with its row.
    """
    if not to_learn:
        rows = _named_as_in_training(task, rows)
    rows = _objects_in_text(task, rows)
    task = _named_columns(task, rows, inferred)
    task, rows = _grouped_words(task, rows, source)
    _refuse_unaccepted_rows(task, rows, source)
    _refuse_marked_words(task, rows)
    task, rows = _spans_as_tags(task, rows, source, inferred)
    rows = _lists_in_text(task, rows, inferred)
    task, rows = _labels_of_columns(task, rows, source)
    task, rows = _labels_of_vectors(task, rows, inferred, to_learn)
    rows = _clean_labels(task, rows)
    rows = _decimal_points(task, rows, inferred, to_learn)
    if task.drop_unlabelled:
        rows = _labelled_rows(task, rows)
    return task, rows


def _named_as_in_training(task: TableTask, rows: Table) -> Table:
    """Tagged text, whose columns have fixed names, with the names of words and tags in the training file."""
    if not rows.aliases:
        return rows
    there = rows.columns
    names = {}
    for name, usual in ((task.words, WORDS), (task.tags, TAGS)):
        is_known = name is None or name in (*there, *rows.aliases) or name.isdecimal()
        if name is not None and not is_known and usual in there:
            names[usual] = name
    if not names:
        return rows
    renamed = [
        replace(row, fields={names.get(key, key): value for key, value in row.fields.items()}) for row in rows.rows
    ]
    said = " and ".join(f"{usual!r} is the column {name!r} of training" for usual, name in names.items())
    columns = tuple(None if name is None else names.get(name, name) for name in rows.names)
    return replace(rows, rows=renamed, names=columns, notes=(*rows.notes, said))


def changed_rows(rows: Table, column: str, convert: Callable[[Row, Field], Field | None]) -> Table:
    """Rows with another value in a column; None removes it."""
    result = []
    for row in rows.rows:
        value = row.fields.get(column)
        if value is None:
            result.append(row)
            continue
        new = convert(row, value)
        if new is value or new == value:
            result.append(row)
        elif new is None:
            result.append(replace(row, fields={name: each for name, each in row.fields.items() if name != column}))
        else:
            result.append(replace(row, fields={**row.fields, column: new}))
    return replace(rows, rows=result)


# --------------------------------------------------------------------------------------------------------------------
# Names of columns, their positions, and usual names.

_USUAL: tuple[tuple[dict[str, tuple[str, ...]], str], ...] = (
    (
        {"words": ("words", "tokens"), "tags": ("tags", "ner_tags", "pos_tags", "ner")},
        "token-classification",
    ),
    (
        {
            "question": ("question",),
            "context": ("context",),
            "answer": ("answers.text", "answer", "answer_text", "text"),
            "answer_start": (),
        },
        "question-answering",
    ),
    ({"text": ("text",), "label": ("label", "labels")}, "classification"),
)


def _named_columns(task: TableTask, rows: Table, inferred: list[Inferred]) -> TableTask:
    """Columns by position (from 1) become names; without any, columns with the usual names are taken."""
    columns = rows.columns
    known = set(columns)
    changes: dict[str, Any] = {}
    for option in (*COLUMNS, "id", "group", "label_columns"):
        value = getattr(task, option)
        flag = option.replace("_", "-") if option != "label_columns" else "label"
        if isinstance(value, tuple):
            changes[option] = tuple(_column_name(flag, each, rows, known) for each in value)
        elif value is not None:
            changes[option] = _column_name(flag, value, rows, known)
    task = replace(task, **changes)
    if task.options is not None and len(task.options) == 1 and task.options[0] not in known:
        inner = f"{task.options[0]}.text"
        if inner in known:
            task = replace(task, options=(inner,))
    if task.answer is not None and task.answer not in known and f"{task.answer}.text" in known:
        start = f"{task.answer}.answer_start"
        task = replace(task, answer_start=task.answer_start or (start if start in known else None))
        task = replace(task, answer=f"{task.answer}.text")
    if task.spans is not None:
        return task
    if not task.given_columns and task.label_columns is None:
        choice = _usual_choice(task, rows, inferred)
        if choice is not None:
            return choice
        for usual, kind in _USUAL:
            if task.kind not in (None, kind) and not (kind == "classification" and task.kind != "token-classification"):
                continue
            found = {option: next((n for n in names if n in known), None) for option, names in usual.items()}
            if kind == "question-answering":
                start = "answers.answer_start" if found["answer"] == "answers.text" else "answer_start"
                found["answer_start"] = start if start in known else None
            needed = [option for option, names in usual.items() if names]
            if all(found[option] is not None for option in needed):
                for option in needed if kind != "token-classification" or found["words"] != WORDS else ():
                    inferred.append(Inferred(option, str(found[option]), "a column has this name", f"--{option}"))
                named: dict[str, Any] = {**found}
                return replace(task, **named)
        is_tagging = task.kind == "token-classification"
        if "text" in known and (is_tagging or (task.kind is None and "label" not in known)):
            marks = [name for name in _NAMES_OF_MARKS if _holds_marks(rows, name)]
            if len(marks) == 1:
                inferred.append(Inferred("text", "text", "a column has this name", "--text"))
                inferred.append(Inferred("label", marks[0], "it marks parts of texts", "--label"))
                task = replace(task, text="text", label=marks[0])
                return replace(task, spans=("text", marks[0])) if is_tagging else task
    others = ("words", "tags", "options", "question", "context", "answer")
    if all(getattr(task, other) is None for other in others):
        for option in ("text", "label"):
            is_given = getattr(task, option) is not None or (option == "label" and task.label_columns is not None)
            if not is_given and option in known:
                inferred.append(Inferred(option, option, "a column has this name", f"--{option}"))
                task = replace(task, **{option: option})
    return task


_QUESTIONS = ("question", "question.stem")
_PASSAGES = ("context", "passage", "article")
_LISTS_OF_OPTIONS = ("choices.text", "question.choices.text", "choices", "options")
_RIGHT_OPTIONS = ("answerkey", "answer", "label")


def _usual_choice(task: TableTask, rows: Table, inferred: list[Inferred]) -> TableTask | None:
    """A multiple choice with usual names: a question, options in columns or a list, and which one is right."""
    known = {name.lower(): name for name in rows.columns}

    def usual(names: Sequence[str]) -> str | None:
        return next((known[name] for name in names if name in known), None)

    question = usual(_QUESTIONS)
    label = usual(_RIGHT_OPTIONS)
    options = columns_of_options(rows.columns)
    if not options:
        listed = usual(_LISTS_OF_OPTIONS)
        options = () if listed is None else (listed,)
    if task.kind not in (None, "multiple-choice") or question is None or label is None or not options:
        return None
    if "answer_start" in known:  # the answer is a part of the text
        return None
    if len(options) == 1 and _holds_lists(rows, options[0]):
        rows = changed_rows(rows, options[0], _list_of_text)
    if len(options) == 1 and not any(isinstance(value, tuple) and len(value) > 1 for value in rows.values(options[0])):
        return None
    named = replace(task, question=question, text=usual(_PASSAGES), options=options, label=label)
    if not are_option_labels(named, rows):
        return None
    inferred.append(Inferred("options", ", ".join(options), f"{label!r} names one of them", "--options"))
    return named


def _column_name(option: str, value: str, rows: Table, known: Container[str]) -> str:
    """The name of a column that is given by its name, another name of it, or its position."""
    if value in known or not value.isdecimal():
        return value if value in known else rows.aliases.get(value, value)
    position = int(value)
    if not 1 <= position <= len(rows.names):
        raise UsageError(f"--{option}", f"there is no column {position}", f"there are {len(rows.names)}")
    name = rows.names[position - 1]
    if name is None:
        why = f"column {position} has no name"
        raise UsageError(f"--{option}", why, "name the columns with reading.columns, or say reading.no_header=true")
    return name


# --------------------------------------------------------------------------------------------------------------------
# One word in each row: rows with the same name of a sentence are grouped.


def _grouped_words(task: TableTask, rows: Table, source: object) -> tuple[TableTask, Table]:
    if task.words is None:
        if task.group is not None:
            raise UsageError("--group", "goes with --words and --tags", "name the columns of words and of their tags")
        return task, rows
    values = [value for value in rows.values(task.words) if value is not None]
    single = bool(values) and all(isinstance(value, str) and len(value.split()) <= 1 for value in values)
    if task.group is None:
        if single and len(values) > 20:
            columns = [name for name in rows.columns if re.search(r"sent|doc|id", name, re.IGNORECASE)]
            example = columns[0] if columns else "COLUMN"
            why = f"{task.words!r} holds one word in each row"
            remedy = f"name the column that numbers the sentences: --group {example!r}"
            raise UsageError(str(source), why, remedy)
        return task, rows
    if task.group not in rows.columns:
        raise DamagedData(source, f"has no column {task.group!r}", did_you_mean(task.group, rows.columns))
    if not single:
        return task, rows  # a file of whole sentences
    kept = [name for name in (task.words, task.tags) if name is not None]
    grouped: list[Row] = []
    members: list[Row] = []
    current: Field | None = None
    for row in rows.rows:
        name = row.fields.get(task.group)
        if isinstance(name, str) and not name.strip():
            name = None
        if name is not None and name != current:
            if members:
                grouped.append(_sentence_of_words(len(grouped), members, kept, task.group, current))
            members = []
            current = name
        word = row.fields.get(task.words)
        if not isinstance(word, str) or not word.strip():
            raise DamagedData(row.where, f"empty word in column {task.words!r}", "every row needs a word")
        members.append(row)
    if members:
        grouped.append(_sentence_of_words(len(grouped), members, kept, task.group, current))
    note = f"{len(rows.rows):,} rows of one word are {len(grouped):,} sentences, by {task.group!r}"
    counts = {**rows.counts, "rows": len(grouped)}
    return task, replace(rows, rows=grouped, counts=counts, notes=(*rows.notes, note))


def _sentence_of_words(
    number: int, members: Sequence[Row], columns: Sequence[str], group: str, name: Field | None
) -> Row:
    """The row of a sentence from the rows of its words: a list in each column, its name (if any) in `group`."""
    fields: dict[str, Field] = {column: tuple(row.text(column).strip() for row in members) for column in columns}
    if name is not None:
        fields[group] = name
    return Row(str(number), members[0].where, fields)


# --------------------------------------------------------------------------------------------------------------------
# Marked parts of a text as tags of its words.

_NAMES_OF_MARKS = ("label", "entities", "spans", "labels")
_POSITIONS = "positions are counted in characters from 0, and the end is that after the last character"
_LAYOUTS_OF_SPANS = 'write marked parts as [0, 3, "PER"], or as {"start": 0, "end": 3, "label": "PER"}'


@dataclass(frozen=True)
class _Marks:
    """The columns of marked parts that are written as objects; `text` is that of the parts themselves."""

    start: str
    end: str
    label: str
    text: str | None

    def of(self, row: Row) -> list[tuple[int, int, str]]:
        """The marked parts of a row: start, end and label."""
        if self.start not in row.fields:
            return []
        parts = zip(row.texts(self.start), row.texts(self.end), row.texts(self.label), strict=True)
        return [(_position(row, first), _position(row, last), name) for first, last, name in parts]


def _columns_of_marks(rows: Table, label: str) -> _Marks | None:
    """The columns of start, end and label in the objects of a column; None if there are none."""
    columns = set(rows.columns)
    start = f"{label}.start"
    end = f"{label}.end"
    named = next((name for name in (f"{label}.label", f"{label}.labels") if name in columns), None)
    if named is None or not {start, end} <= columns:
        return None
    text = f"{label}.text"
    return _Marks(start, end, named, text if text in columns else None)


def _holds_marks(rows: Table, name: str) -> bool:
    """Return whether a column holds marked parts, or objects that may be marked parts in another form."""
    has_objects = any(column.startswith(f"{name}.") for column in rows.columns)
    return has_objects or any(map(_span_list, rows.values(name)))


def _spans_as_tags(task: TableTask, rows: Table, source: object, inferred: list[Inferred]) -> tuple[TableTask, Table]:
    """Parts of a text, `[start, end, label]` in characters, become a tag for each word (IOB2)."""
    text, label = task.spans if task.spans is not None else (task.text, task.label)
    if text is None or label is None or task.kind not in (None, "token-classification"):
        return task, rows
    if task.kind == "token-classification" and task.spans is None:
        return task, rows
    if task.spans is not None and text not in rows.columns and WORDS in rows.columns:
        return task, rows  # words with tags, for a model that was trained on marked texts
    marks = _columns_of_marks(rows, label)
    inner = [name for name in rows.columns if name.startswith(f"{label}.")]
    if inner and marks is None and not any(rows.values(label)):
        why = f"holds objects with {', '.join(map(repr, inner))}, of which no start, end and label are known"
        raise UsageError(f"column {label!r}", why, _LAYOUTS_OF_SPANS)
    if marks is None and not any(map(_span_list, rows.values(label))):
        if task.spans is not None and label not in rows.columns:
            words = [_words_of(row.text(text)) for row in rows.rows]
            tagless = [
                replace(row, fields={**row.fields, WORDS: own}) for row, own in zip(rows.rows, words, strict=True)
            ]
            return task, replace(rows, rows=tagless)
        return task, rows
    spans = [marks.of(row) if marks is not None else _span_list(row.fields.get(label, ())) or [] for row in rows.rows]
    counts = Counter[str]()
    if marks is not None and marks.text is not None:
        _check_marked_texts(rows, text, spans, marks.text, counts)
    result = []
    names = (label,) if marks is None else (label, marks.start)
    for row, own in zip(rows.rows, spans, strict=True):
        if not any(name in row.fields for name in names):
            counts[f"rows without {label!r}, of which no word is marked"] += 1
        words, tags = tags_of_spans(row, row.text(text), own, counts)
        result.append(replace(row, fields={**row.fields, WORDS: words, TAGS: tags}))
    of = f" (from {marks.start!r} to {marks.end!r}, called {marks.label!r})" if marks is not None else ""
    notes = (*rows.notes, f"the parts of {text!r} that {label!r} marks{of} are read as a tag for each word")
    for what, count in counts.items():
        notes += (counted(count, what),)
    if task.kind is None:
        why = f"{label!r} marks parts of {text!r}"
        inferred.append(Inferred("task", "token-classification", why, "another --label"))
    task = replace(
        task, kind="token-classification", spans=(text, label), text=None, label=None, words=WORDS, tags=TAGS
    )
    return task, replace(rows, rows=result, notes=notes)


def _check_marked_texts(
    rows: Table, text: str, spans: Sequence[Sequence[tuple[int, int, str]]], marked: str, counts: Counter[str]
) -> None:
    """Count marked parts whose own text, in the column `marked`, is not at their place; refused if they are most."""
    total = 0
    other = 0
    for row, own in zip(rows.rows, spans, strict=True):
        texts = row.texts(marked) if marked in row.fields else ()
        if len(texts) != len(own):
            continue
        whole = row.text(text)
        total += len(own)
        places = zip(own, texts, strict=True)
        other += sum(whole[start:end].split() != written.split() for (start, end, _), written in places)
    if other > total / 2:
        why = f"its marked parts are another text than their own in {other:,} of {total:,} cases"
        raise DamagedData(rows.rows[0].where, why, _POSITIONS)
    if other:
        counts["parts marked whose own text is another one"] += other


def _refuse_unaccepted_rows(task: TableTask, rows: Table, source: object) -> None:
    """Raise UsageError for rows of Prodigy that were rejected or ignored: their marks are not annotations."""
    columns = set(rows.columns)
    if task.label == "answer" or "answer" not in columns or not {"_input_hash", "_task_hash"} & columns:
        return
    others = Counter(value for value in rows.values("answer") if value != "accept")
    if others:
        shown = ", ".join(f"{count:,} of {answer!r}" for answer, count in others.items())
        remedy = f"""keep the accepted ones: grep '"answer": *"accept"' {source} > accepted.jsonl"""
        raise UsageError(str(source), f"has rows of Prodigy whose answer is not 'accept': {shown}", remedy)


def _refuse_marked_words(task: TableTask, rows: Table) -> None:
    """Raise UsageError for marks that number words, `[start, end, label]`, in the place of a tag for each word."""
    label = task.tags
    if task.words is None or label is None:
        return
    if _columns_of_marks(rows, label) is not None or any(map(_span_list, rows.values(label))):
        remedy = "write a list of tags, one for each word (B-PER, I-PER, O)"
        raise UsageError(f"column {label!r}", "marks words by their numbers, which is not read", remedy)


def _position(row: Row, value: str) -> int:
    number = as_number(value)
    if number is None or number != int(number):
        raise DamagedData(row.where, f"{value!r} is not a position in a text", _LAYOUTS_OF_SPANS)
    return int(number)


def _span_list(value: Field | None) -> list[tuple[int, int, str]] | None:
    """Spans in a field, as `fields_of` keeps them or as text in a cell; None for no spans."""
    if isinstance(value, str) and re.match(r"\s*\[\s*[\[(]\s*\d", value):
        try:
            items = ast.literal_eval(value.strip())
        except (ValueError, SyntaxError):
            return None
        value = tuple(json.dumps(list(item)) for item in items if isinstance(item, list | tuple))
    if not isinstance(value, tuple) or not value:
        return None
    spans = []
    for item in value:
        if not re.match(r"\[\d+, \d+, \"", item):
            return None
        start, end, name = json.loads(item)
        spans.append((start, end, name))
    return spans


def tags_of_spans(
    row: Row, text: str, spans: Sequence[tuple[int, int, str]], counts: Counter[str]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The words of a text and their tags; overlapping spans are left out, the longest is kept, and counted."""
    words = word_spans(text)
    tags = ["O"] * len(words)
    for start, end, name in sorted(spans, key=lambda span: (span[0] - span[1], span[0])):
        if not 0 <= start < end <= len(text):
            why = f"marks the characters {start} to {end} of a text with {len(text)}"
            raise DamagedData(row.where, why, _POSITIONS)
        inside = [at for at, (first, last) in enumerate(words) if first < end and last > start]
        if not inside:
            counts["parts marked without a word, left out"] += 1
            continue
        if any(tags[at] != "O" for at in inside):
            counts["parts marked across a longer one, left out"] += 1
            continue
        if words[inside[0]][0] < start or words[inside[-1]][1] > end:
            counts["parts marked from or to the inside of a word, which is marked as a whole"] += 1
        for at in inside:
            tags[at] = f"I-{name}"
        tags[inside[0]] = f"B-{name}"
    return _words_of(text), tuple(tags)


def _words_of(text: str) -> tuple[str, ...]:
    """The words of a text, as `albert predict --tag` divides it."""
    return tuple(text[start:end] for start, end in word_spans(text))


# --------------------------------------------------------------------------------------------------------------------
# Objects that are written as text in a cell: {'text': ['red'], 'answer_start': [6]}, [{"start": 0, "end": 4, ...}].

_CELLS_OF_OBJECTS = ("answers", "choices", *_NAMES_OF_MARKS)


def _objects_in_text(task: TableTask, rows: Table) -> Table:
    """Objects in cells become columns with a dot in the name, as those of JSON."""
    named = [task.label, task.answer, task.tags, *(task.options or ()), *(task.spans or ()), *_CELLS_OF_OBJECTS]
    for column in dict.fromkeys(named):
        if column is None or column not in rows.columns:
            continue
        values = rows.values(column)
        first = next((value for value in values if isinstance(value, str) and value.strip()), "")
        if not isinstance(first, str) or not re.match(r"\s*(\{\s*['\"]|\[\s*\{)", first):
            continue
        result = []
        for row, value in zip(rows.rows, values, strict=True):
            fields = {name: each for name, each in row.fields.items() if name != column}
            if isinstance(value, str) and value.strip():
                fields |= fields_of({column: _object_of_text(value, row, column)}, row.where, Counter())
            result.append(replace(row, fields=fields))
        note = f"the objects in {column!r} are written as text, and read as objects"
        columns = dict.fromkeys(name for row in result for name in row.fields)
        names = tuple(name for name in rows.names if name != column)
        names += tuple(name for name in columns if name not in names)
        rows = replace(rows, rows=result, names=names, notes=(*rows.notes, note))
    return rows


def _object_of_text(text: str, row: Row, column: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        pass
    # as pandas writes the arrays of a Parquet file into CSV
    plain = re.sub(r"array\((\[.*?\])(,\s*dtype=\w+)?\)", r"\1", text, flags=re.DOTALL)
    try:
        return ast.literal_eval(plain.strip())
    except (ValueError, SyntaxError) as error:
        why = f"{text[:40]!r} in column {column!r} is not an object"
        raise DamagedData(row.where, why, "write the rows as .jsonl or .parquet") from error


# --------------------------------------------------------------------------------------------------------------------
# Lists that are written as text: `['a', 'b']` and `["a", "b"]`.


def _lists_in_text(task: TableTask, rows: Table, inferred: list[Inferred]) -> Table:
    columns = [task.label, task.tags, task.words, task.answer, task.answer_start]
    columns += task.options if task.options is not None and len(task.options) == 1 else ()
    for column in columns:
        if column is None or not _holds_lists(rows, column):
            continue
        if column == task.label and task.options is None:
            _refuse_vectors_in_text(rows, column)
        rows = changed_rows(rows, column, _list_of_text)
        note = f"the lists in {column!r} are written as text, and read as lists"
        rows = replace(rows, notes=(*rows.notes, note))
        if column == task.label and task.text is not None and _holds_lists(rows, task.text):
            rows = changed_rows(rows, task.text, _list_of_text)
    return rows


def _refuse_vectors_in_text(rows: Table, column: str) -> None:
    """Raise UsageError for labels that are vectors of 0 and 1, written as text."""
    values = [value.strip() for value in rows.values(column) if isinstance(value, str) and value.strip()]
    if values and all(re.fullmatch(r"\[[\s,]*([01](\.0*)?[\s,]+)+[01](\.0*)?[\s,]*\]", value) for value in values):
        why = f"holds vectors of 0 and 1 as text, such as {values[0][:40]!r}"
        remedy = "write a column of 0 and 1 for each label, and name them all: --label toxic rude threat"
        raise UsageError(f"column {column!r}", why, remedy)


def _holds_lists(rows: Table, column: str) -> bool:
    """Return whether all texts of a column that are not empty are written as lists, and at least one has brackets."""
    found = False
    for value in rows.values(column):
        if isinstance(value, tuple):
            return False
        value = (value or "").strip()
        if value:
            if not (value.startswith("[") and value.endswith("]")):
                return False
            found = True
    return found


def _list_of_text(row: Row, value: Field) -> Field:
    if not isinstance(value, str) or not value.strip():
        return () if isinstance(value, str) else value
    text = value.strip()
    remedy = "write the rows as .jsonl or .parquet, where lists are lists"
    if re.search(r"""(['"])\s+(['"])""", re.sub(r"""(['"])\s*,\s*(['"])""", ",", text)):
        raise DamagedData(row.where, f"{text[:40]!r} is a list without commas", remedy)
    items: Any = None
    try:
        items = json.loads(text)
    except ValueError:
        try:
            items = ast.literal_eval(text)
        except (ValueError, SyntaxError):
            inner = text[1:-1].strip()
            if inner and not re.search(r"""['"\[\]{}]""", inner):
                items = [part.strip() for part in (inner.split(",") if "," in inner else inner.split())]
    if not isinstance(items, list) or any(isinstance(item, list | dict | tuple) for item in items):
        raise DamagedData(row.where, f"{text[:40]!r} is not a list of texts", remedy)
    return tuple(str(item) for item in items if item is not None)


# --------------------------------------------------------------------------------------------------------------------
# Labels in several columns of 0 and 1, and in vectors.

_TRUE = {"1", "true", "yes", "y", "x", "t"}
_FALSE = {"0", "false", "no", "n", "", "f", "-"}


def _labels_of_columns(task: TableTask, rows: Table, source: object) -> tuple[TableTask, Table]:
    """Several columns become one with a list of labels: the names of those with a 1, or what is in the columns."""
    names = task.label_columns
    if names is None:
        return task, rows
    column = ", ".join(names)
    columns = rows.columns
    missing = [name for name in names if name not in columns]
    if task.kind not in (None, "multi-label", "classification"):
        raise UsageError("--label", f"several columns do not go with {task.kind}", "name one")
    task = replace(task, label=column, kind="multi-label" if task.kind is None else task.kind)
    if task.label_cells is None:
        cells = [label_key(value).lower() for name in names for value in rows.values(name) if isinstance(value, str)]
        filled = [cell for cell in cells if cell]
        n_switches = sum(cell in _TRUE | _FALSE for cell in filled)
        task = replace(task, label_cells="labels" if n_switches < len(filled) / 2 else "switches")
    if task.label_cells == "switches":
        task = replace(task, labels=task.labels or names)
    if missing:
        if len(missing) == len(names):
            return task, rows  # rows without labels
        raise DamagedData(source, f"has no column {missing[0]!r}", did_you_mean(missing[0], columns))
    labels = task.labels or names
    are_labels = task.label_cells == "labels"
    if not are_labels and len(labels) != len(names):
        raise UsageError("--labels", f"has {len(labels)} names for {len(names)} columns", "name each")
    result = []
    for row in rows.rows:
        own: list[str] = []
        for at, name in enumerate(names):
            written = row.fields.get(name, "")
            if are_labels:
                own += map(clean_label, (written,) if isinstance(written, str) else written)
                continue
            text = label_key(written).lower() if isinstance(written, str) else "a list"
            if text not in _TRUE | _FALSE:
                why = f"{written!r} in column {name!r} is neither 0 nor 1"
                raise DamagedData(row.where, why, "several columns of --label hold 0 or 1 each, or a label each")
            if text in _TRUE:
                own.append(labels[at])
        value: Field = tuple(dict.fromkeys(filter(None, own)))
        if task.kind == "classification":
            if len(value) != 1:
                why = f"has {len(value)} labels in {column}"
                remedy = "--kind classification needs exactly one, leave it out for several labels"
                raise DamagedData(row.where, why, remedy)
            value = value[0]
        result.append(replace(row, fields={**row.fields, column: value}))
    notes = (*rows.notes, f"the columns {column} hold a label each, or none") if are_labels else rows.notes
    return task, replace(rows, rows=result, notes=notes)


def single_labels(task: TableTask, rows: Table) -> Table:
    """Rows with a text in the place of a list of one label, for a task with one label in each row."""
    column = task.label
    if column is None or not any(isinstance(value, tuple) for value in rows.values(column)):
        return rows

    def convert(row: Row, value: Field) -> Field:
        if isinstance(value, str):
            return value
        if len(value) > 1:
            raise DamagedData(row.where, f"has {len(value)} labels in column {column!r}", "say --kind multi-label")
        return value[0] if value else ""

    return changed_rows(rows, column, convert)


def _labels_of_vectors(
    task: TableTask, rows: Table, inferred: list[Inferred], to_learn: bool
) -> tuple[TableTask, Table]:
    """Vectors of 0 and 1, as many for every row, become the labels of the positions with a 1."""
    column = task.label
    if column is None or task.label_columns is not None or task.words is not None or task.options is not None:
        return task, rows
    values = [value for value in rows.values(column) if value is not None]
    if not values or not all(isinstance(value, tuple) for value in values):
        return task, rows
    sizes = set(map(len, values))
    flat = {label_key(item) for value in values for item in value}
    repeated = any(len(set(map(label_key, value))) < len(value) for value in values)
    if len(sizes) != 1 or not flat <= {"0", "1"} or not repeated:
        return task, rows
    (size,) = sizes
    names = task.labels
    if names is None:
        why = f"holds vectors of {size} numbers 0 or 1, which have no names"
        raise UsageError(f"column {column!r}", why, f"name the label of each position: --labels A B ... ({size} names)")
    if len(names) != size:
        raise UsageError(
            "--labels", f"has {len(names)} names, the vectors in {column!r} have {size} numbers", "name each"
        )
    hot = [[at for at, item in enumerate(value) if label_key(item) == "1"] for value in values]
    single = all(len(each) == 1 for each in hot)
    kind = task.kind or ("classification" if single else "multi-label")
    if kind not in ("classification", "multi-label"):
        raise UsageError(f"column {column!r}", "holds vectors of 0 and 1", "they are labels: leave out --kind number")
    if kind == "classification" and not single:
        raise UsageError(
            "--kind classification", f"the vectors in {column!r} have several ones", "say --kind multi-label"
        )
    if to_learn:
        why = f"{column!r} holds vectors with {'one 1 each' if single else 'any number of ones'}"
        inferred.append(Inferred("task", kind, why, "--kind multi-label" if single else "a column of labels"))

    def convert(row: Row, value: Field) -> Field:
        true = tuple(names[at] for at, item in enumerate(value) if label_key(item) == "1")
        return true[0] if kind == "classification" else true

    return replace(task, kind=kind, labels=names), changed_rows(rows, column, convert)


# --------------------------------------------------------------------------------------------------------------------
# Labels: blanks and quotes around them do not count, and 1.0 is 1.

_BLANKS = " \t\r\n\u00a0\u200b\u200c\u200d\u2060\ufeff"


def clean_label(text: str) -> str:
    """A label without blanks and a pair of quotes around it."""
    text = text.strip().strip(_BLANKS)
    if len(text) > 2 and text[0] == text[-1] and text[0] in "\"'" and text[0] not in text[1:-1]:
        text = text[1:-1].strip().strip(_BLANKS)
    return text


def label_key(text: str) -> str:
    """What makes two labels equal: `1.0` is `1`, and blanks around a label do not count."""
    text = clean_label(text)
    if re.fullmatch(r"[+-]?\d{1,15}\.0+", text) and as_number(text) is not None:
        return text.partition(".")[0]
    return text


def equal_labels(labels: Mapping[str, int]) -> dict[str, str]:
    """A spelling for each label that occurs, the shortest and most frequent of those that are equal.

    Labels such as 0.0 and 1.0 are whole numbers, which pandas writes so beside an empty cell. They become 0 and 1,
    unless another label has a fraction.
    """
    have_fractions = any(re.fullmatch(r"[+-]?\d*\.\d*[1-9]\d*", label) for label in map(clean_label, labels))
    groups: dict[str, list[str]] = {}
    for label in labels:
        groups.setdefault(label_key(label), []).append(label)
    spelling = {}
    for group in groups.values():
        best = min(group, key=lambda label: (len(label), -labels[label], label))
        if best.endswith(".0") and not have_fractions:
            best = label_key(best)
        spelling.update(dict.fromkeys(group, best))
    return spelling


def _clean_labels(task: TableTask, rows: Table) -> Table:
    def stripped(row: Row, value: Field) -> Field:
        return value if isinstance(value, str) else tuple(each.strip() for each in value)

    if task.label is not None:
        different = set(rows.values(task.label))
        if any(value is not None and value != _cleaned(value) for value in different):
            rows = changed_rows(rows, task.label, lambda row, value: _cleaned(value))
    if task.tags is not None:
        rows = changed_rows(rows, task.tags, stripped)
    return rows


def _cleaned(value: Field) -> Field:
    return clean_label(value) if isinstance(value, str) else tuple(map(clean_label, value))


def _labelled_rows(task: TableTask, rows: Table) -> Table:
    """Rows with a label; the others are counted."""
    column = task.label or task.tags
    if column is None or column not in rows.columns:
        return rows
    kept = [row for row in rows.rows if row.fields.get(column) not in (None, "")]
    return replace(rows, rows=kept, counts={**rows.counts, "rows_without_label": len(rows.rows) - len(kept)})


# --------------------------------------------------------------------------------------------------------------------
# Numbers to predict: digits with a decimal point, or with a decimal comma if `decimal` says so.

_COMMA_NUMBER = re.compile(r"[+-]?\d+,\d+")
_IN_THOUSANDS = re.compile(r"[1-9]\d{0,2}\.\d{3}")
"""A number that may be one of thousands: 6.411."""
_WRITTEN = re.compile(r"[-+]?\s*[$€£¥₹]?\s*[-+]?\d[\d.,'’\u00a0\u202f ]*\s*(%|€|\$|£|¥|₹|[A-Za-z]{2,3})?")
_PLAIN_NUMBERS = "write digits with a decimal point, without signs of thousands, currencies and units: 1164.5"
DECIMAL_COMMA = "say reading.decimal=, if the comma is the decimal sign; otherwise " + _PLAIN_NUMBERS


def looks_like_a_written_number(text: str) -> bool:
    """Return whether a text is a number with a currency, a unit, or separators of thousands."""
    return _WRITTEN.fullmatch(text) is not None and not re.fullmatch(r"0\d+|\d+([._]\d+){2,}", text)


def refuse_comma_numbers(values: Iterable[str], column: str) -> None:
    """Raise UsageError for labels that are numbers, of which some have a comma."""
    example = None
    for value in values:
        if _COMMA_NUMBER.fullmatch(value):
            example = example or value
        elif as_number(value) is None:
            return
    if example is not None:
        raise UsageError(f"column {column!r}", f"holds numbers with a comma, such as {example!r}", DECIMAL_COMMA)


def _decimal_points(task: TableTask, rows: Table, inferred: list[Inferred], to_learn: bool) -> Table:
    """Numbers with a decimal comma become numbers with a point, if the task says so."""
    column = task.label
    if task.decimal != "," or column is None or task.kind not in (None, "regression"):
        return rows
    values = [value for value in rows.values(column) if isinstance(value, str) and value]
    example = next((value for value in values if _COMMA_NUMBER.fullmatch(value)), None)
    if example is not None and to_learn:
        point = example.replace(",", ".")
        inferred.append(
            Inferred("numbers", f"{example} as {point}", "the decimal sign is a comma", "reading.decimal=.")
        )

    def convert(row: Row, value: Field) -> Field:
        if not isinstance(value, str):
            return value
        if "." in value and as_number(value.replace(",", "")) is not None:
            why = f"{value!r} in column {column!r} has a point, though the decimal sign is a comma"
            raise DamagedData(row.where, why, _PLAIN_NUMBERS)
        return value.replace(",", ".") if _COMMA_NUMBER.fullmatch(value) else value

    return changed_rows(rows, column, convert)


def check_numbers(task: TableTask, rows: Table, to_learn: bool) -> None:
    """Raise UsageError for numbers to predict with a comma, a currency, a unit, or perhaps a sign of thousands."""
    column = task.label
    if column is None:
        return
    values = [value for value in rows.values(column) if isinstance(value, str) and value]
    written = [value for value in values if as_number(value) is None and looks_like_a_written_number(value)]
    if written:
        remedy = DECIMAL_COMMA if _COMMA_NUMBER.fullmatch(written[0]) else _PLAIN_NUMBERS
        raise UsageError(f"column {column!r}", f"{written[0]!r} is not a plain number", remedy)
    if not to_learn or task.decimal is not None:
        return
    in_thousands = [value for value in values if _IN_THOUSANDS.fullmatch(value)]
    others = [value for value in values if not _IN_THOUSANDS.fullmatch(value)]
    if in_thousands and others and all(value.isdecimal() and len(value) <= 3 for value in others):
        why = f"{in_thousands[0]!r} beside {others[0]!r} may have a decimal point or a sign of thousands"
        thousands = in_thousands[0].replace(".", "")
        raise UsageError(
            f"column {column!r}", why, f"say reading.decimal=. if it is decimal, otherwise write {thousands}"
        )
