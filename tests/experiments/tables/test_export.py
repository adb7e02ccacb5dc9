"""A study without its weights: curves keep their shape and their ends, and what can go on is left where it is."""

import json
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from albert.experiments.results import export_results, thin_journal
from albert.runtime.json_files import read_journal

ENDS = {"event": "end", "step": 30, "seconds": 3600.0}


def journal(updates: int) -> list[dict]:
    told = [{"event": "train", "step": 10 * number} for number in range(1, updates + 1)]
    return [*told, {"event": "evaluation", "step": 10 * updates}, ENDS]


@given(st.integers(0, 500), st.integers(1, 60))
def test_a_thinned_journal_keeps_the_last_update_and_all_that_is_no_update(updates, lines):
    kept = thin_journal(journal(updates), lines)
    steps = [record["step"] for record in kept if record["event"] == "train"]
    assert len(steps) <= lines and steps == sorted(steps) and steps[-1:] == [10 * updates][:updates]
    assert len({after - before for before, after in pairwise(steps)}) <= 1
    assert [record for record in kept if record["event"] != "train"] == journal(updates)[updates:]


def test_a_run_that_has_not_ended_stays_with_its_checkpoint(tmp_path):
    root, copy = tmp_path / "root", tmp_path / "copy"
    for name, told in (("ended", journal(3)), ("under-way", journal(3)[:-1])):
        (root / "runs" / name).mkdir(parents=True)
        (root / "runs" / name / "recipe.json").write_text("{}")
        (root / "scores" / name).mkdir(parents=True)
        (root / "scores" / name / "arm.json").write_text("{}")
        (root / "runs" / name / "journal.jsonl").write_text("".join(json.dumps(one) + "\n" for one in told))
    (root / "study.json").write_text(f'{{"model": "{root}/runs/ended/model"}}')
    assert export_results(root, copy) == 4
    assert (copy / "study.json").read_text() == '{"model": "runs/ended/model"}'
    for folder in ("runs", "scores"):
        assert [path.name for path in (copy / folder).iterdir()] == ["ended"]
    assert read_journal(copy / "runs" / "ended" / "journal.jsonl") == journal(3)
