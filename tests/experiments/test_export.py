"""Export of results without weights."""

import json
from itertools import pairwise

from experiments.results import export_results, thin_journal
from hypothesis import given
from hypothesis import strategies as st

from albert.runtime.json_files import read_journal


def journal(updates: int) -> list[dict]:
    records = [{"event": "train", "step": 10 * number} for number in range(1, updates + 1)]
    end = {"event": "end", "step": 30, "seconds": 3600.0}
    return [*records, {"event": "evaluation", "step": 10 * updates}, end]


@given(st.integers(0, 500), st.integers(1, 60))
def test_thinned_journal_keeps_the_last_update_and_other_records(updates, lines):
    records = thin_journal(journal(updates), lines)
    steps = [record["step"] for record in records if record["event"] == "train"]
    assert len(steps) <= lines and steps == sorted(steps) and steps[-1:] == [10 * updates][:updates]
    assert len({after - before for before, after in pairwise(steps)}) <= 1
    assert [record for record in records if record["event"] != "train"] == journal(updates)[updates:]


def test_unfinished_runs_are_not_exported(tmp_path):
    root, copy = tmp_path / "root", tmp_path / "copy"
    for name, records in (("ended", journal(3)), ("running", journal(3)[:-1])):
        for file in (root / "runs" / name / "recipe.json", root / "scores" / name / "arm.json"):
            file.parent.mkdir(parents=True)
            file.write_text("{}")
        (root / "runs" / name / "journal.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    (root / "study.json").write_text(f'{{"model": "{root}/runs/ended/model"}}')
    assert export_results(root, copy) == 4
    assert (copy / "study.json").read_text() == '{"model": "runs/ended/model"}'
    assert [path.name for folder in ("runs", "scores") for path in (copy / folder).iterdir()] == ["ended", "ended"]
    assert read_journal(copy / "runs" / "ended" / "journal.jsonl") == journal(3)
