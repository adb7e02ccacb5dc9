"""The experiments as data: every table is there, every run can begin, and what is one run has one key."""

from dataclasses import replace

import pytest

from albert.experiments.published_scores import PUBLISHED_TABLES
from albert.experiments.published_sizes import PUBLISHED_SIZES
from albert.experiments.tables.arms import arm, arm_key
from albert.experiments.tables.claims import CLAIMS
from albert.experiments.tables.facts import FACTS
from albert.experiments.tables.grid import Grid
from albert.experiments.tables.grids import GRIDS, grid_of
from albert.experiments.tables.scales import BASE, PAPER, SCALES, SMALL, TINY
from albert.model.parameter_count import count_parameters
from albert.model.presets import PRESETS
from albert.pretraining.recipes import PretrainingRecipe
from albert.runtime.errors import UsageError
from albert.runtime.strict_json import from_json, to_json

EVERY = [(scale, table) for scale in SCALES.values() for table in GRIDS]
GRID = pytest.mark.parametrize(
    "grid", [pytest.param(grid_of(table, scale), id=f"{scale.name}-{table}") for scale, table in EVERY]
)
CORPORA = ("first", "second")


def all_arms(scale):
    """Every run that the scale's tables ask for, what others begin as included."""
    arms = [step for table in GRIDS for one in grid_of(table, scale).arms() for step in one.chain()]
    return list(dict.fromkeys(arms))


def test_every_table_and_figure_of_the_paper_is_declared():
    tables = {str(number) for number in range(1, 15)}
    seeds = {"degradation", "v2", "race", "cost"}
    figures = {"figure-1", "figure-2a", "figure-2b"}
    assert set(GRIDS) | set(FACTS) == tables | seeds | figures | {"9-ensembles"}
    shown = [grid_of(table, PAPER).published for table in GRIDS]
    assert {table.name for table in shown if table is not None} >= set(PUBLISHED_TABLES)


@GRID
def test_a_grid_says_what_it_is(grid: Grid):
    assert grid.title and len({row.name for row in grid.rows}) == len(grid.rows) > 0
    assert len({column.name for column in grid.columns}) == len(grid.columns)
    assert (grid.compute == "none") == (not list(grid.arms()))
    if grid.published is not None:
        assert {row.name for row in grid.rows} == {row.arm for row in grid.published.rows}
        named = {name for row in grid.published.rows for name in row.scores}
        for column in grid.columns:
            assert column.published is None or column.published in named


@GRID
def test_arms_of_a_table_have_the_same_compute(grid: Grid):
    recipes = [one.recipe for one in grid.arms()]
    assert len({(recipe.batch_size, recipe.sequences.max_length) for recipe in recipes}) <= 1
    if grid.compute == "equal updates":
        assert len({(recipe.schedule, recipe.max_tokens, recipe.max_minutes) for recipe in recipes}) == 1


@GRID
def test_columns_are_measured_by_the_scale(grid: Grid):
    learnt = {task.task: task for task in SCALES[grid.scale].tasks}
    for column in grid.columns:
        if column.kind == "downstream":
            assert learnt[column.source].columns[column.name] == column.score


@pytest.mark.parametrize("scale", SCALES.values(), ids=list(SCALES))
def test_every_recipe_is_whole_and_survives_its_file(scale):
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
        task.settled_recipe.check()
        assert task.settled_recipe.total_steps(1000) > 0
        assert task.settled_recipe.max_length <= scale.sizes["base"].max_position_embeddings
        assert task.settings(3).seed == 3


@pytest.mark.parametrize("scale", SCALES.values(), ids=list(SCALES))
def test_equal_runs_have_equal_names_and_keys_and_others_have_others(scale):
    arms = all_arms(scale)
    keys = [arm_key(one, CORPORA) for one in arms]
    assert len(set(keys)) == len(arms) > 30
    base = arm(scale)
    for table, row in (("2", "albert-base"), ("3", "all shared, E = 128"), ("4", "E = 128, all"), ("5", "sop")):
        assert grid_of(table, scale).row(row).arm == base
    bert = grid_of("2", scale).row("bert-base").arm
    assert grid_of("3", scale).row("not shared, E = 768").arm == bert == grid_of("4", scale).row("E = 768, none").arm


