"""The request queue: texts of the same call share batches up to a budget; a failure affects only its own request."""

import asyncio
import math
import threading
from dataclasses import dataclass

import pytest
import torch
from tests.inference.server.running_servers import wait_until

from albert.inference.engine import BETWEEN_BATCHES
from albert.inference.server.batching import (
    BATCH_TOKENS,
    MAX_FAILURES,
    MEMORY_PARTS,
    Batcher,
    Call,
    Metrics,
    QueueFull,
    SizedExample,
    lacks_memory,
)
from albert.inference.server.limits import Limits


@dataclass(frozen=True)
class Power:
    """In the place of a pipeline."""

    name: str
    scaled: bool = False


SQUARE, CUBE = Call(Power("square")), Call(Power("cube", scaled=True))


class Arithmetic:
    """Computes squares and cubes, once it may start; 13 raises an error."""

    def __init__(self) -> None:
        self.may_start, self.batches = threading.Event(), []

    def __call__(self, call, inputs):
        assert self.may_start.wait(20)
        self.batches.append((call.pipeline.name, [number for (number,) in inputs]))
        if (13,) in inputs:
            raise ValueError("13")
        return [number ** (2 if call == SQUARE else 3) for (number,) in inputs]

    @property
    def numbers(self):
        """The numbers of all batches but the first, in order."""
        return [number for _, numbers in self.batches[1:] for number in numbers]


def with_batcher(make_compute=Arithmetic, busy=True, batch_tokens=BATCH_TOKENS, **limits):
    """Run a test with a batcher; if `busy`, a first text is being computed, so that others wait in the queue."""

    def decorate(test):
        async def main():
            compute = make_compute()
            batcher = Batcher(compute, Limits(**limits), Metrics(), lambda: 0.0, batch_tokens)
            try:
                if busy:
                    batcher.submit(SQUARE, inputs(0))
                    while batcher.backlog.texts:
                        await asyncio.sleep(0.01)
                await test(batcher, compute)
            finally:
                compute.may_start.set()
                await asyncio.to_thread(batcher.close)

        return lambda: asyncio.run(main())

    return decorate


def inputs(*numbers, **settings):
    return [SizedExample((number,), **settings) for number in numbers]


@with_batcher()
async def test_texts_of_the_same_call_share_batches_oldest_first(batcher, arithmetic):
    requests = [batcher.submit(call, inputs(n)) for n, call in enumerate((CUBE, SQUARE, CUBE, SQUARE), start=1)]
    arithmetic.may_start.set()
    assert [await request.answers for request in requests] == [[1], [4], [27], [16]]
    assert arithmetic.batches[1:] == [("cube", [1, 3]), ("square", [2, 4])]


@with_batcher()
async def test_other_settings_are_another_call(batcher, arithmetic):
    requests = [batcher.submit(call, inputs(n)) for n, call in enumerate((CUBE, Call(Power("cube")), CUBE), start=1)]
    arithmetic.may_start.set()
    assert [await request.answers for request in requests] == [[1], [8], [27]]
    assert arithmetic.batches[1:] == [("cube", [1, 3]), ("cube", [2])]


@with_batcher(batch_tokens=10)
async def test_batch_has_at_most_its_tokens(batcher, arithmetic):
    request = batcher.submit(SQUARE, [*inputs(1, 2, tokens=6), *inputs(3, tokens=50), *inputs(4, tokens=4)])
    arithmetic.may_start.set()
    assert await request.answers == [1, 4, 9, 16]
    numbers = [numbers for _, numbers in arithmetic.batches[1:]]
    assert sorted(numbers) == [[1, 4], [2], [3]] and numbers.index([1, 4]) < numbers.index([2])


@with_batcher()
async def test_text_that_cannot_be_computed_fails_alone(batcher, arithmetic):
    good = [batcher.submit(SQUARE, inputs(n)) for n in (1, 2)]
    bad = batcher.submit(SQUARE, inputs(3, 13))
    good.append(batcher.submit(SQUARE, inputs(4)))
    arithmetic.may_start.set()
    with pytest.raises(ValueError, match="13"):
        await bad.answers
    assert [await request.answers for request in good] == [[1], [4], [16]]


@with_batcher(queue_texts=5, texts=5)
async def test_options_count_as_texts(batcher, arithmetic):
    with pytest.raises(QueueFull):
        batcher.submit(SQUARE, inputs(1, 2, text_count=3))


@with_batcher()
async def test_dropped_request_is_not_computed(batcher, arithmetic):
    dropped, other = batcher.submit(SQUARE, inputs(1, 2)), batcher.submit(SQUARE, inputs(3))
    assert batcher.drop(dropped, "client gone") == 2
    arithmetic.may_start.set()
    assert await other.answers == [9] and dropped.answers.cancelled()
    assert arithmetic.numbers == [3]


