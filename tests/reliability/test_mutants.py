"""Deliberate defects follow the code, and a test fails for them."""

from dataclasses import replace
from pathlib import Path

import pytest
from reliability.defects import DEFECTS
from reliability.trial import Asked

from albert.runtime.errors import CheckFailed, InvalidConfiguration
from reliability import mutants

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "albert"


@pytest.mark.parametrize("defect", DEFECTS, ids=lambda defect: defect.name)
def test_a_defect_can_be_put_into_the_code_of_today(defect):
    assert defect.put_into(SOURCE) != (SOURCE / defect.file).read_text(encoding="utf-8")
    for test in defect.tests:
        file, _, name = test.partition("::")
        assert f"def {name}" in (ROOT / "tests" / file).read_text(encoding="utf-8")


def test_there_are_enough_and_each_has_a_name_of_its_own():
    assert len({defect.name for defect in DEFECTS}) == len(DEFECTS) >= 40


def test_code_that_moved_is_said():
    with pytest.raises(InvalidConfiguration, match="0 times"):
        replace(DEFECTS[0], old="what is nowhere").put_into(SOURCE)
    with pytest.raises(InvalidConfiguration, match="is no Python"):
        replace(DEFECTS[0], new="if if:").put_into(SOURCE)


def test_a_defect_is_caught_and_what_changes_nothing_or_cannot_run_is_not(tmp_path, monkeypatch):
    first = DEFECTS[0]
    harmless = replace(first, name="harmless", new=first.old + "  # as before")
    broken = replace(first, name="broken", new="if nowhere:")
    monkeypatch.setattr(mutants, "DEFECTS", (first, harmless, broken))
    outcome = mutants.TRIAL.run(Asked(3, 0, tmp_path, lambda done: None))
    assert (outcome.tried, outcome.failed, outcome.details) == (3, 2, {"by an assertion": 1, "by an error": 0})
    assert outcome.failures[0] == f"harmless ({first.file}): no test fails"
    assert outcome.failures[1].startswith("broken") and "could not even run: NameError" in outcome.failures[1]
    (copied,) = tmp_path.rglob(first.file)
    assert copied.read_bytes() == (SOURCE / first.file).read_bytes()


def test_tests_that_fail_by_themselves_prove_nothing(tmp_path, monkeypatch):
    failing = replace(DEFECTS[0], tests=("runtime/test_nowhere.py",))
    monkeypatch.setattr(mutants, "DEFECTS", (failing,))
    with pytest.raises(CheckFailed):
        mutants.TRIAL.run(Asked(1, 0, tmp_path, lambda done: None))
