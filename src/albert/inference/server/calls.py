"""What the worker does: each call by its name, for texts of many callers, as results that become JSON."""

import string
from collections.abc import Callable, Sequence
from typing import Any

from albert.inference.encoding import said_of_cut
from albert.inference.layer_views import show_layers
from albert.inference.predictor import Predictor
from albert.inference.server.batcher import Call, Input

LETTERS_PER_TOKEN = 3
"""A low estimate, so that a batch rather holds less than its budget; digits, signs and letters beyond ASCII count as a
token each."""
OVERLAP = 3
"""How often a token of a long text is read at most, since the windows of a text overlap."""
_LETTERS = (string.ascii_letters + string.whitespace).encode()

Inputs = Sequence[tuple[Any, ...]]


def compute(predictor: Predictor, call: Call, inputs: Inputs) -> Sequence[Any]:
    """Answer a call for some inputs, in their order."""
    return _CALLS[call.name](predictor, inputs, **dict(call.options))


def as_input(predictor: Predictor, texts: Sequence[Any], counted: int = 1, windowed: bool = False) -> Input:
    """Arguments of a call, with what they count for and how many tokens they may be.

    Args:
        predictor: the model.
        texts: the arguments.
        counted: sequences that they become: each holds all texts and one of the options, if there are any.
        windowed: whether a long text is read in windows; otherwise it is cut to what the model reads.
    """
    shared = sum(_estimate(text) for text in texts if isinstance(text, str)) + 3
    options = next((text for text in texts if isinstance(text, tuple)), ("",))
    sequences = [shared + _estimate(option) for option in options]
    most = predictor.max_length
    tokens = [n + (OVERLAP - 1) * max(n - most, 0) if windowed else min(n, most) for n in sequences]
    longest = max(len(text) for text in (*texts, *options) if isinstance(text, str))
    return Input(tuple(texts), counted, sum(tokens), longest)


def _estimate(text: str) -> int:
    """How many tokens a text may be."""
    others = len(text.encode("ascii", "replace").translate(None, _LETTERS))
    return others + (len(text) - others) // LETTERS_PER_TOKEN


def _classify(predictor: Predictor, inputs: Inputs, paired: bool) -> Sequence[Any]:
    texts, pairs = zip(*inputs, strict=True)
    return predictor.classify_batch(texts, pairs if paired else None)


def _score(predictor: Predictor, inputs: Inputs, paired: bool) -> Sequence[Any]:
    return [number for (number,) in _classify(predictor, inputs, paired)]


def _fill_mask(predictor: Predictor, inputs: Inputs, top_k: int) -> Sequence[Any]:
    return predictor.fill_mask_batch([text for (text,) in inputs], top_k)


def _order(predictor: Predictor, inputs: Inputs) -> Sequence[Any]:
    firsts, seconds = zip(*inputs, strict=True)
    return predictor.order_batch(firsts, seconds)


def _answer(predictor: Predictor, inputs: Inputs, top_k: int) -> Sequence[Any]:
    questions, contexts = zip(*inputs, strict=True)
    return predictor.answer_batch(questions, contexts, top_k)


def _choose(predictor: Predictor, inputs: Inputs) -> Sequence[Any]:
    contexts, options, questions = zip(*inputs, strict=True)
    return predictor.choose_batch(contexts, options, questions)


def _tag(predictor: Predictor, inputs: Inputs) -> Sequence[Any]:
    return predictor.tag_batch([text for (text,) in inputs])


def _embed(predictor: Predictor, inputs: Inputs, pooling: Any, normalize: bool) -> Sequence[Any]:
    vectors, cut = predictor.embed_counted([text for (text,) in inputs], pooling, normalize)
    return [{"vector": vector, **said_of_cut(tokens)} for vector, tokens in zip(vectors, cut, strict=True)]


def _layers(predictor: Predictor, inputs: Inputs, most_tokens: int) -> Sequence[Any]:
    return [show_layers(predictor, text, pair, most_tokens) for text, pair in inputs]


_CALLS: dict[str, Callable[..., Sequence[Any]]] = {
    "classify": _classify,
    "score": _score,
    "fill-mask": _fill_mask,
    "order": _order,
    "answer": _answer,
    "choose": _choose,
    "tag": _tag,
    "embed": _embed,
    "layers": _layers,
}
