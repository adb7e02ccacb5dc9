"""The curves of runs in one picture and one table."""

import csv
import json

import pytest
from matplotlib.image import imread

from albert.cli.main import run as albert
from albert.experiments.curves import draw_runs, read_runs


@pytest.fixture
def make_run(tmp_path):
    """A run's folder with a journal of lines at steps 10, 20, …, of 100 tokens and half a second a step."""

    def make(name, lines=6, *, timed=True, evaluated=True, more=""):
        folder = tmp_path / name
        folder.mkdir(parents=True)
        records = []
        for step in range(10, 10 * lines + 1, 10):
            told = {"step": step, "tokens": 100 * step, "tokens_per_second": 200.0, "loss": 9 - step / 10}
            told |= {"masked_tokens_loss": 8 - step / 10, "masked_tokens_accuracy": step / 100}
            told |= {"learning_rate": 0.01, "gradient_norm": 1.0}
            records.append({"event": "train", **told} | ({"seconds": step / 2} if timed else {}))
        if evaluated:
            told = {"masked_tokens_loss": 5.0, "masked_tokens_accuracy": 0.4, "masked_tokens_baseline": 0.06}
            records.append({"event": "evaluation", "step": 15, "tokens": 1500, **told})
        text = "".join(json.dumps(record) + "\n" for record in records)
        (folder / "journal.jsonl").write_text(text + more, encoding="utf-8")
        return folder

    return make


def test_a_picture_is_drawn_and_a_table_written(make_run, tmp_path, capsys):
    runs = [make_run("one"), make_run("two", 3, more='{"event": "tra')]  # as while a line is being written
    table, picture = tmp_path / "figures.csv", tmp_path / "out" / "curves.png"
    words = ["plot", *map(str, runs), "--against", "minutes", "--output", str(picture), "--csv", str(table)]
    assert albert(words) == 0
    assert "one: 60 steps, 6,000 tokens, 0.5 minutes" in capsys.readouterr().out
    height, width, _ = imread(picture).shape
    assert width > 1000 and height > 500
    rows = list(csv.DictReader(table.read_text(encoding="utf-8").splitlines()))
    found = [row for row in rows if (row["run"], row["event"], row["figure"]) == ("two", "train", "loss")]
    assert [(row["step"], float(row["value"])) for row in found] == [("10", 8.0), ("20", 7.0), ("30", 6.0)]
    [baseline] = [row for row in rows if row["run"] == "one" and row["figure"] == "masked_tokens_baseline"]
    assert (baseline["tokens"], float(baseline["minutes"])) == ("1500", pytest.approx(7.5 / 60, abs=1e-4))


@pytest.mark.parametrize("against", ["steps", "tokens", "minutes"])
def test_every_axis_can_be_drawn_with_more_runs_than_colours(make_run, tmp_path, against):
    runs = read_runs([make_run(f"run-{number}", 1 + number, evaluated=number % 2 == 0) for number in range(9)])
    draw_runs(runs, tmp_path / "curves.png", against)
    assert imread(tmp_path / "curves.png").std() > 0.01


def test_time_is_summed_up_where_a_journal_does_not_tell_it(make_run):
    [timed, summed] = read_runs([make_run("timed"), make_run("summed", timed=False)])
    assert [r["seconds"] for r in timed.updates] == pytest.approx([r["seconds"] for r in summed.updates])
    assert summed.evaluations[0]["seconds"] == pytest.approx(7.5)


def test_a_step_that_was_told_twice_is_drawn_once_and_in_its_place(make_run):
    again = json.dumps({"event": "train", "step": 20, "tokens": 2000, "tokens_per_second": 200.0, "loss": 1.0}) + "\n"
    [run] = read_runs([make_run("run", 3, more=again)])
    assert [(record["step"], record["loss"]) for record in run.updates] == [(10, 8.0), (20, 1.0), (30, 6.0)]


def test_runs_of_one_name_are_told_apart(make_run):
    runs = read_runs([make_run("a/run"), make_run("b/run")])
    assert [run.name for run in runs] == ["a/run", "b/run"]


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["{here}/absent"], 66, "is no run: it has no journal.jsonl"),
        (["{here}/silent"], 66, "has recorded no update yet"),
        (["{here}/run", "{here}/run"], 2, "a run is named twice"),
        (["{here}/run", "--output", "{here}/curves.pdf"], 2, "must end in .png"),
        (["{here}/torn"], 65, "journal.jsonl:1: is not JSON"),
        ([], 2, "albert plot"),
    ],
)
def test_bad_input_is_one_line(make_run, tmp_path, capsys, words, code, said):
    make_run("run")
    make_run("silent", 0, evaluated=False)
    torn = make_run("torn") / "journal.jsonl"
    torn.write_text("{\n" + torn.read_text(encoding="utf-8"), encoding="utf-8")
    assert albert(["plot", *(word.format(here=tmp_path) for word in words)]) == code
    error = capsys.readouterr().err
    assert said in error and error.count("\n") == 1
    assert not list(tmp_path.glob("*.png")) and not list(tmp_path.glob("*.pdf"))
