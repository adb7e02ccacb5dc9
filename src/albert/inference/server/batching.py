"""The request queue: texts of all clients in common batches, admission control, Prometheus metrics.

`Batcher.submit` puts the examples of a request into the queue. The batcher's thread takes a batch of examples with the
same call (`_next_batch`), computes it by `Predictor.replies_or_errors` (`_compute_batch`, `Service.start`), and gives
the results to the event loop (`_deliver`), where the last one of a request completes its `answers`.

Requests take turns by tokens (start-time fair queueing): the first texts of a new request come before the later texts
of a large one. A batch takes about a second. A text that needs longer is computed alone, with a batch of short ones
after each of its micro-batches. Work for clients that no longer wait is skipped or stopped."""

import asyncio
import math
import re
import string
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, NamedTuple

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from albert.inference.engine import BETWEEN_BATCHES
from albert.inference.predictor import Predictor
from albert.inference.server.limits import LOOPBACK, Hosts, Limits
from albert.tasks.examples import Example
from albert.tasks.pipeline import Pipeline, UnansweredTexts
from albert.text.unknown import unknown_warning

# --------------------------------------------------------------------------------------------------------------------
# Admission control: the queue is limited in texts (memory) and in estimated seconds (tokens), because a small model
# computes in a second what takes a large one minutes, and a text that would miss its deadline is better refused.

BATCH_TOKENS = 8192  # Estimated tokens of a batch, of all clients
BATCH_SECONDS = 1.0  # Estimated seconds that a batch may take, while others wait
MIN_TOKENS = 64
"""Smallest number of tokens that a batch is counted as: a small batch takes a constant time. If it were higher, single
texts would suggest a speed that batches do not reach."""
FIRST_TOKENS = 512  # Tokens of a batch before the speed is known
DECAY = 0.9  # Decay of the moving averages of speed


class Backlog:
    """Numbers of waiting texts and (estimated) tokens, including tokens being computed, and the recent speed."""

    def __init__(self, limits: Limits, batch_tokens: int = BATCH_TOKENS) -> None:
        self._max_texts = limits.queue_texts
        self._batch_tokens = batch_tokens
        self._max_seconds = min(limits.queue_seconds, limits.request_seconds)
        self.texts = 0
        self.tokens = 0
        self._computed_tokens = 0.0
        self._computing_seconds = 0.0

    @property
    def seconds(self) -> float:
        """Estimated time to compute all accepted texts; 0 before the speed is known."""
        return self.tokens * self._seconds_per_token

    @property
    def is_full(self) -> bool:
        return self.texts >= self._max_texts or (self.texts > 0 and self.seconds >= self._max_seconds)

    @property
    def retry_after(self) -> int:
        """`seconds`, rounded up."""
        return max(1, math.ceil(self.seconds))

    @property
    def batch_tokens(self) -> int:
        if not self._seconds_per_token:
            return min(self._batch_tokens, FIRST_TOKENS)
        return min(self._batch_tokens, int(BATCH_SECONDS / self._seconds_per_token))

    def has_room(self, texts: int, tokens: int) -> bool:
        """Return whether a request fits the limits; the time limit does not apply to an empty queue."""
        seconds = (self.tokens + tokens) * self._seconds_per_token
        return self.texts + texts <= self._max_texts and (not self.texts or seconds <= self._max_seconds)

    def add(self, texts: int, tokens: int) -> None:
        self.texts += texts
        self.tokens += tokens

    def record(self, tokens: int, seconds: float) -> None:
        """Remove the tokens of a computed batch, and update the speed."""
        self.tokens -= tokens
        self._computed_tokens = DECAY * self._computed_tokens + max(tokens, MIN_TOKENS)
        self._computing_seconds = DECAY * self._computing_seconds + seconds

    @property
    def _seconds_per_token(self) -> float:
        return self._computing_seconds / self._computed_tokens if self._computed_tokens else 0.0


# --------------------------------------------------------------------------------------------------------------------
# Prometheus metrics: requests by status, the queue, batches, refusals and drops.

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_TEXTS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
_TOKENS = (64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)


