"""One queue for all: texts that ask alike go together up to a budget, and nobody's failure is another's."""

import asyncio
import math
import threading

import pytest
import torch
from tests.inference.server.running_servers import wait_until

from albert.inference.abilities import Settings, UnansweredTexts
from albert.inference.engine import BETWEEN_BATCHES
from albert.inference.server.batching import (
    LONG_TEXT_THREADS,
    MAX_FAILURES,
    MEMORY_PARTS,
    Abandoned,
    Batcher,
    Call,
    DeadlineExceeded,
    Input,
    Metrics,
    NotFinite,
    QueueFull,
    is_finite,
    lacks_memory,
)
from albert.inference.server.limits import Limits
from albert.runtime.errors import InvalidConfiguration

SQUARE, CUBE = Call("square"), Call("cube", Settings(normalize=True))


class Panic(BaseException):
    """As of a library in Rust: no Exception."""


class Arithmetic:
    """Squares and cubes, once it may begin; 13 is more than it bears, and 26 a reason to panic."""

    def __init__(self) -> None:
        self.may_start, self.batches = threading.Event(), []

    def __call__(self, call, inputs):
        assert self.may_start.wait(20)
        self.batches.append((call.name, [number for (number,) in inputs]))
        if (13,) in inputs:
            raise ValueError("13")
        if (26,) in inputs:
            raise Panic
        return [number ** (2 if call == SQUARE else 3) for (number,) in inputs]


class Clock:
    """Seconds that pass when a test says so."""

    now = 0.0

    def __call__(self):
        return self.now


def run(scenario, clock=None, arithmetic=None, **limits):
    async def main():
        nonlocal arithmetic
        arithmetic = arithmetic or Arithmetic()
        settings = {} if clock is None else {"clock": clock}
        batcher = Batcher(arithmetic, Limits(**limits), Metrics(), **settings)
        try:
            return await scenario(batcher, arithmetic)
        finally:
            arithmetic.may_start.set()
            await asyncio.to_thread(batcher.close)

    return asyncio.run(main())


def inputs(*numbers, **settings):
    return [Input((number,), **settings) for number in numbers]


async def begun(batcher):
    """A first text occupies the worker, so that what follows waits."""
    first = batcher.submit(SQUARE, inputs(0))
    while batcher.backlog.texts:
        await asyncio.sleep(0.01)
    return first


def test_calls_of_one_kind_go_together_and_the_oldest_goes_first():
    async def scenario(batcher, arithmetic):
        await begun(batcher)
        requests = [batcher.submit(call, inputs(n)) for n, call in enumerate((CUBE, SQUARE, CUBE, SQUARE), start=1)]
        arithmetic.may_start.set()
        answers = [await request.answers for request in requests]
        assert arithmetic.batches[1:] == [("cube", [1, 3]), ("square", [2, 4])]
        assert answers == [[1], [4], [27], [16]]

    run(scenario)


def test_the_same_question_with_other_options_is_another_call():
    async def scenario(batcher, arithmetic):
        await begun(batcher)
        roughly = Call("cube")
        requests = [batcher.submit(call, inputs(n)) for n, call in enumerate((CUBE, roughly, CUBE), start=1)]
        arithmetic.may_start.set()
        assert [await request.answers for request in requests] == [[1], [8], [27]]
        assert arithmetic.batches[1:] == [("cube", [1, 3]), ("cube", [2])]

    run(scenario)


def test_a_batch_keeps_to_its_tokens():
    async def scenario(batcher, arithmetic):
        await begun(batcher)
        request = batcher.submit(SQUARE, [*inputs(1, 2, tokens=6), *inputs(3, tokens=50), *inputs(4, tokens=4)])
        arithmetic.may_start.set()
        assert await request.answers == [1, 4, 9, 16]
        numbers = [numbers for _, numbers in arithmetic.batches[1:]]
        assert sorted(numbers) == [[1, 4], [2], [3]] and numbers.index([1, 4]) < numbers.index([2])

    run(scenario, batch_tokens=10)


