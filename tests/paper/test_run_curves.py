"""Curves of runs as picture and table."""

import csv
import json

import pytest
from matplotlib.image import imread

from albert.cli.main import run as albert


@pytest.fixture
def make_run(tmp_path):
    """Makes a run folder whose journal has records at steps 10, 20, …, of 100 tokens and half a second per step."""

    def make(name, lines=6, *, timed=True, evaluated=True, more=""):
        folder = tmp_path / name
        folder.mkdir(parents=True)
        records = []
        for step in range(10, 10 * lines + 1, 10):
            figures = {"step": step, "tokens": 100 * step, "tokens_per_second": 200.0, "loss": 9 - step / 10}
            figures |= {"masked_tokens_loss": 8 - step / 10, "masked_tokens_accuracy": step / 100}
            figures |= {"learning_rate": 0.01, "gradient_norm": 1.0}
            records.append({"event": "train", **figures} | ({"seconds": step / 2} if timed else {}))
        if evaluated:
            figures = {"masked_tokens_loss": 5.0, "masked_tokens_accuracy": 0.4, "masked_tokens_baseline": 0.06}
            records.append({"event": "evaluation", "step": 15, "tokens": 1500, **figures})
        text = "".join(json.dumps(record) + "\n" for record in records)
        (folder / "journal.jsonl").write_text(text + more, encoding="utf-8")
        return folder

    return make


@pytest.fixture
def plotted(tmp_path):
    """The rows of the table that `albert plot` writes, with the picture `curves.png` beside it."""

    def plot(*runs, against="steps"):
        table, picture = tmp_path / "table.csv", tmp_path / "curves.png"
        words = ["--against", against, "--output", str(picture), "--csv", str(table)]
        assert albert(["plot", *map(str, runs), *words]) == 0
        return list(csv.DictReader(table.read_text(encoding="utf-8").splitlines()))

    return plot


@pytest.mark.usefixtures("drawn_pictures")
def test_plot_writes_picture_and_table(make_run, tmp_path, capsys):
    runs = [make_run("one"), make_run("two", 3, more='{"event": "tra')]  # as while a line is being written
    table, picture = tmp_path / "figures.csv", tmp_path / "out" / "curves.png"
    args = ["plot", *map(str, runs), "--against", "minutes", "--output", str(picture), "--csv", str(table)]
    assert albert(args) == 0
    assert "one: 60 steps, 6,000 tokens, 0.5 minutes" in capsys.readouterr().out
    height, width, _ = imread(picture).shape
    assert width > 1000 and height > 500
    rows = list(csv.DictReader(table.read_text(encoding="utf-8").splitlines()))
    losses = [row for row in rows if (row["run"], row["event"], row["figure"]) == ("two", "train", "loss")]
    assert [(row["step"], float(row["value"])) for row in losses] == [("10", 8.0), ("20", 7.0), ("30", 6.0)]
    [baseline] = [row for row in rows if row["run"] == "one" and row["figure"] == "masked_tokens_baseline"]
    assert (baseline["tokens"], float(baseline["minutes"])) == ("1500", pytest.approx(7.5 / 60, abs=1e-4))


@pytest.mark.usefixtures("drawn_pictures")
@pytest.mark.parametrize("against", ["steps", "tokens", "minutes"])
def test_more_runs_than_colours(make_run, plotted, tmp_path, against):
    runs = [make_run(f"run-{number}", 1 + number, evaluated=number % 2 == 0) for number in range(9)]
    plotted(*runs, against=against)
    assert imread(tmp_path / "curves.png").std() > 0.01


def test_missing_times_are_computed(make_run, plotted):
    rows = plotted(make_run("timed"), make_run("summed", timed=False))
    timed, summed = ([row["minutes"] for row in rows if row["run"] == name] for name in ("timed", "summed"))
    assert summed == timed and float(timed[-1]) > 0


def test_last_record_of_a_step_counts(make_run, plotted):
    again = json.dumps({"event": "train", "step": 20, "tokens": 2000, "tokens_per_second": 200.0, "loss": 1.0}) + "\n"
    rows = plotted(make_run("run", 3, more=again))
    losses = [(row["step"], float(row["value"])) for row in rows if (row["event"], row["figure"]) == ("train", "loss")]
    assert losses == [("10", 8.0), ("20", 1.0), ("30", 6.0)]


def test_runs_with_equal_names_get_longer_ones(make_run, plotted):
    assert {row["run"] for row in plotted(make_run("a/run"), make_run("b/run"))} == {"a/run", "b/run"}


@pytest.mark.parametrize(
    ("args", "code", "subject"),
    [
        (["{folder}/absent"], 66, "absent"),
        (["{folder}/empty"], 66, "empty"),
        (["{folder}/run", "{folder}/run"], 2, "run"),
        (["{folder}/run", "--output", "{folder}/curves.pdf"], 2, "curves.pdf"),
        (["{folder}/run", "--output", "{folder}/a.png", "--csv", "{folder}/a.png"], 2, "a.png"),
        (["{folder}/damaged"], 65, "journal.jsonl:1"),
        ([], 2, "albert plot"),
    ],
)
def test_bad_input_is_refused_in_one_line(make_run, tmp_path, refused, args, code, subject):
    make_run("run")
    make_run("empty", 0, evaluated=False)
    damaged = make_run("damaged") / "journal.jsonl"
    damaged.write_text("{\n" + damaged.read_text(encoding="utf-8"), encoding="utf-8")
    refused(["plot", *(arg.format(folder=tmp_path) for arg in args)], code, subject)
    assert not list(tmp_path.glob("*.png")) and not list(tmp_path.glob("*.pdf"))
