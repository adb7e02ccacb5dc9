"""Texts to the ids that a model reads, many at once, and ids back to words."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from albert.runtime.errors import UsageError
from albert.tasks.features import keep_longest_first
from albert.text.tokenizer import Tokenizer

MASK = "[MASK]"


class UnansweredTexts(UsageError):
    """Some of many texts cannot be answered, and why not.

    Args:
        subject: what they are: "text", "context".
        reasons: for each of them, by its number among the texts, what is wrong with it and what to do.
    """

    def __init__(self, subject: str, reasons: Mapping[int, tuple[str, str | None]]) -> None:
        self.reasons = dict(reasons)
        number, (why, remedy) = min(self.reasons.items())
        super().__init__(subject if number == 0 else f"{subject} {number + 1}", why, remedy)


@dataclass(frozen=True)
class EncodedTexts:
    """`[CLS] A [SEP]` or `[CLS] A [SEP] B [SEP]`, one for each text or pair.

    `ids` and `token_types` are int64 [length]; `cut` counts the tokens that did not fit.
    """

    ids: list[np.ndarray]
    token_types: list[np.ndarray]
    cut: list[int]


def encode_texts(tokenizer: Tokenizer, parts: Sequence[Sequence[str]], max_length: int) -> EncodedTexts:
    """Many texts, or pairs of texts, cut longest-first to `max_length` tokens with the special ones.

    Args:
        tokenizer: the model's.
        parts: one list of texts, or two equally long ones.
        max_length: tokens of a sequence at most.
    """
    runs = [_split(*tokenizer.encode_joined(texts)) for texts in parts]
    cls, sep = (np.array([number], np.int64) for number in (tokenizer.cls_id, tokenizer.sep_id))
    encoded = EncodedTexts([], [], [])
    for texts in zip(*runs, strict=True):
        kept = keep_longest_first([len(text) for text in texts], max_length - 1 - len(texts))
        pieces = [cls]
        for text, count in zip(texts, kept, strict=True):
            pieces += [text[:count], sep]
        ids = np.concatenate(pieces)
        encoded.ids.append(ids)
        encoded.token_types.append((np.arange(len(ids)) >= kept[0] + 2).astype(np.int64))
        encoded.cut.append(sum(map(len, texts)) - sum(kept))
    return encoded


def encode_with_masks(tokenizer: Tokenizer, texts: Sequence[str], max_length: int) -> list[np.ndarray]:
    """Ids (int64 [length]) of texts in which a literal `[MASK]` is the mask; blanks around it say nothing.

    Raises:
        UnansweredTexts: no mask, or more tokens than fit.
    """
    divided = [text.split(MASK) for text in texts]
    runs = iter(_split(*tokenizer.encode_joined([part for parts in divided for part in parts])))
    cls, sep, mask = (
        np.array([number], np.int64) for number in (tokenizer.cls_id, tokenizer.sep_id, tokenizer.mask_id)
    )
    encoded: list[np.ndarray] = []
    reasons: dict[int, tuple[str, str | None]] = {}
    for number, parts in enumerate(divided):
        pieces = [cls]
        for _ in parts:
            pieces += [next(runs), mask]
        encoded.append(np.concatenate([*pieces[:-1], sep]))
        if len(parts) == 1:
            reasons[number] = (f"has no {MASK} to fill", f'write one, as in "The cat {MASK} on the mat."')
        elif len(encoded[-1]) > max_length:
            why = f"has {len(encoded[-1])} tokens, the model reads {max_length}"
            reasons[number] = (why, f"leave only what is near the {MASK}")
    if reasons:
        raise UnansweredTexts("text", reasons)
    return encoded


def said_of_cut(cut: int) -> dict[str, Any]:
    """What a result says of tokens that its text had and nobody read; of none it says nothing."""
    return {"tokens_cut": cut} if cut else {}


def words(tokenizer: Tokenizer, ids: Sequence[int]) -> str:
    """The normalised text of some ids, special pieces written out."""
    return tokenizer.decode(ids, skip_special_tokens=False)


def _split(joined: np.ndarray, counts: np.ndarray) -> list[np.ndarray]:
    """The ids of each text, int64."""
    return np.split(joined.astype(np.int64), np.cumsum(counts)[:-1]) if len(counts) else []
