"""The trial of other environments, and that it detects differences."""

import pytest
from dev.reliability.determinism import determinism, is_a_result
from dev.reliability.material import differences
from dev.reliability.trials import run_trial


@pytest.mark.trial
@pytest.mark.long
def test_results_do_not_depend_on_the_environment(tmp_path):
    entry = run_trial(determinism, "quick", seed=0, scratch=tmp_path)
    assert (entry.tried, entry.failures) == (determinism.counts["quick"], ())
    assert entry.details["files compared"] > 25


def test_differences_are_detected():
    assert differences({"a": "1", "b": "2"}, {"a": "1", "b": "2"}) == []
    assert differences({"a": "1", "b": "2"}, {"a": "1", "b": "3"}) == ["b"]
    assert differences({"a": "1"}, {"a": "1", "c": "3"}) == ["c"]


def test_only_results_are_compared():
    assert all(map(is_a_result, ("corpus/MANIFEST.json", "run/model/config.json", "answers.jsonl")))
    assert not any(map(is_a_result, ("run/recipe.json", "fine/model/README.md", "text/one.jsonl")))
