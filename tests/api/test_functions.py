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
from albert.api.keyword_functions import by_option, keyword_function
from albert.api.options import make_options, options_of, shape_of
from albert.cli.main import run
from albert.cli.options import all_commands, parse, typed_values
from albert.commands import finetune as finetuning
from albert.commands import pretrain as pretraining
from albert.commands.evaluate import evaluate
from albert.commands.finetune import finetune
from albert.commands.prepare import prepare
from albert.commands.pretrain import pretrain, pretrain_main
from albert.commands.push import push
from albert.commands.sweep import sweep
from albert.commands.tokenizer import train
from albert.recipes.pretraining import RECIPES, read_recipe

FUNCTIONS = {
    "finetune": (albert.finetune, shape_of(finetune)),
    "sweep": (albert.sweep, shape_of(sweep)),
    "evaluate": (albert.evaluate, shape_of(evaluate)),
    "prepare": (albert.prepare, shape_of(prepare)),
    "pretrain": (albert.pretrain, pretrain_main.shape),
    "push": (albert.push, shape_of(push)),
    "tokenizer.train": (albert.tokenizer.train, shape_of(train)),
}
PRINTING = {"evaluate": {"json", "csv"}}
"""Options of the command line alone, for printing."""
STARS = {"text": "review", "label": "stars", "model": "tiny", "device": "cpu", "steps": 3, "evaluate_every": 2}
ARCHITECTURE = {"embedding_size": 16, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
ARCHITECTURE |= {"intermediate_size": 64}
RECIPE = {"batch_size": 2, "micro_batch_size": 2, "evaluation_sequences": 4, "precision": "fp32", "device": "cpu"}


def words(shape: type, **keywords: object) -> list[str]:
    """Keywords as arguments of a command: its options, and its keys."""
    keys = {option.name for option in options_of(shape) if option.is_key}
    arguments: list[str] = []
    for name, value in keywords.items():
        values = [str(each) for each in (value if isinstance(value, list) else [value])]
        if isinstance(value, dict):
            arguments += [f"{name}.{inner}={each}" for inner, each in value.items()]
        elif name in keys:
            arguments.append(f"{name}={','.join(values)}")
        else:
            arguments += [f"--{name.replace('_', '-')}", *values]
    return arguments


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_has_the_keywords_and_defaults_of_its_command(name):
    function, shape = FUNCTIONS[name]
    signature = inspect.signature(function).parameters
    typed = {option.group or option.name for option in options_of(shape)}
    more = {"recipe"} if name == "pretrain" else set()  # the first word of the command
    assert set(signature) - more == typed - PRINTING.get(name, set())
    fields = {field.name: field for field in dataclasses.fields(shape)}
    for parameter in signature.values():
        if parameter.name in fields and parameter.name not in (*more, "architecture"):
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
    assert "    dev: The development file, or for your own tables a share" in help_text


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
    recipe = {**RECIPE, "data": "corpus", "output": "runs/small", "max_length": 32, "steps": 2}
    recipe |= {"architecture": ARCHITECTURE, "schedule": {"warmup_steps": 1}}
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
                name = "tokenizer train" if command[0] == "tokenizer" else command[0]
                assert run([*command, *words(all_commands()[name].shape, **keywords)]) == 0
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


def test_keys_are_keywords_and_those_of_a_group_a_dict():
    given = {"learning_rate": 1e-3, "steps": 7, "precision": "bf16", "init": "m", "output": "o"}
    given |= {"schedule": {"warmup_steps": 2}, "architecture": {"hidden_size": 8}, "optimizer": {"kind": "adamw"}}
    values = by_option(given.items(), options_of(shape_of(pretrain)), "")
    assert {".".join(path): value for path, value in values.items()} == {
        "recipe.optimizer.learning_rate": 1e-3,
        "recipe.schedule.total_steps": 7,
        "recipe.precision": "bf16",
        "init": "m",
        "output": Path("o"),
        "recipe.schedule.warmup_steps": 2,
        "recipe.model.hidden_size": 8,
        "recipe.optimizer.kind": "adamw",
    }


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ({"lr": 1}, "lr: unknown keyword; write learning_rate=..."),
        ({"hidden_size": 8}, 'hidden_size: unknown keyword; write architecture={"hidden_size": ...}'),
        ({"architecture": 8}, "architecture: is 8, a dict is expected"),
        ({"architecture": {"hiden_size": 8}}, "architecture.hiden_size: unknown keyword; did you mean architecture={"),
        ({"recipe": "base"}, "recipe: is given twice; give it once"),
        ({"num_train_epochs": 3}, "num_train_epochs: unknown keyword; pre-training counts updates: steps"),
        ({"fp16": True}, "fp16: unknown keyword; precision=bf16 needs half the memory, too, and no loss scaling"),
        ({"bf16": True}, "bf16: unknown keyword; write precision=bf16"),
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
        (albert.pretrain, "albert.pretrain: recipe: is missing; it is a name such as small, or a file"),
        (lambda: albert.prepare(), "albert.prepare: corpus: is missing; it is files, folders or patterns"),
        (lambda: albert.push("m"), "albert.push: repository: is missing; it is USER/NAME"),
        (lambda: albert.evaluate(), "albert.evaluate: model: is missing; it is a model directory, a run"),
    ],
)
def test_a_missing_keyword_is_described(call, line):
    with pytest.raises(albert.AlbertError) as caught:
        call()
    assert str(caught.value).startswith(line)


