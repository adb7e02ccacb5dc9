"""A head that learns at several depths answers at each of them, and the model stays what transformers opens."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
import transformers
from tests.tiny import short_task

from albert.checkpoints.model_directory import open_model, save_model_directory
from albert.finetuning.data import TaskBatches
from albert.finetuning.evaluation import ComputeOptions
from albert.finetuning.model import MultiExitModel, PretrainedEncoder, exit_depths, exit_weights
from albert.finetuning.objective import task_loss, training_setup
from albert.finetuning.run import finetune
from albert.finetuning.run_record import FinetuningSettings
from albert.model.albert import AlbertForPreTraining, AlbertForSequenceClassification, set_depth
from albert.model.packing import pack
from albert.runtime.errors import CannotCreate, InvalidConfiguration
from albert.tasks.examples import join_sequences
from albert.tasks.submission import DECLARED

SETTINGS = FinetuningSettings(device="cpu", exits="every")


@pytest.fixture
def deep(config):
    return replace(config, num_hidden_layers=4)


@pytest.fixture
def pretrained_deep(deep, tokenizer_directory, tmp_path):
    torch.manual_seed(1)
    save_model_directory(tmp_path / "deep", AlbertForPreTraining(deep), tokenizer_directory)
    return PretrainedEncoder(str(tmp_path / "deep"))


@pytest.fixture
def short(data):
    return short_task(steps=60, batch_size=8, learning_rate=3e-3)


def test_the_loss_is_the_mean_over_depths_weighted_by_depth(deep):
    torch.manual_seed(0)
    model = AlbertForSequenceClassification(replace(deep, classifier_dropout_prob=0.0), 2)
    draws = np.random.default_rng(0)
    sequences = join_sequences([(draws.integers(5, 300, n).tolist(), n) for n in (8, 12, 9)])
    batches = TaskBatches(sequences, np.array([0, 1, 1]), "choice", 3, 0, 8192)
    way = training_setup(model, batches, (1, 2, 4), ComputeOptions(torch.device("cpu")))
    (taught,) = way.source.micro_batches(0, 0, 1)
    found = way.objective(way.module, taught)
    each = []
    for depth in (1, 2, 4):
        set_depth(model, depth)
        each.append(task_loss(model, taught))
    expected = sum(depth / 7 * sums.losses["choice"] for depth, sums in zip((1, 2, 4), each, strict=True))
    torch.testing.assert_close(found.losses["choice"], expected)
    assert found.correct["choice"] == each[-1].correct["choice"]
    assert exit_weights((1, 2, 4)) == (1 / 7, 2 / 7, 4 / 7)


def test_every_depth_learns_and_transformers_runs_each_of_them(short, data, pretrained_deep, tmp_path):
    result = finetune(short, pretrained_deep, data / "choice", tmp_path / "run", settings=SETTINGS)
    assert "the head learnt to answer after layers 1, 2, 3, 4" in result.report["notes"]
    kept = json.loads((result.model_directory / "config.json").read_text())
    assert kept["exit_depths"] == [1, 2, 3, 4] and kept["num_hidden_layers"] == 4
    ids, types = np.array([2, 20, 30, 40, 3]), np.zeros(5, np.int64)
    for depth in (1, 2, 4):
        ours = open_model(result.model_directory, "classification").model.eval()
        set_depth(ours, depth)
        theirs = transformers.AlbertForSequenceClassification.from_pretrained(
            result.model_directory, num_hidden_layers=depth
        ).eval()
        with torch.inference_mode():
            expected = theirs(torch.from_numpy(ids)[None], token_type_ids=torch.from_numpy(types)[None]).logits
            torch.testing.assert_close(ours(pack([ids], [types])), expected, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("name", ["sts-b", "squad-1.1", "squad-2.0", "race"])
def test_every_kind_of_head_learns_at_several_depths(name, data, pretrained_deep, tmp_path):
    task = DECLARED[name]
    recipe = replace(task.recipe, steps=3, examples=None, batch_size=8, max_length=32, question_length=8, stride=8)
    folder = {"sts-b": data / "score"}.get(name, data)
    settings = replace(SETTINGS, exits=(2,))
    result = finetune(replace(task, recipe=recipe), pretrained_deep, folder, tmp_path / "run", settings=settings)
    kept = json.loads((result.model_directory / "config.json").read_text())
    assert kept["exit_depths"] == [2, 4]


def test_a_run_with_exits_is_not_one_without(short, data, pretrained_deep, tmp_path):
    few = replace(short, recipe=replace(short.recipe, steps=2))
    plain = FinetuningSettings(device="cpu")
    finetune(few, pretrained_deep, data / "choice", tmp_path / "run", settings=plain)
    record = json.loads((tmp_path / "run/recipe.json").read_text())
    assert not {"exits", "freeze_encoder", "distillation"} & record["settings"].keys()
    assert finetune(few, pretrained_deep, data / "choice", tmp_path / "run", settings=plain).already_complete
    with pytest.raises(CannotCreate, match="holds a finished run with another recipe"):
        finetune(few, pretrained_deep, data / "choice", tmp_path / "run", settings=SETTINGS)


def test_which_depths_can_be_exits(deep):
    assert exit_depths(None, deep) == (4,)
    assert exit_depths("every", deep) == (1, 2, 3, 4)
    assert exit_depths((3, 1), deep) == (1, 3, 4)
    for wrong in ((0,), (5,), (1, -1)):
        with pytest.raises(InvalidConfiguration, match="exits: names .* the model has 4 layers"):
            exit_depths(wrong, deep)


def test_inner_layers_count_as_one(deep):
    torch.manual_seed(0)
    model = AlbertForSequenceClassification(replace(deep, inner_group_num=2), 2).eval()
    packed = pack([np.arange(5, 15)], [np.zeros(10, np.int64)])
    with torch.inference_mode():
        for depth, logits in zip((1, 3, 4), MultiExitModel(model, (1, 3, 4))(packed), strict=True):
            set_depth(model, depth)
            assert torch.equal(model(packed), logits)
            set_depth(model, 4)
