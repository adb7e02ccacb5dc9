"""What a recipe says about the end of a run and its guards; what may change when it goes on; other corpora refused."""

import shutil
import sys
import types
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from tests.pretraining.conftest import prepare_texts

from albert.model.config import ALBERT_XXLARGE
from albert.pretraining import run_identity as run_recipe
from albert.pretraining.recipe import PAPER_BASE, RECIPES, PretrainingRecipe, scaled_recipe
from albert.pretraining.run import pretrain
from albert.pretraining.run_identity import recipe_fingerprint
from albert.runtime import environment as late_modules
from albert.runtime.errors import InvalidConfiguration, Unavailable
from albert.runtime.json_files import load_json, read_journal, read_json_object, save_json, to_json
from albert.text.sentencepiece import train_tokenizer


def weights(run: Path) -> bytes:
    return (run / "model" / "model.safetensors").read_bytes()


def test_a_run_that_is_given_more_tokens_goes_on_and_its_model_with_it(tiny_recipe, tiny_corpus, tmp_path):
    some = replace(tiny_recipe, max_tokens=500, model=replace(tiny_recipe.model, hidden_dropout_prob=0.1))
    first = pretrain(some, tiny_corpus, tmp_path / "run", "cpu")
    assert first.training.ended_by == "tokens" and first.training.steps < 12
    assert f"({first.training.ending})" in (first.model / "README.md").read_text(encoding="utf-8")
    before = weights(tmp_path / "run")
    pretrain(some, tiny_corpus, tmp_path / "run", "cpu")
    assert weights(tmp_path / "run") == before
    more = replace(some, max_tokens=None)
    second = pretrain(more, tiny_corpus, tmp_path / "run", "cpu")
    assert second.training.steps == 12
    assert load_json(PretrainingRecipe, tmp_path / "run" / "recipe.json").max_tokens is None
    whole = pretrain(more, tiny_corpus, tmp_path / "whole", "cpu")
    assert weights(tmp_path / "run") == weights(tmp_path / "whole") != before
    assert second.evaluation == whole.evaluation
    ends = [record["why"] for record in read_journal(tmp_path / "run" / "journal.jsonl") if record["event"] == "end"]
    assert ends == [first.training.ending, "all 12 steps taken"]


def test_a_run_that_ends_by_its_budget_ends_at_a_rate_of_zero(tiny_recipe, tiny_corpus, tmp_path):
    schedule = replace(tiny_recipe.schedule, total_steps=1000, warmup_steps=2, anneal="budget")
    recipe = replace(tiny_recipe, schedule=schedule, max_tokens=3000, log_every=1, evaluate_every=1000)
    result = pretrain(recipe, tiny_corpus, tmp_path / "run", "cpu")
    assert result.training.ended_by == "tokens"
    lines = [line for line in read_journal(tmp_path / "run" / "journal.jsonl") if line["event"] == "train"]
    peak = recipe.optimizer.learning_rate
    for before, line in pairwise(lines[2:]):
        assert line["learning_rate"] == pytest.approx(peak * (1 - before["tokens"] / 3000))
    assert lines[-1]["learning_rate"] < 0.2 * peak


def test_a_run_whose_rate_follows_the_budget_goes_on_with_the_same_bytes(tiny_recipe, tiny_corpus, tmp_path):
    schedule = replace(tiny_recipe.schedule, total_steps=1000, warmup_steps=2, anneal="budget", decay_share=0.5)
    recipe = replace(tiny_recipe, schedule=schedule, max_tokens=3000, checkpoint_every=3, keep_checkpoints=50)
    pretrain(recipe, tiny_corpus, tmp_path / "whole", "cpu")
    pretrain(recipe, tiny_corpus, tmp_path / "run", "cpu")
    for place in (tmp_path / "run" / "checkpoints").iterdir():  # as if it had been killed after step 3
        if int(place.name.split("-")[-1]) > 3:
            shutil.rmtree(place)
    shutil.rmtree(tmp_path / "run" / "model")
    pretrain(recipe, tiny_corpus, tmp_path / "run", "cpu")
    assert weights(tmp_path / "run") == weights(tmp_path / "whole")


