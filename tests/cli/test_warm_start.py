"""`albert pretrain --init` and `--change-dropout`."""

import json
import shutil

import pytest

from albert.cli.main import run
from albert.recipes.pretraining import PretrainingRecipe
from albert.runtime.json_files import load_versioned

SHORT = [
    *("batch_size=2", "evaluation_sequences=4", "steps=2"),
    *("schedule.warmup_steps=1", "precision=fp32", "--device", "cpu"),
]
"""Flags with which a run takes a second; they do not change the architecture."""


@pytest.fixture
def pretrain(scene, tmp_path, capsys):
    """Runs `albert pretrain` on a corpus; returns exit code, stdout and stderr."""

    def call(*words, corpus=None):
        capsys.readouterr()
        data = ["--data", str(corpus or scene.corpus), "--output", str(tmp_path / "run")]
        code = run(["pretrain", *(str(word) for word in words), *data])
        return code, *capsys.readouterr()

    return call


def test_continue_has_the_architecture_of_the_model(scene, pretrain, tmp_path):
    code, out, notes = pretrain("continue", "--init", scene.run, *SHORT)
    assert code == 0 and "started from" in out and f"started from {scene.run.parts[-2]}/run (weights " in notes
    recipe = load_versioned(PretrainingRecipe, tmp_path / "run/recipe.json")
    source = load_versioned(PretrainingRecipe, scene.run / "recipe.json")
    assert recipe.model == source.model and recipe.sequences.max_length == source.sequences.max_length
    assert recipe.schedule.total_steps == 2
    # The finished run is recognised with the same arguments, and without the model.
    assert pretrain("continue", "--init", scene.run, *SHORT)[0] == 0
    code, out, _ = pretrain("continue")
    assert code == 0 and "is complete already" in " ".join(out.split())


def test_flags_change_the_architecture(scene, pretrain, tmp_path):
    words = ["architecture.num_hidden_layers=4", "architecture.sharing=none", "architecture.max_position_embeddings=96"]
    code, _, notes = pretrain("continue", f"--init={scene.run}", *SHORT, *words, "--extend-positions")
    assert code == 0
    assert "2 layers with sharing all → 4 layers with sharing none (layer i begins as layer ⌊i·2/4⌋)" in notes
    assert "trained ones repeated" in notes
    config = json.loads((tmp_path / "run/model/config.json").read_text())
    assert (config["num_hidden_layers"], config["sharing"], config["max_position_embeddings"]) == (4, "none", 96)
    card = " ".join((tmp_path / "run/model/README.md").read_text(encoding="utf-8").split())
    assert "started from" in card and "trained ones repeated" in card


def test_change_dropout_resumes_with_another_dropout(scene, pretrain, tmp_path):
    shutil.copytree(scene.run, tmp_path / "run")
    for place in ("model", "checkpoints/step-00000004"):
        shutil.rmtree(tmp_path / "run" / place)
    recipe = scene.run / "recipe.json"
    code, out, _ = pretrain(recipe, "--change-dropout", "0.1", "--device", "cpu")
    assert code == 0 and "after step 2" in out
    kept = load_versioned(PretrainingRecipe, tmp_path / "run/recipe.json")
    assert kept.dropout_changes == ((2, 0.1),)
    assert json.loads((tmp_path / "run/model/config.json").read_text())["attention_probs_dropout_prob"] == 0.1
