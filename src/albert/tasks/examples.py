"""Examples of a task, from files to token ids: rows, checked labels, sequences, windows, words."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from albert.runtime.errors import DamagedData, InvalidConfiguration, MissingInput, did_you_mean
from albert.runtime.progress import Position, progress
from albert.tasks.rows import as_number, fields_of
from albert.tasks.task import (
    Answer,
    Choice,
    Labels,
    Option,
    Pair,
    QuestionInContext,
    Row,
    Rows,
    Score,
    Single,
    Span,
    Tags,
    Task,
    Words,
)
from albert.text.readers import Kind, input_file, open_corpus_file, read_records
from albert.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class Example:
    """One example to learn or predict.

    Attributes:
        texts: one or two texts (question, then context), or the words of one text.
        options: the texts of the options; an empty one is absent.
        target: a label id, the index of an option, a number, the ids of the true labels, or an id for each word; None
            for a span, whose gold answers are `answers`.
        group: examples of the same group are scored together too.
    """

    identifier: str
    where: str
    texts: tuple[str, ...]
    target: int | float | tuple[int, ...] | None = None
    answers: tuple[Answer, ...] = ()
    options: tuple[str, ...] = ()
    group: str = ""


def is_labelled(task: Task, rows: Sequence[Row]) -> bool:
    """Whether at least one row has a gold answer."""
    if isinstance(task.target, Span):
        return any(row.answers is not None for row in rows)
    return any(task.target.column in row.fields for row in rows)


def to_examples(task: Task, rows: Sequence[Row], labelled: bool = True) -> list[Example]:
    """One example per row, in order; without target and answers if not `labelled`."""
    return list(map(example_of(task, labelled), rows))


def example_of(task: Task, labelled: bool = True) -> Callable[[Row], Example]:
    """The function that makes the example of a row; see `to_examples`."""
    columns = text_columns(task)
    label_column = (task.target.column,) if labelled and not isinstance(task.target, Span) else ()
    options = task.target.options if isinstance(task.target, Option) else ()
    labels = task.target.labels if isinstance(task.target, Choice | Labels | Tags) else options
    label_ids = {label: index for index, label in enumerate(labels)}

    def convert(row: Row) -> Example:
        for column in (*columns, *label_column):
            if column not in row.fields:
                raise DamagedData(row.where, f"has no column {column!r}", did_you_mean(column, row.fields))
        if options and sum(option in row.fields for option in options) < 2:
            why = f"has fewer than two options in the columns {', '.join(options[:8])}"
            raise DamagedData(row.where, why, "a question needs at least two")
        if labelled and row.answers is None:
            remedy = "expected the SQuAD JSON layout, or the column --answer of your own table"
            raise DamagedData(row.where, "has no 'answers'", remedy)
        words = isinstance(task.inputs, Words)
        texts = row.texts(*columns) if words else tuple(row.text(column) for column in columns)
        target = _target(task, row, label_ids, len(texts)) if labelled else None
        option_texts = tuple(row.text(option) if option in row.fields else "" for option in options)
        return Example(row.identifier, row.where, texts, target, row.answers or (), option_texts, row.group)

    return convert


def text_columns(task: Task) -> tuple[str, ...]:
    """The columns that hold the task's text or texts."""
    match task.inputs:
        case Single(column) | Words(column):
            return (column,)
        case Pair(first, second):
            return first, second
        case QuestionInContext(question, context):
            return question, context


def _target(task: Task, row: Row, label_ids: dict[str, int], n_words: int) -> int | float | tuple[int, ...] | None:
    match task.target:
        case Choice(column=column):
            return _label_id(row, row.text(column), column, label_ids)
        case Labels(column=column, separator=separator):
            return tuple(sorted({_label_id(row, label, column, label_ids) for label in row.texts(column, separator)}))
        case Tags(column=column):
            tags = row.texts(column)
            if len(tags) != n_words:
                why = f"has {len(tags)} tags in column {column!r} for {n_words} words"
                raise DamagedData(row.where, why, "every word needs one")
            why = "unknown tag {!r} in column {!r}, at word {}"
            return tuple(_label_id(row, tag, column, label_ids, why, at) for at, tag in enumerate(tags, start=1))
        case Option(column=column):
            return _label_id(row, row.text(column), column, label_ids, "{!r} in column {!r} names no option")
        case Score(column, low, high):
            return _number(row, column, low, high)
        case Span():
            return None