def test_a_key_knows_all_that_changes_a_run_and_nothing_else():
    base = arm(TINY)
    key = arm_key(base, CORPORA)
    others = [
        base.seeded(1),
        arm(TINY, objective="nsp"),
        arm(TINY, dropout_off_at=5),
        arm(TINY, steps=7_000),
        arm(TINY, additional_text=True),
        arm(TINY, start=arm(TINY, layers=2)),
        arm(TINY, start=arm(TINY, layers=2).seeded(1)),
        replace(base, recipe=replace(base.recipe, max_minutes=1.0)),
    ]
    keys = [arm_key(one, CORPORA) for one in others]
    assert len({key, *keys}) == len(others) + 1
    free = replace(base.recipe, workers=3, checkpoint_minutes=1.0, keep_checkpoints=9)
    assert arm_key(replace(base, recipe=free, name="another"), CORPORA) == key
    assert arm_key(base, ("first",)) == key != arm_key(base, ("second",))
    assert arm_key(others[4], ("first",)) == key  # with one corpus there is no additional text


def test_a_seed_goes_for_what_a_run_begins_as_too():
    last = grid_of("11", TINY).row("48").arm.seeded(4)
    assert [one.recipe.model.num_hidden_layers for one in last.chain()] == [1, 2, 4, 8, 16]
    assert {one.recipe.seed for one in last.chain()} == {4}


def test_at_the_papers_scale_parameters_are_those_of_its_tables():
    counted = 0
    for table in GRIDS:
        for row in grid_of(table, PAPER).rows:
            if row.arm is None or row.preset is None:
                continue
            ours, theirs = count_parameters(row.arm.recipe.model), count_parameters(PRESETS[row.preset])
            assert ours == theirs, (table, row.name)
            for size in PUBLISHED_SIZES[row.preset]:
                if size.counted is not None and size.stated.endswith("M"):
                    exact = size.exact(row.arm.recipe.model)
                    assert round(exact / 1e6) == size.millions
                    counted += 1
    assert counted > 40


def test_the_papers_scale_is_the_papers_recipe():
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


@pytest.mark.parametrize("table", CLAIMS)
def test_claims_name_rows_and_columns_that_there_are(table):
    for scale in SCALES.values():
        grid = grid_of(table, scale)
        columns = frozenset(column.name for column in grid.columns)
        for claim in CLAIMS[table]:
            for contrast in claim.contrasts:
                names = [contrast.first] if contrast.second is None else [contrast.first, contrast.second]
                assert names[0] != names[-1] or contrast.second is None
                for name in names:
                    assert grid.row(name)
            if scale is PAPER:
                assert claim.column(columns) == claim.columns[0]
            if claim.equal is not None:
                assert claim.equal in columns
            assert claim.smallest > 0 and claim.sentence.endswith(".")


@pytest.mark.parametrize("table", [table for table in CLAIMS if grid_of(table, PAPER).published is not None])
def test_the_papers_own_figures_bear_its_claims_out(table):
    grid = grid_of(table, PAPER)
    assert grid.published is not None
    rows = {row.arm: row for row in grid.published.rows}
    names = {column.name: column.published or column.name for column in grid.columns}
    for claim in CLAIMS[table]:
        for contrast in claim.contrasts:
            column = claim.columns[0]

            def figure(name, column=column):
                row = rows[name]
                return row.average if column == "average" else row.scores[names[column]]

            gain = figure(contrast.first) - (50.0 if contrast.second is None else figure(contrast.second))
            held = {
                "higher": gain > 0,
                "not higher": gain < claim.smallest,
                "alike": abs(gain) < claim.smallest,
            }
            assert held[contrast.relation], (claim.sentence, contrast, gain)


def test_an_unknown_table_is_refused_with_the_closest():
    with pytest.raises(UsageError, match="figure-1"):
        grid_of("figure1", TINY)
