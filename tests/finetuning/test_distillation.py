"""Learning from a teacher, and with a frozen encoder."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.tiny import short_task
from torch.nn import functional

from albert.checkpoints.model_directory import open_model, save_model_directory
from albert.finetuning import objective as frozen_encoder
from albert.finetuning.data import TaskBatches, read_examples
from albert.finetuning.evaluation import ComputeOptions
from albert.finetuning.model import PretrainedEncoder, head_kind
from albert.finetuning.objective import (
    Distillation,
    DistillationLoss,
    open_teacher,
    soft_loss,
    task_loss,
    training_setup,
)
from albert.finetuning.run import finetune
from albert.finetuning.run_record import FinetuningSettings
from albert.finetuning.seeds import finetune_seeds
from albert.model.albert import AlbertForMultipleChoice, AlbertForQuestionAnswering, AlbertForSequenceClassification
from albert.model.encoder import Encoder
from albert.model.packing import pack
from albert.runtime.errors import CannotCreate, InvalidConfiguration, UsageError
from albert.tasks.examples import join_sequences
from albert.tasks.submission import DECLARED

# --------------------------------------------------------------------------------------------------------------------
# A teacher is asked once an example, its labels matched by name; students of it end the same after a stop.


CPU = ComputeOptions(torch.device("cpu"))


@pytest.fixture
def short(data):
    return short_task(steps=6)


@pytest.fixture
def teacher(config, other_tokenizer_directory, tmp_path):
    """A deeper classifier with another tokenizer, whose labels come in the other order."""
    torch.manual_seed(5)
    model = AlbertForSequenceClassification(replace(config, num_hidden_layers=5, initializer_range=0.3), 2)
    names = {0: "positive", 1: "negative"}
    save_model_directory(tmp_path / "teacher", model, other_tokenizer_directory, extra={"id2label": names})
    return str(tmp_path / "teacher")


def test_soft_losses_by_their_formulas():
    draws = torch.Generator().manual_seed(0)
    ours, theirs = (torch.randn(5, 3, generator=draws) for _ in range(2))
    classes = torch.zeros(5, dtype=torch.int64)
    p, q = (theirs / 3).softmax(1), (ours / 3).softmax(1)
    torch.testing.assert_close(soft_loss(ours, theirs, classes, 3.0), 9 * -(p * q.log()).sum())
    flags = torch.zeros(5, 3)
    p, q = (theirs / 3).sigmoid(), (ours / 3).sigmoid()
    binary = -(p * q.log() + (1 - p) * (1 - q).log())
    torch.testing.assert_close(soft_loss(ours, theirs, flags, 3.0), 9 * binary.mean(1).sum())
    numbers = torch.zeros(5)
    found = soft_loss(ours[:, :1], theirs[:, :1], numbers, 3.0)
    torch.testing.assert_close(found, (ours[:, 0] - theirs[:, 0]).square().sum())


def test_a_teacher_answers_in_the_order_of_the_task_with_its_own_tokenizer(short, data, teacher):
    examples, _ = read_examples(short, data / "choice", "train")
    opened = open_teacher(short, Distillation(teacher=teacher), examples)
    logits = opened.logits(CPU)
    assert logits.shape == (16, 2) and opened.opened.label_columns == [1, 0]
    model, tokenizer = opened.opened.model.eval(), opened.opened.tokenizer
    assert tokenizer.vocab_size == 300
    ids = np.array([tokenizer.cls_id, *tokenizer.encode(examples[3].texts[0]), tokenizer.sep_id])
    with torch.inference_mode():
        alone = model(pack([ids], [np.zeros_like(ids)]))[0].numpy()
    np.testing.assert_allclose(logits[3], alone[[1, 0]], atol=1e-5)


def test_the_loss_is_that_of_labels_and_teacher_by_weight(short, data, teacher, pretrained, tmp_path, monkeypatch):
    seen = []
    one_exit = DistillationLoss._exit_loss

    def keep(self, output, batch):
        sums = one_exit(self, output, batch)
        hard = functional.cross_entropy(output, batch.targets, reduction="sum")
        soft = soft_loss(output, batch.teacher, batch.targets, 4.0)
        seen.append((sums.losses["choice"].item(), (0.25 * hard + 0.75 * soft).item()))
        return sums

    monkeypatch.setattr(DistillationLoss, "_exit_loss", keep)
    calls = []
    forward = Encoder.forward
    monkeypatch.setattr(Encoder, "forward", lambda *given: calls.append(given[2].n_sequences) or forward(*given))
    settings = FinetuningSettings(
        device="cpu", distillation=Distillation(teacher=teacher, temperature=4.0, weight=0.75)
    )
    result = finetune(short, PretrainedEncoder(str(pretrained)), data / "choice", tmp_path / "run", settings=settings)
    assert len(seen) == 6
    for found, expected in seen:
        assert found == pytest.approx(expected, rel=1e-5)
    assert sum(calls) == 32, "the teacher once over the training set, the student once over the development set"
    kept = json.loads((tmp_path / "run/recipe.json").read_text())["settings"]["distillation"]
    assert kept["teacher"] == "/".join(Path(teacher).parts[-2:]) and kept["temperature"] == 4.0
    assert any(note.startswith(f"learns from {kept['teacher']}") for note in result.report["notes"])


def test_runs_of_several_seeds_ask_the_teacher_once(short, data, teacher, pretrained, tmp_path, monkeypatch):
    calls = []
    forward = Encoder.forward
    monkeypatch.setattr(Encoder, "forward", lambda *given: calls.append(given[2].n_sequences) or forward(*given))
    settings = FinetuningSettings(device="cpu", distillation=Distillation(teacher=teacher))
    run = (short, PretrainedEncoder(str(pretrained)), data / "choice")
    seeds = finetune_seeds(*run, tmp_path / "seeds", None, settings, 2)
    assert sum(calls) == 48, "the teacher once over the training set, each student once over the development set"
    alone = finetune(*run, tmp_path / "alone", settings=replace(settings, seed=1))
    one, other = (Path(d, "model.safetensors") for d in (seeds.runs[1].directory / "model", alone.model_directory))
    assert one.read_bytes() == other.read_bytes()


def test_another_question_is_asked_anew(short, data, teacher):
    examples, _ = read_examples(short, data / "choice", "train")
    said = {}

    def logits(some, computing=CPU):
        return open_teacher(short, Distillation(teacher=teacher), some, said).logits(computing)

    whole, turned = logits(examples), logits(examples[::-1])
    assert len(said) == 2
    np.testing.assert_allclose(turned[::-1], whole, atol=1e-5)
    assert logits(examples) is whole and len(said) == 2
    logits(examples, ComputeOptions(torch.device("cpu"), "bf16"))
    assert len(said) == 3


def test_a_teacher_has_a_revision(short, data, teacher, pretrained, tmp_path):
    asked = Distillation(teacher=teacher, revision="v1.0")
    assert asked.source == "/".join(Path(teacher).parts[-2:]) + "@v1.0"
    with pytest.raises(UsageError, match=r"revision: 'v1\.0' of .*teacher, which is a directory"):
        finetune(
            short,
            PretrainedEncoder(str(pretrained)),
            data / "choice",
            tmp_path / "run",
            settings=FinetuningSettings(device="cpu", distillation=asked),
        )


@pytest.mark.parametrize("name", ["sst-2", "race", "sts-b"])
def test_an_interrupted_student_goes_on_to_the_same_weights(
    name, data, config, tokenizer_directory, pretrained, tmp_path, interrupted
):
    torch.manual_seed(6)
    kinds = {
        "sst-2": lambda: AlbertForSequenceClassification(config, 2),
        "sts-b": lambda: AlbertForSequenceClassification(config, 1),
        "race": lambda: AlbertForMultipleChoice(config),
    }
    labels = {"sst-2": {"id2label": {0: "negative", 1: "positive"}}}.get(name, {})
    save_model_directory(tmp_path / "teacher", kinds[name](), tokenizer_directory, extra=labels)
    task = DECLARED[name]
    recipe = replace(task.recipe, steps=6, examples=None, batch_size=4, learning_rate=1e-3, max_length=32)
    task = replace(task, recipe=replace(recipe, question_length=8))
    folder = {"sst-2": data / "choice", "sts-b": data / "score"}.get(name, data)
    run = (task, PretrainedEncoder(str(pretrained)), folder)
    settings = FinetuningSettings(
        device="cpu",
        checkpoint_every=2,
        exits="every",
        distillation=Distillation(teacher=str(tmp_path / "teacher")),
    )
    whole = finetune(*run, tmp_path / "whole", settings=settings)
    with interrupted(4, distilled=True):
        finetune(*run, tmp_path / "cut", settings=settings)
    resumed = finetune(*run, tmp_path / "cut", settings=settings)
    one, two = (Path(each.model_directory, "model.safetensors").read_bytes() for each in (whole, resumed))
    assert one == two


def test_another_teacher_is_another_run(short, data, teacher, config, pretrained, tmp_path):
    run = (short, PretrainedEncoder(str(pretrained)), data / "choice", tmp_path / "run")
    settings = FinetuningSettings(device="cpu", distillation=Distillation(teacher=teacher))
    finetune(*run, settings=settings)
    assert finetune(*run, settings=settings).already_complete
    torch.manual_seed(7)
    another = AlbertForSequenceClassification(config, 2)
    extra = {"id2label": {0: "positive", 1: "negative"}}
    save_model_directory(Path(teacher), another, Path(teacher), extra=extra, replace=True)
    with pytest.raises(CannotCreate, match="holds a finished run with another teacher"):
        finetune(*run, settings=settings)


def test_who_cannot_teach_is_refused_before_anything_is_written(
    short, data, config, tokenizer_directory, pretrained, tmp_path
):
    start, output = PretrainedEncoder(str(pretrained)), tmp_path / "run"
    three = AlbertForSequenceClassification(config, 3)
    save_model_directory(tmp_path / "three", three, tokenizer_directory)
    settings = FinetuningSettings(device="cpu", distillation=Distillation(teacher=str(tmp_path / "three")))
    with pytest.raises(InvalidConfiguration, match="has the labels LABEL_0, LABEL_1, LABEL_2; the task has"):
        finetune(short, start, data / "choice", output, settings=settings)
    save_model_directory(tmp_path / "spans", AlbertForQuestionAnswering(config), tokenizer_directory)
    settings = FinetuningSettings(device="cpu", distillation=Distillation(teacher=str(tmp_path / "spans")))
    with pytest.raises(InvalidConfiguration, match="teacher: must produce one output per sequence"):
        finetune(DECLARED["squad-1.1"], start, data, output, settings=settings)
    assert not output.exists()
    for wrong in ({"temperature": 0.0}, {"weight": 0.0}, {"weight": 1.5}):
        with pytest.raises(InvalidConfiguration, match="distillation"):
            Distillation(teacher="t", **wrong)


# --------------------------------------------------------------------------------------------------------------------
# Above a frozen encoder pooler and head learn from states that are computed once; a stopped run ends the same.


SETTINGS = FinetuningSettings(device="cpu", freeze_encoder=True, checkpoint_every=2)


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
        monkeypatch.setattr(frozen_encoder, "MAX_STATE_BYTES", 0)
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
def test_an_interrupted_frozen_run_goes_on_to_the_same_weights(name, data, pretrained, tmp_path, interrupted):
    task, start = a_short(name), PretrainedEncoder(str(pretrained))
    folder = {"sst-2": data / "choice"}.get(name, data)
    whole = finetune(task, start, folder, tmp_path / "whole", settings=SETTINGS)
    with interrupted(4, distilled=True):
        finetune(task, start, folder, tmp_path / "cut", settings=SETTINGS)
    resumed = finetune(task, start, folder, tmp_path / "cut", settings=SETTINGS)
    one, two = (Path(each.model_directory, "model.safetensors").read_bytes() for each in (whole, resumed))
    assert one == two
    assert open_model(resumed.model_directory, head_kind(task.target)).config.num_hidden_layers == 2
