"""The declared experiments: tables, columns, claims, variants and scales."""

import shutil
import tomllib
from dataclasses import replace

import pytest
from experiments.grids import BASE, GRIDS, PAPER, SCALES, TINY, Grid, grid_of, variant, variant_key
from experiments.jobs import Folders, open_study
from experiments.report import STATIC_TABLES, comparison_notes, write_report
from experiments.results import read_outcome
from experiments.tables import main

from albert.model.cost import count_parameters
from albert.model.sizes import PUBLISHED_SIZES
from albert.recipes.architecture import PRESETS
from albert.recipes.pretraining import PretrainingRecipe
from albert.runtime.json_files import from_json, to_json
from experiments import grids, tables

CORPORA = ("first", "second")
GRID = pytest.mark.parametrize(
    "grid",
    [pytest.param(grid_of(table, scale), id=f"{scale.name}-{table}") for scale in SCALES.values() for table in GRIDS],
)


def test_all_tables_and_figures_are_declared():
    tables = {str(number) for number in range(1, 15)}
    seeds = {"degradation", "v2", "race", "cost"}
    figures = {"figure-1", "figure-2a", "figure-2b"}
    assert set(GRIDS) | set(STATIC_TABLES) == tables | seeds | figures | {"9-ensembles"}


@GRID
def test_grids_are_consistent(grid: Grid):
    assert grid.title and len({row.name for row in grid.rows}) == len(grid.rows) > 0
    assert len({column.name for column in grid.columns}) == len(grid.columns)
    assert (grid.compute == "none") == (not list(grid.variants()))
    assert all(row.scores for row in grid.rows) or grid.table.startswith("figure")
    tasks = {task.task: task for task in SCALES[grid.scale].tasks}
    for column in grid.columns:
        assert column.published is None or (column.name, column.published) == ("race", "race test")
        assert column.published is None or any(column.published in row.scores for row in grid.rows)
        if column.kind == "downstream":
            assert tasks[column.source].columns[column.name] == column.score


@GRID
def test_arms_of_a_table_have_equal_compute(grid: Grid):
    recipes = [own.recipe for own in grid.variants()]
    assert len({(recipe.batch_size, recipe.sequences.max_length) for recipe in recipes}) <= 1
    if grid.compute == "equal updates":
        assert len({(recipe.schedule, recipe.max_tokens, recipe.max_minutes) for recipe in recipes}) == 1


def test_parameters_at_paper_scale_equal_the_tables():
    counted = 0
    for table in GRIDS:
        for row in grid_of(table, PAPER).rows:
            if row.variant is None or row.preset is None:
                continue
            ours, theirs = count_parameters(row.variant.recipe.model), count_parameters(PRESETS[row.preset])
            assert ours == theirs, (table, row.name)
            for size in PUBLISHED_SIZES[row.preset]:
                if size.counted is not None:
                    assert round(size.count(row.variant.recipe.model) / 1e6) == int(size.stated.removesuffix("M"))
                    counted += 1
    assert counted > 40


def test_unknown_tables_suggest_the_closest(refused):
    refused(lambda: main(["show", "figure1"]), 2, "figure1", "figure-1")


def test_new_table_needs_one_entry(monkeypatch, tmp_path, capsys):
    declared = """
        name = "A"
        title = "One layer, and {flagship}"
        columns = ["parameters", "scores"]
        paper = ["sst-2"]
        compute = "equal updates"
        figure = "variants"
        rows = [{name = "one", label = "{layers} layers", run = {layers = "depths.1"}, figures = [80.8]},
                {name = "all", run = {}, preset = "albert-base", figures = [90.3]}]
        claims = [{sentence = "More layers are better.", contrasts = [["all", "higher", "one"]]}]
    """
    monkeypatch.setitem(grids.GRIDS, "A", tomllib.loads(declared))
    monkeypatch.setattr(tables, "KNOWN", ("A",))
    grid = grid_of("A", TINY)
    assert grid.title == "One layer, and base"
    assert [(row.label, row.variant.name) for row in grid.rows] == [
        ("1 layer", "albert-base-L1"),
        ("all", "albert-base"),
    ]
    main(["show", "A", "--output", str(tmp_path)])
    shown = capsys.readouterr().out
    assert "80.8" in shown and "More layers are better. — not known yet" in shown and "0 of 4 pre-trainings" in shown


