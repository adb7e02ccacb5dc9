"""The files of results/, and the figures that README and docs/ take from them."""

import csv
from pathlib import Path

import pytest
from dev.scripts import figures

from albert.recipes.pretraining import PretrainingRecipe
from albert.runtime.json_files import from_json, read_json_object
from albert.runtime.manifest import LAYOUT

ROOT = Path(__file__).parent.parent


def test_published_recipes_are_those_of_this_version():
    for path in (ROOT / "results").glob("**/recipe*.json"):
        values = read_json_object(path)
        values.pop(LAYOUT, None)
        from_json(PretrainingRecipe, values, str(path))


def test_every_page_says_first_that_its_commands_are_those_of_their_commits():
    pages = sorted((ROOT / "results").glob("*.md"))
    said = "Each command is shown as it was typed at the commit of its section"
    assert len(pages) > 7
    for page in pages:
        assert page.read_text(encoding="utf-8").splitlines()[2].startswith(said), page


def test_the_pages_have_the_figures_of_results(capsys):
    assert figures.main(["--check"]) == 0, capsys.readouterr().out


@pytest.fixture
def another_result(tmp_path, monkeypatch):
    """One page, and results in which albert takes 1,234.5 ms in one row."""
    with open(ROOT / "results" / "benchmark-inference.csv", newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        if (row["load"], row["system"]) == ("mixed", "albert fp32"):
            row["milliseconds"] = "1234.5"
    with open(tmp_path / "benchmark-inference.csv", "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    page = tmp_path / "page.md"
    page.write_text("Before.\n\n<!-- figures: inference -->\nold\n<!-- /figures -->\n\nAfter.\n", encoding="utf-8")
    monkeypatch.setattr(figures, "RESULTS", tmp_path)
    monkeypatch.setattr(figures, "ROOT", tmp_path)
    monkeypatch.setattr(figures, "PAGES", ("page.md",))
    monkeypatch.setattr(figures, "PASSAGES", {"inference": figures.PASSAGES["inference"]})
    return page


def test_another_result_is_noticed_and_written(another_result):
    before = another_result.read_text(encoding="utf-8")
    assert figures.main(["--check"]) == 1
    assert another_result.read_text(encoding="utf-8") == before
    assert figures.main([]) == 0
    text = another_result.read_text(encoding="utf-8")
    assert "| mixed: 32 sentences as they come | 1,234.5 / " in text
    assert text.startswith("Before.\n\n<!-- figures: inference -->\n| ") and text.endswith(
        "<!-- /figures -->\n\nAfter.\n"
    )
    assert figures.main(["--check"]) == 0


def test_an_unknown_passage_is_named(another_result):
    another_result.write_text("<!-- figures: speeds -->\n<!-- /figures -->\n", encoding="utf-8")
    with pytest.raises(SystemExit, match="speeds"):
        figures.main([])
