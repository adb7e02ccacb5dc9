"""`albert tables run figure-1`: two models to their end, their layers measured for every seed, and judged."""

import csv
import json
from dataclasses import replace

import pytest
from tests.experiments.tables.toy_scale import TOY

from albert.cli.main import run
from albert.experiments import grids
from albert.experiments.layers import SMOOTHNESS


def test_figure_1_from_the_first_update_to_the_verdict(scene, tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(grids.SCALES, "tiny", replace(TOY, seeds=(0, 1)))
    root = tmp_path / "root"
    words = ["figure-1", "--data", str(scene.corpus), "--output", str(root), "--device", "cpu", "--threads", "1"]
    assert run(["tables", "run", *words]) == 0
    shown = capsys.readouterr().out
    assert "complete: 4 of 4 pre-trainings" in shown and "against a fixed point" in shown
    assert len(list(root.glob("scores/*/layers.json"))) == 4
    for path in root.glob("scores/*/intrinsic.json"):  # asked as they learnt: pairs are kept
        asked = json.loads(path.read_text(encoding="utf-8"))
        assert asked["models"][0]["scores"]["sentence_order"]["count"] > 0.9 * asked["sequences"]
    with open(root / "tables" / "figure-1.csv", encoding="utf-8") as file:
        found = {(row["row"], row["column"]): row for row in csv.DictReader(file)}
    for model in ("bert-large", "albert-large"):
        for column in SMOOTHNESS:
            row = found[model, column]
            assert row["seeds"] == "2" and float(row["median"]) >= 0
    report = (root / "tables" / "figure-1.md").read_text(encoding="utf-8")
    assert "do not come to rest" in report and "not asked" not in report
    assert (root / "tables" / "figure-1.png").is_file() and (root / "tables" / "figure-1-layers.csv").is_file()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("albert.experiments.layers.measure_layers", None)  # measured once
        assert run(["tables", "show", *words]) == 0