def test_published_results_are_reproduced_byte_for_byte(checkout, tmp_path):
    root = checkout / "results" / "tables-tiny-openings"
    study = open_study(root, "tiny", ())
    reports = list((root / "tables").glob("*.md"))
    assert reports
    for path in reports:
        outcome = read_outcome(grid_of(path.stem, study.declared), study.declared, study.fingerprints, Folders(root))
        for written in write_report(outcome, tmp_path, f"{path.stem}.png"):
            assert written.read_bytes() == path.with_suffix(written.suffix).read_bytes()


def test_every_table_is_shown_from_published_results(checkout, tmp_path):
    root = shutil.copytree(checkout / "results" / "tables-tiny-openings", tmp_path / "runs")
    main(["show", "all", "--output", str(root)])
    assert {path.stem for path in (root / "tables").glob("*.md")} == {*GRIDS, *STATIC_TABLES}


# --------------------------------------------------------------------------------------------------------------------
# Claims


@pytest.mark.parametrize("table", [table for table in GRIDS if grid_of(table, PAPER).claims])
def test_claims_name_existing_rows_and_columns(table):
    for scale in SCALES.values():
        grid = grid_of(table, scale)
        columns = frozenset(column.name for column in grid.columns)
        rows = {None, ""} | {row.name for row in grid.rows}
        for claim in grid.claims:
            for contrast in claim.contrasts:
                assert {contrast.first, contrast.second} <= rows and contrast.first not in (contrast.second, None)
            assert scale is not PAPER or claim.column(columns) == claim.columns[0]
            assert claim.equal is None or claim.equal in columns
            assert claim.smallest > 0 and claim.sentence.endswith(".")


@pytest.mark.parametrize("table", [table for table in GRIDS if not table.startswith("figure")])
def test_claims_hold_for_the_papers_figures(table):
    grid = grid_of(table, PAPER)
    names = {column.name: column.published or column.name for column in grid.columns}
    for claim in grid.claims:
        name = names[claim.columns[0]]
        for contrast in claim.contrasts:
            gain = grid.row(contrast.first).scores[name]
            gain -= 50.0 if contrast.second is None else grid.row(contrast.second).scores[name]
            holds = {"higher": gain > 0, "not higher": gain < claim.smallest, "alike": abs(gain) < claim.smallest}
            assert holds[contrast.relation], (claim.sentence, contrast, gain)


# --------------------------------------------------------------------------------------------------------------------
# Variants: names, keys and recipes


def variants_of(scale):
    """The variants of all tables of a scale, with their starts."""
    return list(
        dict.fromkeys(part for table in GRIDS for own in grid_of(table, scale).variants() for part in own.chain())
    )


@pytest.mark.parametrize("scale", SCALES.values(), ids=list(SCALES))
def test_keys_are_unique_and_shared_runs_are_equal(scale):
    variants = variants_of(scale)
    assert len({variant_key(own, CORPORA) for own in variants}) == len(variants) > 30
    base = variant(scale)
    for table, row in (("2", "albert-base"), ("3", "all shared, E = 128"), ("4", "E = 128, all"), ("5", "sop")):
        assert grid_of(table, scale).row(row).variant == base
    bert = grid_of("2", scale).row("bert-base").variant
    assert (
        grid_of("3", scale).row("not shared, E = 768").variant
        == bert
        == grid_of("4", scale).row("E = 768, none").variant
    )


def test_key_depends_on_recipe_start_and_corpora_only():
    base = variant(TINY)
    key = variant_key(base, CORPORA)
    others = [
        base.seeded(1),
        variant(TINY, objective="nsp"),
        variant(TINY, dropout_off_at=5),
        variant(TINY, steps=7_000),
        variant(TINY, additional_text=True),
        variant(TINY, start=variant(TINY, layers=2)),
        variant(TINY, start=variant(TINY, layers=2).seeded(1)),
        replace(base, recipe=replace(base.recipe, max_minutes=1.0)),
    ]
    assert len({key, *(variant_key(other, CORPORA) for other in others)}) == len(others) + 1
    same = replace(base.recipe, workers=3, checkpoint_minutes=1.0, keep_checkpoints=9)
    assert variant_key(replace(base, recipe=same, name="another"), CORPORA) == key
    assert variant_key(base, ("first",)) == key != variant_key(base, ("second",))
    assert variant_key(others[4], ("first",)) == key  # with one corpus there is no additional text


