"""The script for a day with a GPU goes on where it was, and tells what failed; at toy size, on a CPU."""

import json

import pytest
import torch

from albert.checkpoints.model_directory import open_model
from albert.cli.main import run
from albert.training.state import TENSORS_NAME


@pytest.fixture
def day(script):
    """benchmarks/gpu_day.py as a module."""
    return script("gpu_day")


def test_stages_are_done_once_and_failed_ones_again(day, tiny_corpus, tmp_path, monkeypatch):
    calls = []

    def breaking(asked, left):
        calls.append(left)
        if len(calls) == 1:
            raise OSError("no space left")
        return "found"

    monkeypatch.setitem(day.STAGES, "breaking", breaking)
    words = ["--toy", "--data", str(tiny_corpus), "--output", str(tmp_path / "day")]
    words += ["--stages", "corpus", "breaking"]
    assert day.main(words) == 1
    first = json.loads((tmp_path / "day" / "stages.json").read_text())["stages"]
    assert [name for name, stage in first.items() if stage["done"]] == ["corpus"]
    assert "OSError: no space left" in first["breaking"]["why"]
    assert day.main(words) == 0
    again = json.loads((tmp_path / "day" / "stages.json").read_text())["stages"]
    assert again["corpus"] == first["corpus"] and again["breaking"]["found"] == "found" and calls[1] < calls[0] <= 45


def test_the_last_stage_is_given_the_time_that_is_left(day, tiny_corpus, tmp_path):
    asked = day.Day(data=tiny_corpus, output=tmp_path)
    with pytest.raises(AssertionError, match="2.0 minutes are left"):
        day.base(asked, 2.0)


def test_the_model_that_is_brought_home_opens_and_holds_float16(day, tiny_corpus, tmp_path, monkeypatch):
    monkeypatch.setattr(day, "call", lambda asked, name, *words, **_: run([*map(str, words[2:])]))
    asked = day.Day(data=tiny_corpus, output=tmp_path, toy=True)
    found = day.base(asked, 45.0)
    assert found["scores"] and {"journal.jsonl", "recipe.json", "model/spiece.model"} <= set(found["files"])
    home, trained = (
        open_model(path / "model", "pretraining", dtype=None).model for path in (tmp_path / "home", tmp_path / "base")
    )
    for ours, theirs in zip(home.parameters(), trained.parameters(), strict=True):
        assert ours.dtype == torch.float16 and torch.equal(ours, theirs.half())


def test_a_run_that_ends_before_it_is_killed_fails_the_stage(day, tiny_corpus, tmp_path, monkeypatch):
    (tmp_path / TENSORS_NAME).touch()

    class Folder:
        def __init__(self, path):
            self.path = path

        def checkpoints(self):
            return [(0, tmp_path)]

    monkeypatch.setattr(day, "RunFolder", Folder)
    monkeypatch.setattr(day, "pretrain", lambda *_: ["-c", "pass"])
    with pytest.raises(AssertionError, match="ended by itself, with 0"):
        day.kill_and_resume(day.Day(data=tiny_corpus, output=tmp_path, toy=True), 45.0)
