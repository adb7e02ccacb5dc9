"""docs/paper.md names existing files and options, and every table of the paper."""

import re
from dataclasses import fields
from pathlib import Path

import pytest
from experiments.grids import GRIDS, SCALES
from experiments.report import STATIC_TABLES

from albert.recipes.pretraining import PretrainingRecipe

ROOT = Path(__file__).parent.parent
TEXT = (ROOT / "docs" / "paper.md").read_text(encoding="utf-8")
QUOTED = re.findall(r"`([^`\n]+)`", TEXT)
FILES = sorted({name for name in QUOTED if re.fullmatch(r"[\w./-]+\.(py|md|csv|json|toml)", name)})
assert len(FILES) > 45


@pytest.mark.parametrize("name", FILES)
def test_named_files_exist(name):
    assert (ROOT / "src" / "albert" / name).is_file() or (ROOT / name).is_file()


def test_named_tables_exist():
    shown = {name for command in QUOTED for name in re.findall(r"python -m experiments show (\S+)", command)}
    assert shown and shown <= {*GRIDS, *STATIC_TABLES}


def test_named_options_exist():
    named = {name for quoted in QUOTED for name in re.findall(r"--(sequences|masking)\.([\w-]+)", quoted)}
    settings = {"sequences": PretrainingRecipe().sequences, "masking": PretrainingRecipe().masking}
    for part, option in named:
        assert option.replace("-", "_") in {field.name for field in fields(settings[part])}
    plain = {field.name for field in fields(PretrainingRecipe)}
    assert {"sinusoidal_positions", "max_minutes", "activation_checkpointing"} <= plain
    assert {"`sinusoidal_positions`", "`max_minutes`", "`activation_checkpointing`"} <= {f"`{one}`" for one in QUOTED}


def test_every_table_and_every_scale_is_named():
    for number in range(1, 15):
        assert re.search(rf"Tables? ([\d, ]+, )?{number}\b", TEXT), number
    for scale in SCALES:
        assert scale in TEXT


def test_every_deviation_has_an_effect_or_is_not_measured():
    section = TEXT.split("## Deviations")[1].split("\n## ")[0]
    rows = [line.strip("| ").split(" | ") for line in section.splitlines() if line.startswith("| ")]
    rows = [row for row in rows if not row[-1].startswith("effect")]
    assert len(rows) > 20
    assert {len(row) for row in rows} == {4}
    assert all(row[-1].strip() for row in rows)
