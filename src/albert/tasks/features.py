"""Examples to token ids: single texts and pairs, windows of long contexts, words with tags. Every cut is counted."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np

from albert.runtime.errors import InvalidConfiguration
from albert.runtime.progress import progress
from albert.tasks.examples import Example
from albert.tasks.task import Answer
from albert.text.tokenizer import Tokenizer

ENCODING_CHUNK = 2048


@dataclass(frozen=True)
class Sequences:
    """Many token sequences, end to end, in one array each for ids and boundaries.

    `starts` has one entry per sequence and a last one for the end; `first_lengths` counts the tokens up to
    and including the first `[SEP]`, which have type 0 (the rest have type 1).
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

    def places(self, members: np.ndarray) -> np.ndarray:
        """Where the tokens of these sequences are in `tokens`, one sequence after the other: int64 [their tokens]."""
        lengths = self.lengths[members]
        starts = np.cumsum(lengths) - lengths
        return np.repeat(self.starts[members] - starts, lengths) + np.arange(lengths.sum())

    def select(self, members: np.ndarray) -> "Sequences":
        """The sequences with these indices, in this order."""
        starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(self.lengths[members])])
        return Sequences(self.tokens[self.places(members)], starts, self.first_lengths[members])


@dataclass(frozen=True)
class TextFeatures:
    """Sequences in the order of the examples, their targets, how many were cut, and by how many tokens.

    Targets are label ids or numbers [examples], or which labels are true: float32 [examples, labels].
    """

    sequences: Sequences
    targets: np.ndarray
    truncated: int
    tokens_cut: int


def join_sequences(parts: Sequence[tuple[Sequence[int], int]]) -> Sequences:
    """Sequences from (ids, first length) pairs."""
    lengths = np.fromiter((len(ids) for ids, _ in parts), np.int64, len(parts))
    starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
    tokens = np.fromiter((token for ids, _ in parts for token in ids), np.int32, int(starts[-1]))
    return Sequences(tokens, starts, np.fromiter((first for _, first in parts), np.int32, len(parts)))


def text_features(
    examples: Sequence[Example], tokenizer: Tokenizer, max_length: int, n_labels: int | None = None
) -> TextFeatures:
    """One sequence per example, at most `max_length` tokens with `[CLS]` and `[SEP]`.

    Two texts are cut longest-first from their ends, as the reference does: one token at a time from the
    longer one, from the second when they are equally long. `n_labels` is the number of labels where any of them
    may be true at once.

    Raises:
        InvalidConfiguration: `max_length` leaves no room for text.
    """
    n_texts = len(examples[0].texts) if examples else 1
    room = max_length - 1 - n_texts
    if room < n_texts:
        raise InvalidConfiguration("max_length", f"{max_length} leaves no room for text", "use a larger value")
    encoded = [_encode_all([example.texts[i] for example in examples], tokenizer) for i in range(n_texts)]
    parts, truncated, tokens_cut = [], 0, 0
    for texts in zip(*encoded, strict=True):
        kept = keep_longest_first([len(ids) for ids in texts], room)
        cut = sum(map(len, texts)) - sum(kept)
        truncated, tokens_cut = truncated + (cut > 0), tokens_cut + cut
        ids = [tokenizer.cls_id]
        for text, count in zip(texts, kept, strict=True):
            ids += [*text[:count], tokenizer.sep_id]
        parts.append((ids, kept[0] + 2))
    targets = _single_targets(examples) if n_labels is None else _label_sets(examples, n_labels)
    return TextFeatures(join_sequences(parts), targets, truncated, tokens_cut)


def _single_targets(examples: Sequence[Example]) -> np.ndarray:
    targets = [0 if example.target is None else example.target for example in examples]
    return np.asarray(targets, np.float32 if any(isinstance(target, float) for target in targets) else np.int64)


def _label_sets(examples: Sequence[Example], n_labels: int) -> np.ndarray:
    true = np.zeros((len(examples), n_labels), np.float32)
    for row, example in zip(true, examples, strict=True):
        if isinstance(example.target, tuple):
            row[list(example.target)] = 1.0
    return true