def test_a_task_file_has_options_and_keys_and_a_given_one_wins(reviews, tmp_path):
    calls = []

    @functools.wraps(finetune)
    def record(**values):
        calls.append(values)

    tune = keyword_function(record, "albert.finetune", before=finetuning.read_task_file)
    shape = shape_of(finetune)
    task = {"train": str(reviews), "text": "review", "model": "tiny", "learning_rate": 0.5, "depth": 1}
    task |= {"reading": {"delimiter": ","}}
    (tmp_path / "mine.json").write_text(json.dumps(task))
    lines = [f"{name} = {json.dumps(value)}" for name, value in task.items() if name != "reading"]
    (tmp_path / "mine.toml").write_text("\n".join([*lines, "[reading]", 'delimiter = ","']))
    for file in ("mine.toml", "mine.json"):
        tune(tmp_path / file, learning_rate=0.25, output=tmp_path / "out")
        typed = [str(tmp_path / file), "learning_rate=0.25", "--output", str(tmp_path / "out")]
        given = finetuning.with_task_file(shape, typed_values(options_of(shape), typed, ""))
        assert calls.pop() == vars(parse(shape, typed, "", given=given))
        assert given[("table", "delimiter")] == "," and given[("changes", "learning_rate")] == 0.25
    (tmp_path / "epochs.toml").write_text("model = 'tiny'\nepochs = 1\ntrain = 'rows.csv'\n")
    tune(tmp_path / "epochs.toml", steps=3, output=tmp_path / "out")
    last = calls.pop()
    assert (last["changes"].steps, last["changes"].epochs, last["train"]) == (3, None, tmp_path / "rows.csv")
    (tmp_path / "bad.toml").write_text("learning_rat = 3\n")
    with pytest.raises(albert.AlbertError) as refusal:
        tune(tmp_path / "bad.toml", output=tmp_path / "out")
    assert all(part in str(refusal.value) for part in ("bad.toml", "learning_rat:", "learning_rate?"))


def test_a_recipe_may_be_a_file_that_names_its_base(tmp_path):
    calls = []

    @functools.wraps(pretrain)
    def record(recipe, **_):
        calls.append(recipe)

    more = (pretraining.RECIPE_KEYWORD, pretraining.SCALE_BATCH)
    pretrain_alone = keyword_function(record, "albert.pretrain", more=more, before=pretraining.read_recipe_keyword)
    (tmp_path / "pre.toml").write_text('base = "small"\nbatch_size = 64\nlearning_rate = 1\n')
    pretrain_alone(tmp_path / "pre.toml", data=["corpus"], output="run", batch_size=32)
    assert calls.pop() == dataclasses.replace(read_recipe(tmp_path / "pre.toml"), batch_size=32)
    assert read_recipe(tmp_path / "pre.toml").model == RECIPES["small"].model