def test_seed_applies_to_starts():
    deepest = grid_of("11", TINY).row("48").variant.seeded(4)
    assert [part.recipe.model.num_hidden_layers for part in deepest.chain()] == [1, 2, 4, 8, 16]
    assert {part.recipe.seed for part in deepest.chain()} == {4}


@pytest.mark.parametrize("scale", SCALES.values(), ids=list(SCALES))
def test_recipes_are_valid(scale):
    for own in variants_of(scale):
        recipe = own.recipe
        assert from_json(PretrainingRecipe, to_json(recipe), "recipe.json") == recipe
        assert recipe.schedule.warmup_steps < recipe.schedule.total_steps
        assert recipe.model.intermediate_size == 4 * recipe.model.hidden_size
        if own.start is not None:
            start = own.start.recipe.model
            assert replace(start, num_hidden_layers=recipe.model.num_hidden_layers) == recipe.model
    for task in scale.tasks:
        task.full_recipe.check()
        assert task.full_recipe.total_steps(1000) > 0
        assert task.full_recipe.max_length <= scale.sizes["base"].max_position_embeddings
        assert task.settings(3).seed == 3


def test_paper_scale_has_the_papers_recipe():
    for own in variants_of(PAPER):
        recipe = own.recipe
        optimizer = recipe.optimizer
        assert (optimizer.kind, optimizer.learning_rate, optimizer.weight_decay) == ("lamb", 0.00176, 0.01)
        assert (optimizer.beta1, optimizer.beta2, optimizer.bias_correction) == (0.9, 0.999, False)
        assert (recipe.batch_size, recipe.sequences.max_length, recipe.schedule.warmup_steps) == (4096, 512, 3125)
        assert (recipe.masking.max_ngram, recipe.masking.share, recipe.clip_norm) == (3, 0.15, 1.0)
        assert (recipe.sequences.short_probability, recipe.sequences.keep_pairs) == (0.1, False)
        assert recipe.sinusoidal_positions is None and recipe.model.vocab_size == 30_000
        assert recipe.model.hidden_dropout_prob == recipe.model.attention_probs_dropout_prob
    base = variant(PAPER).recipe
    assert (base.schedule.total_steps, base.model.hidden_dropout_prob) == (125_000, 0.1)
    dropped = grid_of("8", PAPER).row("without dropout").variant
    assert dropped.recipe.schedule.total_steps == 1_000_000 and dropped.recipe.dropout_changes == ((900_000, 0.0),)
    assert grid_of("9", PAPER).row("albert-xxlarge, 1M steps").variant == dropped
    assert grid_of("v2", PAPER).row("albert-base-v2").variant.recipe.schedule.total_steps == 10_000_000
    chain = grid_of("2", PAPER).row("albert-xxlarge").variant.chain()
    assert [part.recipe.model.num_hidden_layers for part in chain] == [6, 12]


def test_base_scale_scales_the_rate_with_the_batch():
    assert BASE.recipe.optimizer.learning_rate == pytest.approx(0.00176 / 4) and BASE.recipe.batch_size == 256
    assert BASE.sizes == {size: PRESETS[f"albert-{size}"] for size in BASE.sizes}


def test_rates_follow_the_width(tmp_path):
    assert [TINY.learning_rate(width) for width in (159, 160, 512)] == [1e-3, 5e-4, 3e-4]
    notes = [
        " ".join(comparison_notes(read_outcome(grid_of(table, TINY), TINY, ("first",), Folders(tmp_path))))
        for table in ("2", "3")
    ]
    assert "Peak rates differ: BERT-base 0.001, BERT-large 0.0005" in notes[0] and "Peak rates" not in notes[1]
