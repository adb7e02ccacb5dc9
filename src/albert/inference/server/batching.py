"""The request queue: texts of all callers in common batches, admission control, Prometheus metrics.

Requests take turns by tokens (start-time fair queueing): the first texts of a new request come before the later texts
of a large one. The event loop stays free, since threads compute, one at a time: one takes batches of about a second,
the others take texts that need longer alone, and let others compute after every batch that goes through the model at
once. What nobody waits for any more is not computed, or not to its end."""

import asyncio
import math
import re
import string
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from albert.inference.abilities import ABILITIES, Settings, UnansweredTexts
from albert.inference.engine import BETWEEN_BATCHES
from albert.inference.predictor import Predictor
from albert.inference.server.limits import LOOPBACK, Hosts, Limits

# --------------------------------------------------------------------------------------------------------------------
# Admission control: the queue is limited in texts (memory) and in estimated seconds (tokens).
#
# A queue that is bounded in texts alone suits one model: what a small one computes in a second takes a large one
# minutes, and a text that is accepted only to miss its deadline was better refused.

BATCH_SECONDS = 1.0
"""Estimated seconds that a batch may take; whatever comes next waits for it."""
LEAST_TOKENS = 64
"""What the smallest batch counts for: its time goes into everything but tokens. Were it more, texts that come one by
one would promise a pace that batches do not keep."""
FIRST_TOKENS = 512
"""As many go together before any pace is known."""
KEPT = 0.9
"""Weight of earlier batches when another one has been measured."""

Size = tuple[int, int]
"""Texts, and tokens as estimated."""


class Backlog:
    """Counts of what waits (texts, tokens as estimated, those being computed included), and the recent speed."""

    def __init__(self, limits: Limits) -> None:
        self._most_texts, self._batch_tokens = limits.queue_texts, limits.batch_tokens
        self._most_seconds = min(limits.queue_seconds, limits.request_seconds)
        self.texts, self.tokens = 0, 0
        self._computed_tokens, self._computing_seconds = 0.0, 0.0

    @property
    def seconds(self) -> float:
        """Until what was accepted is computed, at the recent speed; 0 before any is known."""
        return self.tokens * self._seconds_per_token

    @property
    def is_full(self) -> bool:
        return self.texts >= self._most_texts or (self.texts > 0 and self.seconds >= self._most_seconds)

    @property
    def retry_after(self) -> int:
        """Whole seconds in which what waits now will have been computed."""
        return max(1, math.ceil(self.seconds))

    @property
    def batch_tokens(self) -> int:
        if not self._seconds_per_token:
            return min(self._batch_tokens, FIRST_TOKENS)
        return min(self._batch_tokens, int(BATCH_SECONDS / self._seconds_per_token))

    def has_room(self, sizes: Sequence[Size]) -> bool:
        """Whether so much may come to what waits; where nothing does, time is no reason to refuse."""
        texts, tokens = (sum(size[place] for size in sizes) for place in range(2))
        seconds = (self.tokens + tokens) * self._seconds_per_token
        return self.texts + texts <= self._most_texts and (not self.texts or seconds <= self._most_seconds)

    def add(self, sizes: Iterable[Size]) -> None:
        for texts, tokens in sizes:
            self.texts += texts
            self.tokens += tokens

    def remove(self, sizes: Iterable[Size]) -> None:
        self.add((-texts, -tokens) for texts, tokens in sizes)

    def begin(self, texts: int) -> None:
        """So many texts are being computed: others wait for their tokens until `note`, or `give_up`."""
        self.texts -= texts

    def give_up(self, tokens: int) -> None:
        self.tokens -= tokens

    def note(self, tokens: int, seconds: float) -> None:
        self.tokens -= tokens
        self._computed_tokens = KEPT * self._computed_tokens + max(tokens, LEAST_TOKENS)
        self._computing_seconds = KEPT * self._computing_seconds + seconds

    @property
    def _seconds_per_token(self) -> float:
        return self._computing_seconds / self._computed_tokens if self._computed_tokens else 0.0


