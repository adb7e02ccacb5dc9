"""A predictor of each kind, and servers that end with the test."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from tests.inference.server.running_servers import BlockedCall, Running, running, wait_until

from albert.inference.predictor import Predictor


@pytest.fixture
def serve() -> Iterator[Callable[..., Running]]:
    """Start a server on a predictor and wait until it is ready; all end with the test."""
    with ExitStack() as stack:

        def start(predictor: Predictor, **settings: Any) -> Running:
            server = stack.enter_context(running(lambda: predictor, **settings))
            wait_until(lambda: server.service.state == "ready")
            return server

        yield start


@pytest.fixture
def classifier(predictors) -> Predictor:
    return predictors("classify")


@pytest.fixture
def blocked(serve, monkeypatch) -> Iterator[BlockedCall]:
    """Classification, blocked until it is released or the test ends."""
    waiting = BlockedCall(Predictor.replies)
    monkeypatch.setattr(Predictor, "replies", lambda *arguments: waiting(*arguments))
    yield waiting
    waiting.released.set()
