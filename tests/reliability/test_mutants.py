"""Deliberate defects apply to the code, and tests catch them."""

from dataclasses import replace
from pathlib import Path

import pytest
from reliability.defects import DEFECTS, CopiedProject, Defect, read_defects
from reliability.trials import Tries

from albert.runtime.errors import CheckFailed, InvalidConfiguration
from reliability import defects

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "albert"


@pytest.mark.parametrize("defect", DEFECTS, ids=lambda defect: defect.name)
def test_every_defect_applies_to_the_code(defect):
    path, wrong = defect.put_into(SOURCE)
    assert wrong != path.read_text(encoding="utf-8")
    assert defect.test_ids(ROOT / "tests")


def test_a_defect_follows_its_lines_into_another_file_and_indentation(tmp_path):
    defect = Defect("one", "Step.take", ("test_x",), ("if a:", "    b()"), ("b()",))
    (tmp_path / "first.py").write_text("def take():\n    if a:\n        b()\n")
    assert defect.put_into(tmp_path) == (tmp_path / "first.py", "def take():\n    b()\n")
    (tmp_path / "other.py").write_text("class Step:\n    def take(self):\n        if a:\n            b()\n")
    assert defect.put_into(tmp_path) == (tmp_path / "other.py", "class Step:\n    def take(self):\n        b()\n")
    (tmp_path / "third.py").write_text((tmp_path / "other.py").read_text())
    with pytest.raises(InvalidConfiguration, match="found 3 times, 2 times in Step.take"):
        defect.put_into(tmp_path)


@pytest.mark.parametrize(
    "text", ["# one\nin f: test_x\n- a\n", "# one\nat f: test_x\n+ a\n", "# one\nat f: test_x\n- a\nb\n"]
)
def test_a_malformed_file_of_defects_is_refused(tmp_path, text):
    (tmp_path / "defects.txt").write_text(text)
    with pytest.raises(InvalidConfiguration, match="one: needs `at SYMBOL: TESTS`"):
        read_defects(tmp_path / "defects.txt")


def test_names_are_unique():
    assert len({defect.name for defect in DEFECTS}) == len(DEFECTS) >= 40


def test_missing_lines_and_invalid_code_are_refused():
    with pytest.raises(InvalidConfiguration, match="found 0 times"):
        replace(DEFECTS[0], old=("what is nowhere",)).put_into(SOURCE)
    with pytest.raises(InvalidConfiguration, match="is not valid Python"):
        replace(DEFECTS[0], new=("if if:",)).put_into(SOURCE)


def test_a_defect_is_caught_but_not_harmless_or_broken_changes(tmp_path, monkeypatch):
    first = DEFECTS[0]
    sound, _ = first.put_into(SOURCE)
    harmless = replace(first, name="harmless", new=(f"{first.old[0]}  # as before",))
    broken = replace(first, name="broken", new=("if nowhere:",))
    monkeypatch.setattr(defects, "DEFECTS", (first, harmless, broken))
    outcome = Tries(3, 0, tmp_path)
    defects.mutants.run(outcome)
    assert (outcome.tried, outcome.details) == (3, {"by an assertion": 1, "by an error": 0})
    assert len(outcome.failures) == 2
    assert outcome.failures[0] == f"harmless (in {first.symbol}): no test fails"
    assert outcome.failures[1].startswith("broken") and "could not even run: NameError" in outcome.failures[1]
    (copied,) = tmp_path.rglob(str(sound.relative_to(ROOT)))
    assert copied.read_bytes() == sound.read_bytes()


def test_tests_that_fail_without_a_defect_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(CopiedProject, "not_passed", lambda *args, **kwargs: [("test_x", "assert False")])
    monkeypatch.setattr(defects, "DEFECTS", DEFECTS[:1])
    with pytest.raises(CheckFailed, match="fail or are skipped without any defect: test_x: assert False"):
        defects.mutants.run(Tries(1, 0, tmp_path))


def test_a_missing_test_is_refused_by_name():
    with pytest.raises(InvalidConfiguration, match="no test test_nowhere"):
        replace(DEFECTS[0], tests=("test_nowhere",)).test_ids(ROOT / "tests")
