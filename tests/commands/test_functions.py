"""The functions of the package are those of the commands, with the same keywords, defaults and files."""

import dataclasses
import inspect
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.commands.conftest import files_of, make_reviews

import albert
from albert.cli.command_line import all_commands
from albert.cli.main import run
from albert.cli.signature import read_keys, read_values
from albert.commands.function import definition_of
from albert.commands.pretrain import PretrainKeys, recipe_before_changes
from albert.recipes.pretraining import RECIPES, read_recipe
from albert.runtime.errors import UsageError

FUNCTIONS = {
    "finetune": albert.finetune,
    "finetune-vectors": albert.finetune_vectors,
    "sweep": albert.sweep,
    "evaluate": albert.evaluate,
    "prepare": albert.prepare,
    "pretrain": albert.pretrain,
    "push": albert.push,
    "tokenizer train": albert.tokenizer.train,
}
PRINTING = {"evaluate": {"json"}}
"""Options of the command line alone, for printing."""
STARS = {"text": "review", "label": "stars", "model": "tiny", "device": "cpu", "steps": 3, "evaluate_every": 2}
ARCHITECTURE = {"embedding_size": 16, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
ARCHITECTURE |= {"intermediate_size": 64}
RECIPE = {"batch_size": 2, "micro_batch_size": 2, "evaluation_sequences": 4, "precision": "fp32", "device": "cpu"}


def words(command: str, **keywords: object) -> list[str]:
    """Keywords as arguments of a command: its options, and its keys."""
    keys = {option.name for option in all_commands()[command].options if option.is_key}
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


@pytest.mark.parametrize("command", FUNCTIONS)
def test_a_function_is_that_of_its_command(command):
    function = FUNCTIONS[command]
    signature = inspect.signature(function).parameters
    options = {option.name: option for option in all_commands()[command].options if not option.is_key}
    listeners = {name for name in signature if name.startswith("on_")}
    assert set(signature) - listeners - {"keys"} == set(options) - PRINTING.get(command, set())
    for name in set(options) - PRINTING.get(command, set()):
        default = signature[name].default
        assert options[name].is_required if default is inspect.Parameter.empty else options[name].default == default
        assert signature[name].annotation is not inspect.Parameter.empty
    text = inspect.getdoc(function)
    assert text is not None
    for option in all_commands()[command].options:
        assert option.name in PRINTING.get(command, set()) or f"    {option.name}: " in text


def test_dir_lists_the_public_names():
    public = ["AlbertEmbedding", "AlbertError", "evaluate", "finetune", "finetune_vectors", "load", "open_model"]
    assert dir(albert) == sorted([*public, "pack", "prepare", "pretrain", "push", "sweep", "tokenizer", "__version__"])
    assert sorted(albert.__all__) == sorted(set(dir(albert)) - {"__version__"})
    help_text = inspect.getdoc(albert.finetune)
    assert help_text is not None
    assert "    dev: The development file, or for your tables a share" in help_text


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
                assert run([*command, *words(name, **keywords)]) == 0
    by_command, by_python = files_of(tmp_path / "command"), files_of(tmp_path / "python")
    assert set(by_command) == set(by_python)
    assert [name for name in by_command if by_command[name] != by_python[name]] == []
    assert len(by_command) > 40


def read(function, given):
    """Keywords as `function` gets them."""
    return read_values(given.items(), definition_of(function).options, "albert", "keyword", UsageError)


@pytest.mark.parametrize(
    ("function", "given", "expected"),
    [
        (albert.evaluate, {"precision": "fp32"}, ("fp32",)),
        (albert.pretrain, {"drop_heads": "masked_tokens"}, ("masked_tokens",)),
    ],
)
def test_a_single_value_is_accepted_for_a_sequence(function, given, expected):
    assert list(read(function, given).values()) == [expected]


def test_keys_are_keywords_and_those_of_a_group_a_dict():
    given = {"learning_rate": 1, "steps": 7, "precision": "bf16", "init": "m", "output": "o"}
    given |= {"schedule": {"warmup_steps": 2}, "architecture": {"hidden_size": 8}, "optimizer": {"kind": "adamw"}}
    assert read(albert.pretrain, given) == {
        "learning_rate": 1.0,
        "steps": 7,
        "precision": "bf16",
        "init": "m",
        "output": Path("o"),
        "schedule.warmup_steps": 2,
        "architecture.hidden_size": 8,
        "optimizer.kind": "adamw",
    }


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ({"lr": 1}, "lr: unknown keyword; write learning_rate=..."),
        ({"hidden_size": 8}, 'hidden_size: unknown keyword; write architecture={"hidden_size": ...}'),
        ({"architecture": 8}, "architecture: is 8, a table of keys {...} is expected"),
        ({"architecture": {"hiden_size": 8}}, "architecture.hiden_size: unknown keyword; did you mean architecture={"),
        ({"recipe": "base"}, "recipe: is given twice; give it once"),
        ({"num_train_epochs": 3}, "num_train_epochs: unknown keyword; pre-training counts updates: steps"),
        ({"fp16": True}, "fp16: unknown keyword; precision=bf16 needs half the memory, too, and no loss scaling"),
        ({"bf16": True}, "bf16: unknown keyword; write precision=bf16"),
        ({"steps": "many"}, "steps: is 'many', a whole number is expected"),
    ],
)
def test_unknown_and_repeated_keywords_are_refused_with_a_remedy(given, line, tmp_path):
    with pytest.raises(albert.AlbertError) as caught:
        albert.pretrain("small", **{"data": tmp_path, "output": tmp_path / "run", **given})
    assert str(caught.value).startswith(f"albert.pretrain: {line}")