def keep_longest_first(lengths: Sequence[int], room: int) -> list[int]:
    """How many tokens of one or two texts stay when together they may have `room`.

    The same result as removing single tokens from the longer text, from the second on a tie, until they fit.
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


def _encode_all(texts: Sequence[str], tokenizer: Tokenizer) -> list[list[int]]:
    encoded: list[list[int]] = []
    with progress("Encoding", total=len(texts), unit="texts") as bar:
        for start in range(0, len(texts), ENCODING_CHUNK):
            chunk = list(texts[start : start + ENCODING_CHUNK])
            encoded += tokenizer.encode_batch(chunk)
            bar.advance(len(chunk))
    return encoded


# --------------------------------------------------------------------------------------------------------------------
# Questions and contexts to windows: long contexts are cut into overlapping pieces that together hold every token.
#
# `[CLS] question [SEP] context piece [SEP]`, at most `max_length` tokens. A token that lies in several windows is
# judged in the one where it has most context around it (Devlin et al. 2019).

COUNTED = (
    "windows",
    "windows_without_answer",
    "questions_truncated",
    "contexts_in_several_windows",
    "answers_not_aligned",
)


@dataclass(frozen=True)
class Window:
    """Where one sequence lies in its example's context.

    `example` is the example's index; tokens `first_token` .. `first_token + n_tokens` of the context stand in
    the sequence from position `offset` on. `best` (bool [n_tokens]) marks the tokens that have most context
    here.
    """

    example: int
    offset: int
    first_token: int
    n_tokens: int
    best: np.ndarray


@dataclass(frozen=True)
class SpanFeatures:
    """Windows of all examples in order.

    `character_spans[example]` (int [context tokens, 2]) are the tokens' places in the context. `targets`
    (int64 [windows, 2]) are first and last position of the answer within the sequence, -1 where the window
    does not hold it. `counts` says how many questions were cut, answers not aligned, and windows without the
    answer.
    """

    sequences: Sequences
    windows: list[Window]
    character_spans: list[np.ndarray]
    targets: np.ndarray
    counts: dict[str, int]


def span_features(
    examples: Sequence[Example], tokenizer: Tokenizer, max_length: int, question_length: int, stride: int
) -> SpanFeatures:
    """The windows of every example; the target is the first gold answer.

    Raises:
        InvalidConfiguration: `stride` is larger than the room for context, so that tokens would be skipped.
    """
    room = max_length - question_length - 3
    if room < stride:
        raise InvalidConfiguration(
            "stride",
            f"{stride} exceeds the {room} context tokens that fit beside a question of {question_length}",
            "use a smaller stride or question length, or a larger maximum length",
        )
    counts: dict[str, int] = dict.fromkeys(COUNTED, 0)
    encoded = _OffsetCache(tokenizer)
    parts, windows, spans, targets = [], [], [], []
    with progress("Encoding", total=len(examples), unit="questions") as bar:
        for index, example in enumerate(examples):
            question, context = example.texts
            question_ids = tokenizer.encode(question)
            counts["questions_truncated"] += len(question_ids) > question_length
            question_ids = question_ids[:question_length]
            context_ids, context_spans = encoded.encode(context)
            answer = token_span(context_spans, example.answers[0]) if example.answers else None
            counts["answers_not_aligned"] += bool(example.answers) and answer is None
            pieces = cut_windows(len(context_ids), max_length - len(question_ids) - 3, stride)
            counts["contexts_in_several_windows"] += len(pieces) > 1
            offset = len(question_ids) + 2
            for (start, stop), best in zip(pieces, best_windows(pieces, len(context_ids)), strict=True):
                ids = [
                    tokenizer.cls_id,
                    *question_ids,
                    tokenizer.sep_id,
                    *context_ids[start:stop],
                    tokenizer.sep_id,
                ]
                parts.append((ids, offset))
                windows.append(Window(index, offset, start, stop - start, best))
                inside = answer is not None and start <= answer[0] and answer[1] < stop
                target = (answer[0] - start + offset, answer[1] - start + offset) if answer and inside else (-1, -1)
                counts["windows_without_answer"] += not inside
                targets.append(target)
            spans.append(context_spans)
            bar.advance()
    counts["windows"] = len(windows)
    return SpanFeatures(join_sequences(parts), windows, spans, np.asarray(targets, np.int64).reshape(-1, 2), counts)


def cut_windows(n_tokens: int, room: int, stride: int) -> list[tuple[int, int]]:
    """`(start, stop)` of pieces of at most `room` tokens, `stride` apart, that together hold all `n_tokens`.

    A context without tokens has one empty piece.
    """
    pieces, start = [], 0
    while True:
        stop = min(start + room, n_tokens)
        pieces.append((start, stop))
        if stop == n_tokens:
            return pieces
        start += min(stride, room)


def best_windows(pieces: Sequence[tuple[int, int]], n_tokens: int) -> list[np.ndarray]:
    """For each piece, which of its tokens have most context there (bool); each token in exactly one piece.

    Context is the smaller of the tokens to the left and to the right, plus 0.01 x the length of the piece, as
    in the reference; the earlier piece wins a tie.
    """
    most, winner = np.full(n_tokens, -1.0), np.zeros(n_tokens, np.int64)
    for row, (start, stop) in enumerate(pieces):
        left = np.arange(stop - start)
        context = np.minimum(left, left[::-1]) + 0.01 * (stop - start)
        more = np.flatnonzero(context > most[start:stop])
        most[start + more], winner[start + more] = context[more], row
    return [winner[start:stop] == row for row, (start, stop) in enumerate(pieces)]


def token_span(character_spans: np.ndarray, answer: Answer) -> tuple[int, int] | None:
    """First and last token that share a character with the answer; None when its place is unknown or holds no
    token.
    """
    if answer.start is None:
        return None
    end = answer.start + len(answer.text)
    touched = np.flatnonzero((character_spans[:, 0] < end) & (character_spans[:, 1] > answer.start))
    return (int(touched[0]), int(touched[-1])) if len(touched) else None


class _OffsetCache:
    """Encodes a context once for the questions that follow each other on it."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._text: str | None = None
        self._result: tuple[list[int], np.ndarray] = ([], np.zeros((0, 2), np.int64))

    def encode(self, text: str) -> tuple[list[int], np.ndarray]:
        """Ids, and character places int64 [tokens, 2]."""
        if text != self._text:
            ids, offsets = self._tokenizer.encode_with_offsets(text)
            self._text, self._result = text, (ids, np.asarray(offsets, np.int64).reshape(-1, 2))
        return self._result


