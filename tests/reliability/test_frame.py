"""Running trials, and their reports and table."""

import json
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from pathlib import Path

import dev.reliability.__main__ as program
import pytest
from dev.reliability.report import (
    IN_ORDER,
    NO_WRONG_LOAD,
    ORDER_IS_FIXED,
    Entry,
    Report,
    new_report,
    table_of,
)
from dev.reliability.trials import Trial, Tries, entry_of, find_trials, run_side_by_side, run_trial
from tests.refusals import refusal

from albert.runtime.devices import describe_machine
from albert.runtime.errors import InvalidConfiguration, TryAgain
from albert.runtime.json_files import load_json, save_json

ROOT = Path(__file__).resolve().parents[2]


def trial(name: str, run: Callable[[Tries], None], promise: str = NO_WRONG_LOAD) -> Trial:
    return Trial(name, promise, name, {"quick": 3, "full": 30, "soak": 300}, run)


def holds(tries: Tries) -> None:
    assert list(tries.folder.iterdir()) == []
    (tries.folder / "scratch").touch()
    tries.details |= {"seed": tries.seed, "kinds": "bits"}
    tries.record(tries=tries.count)


def breaks(tries: Tries) -> None:
    (tries.folder / "evidence").touch()
    tries.record((f"cut {n}" for n in range(25)), tries=tries.count)


def raises(tries: Tries) -> None:
    raise KeyError("a bug of the trial")


@pytest.fixture
def lane(monkeypatch, tmp_path):
    """Run `python -m dev.reliability` over the trials given; its exit code and its report."""

    def run(*words: str, trials: tuple[Trial, ...]) -> tuple[int, Report]:
        monkeypatch.setattr(program, "find_trials", lambda: {each.name: each for each in trials})
        output = tmp_path / "report.json"
        return program.run([*words, "--output", str(output)]), load_json(Report, output)

    return run


def test_the_report_has_machine_tries_and_failures(lane):
    code, report = lane("--lane", "full", "--seed", "7", trials=(trial("flips", holds),))
    assert code == 0
    assert (report.lane, report.seed) == ("full", 7)
    assert report.machine["processor"] and report.machine["cores"] and set(report.versions) >= {"python", "torch"}
    assert report.commit and report.date
    (entry,) = report.trials
    assert (entry.name, entry.guarantee, entry.what) == ("flips", NO_WRONG_LOAD, "flips")
    assert (entry.tried, entry.failed, entry.failures) == (30, 0, ())
    assert entry.details == {"seed": 7, "kinds": "bits"} and entry.seconds <= report.seconds


def test_a_failed_trial_gives_exit_code_4_and_its_name(lane, capsys):
    code, report = lane(trials=(trial("flips", holds), trial("cuts", breaks)))
    assert code == 4
    said = capsys.readouterr()
    assert said.err.endswith("reliability: error: cuts: did not hold; see " + said.err.split("see ")[-1])
    assert "cuts: 3 cuts, 25 failed" in said.out and "cut 0" in said.out
    assert len(report.trials[0].failures) == 20


def test_an_exception_is_a_failure_and_the_next_trial_runs(lane, capsys):
    code, report = lane(trials=(trial("bug", raises), trial("flips", holds)))
    assert code == 4
    assert [(entry.name, entry.failed) for entry in report.trials] == [("bug", 1), ("flips", 0)]
    assert "KeyError" in report.trials[0].failures[0] and "Traceback" in capsys.readouterr().err


def test_a_trial_without_tries_fails(lane):
    code, _ = lane(trials=(trial("idle", lambda tries: None),))
    assert code == 4


def test_only_failed_trials_keep_their_scratch_folder(tmp_path):
    run_trial(trial("flips", holds), "quick", 0, tmp_path)
    assert list(tmp_path.iterdir()) == []
    run_trial(trial("cuts", breaks), "quick", 0, tmp_path)
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["evidence"]


def test_a_lane_can_run_in_parts(lane):
    trials = (trial("flips", holds), trial("more", holds))
    lane("--lane", "full", "--only", "flips", trials=trials)
    _, report = lane("--lane", "full", "--only", "more", trials=trials)
    assert [entry.name for entry in report.trials] == ["flips", "more"]
    _, report = lane("--lane", "soak", "--only", "more", trials=trials)
    assert [(entry.name, entry.tried) for entry in report.trials] == [("more", 300)]