@pytest.mark.parametrize(
    ("call", "line"),
    [
        (albert.pretrain, "albert.pretrain: recipe: is missing; it is a name (quickstart, small, "),
        (lambda: albert.prepare(), "albert.prepare: corpus: is missing; it is files, folders or patterns"),
        (lambda: albert.push("m"), "albert.push: repository: is missing; it is USER/NAME"),
        (lambda: albert.evaluate(), "albert.evaluate: model: is missing; it is a model directory, a run"),
    ],
)
def test_a_missing_keyword_is_described(call, line):
    with pytest.raises(albert.AlbertError) as caught:
        call()
    assert str(caught.value).startswith(line)


def test_a_task_file_has_options_and_keys_and_a_given_one_wins(reviews, tmp_path, capsys):
    task = {"train": "rows.csv", "text": "review", "label": "stars", "model": "tiny", "learning_rate": 0.5}
    task |= {"reading": {"delimiter": ","}, "epochs": 1, "depth": 1, "evaluate_every": 2, "device": "cpu"}
    (tmp_path / "rows.csv").write_bytes(reviews.read_bytes())
    (tmp_path / "mine.json").write_text(json.dumps(task))
    lines = [f"{name} = {json.dumps(value)}" for name, value in task.items() if name != "reading"]
    (tmp_path / "mine.toml").write_text("\n".join([*lines, "[reading]", 'delimiter = ","']))
    for file in ("mine.toml", "mine.json"):
        out = tmp_path / file.replace(".", "-")
        albert.finetune(tmp_path / file, learning_rate=0.25, steps=3, output=out)
        typed = [str(tmp_path / file), "learning_rate=0.25", "steps=3", "--output", f"{out}-typed"]
        assert run(["finetune", *typed]) == 0
        record = json.loads((out / "recipe.json").read_text())
        assert record == json.loads((tmp_path / f"{out.name}-typed" / "recipe.json").read_text())
        assert record["recipe"]["learning_rate"] == 0.25 and record["recipe"]["steps"] == 3
    (tmp_path / "bad.toml").write_text("learning_rat = 3\n")
    with pytest.raises(albert.AlbertError) as refusal:
        albert.finetune(tmp_path / "bad.toml", output=tmp_path / "out")
    assert all(part in str(refusal.value) for part in ("bad.toml", "learning_rat:", "learning_rate?"))


