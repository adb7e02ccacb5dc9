"""What nobody asks for is decided in one place, by the width of the model and the rows there are."""

import json
from dataclasses import replace

import pytest

from albert.cli.main import run
from albert.experiments.grids import TABLE_14
from albert.finetuning.model import PretrainedEncoder
from albert.finetuning.options import FEWEST_UPDATES, MOST_EPOCHS, plan_learning, rate_for_width, recipe_basis
from albert.finetuning.run import finetune
from albert.finetuning.run_record import FinetuningSettings
from albert.finetuning.seeds import finetune_seeds
from albert.model.config import PRESETS
from albert.runtime.errors import CannotCreate
from albert.tasks.custom import declare_custom_task
from albert.tasks.submission import DECLARED
from albert.tasks.table_task import RecipeChanges
from albert.tasks.task import TaskRecipe

CPU = FinetuningSettings(device="cpu")
FEW = RecipeChanges(steps=3, max_length=16)
BEFORE = TaskRecipe(learning_rate=1.2e-4, batch_size=8, epochs=1.0, max_length=16)
"""As an earlier version had it by default."""


@pytest.fixture
def table(tmp_path):
    """A table of 24 rows, and the same for development."""
    rows = "".join(f"the {word} ship {n},{n % 2}\n" for n, word in enumerate(("good", "bad", "long") * 8))
    path = tmp_path / "my.csv"
    path.write_text("review,label\n" + rows)
    return {"train": path, "dev": path}


def command(table, model, output, *flags):
    files = ["--train", str(table["train"]), "--dev", str(table["dev"]), "--text", "review", "--label", "label"]
    return run(["finetune", *files, "--model", str(model), "--output", str(output), "--device", "cpu", *flags])


def test_command_and_python_give_the_same_model_and_files(table, pretrained, tmp_path, monkeypatch):
    monkeypatch.setattr("albert.finetuning.options.FEWEST_UPDATES", 8)
    one, two = tmp_path / "one", tmp_path / "two"
    assert command(table, pretrained, one) == 0
    task = declare_custom_task(table, "review", "label")
    finetune(task, PretrainedEncoder(str(pretrained)), tmp_path, two, settings=CPU)
    files = [sorted(str(path.relative_to(place)) for path in place.rglob("*") if "events" not in path.name)
             for place in (one, two)]  # fmt: skip
    assert files[0] == files[1] and {"task.json", "results.json", "model/model.safetensors"} <= {*files[0]}
    for name in ("recipe.json", "model/model.safetensors", "model/config.json", "predictions-dev.jsonl"):
        assert (one / name).read_bytes() == (two / name).read_bytes(), name
    asked = [json.loads((place / "task.json").read_text()) for place in (one, two)]
    assert [each.pop("held_out") != {} for each in asked] and asked[0] == asked[1]
    assert run(["evaluate", "--model", str(two), "--device", "cpu"]) == 0


def test_the_plan_is_shown_before_training(table, pretrained, tmp_path, capsys):
    assert command(table, pretrained, tmp_path / "run", "--epochs", "1") == 0
    said = capsys.readouterr().out
    assert f"learning rate {rate_for_width(2e-5, 32):.3g}" in said and "batch size 16" in said
    assert "1.33 epochs of 24 examples" in said
    assert said.index("learning rate") < said.index("drawn at random: classifier.weight")


@pytest.mark.parametrize("preset", ["albert-base", "albert-large", "albert-xlarge", "albert-xxlarge", "bert-base"])
def test_published_models_learn_at_published_rates(preset):
    assert rate_for_width(2e-5, PRESETS[preset].hidden_size) == 2e-5


def test_a_narrower_model_learns_faster():
    rates = [rate_for_width(2e-5, width) for width in (64, 128, 256, 384, 512)]
    assert rates == sorted(rates, reverse=True) and rates[-1] > 2e-5
    assert rates[0] == 1e-3 and rates[1] == pytest.approx(5e-4, rel=0.02)
    assert rate_for_width(2e-3, 64) == 2e-3


@pytest.mark.parametrize("name", sorted(TABLE_14))
def test_a_published_task_keeps_its_recipe_and_only_its_rate_is_fitted(name):
    task = DECLARED[name]
    rows = task.recipe.examples or 1000
    wide = plan_learning(recipe_basis(task), 768, rows)
    assert wide.recipe == task.recipe and wide.updates == TABLE_14[name]["steps"]
    narrow = plan_learning(recipe_basis(task), 128, rows)
    rate = rate_for_width(task.recipe.learning_rate, 128)
    assert narrow.recipe == replace(task.recipe, learning_rate=rate)