def test_a_run_with_sop_reference_gives_a_sop_head(tiny_recipe, tiny_corpus, tmp_path):
    sequences = replace(tiny_recipe.sequences, objective="sop-reference")
    result = pretrain(replace(tiny_recipe, sequences=sequences), tiny_corpus, tmp_path / "run", "cpu")
    assert read_json_object(result.model / "config.json")["sentence_objective"] == "sop"


def test_steps_are_not_free_to_change_because_the_learning_rate_hangs_on_them(tiny_recipe, tiny_corpus, tmp_path):
    pretrain(replace(tiny_recipe, max_tokens=1), tiny_corpus, tmp_path / "run", "cpu")
    longer = replace(tiny_recipe, schedule=replace(tiny_recipe.schedule, total_steps=20))
    with pytest.raises(InvalidConfiguration, match="started with schedule.total_steps 12, now it is 20"):
        pretrain(longer, tiny_corpus, tmp_path / "run", "cpu")


def test_guards_may_change_and_the_fingerprint_does_not(tiny_recipe):
    guarded = replace(tiny_recipe, on_divergence="rollback", spike_deviations=20.0, max_rollbacks=3, max_minutes=5.0)
    assert recipe_fingerprint(guarded) == recipe_fingerprint(tiny_recipe)
    assert recipe_fingerprint(replace(tiny_recipe, clip_norm=2.0)) != recipe_fingerprint(tiny_recipe)


def test_runs_begun_before_a_field_was_there_go_on(tiny_recipe):
    """A field's value that means what its absence meant is no part of the fingerprint; another one is."""
    known = run_recipe.flatten(to_json(tiny_recipe))
    for name, value in run_recipe._DEFAULTS_OF_NEW_FIELDS.items():
        assert known[name] == value, name
    windowed = replace(tiny_recipe, model=replace(tiny_recipe.model, attention_window=8))
    assert recipe_fingerprint(windowed) != recipe_fingerprint(tiny_recipe)


def test_another_corpus_is_refused_with_what_differs(tiny_recipe, tiny_corpus, tiny_texts, tmp_path):
    pretrain(replace(tiny_recipe, max_tokens=1), tiny_corpus, tmp_path / "run", "cpu")
    [kept] = read_json_object(tmp_path / "run" / "corpora.json")["corpora"]
    tokenizer = train_tokenizer(tiny_texts, vocab_size=290)
    prepare_texts(tiny_texts[:30], tokenizer, tmp_path, 0.2).rename(tmp_path / "other")
    with pytest.raises(InvalidConfiguration) as refusal:
        pretrain(tiny_recipe, tmp_path / "other", tmp_path / "run", "cpu")
    said = str(refusal.value)
    assert f"started with the corpus corpus ({kept['documents']} documents, {kept['tokens']:,} tokens" in said
    assert f"tokenizer {kept['tokenizer'][:8]}" in said and f"tokenizer {tokenizer.fingerprint[:8]}" in said
    assert "now it is other (" in said and "\n" not in said


def test_the_recipes_of_the_paper_are_the_papers():
    """Lan et al. 2019, §4.1 and Table 1; dropout as in the released version 2."""
    for name in ("base", "large", "xlarge", "xxlarge"):
        recipe = RECIPES[name]
        assert (recipe.batch_size, recipe.sequences.max_length) == (4096, 512)
        assert (recipe.optimizer.kind, recipe.optimizer.learning_rate) == ("lamb", 0.00176)
        assert (recipe.schedule.total_steps, recipe.schedule.warmup_steps) == (125_000, 3_125)
        assert (recipe.masking.share, recipe.masking.max_ngram) == (0.15, 3)
        assert (recipe.model.hidden_dropout_prob, recipe.model.attention_probs_dropout_prob) == (0.0, 0.0)
    assert RECIPES["xxlarge"].model == ALBERT_XXLARGE and ALBERT_XXLARGE.num_hidden_layers == 12


