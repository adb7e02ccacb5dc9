"""Admission control: a request that a slow model could not answer in time is refused before it waits."""

from albert.inference.server.batching import FIRST_TOKENS, MIN_TOKENS, Backlog
from albert.inference.server.limits import Limits

SECONDS_PER_TOKEN = 0.01


def compute(backlog: Backlog, tokens: int, seconds: float) -> None:
    backlog.add(0, tokens)
    backlog.record(tokens, seconds)


def after_a_batch(batch_tokens: int = 8192, **limits: float) -> Backlog:
    """A backlog whose speed is known from a batch of 500 tokens."""
    backlog = Backlog(Limits(**limits), batch_tokens)
    compute(backlog, 500, 500 * SECONDS_PER_TOKEN)
    return backlog


def test_request_that_would_wait_too_long_is_refused():
    backlog = after_a_batch(queue_seconds=2.0)
    assert backlog.has_room(1, 100_000)  # an empty queue takes any request
    backlog.add(1, 150)
    assert backlog.has_room(1, 50) and not backlog.has_room(2, 60)
    assert backlog.retry_after == 2 and not backlog.is_full
    backlog.add(1, 50)
    assert backlog.is_full
    backlog.add(-2, -200)
    assert (backlog.texts, backlog.tokens, backlog.is_full) == (0, 0, False)
    backlog = after_a_batch(queue_seconds=100.0, request_seconds=1.0)
    backlog.add(1, 99)
    assert backlog.has_room(1, 1) and not backlog.has_room(1, 2)


def test_texts_that_are_being_computed_count_until_they_are_done():
    backlog = after_a_batch(queue_seconds=2.0)
    backlog.add(1, 90)
    backlog.add(-1, 0)
    assert backlog.texts == 0 and backlog.seconds == 90 * SECONDS_PER_TOKEN
    backlog.add(1, 80)
    assert backlog.has_room(1, 30) and not backlog.has_room(1, 31)
    backlog.record(90, 90 * SECONDS_PER_TOKEN)
    assert backlog.has_room(1, 120)


def test_only_texts_count_before_the_speed_is_known():
    backlog = Backlog(Limits(queue_texts=40))
    backlog.add(39, 10**9)
    assert backlog.has_room(1, 10**9) and not backlog.has_room(2, 2) and backlog.retry_after == 1


def test_batches_of_a_slow_model_have_fewer_tokens():
    assert after_a_batch().batch_tokens == 100
    assert after_a_batch(batch_tokens=50).batch_tokens == 50
    assert Backlog(Limits()).batch_tokens == FIRST_TOKENS


def test_short_texts_hardly_change_the_speed():
    backlog = Backlog(Limits())
    for _ in range(50):
        compute(backlog, 4, 0.02)
    backlog.add(1, MIN_TOKENS)
    assert backlog.seconds < 0.021
    compute(backlog, 8192, 8192 * SECONDS_PER_TOKEN)
    assert backlog.seconds > 0.7 * MIN_TOKENS * SECONDS_PER_TOKEN
