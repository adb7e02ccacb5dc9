"""One queue for all: texts that ask alike go together up to a budget, and nobody's failure is another's."""

import asyncio
import threading

import pytest

from albert.inference.server.batcher import Batcher, Call, Input, NotFinite, QueueFull, is_finite
from albert.inference.server.limits import Limits
from albert.inference.server.measurements import Measurements
from albert.runtime.errors import InvalidConfiguration

SQUARE, CUBE = Call("square"), Call("cube", (("exact", True),))


class Panic(BaseException):
    """As of a library in Rust: no Exception."""


class Arithmetic:
    """Squares and cubes, once it may begin; 13 is more than it bears, and 26 a reason to panic."""

    def __init__(self) -> None:
        self.may_begin, self.batches = threading.Event(), []

    def __call__(self, call, inputs):
        assert self.may_begin.wait(20)
        self.batches.append((call.name, [number for (number,) in inputs]))
        if (13,) in inputs:
            raise ValueError("13")
        if (26,) in inputs:
            raise Panic
        return [number ** (2 if call == SQUARE else 3) for (number,) in inputs]


def run(scenario, **limits):
    async def whole():
        arithmetic = Arithmetic()
        batcher = Batcher(arithmetic, Limits(**limits), Measurements())
        try:
            return await scenario(batcher, arithmetic)
        finally:
            arithmetic.may_begin.set()
            await asyncio.to_thread(batcher.close)

    return asyncio.run(whole())


def inputs(*numbers, **settings):
    return [Input((number,), **settings) for number in numbers]


async def begun(batcher):
    """A first text occupies the worker, so that what follows waits."""
    first = batcher.submit(SQUARE, inputs(0))
    while batcher._waiting:
        await asyncio.sleep(0.01)
    return first


def test_calls_of_one_kind_go_together_and_the_oldest_goes_first():
    async def scenario(batcher, arithmetic):
        await begun(batcher)
        requests = [batcher.submit(call, inputs(n)) for n, call in enumerate((CUBE, SQUARE, CUBE, SQUARE), start=1)]
        arithmetic.may_begin.set()
        answers = [await request.answers for request in requests]
        assert arithmetic.batches[1:] == [("cube", [1, 3]), ("square", [2, 4])]
        assert answers == [[1], [4], [27], [16]]

    run(scenario)


def test_the_same_question_with_other_options_is_another_call():
    async def scenario(batcher, arithmetic):
        await begun(batcher)
        roughly = Call("cube", (("exact", False),))
        requests = [batcher.submit(call, inputs(n)) for n, call in enumerate((CUBE, roughly, CUBE), start=1)]
        arithmetic.may_begin.set()
        assert [await request.answers for request in requests] == [[1], [8], [27]]
        assert arithmetic.batches[1:] == [("cube", [1, 3]), ("cube", [2])]

    run(scenario)


def test_a_batch_keeps_to_its_tokens():
    async def scenario(batcher, arithmetic):
        await begun(batcher)
        request = batcher.submit(SQUARE, [*inputs(1, 2, tokens=6), *inputs(3, tokens=50), *inputs(4, tokens=4)])
        arithmetic.may_begin.set()
        assert await request.answers == [1, 4, 9, 16]
        assert [numbers for _, numbers in arithmetic.batches[1:]] == [[1, 4], [2], [3]]

    run(scenario, batch_tokens=10)


def test_a_text_that_cannot_be_computed_fails_alone():
    async def scenario(batcher, arithmetic):
        await begun(batcher)
        good = [batcher.submit(SQUARE, inputs(n)) for n in (1, 2)]
        bad = batcher.submit(SQUARE, inputs(3, 13))
        later = batcher.submit(SQUARE, inputs(4))
        arithmetic.may_begin.set()
        with pytest.raises(ValueError, match="13"):
            await bad.answers
        assert [await request.answers for request in (*good, later)] == [[1], [4], [16]]

    run(scenario)


def test_a_panic_fails_its_text_and_the_worker_goes_on():
    async def scenario(batcher, arithmetic):
        arithmetic.may_begin.set()
        with pytest.raises(Panic):
            await asyncio.wait_for(batcher.submit(SQUARE, inputs(26)).answers, 10)
        assert await asyncio.wait_for(batcher.submit(SQUARE, inputs(4)).answers, 10) == [16]

    run(scenario)


def test_a_number_that_is_not_finite_is_no_answer():
    async def scenario(batcher, arithmetic):
        await begun(batcher)
        bad, good = batcher.submit(SQUARE, inputs(float("nan"))), batcher.submit(SQUARE, inputs(2))
        arithmetic.may_begin.set()
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
        assert full.value.retry_after >= 1 and not batcher.is_full
        batcher.submit(SQUARE, inputs(4))
        assert batcher.is_full

    run(scenario, queue_texts=4, texts=4)


def test_options_count_as_texts():
    async def scenario(batcher, arithmetic):
        await begun(batcher)
        with pytest.raises(QueueFull):
            batcher.submit(SQUARE, inputs(1, 2, counted=3))

    run(scenario, queue_texts=5, texts=5)


def test_what_was_dropped_is_not_computed():
    async def scenario(batcher, arithmetic):
        await begun(batcher)
        gone, kept = batcher.submit(SQUARE, inputs(1, 2)), batcher.submit(SQUARE, inputs(3))
        assert batcher.drop(gone, "client gone") == 2
        arithmetic.may_begin.set()
        assert await kept.answers == [9] and gone.answers.cancelled()
        assert arithmetic.batches[1:] == [("square", [3])]

    run(scenario)


def test_closing_computes_what_waits():
    async def scenario(batcher, arithmetic):
        await begun(batcher)
        request = batcher.submit(CUBE, inputs(2))
        arithmetic.may_begin.set()
        await asyncio.to_thread(batcher.close)
        assert await request.answers == [8] and not batcher.is_alive

    run(scenario)


def test_numbers_that_are_not_finite_are_found_wherever_they_are():
    assert is_finite([{"score": 1.0, "label": "nan"}, (1, None)])
    assert not is_finite([{"score": 1.0}, {"scores": [0.0, float("inf")]}])


@pytest.mark.parametrize("limits", [{"texts": 0}, {"header_seconds": -1.0}, {"texts": 9, "queue_texts": 8}])
def test_limits_that_cannot_be_meant_are_refused(limits):
    with pytest.raises(InvalidConfiguration):
        Limits(**limits)