def test_an_entry_from_another_processor_keeps_its_name(lane, monkeypatch):
    trials = (trial("flips", holds), trial("more", holds))
    here = dict(describe_machine())
    lane("--lane", "full", "--only", "flips", trials=trials)
    monkeypatch.setattr("dev.reliability.report.describe_machine", lambda: here | {"processor": "another"})
    _, report = lane("--lane", "full", "--only", "more", trials=trials)
    assert [(entry.name, entry.processor) for entry in report.trials] == [("flips", here["processor"]), ("more", "")]
    assert "minutes of another" in table_of(report) and f"minutes of {here['processor']}" in table_of(report)


@pytest.mark.trial
def test_parallel_trials_give_the_same_results():
    """In a process that knows a trial by its name; one of them, as its start is what costs here."""
    trials = [find_trials()[name] for name in ("nothing-is-run", "offsets")]
    entries = {entry.name: entry for entry in run_side_by_side(trials, "quick", seed=3, jobs=1)}
    alone = {each.name: run_trial(each, "quick", seed=3) for each in trials}
    assert {name: replace(entry, seconds=0.0) for name, entry in entries.items()} == {
        name: replace(entry, seconds=0.0) for name, entry in alone.items()
    }


def test_a_dead_process_of_jobs_is_reported_in_one_line():
    ended: Future[Entry] = Future()
    ended.set_exception(BrokenProcessPool("a process of the pool was terminated abruptly"))
    with pytest.raises(TryAgain, match="^offsets: did not end: a process of --jobs died"):
        entry_of(ended, "offsets")


def test_zero_jobs_are_refused(capsys):
    assert program.run(["--jobs", "0"]) == 78
    assert "--jobs 0: is below 1" in capsys.readouterr().err


def test_an_unknown_trial_is_refused_with_the_nearest_name(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(program, "find_trials", lambda: {"flips": trial("flips", holds)})
    assert program.run(["--only", "flip", "--output", str(tmp_path / "report.json")]) == 78
    assert "did you mean 'flips'?" in capsys.readouterr().err and list(tmp_path.iterdir()) == []


# ---- the table -------------------------------------------------------------------------------------------------------


def entry(name: str, promise: str, tried: int, failed: int = 0) -> Entry:
    return Entry(name, promise, "tries | others", tried, failed, 90.0, "2026-11-22", "abc1234", {}, ())


def test_the_table_has_every_trial_with_its_promise():
    report = new_report("full", 0, (entry("b", NO_WRONG_LOAD, 20_000, 1), entry("a", ORDER_IS_FIXED, 48),
                                    entry("c", NO_WRONG_LOAD, 60)))  # fmt: skip
    lines = table_of(report).splitlines()
    assert lines[2:5] == [
        f"| {NO_WRONG_LOAD} | 20,000 tries \\| others | 1 |",
        "|  | 60 tries \\| others | 0 |",
        f"| {ORDER_IS_FIXED} | 48 tries \\| others | 0 |",
    ]
    assert "commit abc1234" in lines[-1] and "2026-11-22" in lines[-1]


def test_a_report_is_read_back_strictly(tmp_path):
    report = new_report("full", 0, (entry("a", ORDER_IS_FIXED, 48),))
    save_json(tmp_path / "report.json", report)
    assert load_json(Report, tmp_path / "report.json") == report
    content = json.loads((tmp_path / "report.json").read_text()) | {"extra": 1}
    (tmp_path / "report.json").write_text(json.dumps(content))
    with refusal(InvalidConfiguration):
        load_json(Report, tmp_path / "report.json")


# ---- the trials ------------------------------------------------------------------------------------------------------


def test_every_trial_is_declared_for_every_lane_and_promises_what_the_page_does():
    trials = find_trials()
    assert trials
    for name, declared in trials.items():
        assert declared.guarantee in IN_ORDER, name
        assert 0 < declared.counts["quick"] <= declared.counts["full"] <= declared.counts["soak"], name