def _label_id(
    row: Row, label: str, column: str, ids: dict[str, int], why: str = "unknown label {!r} in column {!r}", at: int = 0
) -> int:
    if label not in ids:
        known = ", ".join(map(repr, list(ids)[:8])) + (", ..." if len(ids) > 8 else "")
        raise DamagedData(row.where, why.format(label, column, at), f"known: {known}")
    return ids[label]


MAX_NUMBER = 3.4e38
"""Numbers are learned and predicted in float32."""


def _number(row: Row, column: str, low: float | None, high: float | None) -> float:
    text = row.text(column).strip()
    value = as_number(text.lstrip("0") if text.isdecimal() and text.isascii() and text.strip("0") else text)
    if value is None:
        raise DamagedData(row.where, f"{text!r} in column {column!r} is not a number", "write it as 1164.5")
    if not abs(value) <= MAX_NUMBER:
        raise DamagedData(row.where, f"{text!r} in column {column!r} is not a finite number of at most 3.4e38")
    if (low is not None and value < low) or (high is not None and value > high):
        raise DamagedData(row.where, f"{value:g} in column {column!r} is not between {low:g} and {high:g}")
    return value


# --------------------------------------------------------------------------------------------------------------------
# Files to rows. No line is skipped: each is a row or an error that names file and line.


@dataclass(frozen=True)
class SplitFiles:
    """One file or folder per split, in `DATA/<folder>/` or in DATA itself, plain or `.gz`.

    `read_file` is called with the path and the name of the split.
    """

    folder: str
    files: Mapping[str, str]
    read_file: Callable[[Path, str], Rows]

    @property
    def splits(self) -> tuple[str, ...]:
        return tuple(self.files)

    def with_files(self, files: Mapping[str, Path]) -> Any:
        return replace(self, files={**self.files, **{split: str(path.absolute()) for split, path in files.items()}})

    def read(self, data: Path, split: str) -> Rows:
        """The rows of a split; InvalidConfiguration if there is no such split, MissingInput if there is no file."""
        if split not in self.files:
            raise InvalidConfiguration(f"split {split}", "unknown", did_you_mean(split, self.files))
        name = self.files[split]
        paths = data / self.folder / name, data / name
        for candidate in (path.with_name(file) for path in paths for file in (path.name, f"{path.name}.gz")):
            if candidate.exists():
                return self.read_file(candidate, split)
        raise MissingInput(data, f"has no {name}", f"expected {paths[0]} or {paths[1]} (or the same .gz)")


def read_text(path: Path) -> str:
    """The text of a UTF-8 file, decompressed by the ending of its name, without a byte order mark."""
    with open_corpus_file(input_file(path, "text")) as (content, _):
        raw = content.read()
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise DamagedData(f"{path}:{line}", f"is not UTF-8: byte {error.start}", "convert the file to UTF-8") from error


def json_entry(value: Any, key: str, kind: type, where: str, layout: str) -> Any:
    """The entry of an object in a benchmark's JSON file; DamagedData if it is missing or has another type."""
    remedy = f"expected {layout}'s JSON layout"
    if not isinstance(value, dict) or key not in value:
        raise DamagedData(where, f"has no {key!r}", remedy)
    if not isinstance(value[key], kind):
        raise DamagedData(where, f"{key!r} is not a {kind.__name__}", remedy)
    return value[key]


