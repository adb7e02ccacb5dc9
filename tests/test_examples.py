"""The notebooks run, only shorter, and hold the outputs of a run; `make notebooks` runs them as they stand."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from dev.scripts.run_notebooks import run_notebook

import albert

NOTEBOOKS = sorted((Path(__file__).parents[1] / "examples").glob("*.ipynb"))


def kinds(notebook: dict) -> list[list[tuple]]:
    """What each cell of code gives: what is printed, and in which forms its value is shown."""
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    return [[(one["output_type"], *sorted(one.get("data", ()))) for one in cell["outputs"]] for cell in cells]


@pytest.fixture
def shorter(monkeypatch):
    """Fewer updates, on less text."""
    from albert.commands import sample

    finetune, pretrain = albert.finetune, albert.pretrain
    passages, chapters = sample.labelled_passages(), sample.load_chapters()[::6]
    fewer = replace(passages, train=passages.train[::4], dev=passages.dev[::2])
    monkeypatch.setattr(sample, "labelled_passages", lambda: fewer)
    monkeypatch.setattr(sample, "load_chapters", lambda: chapters)

    def few_updates(*arguments, **keywords):
        keywords.pop("epochs", None)
        if not keywords.get("frozen"):
            keywords |= {"steps": 4, "evaluate_every": 2}
        return finetune(*arguments, **keywords)

    def few_sequences(*arguments, **keywords):
        return pretrain(*arguments, **keywords | {"steps": 4, "evaluate_every": 2, "evaluation_sequences": 20})

    monkeypatch.setattr(albert, "finetune", few_updates, raising=False)
    monkeypatch.setattr(albert, "pretrain", few_sequences, raising=False)


@pytest.mark.long
@pytest.mark.usefixtures("shorter")
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
