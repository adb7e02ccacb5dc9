"""Options to probabilities: each is read with the context, and a softmax decides between their scores."""

from collections.abc import Sequence

import numpy as np

from albert.inference.packed_model import PackedModel
from albert.tasks.options import join_option, question_with_option
from albert.text.tokenizer import Tokenizer

QUESTION_LENGTH = 128  # tokens of question and option, as in the paper's recipe for RACE (Table 14)


def score_options(
    model: PackedModel, tokenizer: Tokenizer, max_length: int, context: str, question: str, options: Sequence[str]
) -> list[tuple[float, int]]:
    """For each option its probability, and how many tokens did not fit; it is read as `tasks/options.py` says."""
    question_length = min(QUESTION_LENGTH, max(1, (max_length - 3) // 2))
    passage = tokenizer.encode(context)
    texts = [tokenizer.encode(question_with_option(question, option)) for option in options]
    joined = [join_option(passage, text, tokenizer, max_length, question_length) for text in texts]
    ids = [np.asarray(ids, np.int64) for ids, *_ in joined]
    types = [(np.arange(len(ids)) >= first).astype(np.int64) for ids, first, *_ in joined]
    scores = np.stack(model.rows(ids, types)).astype(np.float64)
    exponentials = np.exp(scores - scores.max())
    return list(zip((exponentials / exponentials.sum()).tolist(), (sum(cut) for _, _, *cut in joined), strict=True))
