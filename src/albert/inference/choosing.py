"""Options to probabilities: each is read with the context, and a softmax decides between their scores."""

from collections.abc import Sequence

import numpy as np

from albert.inference.encoding import encode_texts
from albert.inference.packed_model import PackedModel
from albert.text.tokenizer import Tokenizer


def score_options(
    model: PackedModel, tokenizer: Tokenizer, max_length: int, context: str, question: str, options: Sequence[str]
) -> list[tuple[float, int]]:
    """For each option its probability, and how many of its tokens did not fit.

    It is read as `[CLS] context [SEP] question option [SEP]`, or with the option in the place of a blank `_` in the
    question, as RACE is read (Lai et al. 2017; the reference's code).
    """
    second = [question.replace("_", option) if "_" in question else f"{question} {option}" for option in options]
    encoded = [encode_texts(tokenizer, (context, text), max_length) for text in second]
    scores = np.stack(model.rows([each.ids for each in encoded], [each.token_types for each in encoded]))
    exponentials = np.exp(scores.astype(np.float64) - scores.max())
    return list(zip((exponentials / exponentials.sum()).tolist(), (each.cut for each in encoded), strict=True))
