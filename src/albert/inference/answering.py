"""A question and a context to answers: windows, logits, the best spans and their probabilities, or no answer."""

from dataclasses import dataclass

from albert.inference.packed_model import PackedModel
from albert.runtime.errors import UsageError
from albert.tasks.answers import best_answers
from albert.tasks.examples import Example
from albert.tasks.null_threshold import NullThreshold, decide
from albert.tasks.windows import span_features
from albert.text.tokenizer import Tokenizer

# Lengths of the paper's SQuAD recipe (Table 14), where the model has that many positions.
ANSWER_LENGTH, QUESTION_LENGTH, STRIDE, ANSWER_TOKENS = 384, 64, 128, 30


@dataclass(frozen=True)
class Ranked:
    """An answer as people get it; an empty one, from 0 to 0, says that there is none."""

    text: str
    start: int
    end: int
    probability: float


def find_answers(
    model: PackedModel,
    tokenizer: Tokenizer,
    max_length: int,
    question: str,
    context: str,
    top_k: int,
    threshold: NullThreshold | None,
) -> tuple[list[Ranked], int]:
    """The best `top_k` answers with their probabilities, and how many tokens of the question were cut.

    The probability is among all spans of at most 30 tokens in all windows, and no answer where there may be none. A
    threshold decides whether that comes first; None: every question has an answer.

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
    rows = model.rows([sequences.token_ids(i) for i in everything], [sequences.token_type_ids(i) for i in everything])
    answers = best_answers(examples, features, rows, ANSWER_TOKENS, top_k, threshold is not None)[0]
    if not answers.candidates:
        raise UsageError("context", "holds no text to answer from")
    found = [Ranked(each.text, each.start, each.end, each.probability) for each in answers.candidates]
    if threshold is not None:
        none = Ranked("", 0, 0, answers.no_answer_probability)
        answered = decide([answers], threshold)[0].answered
        first, *others = found
        likeliest = sorted([none, *others], key=lambda each: -each.probability)
        found = [first, *likeliest] if answered else [none, *found]
    return found[:top_k], max(len(tokenizer.encode(question)) - question_length, 0)
