"""The script dev/benchmarks/gpu_day.py resumes its stages and reports failures; at toy size, on a CPU."""

import json

import pytest
import torch

from albert.checkpoints.model_directory import open_model
from albert.cli.main import run


@pytest.fixture
def day(script):
    """dev/benchmarks/gpu_day.py as a module."""
    return script("gpu_day")


def test_failed_stages_are_repeated_and_done_ones_are_not(day, tiny_corpus, tmp_path, monkeypatch):
    calls = []

    def failing_once(args, minutes_left):
        calls.append(minutes_left)
        if len(calls) == 1:
            raise OSError("no space left")
        return "result"

    monkeypatch.setitem(day.STAGES, "failing", failing_once)
    words = ["--toy", "--data", str(tiny_corpus), "--output", str(tmp_path / "day"), "--stages", "corpus", "failing"]
    assert day.main(words) == 1
    first = json.loads((tmp_path / "day" / "stages.json").read_text())["stages"]
    assert [name for name, stage in first.items() if stage["done"]] == ["corpus"]
    assert "OSError: no space left" in first["failing"]["why"]
    assert day.main(words) == 0
    again = json.loads((tmp_path / "day" / "stages.json").read_text())["stages"]
    assert again["corpus"] == first["corpus"] and again["failing"]["found"] == "result" and calls[1] < calls[0] <= 45


def test_the_downloaded_model_opens_and_is_float16(day, tiny_corpus, tmp_path, monkeypatch):
    monkeypatch.setattr(day, "call", lambda args, name, *words, **_: run([*map(str, words[2:])]))
    result = day.base(day.Day(data=tiny_corpus, output=tmp_path, toy=True), 45.0)
    assert result["scores"] and {"journal.jsonl", "recipe.json", "model/spiece.model"} <= set(result["files"])
    home, trained = (
        open_model(path / "model", "pretraining", dtype=None).model for path in (tmp_path / "home", tmp_path / "base")
    )
    for ours, theirs in zip(home.parameters(), trained.parameters(), strict=True):
        assert ours.dtype == torch.float16 and torch.equal(ours, theirs.half())
