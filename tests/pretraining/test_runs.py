"""Runs: limits, resuming with changed settings, refused corpora, the paper's recipes, and Weights & Biases."""

import shutil
from dataclasses import replace
from itertools import pairwise

import pytest
from tests.pretraining.conftest import events, model_bytes, prepare_texts
from tests.refusals import refusal

from albert.cli.main import run as cli
from albert.pretraining.run import pretrain
from albert.recipes.architecture import PRESETS
from albert.recipes.pretraining import PAPER_BASE, RECIPES, PretrainingRecipe, scaled_recipe
from albert.runtime.errors import CannotCreate, InvalidConfiguration
from albert.runtime.json_files import load_versioned, read_json_object, save_versioned, to_json
from albert.text.sentencepiece import train_tokenizer
from albert.training.run_folder import RunFolder
from albert.training.same_run import PRETRAINING_GROWS, PRETRAINING_MAY_CHANGE, record_fingerprint


def test_a_run_is_replaced_after_all_checks(tiny_recipe, tiny_corpus, tmp_path, capsys):
    recipe = tmp_path / "recipe.json"
    run = tmp_path / "run"
    save_versioned(recipe, tiny_recipe)
    command = ["pretrain", str(recipe), "--data", str(tiny_corpus), "--output", str(run), "--device", "cpu"]
    assert cli([*command, "steps=2", "--replace"]) == 0
    assert cli([*command, "steps=2", "seed=7"]) == 73
    assert "--replace" in capsys.readouterr().err
    first = model_bytes(run)
    assert cli([*command, "seed=7", "--replace", "mixture=1,2"]) != 0
    assert cli([*command, "--replace", "--init", str(run)]) == 73
    assert cli([*command, "--replace", "--change-dropout", "0.2"]) == 2
    assert model_bytes(run) == first
    assert cli([*command, "steps=2", "seed=7", "--replace"]) == 0
    assert load_versioned(PretrainingRecipe, run / "recipe.json").seed == 7
    (tmp_path / "letters").mkdir()
    (tmp_path / "letters" / "letter.txt").touch()
    command[command.index(str(run))] = str(tmp_path / "letters")
    assert cli([*command, "--replace"]) == 73
    assert (tmp_path / "letters" / "letter.txt").exists()


def test_accuracies_are_shown_with_the_number_of_items_that_were_scored(tiny_recipe, tiny_corpus, tmp_path, capsys):
    save_versioned(tmp_path / "recipe.json", tiny_recipe)
    command = ["pretrain", str(tmp_path / "recipe.json"), "--data", str(tiny_corpus), "--output", str(tmp_path / "run")]
    assert cli([*command, "--device", "cpu", "steps=2"]) == 0
    shown = capsys.readouterr().out
    found = events(tmp_path / "run", "evaluation")[-1]
    for name in ("masked_tokens", "sentence_order"):
        count, right = found[f"{name}_count"], found[f"{name}_accuracy"] * found[f"{name}_count"]
        assert right == pytest.approx(round(right))  # the share is of this number
        said = f"{found[f'{name}_accuracy']:.1%} of {count:,.0f} right, in {found['sequences']:.0f} held-out sequence"
        assert said in shown
    assert found["sentence_order_count"] <= found["sequences"] < found["masked_tokens_count"]


def test_a_finished_run_continues_when_given_more_tokens(tiny_recipe, tiny_corpus, tmp_path):
    run, model = tmp_path / "run", replace(tiny_recipe.model, hidden_dropout_prob=0.1)
    limited = replace(tiny_recipe, max_tokens=500, model=model)
    unlimited = replace(limited, max_tokens=None)
    first = pretrain(limited, tiny_corpus, run, "cpu")
    assert first.training.ended_by == "tokens" and first.training.steps < 12
    assert f"({first.training.ending})" in (first.model / "README.md").read_text(encoding="utf-8")
    before = model_bytes(run)
    pretrain(limited, tiny_corpus, run, "cpu")
    assert model_bytes(run) == before
    second = pretrain(unlimited, tiny_corpus, run, "cpu")
    assert second.training.steps == 12
    assert load_versioned(PretrainingRecipe, run / "recipe.json").max_tokens is None
    reference = pretrain(unlimited, tiny_corpus, tmp_path / "reference", "cpu")
    assert model_bytes(run) == model_bytes(tmp_path / "reference") != before
    assert second.evaluation == reference.evaluation
    assert [record["why"] for record in events(run, "end")] == [first.training.ending, "all 12 steps taken"]


