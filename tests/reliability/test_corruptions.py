"""Damage of every kind, refused, or read exactly as it was; and a reader that is taken in is caught."""

from dataclasses import replace
from pathlib import Path

from reliability.kept_kinds import KINDS, digest
from reliability.trial import Asked

from reliability import corruptions


def asked(folder: Path, count: int) -> Asked:
    return Asked(count=count, seed=0, folder=folder, report=lambda more: None)


def test_damage_is_refused_or_harmless(tmp_path):
    outcome = corruptions.run(asked(tmp_path, corruptions.TRIAL.counts["quick"]))
    assert outcome.failures == ()
    assert outcome.details["refused"] > outcome.tried / 2


def test_a_reader_that_checks_nothing_is_caught(tmp_path, monkeypatch):
    careless = replace(KINDS[0], reader=lambda scene: lambda path: digest((path / "spiece.model").stat().st_size))
    blind = replace(KINDS[0], reader=lambda scene: lambda path: digest((path / "MANIFEST.json").read_bytes()))
    monkeypatch.setattr(corruptions, "KINDS", (careless, blind))
    outcome = corruptions.run(asked(tmp_path, 60))
    assert outcome.failed > 5
    assert any("a wrong load" in failure for failure in outcome.failures)
    assert any("FileNotFoundError" in failure for failure in outcome.failures)
