"""The likeliest pieces for the masks of texts."""

from collections.abc import Sequence

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
    filled: list[list[list[Prediction]]] = [[] for _ in texts]
    for number, logits, _ in model.at(ids, [np.zeros_like(each) for each in ids], masked):
        probabilities = logits.float().softmax(dim=-1)[:, : tokenizer.vocab_size]
        scores, tokens = probabilities.topk(min(top_k, tokenizer.vocab_size), dim=-1)
        filled[number] = [
            [_filled(tokenizer, ids[number], place, token, score) for token, score in zip(*row, strict=True)]
            for place, *row in zip(masked[number].tolist(), tokens.tolist(), scores.tolist(), strict=True)
        ]
    return filled


def _filled(tokenizer: Tokenizer, ids: np.ndarray, place: int, token: int, score: float) -> Prediction:
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