# --------------------------------------------------------------------------------------------------------------------
# Prometheus metrics: requests by their status, the queue, batches, refusals and drops.

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_TEXTS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
_TOKENS = (64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)


class Measurements:
    """The figures of one server, in a registry of its own, so that two servers in a process do not mix theirs."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()

        def histogram(name: str, about: str, buckets: Sequence[float], *labels: str) -> Histogram:
            return Histogram(f"albert_{name}", about, labels, buckets=buckets, registry=self.registry)

        def counter(name: str, about: str, *labels: str) -> Counter:
            return Counter(f"albert_{name}", about, labels, registry=self.registry)

        from_to = "From a request's header to the end of its reply."
        self.request_seconds = histogram("request_seconds", from_to, _SECONDS, "address", "status")
        self.queue_seconds = histogram("queue_seconds", "A text's wait in the queue.", _SECONDS)
        self.batch_seconds = histogram("batch_seconds", "The computation of a batch.", _SECONDS, "ability")
        self.batch_texts = histogram("batch_texts", "Texts in a batch.", _TEXTS)
        self.batch_tokens = histogram("batch_tokens", "Estimated tokens in a batch.", _TOKENS)
        self.texts = counter("texts", "Texts answered.", "ability")
        self.queued = Gauge("albert_queue_texts", "Texts that wait.", registry=self.registry)
        self.connections = Gauge("albert_connections", "Open connections.", registry=self.registry)
        self.refused = counter("refused", "Requests and connections refused, by reason.", "reason")
        self.dropped = counter("dropped_texts", "Texts that were accepted and not computed, by reason.", "reason")
        again = "Computations of a batch that failed, by cause; parts of it are computed again."
        self.failures = counter("batch_failures", again, "cause")

    def text(self) -> bytes:
        return generate_latest(self.registry)


LONG_TEXTS = 2
"""Texts that may be under way at a time of those that take longer than a batch should."""
MOST_FAILURES = 16
"""Failures in a batch after which no more is tried to find out which of its texts are to blame."""
MEMORY_PARTS = 4
"""A batch for which there is not enough memory is computed again once, in so many parts."""


class QueueFull(Exception):
    """No room for so many texts; the argument says in how many seconds there may be."""


class NotFinite(Exception):
    """The model gave a number that is not finite."""


class Late(Exception):
    """A request was not answered in time."""


class Abandoned(Late):
    """The client of what is being computed has gone."""


class Call(NamedTuple):
    """What is asked; texts with the same call may share a batch."""

    name: str
    settings: Settings = Settings()
    absent: tuple[bool, ...] = ()
    """Which texts of an input are left out: pairs and single texts are computed apart, since a model may refuse one."""


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
    def size(self) -> Size:
        return self.counted, self.tokens


@dataclass
class Request:
    """Texts that were accepted together; `answers` are theirs, in their order, or the first one's exception."""

    answers: "asyncio.Future[list[Any]]"
    outcomes: list[Any]
    open: int
    arrived: float
    deadline: float
    started: float | None = None
    ended: float | None = None
    dropped: str | None = None
    """Why it was dropped."""


class _Item(NamedTuple):
    call: Call
    input: Input
    request: Request
    place: int
    is_long: bool
    turn: float
    """Its place in the order: tokens that were begun before its request came, and those of its request before it."""


class Turns:
    """A lock that goes to those who wait for it in the order in which they came."""

    def __init__(self) -> None:
        self._lock, self._waiting, self._taken = threading.Lock(), deque[threading.Lock](), False

    def __enter__(self) -> None:
        with self._lock:
            if not self._taken:
                self._taken = True
                return
            mine = threading.Lock()
            mine.acquire()
            self._waiting.append(mine)
        mine.acquire()

    def __exit__(self, *_: object) -> None:
        with self._lock:
            if self._waiting:
                self._waiting.popleft().release()
            else:
                self._taken = False

    def pass_on(self) -> None:
        self.__exit__()
        self.__enter__()


