"""The benchmark of pre-training's efficiency: all learn as many tokens, in turns, and are asked the same."""

import csv
import importlib
import math
from dataclasses import replace

import pytest

from albert.optim.optimizer import OptimizerRecipe
from albert.runtime.json_files import save_json

pytest.importorskip("transformers")
pytest.importorskip("accelerate", reason="transformers' Trainer needs accelerate")
pytestmark = pytest.mark.filterwarnings("ignore")  # what Trainer has to say of itself


@pytest.fixture
def benchmark(checkout, monkeypatch):
    monkeypatch.syspath_prepend(str(checkout / "benchmarks"))
    return importlib.import_module("pretraining_efficiency")


def test_all_learn_in_turns_and_come_down(benchmark, tiny_corpus, tiny_recipe, tmp_path, capsys):
    recipe = replace(tiny_recipe, optimizer=OptimizerRecipe(kind="adamw", learning_rate=3e-3))
    save_json(tmp_path / "recipe.json", recipe)
    table = tmp_path / "rows.csv"
    benchmark.main(["--data", str(tiny_corpus), "--recipe", str(tmp_path / "recipe.json"), "--tokens", "4000",
                    "--slices", "2", "--sequences", "20", "--output", str(table)])  # fmt: skip
    with open(table, encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    systems = ("albert", "trainer")
    assert [row["system"] for row in rows] == [*systems] * 2
    for system in systems:
        own = [row for row in rows if row["system"] == system]
        assert float(own[-1]["million_tokens"]) == pytest.approx(0.004, rel=0.15)
        for figure in ("seconds", "step", "million_tokens"):
            values = [float(row[figure]) for row in own]
            assert values == sorted(values) and values[0] > 0
        for figure in ("whole_words_loss", "tokens_loss"):
            assert 0 < float(own[-1][figure]) < math.log(300)  # of which a guess has as much
    assert table.with_suffix(".png").read_bytes().startswith(b"\x89PNG")
    assert "tokens a second" in capsys.readouterr().out


def test_what_a_loss_has_cost_is_read_between_the_pauses(benchmark):
    points = [
        benchmark.Point("albert", step, 100 * step, float(step), {"loss": loss}) for step, loss in ((1, 5.0), (2, 3.0))
    ]
    assert benchmark.reached(points, "loss", 4.0, "tokens") == 150
    assert benchmark.reached(points, "loss", 6.0, "seconds") == 1.0
    assert benchmark.reached(points, "loss", 2.0, "seconds") == math.inf


def test_lamb_has_no_rate_for_their_adamw(benchmark, tiny_corpus, tmp_path):
    from albert.runtime.errors import UsageError

    with pytest.raises(UsageError, match="--learning-rate: the recipe has lamb"):
        benchmark.main(["--data", str(tiny_corpus), "--recipe", "quickstart", "--output", str(tmp_path / "rows.csv")])
