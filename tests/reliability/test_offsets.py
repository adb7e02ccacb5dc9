"""The trial of answers on random contexts, and that it detects lost or shifted tokens."""

import numpy as np
import pytest
from dev.reliability import offsets
from dev.reliability.trials import Tries

from albert.tasks import span_windows
from albert.text.sentencepiece import SentencePieceTokenizer


@pytest.fixture
def outcome(tmp_path):
    def run(count: int = offsets.offsets.counts["quick"]) -> Tries:
        tries = Tries(count, 0, tmp_path)
        offsets.offsets.run(tries)
        return tries

    return run


def test_answers_are_slices_of_any_context(outcome):
    tries = outcome()
    assert tries.failures == []
    assert tries.details["answers"] > tries.tried and tries.details["windows"] > tries.tried


def test_tokens_judged_twice_are_detected(outcome, monkeypatch):
    def everywhere(pieces, n_tokens):
        return [np.ones(stop - start, bool) for start, stop in pieces]

    monkeypatch.setattr(span_windows, "best_windows", everywhere)
    assert "judged twice" in outcome(200).failures[0]


def test_offsets_off_by_one_are_detected(outcome, monkeypatch):
    whole = SentencePieceTokenizer.encode_with_offsets

    def shifted(self, text):
        ids, places = whole(self, text)
        return ids, [(start + 1, end + 1) for start, end in places]

    monkeypatch.setattr(SentencePieceTokenizer, "encode_with_offsets", shifted)
    assert outcome(200).failures
