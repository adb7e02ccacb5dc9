"""The script for a day with a GPU goes on where it was, and tells what failed; at toy size, on a CPU."""

import importlib.util
import json
import sys

import pytest


@pytest.fixture
def day(checkout, monkeypatch):
    """benchmarks/gpu_day.py as a module."""
    spec = importlib.util.spec_from_file_location("gpu_day", checkout / "benchmarks" / "gpu_day.py")
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    return module


def test_stages_are_done_once_and_failed_ones_again(day, tiny_corpus, tmp_path, monkeypatch):
    calls = []

    def breaking(asked, left):
        calls.append(left)
        assert len(calls) > 1, "out of memory"
        return "found"

    monkeypatch.setitem(day.STAGES, "breaking", breaking)
    words = ["--toy", "--data", str(tiny_corpus), "--output", str(tmp_path / "day")]
    words += ["--stages", "corpus", "lamb", "inference", "breaking"]
    assert day.main(words) == 1
    first = json.loads((tmp_path / "day" / "stages.json").read_text())["stages"]
    assert [name for name, stage in first.items() if stage["done"]] == ["corpus", "lamb", "inference"]
    assert "out of memory" in first["breaking"]["why"]
    assert set(first["lamb"]["found"]) == {"toy, lamb", "toy, adamw"} and min(first["inference"]["found"].values()) > 0
    assert day.main(words) == 0
    again = json.loads((tmp_path / "day" / "stages.json").read_text())["stages"]
    assert again["lamb"] == first["lamb"] and again["breaking"]["found"] == "found" and calls[1] < calls[0] <= 45


def test_the_last_stage_is_given_the_time_that_is_left(day, tiny_corpus, tmp_path):
    asked = day.Day(data=tiny_corpus, output=tmp_path)
    with pytest.raises(AssertionError, match="2.0 minutes are left"):
        day.base(asked, 2.0)
