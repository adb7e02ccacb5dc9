"""The functions of the package beside the commands: the same keywords, results and files; and what only Python has."""

import inspect
import subprocess
import sys

import pytest
from scripts.write_stub import PLACE, stub
from tests.api.conftest import files_of, make_reviews

import albert
from albert.api import options
from albert.cli.help import options_of
from albert.cli.main import run

FUNCTIONS = {
    "finetune": (albert.finetune, options.Finetune),
    "evaluate": (albert.evaluate, options.Evaluate),
    "prepare": (albert.prepare, options.Prepare),
    "pretrain": (albert.pretrain, options.Pretrain),
    "tokenizer.train": (albert.tokenizer.train, options.TrainTokenizer),
}
PRINTING = {"evaluate": {"json", "csv"}}
"""Options on how a command prints, which a function does not."""
STARS = {"text": "review", "label": "stars", "model": "tiny", "device": "cpu", "steps": 3, "evaluate_every": 2}
MODEL = {"embedding_size": 16, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
MODEL |= {"intermediate_size": 64}
RECIPE = {"batch_size": 2, "micro_batch_size": 2, "evaluation_sequences": 4, "precision": "fp32", "device": "cpu"}


def words(**keywords: object) -> list[str]:
    """Keywords as words of a command line."""
    found: list[str] = []
    for name, value in keywords.items():
        if isinstance(value, dict):
            found += words(**{f"{name}.{inner}": each for inner, each in value.items()})
        else:
            found += [f"--{name.replace('_', '-')}", *map(str, value if isinstance(value, list) else [value])]
    return found


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_has_the_keywords_and_defaults_of_its_command(name):
    function, shape = FUNCTIONS[name]
    signature = inspect.signature(function).parameters
    names = (option.long.removeprefix("--") or option.field for option in options_of(shape))
    typed = {name.split(".")[0].replace("-", "_") for name in names}
    more = {"recipe"} if name == "pretrain" else set()  # the command's first word
    assert set(signature) - more == typed - PRINTING.get(name, set())
    fields = {field.name: field for field in options.fields(shape)}
    for parameter in signature.values():
        if parameter.name in fields and parameter.name not in more:
            field = fields[parameter.name]
            made = field.default if field.default_factory is options.MISSING else field.default_factory()
            assert parameter.default == (inspect.Parameter.empty if made is options.MISSING else made)
        assert str(parameter.annotation) != "Any"


def test_the_types_that_editors_see_are_those_of_the_options():
    assert PLACE.read_text(encoding="utf-8") == stub(), "run python scripts/write_stub.py"


def test_what_is_public_is_seen_and_nothing_else():
    public = ["AlbertEmbedding", "AlbertError", "evaluate", "finetune", "load", "open_model", "pack", "prepare"]
    assert dir(albert) == sorted([*public, "pretrain", "tokenizer", "__version__"])
    assert sorted(albert.__all__) == sorted([*public, "pretrain", "tokenizer"])
    help_text = inspect.getdoc(albert.finetune)
    assert help_text is not None
    assert "    held_out_share: Your own tables without dev: the share" in help_text


def test_importing_the_package_loads_nothing_heavy():
    heavy = ("torch", "pandas", "matplotlib")
    code = f"import albert, sys; albert.prepare; print(*(name for name in {heavy} if name in sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout.strip() == b""


def test_both_doors_write_the_same_bytes(reviews, tmp_path, monkeypatch, clock):
    """A whole life: tokenizer, corpus, pre-training, fine-tuning with two seeds and one, evaluation."""
    text = tmp_path / "text.jsonl"
    text.write_text("".join(f'{{"text": "{row["review"]}. It is long."}}\n' for row in make_reviews(60)))
    learnt = {**STARS, "model": "runs/small", "train": str(reviews), "output": "runs/stars"}
    seeds = {**learnt, "output": "runs/seeds", "seeds": 2, "steps": 1}
    pieces = {"output": "tokenizer", "vocab_size": 50}
    corpus = {"tokenizer": "tokenizer", "output": "corpus", "held_out": 0.2, "workers": 1}
    recipe = {**RECIPE, "data": "corpus", "output": "runs/small", "model": MODEL, "sequences": {"max_length": 32}}
    recipe["schedule"] = {"total_steps": 2, "warmup_steps": 1}
    scored = {"model": "runs/stars", "dev": str(reviews), "results": "scores.json", "predictions": "answers.jsonl"}
    commands = [
        (["tokenizer", "train", str(text)], albert.tokenizer.train, text, pieces),
        (["prepare", str(text)], albert.prepare, [text], corpus),
        (["pretrain", "quickstart"], albert.pretrain, "quickstart", recipe),
        (["finetune"], albert.finetune, None, learnt),
        (["finetune"], albert.finetune, None, seeds),
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
