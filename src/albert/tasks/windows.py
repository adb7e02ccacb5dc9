"""Questions and contexts to windows: long contexts are cut into overlapping pieces that together hold every
token.

`[CLS] question [SEP] context piece [SEP]`, at most `max_length` tokens. A token that lies in several windows
is judged in the one where it has most context around it (Devlin et al. 2019).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from albert.runtime.errors import InvalidConfiguration
from albert.runtime.progress import progress
from albert.tasks.examples import Example
from albert.tasks.features import Sequences, join_sequences
from albert.tasks.task import Answer
from albert.text.tokenizer import Tokenizer

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