class Metrics:
    """The metrics of one server, in its own registry, so that two servers in a process have separate ones."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        histogram = partial(Histogram, namespace="albert", registry=self.registry)
        counter = partial(Counter, namespace="albert", registry=self.registry)
        gauge = partial(Gauge, namespace="albert", registry=self.registry)
        duration = "From a request's header to the end of its reply."
        self.request_seconds = histogram("request_seconds", duration, ("address", "status"), buckets=_SECONDS)
        self.queue_seconds = histogram("queue_seconds", "Wait of a text in the queue.", buckets=_SECONDS)
        self.batch_seconds = histogram("batch_seconds", "Computation of a batch.", ("ability",), buckets=_SECONDS)
        self.batch_texts = histogram("batch_texts", "Texts in a batch.", buckets=_TEXTS)
        self.batch_tokens = histogram("batch_tokens", "Estimated tokens in a batch.", buckets=_TOKENS)
        self.texts = counter("texts", "Texts answered.", ("ability",))
        self.queued = gauge("queue_texts", "Texts in the queue.")
        self.refused = counter("refused", "Requests refused, by reason.", ("reason",))
        self.dropped = counter("dropped_texts", "Texts that were accepted but not computed, by reason.", ("reason",))
        self.failures = counter("batch_failures", "Failed computations of batches, by cause.", ("cause",))


MAX_FAILURES = 16  # Failures after which a batch is no longer divided to find the texts that cause them
MEMORY_PARTS = 4  # A batch that runs out of memory is computed again once, in so many parts


class QueueFull(Exception):
    """The queue has no room for a request; the argument is the number of seconds after which to retry."""


class Abandoned(Exception):
    """No client waits for the current batch any more."""


class Call(NamedTuple):
    """What is computed; examples with the same call may share a batch."""

    pipeline: Pipeline
    """With the options of the request."""
    of_pairs: bool = False
    """Pairs and single texts are computed apart."""


LETTERS_PER_TOKEN = 3
"""Of the estimate; low, so that batches rather stay below their budget. Digits, punctuation and letters beyond ASCII
count as a token each."""
OVERLAP = 3  # Largest number of windows in which a token of a long text is read
_LETTERS = (string.ascii_letters + string.whitespace).encode()


class SizedExample(NamedTuple):
    """An example, for which there is one result, and its size."""

    example: Any  # An `Example`
    text_count: int = 1  # Number of texts that it counts as in the queue: each option of a question is one
    tokens: int = 1  # Estimated number of tokens
    longest: int = 0  # Characters of its longest text

    @classmethod
    def of(cls, example: Example, max_length: int, is_windowed: bool = False) -> "SizedExample":
        """The size of an example of one sequence, or one for each option, which are cut, or read in windows."""
        texts = (example.source,) if example.source else example.texts
        shared = sum(map(_estimated_tokens, texts)) + 3
        options = example.options or ("",)
        sequences = [shared + _estimated_tokens(option) for option in options]
        over = OVERLAP - 1
        tokens = [n + over * max(n - max_length, 0) if is_windowed else min(n, max_length) for n in sequences]
        return cls(example, len(options), sum(tokens), max(map(len, (*texts, *options))))


def _estimated_tokens(text: str) -> int:
    others = len(text.encode("ascii", "replace").translate(None, _LETTERS))
    return others + (len(text) - others) // LETTERS_PER_TOKEN


@dataclass
class QueuedRequest:
    """Examples that were accepted together; `answers` holds their results in order, or the first exception."""

    answers: "asyncio.Future[list[Any]]"
    outcomes: list[Any]
    pending: int
    arrived: float
    started: float | None = None
    ended: float | None = None
    dropped: str = ""  # Why it was dropped


class _Item(NamedTuple):
    call: Call
    sized: SizedExample
    request: QueuedRequest
    number: int
    is_long: bool
    turn: float
    """Position in the queue: tokens begun before its request arrived, plus those of its request before it."""


class Batcher:
    """The queue and its worker thread.

    `compute` returns the results of a call for some examples, in order; it runs in the batcher's thread, and may call
    `BETWEEN_BATCHES` between the parts of its work, where others may be computed.
    """

    def __init__(
        self,
        compute: Callable[[Call, Sequence[Any]], Sequence[Any]],
        limits: Limits,
        metrics: Metrics,
        clock: Callable[[], float] = time.perf_counter,
        batch_tokens: int = BATCH_TOKENS,
    ) -> None:
        self._compute = compute
        self._metrics = metrics
        self._clock = clock
        self._waiting: list[_Item] = []
        self._begun_tokens = 0.0
        self.backlog = Backlog(limits, batch_tokens)
        self._changed = threading.Condition()
        self._closed = False
        self._loop = asyncio.get_running_loop()
        self._worker = threading.Thread(target=self._work, name="albert batches", daemon=True)
        self._worker.start()

    @property
    def is_alive(self) -> bool:
        return self._worker.is_alive()

    def submit(self, call: Call, examples: Sequence[SizedExample]) -> QueuedRequest:
        """Queue a request; raises QueueFull if there is no room for all of its examples, or the wait is too long."""
        now = self._clock()
        count = len(examples)
        request = QueuedRequest(self._loop.create_future(), [None] * count, count, now)
        texts = sum(sized.text_count for sized in examples)
        tokens = sum(sized.tokens for sized in examples)
        with self._changed:
            if not self.backlog.has_room(texts, tokens):
                raise QueueFull(self.backlog.retry_after)
            self.backlog.add(texts, tokens)
            turn = self._begun_tokens
            limit = self.backlog.batch_tokens
            for number, sized in enumerate(examples):
                self._waiting.append(_Item(call, sized, request, number, sized.tokens > limit, turn))
                turn += sized.tokens
            self._waiting.sort(key=lambda item: item.turn)
            self._metrics.queued.set(self.backlog.texts)
            self._changed.notify_all()
        return request

    def drop(self, request: QueuedRequest, reason: str) -> int:
        """Drop a request; returns the number of texts that had not been started.

        A batch that is computed for it alone is stopped after the current micro-batch.
        """
        with self._changed:
            texts, tokens = _sizes(item for item in self._waiting if item.request is request)
            self._waiting = [item for item in self._waiting if item.request is not request]
            self.backlog.add(-texts, -tokens)
            self._metrics.queued.set(self.backlog.texts)
        request.dropped = reason
        request.answers.cancel()
        self._metrics.dropped.labels(reason).inc(texts)
        return texts

    def close(self) -> None:
        """Compute what is queued, then stop the thread."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._worker.join()

    def _work(self) -> None:
        while not self._loop.is_closed():  # closed: the server ended without waiting for what is queued
            with self._changed:
                self._changed.wait_for(lambda: self._closed or self._waiting)
                if not self._waiting:
                    return
            self._run_batch()

    def _run_batch(self, only_short: bool = False) -> float:
        """Compute the next batch and deliver its results; returns the seconds that it took."""
        batch = self._next_batch(only_short)
        started = self._clock()
        paused = 0.0
        if not batch:
            return 0.0

        def between_batches() -> None:
            nonlocal paused
            if batch[0].is_long:
                paused += self._run_batch(only_short=True)
            if all(item.request.answers.done() for item in batch):
                raise Abandoned

        for item in batch:
            item.request.started = item.request.started or started
            self._metrics.queue_seconds.observe(started - item.request.arrived)
        previous = BETWEEN_BATCHES.set(between_batches)
        outcomes = self._compute_batch(batch, [])
        BETWEEN_BATCHES.reset(previous)
        seconds = self._clock() - started
        self._record(batch, outcomes, seconds - paused)
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(_deliver, batch, outcomes)
        return seconds

    def _next_batch(self, only_short: bool) -> list[_Item]:
        """The next text, with others of the same call if they are short."""
        with self._changed:
            batch: list[_Item] = []
            tokens = 0
            limit = self.backlog.batch_tokens
            for item in self._waiting:
                joins = not batch or (tokens + item.sized.tokens <= limit and item.call == batch[0].call)
                if joins and not (only_short and item.is_long):
                    batch.append(item)
                    tokens += item.sized.tokens
            if batch:
                self._begun_tokens = max(self._begun_tokens, batch[0].turn)
            taken = {id(item) for item in batch}
            self._waiting = [item for item in self._waiting if id(item) not in taken]
            self.backlog.add(-_sizes(batch)[0], 0)  # tokens count until they are computed
            self._metrics.queued.set(self.backlog.texts)
        return batch

    def _compute_batch(self, batch: Sequence[_Item], failures: list[str]) -> list[Any]:
        """A result or an exception for each item, in order; causes are appended to `failures`.

        A batch that fails is halved until the failing texts are found, or it has failed too often. One that runs out of
        memory is computed again once, in smaller parts.
        """
        try:
            answers = list(self._compute(batch[0].call, [item.sized.example for item in batch]))
            assert len(answers) == len(batch), "each text has its own answer"
            return answers
        except Abandoned as error:
            return [error] * len(batch)
        except BaseException as error:  # a panic of a Rust library is not an Exception
            cause = "memory" if lacks_memory(error) else "other"
            self._metrics.failures.labels(cause).inc()
            again = cause == "memory" and cause in failures
            failures.append(cause)
            if cause == "memory":
                error.__traceback__ = None  # it references the tensors of the attempt
            if len(batch) == 1 or len(failures) > MAX_FAILURES or again:
                return [error] * len(batch)
            size = math.ceil(len(batch) / (MEMORY_PARTS if cause == "memory" else 2))
        parts = [batch[start : start + size] for start in range(0, len(batch), size)]
        return [outcome for part in parts for outcome in self._compute_batch(part, failures)]

    def _record(self, batch: Sequence[_Item], outcomes: Sequence[Any], seconds: float) -> None:
        texts, tokens = _sizes(batch)
        ability = batch[0].call.pipeline.name
        self._metrics.batch_seconds.labels(ability).observe(seconds)
        if isinstance(outcomes[0], Abandoned):  # its duration is unknown
            with self._changed:
                self.backlog.add(0, -tokens)
            self._metrics.dropped.labels(batch[0].request.dropped).inc(texts)
            return
        with self._changed:
            self.backlog.record(tokens, seconds)
        self._metrics.batch_texts.observe(texts)
        self._metrics.batch_tokens.observe(tokens)
        self._metrics.texts.labels(ability).inc(texts)