class Batcher:
    """The queue and the threads that compute.

    Args:
        compute: answers a call for some inputs, in their order; it runs in the batcher's threads, one at a time, and
        may
            call `BETWEEN_BATCHES` between the parts of its work.
        limits: how many texts may wait and how long, and how many tokens are computed together.
        measurements: told of batches, waits and drops.
        clock: seconds.
    """

    def __init__(
        self,
        compute: Callable[[Call, Sequence[tuple[Any, ...]]], Sequence[Any]],
        limits: Limits,
        measurements: Measurements,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._compute, self._measurements, self._clock = compute, measurements, clock
        self._waiting: list[_Item] = []
        self._begun = {False: 0.0, True: 0.0}
        self.backlog, self._request_seconds = Backlog(limits), limits.request_seconds
        self._changed, self._closed, self._turns = threading.Condition(), False, Turns()
        self._loop = asyncio.get_running_loop()
        self._workers = [
            threading.Thread(target=self._work, args=(is_long,), name="albert batches", daemon=True)
            for is_long in (False, *[True] * LONG_TEXTS)
        ]
        for worker in self._workers:
            worker.start()

    @property
    def is_alive(self) -> bool:
        return all(worker.is_alive() for worker in self._workers)

    def submit(self, call: Call, inputs: Sequence[Input]) -> Request:
        """Take a request as a whole.

        Raises:
            QueueFull: its texts do not all find room, or would wait too long.
        """
        now = self._clock()
        request = Request(
            self._loop.create_future(), [None] * len(inputs), len(inputs), now, now + self._request_seconds
        )
        sizes = [each.size for each in inputs]
        with self._changed:
            if not self.backlog.has_room(sizes):
                raise QueueFull(self.backlog.retry_after)
            self.backlog.add(sizes)
            turns, most = self._begun.copy(), self.backlog.batch_tokens
            for place, each in enumerate(inputs):
                is_long = each.tokens > most
                self._waiting.append(_Item(call, each, request, place, is_long, turns[is_long]))
                turns[is_long] += each.tokens
            self._waiting.sort(key=lambda item: item.turn)
            self._measurements.queued.set(self.backlog.texts)
            self._changed.notify_all()
        return request

    def drop(self, request: Request, reason: str) -> int:
        """Drop what was not started of a request; returns how many texts that were.

        What is being computed for it alone ends with the batch that goes through the model now.
        """
        with self._changed:
            dropped = self._take_back(request)
        request.dropped = reason
        request.answers.cancel()
        texts = sum(item.input.counted for item in dropped)
        self._measurements.dropped.labels(reason).inc(texts)
        return texts

    def close(self) -> None:
        """End the threads, once they have computed what waits."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        for worker in self._workers:
            worker.join()

    def _work(self, is_long: bool) -> None:
        batch: list[_Item] = []
        paused = 0.0

        def stop_unless_awaited() -> None:
            now = self._clock()
            if all(item.request.answers.done() or now >= item.request.deadline for item in batch):
                raise Abandoned

        def between() -> None:
            nonlocal paused
            stop_unless_awaited()
            if is_long:
                before = self._clock()
                self._turns.pass_on()
                paused += self._clock() - before
                stop_unless_awaited()

        BETWEEN_BATCHES.set(between)
        while self._wait_for_work(is_long):
            with self._turns:
                batch, paused = self._next_batch(is_long), 0.0
                if not batch:
                    continue
                started = self._clock()
                for item in batch:
                    item.request.started = item.request.started or started
                    self._measurements.queue_seconds.observe(started - item.request.arrived)
                outcomes = self._outcomes(batch, [])
                self._note(batch, outcomes, self._clock() - started - paused)
            if self._loop.is_closed():  # the server ended without waiting for this batch
                return
            self._loop.call_soon_threadsafe(_deliver, batch, outcomes)
            del outcomes
            batch = []

    def _wait_for_work(self, is_long: bool) -> bool:
        """Wait until there is something to compute; whether there is, or it is time to end."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or any(item.is_long is is_long for item in self._waiting))
            return any(item.is_long is is_long for item in self._waiting)

    def _next_batch(self, is_long: bool) -> list[_Item]:
        """The text whose turn it is, alone if it is long, else with those that may go with it."""
        with self._changed:
            self._end_late_requests()
            batch: list[_Item] = []
            tokens, most = 0, self.backlog.batch_tokens
            for item in self._waiting:
                fits = not batch or (not is_long and tokens + item.input.tokens <= most)
                if item.is_long is is_long and fits and (not batch or item.call == batch[0].call):
                    batch.append(item)
                    tokens += item.input.tokens
            if batch:
                self._begun[is_long] = max(self._begun[is_long], batch[0].turn)
            begun = {id(item) for item in batch}
            self._waiting = [item for item in self._waiting if id(item) not in begun]
            self.backlog.begin(sum(item.input.counted for item in batch))
            self._measurements.queued.set(self.backlog.texts)
        return batch

    def _take_back(self, request: Request) -> list[_Item]:
        """What waits of a request, which then waits no more."""
        items = [item for item in self._waiting if item.request is request]
        self._waiting = [item for item in self._waiting if item.request is not request]
        self.backlog.remove(item.input.size for item in items)
        self._measurements.queued.set(self.backlog.texts)
        return items

    def _end_late_requests(self) -> None:
        """What could not be begun before its deadline is not begun."""
        now = self._clock()
        for request in {id(item.request): item.request for item in self._waiting}.values():
            if now >= request.deadline:
                items = self._take_back(request)
                self._measurements.dropped.labels("deadline").inc(sum(item.input.counted for item in items))
                if not self._loop.is_closed():
                    self._loop.call_soon_threadsafe(_deliver, items, [Late()] * len(items))

    def _outcomes(self, batch: Sequence[_Item], failures: list[str]) -> list[Any]:
        """An answer or an exception for each, in order; the causes of failures are added to a list.

        Texts that cannot be answered are left out and the others computed. A batch that fails for a reason that it does
        not say is halved, until those who fail are found or it has failed often enough. One that lacks memory is
        computed again once, in smaller parts.
        """
        size = 1
        try:
            answers = list(self._compute(batch[0].call, [item.input.texts for item in batch]))
            assert len(answers) == len(batch), "each text has its own answer"
            return [answer if is_finite(answer) else NotFinite(batch[0].call.name) for answer in answers]
        except Abandoned as error:
            return [error] * len(batch)
        except UnansweredTexts as unanswered:
            reasons = unanswered.reasons
            answerable = [item for number, item in enumerate(batch) if number not in reasons]
            others = iter(self._outcomes(answerable, failures) if answerable else [])
            return [unanswered.only(number) if number in reasons else next(others) for number in range(len(batch))]
        except BaseException as error:  # a panic of a Rust library is not an Exception
            kind = "memory" if lacks_memory(error) else "other"
            self._measurements.failures.labels(kind).inc()
            again = kind == "memory" and kind in failures
            failures.append(kind)
            if kind == "memory":
                error.__traceback__ = None  # it keeps what the attempt computed
            if len(batch) == 1 or len(failures) > MOST_FAILURES or again:
                return [error] * len(batch)
            size = math.ceil(len(batch) / (MEMORY_PARTS if kind == "memory" else 2))
        parts = [batch[start : start + size] for start in range(0, len(batch), size)]
        return [outcome for part in parts for outcome in self._outcomes(part, failures)]

    def _note(self, batch: Sequence[_Item], outcomes: Sequence[Any], seconds: float) -> None:
        counted = sum(item.input.counted for item in batch)
        tokens = sum(item.input.tokens for item in batch)
        ability = batch[0].call.name
        self._measurements.batch_seconds.labels(ability).observe(seconds)
        if isinstance(outcomes[0], Abandoned):  # how long it would have taken is not known
            with self._changed:
                self.backlog.give_up(tokens)
            self._measurements.dropped.labels(batch[0].request.dropped or "deadline").inc(counted)
            return
        with self._changed:
            self.backlog.note(tokens, seconds)
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


_NO_MEMORY = re.compile("can't allocate memory|not enough memory|out of memory", re.IGNORECASE)
"""As PyTorch says it, on a CPU and on a GPU."""


def lacks_memory(error: BaseException) -> bool:
    """Whether there was not enough memory, of the machine or of its accelerator."""
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    return isinstance(error, RuntimeError) and _NO_MEMORY.search(str(error)) is not None


def is_finite(answer: Any) -> bool:
    """Whether every number in an answer is finite."""
    if isinstance(answer, dict):
        return all(map(is_finite, answer.values()))
    if isinstance(answer, list | tuple):
        return all(map(is_finite, answer))
    if isinstance(answer, np.ndarray):
        return bool(np.isfinite(answer).all())
    return not isinstance(answer, float) or math.isfinite(answer)


# --------------------------------------------------------------------------------------------------------------------
# The tokens that an input may be, as estimated from its characters.

LETTERS_PER_TOKEN = 3
"""A low estimate, so that a batch rather holds less than its budget; digits, signs and letters beyond ASCII count as a
token each."""
OVERLAP = 3
"""How often a token of a long text is read at most, since the windows of a text overlap."""
_LETTERS = (string.ascii_letters + string.whitespace).encode()


def as_input(predictor: Predictor, texts: Sequence[Any], windowed: bool = False) -> Input:
    """Arguments of a call, with what they count for and how many tokens they may be.

    They become a sequence, or one for each of the options if there are any. A long text is read in windows, or cut to
    what the model reads.
    """
    shared = sum(_estimate(text) for text in texts if isinstance(text, str)) + 3
    options = next((text for text in texts if isinstance(text, tuple)), ("",))
    sequences = [shared + _estimate(option) for option in options]
    most = predictor.max_length
    tokens = [n + (OVERLAP - 1) * max(n - most, 0) if windowed else min(n, most) for n in sequences]
    longest = max(len(text) for text in (*texts, *options) if isinstance(text, str))
    return Input(tuple(texts), len(options), sum(tokens), longest)


def _estimate(text: str) -> int:
    others = len(text.encode("ascii", "replace").translate(None, _LETTERS))
    return others + (len(text) - others) // LETTERS_PER_TOKEN


# --------------------------------------------------------------------------------------------------------------------
# The served model: its queue, and its state (starting, ready, draining, broken).


State = Literal["starting", "ready", "draining", "broken"]


class Service:
    """One model behind one queue.

    Attributes:
        draining: whether new work is refused, because the server is to end.
        in_progress: requests that were accepted and whose replies are not out.
    """

    def __init__(self, limits: Limits, hosts: Hosts = LOOPBACK) -> None:
        self.limits, self.hosts, self.measurements = limits, hosts, Measurements()
        self._served: tuple[Predictor, Batcher] | None = None
        self.draining, self.in_progress = False, 0

    def start(self, predictor: Predictor) -> None:
        """Serve this model from now on; called in the event loop."""

        def compute(call: Call, inputs: Sequence[tuple[Any, ...]]) -> Sequence[Any]:
            return ABILITIES[call.name].compute(predictor, inputs, call.settings)

        self._served = predictor, Batcher(compute, self.limits, self.measurements)

    @property
    def state(self) -> State:
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
        assert self._served is not None, "asked before the model was loaded"
        return self._served[1]

    def close(self) -> None:
        """End the worker, once what waits is computed."""
        if self._served is not None:
            self.batcher.close()
