"""The functions of the package have the keywords, defaults and files of the commands."""

import dataclasses
import functools
import inspect
import json
import subprocess
import sys
from pathlib import Path

import pytest
from dev.scripts.write_stub import PLACE, stub
from tests.api.conftest import files_of, make_reviews

import albert
from albert.api.keyword_functions import by_option, keyword_function, read_options
from albert.api.options import make_options, options_of, shape_of
from albert.cli.main import run
from albert.cli.options import parse
from albert.commands import finetune as finetuning
from albert.commands import pretrain as pretraining
from albert.commands.evaluate import evaluate
from albert.commands.finetune import finetune
from albert.commands.prepare import prepare
from albert.commands.pretrain import pretrain, pretrain_main
from albert.commands.push import push
from albert.commands.sweep import sweep
from albert.commands.tokenizer import train
from albert.pretraining.recipe import read_recipe

FUNCTIONS = {
    "finetune": (albert.finetune, shape_of(finetune)),
    "sweep": (albert.sweep, shape_of(sweep)),
    "evaluate": (albert.evaluate, shape_of(evaluate)),
    "prepare": (albert.prepare, shape_of(prepare)),
    "pretrain": (albert.pretrain, pretrain_main.shape),
    "push": (albert.push, shape_of(push)),
    "tokenizer.train": (albert.tokenizer.train, shape_of(train)),
}
PRINTING = {"evaluate": {"json", "csv"}, "pretrain": {"recipe", "print_recipe"}}
"""Options of the command line alone: for printing, and the file of a recipe."""
STARS = {"text": "review", "label": "stars", "model": "tiny", "device": "cpu", "steps": 3, "evaluate_every": 2}
MODEL = {"embedding_size": 16, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
MODEL |= {"intermediate_size": 64}
RECIPE = {"batch_size": 2, "micro_batch_size": 2, "evaluation_sequences": 4, "precision": "fp32", "device": "cpu"}


def words(**keywords: object) -> list[str]:
    """Keywords as arguments of a command."""
    arguments: list[str] = []
    for name, value in keywords.items():
        if isinstance(value, dict):
            arguments += words(**{f"{name}.{inner}": each for inner, each in value.items()})
        else:
            arguments += [f"--{name.replace('_', '-')}", *map(str, value if isinstance(value, list) else [value])]
    return arguments


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_has_the_keywords_and_defaults_of_its_command(name):
    function, shape = FUNCTIONS[name]
    signature = inspect.signature(function).parameters
    typed = {option.names[-1][2:].split(".")[0].replace("-", "_") for option in options_of(shape)}
    more = {"recipe"} if name in ("pretrain", "finetune") else set()  # a file
    assert set(signature) - more == typed - PRINTING.get(name, set())
    fields = {field.name: field for field in dataclasses.fields(shape)}
    for parameter in signature.values():
        if parameter.name in fields and parameter.name not in more:
            field = fields[parameter.name]
            default = field.default if field.default_factory is dataclasses.MISSING else field.default_factory()
            assert parameter.default == (inspect.Parameter.empty if default is dataclasses.MISSING else default)
        assert str(parameter.annotation) != "Any"


def test_the_stub_file_is_up_to_date():
    assert PLACE.read_text(encoding="utf-8") == stub(), "run python dev/scripts/write_stub.py"


def test_dir_lists_the_public_names():
    public = ["AlbertEmbedding", "AlbertError", "evaluate", "finetune", "finetune_vectors", "load", "open_model"]
    assert dir(albert) == sorted([*public, "pack", "prepare", "pretrain", "push", "sweep", "tokenizer", "__version__"])
    assert sorted(albert.__all__) == sorted(set(dir(albert)) - {"__version__"})
    help_text = inspect.getdoc(albert.finetune)
    assert help_text is not None
    assert "    held_out: Your own tables without dev: the share" in help_text


def test_importing_the_package_imports_no_slow_library():
    heavy = ("torch", "pandas", "matplotlib")
    loaded = f"print(*(name for name in {heavy} if name in sys.modules))"
    code = f"import sys, albert; albert.prepare, albert.finetune, albert.evaluate; {loaded}"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout.strip() == b""


def test_functions_and_commands_write_the_same_bytes(reviews, tmp_path, monkeypatch, clock):
    """Tokenizer, corpus, pre-training, fine-tuning with one and with two seeds, evaluation."""
    text = tmp_path / "text.jsonl"
    text.write_text("".join(f'{{"text": "{row["review"]}. It is long."}}\n' for row in make_reviews(60)))
    tuned = {**STARS, "model": "runs/small", "train": str(reviews), "output": "runs/stars"}
    seeds = {**tuned, "output": "runs/seeds", "seeds": 2, "steps": 1}
    pieces = {"output": "tokenizer", "vocab_size": 50}
    corpus = {"tokenizer": "tokenizer", "output": "corpus", "held_out": 0.2, "workers": 1}
    recipe = {**RECIPE, "data": "corpus", "output": "runs/small", "model": MODEL, "sequences": {"max_length": 32}}
    recipe["schedule"] = {"total_steps": 2, "warmup_steps": 1}
    scored = {"model": "runs/stars", "dev": str(reviews), "results": "scores.json", "predictions": "answers.jsonl"}
    commands = [
        (["tokenizer", "train", str(text)], albert.tokenizer.train, text, pieces),
        (["prepare", str(text)], albert.prepare, [text], corpus),
        (["pretrain", "quickstart"], albert.pretrain, "quickstart", recipe),
        (["finetune"], albert.finetune, None, tuned),
        (["sweep"], albert.sweep, None, seeds),
        (["evaluate"], albert.evaluate, None, scored),
    ]
    for door in ("command", "python"):
        (tmp_path / door).mkdir()
        monkeypatch.chdir(tmp_path / door)
        for command, function, first, keywords in commands:
            clock()
            if door == "python":
                function(*[] if first is None else [first], **keywords)
            else:
                assert run([*command, *words(**keywords)]) == 0
    by_command, by_python = files_of(tmp_path / "command"), files_of(tmp_path / "python")
    assert set(by_command) == set(by_python)
    assert [name for name in by_command if by_command[name] != by_python[name]] == []
    assert len(by_command) > 40


@pytest.mark.parametrize(
    ("shape", "given", "expected"),
    [
        (shape_of(evaluate), {"model": "m", "precision": "fp32"}, ("fp32",)),
        (shape_of(pretrain), {"data": "d", "output": "o", "drop_heads": "masked_tokens"}, ("masked_tokens",)),
    ],
)
def test_a_single_value_is_accepted_for_a_sequence(shape, given, expected):
    values = by_option(given.items(), options_of(shape), "albert")
    assert getattr(make_options(shape, values), [*given][-1]) == expected


def test_values_of_a_recipe_have_the_names_of_options():
    given = {"lr": 1e-3, "hidden_size": 8, "steps": 7, "optimizer": "adamw", "bf16": True, "model_name_or_path": "m"}
    given |= {"schedule": {"warmup_steps": 2}, "output_dir": "o", "use_cpu": False}
    values = by_option(given.items(), options_of(shape_of(pretrain)), "")
    assert {".".join(path): value for path, value in values.items()} == {
        "recipe.optimizer.learning_rate": 1e-3,
        "recipe.model.hidden_size": 8,
        "recipe.schedule.total_steps": 7,
        "recipe.optimizer.kind": "adamw",
        "recipe.precision": "bf16",
        "init": "m",
        "recipe.schedule.warmup_steps": 2,
        "output": Path("o"),
    }


@pytest.mark.parametrize(
    ("given", "line"),
    [
        (
            {"lr": 1, "optimizer": {"learning_rate": 2}},
            "optimizer.learning_rate: and lr say the same thing twice; give one",
        ),
        ({"learning_rate": 1, "lr": 2}, "lr: and learning_rate say the same thing twice; give one of them"),
        ({"recipe": "base"}, "recipe: and recipe say the same thing twice; give one of them"),
        ({"num_train_epochs": 3}, "num_train_epochs: unknown keyword; pre-training counts updates: steps"),
        ({"fp16": True}, "fp16: unknown keyword; precision bf16 needs half the memory, too, and no loss scaling"),
        ({"hiden_size": 3}, "hiden_size: unknown keyword; did you mean 'hidden_size'?"),
        ({"bf16": "yes"}, "bf16: is 'yes', True or False is expected"),
        ({"steps": "many"}, "steps: is a string, int is expected"),
    ],
)
def test_unknown_and_repeated_keywords_are_refused_with_a_remedy(given, line, tmp_path):
    with pytest.raises(albert.AlbertError) as caught:
        albert.pretrain("small", **{"data": tmp_path, "output": tmp_path / "run", **given})
    assert str(caught.value).startswith(f"albert.pretrain: {line}")


@pytest.mark.parametrize(
    ("call", "line"),
    [
        (albert.pretrain, "albert.pretrain: recipe: is missing; it is a name such as small, a file"),
        (lambda: albert.prepare(), "albert.prepare: corpus: is missing; it is files, folders or patterns"),
        (lambda: albert.push("m"), "albert.push: repository: is missing; it is USER/NAME"),
        (lambda: albert.evaluate(), "albert.evaluate: model: is missing; it is a model directory, a run"),
    ],
)
def test_a_missing_keyword_is_described(call, line):
    with pytest.raises(albert.AlbertError) as caught:
        call()
    assert str(caught.value).startswith(line)


def test_a_recipe_may_be_a_file_or_a_dict(reviews, tmp_path):
    calls = []

    @functools.wraps(finetune)
    def record(**values):
        calls.append(values)

    @functools.wraps(pretrain)
    def record_recipe(recipe, **_):
        calls.append(recipe)

    tune = keyword_function(
        record, "albert.finetune", more=(finetuning.RECIPE_KEYWORD,), before=finetuning.read_recipe_keyword
    )
    more = (pretraining.RECIPE_KEYWORD, pretraining.SCALE_BATCH)
    pretrain_alone = keyword_function(
        record_recipe, "albert.pretrain", more=more, before=pretraining.read_recipe_keyword
    )
    shape = shape_of(finetune)
    recipe = {"train": str(reviews), "text": "review", "model": "tiny", "learning_rate": 0.5, "depth": 1}
    (tmp_path / "mine.json").write_text(json.dumps(recipe))
    (tmp_path / "mine.toml").write_text("".join(f"{name} = {json.dumps(value)}\n" for name, value in recipe.items()))
    for given in (tmp_path / "mine.toml", str(tmp_path / "mine.json"), recipe):
        tune(recipe=given, lr=0.25, output=tmp_path / "out")
        words = ["--recipe", str(tmp_path / "mine.toml"), "--lr", "0.25", "--output", str(tmp_path / "out")]
        by_command = parse(shape, words[2:], "", read_options(shape, tmp_path / "mine.toml"))
        assert calls.pop() == vars(by_command)
    tune(recipe={**recipe, "epochs": 1}, steps=3, output=tmp_path / "out")
    (tmp_path / "epochs.toml").write_text("model = 'tiny'\nepochs = 1\n")
    tune(recipe=tmp_path / "epochs.toml", steps=3, output=tmp_path / "out")
    assert [(each["changes"].steps, each["changes"].epochs) for each in calls] == [(3, None)] * 2
    assert read_options(shape, tmp_path / "epochs.toml", {("steps",): 3}) == {("model",): "tiny"}
    (tmp_path / "pre.toml").write_text("batch_size = 64\n[optimizer]\nlearning_rate = 1\n")
    for given in (tmp_path / "pre.toml", {"batch_size": 64, "optimizer": {"learning_rate": 1}}):
        pretrain_alone(recipe=given, data=["corpus"], output="run", batch_size=32)
        expected = dataclasses.replace(read_recipe(tmp_path / "pre.toml"), batch_size=32)
        assert calls.pop() == expected
    (tmp_path / "bad.toml").write_text("learning_rat = 3\n")
    for given, subject in ((tmp_path / "bad.toml", "bad.toml"), ({"learning_rat": 3}, "recipe")):
        with pytest.raises(albert.AlbertError) as refusal:
            tune(recipe=given, output=tmp_path / "out")
        assert all(part in str(refusal.value) for part in (subject, "learning_rat:", "'learning_rate'"))