def test_what_is_asked_for_stays(table):
    task = declare_custom_task(table, "review", "label")
    asked = RecipeChanges(learning_rate=3e-5, epochs=2.0, batch_size=7)
    recipe = plan_learning(recipe_basis(task, asked), 32, 24).recipe
    assert (recipe.learning_rate, recipe.epochs, recipe.batch_size) == (3e-5, 2.0, 7)
    whole = TaskRecipe(learning_rate=1e-3, batch_size=5, steps=4)
    for basis in (recipe_basis(task, whole), recipe_basis(declare_custom_task(table, "review", "label", recipe=whole))):
        assert plan_learning(basis, 32, 24).recipe == whole
    own = replace(DECLARED["sst-2"], recipe=whole)
    assert plan_learning(recipe_basis(own), 32, 24).recipe == whole


@pytest.mark.parametrize("rows", [40, 300, 800, 3000, 4999, 5000, 50_000])
def test_a_small_table_is_learnt_for_enough_updates(table, rows):
    plan = plan_learning(recipe_basis(declare_custom_task(table, "review", "label")), 768, rows)
    assert plan.epochs >= 3 - 0.1
    assert plan.updates >= FEWEST_UPDATES or plan.recipe.epochs == MOST_EPOCHS
    assert plan.recipe.batch_size == (16 if rows < 5000 else 32)


def as_before(folder, by_default):
    """The recipe of a run as another version recorded it."""
    path = folder / "recipe.json"
    record = json.loads(path.read_text())
    record["recipe"] = {**vars(BEFORE)}
    del record["by_default"]
    if by_default is not None:
        record["by_default"] = by_default
    record["settings"]["optimizer"]["learning_rate"] = BEFORE.learning_rate
    path.write_text(json.dumps(record))


@pytest.mark.parametrize("by_default", [None, ["batch_size", "epochs", "examples", "learning_rate", "steps"]])
def test_a_run_goes_on_with_the_defaults_that_it_began_with(table, pretrained, tmp_path, by_default):
    output = tmp_path / "run"
    assert command(table, pretrained, output, "--max-length", "16", "--epochs", "1") == 0
    (output / "results.json").unlink()
    as_before(output, by_default)
    assert command(table, pretrained, output, "--max-length", "16") == 0
    report = json.loads((output / "results.json").read_text())
    assert report["recipe"] == vars(BEFORE) and report["training"]["steps"] == 3
    assert command(table, pretrained, output, "--max-length", "16") == 0
    assert command(table, pretrained, output, "--max-length", "16", "--epochs", "2") == 73


def test_what_was_asked_for_is_not_forgotten_where_a_run_goes_on(table, pretrained, tmp_path, capsys):
    output = tmp_path / "run"
    assert command(table, pretrained, output, "--max-length", "16", "--epochs", "1") == 0
    assert command(table, pretrained, output, "--max-length", "16") == 73
    assert "another recipe" in capsys.readouterr().err


def test_a_run_that_was_recorded_without_an_optimiser_goes_on(table, pretrained, tmp_path):
    task, start, place = declare_custom_task(table, "review", "label"), PretrainedEncoder(str(pretrained)), tmp_path
    finetune(task, start, place, place / "run", FEW, CPU)
    (place / "run/results.json").unlink()
    record = json.loads((place / "run/recipe.json").read_text())
    record["settings"]["optimizer"] = None
    (place / "run/recipe.json").write_text(json.dumps(record))
    again = finetune(task, start, place, place / "run", FEW, CPU)
    assert again.report["settings"]["optimizer"] is None
    with pytest.raises(CannotCreate, match="another"):
        finetune(task, start, place, place / "run", FEW, replace(CPU, optimizer="lamb"))


def test_all_seeds_learn_by_the_recipe_of_the_first(table, pretrained, tmp_path):
    task, start, place = declare_custom_task(table, "review", "label"), PretrainedEncoder(str(pretrained)), tmp_path
    finetune_seeds(task, start, place, place / "runs", RecipeChanges(epochs=1.0, max_length=16), CPU, 1)
    (place / "runs/seed-0/results.json").unlink()
    as_before(place / "runs/seed-0", None)
    finetune_seeds(task, start, place, place / "runs", RecipeChanges(epochs=1.0, max_length=16), CPU, 2)
    for seed in (0, 1):
        recipe = json.loads((place / f"runs/seed-{seed}/results.json").read_text())["recipe"]
        assert recipe == vars(BEFORE)
    assert (place / "runs/task.json").is_file() and (place / "runs/seed-1/task.json").is_file()