def test_annealing_by_budget_ends_at_rate_zero_and_resumes_with_the_same_bytes(tiny_recipe, tiny_corpus, tmp_path):
    schedule = replace(tiny_recipe.schedule, total_steps=1000, warmup_steps=2, anneal="budget")
    limits = {"max_tokens": 3000, "log_every": 1, "checkpoint_every": 3, "keep_checkpoints": 50}
    recipe = replace(tiny_recipe, schedule=schedule, evaluate_every=1000, **limits)
    result = pretrain(recipe, tiny_corpus, tmp_path / "reference", "cpu")
    assert result.training.ended_by == "tokens"
    records = events(tmp_path / "reference", "train")
    peak = recipe.optimizer.learning_rate
    for before, record in pairwise(records[2:]):
        assert record["learning_rate"] == pytest.approx(peak * (1 - before["tokens"] / 3000))
    assert records[-1]["learning_rate"] < 0.2 * peak
    run = tmp_path / "run"
    shutil.copytree(tmp_path / "reference", run)
    for step, checkpoint in RunFolder(run).checkpoints():  # as if killed after step 3
        if step > 3:
            shutil.rmtree(checkpoint)
    shutil.rmtree(run / "model")
    (run / "results.json").unlink()
    pretrain(recipe, tiny_corpus, run, "cpu")
    assert model_bytes(run) == model_bytes(tmp_path / "reference")


def test_total_steps_may_not_change(tiny_recipe, tiny_corpus, tmp_path):
    recipe = replace(tiny_recipe, max_tokens=1)
    result = pretrain(recipe, tiny_corpus, tmp_path / "run", "cpu")
    assert read_json_object(result.model / "config.json")["sentence_objective"] == "sop"
    longer = replace(recipe, schedule=replace(tiny_recipe.schedule, total_steps=20))
    with refusal(CannotCreate, "settings: steps (12, now 20)"):
        pretrain(longer, tiny_corpus, tmp_path / "run", "cpu")


def pretraining_fingerprint(recipe):
    return record_fingerprint(to_json(recipe), (*PRETRAINING_MAY_CHANGE, *PRETRAINING_GROWS))


def test_limits_and_guards_are_not_part_of_the_fingerprint(tiny_recipe):
    guarded = replace(tiny_recipe, on_divergence="rollback", max_rollbacks=3, max_minutes=5.0)
    assert pretraining_fingerprint(guarded) == pretraining_fingerprint(tiny_recipe)
    assert pretraining_fingerprint(replace(tiny_recipe, clip_norm=2.0)) != pretraining_fingerprint(tiny_recipe)


def test_the_fingerprint_changes_with_what_decides_the_result(tiny_recipe):
    fingerprint = pretraining_fingerprint(tiny_recipe)
    assert pretraining_fingerprint(replace(tiny_recipe, seed=tiny_recipe.seed + 1)) != fingerprint
    assert pretraining_fingerprint(replace(tiny_recipe, max_tokens=5, workers=2, keep_checkpoints=9)) == fingerprint


def test_another_corpus_is_refused_with_what_differs(tiny_recipe, tiny_corpus, tiny_texts, tmp_path):
    pretrain(replace(tiny_recipe, max_tokens=1), tiny_corpus, tmp_path / "run", "cpu")
    saved = read_json_object(tmp_path / "run" / "inputs.json")["inputs"]["corpus"]
    tokenizer = train_tokenizer(tiny_texts, vocab_size=290)
    prepare_texts(tiny_texts[:30], tokenizer, tmp_path, 0.2).rename(tmp_path / "other")
    with pytest.raises(CannotCreate) as refusal:
        pretrain(tiny_recipe, tmp_path / "other", tmp_path / "run", "cpu")
    message = str(refusal.value)
    name = saved["name"]
    assert f"holds a finished run with another corpus: {name} ({saved['fingerprint'][:8]}), now other (" in message
    assert name.startswith("corpus (") and " documents, " in name and " tokens, " in name
    assert f"tokenizer {tokenizer.fingerprint[:8]}" in message and "\n" not in message


def test_the_recipes_of_the_paper_have_its_values():
    """Lan et al. 2019, §4.1 and Table 1; dropout as in the released version 2."""
    for name in ("base", "large", "xlarge", "xxlarge"):
        recipe = RECIPES[name]
        assert (recipe.batch_size, recipe.sequences.max_length) == (4096, 512)
        assert (recipe.optimizer.kind, recipe.optimizer.learning_rate) == ("lamb", 0.00176)
        assert (recipe.schedule.total_steps, recipe.schedule.warmup_steps) == (125_000, 3_125)
        assert (recipe.masking.share, recipe.masking.max_ngram) == (0.15, 3)
        assert (recipe.model.hidden_dropout_prob, recipe.model.attention_probs_dropout_prob) == (0.0, 0.0)
    assert RECIPES["xxlarge"].model == PRESETS["albert-xxlarge"] and PRESETS["albert-xxlarge"].num_hidden_layers == 12


def test_the_learning_rate_is_scaled_by_the_root_of_the_batch_size():
    scaled = scaled_recipe(PAPER_BASE, 256)
    assert scaled.optimizer.learning_rate == pytest.approx(0.00044)
    assert (scaled.batch_size, scaled.schedule) == (256, PAPER_BASE.schedule)
    assert scaled_recipe(PAPER_BASE, 8).micro_batch_size == 8
    assert scaled_recipe(scaled_recipe(PAPER_BASE, 64), 4096).optimizer.learning_rate == pytest.approx(0.00176)
    assert RECIPES["one-gpu"].optimizer == RECIPES["continue"].optimizer == scaled.optimizer
    for size in (0, -4):
        with refusal(InvalidConfiguration, "batch_size", size):
            scaled_recipe(PAPER_BASE, size)
