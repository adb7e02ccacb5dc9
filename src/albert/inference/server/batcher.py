"""One queue and one worker: texts of all callers that ask alike are computed together, each answered on its own.

The worker is a thread, so that the event loop stays free; it takes the oldest text and, up to a budget of tokens, all
others that wait for the same call. A text that makes a batch fail is found by halving the batch, and fails alone.
"""

import asyncio
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from albert.inference.server.backlog import Backlog
from albert.inference.server.limits import Limits
from albert.inference.server.measurements import Measurements


class QueueFull(Exception):
    """No room for so many texts; `retry_after` says in how many seconds there may be."""

    def __init__(self, retry_after: int) -> None:
        super().__init__(f"try again in {retry_after} s")
        self.retry_after = retry_after


class NotFinite(Exception):
    """The model gave a number that is not finite."""


class Call(NamedTuple):
    """What is asked; texts with the same call may share a batch."""

    name: str
    options: tuple[tuple[str, Hashable], ...] = ()


class Input(NamedTuple):
    """What is asked about."""

    texts: tuple[Any, ...]
    """Arguments of the call, a question and its context say."""
    counted: int = 1
    """Texts it counts for in the queue."""
    tokens: int = 1
    """Tokens it will be, as estimated."""
    longest: int = 0
    """Characters of its longest text."""

    @property
    def size(self) -> tuple[int, int]:
        """Texts and tokens."""
        return self.counted, self.tokens


@dataclass
class Request:
    """Texts that were accepted together; `answers` are theirs, in their order, or the first one's exception."""

    answers: "asyncio.Future[list[Any]]"
    outcomes: list[Any]
    open: int
    started: float | None = None
    ended: float | None = None
    arrived: float = field(default_factory=time.perf_counter)


class _Item(NamedTuple):
    call: Call
    input: Input
    request: Request
    place: int


class Batcher:
    """The queue and its worker.

    Args:
        compute: answers a call for some inputs, in their order; it runs in the worker alone.
        limits: how many texts may wait and how long, and how many tokens are computed together.
        measurements: told of batches, waits and drops.
    """

    def __init__(
        self,
        compute: Callable[[Call, Sequence[tuple[Any, ...]]], Sequence[Any]],
        limits: Limits,
        measurements: Measurements,
    ) -> None:
        self._compute, self._measurements = compute, measurements
        self._waiting: deque[_Item] = deque()
        self._backlog = Backlog(limits)
        self._changed, self._closed = threading.Condition(), False
        self._loop = asyncio.get_running_loop()
        self._worker = threading.Thread(target=self._work, name="albert batches", daemon=True)
        self._worker.start()

    @property
    def is_alive(self) -> bool:
        """Whether the worker works."""
        return self._worker.is_alive()

    @property
    def is_full(self) -> bool:
        """Whether not even one text finds room."""
        return self._backlog.is_full

    @property
    def retry_after(self) -> int:
        """Whole seconds in which the texts that wait now will have been computed, at the pace of late."""
        return self._backlog.retry_after

    def submit(self, call: Call, inputs: Sequence[Input]) -> Request:
        """Take a request as a whole.

        Raises:
            QueueFull: its texts do not all find room, or would wait too long.
        """
        request = Request(self._loop.create_future(), [None] * len(inputs), len(inputs))
        sizes = [each.size for each in inputs]
        with self._changed:
            if not self._backlog.has_room(sizes):
                raise QueueFull(self.retry_after)
            self._backlog.add(sizes)
            self._waiting.extend(_Item(call, each, request, place) for place, each in enumerate(inputs))
            self._measurements.queued.set(self._backlog.texts)
            self._changed.notify()
        return request

    def drop(self, request: Request, reason: str) -> int:
        """Forget what was not started of a request that nobody waits for any more; how many texts that were."""
        with self._changed:
            dropped = [item.input.size for item in self._waiting if item.request is request]
            self._waiting = deque(item for item in self._waiting if item.request is not request)
            self._backlog.remove(dropped)
            self._measurements.queued.set(self._backlog.texts)
        texts = sum(counted for counted, _ in dropped)
        request.answers.cancel()
        self._measurements.dropped.labels(reason).inc(texts)
        return texts

    def close(self) -> None:
        """End the worker, once it has computed what waits."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._worker.join()

    def _work(self) -> None:
        while batch := self._next_batch():
            started = time.perf_counter()
            for item in batch:
                item.request.started = item.request.started or started
                self._measurements.queue_seconds.observe(started - item.request.arrived)
            outcomes = self._outcomes(batch)
            self._note(batch, time.perf_counter() - started)
            if self._loop.is_closed():  # the server ended without waiting for this batch
                return
            self._loop.call_soon_threadsafe(_deliver, batch, outcomes)

    def _next_batch(self) -> list[_Item]:
        """The oldest text and those that may go with it; nothing when it is time to end."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._closed)
            batch: list[_Item] = []
            left: deque[_Item] = deque()
            tokens, most = 0, self._backlog.batch_tokens
            for item in self._waiting:
                fits = not batch or tokens + item.input.tokens <= most
                if fits and (not batch or item.call == batch[0].call):
                    batch.append(item)
                    tokens += item.input.tokens
                else:
                    left.append(item)
            self._waiting = left
            self._backlog.begin(sum(item.input.counted for item in batch))
            self._measurements.queued.set(self._backlog.texts)
        return batch

    def _outcomes(self, batch: Sequence[_Item]) -> list[Any]:
        """An answer or an exception for each, in order."""
        try:
            answers = list(self._compute(batch[0].call, [item.input.texts for item in batch]))
            assert len(answers) == len(batch), "each text has its own answer"
            return [answer if is_finite(answer) else NotFinite(batch[0].call.name) for answer in answers]
        except BaseException as error:  # a panic of a Rust library is no Exception
            if len(batch) == 1:
                return [error]
            middle = len(batch) // 2
            return self._outcomes(batch[:middle]) + self._outcomes(batch[middle:])

    def _note(self, batch: Sequence[_Item], seconds: float) -> None:
        counted = sum(item.input.counted for item in batch)
        tokens = sum(item.input.tokens for item in batch)
        with self._changed:
            self._backlog.note(tokens, seconds)
        ability = batch[0].call.name
        self._measurements.batch_seconds.labels(ability).observe(seconds)
        self._measurements.batch_texts.observe(counted)
        self._measurements.batch_tokens.observe(tokens)
        self._measurements.texts.labels(ability).inc(counted)


def _deliver(batch: Sequence[_Item], outcomes: Sequence[Any]) -> None:
    """In the event loop: requests whose last text this was are answered."""
    for item, outcome in zip(batch, outcomes, strict=True):
        request = item.request
        request.outcomes[item.place] = outcome
        request.open -= 1
        if request.open == 0 and not request.answers.done():
            request.ended = time.perf_counter()
            failed = next((each for each in request.outcomes if isinstance(each, BaseException)), None)
            if failed is None:
                request.answers.set_result(request.outcomes)
            else:
                request.answers.set_exception(failed)


def is_finite(answer: Any) -> bool:
    """Whether every number in an answer is finite."""
    if isinstance(answer, dict):
        return all(map(is_finite, answer.values()))
    if isinstance(answer, list | tuple):
        return all(map(is_finite, answer))
    if isinstance(answer, np.ndarray):
        return bool(np.isfinite(answer).all())
    return not isinstance(answer, float) or math.isfinite(answer)