def test_a_text_that_cannot_be_computed_fails_alone():
    async def scenario(batcher, arithmetic):
        await begun(batcher)
        good = [batcher.submit(SQUARE, inputs(n)) for n in (1, 2)]
        bad = batcher.submit(SQUARE, inputs(3, 13))
        later = batcher.submit(SQUARE, inputs(4))
        arithmetic.may_start.set()
        with pytest.raises(ValueError, match="13"):
            await bad.answers
        assert [await request.answers for request in (*good, later)] == [[1], [4], [16]]

    run(scenario)


def test_a_panic_fails_its_text_and_the_worker_goes_on():
    async def scenario(batcher, arithmetic):
        arithmetic.may_start.set()
        with pytest.raises(Panic):
            await asyncio.wait_for(batcher.submit(SQUARE, inputs(26)).answers, 10)
        assert await asyncio.wait_for(batcher.submit(SQUARE, inputs(4)).answers, 10) == [16]

    run(scenario)


def test_a_number_that_is_not_finite_is_no_answer():
    async def scenario(batcher, arithmetic):
        await begun(batcher)
        bad, good = batcher.submit(SQUARE, inputs(float("nan"))), batcher.submit(SQUARE, inputs(2))
        arithmetic.may_start.set()
        with pytest.raises(NotFinite, match="square"):
            await bad.answers
        assert await good.answers == [4] and len(arithmetic.batches) == 2

    run(scenario)


def test_a_request_finds_room_as_a_whole_or_not_at_all():
    async def scenario(batcher, arithmetic):
        await begun(batcher)
        batcher.submit(SQUARE, inputs(1, 2, 3))
        with pytest.raises(QueueFull) as full:
            batcher.submit(SQUARE, inputs(4, 5))
        assert full.value.args[0] >= 1 and not batcher.backlog.is_full
        batcher.submit(SQUARE, inputs(4))
        assert batcher.backlog.is_full

    run(scenario, queue_texts=4, texts=4)


def test_options_count_as_texts():
    async def scenario(batcher, arithmetic):
        await begun(batcher)
        with pytest.raises(QueueFull):
            batcher.submit(SQUARE, inputs(1, 2, text_count=3))

    run(scenario, queue_texts=5, texts=5)


def test_what_was_dropped_is_not_computed():
    async def scenario(batcher, arithmetic):
        await begun(batcher)
        gone, kept = batcher.submit(SQUARE, inputs(1, 2)), batcher.submit(SQUARE, inputs(3))
        assert batcher.drop(gone, "client gone") == 2
        arithmetic.may_start.set()
        assert await kept.answers == [9] and gone.answers.cancelled()
        assert arithmetic.batches[1:] == [("square", [3])]

    run(scenario)


def test_closing_computes_what_waits():
    async def scenario(batcher, arithmetic):
        await begun(batcher)
        request = batcher.submit(CUBE, inputs(2))
        arithmetic.may_start.set()
        await asyncio.to_thread(batcher.close)
        assert await request.answers == [8] and not batcher.is_alive

    run(scenario)


def computed(arithmetic):
    """The numbers of all batches but the first, in their order."""
    return [number for _, numbers in arithmetic.batches[1:] for number in numbers]


def test_a_small_request_comes_before_the_later_texts_of_a_large_one():
    async def scenario(batcher, arithmetic):
        await begun(batcher)
        large = batcher.submit(SQUARE, inputs(1, 2, 3, 4, tokens=8))
        small = batcher.submit(SQUARE, inputs(10, tokens=8))
        arithmetic.may_start.set()
        assert await small.answers == [100] and await large.answers == [1, 4, 9, 16]
        assert computed(arithmetic) == [1, 10, 2, 3, 4]

    run(scenario, batch_tokens=8)


