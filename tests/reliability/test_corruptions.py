"""The trial of damaged directories, and that it detects wrong loads."""

from dataclasses import replace

import pytest
from dev.reliability import corruptions
from dev.reliability.corruptions import KINDS, digest
from dev.reliability.trials import Tries


@pytest.mark.trial
def test_damage_is_refused_or_harmless(tmp_path):
    outcome = Tries(corruptions.corruptions.counts["quick"], 0, tmp_path)
    corruptions.corruptions.run(outcome)
    assert outcome.failures == []
    assert outcome.details["refused"] > outcome.tried / 2


def test_a_reader_that_checks_nothing_is_caught(tmp_path, monkeypatch):
    careless = replace(KINDS[0], reader=lambda scene: lambda path: digest((path / "spiece.model").stat().st_size))
    blind = replace(KINDS[0], reader=lambda scene: lambda path: digest((path / "MANIFEST.json").read_bytes()))
    monkeypatch.setattr(corruptions, "KINDS", (careless, blind))
    outcome = Tries(60, 0, tmp_path)
    corruptions.corruptions.run(outcome)
    assert len(outcome.failures) > 5
    assert any("a wrong load" in failure for failure in outcome.failures)
    assert any("FileNotFoundError" in failure for failure in outcome.failures)
