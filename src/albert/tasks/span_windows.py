"""Questions and contexts to windows: long contexts are cut into overlapping pieces of at most `max_length` tokens.

A token in several windows is predicted from the one with the most context around it."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from albert.runtime.errors import InvalidConfiguration
from albert.runtime.progress import progress
from albert.tables.table import Answer
from albert.tasks.examples import ENCODING_CHUNK, Example, Features, best_windows, cut_windows, join_sequences
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

    `contexts` and `character_spans` (int [context tokens, 2]: start and end of the tokens in the context) are those of
    the examples. `targets` (int64 [windows, 2]) are first and last position of the answer in the sequence, -1 if it is
    not in the window.
    """

    windows: list[Window]
    contexts: list[str]
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
    slot_of: list[int] = []
    cut: list[int] = []
    windows = []
    spans = []
    targets = []
    quiet = len(examples) <= ENCODING_CHUNK
    with progress("Encoding", total=len(examples), unit="questions", quiet=quiet) as bar:
        for index, example in enumerate(examples):
            question, context = example.texts
            question_ids = tokenizer.encode(question)
            question_cut = max(len(question_ids) - question_length, 0)
            counts["questions_truncated"] += question_cut > 0
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
            slot_of += range(len(pieces))
            cut += [question_cut] * len(pieces)
            spans.append(context_spans)
            bar.advance()
    counts["windows"] = len(windows)
    positions = np.asarray(targets, np.int64).reshape(-1, 2)
    return SpanFeatures(
        sequences=join_sequences(parts),
        targets=positions,
        counts=counts,
        example_of=np.array([window.example for window in windows], np.int64),
        slot_of=np.array(slot_of, np.int64),
        cut=np.array(cut, np.int64),
        windows=windows,
        contexts=[example.texts[1] for example in examples],
        character_spans=spans,
    )


def token_span(character_spans: np.ndarray, answer: Answer) -> tuple[int, int] | None:
    """First and last token that overlap the answer; None if its position is unknown or has no token."""
    if answer.start is None:
        return None
    end = answer.start + len(answer.text)
    tokens = np.flatnonzero((character_spans[:, 0] < end) & (character_spans[:, 1] > answer.start))
    return (int(tokens[0]), int(tokens[-1])) if len(tokens) else None