def read_rows(path: Path, kind: Kind, columns: Sequence[str] | None = None, drop_broken: bool = False) -> Rows:
    """All rows of a table; values that are not text are converted by `fields_of`.

    Args:
        kind: format of the file: "CSV", "TSV", "JSON lines" or "Parquet".
        columns: names of the columns of a file without a header.
        drop_broken: leave out and count the lines with another number of fields, which are errors otherwise.
    """
    file = input_file(path, kind)
    rows: list[Row] = []
    counts: Counter[str] = Counter()
    unread: Counter[str] = Counter()
    typed = kind in ("JSON lines", "Parquet")
    with progress(f"Reading {path.name}", total=file.size / 1e6, unit="MB") as bar:
        reached = Position(lambda count: bar.advance(count / 1e6), least=1 << 16).reached
        names = None if columns is None else tuple(columns)
        broken = counts if drop_broken else None
        records = read_records(file, columns=names, class_names=True, broken=broken, reached=reached)
        for record in records:
            fields = fields_of(record.fields, record.where, unread) if typed else record.fields
            rows.append(Row(str(len(rows)), record.where, fields))
    if unread:
        counts["fields_not_read"] = unread.total()
    if not rows:
        raise MissingInput(path, "has no rows")
    return Rows(rows, {"rows": len(rows), **counts})


# --------------------------------------------------------------------------------------------------------------------
# Examples to token ids: sequences of one or two texts.

ENCODING_CHUNK = 2048


@dataclass(frozen=True)
class Sequences:
    """Token sequences, concatenated in one array.

    Attributes:
        starts: start of each sequence, and the end of the last.
        first_lengths: number of tokens of type 0, up to and including the first `[SEP]`; the rest have type 1.
    """

    tokens: np.ndarray
    starts: np.ndarray
    first_lengths: np.ndarray

    def __len__(self) -> int:
        return len(self.first_lengths)

    @property
    def lengths(self) -> np.ndarray:
        """Tokens per sequence, int64 [sequences]."""
        return np.diff(self.starts)

    def token_ids(self, index: int) -> np.ndarray:
        """int64 [length]"""
        return self.tokens[self.starts[index] : self.starts[index + 1]].astype(np.int64)

    def token_type_ids(self, index: int) -> np.ndarray:
        """int64 [length]: 0 up to and including the first `[SEP]`, then 1."""
        types = np.ones(self.starts[index + 1] - self.starts[index], np.int64)
        types[: self.first_lengths[index]] = 0
        return types

    def token_indices(self, members: np.ndarray) -> np.ndarray:
        """Indices into `tokens` of the tokens of some sequences: int64 [their tokens]."""
        lengths = self.lengths[members]
        starts = np.cumsum(lengths) - lengths
        return np.repeat(self.starts[members] - starts, lengths) + np.arange(lengths.sum())

    def select(self, members: np.ndarray) -> "Sequences":
        starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(self.lengths[members])])
        return Sequences(self.tokens[self.token_indices(members)], starts, self.first_lengths[members])


@dataclass(frozen=True)
class Features:
    """Sequences in the order of the examples, their targets, and counts of what was cut.

    Attributes:
        targets: label ids, indices of options or numbers [examples]; true labels, float32 [examples, labels]; for
            windows and tags see `SpanFeatures` and `TagFeatures`.
        n_options: consecutive sequences of each example, if all have as many.
        options: of a multiple choice, which options are there (bool [examples, options]); each of them is a sequence.
    """

    sequences: Sequences
    targets: np.ndarray
    counts: dict[str, int]
    n_options: int = 1
    options: np.ndarray | None = None


def join_sequences(parts: Sequence[tuple[Sequence[int], int]]) -> Sequences:
    """Sequences from (ids, first length) pairs."""
    lengths = np.fromiter((len(ids) for ids, _ in parts), np.int64, len(parts))
    starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
    tokens = np.fromiter((token for ids, _ in parts for token in ids), np.int32, int(starts[-1]))
    return Sequences(tokens, starts, np.fromiter((first for _, first in parts), np.int32, len(parts)))


