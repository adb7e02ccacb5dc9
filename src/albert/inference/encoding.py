"""Texts to the ids that a model reads, and ids back to words."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from albert.runtime.errors import UsageError
from albert.tasks.features import keep_longest_first
from albert.text.tokenizer import Tokenizer

MASK = "[MASK]"


@dataclass(frozen=True)
class EncodedTexts:
    """`[CLS] A [SEP]` or `[CLS] A [SEP] B [SEP]`.

    `ids` and `token_types` are int64 [length]; `cut` counts the tokens that did not fit.
    """

    ids: np.ndarray
    token_types: np.ndarray
    cut: int


def encode_texts(tokenizer: Tokenizer, texts: Sequence[str], max_length: int) -> EncodedTexts:
    """One text or two, cut longest-first to `max_length` tokens with the special ones."""
    parts = [tokenizer.encode(text) for text in texts]
    kept = keep_longest_first([len(part) for part in parts], max_length - 1 - len(parts))
    ids = [tokenizer.cls_id]
    for part, count in zip(parts, kept, strict=True):
        ids += [*part[:count], tokenizer.sep_id]
    types = (np.arange(len(ids)) >= kept[0] + 2).astype(np.int64)
    return EncodedTexts(np.asarray(ids, np.int64), types, sum(map(len, parts)) - sum(kept))


def encode_with_masks(tokenizer: Tokenizer, text: str, max_length: int) -> np.ndarray:
    """Ids (int64 [length]) of a text in which a literal `[MASK]` is the mask; blanks around it say nothing.

    Raises:
        UsageError: no mask, or more tokens than fit.
    """
    first, *others = [tokenizer.encode(part) for part in text.split(MASK)]
    if not others:
        raise UsageError("text", f"has no {MASK} to fill", f'write one, as in "The cat {MASK} on the mat."')
    ids = [tokenizer.cls_id, *first]
    for part in others:
        ids += [tokenizer.mask_id, *part]
    ids.append(tokenizer.sep_id)
    if len(ids) > max_length:
        why = f"has {len(ids)} tokens, the model reads {max_length}"
        raise UsageError("text", why, f"leave only what is near the {MASK}")
    return np.asarray(ids, np.int64)


def words(tokenizer: Tokenizer, ids: Sequence[int]) -> str:
    """The normalised text of some ids, special pieces written out."""
    return tokenizer.decode(ids, skip_special_tokens=False)