def _sizes(items: Iterable[_Item]) -> tuple[int, int]:
    """Numbers of texts and of tokens."""
    examples = [item.sized for item in items]
    return sum(sized.text_count for sized in examples), sum(sized.tokens for sized in examples)


def _deliver(batch: Sequence[_Item], outcomes: Sequence[Any]) -> None:
    """In the event loop: complete the requests whose last item this was."""
    for item, outcome in zip(batch, outcomes, strict=True):
        request = item.request
        request.outcomes[item.number] = outcome
        request.pending -= 1
        if request.pending == 0 and not request.answers.done():
            request.ended = time.perf_counter()
            failed = [n for n, outcome in enumerate(request.outcomes) if isinstance(outcome, BaseException)]
            if not failed:
                request.answers.set_result(request.outcomes)
                continue
            error = request.outcomes[failed[0]]
            if isinstance(error, UnansweredTexts) and len(request.outcomes) > 1:
                error = item.call.pipeline.error_in_request(failed[0], error)
            request.answers.set_exception(error)


_NO_MEMORY = re.compile("can't allocate memory|not enough memory|out of memory", re.IGNORECASE)
"""PyTorch's messages on a CPU and on a GPU."""


def lacks_memory(error: BaseException) -> bool:
    """Return whether the machine or its accelerator ran out of memory."""
    return isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and bool(_NO_MEMORY.search(str(error))))