def text_features(
    examples: Sequence[Example], tokenizer: Tokenizer, max_length: int, n_labels: int | None = None
) -> Features:
    """One sequence per example, at most `max_length` tokens with `[CLS]` and `[SEP]`.

    Two texts are truncated longest-first from their ends, as in the reference: one token at a time from the longer one,
    from the second if they are equally long. `n_labels` is the number of labels for multi-label classification.
    """
    n_texts = len(examples[0].texts) if examples else 1
    between = 1 if n_texts == 1 else tokenizer.separators
    room = max_length - n_texts - between
    if room < n_texts:
        raise InvalidConfiguration("max_length", f"{max_length} leaves no room for text", "use a larger value")
    encoded = [encode_all([example.texts[i] for example in examples], tokenizer) for i in range(n_texts)]
    parts = []
    truncated = 0
    tokens_cut = 0
    for texts in zip(*encoded, strict=True):
        kept = keep_longest_first([len(ids) for ids in texts], room)
        cut = sum(map(len, texts)) - sum(kept)
        truncated = truncated + (cut > 0)
        tokens_cut = tokens_cut + cut
        ids = [tokenizer.cls_id, *texts[0][: kept[0]], *[tokenizer.sep_id] * between]
        if n_texts > 1:
            ids += [*texts[1][: kept[1]], tokenizer.sep_id]
        parts.append((ids, kept[0] + 1 + between))
    if n_labels is None:
        values = [0 if example.target is None else example.target for example in examples]
        targets = np.asarray(values, np.float32 if any(isinstance(value, float) for value in values) else np.int64)
    else:
        targets = label_sets(examples, n_labels)
    return Features(join_sequences(parts), targets, {"truncated": truncated, "tokens_cut": tokens_cut})


def label_sets(examples: Sequence[Example], n_labels: int) -> np.ndarray:
    """True labels: float32 [examples, labels], 0 or 1."""
    true = np.zeros((len(examples), n_labels), np.float32)
    for row, example in zip(true, examples, strict=True):
        if isinstance(example.target, tuple):
            row[list(example.target)] = 1.0
    return true


def keep_longest_first(lengths: Sequence[int], room: int) -> list[int]:
    """Numbers of tokens to keep of one or two texts that may have `room` tokens together.

    The same as removing single tokens from the longer text, from the second on a tie, until they fit.
    """
    if sum(lengths) <= room:
        return list(lengths)
    if len(lengths) == 1:
        return [room]
    first, second = lengths
    half = room // 2
    if first <= half:
        return [first, room - first]
    if second <= room - half - 1:
        return [room - second, second]
    return [room - half, half]


def encode_all(texts: Sequence[str], tokenizer: Tokenizer, unit: str = "texts") -> list[list[int]]:
    """Token ids of texts, or of words that stand in a text (`unit` "words"), with a progress bar."""
    encoded: list[list[int]] = []
    with progress("Encoding", total=len(texts), unit=unit) as bar:
        for start in range(0, len(texts), ENCODING_CHUNK):
            chunk = list(texts[start : start + ENCODING_CHUNK])
            encoded += tokenizer.encode_words(chunk) if unit == "words" else tokenizer.encode_batch(chunk)
            bar.advance(len(chunk))
    return encoded


# --------------------------------------------------------------------------------------------------------------------
# Questions and contexts to windows: long contexts are cut into overlapping pieces.
#
# `[CLS] question [SEP] context piece [SEP]`, at most `max_length` tokens. A token in several windows is predicted from
# the one with the most context around it (Devlin et al. 2019).

COUNTED = (
    "windows",
    "windows_without_answer",
    "questions_truncated",
    "contexts_in_several_windows",
    "answers_not_aligned",
)


@dataclass(frozen=True)
class Window:
    """The part of a context in one sequence.

    Attributes:
        example: index of the example.
        offset: position in the sequence of the context token `first_token`, the first of `n_tokens`.
        best: bool [n_tokens], the tokens that have their most context in this window.
    """

    example: int
    offset: int
    first_token: int
    n_tokens: int
    best: np.ndarray


@dataclass(frozen=True, kw_only=True)
class SpanFeatures(Features):
    """Windows of all examples in order.

    `character_spans[example]` (int [context tokens, 2]) are start and end of the tokens in the context. `targets`
    (int64 [windows, 2]) are first and last position of the answer in the sequence, -1 if it is not in the window.
    """

    windows: list[Window]
    character_spans: list[np.ndarray]


