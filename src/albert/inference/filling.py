"""The likeliest pieces for the masks of a text."""

from typing import Any

import numpy as np

from albert.inference.encoding import encode_with_masks, words
from albert.inference.packed_model import PackedModel
from albert.model.albert import PreTrainingLogits
from albert.text.tokenizer import Tokenizer


def fill_masks(
    model: PackedModel, tokenizer: Tokenizer, max_length: int, text: str, top_k: int
) -> list[list[dict[str, Any]]]:
    """For each mask, its `top_k` pieces under the keys of transformers' pipeline; the other masks stay masked.

    Raises:
        UsageError: no mask, or more text than fits.
    """
    ids = encode_with_masks(tokenizer, text, max_length)
    masked = np.flatnonzero(ids == tokenizer.mask_id)
    found = model.at(ids, np.zeros_like(ids), masked)
    logits = found.masked_tokens if isinstance(found, PreTrainingLogits) else found
    probabilities = logits.float().softmax(dim=-1)[:, : tokenizer.vocab_size]
    scores, tokens = probabilities.topk(min(top_k, tokenizer.vocab_size), dim=-1)
    return [
        [_filled(tokenizer, ids, place, token, score) for token, score in zip(*row, strict=True)]
        for place, *row in zip(masked.tolist(), tokens.tolist(), scores.tolist(), strict=True)
    ]


def _filled(tokenizer: Tokenizer, ids: np.ndarray, place: int, token: int, score: float) -> dict[str, Any]:
    special = tokenizer.special_ids
    masked = [i for i in np.flatnonzero(ids == tokenizer.mask_id).tolist() if i != place]
    filled = [*ids[:place].tolist(), token, *ids[place + 1 :].tolist()]
    shown = [piece for i, piece in enumerate(filled) if i in masked or piece not in special]
    return {
        "score": score,
        "token": token,
        "token_str": words(tokenizer, [token]),
        "sequence": words(tokenizer, shown),
    }