# --------------------------------------------------------------------------------------------------------------------
# The served model: its queue, and its state.

State = Literal["starting", "ready", "broken"]


REQUESTS_TO_CHECK = 20
"""The texts of so many requests are looked at for a warning."""


class Service:
    """One model with its queue; `predictor` and `batcher` are set when the model is loaded.

    Attributes:
        in_progress: number of accepted requests whose replies have not been sent.
        unanswered: number of accepted requests that were not answered before the server ended.
        is_crowded: returns whether too many connections are open.
    """

    predictor: Predictor
    batcher: Batcher

    def __init__(self, limits: Limits, hosts: Hosts = LOOPBACK) -> None:
        self.limits = limits
        self.hosts = hosts
        self.metrics = Metrics()
        self.in_progress = 0
        self.unanswered = 0
        self.is_crowded: Callable[[], bool] = lambda: False
        self._requests_to_check = REQUESTS_TO_CHECK

    def warn_of_unknown(self, examples: Sequence[Example]) -> None:
        """Print a line if the vocabulary does not know the texts of one of the first requests."""
        if self._requests_to_check == 0:
            return
        self._requests_to_check -= 1
        texts = [text for example in examples[:8] for text in example.texts if not text.isascii()]
        warning = unknown_warning(self.predictor.tokenizer, texts, self.predictor.name)
        if warning is not None:
            self._requests_to_check = 0
            with suppress(OSError):  # the terminal was closed
                print(f"albert: {warning}", file=sys.stderr, flush=True)

    def start(self, predictor: Predictor) -> None:
        """Start serving a model; called in the event loop."""

        def compute(call: Call, examples: Sequence[Any]) -> Sequence[Any]:
            return predictor.replies_or_errors(call.pipeline, examples)

        self.predictor, self.batcher = predictor, Batcher(compute, self.limits, self.metrics)

    @property
    def state(self) -> State:
        if not hasattr(self, "batcher"):
            return "starting"
        return "ready" if self.batcher.is_alive else "broken"

    def close(self) -> None:
        """Compute what is queued, then stop the threads."""
        if hasattr(self, "batcher"):
            self.batcher.close()