def test_vectors_have_a_file_of_options_and_keys_too(tmp_path, refused):
    task = {"train": "pairs.csv", "text": "a", "pair": "b", "model": "tiny", "learning_rate": 0.5, "epochs": 1}
    task |= {"temperature": 0.1, "device": "cpu", "max_length": 16}
    rows = "".join(f"ship {number},storm {number}\n" for number in range(40))
    (tmp_path / "pairs.csv").write_text(f"a,b\n{rows}")
    (tmp_path / "mine.json").write_text(json.dumps(task))
    (tmp_path / "mine.toml").write_text("\n".join(f"{name} = {json.dumps(value)}" for name, value in task.items()))
    records = []
    for file in ("mine.toml", "mine.json"):
        out = tmp_path / file.replace(".", "-")
        albert.finetune_vectors(tmp_path / file, learning_rate=0.25, steps=2, output=out)
        typed = [str(tmp_path / file), "learning_rate=0.25", "steps=2", "--output", f"{out}-typed"]
        assert run(["finetune-vectors", *typed]) == 0
        records += [json.loads((folder / "recipe.json").read_text()) for folder in (out, Path(f"{out}-typed"))]
    assert all(record == records[0] for record in records)
    assert records[0]["recipe"]["learning_rate"] == 0.25 and records[0]["recipe"]["steps"] == 2
    # Five neighbours: an unknown key, a recipe of pre-training, a run's record, another name, and no file.
    (tmp_path / "bad.toml").write_text("learning_rat = 3\n")
    (tmp_path / "pretraining.toml").write_text('base = "small"\n')
    given = {"train": tmp_path / "pairs.csv", "text": "a", "pair": "b", "model": "tiny", "output": tmp_path / "new"}
    options = [word for name, value in given.items() for word in (f"--{name}", value)]
    for name, code, parts in (
        (tmp_path / "bad.toml", 78, ("bad.toml: learning_rat", "unknown key", "learning_rate?")),
        (tmp_path / "pretraining.toml", 78, ("is a recipe of pre-training: it has base", "albert pretrain")),
        (tmp_path / "mine-toml" / "recipe.json", 2, ("is no file with options and keys (.toml or .json)",)),
        ("small", 2, ("small: is no file with options and keys (.toml or .json)",)),
        (tmp_path / "none.toml", 66, ("none.toml", "No such file")),
    ):
        refused(["finetune-vectors", name, *options], code, *parts)
        refused(lambda name=name: albert.finetune_vectors(name, **given), code, *parts)


def test_a_recipe_may_be_a_file_that_names_its_base(tmp_path):
    (tmp_path / "pre.toml").write_text('base = "small"\nbatch_size = 64\nlearning_rate = 1\n')
    base, _ = recipe_before_changes(str(tmp_path / "pre.toml"), {"batch_size": 32}, None, None)
    found = read_keys(PretrainKeys(recipe=base), {"batch_size": 32}).recipe
    assert found == dataclasses.replace(read_recipe(tmp_path / "pre.toml"), batch_size=32)
    assert found.model == RECIPES["small"].model


def test_a_file_of_all_keys_is_read_with_their_defaults(reviews, tmp_path, capsys):
    (tmp_path / "pairs.csv").write_text("a,b\n" + "".join(f"ship {number},storm {number}\n" for number in range(40)))
    for command in ("finetune", "sweep", "finetune-vectors"):
        capsys.readouterr()
        assert run(["info", "--recipe", command]) == 0
        (tmp_path / "keys.toml").write_text(capsys.readouterr().out)
        typed = ["--train", str(reviews), "--text", "review", "--label", "stars", "--model", "tiny", "steps=1"]
        if command == "finetune-vectors":
            typed[1:6] = [str(tmp_path / "pairs.csv"), "--text", "a", "--pair", "b"]
        output = ["--output", str(tmp_path / command), *(["--seeds", "1"] if command == "sweep" else [])]
        assert run([command, str(tmp_path / "keys.toml"), *typed, *output, "evaluate_every=1"]) == 0


def test_values_that_are_wrong_whatever_the_rows_are_refused_before_these_are_shown(reviews, capsys):
    typed = ["finetune", "--train", str(reviews), "--text", "review", "--label", "stars", "--model", "tiny"]
    for word, line in (("seed=-1", "seed: is -1"), ("--dev=1.5", "--dev: is 1.5"), ("depth=99", "depth: is 99")):
        assert run([*typed, word]) != 0
        shown = capsys.readouterr()
        assert shown.out == "" and line in shown.err


@pytest.mark.parametrize(
    ("changed", "line"),
    [
        ({"label": "review"}, "text and label review: are the same column"),
        ({"train": ["a", "b"]}, "train: is a list, not rows; give a file, a data frame, or a list of dicts"),
        ({"train": "model"}, "model: is a model, rows are expected; name a file of rows"),
        ({"train": "run"}, "run: is a run of albert, rows are expected; name a file of rows"),
    ],
)
def test_what_is_no_table_or_no_label_is_refused(changed, line, reviews, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for folder, file in (("model", "config.json"), ("run", "recipe.json")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / file).write_text("{}")
    with pytest.raises(albert.AlbertError, match=re.escape(line)):
        albert.finetune(**{"train": reviews, "text": "review", "label": "stars", "model": "tiny"} | changed)
