"""A queue is as long as it takes: what a slow model could not answer in time is refused before it waits."""

from albert.inference.server.batching import FIRST_TOKENS, LEAST_TOKENS, Backlog
from albert.inference.server.limits import Limits

PACE = 0.01
"""Seconds that the model takes for a token."""


def computed(backlog: Backlog, tokens: int, seconds: float) -> None:
    """A text came, was computed, and nothing of it is left."""
    backlog.add([(1, tokens)])
    backlog.remove([(1, 0)])
    backlog.record(tokens, seconds)


def paced(**limits: float) -> Backlog:
    """Of a model that computed a batch of 500 tokens."""
    backlog = Backlog(Limits(**limits))
    computed(backlog, 500, 500 * PACE)
    return backlog


def test_what_would_wait_too_long_is_refused_though_there_is_room_for_its_texts():
    backlog = paced(queue_seconds=2.0)
    backlog.add([(1, 150)])
    assert backlog.has_room([(1, 50)]) and not backlog.has_room([(1, 30), (1, 30)])
    assert backlog.retry_after == 2 and not backlog.is_full
    backlog.add([(1, 50)])
    assert backlog.is_full
    backlog.remove([(1, 150), (1, 50)])
    assert (backlog.texts, backlog.tokens, backlog.is_full) == (0, 0, False)


def test_what_is_being_computed_is_waited_for_too():
    backlog = paced(queue_seconds=2.0)
    backlog.add([(1, 90)])
    backlog.remove([(1, 0)])
    assert backlog.texts == 0 and backlog.seconds == 90 * PACE
    backlog.add([(1, 80)])
    assert backlog.has_room([(1, 30)]) and not backlog.has_room([(1, 31)])
    backlog.record(90, 90 * PACE)
    assert backlog.has_room([(1, 120)])


def test_where_nothing_waits_a_long_request_is_taken():
    assert paced(queue_seconds=2.0).has_room([(1, 100_000)])


def test_nothing_waits_longer_than_a_request_may_take():
    backlog = paced(queue_seconds=100.0, request_seconds=1.0)
    backlog.add([(1, 99)])
    assert backlog.has_room([(1, 1)]) and not backlog.has_room([(1, 2)])


def test_before_the_first_batch_texts_alone_count():
    backlog = Backlog(Limits(queue_texts=40))
    backlog.add([(39, 10**9)])
    assert backlog.has_room([(1, 10**9)]) and not backlog.has_room([(2, 2)]) and backlog.retry_after == 1


def test_a_slow_model_computes_less_at_a_time():
    assert paced(batch_tokens=8192).batch_tokens == 100
    assert paced(batch_tokens=50).batch_tokens == 50
    assert Backlog(Limits(batch_tokens=8192)).batch_tokens == FIRST_TOKENS  # before any pace is known


def test_a_single_short_text_says_little_of_the_pace():
    backlog = Backlog(Limits())
    for _ in range(50):
        computed(backlog, 4, 0.02)
    backlog.add([(1, LEAST_TOKENS)])
    assert backlog.seconds < 0.021
    computed(backlog, 8192, 8192 * PACE)
    assert backlog.seconds > 0.7 * LEAST_TOKENS * PACE
