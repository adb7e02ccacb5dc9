"""Every malicious file is refused, and wrong refusals are detected."""

import pytest
from dev.reliability import hostile_files
from dev.reliability.hostile_files import Hostile
from dev.reliability.trials import Tries


@pytest.mark.trial
def test_every_hostile_file_is_refused(tmp_path):
    outcome = Tries(len(hostile_files.CASES), 0, tmp_path)
    hostile_files.hostile_files.run(outcome)
    assert outcome.failures == []
    assert outcome.tried >= 81


def test_names_are_unique():
    names = [case.name for case in hostile_files.CASES]
    assert len(set(names)) == len(names)


def test_wrong_codes_and_leftover_files_are_detected(tmp_path, monkeypatch):
    harmless = Hostile(
        "a text", lambda place: place.write("text/a.txt", "It was a day."), "info {m.pretrained}", 65, ""
    )
    other_code = Hostile("no model", lambda place: None, "info {here}/none", 65, "no such directory")
    leaves = Hostile("a file", lambda place: place.write("left", "x"), "info {here}/none", 66, "no such", ("left",))
    monkeypatch.setattr(hostile_files, "CASES", (harmless, other_code, leaves))
    outcome = Tries(3, 0, tmp_path)
    hostile_files.hostile_files.run(outcome)
    assert [each.partition(": ")[2][:12] for each in outcome.failures] == [
        "exit code 0,",
        "exit code 66",
        "left ['left'",
    ]
