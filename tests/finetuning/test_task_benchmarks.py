"""The benchmarks of real tasks, at tiny size: classical models, the grid of runs, a released checkpoint."""

import csv

import pytest

from albert.finetuning.seeds import SeedRun, SeedsResult
from albert.runtime.errors import UsageError
from albert.tasks.examples import Example
from albert.tasks.task import Published

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


@pytest.fixture(scope="module")
def released(script):
    return script("released_checkpoint")


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
    assert len(stamps) == 4 and (tmp_path / "runs/summary.png").stat().st_size > 1000
    assert "| sst-2 | random | accuracy |" in (tmp_path / "runs/summary.md").read_text()
    runs.main(command)
    assert {path: path.stat().st_mtime_ns for path in stamps} == stamps
    assert rows_of(tmp_path / "runs.csv") == first


def test_a_released_checkpoint_is_compared_with_its_published_row(released, folders, pretrained, tmp_path, capsys):
    told = [
        "--task",
        CHOICE,
        "--model",
        str(pretrained),
        *folders,
        "--output",
        str(tmp_path / "runs"),
        "--device",
        "cpu",
    ]
    short = ["--seeds", "2", "--steps", "2", "--batch-size", "4", "--max-length", "16"]
    with pytest.raises(UsageError, match="no score of it is known for sst-2"):
        released.main([*told, *short])
    released.main([*told, *short, "--published", "albert-base-v2", "--table", str(tmp_path / "table.csv")])
    (row,) = rows_of(tmp_path / "table.csv")
    assert (row["published"], row["runs"], row["selection"]) == ("92.9", "2", "best")
    assert row["recipe"] == "changed: steps 2, batch_size 4, max_length 16"
    assert row["verdict"] == "published is above every run"
    assert float(row["difference"]) == pytest.approx(float(row["median"]) - 92.9, abs=0.01)


@pytest.mark.parametrize(("score", "verdict"), [(80.0, "inside"), (79.9, "below every"), (90.1, "above every")])
def test_a_published_score_is_inside_from_the_lowest_to_the_highest_run(released, score, verdict, tmp_path):
    scores = ({"accuracy": value} for value in (80.0, 85.0, 90.0))
    runs = tuple(SeedRun(seed=seed, directory=tmp_path, scores=each) for seed, each in enumerate(scores))
    result = SeedsResult(task=CHOICE, runs=runs, baseline=None, selection="last")
    assert verdict in released.compared(result, Published("m", "accuracy", score, "a table"))["verdict"]