# --------------------------------------------------------------------------------------------------------------------
# Words to pieces: where each word's label sits, and overlapping windows in which every word is judged once.
#
# A word is encoded by itself, so that its pieces do not depend on its neighbours, and judged at its first piece
# (Devlin et al. 2019, §5.3). One that yields no piece, a lone combining mark say, is read as the unknown piece: it
# is learnt, judged and scored like any other. A sentence longer than the model reads goes through in windows that
# overlap by half; a word is judged in the one where its first piece has most context.

NOT_JUDGED = -100
"""The target of tokens that have none: torch and transformers leave it out of the loss."""


@dataclass(frozen=True)
class WordSequences:
    """Sentences as a model reads them.

    Attributes:
        sequences: the windows of all sentences in order; a short sentence is one, an empty one `[CLS] [SEP]`.
        first_pieces: for every word of all sentences, in order, where it is judged: an index into all tokens of
            `sequences`, end to end (int64 [words]).
        n_words: words of each sentence (int64 [sentences]).
        counts: `words`, `words_without_pieces`, `sentences_without_words`, `sentences_in_several_windows`.
    """

    sequences: Sequences
    first_pieces: np.ndarray
    n_words: np.ndarray
    counts: dict[str, int]

    def judged(self, rows: Sequence[np.ndarray]) -> np.ndarray:
        """[words, labels] of what a model gave for each sequence: [length, labels]."""
        return np.concatenate(rows)[self.first_pieces] if rows else np.zeros((0, 0))

    def by_sentence(self, words: np.ndarray) -> list[np.ndarray]:
        """What there is for every word, sentence by sentence."""
        return np.split(words, np.cumsum(self.n_words)[:-1]) if len(self.n_words) else []


