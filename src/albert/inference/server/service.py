"""The served model: its state (starting, ready, draining, broken), and the function that computes each call."""

import string
from collections.abc import Callable, Sequence
from typing import Any, Literal

from albert.inference.layers import show_layers
from albert.inference.predictor import Predictor
from albert.inference.server.batching import Batcher, Call, Input, Measurements
from albert.inference.server.limits import LOOPBACK, Hosts, Limits
from albert.inference.tasks import said_of_cut

# --------------------------------------------------------------------------------------------------------------------
# What the worker does: each call by its name, for texts of many callers, as results that become JSON.

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


State = Literal["starting", "ready", "draining", "broken"]


class Service:
    """One model behind one queue.

    Attributes:
        draining: whether new work is refused, because the server is to end.
        in_progress: requests that were accepted and whose replies are not out.

    Args:
        limits: what is taken on at most.
        hosts: what the `Host` header of a request may say (see `allowed_hosts`).
    """

    def __init__(self, limits: Limits, hosts: Hosts = LOOPBACK) -> None:
        self.limits, self.hosts, self.measurements = limits, hosts, Measurements()
        self._served: tuple[Predictor, Batcher] | None = None
        self.draining, self.in_progress = False, 0

    def start(self, predictor: Predictor) -> None:
        """Serve this model from now on; called in the event loop."""
        batcher = Batcher(lambda call, inputs: compute(predictor, call, inputs), self.limits, self.measurements)
        self._served = predictor, batcher

    @property
    def state(self) -> State:
        """Whether requests are taken, and if not, why."""
        if self.draining:
            return "draining"
        if self._served is None:
            return "starting"
        return "ready" if self.batcher.is_alive else "broken"

    @property
    def predictor(self) -> Predictor:
        """The model; there is one unless the service is starting."""
        assert self._served is not None, "asked before the model was loaded"
        return self._served[0]

    @property
    def batcher(self) -> Batcher:
        """Its queue."""
        assert self._served is not None, "asked before the model was loaded"
        return self._served[1]

    def close(self) -> None:
        """End the worker, once what waits is computed."""
        if self._served is not None:
            self.batcher.close()
