"""Fine-tuning with several workers of one thread gives the result of one worker."""

from dataclasses import replace

import pytest
import torch
from tests.finetuning.conftest import weights_of
from tests.tiny import short_task

from albert.checkpoints.model_directory import open_model
from albert.cli.main import run
from albert.finetuning.task_run import finetune
from albert.recipes.finetuning import Distillation, FinetuningSettings
from albert.runtime.json_files import read_json_object
from albert.tasks.multiple_choice import MultipleChoice

SENTENCES = short_task(steps=4, batch_size=5)

SETTINGS = FinetuningSettings(device="cpu", encode_pairs="together")


def weights(task, directory):
    return open_model(directory, task.target.model_kind()).model.state_dict()


def assert_same_weights(task, one, other):
    expected, result = weights(task, one), weights(task, other)
    if isinstance(task.target, MultipleChoice):
        del result["classifier.bias"]  # it moves all options alike: its gradient is rounding, which Adam scales up
    for name, tensor in result.items():
        torch.testing.assert_close(tensor, expected[name], rtol=1e-3, atol=1e-4)


@pytest.fixture
def learn(start, tmp_path, workers):
    """Fine-tunes with a number of workers."""

    def finetune_with(task, data, number, name=None, **settings):
        workers(number)
        return finetune(task, start, data, tmp_path / (name or f"by {number}"), settings=replace(SETTINGS, **settings))

    return finetune_with


@pytest.mark.parametrize("task", ["sst-2", "squad-2.0", "race", "tags"], indirect=True)
def test_two_workers_give_the_result_of_one(task, task_data, learn):
    short = replace(task, recipe=replace(task.recipe, steps=3, encoder_dropout=0.0))
    one, two = (learn(short, task_data, number) for number in (1, 2))
    assert_same_weights(task, one.model_directory, two.model_directory)
    assert two.scores == pytest.approx(one.scores, abs=10.0)  # two of sixteen predictions may differ
    assert [result.report["workers"] for result in (one, two)] == [1, 2]


@pytest.mark.parametrize("option", ["frozen", "distilled", "small pieces"])
def test_two_workers_with_other_options(data, learn, option):
    settings = {
        "frozen": {"freeze_encoder": True},
        "distilled": {},
        "small pieces": {"micro_batch_tokens": 12},
    }[option]
    if option == "distilled":
        teacher = learn(SENTENCES, data / "choice", 1, "teacher").model_directory
        settings = {"distillation": Distillation(teacher=str(teacher))}
    task = replace(SENTENCES, recipe=replace(SENTENCES.recipe, head_dropout=0.0))
    one, two = (learn(task, data / "choice", number, **settings) for number in (1, 2))
    assert_same_weights(SENTENCES, one.model_directory, two.model_directory)


def test_runs_with_dropout_are_reproducible_and_resumed_exactly(data, learn, interrupted):
    task = replace(SENTENCES, recipe=replace(SENTENCES.recipe, head_dropout=0.3, encoder_dropout=0.2))
    first, second = (learn(task, data / "choice", 2, name) for name in ("first", "second"))
    with interrupted(5):
        learn(task, data / "choice", 2, "stopped", checkpoint_every=2)
    resumed = learn(task, data / "choice", 2, "stopped", checkpoint_every=2)
    assert weights_of(first) == weights_of(second) == weights_of(resumed)


def test_command_shows_the_number_of_workers(data, pretrained, tmp_path, workers, capsys):
    command = ["finetune", "sst-2", "--model", str(pretrained), "--data", str(data / "choice"), "--device", "cpu"]
    for number in (1, 2):
        workers(number)
        output = tmp_path / f"by {number}"
        assert run([*command, "--output", str(output), "steps=2"]) == 0
        assert (", 2 workers" in " ".join(capsys.readouterr().out.split())) == (number == 2)
        assert read_json_object(output / "results.json")["workers"] == number
