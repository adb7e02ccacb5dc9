"""The trial itself, with the count of the quick lane."""

from reliability.determinism import determinism, is_a_result
from reliability.material import differences
from reliability.trials import run_trial


def test_surroundings_do_not_matter(tmp_path):
    entry = run_trial(determinism, "quick", seed=0, scratch=tmp_path)
    assert (entry.tried, entry.failures) == (determinism.counts["quick"], ())
    assert entry.details["files compared"] > 25


def test_other_bytes_would_be_found():
    assert differences({"a": "1", "b": "2"}, {"a": "1", "b": "2"}) == []
    assert differences({"a": "1", "b": "2"}, {"a": "1", "b": "3"}) == ["b"]
    assert differences({"a": "1"}, {"a": "1", "c": "3"}) == ["c"]


def test_what_is_compared_are_results():
    assert all(map(is_a_result, ("corpus/MANIFEST.json", "run/model/config.json", "answers.jsonl")))
    assert not any(map(is_a_result, ("run/recipe.json", "fine/model/README.md", "text/one.jsonl")))
