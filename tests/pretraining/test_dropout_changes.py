"""Dropout that changes during a run gives the same bytes as a recipe with the change from the start."""

import json
from dataclasses import replace

import pytest
from tests.pretraining.conftest import events
from tests.refusals import refusal

from albert.pretraining.run import pretrain
from albert.runtime.errors import CannotCreate, InvalidConfiguration
from albert.runtime.json_files import load_versioned


@pytest.fixture
def recipe(tiny_recipe):
    """Eight updates, a checkpoint every two, dropout 0.2."""
    model = replace(tiny_recipe.model, hidden_dropout_prob=0.2, attention_probs_dropout_prob=0.2)
    schedule = replace(tiny_recipe.schedule, total_steps=8)
    return replace(tiny_recipe, model=model, schedule=schedule, checkpoint_every=2, evaluate_every=8)


@pytest.fixture
def killed_after(recipe, tiny_corpus, killed_at):
    """Start or resume a run, and kill it after a number of updates."""

    def resume(run, updates, **options):
        with killed_at(2 * updates + 1):  # two micro-batches each
            pretrain(recipe, tiny_corpus, run, "cpu", **options)

    return resume


def changes_of(recipe, run):
    return load_versioned(type(recipe), run / "recipe.json").dropout_changes


def final_bytes(run):
    newest = run / "checkpoints" / "step-00000008"
    return [path.read_bytes() for path in (run / "model/model.safetensors", newest / "training_state.safetensors")]


def test_change_dropout_gives_the_bytes_of_a_recipe_with_the_change(recipe, tiny_corpus, tmp_path, killed_after):
    changes = ((4, 0.0), (6, 0.5))
    expected, run = tmp_path / "expected", tmp_path / "run"
    pretrain(replace(recipe, dropout_changes=changes), tiny_corpus, expected, "cpu")
    killed_after(run, 5)
    killed_after(run, 1, change_dropout=0.0)  # at step 4, and killed before it could save
    killed_after(run, 3)  # the run's recipe has the change
    killed_after(run, 1, change_dropout=0.5)
    pretrain(recipe, tiny_corpus, run, "cpu", change_dropout=0.5)
    assert final_bytes(run) == final_bytes(expected)
    assert changes_of(recipe, run) == changes
    assert [(record["step"], record["dropout"]) for record in events(run, "change")] == list(changes)
    assert (run / "model/config.json").read_bytes() == (expected / "model/config.json").read_bytes()
    for directory, dropout in (("checkpoints/step-00000006", 0.0), ("model", 0.5)):
        assert json.loads((expected / directory / "config.json").read_text())["hidden_dropout_prob"] == dropout
    pretrain(recipe, tiny_corpus, tmp_path / "unchanged", "cpu")
    assert final_bytes(tmp_path / "unchanged") != final_bytes(expected)
    with refusal(InvalidConfiguration, "--init"):
        pretrain(recipe, tiny_corpus, run, "cpu", change_dropout=0.0)


def test_other_settings_are_still_compared_and_the_present_dropout_is_no_change(
    recipe, tiny_corpus, tmp_path, killed_after
):
    run = tmp_path / "run"
    killed_after(run, 5)
    with refusal(CannotCreate, "seed", 0, 1):
        pretrain(replace(recipe, seed=1), tiny_corpus, run, "cpu", change_dropout=0.0)
    other = replace(recipe, model=replace(recipe.model, hidden_dropout_prob=0.0))
    with refusal(CannotCreate, "architecture.hidden_dropout_prob", 0.2, 0.0):
        pretrain(other, tiny_corpus, run, "cpu")
    killed_after(run, 1, change_dropout=0.2)
    assert changes_of(recipe, run) == ()


def test_change_dropout_needs_a_checkpoint(recipe, tiny_corpus, tmp_path):
    with refusal(InvalidConfiguration, "checkpoint"):
        pretrain(recipe, tiny_corpus, tmp_path / "run", "cpu", change_dropout=0.0)
    assert not (tmp_path / "run").exists()
