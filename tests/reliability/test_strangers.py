"""The trial of other environments, containers and callers, and that it detects failures."""

import random

import pytest
from dev.reliability import runs, strangers
from dev.reliability.strangers import neighbours, surroundings
from dev.reliability.trials import Tries, run_trial


@pytest.mark.trial
@pytest.mark.long
def test_other_environments_break_no_promise(tmp_path, monkeypatch):
    monkeypatch.setattr(strangers, "PART", ("tests/runtime/test_progress.py",))
    monkeypatch.setattr(strangers, "CANCELLATIONS", 3)
    monkeypatch.setattr(strangers, "GROWING", "\ufdfa" * 100_000)
    entry = run_trial(strangers.strangers, "quick", seed=0, scratch=tmp_path)
    assert entry.failures == ()
    assert entry.tried >= 6 and entry.details["tests passed"]


def test_a_test_that_depends_on_the_environment_is_detected(tmp_path, monkeypatch):
    (tmp_path / "test_lines.py").write_text(
        "import os\ndef test_home():\n    assert not os.environ['HOME'].endswith('home')\n"
    )
    monkeypatch.setattr(strangers, "PART", (str(tmp_path / "test_lines.py"),))
    ((what, wrong),) = surroundings(tmp_path, random.Random(0), Tries(1, 0, tmp_path))
    assert "TMPDIR=" in what and "COLUMNS=" in what and "test_home" in wrong


WRITER = """
import pathlib, shutil, sys, time
output = pathlib.Path(sys.argv[1])
for other in output.parent.glob(".*.tmp-*"):
    shutil.rmtree(other)
temporary = output.parent / f".{output.name}.tmp-0123abcd"
temporary.mkdir()
time.sleep(0.2)
if temporary.exists():
    temporary.rename(output)
"""


def test_a_command_that_removes_files_of_another_is_detected(tmp_path, monkeypatch):
    monkeypatch.setattr(strangers.shutil, "which", lambda name: None)  # without containers
    plain = runs.subprocess.Popen

    def writing(words, **options):
        return plain([runs.sys.executable, "-c", WRITER, words[-1]], **options)

    monkeypatch.setattr(runs.subprocess, "Popen", writing)
    tries = Tries(1, 0, tmp_path)
    ((_, wrong),) = neighbours(tmp_path, tries)
    assert "the second removed what the first was writing" in wrong
    assert "should be nothing left but" in wrong and tries.details["containers"].startswith("not tried")
