"""The benchmarks of real tasks, at tiny size: classical models, and the grid of runs."""

import csv

import pytest

from albert.tasks.examples import Example

CHOICE = "sst-2"


def rows_of(path):
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def classical(script):
    return script("classical_baselines")


@pytest.fixture(scope="module")
def runs(script):
    return script("task_runs")


@pytest.fixture
def folders(data):
    return ["--data", str(data / "choice"), str(data)]


def test_every_kind_of_target_has_a_classical_model(classical, folders, data, tmp_path):
    tasks = ["--tasks", CHOICE, "squad-1.1", "squad-2.0", "race"]
    for name in ("once.csv", "again.csv"):
        classical.main([*folders, *tasks, "--output", str(tmp_path / name)])
        classical.main(["--data", str(data / "score"), "--tasks", "sts-b", "--output", str(tmp_path / name)])
    once, again = (rows_of(tmp_path / name) for name in ("once.csv", "again.csv"))
    found = {(row["task"], row["metric"]): row for row in once}
    assert float(found[CHOICE, "accuracy"]["score"]) > float(found[CHOICE, "accuracy"]["constant"])
    assert float(found["race", "accuracy"]["score"]) > float(found["race", "accuracy"]["constant"])
    assert found["squad-2.0", "f1"]["constant"] == "50.00"
    assert {task for task, _ in found} == {CHOICE, "sts-b", "squad-1.1", "squad-2.0", "race"}
    assert [row | {"seconds": ""} for row in once] == [row | {"seconds": ""} for row in again]


def test_a_span_is_the_nearest_run_in_the_best_sentence(classical):
    context = "Ships sank in spring. The old bridge was built in 1843 by Ada Brown. Nobody knows more."
    rare = classical.rarity([context, "The weather was fine."])
    for question, answer in (("When was the old bridge built?", "1843"), ("Who built the old bridge?", "Ada Brown")):
        text, against = classical.find_answer(Example("1", "here", (question, context)), rare)
        assert text == answer and against < 0.5
    _, against = classical.find_answer(Example("1", "here", ("Where do penguins live?", context)), rare)
    assert against == 1.0


def test_the_grid_runs_once_beside_what_needs_no_learning(runs, classical, folders, pretrained, tmp_path, capsys):
    table = tmp_path / "classical.csv"
    classical.main([*folders, "--tasks", CHOICE, "--output", str(table)])
    short = ["--steps", "3", "--max-length", "16", "--seeds", "2", "--device", "cpu", "--tasks", CHOICE]
    places = ["--output", str(tmp_path / "runs"), "--table", str(tmp_path / "runs.csv"), "--classical", str(table)]
    command = ["--model", str(pretrained), *folders, *short, *places]
    runs.main([*command, "--plan"])
    assert "sst-2: 16 training rows, 3 steps of 32, 16 to answer; 4 runs" in capsys.readouterr().out
    assert not (tmp_path / "runs").exists()
    runs.main(command)
    first = rows_of(tmp_path / "runs.csv")
    assert [(row["init"], row["runs"], row["steps"]) for row in first] == [
        ("pretrained", "2", "3"),
        ("random", "2", "3"),
    ]
    for row in first:
        assert float(row["lowest"]) <= float(row["median"]) <= float(row["highest"])
        assert (row["constant"], row["classical"]) == ("50.00", rows_of(table)[0]["score"])
    stamps = {path: path.stat().st_mtime_ns for path in (tmp_path / "runs").glob("*/*/results.json")}
    assert len(stamps) == 4
    runs.main(command)
    assert {path: path.stat().st_mtime_ns for path in stamps} == stamps
    assert rows_of(tmp_path / "runs.csv") == first
