"""The likeliest pieces for the masks of texts."""

from collections.abc import Sequence
from functools import cache, partial

import numpy as np

from albert.inference.abilities import Prediction
from albert.inference.encoding import encode_with_masks, words
from albert.inference.packed_model import PackedModel
from albert.text.tokenizer import Tokenizer


def fill_masks(
    model: PackedModel, tokenizer: Tokenizer, max_length: int, texts: Sequence[str], top_k: int
) -> list[list[list[Prediction]]]:
    """For each mask of each text its `top_k` pieces, under the keys of transformers' pipeline; other masks stay masked.

    Raises:
        UnansweredTexts: no mask, or more text than fits.
    """
    ids = encode_with_masks(tokenizer, texts, max_length)
    masked = [np.flatnonzero(each == tokenizer.mask_id) for each in ids]
    decoded = cache(partial(_piece_text, tokenizer))
    filled: list[list[list[Prediction]]] = [[] for _ in texts]
    for number, logits, _ in model.at(ids, [np.zeros_like(each) for each in ids], masked):
        probabilities = logits.float().softmax(dim=-1)[:, : tokenizer.vocab_size]
        scores, tokens = probabilities.topk(min(top_k, tokenizer.vocab_size), dim=-1)
        for place, *row in zip(masked[number].tolist(), tokens.tolist(), scores.tolist(), strict=True):
            left, right, unfilled = _around(tokenizer, ids[number].tolist(), place)
            predictions = []
            for token, score in zip(*row, strict=True):
                special, shown, first, later = decoded(token)
                sequence = unfilled if special else f"{left}{later if left else first}{right}".strip()
                predictions.append({"score": score, "token": token, "token_str": shown, "sequence": sequence})
            filled[number].append(predictions)
    return filled


def _around(tokenizer: Tokenizer, ids: Sequence[int], place: int) -> tuple[str, str, str]:
    """The text before a mask and after it, and both without anything between.

    They are decoded once for all pieces that may fill the mask: decoding whole texts anew took almost all of the time.
    """
    dropped = {*tokenizer.special_ids} - {tokenizer.mask_id}
    before, after = ([piece for piece in part if piece not in dropped] for part in (ids[:place], ids[place + 1 :]))
    mask = tokenizer.piece(tokenizer.mask_id)
    left = words(tokenizer, [*before, tokenizer.mask_id]).removesuffix(mask).removesuffix(" ")
    right = words(tokenizer, [tokenizer.mask_id, *after]).removeprefix(mask)
    return left, right, words(tokenizer, [*before, *after])


def _piece_text(tokenizer: Tokenizer, piece: int) -> tuple[bool, str, str, str]:
    """Of a piece: whether it is special, its text alone, at the beginning of a text, and after other words."""
    mask_id, mask = tokenizer.mask_id, tokenizer.piece(tokenizer.mask_id)
    first = words(tokenizer, [piece, mask_id]).removesuffix(mask).removesuffix(" ")
    later = words(tokenizer, [mask_id, piece, mask_id]).removeprefix(mask).removesuffix(mask).removesuffix(" ")
    return piece in tokenizer.special_ids, words(tokenizer, [piece]), first, later
