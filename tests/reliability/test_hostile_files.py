"""The whole hostile set, every time: each refused in one line, with its exit code, and nothing run or left."""

from pathlib import Path

from reliability.hostile_case import Hostile
from reliability.trial import Asked

from reliability import hostile_files


def asked(folder: Path) -> Asked:
    return Asked(count=len(hostile_files.CASES), seed=0, folder=folder, report=lambda more: None)


def test_every_hostile_file_is_refused(tmp_path):
    outcome = hostile_files.run(asked(tmp_path))
    assert outcome.failures == ()
    assert outcome.tried >= 60


def test_names_are_told_apart():
    names = [case.name for case in hostile_files.CASES]
    assert len(set(names)) == len(names)


def test_a_command_that_takes_what_it_should_not_is_caught(tmp_path, monkeypatch):
    harmless = Hostile("a text", lambda place: place.write("text/a.txt", "It was a day."), "info {model}", 65, "")
    other_code = Hostile("no model", lambda place: None, "info {here}/none", 65, "no such directory")
    leaves = Hostile("a file", lambda place: place.write("left", "x"), "info {here}/none", 66, "no such", ("left",))
    monkeypatch.setattr(hostile_files, "CASES", (harmless, other_code, leaves))
    found = hostile_files.run(asked(tmp_path)).failures
    assert [each.partition(": ")[2][:12] for each in found] == ["exit code 0,", "exit code 66", "left ['left'"]