@with_batcher()
async def test_close_computes_queued_texts(batcher, arithmetic):
    request = batcher.submit(CUBE, inputs(2))
    arithmetic.may_start.set()
    await asyncio.to_thread(batcher.close)
    assert await request.answers == [8] and not batcher.is_alive


@with_batcher(batch_tokens=8)
async def test_requests_take_turns_by_tokens(batcher, arithmetic):
    requests = [
        batcher.submit(SQUARE, inputs(1, 2, 3, tokens=8)),
        batcher.submit(SQUARE, inputs(10, 20, 30, 40, tokens=5)),
    ]
    arithmetic.may_start.set()
    for request in requests:
        await request.answers
    assert arithmetic.numbers == [1, 10, 20, 2, 30, 40, 3]


class Pieces(Arithmetic):
    """Computes capital letters in four pieces, other letters in one, and records every piece."""

    def __init__(self) -> None:
        super().__init__()
        self.pieces, self.after_piece = [], lambda piece: None

    def __call__(self, call, inputs):
        assert self.may_start.wait(20)
        ((letter,),) = inputs
        for number in range(4 if letter.isupper() else 1):
            BETWEEN_BATCHES.get()()
            self.pieces.append(f"{letter}{number}")
            self.after_piece(self.pieces[-1])
        return [letter]


@with_batcher(Pieces, busy=False, batch_tokens=10)
async def test_long_text_lets_others_compute_between_its_pieces(batcher, pieces):
    loop, short_requests = asyncio.get_running_loop(), []

    async def submit(letter):
        short_requests.append(batcher.submit(SQUARE, inputs(letter)))

    def after_piece(piece):
        if piece[0] == "A" and piece != "A3":
            asyncio.run_coroutine_threadsafe(submit("bcd"[int(piece[1])]), loop).result(20)

    pieces.after_piece = after_piece
    pieces.may_start.set()
    request = batcher.submit(SQUARE, inputs("A", tokens=1000))
    assert await asyncio.wait_for(request.answers, 20) == ["A"]
    assert [await short.answers for short in short_requests] == [["b"], ["c"], ["d"]]
    assert pieces.pieces == ["A0", "b0", "A1", "c0", "A2", "d0", "A3"]


@with_batcher(Pieces, busy=False, batch_tokens=10)
async def test_computation_stops_when_no_client_waits(batcher, pieces):
    def after_piece(piece):
        if piece == "A1":
            loop.call_soon_threadsafe(batcher.drop, request, "client gone")
            wait_until(lambda: request.answers.done())

    loop = asyncio.get_running_loop()
    pieces.after_piece = after_piece
    request = batcher.submit(SQUARE, inputs("A", tokens=1000))
    pieces.may_start.set()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(request.answers, 20)
    assert await asyncio.wait_for(batcher.submit(SQUARE, inputs("b")).answers, 20) == ["b"]
    sample = batcher._metrics.registry.get_sample_value
    wait_until(lambda: sample("albert_dropped_texts_total", {"reason": "client gone"}) == 1)
    assert pieces.pieces == ["A0", "A1", "b0"] and batcher.backlog.tokens == 0


class Scarce(Arithmetic):
    """Raises an error for more than so many texts at a time."""

    def __init__(self, most, error) -> None:
        super().__init__()
        self.most, self.error = most, error
        self.may_start.set()

    def __call__(self, call, inputs):
        answers = super().__call__(call, inputs)
        if len(inputs) > self.most:
            raise self.error
        return answers


NO_MEMORY = RuntimeError("[enforce fail at alloc_cpu.cpp:117] DefaultCPUAllocator: can't allocate memory")


@pytest.mark.parametrize("error", [MemoryError(), NO_MEMORY, torch.OutOfMemoryError("CUDA out of memory.")])
@pytest.mark.parametrize("most", [0, 8, 32])
def test_batch_that_lacks_memory_is_computed_again_once_in_parts(most, error):
    @with_batcher(lambda: Scarce(most, error), busy=False)
    async def check(batcher, arithmetic):
        request = batcher.submit(SQUARE, inputs(*range(100, 132)))
        if most:
            assert await request.answers == [n * n for n in range(100, 132)]
        else:
            with pytest.raises(type(error)) as raised:
                await request.answers
            assert lacks_memory(raised.value)
        assert [len(numbers) for _, numbers in arithmetic.batches] == [32, *([8] * MEMORY_PARTS if most < 32 else [])]

    check()


@with_batcher(lambda: Scarce(0, ValueError("broken")), busy=False, texts=128)
async def test_search_for_failing_texts_is_bounded(batcher, arithmetic):
    with pytest.raises(ValueError, match="broken"):
        await batcher.submit(SQUARE, inputs(*range(100, 228))).answers
    assert len(arithmetic.batches) <= MAX_FAILURES + math.log2(128)
