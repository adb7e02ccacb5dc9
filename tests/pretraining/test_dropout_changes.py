"""Dropout that is changed under way: the same bytes as a recipe that had the change from the beginning."""

import json
from dataclasses import replace

import pytest

from albert.pretraining.run import pretrain
from albert.runtime.errors import InvalidConfiguration
from albert.runtime.json_files import load_json, read_journal


@pytest.fixture
def recipe(tiny_recipe):
    """Eight updates, a checkpoint after every second, dropout 0.2."""
    model = replace(tiny_recipe.model, hidden_dropout_prob=0.2, attention_probs_dropout_prob=0.2)
    schedule = replace(tiny_recipe.schedule, total_steps=8)
    return replace(tiny_recipe, model=model, schedule=schedule, checkpoint_every=2, evaluate_every=8)


@pytest.fixture
def stopped_after(recipe, tiny_corpus, killed_at):
    """Go on with a run until so many updates are done in this call, then stop without saving."""

    def go_on(run, updates, **options):
        with killed_at(2 * updates + 1):  # two micro-batches each
            pretrain(recipe, tiny_corpus, run, "cpu", **options)

    return go_on


def final_bytes(run):
    newest = run / "checkpoints" / "step-00000008"
    files = (run / "model" / "model.safetensors", newest / "training_state.safetensors")
    return [file.read_bytes() for file in files]


def test_a_change_under_way_gives_the_bytes_of_a_recipe_that_foresaw_it(recipe, tiny_corpus, tmp_path, stopped_after):
    foreseen = replace(recipe, dropout_changes=((4, 0.0), (6, 0.5)))
    pretrain(foreseen, tiny_corpus, tmp_path / "foreseen", "cpu")
    changed = tmp_path / "changed"
    stopped_after(changed, 5)
    stopped_after(changed, 1, change_dropout=0.0)  # at 4, and killed before it could save anything
    stopped_after(changed, 3)  # goes on as changed without being told again
    stopped_after(changed, 1, change_dropout=0.5)
    pretrain(recipe, tiny_corpus, changed, "cpu", change_dropout=0.5)
    assert final_bytes(changed) == final_bytes(tmp_path / "foreseen")
    assert load_json(type(recipe), changed / "recipe.json").dropout_changes == ((4, 0.0), (6, 0.5))
    told = [r for r in read_journal(changed / "journal.jsonl") if r["event"] == "change"]
    assert [(record["step"], record["dropout"]) for record in told] == [(4, 0.0), (6, 0.5)]
    for step, dropout in ((4, 0.2), (6, 0.0), (8, 0.5)):
        place = tmp_path / "foreseen" / ("model" if step == 8 else f"checkpoints/step-{step:08d}")
        if place.exists():
            assert json.loads((place / "config.json").read_text())["hidden_dropout_prob"] == dropout
    assert (changed / "model/config.json").read_bytes() == (tmp_path / "foreseen/model/config.json").read_bytes()


def test_without_a_change_other_bytes_come_out(recipe, tiny_corpus, tmp_path):
    pretrain(recipe, tiny_corpus, tmp_path / "one", "cpu")
    pretrain(replace(recipe, dropout_changes=((4, 0.0),)), tiny_corpus, tmp_path / "two", "cpu")
    assert final_bytes(tmp_path / "one") != final_bytes(tmp_path / "two")


def test_everything_else_is_still_compared(recipe, tiny_corpus, tmp_path, stopped_after):
    stopped_after(tmp_path / "run", 5)
    with pytest.raises(InvalidConfiguration, match="this run was started with seed 0, now it is 1"):
        pretrain(replace(recipe, seed=1), tiny_corpus, tmp_path / "run", "cpu", change_dropout=0.0)
    other = replace(recipe, model=replace(recipe.model, hidden_dropout_prob=0.0))
    with pytest.raises(InvalidConfiguration, match=r"model\.hidden_dropout_prob 0\.2, now it is 0\.0"):
        pretrain(other, tiny_corpus, tmp_path / "run", "cpu")
    assert load_json(type(recipe), tmp_path / "run/recipe.json").dropout_changes == ()


def test_the_dropout_that_is_there_already_is_no_change(recipe, tiny_corpus, tmp_path, stopped_after):
    stopped_after(tmp_path / "run", 5)
    stopped_after(tmp_path / "run", 1, change_dropout=0.2)
    assert load_json(type(recipe), tmp_path / "run/recipe.json").dropout_changes == ()


def test_dropout_changes_only_where_a_run_can_go_on(recipe, tiny_corpus, tmp_path):
    with pytest.raises(InvalidConfiguration, match="has no checkpoint to go on from"):
        pretrain(recipe, tiny_corpus, tmp_path / "run", "cpu", change_dropout=0.0)
    assert not (tmp_path / "run").exists()
    pretrain(recipe, tiny_corpus, tmp_path / "run", "cpu")
    with pytest.raises(InvalidConfiguration, match="has taken all its updates; start another run with --init"):
        pretrain(recipe, tiny_corpus, tmp_path / "run", "cpu", change_dropout=0.0)
