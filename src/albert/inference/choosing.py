"""Options to probabilities: each is read with the context, and a softmax decides between their scores."""

from collections.abc import Sequence
from itertools import accumulate, pairwise

import numpy as np

from albert.inference.abilities import Prediction
from albert.inference.early_exit import EarlyExit
from albert.inference.encoding import said_of_cut
from albert.inference.packed_model import PackedModel
from albert.tasks.options import join_option, question_with_option
from albert.text.tokenizer import Tokenizer


def rank_options(
    model: PackedModel | EarlyExit,
    tokenizer: Tokenizer,
    max_length: int,
    question_length: int,
    contexts: Sequence[str],
    questions: Sequence[str],
    options: Sequence[Sequence[str]],
) -> list[list[Prediction]]:
    """The options of each question, the likeliest first: `option`, its `index`, and its probability, `score`.

    They are read as `tasks/options.py` says; `question_length` is the most that question and option take, and at most
    half of what the model reads. A question that was decided early has its `depth`.
    """
    question_length = min(question_length, max(1, (max_length - 3) // 2))
    passages = tokenizer.encode_batch(contexts)
    read = [
        question_with_option(question, option)
        for question, own in zip(questions, options, strict=True)
        for option in own
    ]
    bounds = list(pairwise(accumulate(map(len, options), initial=0)))
    passage_of = [passage for passage, own in zip(passages, options, strict=True) for _ in own]
    joined = [
        join_option(passage, text, tokenizer, max_length, question_length)
        for passage, text in zip(passage_of, tokenizer.encode_batch(read), strict=True)
    ]
    ids = [np.asarray(ids, np.int64) for ids, *_ in joined]
    types = [(np.arange(len(ids)) >= first).astype(np.int64) for ids, first, *_ in joined]
    said: list[Prediction] = [said_of_cut(sum(cut)) for _, _, *cut in joined]
    if isinstance(model, EarlyExit):
        found = model.rows(ids, types, [stop - start for start, stop in bounds])
        rows, said = (
            [row for row, _ in found],
            [each | {"depth": deep} for each, (_, deep) in zip(said, found, strict=True)],
        )
    else:
        rows = model.rows(ids, types)
    scores = np.array(rows, np.float64)
    return [
        _ranked(own, _softmax(scores[start:stop]).tolist(), said[start:stop])
        for own, (start, stop) in zip(options, bounds, strict=True)
    ]


def _ranked(options: Sequence[str], scores: list[float], said: list[Prediction]) -> list[Prediction]:
    return [
        {"option": options[index], "index": index, "score": scores[index], **said[index]}
        for index in sorted(range(len(options)), key=lambda index: -scores[index])
    ]


def _softmax(scores: np.ndarray) -> np.ndarray:
    exponentials = np.exp(scores - scores.max())
    return exponentials / exponentials.sum()