def test_requests_take_turns_by_tokens():
    async def scenario(batcher, arithmetic):
        await begun(batcher)
        requests = [
            batcher.submit(SQUARE, inputs(1, 2, 3, tokens=8)),
            batcher.submit(SQUARE, inputs(10, 20, 30, 40, tokens=5)),
        ]
        arithmetic.may_start.set()
        for request in requests:
            await request.answers
        assert computed(arithmetic) == [1, 10, 20, 2, 30, 40, 3]

    run(scenario, batch_tokens=8)


class Pieces(Arithmetic):
    """Texts are letters; a capital one is computed in four pieces. What is computed is noted piece by piece."""

    def __init__(self) -> None:
        super().__init__()
        self.pieces, self.before_pausing = [], lambda piece: None

    def __call__(self, call, inputs):
        assert self.may_start.wait(20)
        ((letter,),) = inputs
        for number in range(4 if letter.isupper() else 1):
            BETWEEN_BATCHES.get()()
            self.pieces.append(f"{letter}{number}")
            self.before_pausing(self.pieces[-1])
        return [letter]


def test_a_long_text_lets_others_compute_between_its_pieces():
    async def scenario(batcher, pieces):
        loop, shorts = asyncio.get_running_loop(), []

        async def come(letter):
            shorts.append(batcher.submit(SQUARE, inputs(letter)))

        def somebody_comes(piece):
            if piece[0] == "A" and piece != "A3":
                asyncio.run_coroutine_threadsafe(come("bcd"[int(piece[1])]), loop).result(20)
                wait_until(lambda: batcher._compute_lock._waiting)

        pieces.before_pausing = somebody_comes
        pieces.may_start.set()
        long = batcher.submit(SQUARE, inputs("A", tokens=1000))
        assert await asyncio.wait_for(long.answers, 20) == ["A"]
        assert [await short.answers for short in shorts] == [["b"], ["c"], ["d"]]
        assert pieces.pieces == ["A0", "b0", "A1", "c0", "A2", "d0", "A3"]

    run(scenario, arithmetic=Pieces(), batch_tokens=10)


def test_long_texts_of_two_callers_take_turns():
    async def scenario(batcher, pieces):
        first = batcher.submit(SQUARE, inputs("x"))
        await asyncio.to_thread(wait_until, lambda: batcher._compute_lock._locked)
        longs = [batcher.submit(SQUARE, inputs(letter, tokens=1000)) for letter in "AB"]
        await asyncio.to_thread(wait_until, lambda: len(batcher._compute_lock._waiting) == LONG_TEXT_THREADS)
        pieces.may_start.set()
        assert [await request.answers for request in (first, *longs)] == [["x"], ["A"], ["B"]]
        assert pieces.pieces == ["x0", "A0", "B0", "A1", "B1", "A2", "B2", "A3", "B3"]

    run(scenario, arithmetic=Pieces(), batch_tokens=10)


def test_what_is_late_is_not_begun():
    clock = Clock()

    async def scenario(batcher, arithmetic):
        first = await begun(batcher)
        late = batcher.submit(SQUARE, inputs(1, 2))
        clock.now = 4.0
        timely = batcher.submit(SQUARE, inputs(3))
        clock.now = 6.0
        arithmetic.may_start.set()
        assert await first.answers == [0] and await timely.answers == [9]
        with pytest.raises(DeadlineExceeded):
            await late.answers
        assert computed(arithmetic) == [3] and (batcher.backlog.texts, batcher.backlog.tokens) == (0, 0)

    run(scenario, clock=clock, request_seconds=5.0)


@pytest.mark.parametrize("why", ["deadline", "client gone"])
def test_what_is_being_computed_ends_when_nobody_waits_for_it(why):
    clock = Clock()

    async def scenario(batcher, pieces):
        request = None

        def nobody_waits(piece):
            if piece == "A1":
                if why == "deadline":
                    clock.now = 6.0
                else:
                    loop.call_soon_threadsafe(batcher.drop, request, why)
                    wait_until(lambda: request.answers.done())

        loop = asyncio.get_running_loop()
        pieces.before_pausing = nobody_waits
        request = batcher.submit(SQUARE, inputs("A", tokens=1000))
        pieces.may_start.set()
        with pytest.raises((Abandoned, asyncio.CancelledError)):
            await asyncio.wait_for(request.answers, 20)
        clock.now = 0.0
        assert await asyncio.wait_for(batcher.submit(SQUARE, inputs("b")).answers, 20) == ["b"]
        sample = batcher._metrics.registry.get_sample_value
        wait_until(lambda: sample("albert_dropped_texts_total", {"reason": why}) == 1)
        assert pieces.pieces == ["A0", "A1", "b0"] and batcher.backlog.tokens == 0

    run(scenario, clock=clock, arithmetic=Pieces(), batch_tokens=10, request_seconds=5.0)


