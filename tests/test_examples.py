"""The notebooks run as they stand, and hold the outputs of a run."""

import json
from pathlib import Path

import pytest
from dev.scripts.run_notebooks import run_notebook

NOTEBOOKS = sorted((Path(__file__).parents[1] / "examples").glob("*.ipynb"))


def kinds(notebook: dict) -> list[list[tuple]]:
    """What each cell of code gives: what is printed, and in which forms its value is shown."""
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    return [[(one["output_type"], *sorted(one.get("data", ()))) for one in cell["outputs"]] for cell in cells]


@pytest.mark.parametrize("place", NOTEBOOKS, ids=lambda place: place.stem)
def test_a_notebook_runs_and_holds_its_outputs(place, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    kept = json.loads(place.read_text(encoding="utf-8"))
    done = run_notebook(kept)
    assert kinds(done) == kinds(kept)
    counts = [cell["execution_count"] for cell in kept["cells"] if cell["cell_type"] == "code"]
    assert counts == list(range(1, len(counts) + 1)) and len(counts) >= 5
    assert sum("text/html" in form for cell in kinds(kept) for form in cell) >= 3
    assert not any("/tmp/" in json.dumps(cell["outputs"]) for cell in kept["cells"] if "outputs" in cell)


def test_there_are_three_notebooks():
    assert [place.stem for place in NOTEBOOKS] == ["inside-albert", "own-task", "own-text"]