@dataclass(frozen=True)
class TagFeatures:
    """Sentences, and for every token of their sequences the id of the label to learn there (int64 [tokens]),
    `NOT_JUDGED` at all but the words' first pieces in the windows that judge them.
    """

    words: WordSequences
    targets: np.ndarray

    @property
    def sequences(self) -> Sequences:
        """All windows."""
        return self.words.sequences

    @property
    def learnable(self) -> np.ndarray:
        """Indices of the sequences in which a word is judged."""
        judged = np.zeros(len(self.targets) + 1, np.int64)
        judged[1:] = np.cumsum(self.targets != NOT_JUDGED)
        return np.flatnonzero(np.diff(judged[self.sequences.starts]))


def tag_features(examples: Sequence[Example], tokenizer: Tokenizer, max_length: int) -> TagFeatures:
    """The windows of every example, whose texts are its words; without labels no token has a target.

    Raises:
        InvalidConfiguration: `max_length` leaves no room for text.
    """
    words = word_sequences([example.texts for example in examples], tokenizer, max_length)
    tags = chain.from_iterable(_tags_of(example) for example in examples)
    targets = np.full(len(words.sequences.tokens), NOT_JUDGED, np.int64)
    targets[words.first_pieces] = np.fromiter(tags, np.int64, len(words.first_pieces))
    return TagFeatures(words, targets)


def word_sequences(sentences: Sequence[Sequence[str]], tokenizer: Tokenizer, max_length: int) -> WordSequences:
    """Sentences, which come in words, as sequences of at most `max_length` tokens with `[CLS]` and `[SEP]`.

    Raises:
        InvalidConfiguration: `max_length` leaves no room for text.
    """
    room = max_length - 2
    if room < 1:
        raise InvalidConfiguration("max_length", f"{max_length} leaves no room for text", "use a larger value")
    pieces = _pieces_of_words(chain.from_iterable(sentences), tokenizer)
    unread = {word for word, ids in pieces.items() if not ids}
    parts: list[tuple[list[int], int]] = []
    judged: list[np.ndarray] = []
    counts = dict.fromkeys(("words_without_pieces", "sentences_without_words", "sentences_in_several_windows"), 0)
    end = 0
    for words in sentences:
        ids: list[int] = []
        firsts = np.zeros(len(words), np.int64)
        for place, word in enumerate(words):
            firsts[place] = len(ids)
            ids += pieces[word] or [tokenizer.unk_id]
            counts["words_without_pieces"] += word in unread
        windows = cut_windows(len(ids), room, max(1, room // 2))
        places = np.zeros(len(ids), np.int64)  # of each piece, among all tokens, where it is judged
        for (start, stop), best in zip(windows, best_windows(windows, len(ids)), strict=True):
            parts.append(([tokenizer.cls_id, *ids[start:stop], tokenizer.sep_id], stop - start + 2))
            places[start:stop][best] = end + 1 + np.flatnonzero(best)
            end += stop - start + 2
        judged.append(places[firsts])
        counts["sentences_without_words"] += not words
        counts["sentences_in_several_windows"] += len(windows) > 1
    n_words = np.fromiter(map(len, sentences), np.int64, len(sentences))
    first_pieces = np.concatenate([np.zeros(0, np.int64), *judged])
    return WordSequences(join_sequences(parts), first_pieces, n_words, {"words": len(first_pieces), **counts})


def _pieces_of_words(words: Iterable[str], tokenizer: Tokenizer) -> dict[str, list[int]]:
    """The ids of each word that occurs."""
    known = list(dict.fromkeys(words))
    pieces: dict[str, list[int]] = {}
    with progress("Encoding", total=len(known), unit="words") as bar:
        for start in range(0, len(known), ENCODING_CHUNK):
            chunk = known[start : start + ENCODING_CHUNK]
            pieces.update(zip(chunk, tokenizer.encode_batch(chunk), strict=True))
            bar.advance(len(chunk))
    return pieces


def _tags_of(example: Example) -> Iterable[int]:
    return example.target if isinstance(example.target, tuple) else [NOT_JUDGED] * len(example.texts)
