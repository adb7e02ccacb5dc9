"""Recipe files: printed with comments, read from TOML and JSON."""

import dataclasses
import tomllib

import pytest

from albert.cli.main import run
from albert.pretraining.recipe import RECIPES, PretrainingRecipe, find_recipe, read_recipe
from albert.runtime.json_files import field_docs, to_toml


def printed(capsys, *words):
    """The output of a command."""
    capsys.readouterr()
    assert run([*words]) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("name", RECIPES)
def test_a_printed_recipe_is_read_back(name, tmp_path, capsys):
    # `continue` is the recipe of the model that --init names.
    text = to_toml(RECIPES[name]) if name == "continue" else printed(capsys, "pretrain", name, "--print-recipe")
    (tmp_path / "mine.toml").write_text(text, encoding="utf-8")
    assert read_recipe(tmp_path / "mine.toml") == find_recipe(str(tmp_path / "mine.toml")) == RECIPES[name]


def test_files_change_single_values_and_flags_override_them(tmp_path, capsys):
    texts = "batch_size = 64\n[optimizer]\nlearning_rate = 1\n", '{"batch_size": 64, "optimizer": {"learning_rate": 1}}'
    for file, text in zip(("mine.toml", "mine.json"), texts, strict=True):
        (tmp_path / file).write_text(text, encoding="utf-8-sig")  # some editors begin a file with a byte order mark
    for file in ("mine.toml", "mine.json"):
        words = ("--recipe", str(tmp_path / file), "--optimizer.learning-rate", "0.25", "--print-recipe")
        values = tomllib.loads(printed(capsys, "pretrain", "small", *words))
        expected = dataclasses.replace(
            RECIPES["small"],
            batch_size=64,
            optimizer=dataclasses.replace(RECIPES["small"].optimizer, learning_rate=0.25),
        )
        (tmp_path / "both.toml").write_text(printed(capsys, "pretrain", "small", *words), encoding="utf-8")
        assert values["batch_size"] == 64 and read_recipe(tmp_path / "both.toml") == expected
    alone = tomllib.loads(printed(capsys, "pretrain", "--recipe", str(tmp_path / "mine.toml"), "--print-recipe"))
    assert (alone["batch_size"], alone["model"]["hidden_size"]) == (64, RECIPES["base"].model.hidden_size)


def test_every_value_of_a_recipe_has_a_comment(capsys):
    def undocumented(cls, docs):
        for field in dataclasses.fields(cls):
            inner = field.default_factory if dataclasses.is_dataclass(field.default_factory) else None
            if inner is not None:
                yield from undocumented(inner, field_docs(inner))
            if field.name not in docs:
                yield f"{cls.__name__}.{field.name}"

    assert list(undocumented(PretrainingRecipe, field_docs(PretrainingRecipe))) == []
    lines = printed(capsys, "pretrain", "small", "--print-recipe").splitlines()
    values = [number for number, line in enumerate(lines) if " = " in line and not line.startswith("#")]
    assert len(values) > 50 and all(lines[number - 1].startswith("# ") for number in values)
    assert max(map(len, lines)) <= 102


def test_options_of_finetune_are_printed_and_read_back(tmp_path, capsys):
    words = ["--train", "my.csv", "--text", "review", "--model", "tiny", "--lr", "1e-3", "--num-hidden-layers", "3"]
    (tmp_path / "mine.toml").write_text(printed(capsys, "finetune", *words, "--print-recipe"), encoding="utf-8")
    again = printed(capsys, "finetune", "--recipe", str(tmp_path / "mine.toml"), "--seed", "7", "--print-recipe")
    values = tomllib.loads(again)
    assert values["seed"] == 7 and values.pop("seed")
    assert values == {k: v for k, v in tomllib.loads((tmp_path / "mine.toml").read_text()).items() if k != "seed"}
    assert (values["text"], values["learning_rate"], values["num_hidden_layers"]) == ("review", 0.001, 3)
