"""A predictor of each kind, and servers that end with the test."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache
from typing import Any

import pytest
import torch
from tests.inference.server.running_servers import BlockedCall, Running, running, wait_until

from albert.checkpoints.model_directory import save_model_directory
from albert.inference.predictor import Predictor
from albert.model.albert import (
    AlbertForMultipleChoice,
    AlbertForPreTraining,
    AlbertForQuestionAnswering,
    AlbertForSequenceClassification,
    AlbertForTokenClassification,
)

NAMED = {"id2label": {"0": "calm", "1": "storm", "2": "wreck"}, "label2id": {"calm": 0, "storm": 1, "wreck": 2}}


@pytest.fixture
def serve() -> Iterator[Callable[..., Running]]:
    """Start a server on a predictor and wait until it is ready; all end with the test."""
    with ExitStack() as stack:

        def start(predictor: Predictor, **settings: Any) -> Running:
            server = stack.enter_context(running(lambda: predictor, **settings))
            wait_until(lambda: server.service.state == "ready")
            return server

        yield start


@pytest.fixture(scope="session")
def predictors(tokenizer_directory, config, tmp_path_factory) -> Callable[[str], Predictor]:
    """Predictors of all kinds in fp32, opened once."""
    models = {
        "pretrain": (lambda: AlbertForPreTraining(config), {}),
        "classify": (lambda: AlbertForSequenceClassification(config, 3), NAMED),
        "score": (lambda: AlbertForSequenceClassification(config, 1), {"problem_type": "regression"}),
        "answer": (lambda: AlbertForQuestionAnswering(config), {}),
        "tag": (lambda: AlbertForTokenClassification(config, 3), NAMED),
        "choose": (lambda: AlbertForMultipleChoice(config), {}),
    }

    @cache
    def make(kind: str) -> Predictor:
        torch.manual_seed(3)
        model, extra = models[kind]
        path = tmp_path_factory.mktemp("served") / kind
        save_model_directory(path, model(), tokenizer_directory, extra=extra)
        return Predictor.open(path, "cpu", precision="fp32")

    return make


@pytest.fixture
def classifier(predictors) -> Predictor:
    return predictors("classify")


@pytest.fixture
def blocked(classifier, serve, monkeypatch) -> Iterator[BlockedCall]:
    """The classifier, blocked until it is released or the test ends."""
    waiting = BlockedCall(classifier.classify_batch)
    monkeypatch.setattr(classifier, "classify_batch", waiting)
    yield waiting
    waiting.released.set()
