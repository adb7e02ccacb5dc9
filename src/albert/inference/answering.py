"""Questions and contexts to answers: windows, logits, the best spans and their probabilities, or no answer."""

from collections.abc import Sequence

from albert.inference.abilities import Prediction
from albert.inference.encoding import UnansweredTexts, said_of_cut
from albert.inference.lengths import Lengths
from albert.inference.packed_model import PackedModel
from albert.tasks.answers import Answers, best_answers
from albert.tasks.examples import Example
from albert.tasks.null_threshold import NullThreshold, decide
from albert.tasks.windows import span_features
from albert.text.tokenizer import Tokenizer

ANSWER_TOKENS = 30


def find_answers(
    model: PackedModel,
    tokenizer: Tokenizer,
    lengths: Lengths,
    questions: Sequence[str],
    contexts: Sequence[str],
    top_k: int,
    threshold: NullThreshold | None,
) -> list[list[Prediction]]:
    """For each question its best `top_k` answers with their probabilities and how many of its tokens were cut.

    An empty answer, from 0 to 0, says that there is none. The probability is among all spans of at most 30 tokens in
    all windows, and no answer where there may be none. A threshold decides whether that comes first; None: every
    question has an answer.

    Raises:
        UnansweredTexts: contexts without text.
    """
    length = lengths.max_length
    question_length = min(lengths.question_length, max(1, (length - 3) // 3))
    stride = max(1, min(lengths.stride, (length - 3 - question_length) // 2))
    examples = [Example("question", "question", texts) for texts in zip(questions, contexts, strict=True)]
    features = span_features(examples, tokenizer, length, question_length, stride)
    sequences = features.sequences
    everything = range(len(sequences))
    rows = model.rows([sequences.token_ids(i) for i in everything], [sequences.token_type_ids(i) for i in everything])
    found = best_answers(examples, features, rows, ANSWER_TOKENS, top_k, threshold is not None)
    empty = {number: ("holds no text to answer from", None) for number, each in enumerate(found) if not each.candidates}
    if empty:
        raise UnansweredTexts("context", empty)
    asked = tokenizer.encode_batch(questions)
    cut = [said_of_cut(max(len(ids) - question_length, 0)) for ids in asked]
    return [
        [answer | said for answer in _ranked(each, threshold)[:top_k]] for each, said in zip(found, cut, strict=True)
    ]


def _ranked(answers: Answers, threshold: NullThreshold | None) -> list[Prediction]:
    found = [_answer(each.text, each.start, each.end, each.probability) for each in answers.candidates]
    if threshold is None:
        return found
    none = _answer("", 0, 0, answers.no_answer_probability)
    answered = decide([answers], threshold)[0].answered
    first, *others = found
    likeliest = sorted([none, *others], key=lambda each: -each["score"])
    return [first, *likeliest] if answered else [none, *found]


def _answer(text: str, start: int, end: int, probability: float) -> Prediction:
    return {"score": probability, "start": start, "end": end, "answer": text}
