"""Curves of runs, read from their journals and drawn."""

import json

import pytest
from matplotlib.image import imread

from albert.report.curves import read_runs
from albert.report.pictures import draw_runs
from albert.runtime.errors import DamagedData, MissingInput


@pytest.fixture
def make_run(tmp_path):
    """Makes a run folder whose journal has records at steps 10, 20, …, of 100 tokens per step."""

    def make(name, lines=6, *, evaluated=True, more=""):
        folder = tmp_path / name
        folder.mkdir(parents=True)
        records = []
        for step in range(10, 10 * lines + 1, 10):
            figures = {"step": step, "tokens": 100 * step, "tokens_per_second": 200.0, "loss": 9 - step / 10}
            figures |= {"masked_tokens_loss": 8 - step / 10, "masked_tokens_accuracy": step / 100}
            figures |= {"learning_rate": 0.01, "gradient_norm": 1.0}
            records.append({"event": "train", **figures})
        if evaluated:
            figures = {"masked_tokens_loss": 5.0, "masked_tokens_accuracy": 0.4, "masked_tokens_baseline": 0.06}
            records.append({"event": "evaluation", "step": 15, "tokens": 1500, **figures})
        text = "".join(json.dumps(record) + "\n" for record in records)
        (folder / "journal.jsonl").write_text(text + more, encoding="utf-8")
        return folder

    return make


def losses(run):
    return [(record["step"], record["loss"]) for record in run.updates]


def test_curves_of_a_run_in_progress(make_run):
    one, two = read_runs([make_run("one"), make_run("two", 3, more='{"event": "tra')])  # as while a line is written
    assert one.name == "one" and len(one.updates) == 6
    assert losses(two) == [(10, 8.0), (20, 7.0), (30, 6.0)]
    [evaluation] = one.evaluations
    assert (evaluation["tokens"], evaluation["masked_tokens_baseline"]) == (1500, 0.06)


@pytest.mark.usefixtures("drawn_pictures")
@pytest.mark.parametrize("against", ["steps", "tokens"])
def test_more_runs_than_colours(make_run, tmp_path, against):
    runs = [make_run(f"run-{number}", 1 + number, evaluated=number % 2 == 0) for number in range(9)]
    draw_runs(read_runs(runs), tmp_path / "curves.png", against)
    picture = imread(tmp_path / "curves.png")
    assert picture.shape[0] > 500 and picture.shape[1] > 1000 and picture.std() > 0.01


def test_last_record_of_a_step_counts(make_run):
    again = json.dumps({"event": "train", "step": 20, "tokens": 2000, "tokens_per_second": 200.0, "loss": 1.0}) + "\n"
    [run] = read_runs([make_run("run", 3, more=again)])
    assert losses(run) == [(10, 8.0), (20, 1.0), (30, 6.0)]


def test_runs_with_equal_names_get_longer_ones(make_run):
    assert [run.name for run in read_runs([make_run("a/run"), make_run("b/run")])] == ["a/run", "b/run"]


def test_what_has_no_curves_is_refused(make_run, tmp_path):
    damaged = make_run("damaged") / "journal.jsonl"
    damaged.write_text("{\n" + damaged.read_text(encoding="utf-8"), encoding="utf-8")
    for path, error in (
        (tmp_path / "absent", MissingInput),
        (make_run("empty", 0, evaluated=False), MissingInput),
        (damaged.parent, DamagedData),
    ):
        with pytest.raises(error):
            read_runs([path])
