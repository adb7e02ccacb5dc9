"""Options under the names that people know from elsewhere, and under those that they had before."""

import pytest

from albert.api.options import Finetune
from albert.cli.main import run
from albert.cli.model_commands import Predict, Serve
from albert.cli.options import parse


def test_the_names_that_users_of_transformers_type_are_taken():
    words = ["sst-2", "--model-name-or-path", "tiny", "--lr", "1e-3", "--num_train_epochs=3", "--output-dir", "out"]
    words += [
        "--per-device-train-batch-size",
        "8",
        "--max-seq-length",
        "64",
        "--warmup-ratio",
        "0.1",
        "--max-steps",
        "5",
    ]
    asked = parse(Finetune, words, "albert finetune")
    assert (asked.task, asked.model, asked.learning_rate, asked.epochs, str(asked.output)) == (
        "sst-2",
        "tiny",
        1e-3,
        3,
        "out",
    )
    assert (asked.batch_size, asked.max_length, asked.warmup_share, asked.steps) == (8, 64, 0.1, 5)


def test_pretraining_takes_them_for_the_values_of_its_recipe(capsys):
    words = ["--data", "nowhere", "--output", "out", "--lr", "1e-3", "--max-seq-length", "64", "--warmup-steps", "-1"]
    assert run(["pretrain", "small", *words]) != 0
    assert "warmup_steps" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["--model", "m"], ["--model=m"], ["--model-name-or-path", "m"], ["m"]])
@pytest.mark.parametrize("shape", [Predict, Serve])
def test_a_positional_model_may_be_called_by_its_name(shape, words):
    assert parse(shape, ["--device", "cpu", *words], "albert").model == "m"


def test_earlier_names_work_and_say_the_present_one(capsys):
    assert parse(Predict, ["m", "--ask", "embed"], "albert predict").task == "embed"
    assert parse(Finetune, ["race", "--model", "m", "--second-release"], "albert finetune").v2_recipe
    said = capsys.readouterr().err
    assert said == (
        "albert: note: --ask is now called --task\nalbert: note: --second-release is now called --v2-recipe\n"
    )


def test_a_name_that_no_option_has_is_still_refused(capsys):
    assert run(["quantize", "m", "--output", "o", "--lr", "1"]) == 2
    assert "albert quantize: --lr: unknown option" in capsys.readouterr().err