def test_a_smaller_batch_has_the_root_of_the_rate():
    scaled = scaled_recipe(PAPER_BASE, 256)
    assert scaled.optimizer.learning_rate == pytest.approx(0.00044)
    assert (scaled.batch_size, scaled.schedule) == (256, PAPER_BASE.schedule)
    assert scaled_recipe(PAPER_BASE, 8).micro_batch_size == 8
    there_and_back = scaled_recipe(scaled_recipe(PAPER_BASE, 64), 4096)
    assert there_and_back.optimizer.learning_rate == pytest.approx(0.00176)
    assert RECIPES["one-gpu"].optimizer == RECIPES["continue"].optimizer == scaled.optimizer
    for size in (0, -4):
        with pytest.raises(InvalidConfiguration, match=f"batch_size: is {size}"):
            scaled_recipe(PAPER_BASE, size)


class FakeService:
    """Weights & Biases as far as we use it; it remembers."""

    def __init__(self):
        self.runs = []

    def init(self, **settings):
        run = types.SimpleNamespace(settings=settings, points=[], metrics=[], finished=False)
        run.define_metric = lambda name, step_metric: run.metrics.append((name, step_metric))
        run.log = run.points.append
        run.finish = lambda: setattr(run, "finished", True)
        self.runs.append(run)
        return run


def test_curves_go_to_weights_and_biases_as_one_run_however_often_it_is_stopped(
    tiny_recipe, tiny_corpus, tmp_path, monkeypatch
):
    service = FakeService()
    monkeypatch.setitem(sys.modules, "wandb", types.SimpleNamespace(init=service.init))
    monkeypatch.delitem(sys.modules, "albert.training.wandb_logger", raising=False)
    for limit in (300, None):
        recipe = replace(tiny_recipe, max_tokens=limit)
        pretrain(recipe, tiny_corpus, tmp_path / "run", "cpu", wandb="albert")
    first, second = service.runs
    assert first.settings["id"] == second.settings["id"] and first.settings["resume"] == "allow"
    assert (first.settings["project"], first.settings["name"]) == ("albert", "run")
    assert first.settings["config"]["batch_size"] == 8
    assert first.finished and second.finished
    told = [record for record in read_journal(tmp_path / "run" / "journal.jsonl") if record["event"] == "train"]
    points = [point for run in service.runs for point in run.points if "train/loss" in point]
    assert [(point["step"], point["train/loss"]) for point in points] == [(r["step"], r["loss"]) for r in told]
    assert first.metrics == [("*", "step")]
    sys.modules.pop("albert.training.wandb_logger")


def test_a_service_that_is_not_installed_is_one_line_and_leaves_nothing(
    tiny_recipe, tiny_corpus, tmp_path, monkeypatch
):
    def absent(name):
        raise ModuleNotFoundError("No module named 'wandb'", name="wandb")

    monkeypatch.setattr(late_modules.importlib, "import_module", absent)
    with pytest.raises(Unavailable, match=r"wandb: is not installed; pip install 'albert-encoder\[wandb\]'"):
        pretrain(tiny_recipe, tiny_corpus, tmp_path / "run", "cpu", wandb="albert")
    assert not (tmp_path / "run").exists()


def test_old_recipes_read_as_they_were(tiny_recipe, tmp_path):
    tree = to_json(tiny_recipe)
    for name in ("max_tokens", "max_minutes", "on_divergence", "spike_deviations", "max_rollbacks"):
        del tree[name]
    save_json(tmp_path / "old.json", tree)
    assert load_json(PretrainingRecipe, tmp_path / "old.json") == tiny_recipe
