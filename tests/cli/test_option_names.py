"""Other names of options: those of transformers and of other commands."""

import re
from operator import attrgetter
from pathlib import Path

import pytest

from albert.api.options import shape_of
from albert.cli.main import COMMANDS, run
from albert.cli.options import all_commands, parse
from albert.commands.finetune import finetune
from albert.commands.predict import predict_main
from albert.commands.pretrain import pretrain_main
from albert.commands.serve import serve_main

WITH_OPTIONS = [name for name in COMMANDS if name not in ("tokenizer", "export")]
WITH_OPTIONS += ["tokenizer train", "tokenizer convert", "export onnx"]


def test_finetune_takes_names_of_transformers():
    words = "sst-2 --model-name-or-path tiny --lr 1e-3 --num_train_epochs=3 --output-dir out --max-steps 5"
    words += " --per-device-train-batch-size 8 --max-seq-length 64 --warmup-ratio 0.1"
    options = parse(shape_of(finetune), words.split(), "albert finetune")
    changes = options.changes
    assert (options.task, options.model, changes.learning_rate, changes.epochs) == ("sst-2", "tiny", 1e-3, 3)
    assert (changes.batch_size, changes.max_length, changes.warmup_share, changes.steps) == (8, 64, 0.1, 5)
    assert options.output == Path("out")


def test_pretrain_takes_names_of_transformers_for_values_of_its_recipe(capsys):
    words = ["--data", "nowhere", "--output", "out", "--lr", "1e-3", "--max-seq-length", "64", "--warmup-steps", "-1"]
    assert run(["pretrain", "small", *words]) != 0
    assert "warmup_steps" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("command", "words", "expected"),
    [
        ("finetune", "sst-2 --model m --bf16", {"training.precision": "bf16"}),
        ("finetune", "--task-name sst-2 --model m", {"task": "sst-2"}),
        ("finetune", "--task sst-2 --model m --load-best-model-at-end", {"task": "sst-2", "training.select": "best"}),
        ("finetune", "--train-file a --validation-file b --model m", {"train": Path("a"), "dev": Path("b")}),
        (
            "finetune",
            "sst-2 --model m --eval-steps 7 --save-steps 8",
            {"training.evaluate_every": 7, "training.checkpoint_every": 8},
        ),
        ("finetune", "squad-1.1 --model m --doc-stride 9 --no-cuda", {"changes.stride": 9, "training.device": "cpu"}),
        ("evaluate", "--task sst-2 --model a b --depth 3", {"task": "sst-2", "model": ("a", "b")}),
        ("predict", "m --input a.csv --text review", {"text": "review"}),
        ("predict", "--input a.csv --model m", {"model": "m"}),
        ("info", "--model albert-base --memory", {"what": "albert-base", "memory": True}),
        ("info", "albert-base --max-seq-length 7", {"max_length": 7}),
        ("convert", "--output o --model s", {"source": "s"}),
        ("export onnx", "--output o --model m", {"model": "m"}),
        ("tokenizer convert", "s --output o --lower-case", {"case": "lower"}),
        ("prepare", "--tokenizer t --output o --corpus a b", {"corpus": ("a", "b")}),
        ("prepare", "a --tokenizer t --output o --text body", {"text.text_field": "body"}),
        ("prepare", "a --tokenizer t --output o --held-out-share 0.2", {"held_out": 0.2}),
        ("finetune", "--train a --model m --held-out-share 0.2", {"held_out": 0.2}),
        ("quantize", "--model-name-or-path m --output o --overwrite-output-dir", {"model": "m", "replace": True}),
        ("quantize", "m --output o --force", {"replace": True}),
        ("predict", "m --fill-mask x --cpu", {"opening.device": "cpu"}),
        ("evaluate", "pretraining --model m --evaluation-sequences 5", {"sequences": 5}),
        ("evaluate", "pretraining --model m --evaluation-objectives sop nsp", {"objective": ("sop", "nsp")}),
    ],
)
def test_other_names_set_the_same_field(command, words, expected):
    options = parse(all_commands()[command].shape, words.split(), f"albert {command}")
    assert {name: attrgetter(name)(options) for name in expected} == expected


def test_options_in_groups_have_short_names():
    words = "--data d --output o --hidden-size 8 --total-steps 7 --warmup-steps 3 --objective nsp --max-ngram 1"
    switches = ["--optim=adamw", "--no-favor-shorter", "--model", "m"]
    recipe = parse(pretrain_main.shape, [*words.split(), *switches], "albert")
    assert recipe.init == "m" and recipe.recipe.model.hidden_size == 8
    assert (recipe.recipe.schedule.total_steps, recipe.recipe.schedule.warmup_steps) == (7, 3)
    assert (recipe.recipe.sequences.objective, recipe.recipe.optimizer.kind) == ("nsp", "adamw")
    assert (recipe.recipe.masking.max_ngram, recipe.recipe.masking.favor_shorter) == (1, False)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([], None),
        (["--compile"], True),
        (["--no-compile"], False),
        (["--compile=False"], False),
        (["--compile", "True"], True),
        (["--torch-compile"], True),
    ],
)
def test_a_switch_that_may_be_unset_is_set_like_others(words, expected):
    options = parse(pretrain_main.shape, ["--data", "d", *words, "--output", "o"], "albert pretrain")
    assert options.recipe.compile is expected and str(options.output) == "o"


@pytest.mark.parametrize("command", WITH_OPTIONS)
def test_misspelt_options_get_a_suggestion(command, capsys, refused):
    """Each third option of each command, without its last letter and in capitals."""
    with pytest.raises(SystemExit):
        run([*command.split(), "--help-all"])
    named = re.findall(r"^ {0,8}(--[a-z][a-z-]{5,})\b", capsys.readouterr().out, re.MULTILINE)
    known = set(named)
    for usual in sorted(known)[::3]:
        for typed in {usual[:-1], usual.upper()} - known:
            assert refused([*command.split(), typed, "1"], 2, typed).count("--") > 1


@pytest.mark.parametrize("words", [["--model", "m"], ["--model=m"], ["--model-name-or-path", "m"], ["m"]])
@pytest.mark.parametrize("shape", [predict_main.shape, serve_main.shape])
def test_a_positional_model_may_be_given_as_an_option(shape, words):
    assert parse(shape, ["--device", "cpu", *words], "albert").model == "m"
