"""Answers are slices and no token is lost, on a few contexts; and a tokenizer or a cut that loses some is caught."""

import numpy as np
import pytest
from reliability.trials import Tries

from albert.tasks import examples as windows
from albert.text.sentencepiece import SentencePieceTokenizer
from reliability import offsets


@pytest.fixture
def outcome(tmp_path):
    def run(count: int = offsets.offsets.counts["quick"]) -> Tries:
        tries = Tries(count, 0, tmp_path)
        offsets.offsets.run(tries)
        return tries

    return run


def test_answers_are_slices_of_any_context(outcome):
    found = outcome()
    assert found.failures == []
    assert found.details["answers"] > found.tried and found.details["windows"] > found.tried


def test_tokens_that_are_judged_twice_are_caught(outcome, monkeypatch):
    def everywhere(pieces, n_tokens):
        return [np.ones(stop - start, bool) for start, stop in pieces]

    monkeypatch.setattr(windows, "best_windows", everywhere)
    assert "judged twice" in outcome(200).failures[0]


def test_places_that_are_off_by_one_are_caught(outcome, monkeypatch):
    whole = SentencePieceTokenizer.encode_with_offsets

    def shifted(self, text):
        ids, places = whole(self, text)
        return ids, [(start + 1, end + 1) for start, end in places]

    monkeypatch.setattr(SentencePieceTokenizer, "encode_with_offsets", shifted)
    assert outcome(200).failures
