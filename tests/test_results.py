"""The figures in README are those of rows in results/."""

import csv
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def figures(run: str) -> dict[str, dict[str, str]]:
    with open(ROOT / "results" / "results.csv", newline="", encoding="utf-8") as file:
        return {row["figure"]: row for row in csv.DictReader(file) if row["run"] == run}


@pytest.mark.parametrize("figure", ["masked_tokens_accuracy", "sentence_order_accuracy", "authorship_accuracy"])
def test_the_quickstart_figures_of_the_readme_were_measured(figure):
    row = figures("2026-11-20-quickstart")[figure]
    assert f"| {float(row['value']):.1%} | {float(row['baseline']):.1%}".replace("%", " %") in README
    assert row["commit"] in README


def test_the_figures_of_the_first_run_were_measured():
    row = figures("2026-11-20-small")["masked_tokens_accuracy"]
    words = " ".join(README.split())
    assert f"gets {float(row['value']):.1%} of held-out masked".replace("%", " %") in words
    assert f"a constant answer: {float(row['baseline']):.1%}".replace("%", " %") in words
    pretrained, random = (figures(f"2026-11-20-small-sst-2-{start}")["accuracy"] for start in ("pretrained", "random"))
    assert f"SST-2 {float(pretrained['value']):.1f} against {float(random['value']):.1f}" in words


def test_the_speeds_of_the_readme_were_measured():
    with open(ROOT / "results" / "benchmark-pretraining-step.csv", newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            ours, theirs = int(row["albert_tokens_per_second"]), int(row["transformers_tokens_per_second"])
            assert f"| {row['precision']} | {ours:,} | {theirs:,} | {float(row['ratio']):.1f} |" in README
