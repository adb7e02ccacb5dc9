"""Recipe files: printed with comments, read from TOML and JSON."""

import dataclasses
import json
import tomllib

import pytest

from albert.cli.main import run
from albert.recipes.pretraining import RECIPES, PretrainingRecipe, find_recipe, read_recipe
from albert.runtime.errors import InvalidConfiguration
from albert.runtime.json_files import field_docs


def printed(capsys, *words):
    """The output of a command."""
    capsys.readouterr()
    assert run([*words]) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("name", RECIPES)
def test_a_printed_recipe_is_read_back(name, tmp_path, capsys):
    (tmp_path / "mine.toml").write_text(printed(capsys, "info", "--recipe", name), encoding="utf-8")
    assert read_recipe(tmp_path / "mine.toml") == find_recipe(str(tmp_path / "mine.toml")) == RECIPES[name]
    (tmp_path / "again.toml").write_text(printed(capsys, "info", "--recipe", str(tmp_path / "mine.toml")))
    assert read_recipe(tmp_path / "again.toml") == RECIPES[name]


def test_a_base_and_a_few_values_are_a_recipe(tmp_path):
    values = {
        "base": "small",
        "batch_size": 16,
        "learning_rate": 0.5,
        "steps": 200,
        "architecture": {"hidden_size": 64},
    }
    lines = 'base = "small"\nbatch_size = 16\nlearning_rate = 0.5\nsteps = 200\n[architecture]\nhidden_size = 64\n'
    (tmp_path / "mine.toml").write_text(lines, encoding="utf-8-sig")  # some editors begin a file with a byte order mark
    (tmp_path / "mine.json").write_text(json.dumps(values), encoding="utf-8-sig")
    small = RECIPES["small"]
    expected = dataclasses.replace(
        small,
        batch_size=16,
        micro_batch_size=16,
        model=dataclasses.replace(small.model, hidden_size=64),
        optimizer=dataclasses.replace(small.optimizer, learning_rate=0.5),
        schedule=dataclasses.replace(small.schedule, total_steps=200, warmup_steps=4),
    )
    assert read_recipe(tmp_path / "mine.toml") == read_recipe(tmp_path / "mine.json") == expected
    alone = "[masking]\nshare = 0.2\n"
    (tmp_path / "alone.toml").write_text(alone)
    assert read_recipe(tmp_path / "alone.toml").model == RECIPES["base"].model


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('base = "smal"', "base: is no recipe; did you mean 'small'?"),
        ("hidden_size = 3", "hidden_size: unknown key; did you mean 'architecture.hidden_size'?"),
        ("[model]\nhidden_size = 3", "model.hidden_size: unknown key; did you mean 'architecture.hidden_size'?"),
        ("[schedule]\nsteps = 3", "schedule.steps: unknown key; did you mean 'steps'?"),
        ("steps = 'many'", "steps: is 'many', a whole number is expected"),
        ("batch_size = 0", "batch_size: is 0"),
    ],
)
def test_what_is_no_recipe_is_refused(line, message, tmp_path):
    (tmp_path / "mine.toml").write_text(line)
    with pytest.raises(InvalidConfiguration) as caught:
        read_recipe(tmp_path / "mine.toml")
    assert message in str(caught.value)


@pytest.mark.parametrize("name", ["finetune", "finetune-vectors", "sweep"])
def test_the_keys_of_a_command_are_printed_as_a_file(name, capsys):
    text = printed(capsys, "info", "--recipe", name)
    values = tomllib.loads(text)
    assert values["seed"] == 0 and "# epochs = ...  (not set)" in text


def test_every_value_of_a_recipe_has_a_comment(capsys):
    def undocumented(cls, docs):
        for field in dataclasses.fields(cls):
            inner = field.default_factory if dataclasses.is_dataclass(field.default_factory) else None
            if inner is not None:
                yield from undocumented(inner, field_docs(inner))
            if field.name not in docs:
                yield f"{cls.__name__}.{field.name}"

    assert list(undocumented(PretrainingRecipe, field_docs(PretrainingRecipe))) == []
    lines = printed(capsys, "info", "--recipe", "small").splitlines()
    values = [number for number, line in enumerate(lines) if " = " in line and not line.startswith("#")]
    assert len(values) > 50 and all(lines[number - 1].startswith("# ") for number in values)
    assert max(map(len, lines)) <= 102


def test_a_file_of_another_command_is_refused_with_that_command(tmp_path, refused):
    (tmp_path / "table.toml").write_text('train = "rows.csv"\nmodel = "tiny"\nepochs = 1\n')
    (tmp_path / "recipe.toml").write_text('base = "small"\nsteps = 3\n')
    words = ["pretrain", str(tmp_path / "table.toml"), "--data", "corpus", "--output", "run"]
    assert f"is a file for fine-tuning: it has train; albert finetune {tmp_path}" in refused(words, 78)
    words = ["finetune", str(tmp_path / "recipe.toml"), "--model", "tiny"]
    assert f"is a recipe of pre-training: it has base; albert pretrain {tmp_path}" in refused(words, 78)


def test_a_model_in_the_place_of_a_task_is_answered_with_its_option(tmp_path, refused):
    (tmp_path / "run").mkdir()
    assert f"did you mean --model {tmp_path / 'run'}?" in refused(["evaluate", str(tmp_path / "run")], 2)
