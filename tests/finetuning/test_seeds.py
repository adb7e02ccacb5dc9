"""Several seeds: each run its own, failed ones named, and the spread that of all of them."""

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from albert.finetuning import seeds
from albert.finetuning.model import PretrainedEncoder
from albert.finetuning.run import finetune
from albert.finetuning.run_record import FinetuningSettings
from albert.finetuning.seeds import finetune_seeds, spread_of, why_failed
from albert.runtime.errors import CannotCreate, Diverged, InvalidConfiguration
from albert.tasks.submission import DECLARED

CPU = FinetuningSettings(device="cpu")


@pytest.fixture
def short(data):
    task = DECLARED["sst-2"]
    recipe = replace(task.recipe, steps=4, examples=None, batch_size=4, learning_rate=1e-3, max_length=32)
    return replace(task, recipe=recipe)


def test_every_seed_is_the_run_that_it_is_alone_and_finished_ones_are_found(short, data, pretrained, tmp_path):
    start, place = PretrainedEncoder(str(pretrained)), tmp_path / "runs"
    found = finetune_seeds(short, start, data / "choice", place, None, replace(CPU, seed=7), 2)
    assert [run.seed for run in found.runs] == [7, 8]
    alone = finetune(short, start, data / "choice", tmp_path / "one", settings=replace(CPU, seed=8))
    assert found.runs[1].scores == alone.scores
    one, two = (path / "model/model.safetensors" for path in (place / "seed-8", tmp_path / "one"))
    assert one.read_bytes() == two.read_bytes()
    assert one.read_bytes() != (place / "seed-7/model/model.safetensors").read_bytes()
    stamps = {path: path.stat().st_mtime_ns for path in place.glob("*/results.json")}
    more = finetune_seeds(short, start, data / "choice", place, None, replace(CPU, seed=7), 3)
    assert all(path.stat().st_mtime_ns == stamp for path, stamp in stamps.items())
    assert more.runs[:2] == found.runs
    summary = json.loads((place / "summary.json").read_text())
    assert [run["directory"] for run in summary["runs"]] == ["seed-7", "seed-8", "seed-9"]
    scores = [run.scores["accuracy"] for run in more.runs]
    assert summary["scores"]["accuracy"]["median"] == np.median(scores)
    assert summary["selection"] == "selection: the model after the last step"


def test_a_run_that_diverges_is_named_and_ends_no_other(short, data, pretrained, tmp_path, monkeypatch):
    def fails_at(bad):
        def one(task, start, data, output, recipe, settings, *more):
            if settings.seed in bad:
                raise Diverged("step 3", "the loss is nan")
            return finetune(task, start, data, output, recipe, settings, *more)

        monkeypatch.setattr(seeds, "finetune", one)

    start = PretrainedEncoder(str(pretrained))
    fails_at({0})
    found = finetune_seeds(short, start, data / "choice", tmp_path / "runs", None, CPU, 2)
    assert found.runs[0].failure == "diverged: the loss is nan"
    assert found.spreads["accuracy"].runs == 1
    assert found.spreads["accuracy"].undefined == 1
    assert "accuracy" not in found.medians
    assert json.loads((tmp_path / "runs/summary.json").read_text())["failed_seeds"][0] == 0
    fails_at({0, 1})
    with pytest.raises(Diverged, match="all 2 runs diverged"):
        finetune_seeds(short, start, data / "choice", tmp_path / "others", None, CPU, 2)


def test_a_run_no_better_than_the_constant_answer_has_failed():
    assert why_failed({"accuracy": 52.7}, {"accuracy": 52.7}) is not None
    assert why_failed({"accuracy": 52.8}, {"accuracy": 52.7}) is None
    assert why_failed({"pearson": None}, {"pearson": None}) == "pearson is undefined, every answer is the same"
    assert why_failed({"pearson": -1.0}, {"pearson": None}) is not None
    assert why_failed({"pearson": 1.0}, {"pearson": None}) is None
    assert why_failed({"span_f1": 0.0}, None) is None


@given(st.lists(st.one_of(st.none(), st.floats(-100, 100)), min_size=1, max_size=9))
def test_a_spread_is_of_the_values_that_are_defined(values):
    known = [value for value in values if value is not None]
    spread = spread_of(values)
    if spread is None:
        assert not known
        return
    order = (spread.lowest, spread.lower_quartile, spread.median, spread.upper_quartile, spread.highest)
    assert list(order) == sorted(order)
    assert (spread.lowest, spread.highest) == (min(known), max(known))
    assert spread.median == pytest.approx(float(np.median(known)))
    assert (spread.runs, spread.undefined) == (len(known), len(values) - len(known))


def test_a_directory_of_one_run_takes_no_seeds(short, data, pretrained, tmp_path):
    start = PretrainedEncoder(str(pretrained))
    finetune(short, start, data / "choice", tmp_path / "run", settings=CPU)
    with pytest.raises(CannotCreate, match="holds one run, not those of several seeds"):
        finetune_seeds(short, start, data / "choice", tmp_path / "run", None, CPU, 2)
    with pytest.raises(InvalidConfiguration, match="seeds: are 0"):
        finetune_seeds(short, start, data / "choice", tmp_path / "new", None, CPU, 0)
