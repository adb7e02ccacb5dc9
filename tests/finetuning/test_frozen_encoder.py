"""Above a frozen encoder pooler and head learn from states that are computed once; a stopped run ends the same."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from albert.checkpoints.model_directory import open_model
from albert.finetuning import objective as frozen_encoder
from albert.finetuning.data import TaskBatches
from albert.finetuning.evaluation import Computing
from albert.finetuning.model import PretrainedEncoder, head_kind
from albert.finetuning.objective import DistillationLoss, task_loss, training_setup
from albert.finetuning.run import finetune
from albert.finetuning.run_record import FinetuningSettings
from albert.model.albert import AlbertForMultipleChoice, AlbertForQuestionAnswering, AlbertForSequenceClassification
from albert.model.encoder import Encoder
from albert.tasks.features import join_sequences
from albert.tasks.submission import DECLARED

SETTINGS = FinetuningSettings(device="cpu", freeze_encoder=True, checkpoint_every=2)
CPU = Computing(torch.device("cpu"))


def a_short(name):
    task = DECLARED[name]
    recipe = replace(task.recipe, steps=6, examples=None, batch_size=4, learning_rate=1e-2, encoder_dropout=0.1)
    return replace(task, recipe=replace(recipe, max_length=32, question_length=8, stride=8))


@pytest.fixture
def batches_of():
    """Batches of random sequences for a head of a kind."""

    def make(targets, term, n_options=1):
        draws = np.random.default_rng(0)
        lengths = (8, 12, 9, 30)
        sequences = join_sequences([(draws.integers(5, 300, n).tolist(), n // 2) for n in lengths])
        return TaskBatches(sequences, targets, term, len(targets), 0, 8192, n_options)

    return make


@pytest.mark.parametrize("kind", ["classification", "multiple_choice", "question_answering"])
@pytest.mark.parametrize("kept", [True, False])
def test_known_states_give_the_loss_and_gradients_of_a_pass_without_dropout(
    config, batches_of, monkeypatch, kind, kept
):
    torch.manual_seed(0)
    dropping = replace(config, hidden_dropout_prob=0.3, attention_probs_dropout_prob=0.3, classifier_dropout_prob=0.0)
    plain = replace(dropping, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    models = {
        "classification": (lambda c: AlbertForSequenceClassification(c, 3), np.array([0, 2, 1, 1]), 1),
        "multiple_choice": (AlbertForMultipleChoice, np.array([1, 0]), 2),
        "question_answering": (AlbertForQuestionAnswering, np.array([[5, 6], [7, 7], [5, 8], [0, 0]]), 1),
    }
    build, targets, n_options = models[kind]
    model, reference = build(dropping).train(), build(plain).train()
    reference.load_state_dict(model.state_dict())
    if not kept:
        monkeypatch.setattr(frozen_encoder, "MOST_BYTES", 0)
    batches = batches_of(targets, "span" if targets.ndim == 2 else "choice", n_options)
    way = training_setup(model, batches, (2,), CPU, freeze_encoder=True)
    assert ("computed once" in way.notes[0]) == kept
    (taught,), (batch,) = way.source.micro_batches(0, 0, 1), batches.micro_batches(0, 0, 1)
    found, expected = way.objective(way.module.train(), taught), task_loss(reference, batch)
    for sums in (found, expected):
        sum(sums.losses.values()).backward()
    torch.testing.assert_close(found.losses, expected.losses)
    assert found.correct == expected.correct
    gradients = {name: p.grad for name, p in reference.named_parameters()}
    for name, parameter in model.named_parameters():
        if name.startswith(("albert.embeddings", "albert.encoder")):
            assert parameter.grad is None
        else:
            torch.testing.assert_close(parameter.grad, gradients[name], msg=name)


def test_the_encoder_reads_each_example_once_and_stays_as_it_was(data, pretrained, tmp_path, monkeypatch):
    read = []
    each_layer = Encoder.each_layer
    monkeypatch.setattr(
        Encoder, "each_layer", lambda *given, **named: read.append(given[2].n_sequences) or each_layer(*given, **named)
    )
    result = finetune(
        a_short("sst-2"), PretrainedEncoder(str(pretrained)), data / "choice", tmp_path / "run", settings=SETTINGS
    )
    assert sum(read) == 16
    assert "the encoder is frozen, its states are computed once" in result.report["notes"]
    before = open_model(pretrained, "encoder").model.state_dict()
    after = open_model(result.model_directory, "classification").model.albert.state_dict()
    for name, tensor in before.items():
        assert torch.equal(tensor, after[name]) != name.startswith("pooler"), name


@pytest.mark.parametrize("name", ["sst-2", "race", "squad-2.0"])
def test_an_interrupted_frozen_run_goes_on_to_the_same_weights(name, data, pretrained, tmp_path, monkeypatch):
    task, start = a_short(name), PretrainedEncoder(str(pretrained))
    folder = {"sst-2": data / "choice"}.get(name, data)
    whole = finetune(task, start, folder, tmp_path / "whole", settings=SETTINGS)
    stop_at(monkeypatch, step=4)
    with pytest.raises(KeyboardInterrupt):
        finetune(task, start, folder, tmp_path / "cut", settings=SETTINGS)
    monkeypatch.undo()
    resumed = finetune(task, start, folder, tmp_path / "cut", settings=SETTINGS)
    one, two = (Path(each.model_directory, "model.safetensors").read_bytes() for each in (whole, resumed))
    assert one == two
    assert open_model(resumed.model_directory, head_kind(task.target)).config.num_hidden_layers == 2


def stop_at(monkeypatch, step):
    inner, calls = DistillationLoss.__call__, []

    def loss(self, model, batch):
        calls.append(batch)
        if len(calls) > step:
            raise KeyboardInterrupt
        return inner(self, model, batch)

    monkeypatch.setattr(DistillationLoss, "__call__", loss)
