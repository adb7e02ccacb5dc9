"""Every run of every scale can begin, and at the paper's scale it is the paper's to the last knob."""

from dataclasses import replace

import pytest

from albert.experiments.grids import BASE, PAPER, SCALES, SMALL, TINY, arm, grid_of
from albert.experiments.jobs import Folders
from albert.experiments.report import comparison_notes
from albert.experiments.results import read_outcome
from albert.model.config import PRESETS
from albert.pretraining.recipe import PretrainingRecipe
from albert.runtime.json_files import from_json, to_json


@pytest.mark.parametrize("scale", SCALES.values(), ids=list(SCALES))
def test_every_recipe_is_whole_and_survives_its_file(scale, all_arms):
    for one in all_arms(scale):
        recipe = one.recipe
        assert from_json(PretrainingRecipe, to_json(recipe), "recipe.json") == recipe
        assert recipe.schedule.warmup_steps < recipe.schedule.total_steps
        assert recipe.model.intermediate_size == 4 * recipe.model.hidden_size
        if one.start is not None:
            before = one.start.recipe.model
            assert replace(before, num_hidden_layers=recipe.model.num_hidden_layers) == recipe.model


@pytest.mark.parametrize("scale", SCALES.values(), ids=list(SCALES))
def test_every_task_can_be_learnt(scale):
    for task in scale.tasks:
        task.full_recipe.check()
        assert task.full_recipe.total_steps(1000) > 0
        assert task.full_recipe.max_length <= scale.sizes["base"].max_position_embeddings
        assert task.settings(3).seed == 3


def test_the_papers_scale_is_the_papers_recipe(all_arms):
    for one in all_arms(PAPER):
        recipe = one.recipe
        optimizer = recipe.optimizer
        assert (optimizer.kind, optimizer.learning_rate, optimizer.weight_decay) == ("lamb", 0.00176, 0.01)
        assert (optimizer.beta1, optimizer.beta2, optimizer.bias_correction) == (0.9, 0.999, False)
        assert (recipe.batch_size, recipe.sequences.max_length, recipe.schedule.warmup_steps) == (4096, 512, 3125)
        assert (recipe.masking.max_ngram, recipe.masking.share, recipe.clip_norm) == (3, 0.15, 1.0)
        assert (recipe.sequences.short_probability, recipe.sequences.keep_pairs) == (0.1, False)
        assert recipe.sinusoidal_positions is None and recipe.model.vocab_size == 30_000
        assert recipe.model.hidden_dropout_prob == recipe.model.attention_probs_dropout_prob
    base = arm(PAPER).recipe
    assert (base.schedule.total_steps, base.model.hidden_dropout_prob) == (125_000, 0.1)
    dropped = grid_of("8", PAPER).row("without dropout").arm.recipe
    assert dropped.schedule.total_steps == 1_000_000 and dropped.dropout_changes == ((900_000, 0.0),)
    assert grid_of("9", PAPER).row("albert-xxlarge, 1M steps").arm == grid_of("8", PAPER).row("without dropout").arm
    assert grid_of("v2", PAPER).row("albert-base-v2").arm.recipe.schedule.total_steps == 10_000_000
    assert [one.recipe.model.num_hidden_layers for one in grid_of("2", PAPER).row("albert-xxlarge").arm.chain()] == [
        6,
        12,
    ]


def test_on_one_gpu_the_rate_goes_with_the_batch():
    assert BASE.recipe.optimizer.learning_rate == pytest.approx(0.00176 / 4) and BASE.recipe.batch_size == 256
    assert BASE.sizes == {size: PRESETS[f"albert-{size}"] for size in BASE.sizes}


def test_wide_models_of_small_scales_learn_at_a_lower_rate_and_the_papers_all_at_one(all_arms):
    for scale in (TINY, SMALL):
        rates = {size: arm(scale, size).recipe.optimizer.learning_rate for size in scale.sizes}
        assert rates["base"] == scale.recipe.optimizer.learning_rate > rates["large"] > rates["xxlarge"]
        assert arm(scale, "large", bert=True).recipe.optimizer == arm(scale, "large").recipe.optimizer
    assert TINY.learning_rate(159) == 1e-3 and TINY.learning_rate(160) == 5e-4 and TINY.learning_rate(512) == 3e-4
    assert len({one.recipe.optimizer.learning_rate for one in all_arms(PAPER)}) == 1


def test_arms_at_another_rate_are_told_beside_their_table(tmp_path):
    wide, alike = (read_outcome(grid_of(table, TINY), TINY, ("first",), Folders(tmp_path)) for table in ("2", "3"))
    assert "Peak rates differ: BERT-base 0.001, BERT-large 0.0005" in " ".join(comparison_notes(wide))
    assert "Peak rates" not in " ".join(comparison_notes(alike))


@pytest.mark.parametrize("scale", [TINY, SMALL], ids=["tiny", "small"])
def test_smaller_scales_keep_the_order_of_sizes(scale):
    work = [shape.num_hidden_layers * shape.hidden_size**2 for shape in scale.sizes.values()]
    assert work == sorted(work)
    assert scale.embedding_sizes[1] == scale.sizes["base"].embedding_size
    assert scale.embedding_sizes[3] == scale.sizes["base"].hidden_size
    assert list(scale.embedding_sizes) == sorted(scale.embedding_sizes)
    assert scale.depths["24"] == scale.sizes["large"].num_hidden_layers
    assert scale.depths["48"] == 2 * scale.depths["24"]
    assert scale.depths_of_xxlarge["12"] == scale.sizes["xxlarge"].num_hidden_layers
