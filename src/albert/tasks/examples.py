"""Examples of a task, from files to token ids: rows, checked labels, sequences, windows, words."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from albert.runtime.errors import DamagedData, InvalidConfiguration, MissingInput, did_you_mean
from albert.runtime.progress import Position, progress
from albert.tables.fields import fields_of, null_names
from albert.tables.files import Kind, input_file, open_input_file
from albert.tables.records import read_records
from albert.tables.table import Answer, Row, Rows
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
        option_labels: what the options are called in the labels of the file; empty for the names of their columns.
    """

    identifier: str
    where: str
    texts: tuple[str, ...]
    target: int | float | tuple[int, ...] | None = None
    answers: tuple[Answer, ...] = ()
    options: tuple[str, ...] = ()
    group: str = ""
    option_labels: tuple[str, ...] = ()


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
    with open_input_file(input_file(path, "text")) as (content, _):
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
        kind: format of the file: "TSV", "JSON lines" or "Parquet".
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
            nulls = tuple(null_names(record.fields)) if typed else ()
            rows.append(Row(str(len(rows)), record.where, fields, nulls=nulls))
    if unread:
        counts["fields_not_read"] = unread.total()
    if not rows:
        raise MissingInput(path, "has no rows")
    return Rows(rows, {"rows": len(rows), **counts})


# --------------------------------------------------------------------------------------------------------------------
# Examples to token ids: sequences of one or two texts.

ENCODING_CHUNK = 2048
IGNORE_INDEX = -100
"""The target of tokens without a label, which torch and transformers leave out of the loss."""


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


def text_features(examples: Sequence[Example], tokenizer: Tokenizer, max_length: int) -> Features:
    """One sequence per example, at most `max_length` tokens with `[CLS]` and `[SEP]`.

    Two texts that are too long together lose tokens at their ends, as in `tokenizers` (`keep_longest_first`). Targets
    are label ids, or numbers.
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
    values = [example.target if isinstance(example.target, int | float) else 0 for example in examples]
    targets = np.asarray(values, np.float32 if any(isinstance(value, float) for value in values) else np.int64)
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

    As the strategy `longest_first` of the library `tokenizers`: the shorter text keeps up to half of the room, the
    other one the rest. Of texts of the same length the second keeps the odd token.
    """
    if sum(lengths) <= room:
        return list(lengths)
    if len(lengths) == 1:
        return [room]
    first, second = lengths
    if first <= second:
        kept = min(first, room // 2)
        return [kept, room - kept]
    kept = min(second, room // 2)
    return [room - kept, kept]


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
# Long texts as overlapping windows, in which every token is read and one of which has most context for it.


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