class Scarce(Arithmetic):
    """There is memory for so many texts at a time."""

    def __init__(self, most: int, error: Exception) -> None:
        super().__init__()
        self.most, self.error = most, error

    def __call__(self, call, inputs):
        answers = super().__call__(call, inputs)
        if len(inputs) > self.most:
            raise self.error
        return answers


NO_MEMORY = RuntimeError("[enforce fail at alloc_cpu.cpp:117] DefaultCPUAllocator: can't allocate memory")


@pytest.mark.parametrize("error", [MemoryError(), NO_MEMORY, torch.OutOfMemoryError("CUDA out of memory.")])
@pytest.mark.parametrize("most", [0, 8, 32])
def test_a_batch_that_lacks_memory_is_computed_again_once_in_parts(most, error):
    async def scenario(batcher, arithmetic):
        arithmetic.may_start.set()
        request = batcher.submit(SQUARE, inputs(*range(100, 132)))
        if most:
            assert await request.answers == [n * n for n in range(100, 132)]
        else:
            with pytest.raises(type(error)) as raised:
                await request.answers
            assert lacks_memory(raised.value)
        assert [len(numbers) for _, numbers in arithmetic.batches] == [32, *([8] * MEMORY_PARTS if most < 32 else [])]

    run(scenario, arithmetic=Scarce(most, error))


def test_a_cause_that_is_no_text_does_not_make_a_search_without_end():
    async def scenario(batcher, arithmetic):
        arithmetic.may_start.set()
        with pytest.raises(ValueError, match="broken"):
            await batcher.submit(SQUARE, inputs(*range(100, 228))).answers
        assert len(arithmetic.batches) <= MAX_FAILURES + math.log2(128)

    run(scenario, arithmetic=Scarce(0, ValueError("broken")), texts=128)


def test_texts_that_cannot_be_answered_are_left_out_and_the_others_computed_once():
    class Refusing(Arithmetic):
        def __call__(self, call, inputs):
            answers = super().__call__(call, inputs)
            if odd := {place: ("is odd", None) for place, (number,) in enumerate(inputs) if number % 2}:
                raise UnansweredTexts("text", odd)
            return answers

    async def scenario(batcher, arithmetic):
        await begun(batcher)
        requests = [batcher.submit(SQUARE, inputs(n)) for n in range(2, 10)]
        arithmetic.may_start.set()
        outcomes = await asyncio.gather(*(request.answers for request in requests), return_exceptions=True)
        assert [answer for answer in outcomes if not isinstance(answer, UnansweredTexts)] == [[4], [16], [36], [64]]
        assert {str(error) for error in outcomes[1::2]} == {"text: is odd"}
        assert [numbers for _, numbers in arithmetic.batches[1:]] == [[*range(2, 10)], [2, 4, 6, 8]]

    run(scenario, arithmetic=Refusing())


def test_numbers_that_are_not_finite_are_found_wherever_they_are():
    assert is_finite([{"score": 1.0, "label": "nan"}, (1, None)])
    assert not is_finite([{"score": 1.0}, {"scores": [0.0, float("inf")]}])


@pytest.mark.parametrize("limits", [{"texts": 0}, {"header_seconds": -1.0}, {"texts": 9, "queue_texts": 8}])
def test_limits_that_cannot_be_meant_are_refused(limits):
    with pytest.raises(InvalidConfiguration):
        Limits(**limits)