def span_features(
    examples: Sequence[Example], tokenizer: Tokenizer, max_length: int, question_length: int, stride: int
) -> SpanFeatures:
    """The windows of every example; the target is the first gold answer."""
    special = 2 + tokenizer.separators
    room = max_length - question_length - special
    if room < stride:
        raise InvalidConfiguration(
            "stride",
            f"{stride} exceeds the {room} context tokens that fit beside a question of {question_length}",
            "use a smaller stride or question length, or a larger maximum length",
        )
    counts: dict[str, int] = dict.fromkeys(COUNTED, 0)
    encode = lru_cache(maxsize=1)(tokenizer.encode_with_offsets)  # questions on the same context are consecutive
    parts = []
    windows = []
    spans = []
    targets = []
    with progress("Encoding", total=len(examples), unit="questions") as bar:
        for index, example in enumerate(examples):
            question, context = example.texts
            question_ids = tokenizer.encode(question)
            counts["questions_truncated"] += len(question_ids) > question_length
            question_ids = question_ids[:question_length]
            context_ids, offsets = encode(context)
            context_spans = np.asarray(offsets, np.int64).reshape(-1, 2)
            answer = token_span(context_spans, example.answers[0]) if example.answers else None
            counts["answers_not_aligned"] += bool(example.answers) and answer is None
            pieces = cut_windows(len(context_ids), max_length - len(question_ids) - special, stride)
            counts["contexts_in_several_windows"] += len(pieces) > 1
            offset = len(question_ids) + 1 + tokenizer.separators
            for (start, stop), best in zip(pieces, best_windows(pieces, len(context_ids)), strict=True):
                first = [tokenizer.cls_id, *question_ids, *[tokenizer.sep_id] * tokenizer.separators]
                parts.append(([*first, *context_ids[start:stop], tokenizer.sep_id], offset))
                windows.append(Window(index, offset, start, stop - start, best))
                inside = answer is not None and start <= answer[0] and answer[1] < stop
                target = (answer[0] - start + offset, answer[1] - start + offset) if answer and inside else (-1, -1)
                counts["windows_without_answer"] += not inside
                targets.append(target)
            spans.append(context_spans)
            bar.advance()
    counts["windows"] = len(windows)
    positions = np.asarray(targets, np.int64).reshape(-1, 2)
    return SpanFeatures(join_sequences(parts), positions, counts, windows=windows, character_spans=spans)


def cut_windows(n_tokens: int, room: int, stride: int) -> list[tuple[int, int]]:
    """`(start, stop)` of pieces of at most `room` tokens, `stride` apart, that cover all tokens; at least one piece."""
    pieces = []
    start = 0
    while True:
        stop = min(start + room, n_tokens)
        pieces.append((start, stop))
        if stop == n_tokens:
            return pieces
        start += min(stride, room)


def best_windows(pieces: Sequence[tuple[int, int]], n_tokens: int) -> list[np.ndarray]:
    """For each piece, a bool mask of its tokens that have the most context there; each token is in exactly one mask.

    Context is the smaller number of tokens to the left or right, plus 0.01 x the length of the piece, as in the
    reference; the first piece wins a tie.
    """
    most = np.full(n_tokens, -1.0)
    winner = np.zeros(n_tokens, np.int64)
    for row, (start, stop) in enumerate(pieces):
        left = np.arange(stop - start)
        context = np.minimum(left, left[::-1]) + 0.01 * (stop - start)
        more = np.flatnonzero(context > most[start:stop])
        most[start + more] = context[more]
        winner[start + more] = row
    return [winner[start:stop] == row for row, (start, stop) in enumerate(pieces)]


def token_span(character_spans: np.ndarray, answer: Answer) -> tuple[int, int] | None:
    """First and last token that overlap the answer; None if its position is unknown or has no token."""
    if answer.start is None:
        return None
    end = answer.start + len(answer.text)
    tokens = np.flatnonzero((character_spans[:, 0] < end) & (character_spans[:, 1] > answer.start))
    return (int(tokens[0]), int(tokens[-1])) if len(tokens) else None


# --------------------------------------------------------------------------------------------------------------------
# Words to pieces, in overlapping windows in which every word is predicted once.
#
# Each word is encoded by itself, so that its pieces do not depend on its neighbours, and predicted at its first piece
# (Devlin et al. 2019, §5.3). A word without pieces, such as a single combining mark, becomes the unknown piece. A long
# sentence is read in windows that overlap by half; a word is predicted where its first piece has most context.

IGNORE_INDEX = -100
"""The target of tokens without a label, which torch and transformers leave out of the loss."""


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
