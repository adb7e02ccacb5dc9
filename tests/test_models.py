"""The models that come with the project: whole, named in README, and good for what it says of them."""

import re
import shlex
from pathlib import Path

import pytest

import albert
from albert.cli.main import run
from albert.runtime.manifests import verify_directory

ROOT = Path(__file__).parent.parent
MODELS = sorted(path for path in (ROOT / "models").iterdir() if path.is_dir())


@pytest.mark.parametrize("model", MODELS, ids=lambda path: path.name)
def test_a_model_is_whole_small_and_tells_its_sources(model):
    verify_directory(model)
    assert sum(file.stat().st_size for file in model.iterdir()) < 25e6
    card = (model / "README.md").read_text(encoding="utf-8")
    assert "licence" in card and "masked-token accuracy, held out" in card


def test_the_small_model_knows_what_is_opened_before_one_enters():
    answers = albert.load(ROOT / "models" / "tiny", precision="fp32").fill_mask(
        "He opened the [MASK] and went into the house."
    )
    assert answers[0]["token_str"] == "door"


def test_readmes_command_asks_it(monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    (line,) = re.findall(r"^\.venv/bin/albert (predict models/.+)$", readme, re.MULTILINE)
    assert run(shlex.split(line)) == 0
    assert "door" in capsys.readouterr().out
