"""Fine-tuning by several workers of one thread: what one worker learns, whatever is learnt."""

from dataclasses import replace

import pytest
import torch

from albert.checkpoints.model_directory import open_model
from albert.cli.main import run
from albert.finetuning.model import PretrainedEncoder, head_kind
from albert.finetuning.objective import Distillation
from albert.finetuning.run import finetune
from albert.finetuning.run_record import FinetuningSettings
from albert.runtime.json_files import read_json_object
from albert.tasks.submission import DECLARED
from albert.tasks.task import Option

SETTINGS = FinetuningSettings(device="cpu", encode_pairs="together")


def weights(task, directory):
    return open_model(directory, head_kind(task.target)).model.state_dict()


def assert_learnt_alike(task, one, other):
    expected, found = weights(task, one), weights(task, other)
    if isinstance(task.target, Option):
        del found["classifier.bias"]  # it moves all options alike: its gradient is rounding, which Adam scales up
    for name, tensor in found.items():
        torch.testing.assert_close(tensor, expected[name], rtol=1e-3, atol=1e-4)


@pytest.fixture
def learn(pretrained, tmp_path, workers):
    """Fine-tunes by a number of workers."""

    def start(task, data, number, name=None, start=None, **settings):
        workers(number)
        begin = PretrainedEncoder(str(start or pretrained))
        chosen = replace(SETTINGS, **settings)
        return finetune(task, begin, data, tmp_path / (name or f"by {number}"), settings=chosen)

    return start


def test_several_workers_learn_what_one_learns(task, task_data, learn):
    short = replace(task, recipe=replace(task.recipe, steps=6, encoder_dropout=0.0))
    one, two = (learn(short, task_data, number) for number in (1, 2))
    assert_learnt_alike(task, one.model_directory, two.model_directory)
    assert two.scores == pytest.approx(one.scores, abs=10.0)  # two of sixteen may fall on the other side
    assert [result.report["workers"] for result in (one, two)] == [1, 2]


@pytest.fixture
def sentences():
    task = DECLARED["sst-2"]
    recipe = replace(task.recipe, steps=6, examples=None, batch_size=5, learning_rate=1e-3, max_length=32)
    return replace(task, recipe=recipe)


@pytest.mark.parametrize("way", ["frozen", "exits", "distilled", "small pieces"])
def test_every_way_to_learn_can_be_shared(sentences, data, learn, way):
    teacher = learn(sentences, data / "choice", 1, "teacher").model_directory if way == "distilled" else None
    settings = {
        "frozen": {"freeze_encoder": True},
        "exits": {"exits": "every"},
        "distilled": {"distillation": Distillation(teacher=str(teacher))},
        "small pieces": {"micro_batch_tokens": 12},
    }[way]
    easy = replace(sentences, recipe=replace(sentences.recipe, head_dropout=0.0))
    one, two = (learn(easy, data / "choice", number, f"{way} {number}", **settings) for number in (1, 2))
    assert_learnt_alike(sentences, one.model_directory, two.model_directory)


def test_two_runs_with_dropout_are_the_same_and_one_goes_on_bit_identical(sentences, data, learn, interrupted):
    changed = replace(sentences, recipe=replace(sentences.recipe, head_dropout=0.3, encoder_dropout=0.2))
    first, second = (learn(changed, data / "choice", 2, name) for name in ("first", "second"))
    with interrupted(7):
        learn(changed, data / "choice", 2, "stopped", checkpoint_every=2)
    third = learn(changed, data / "choice", 2, "stopped", checkpoint_every=2)
    expected = weights(changed, first.model_directory)
    for other in (second, third):
        for name, tensor in weights(changed, other.model_directory).items():
            assert torch.equal(tensor, expected[name]), name


def test_the_command_says_how_many_workers_it_has(data, pretrained, tmp_path, workers, capsys):
    words = ["finetune", "sst-2", "--model", str(pretrained), "--data", str(data / "choice"), "--device", "cpu"]
    for number in (1, 2):
        workers(number)
        output = tmp_path / f"by {number}"
        assert run([*words, "--output", str(output), "--steps", "2"]) == 0
        assert (", 2 workers" in " ".join(capsys.readouterr().out.split())) == (number == 2)
        assert read_json_object(output / "results.json")["workers"] == number
