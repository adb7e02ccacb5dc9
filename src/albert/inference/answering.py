"""A question and a context to answers: windows, logits, the best spans and their probabilities."""

import numpy as np

from albert.inference.packed_model import PackedModel
from albert.inference.spans import probability_of_spans
from albert.runtime.errors import UsageError
from albert.tasks.answers import Candidate, best_answers
from albert.tasks.examples import Example
from albert.tasks.windows import span_features
from albert.text.tokenizer import Tokenizer

# Lengths of the paper's SQuAD recipe (Table 14), where the model has that many positions.
ANSWER_LENGTH, QUESTION_LENGTH, STRIDE, ANSWER_TOKENS = 384, 64, 128, 30


def find_answers(
    model: PackedModel, tokenizer: Tokenizer, max_length: int, question: str, context: str, top_k: int
) -> tuple[list[tuple[Candidate, float]], int]:
    """The best spans of a context with their probabilities, and how many tokens of the question were cut.

    The probability is among all spans of at most 30 tokens in all windows.

    Raises:
        UsageError: the context holds no text.
    """
    length = min(ANSWER_LENGTH, max_length)
    question_length = min(QUESTION_LENGTH, max(1, (length - 3) // 3))
    stride = max(1, min(STRIDE, (length - 3 - question_length) // 2))
    examples = [Example("question", "question", (question, context))]
    features = span_features(examples, tokenizer, length, question_length, stride)
    sequences = features.sequences
    everything = range(len(sequences))
    logits = model.rows([sequences.token_ids(i) for i in everything], [sequences.token_type_ids(i) for i in everything])
    starts: list[np.ndarray] = [row[:, 0] for row in logits]
    ends: list[np.ndarray] = [row[:, 1] for row in logits]
    candidates = best_answers(examples, features, starts, ends, ANSWER_TOKENS, max(20, top_k))[0]
    if not candidates:
        raise UsageError("context", "holds no text to answer from")
    probability = probability_of_spans(features, starts, ends, ANSWER_TOKENS)
    cut = max(len(tokenizer.encode(question)) - question_length, 0)
    return [(found, probability(found.score)) for found in candidates[:top_k]], cut
