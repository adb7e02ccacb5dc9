"""Teachers, and frozen encoders."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.finetuning.conftest import folder_of, weights_of
from tests.refusals import refusal
from tests.tiny import short_task
from torch.nn import functional

from albert.checkpoints.hub import model_name
from albert.checkpoints.model_directory import open_model, save_model_directory
from albert.cli.main import run
from albert.finetuning import objective
from albert.finetuning.batches import TaskBatches, read_examples
from albert.finetuning.evaluation import ComputeOptions
from albert.finetuning.objective import TaskLoss, open_teacher, training_setup
from albert.finetuning.sweep import run_sweep, seed_variants
from albert.finetuning.task_run import finetune
from albert.model.albert import (
    AlbertForMultipleChoice,
    AlbertForQuestionAnswering,
    AlbertForSequenceClassification,
)
from albert.model.encoder import Encoder
from albert.model.packing import pack
from albert.recipes.finetuning import Distillation, FinetuningSettings
from albert.runtime.errors import CannotCreate, InvalidConfiguration, MissingInput
from albert.runtime.json_files import read_json_object
from albert.tasks.examples import join_sequences
from albert.tasks.multi_label import MultiLabel
from albert.tasks.multiple_choice import MultipleChoice
from albert.tasks.regression import Regression
from albert.tasks.single_label import SingleLabel
from albert.tasks.span import Span
from albert.tasks.submission import DECLARED

SHORT = short_task(steps=6)

CLASSES = SingleLabel(("a", "b"), "y")
CPU = ComputeOptions(torch.device("cpu"))
PLAIN = FinetuningSettings(device="cpu")


@pytest.fixture
def batches_of():
    """Batches of random sequences with these targets."""

    def make(targets, term, n_options=1):
        draws = np.random.default_rng(0)
        lengths = (8, 12, 9, 30)[: len(targets) * n_options]
        sequences = join_sequences([(draws.integers(5, 300, n).tolist(), n // 2) for n in lengths])
        example_of, slot_of = np.divmod(np.arange(len(targets) * n_options), n_options)
        several = {} if n_options == 1 else {"example_of": example_of, "slot_of": slot_of}
        return TaskBatches(sequences, targets, term, len(targets), 0, 8192, **several)

    return make


# --------------------------------------------------------------------------------------------------------------------
# Teachers.


@pytest.fixture
def teacher(config, other_tokenizer_directory, tmp_path):
    """A deeper classifier with another tokenizer and the labels in reverse order."""
    torch.manual_seed(5)
    model = AlbertForSequenceClassification(replace(config, num_hidden_layers=5, initializer_range=0.3), 2)
    names = {0: "positive", 1: "negative"}
    save_model_directory(tmp_path / "teacher", model, other_tokenizer_directory, extra={"id2label": names})
    return str(tmp_path / "teacher")


@pytest.fixture
def taught(teacher):
    return replace(PLAIN, distillation=Distillation(teacher=teacher, temperature=4.0, weight=0.75))


def test_soft_losses_by_their_formulas():
    draws = torch.Generator().manual_seed(0)
    ours, theirs = (torch.randn(5, 3, generator=draws) for _ in range(2))
    p, q = (theirs / 3).softmax(1), (ours / 3).softmax(1)
    torch.testing.assert_close(CLASSES.soft_loss(ours, theirs, 3.0), 9 * -(p * q.log()).sum())
    p, q = (theirs / 3).sigmoid(), (ours / 3).sigmoid()
    binary = -(p * q.log() + (1 - p) * (1 - q).log())
    torch.testing.assert_close(MultiLabel(("a", "b", "c"), "y").soft_loss(ours, theirs, 3.0), 9 * binary.mean(1).sum())
    squares = (ours[:, 0] - theirs[:, 0]).square().sum()
    torch.testing.assert_close(Regression("y").soft_loss(ours[:, :1], theirs[:, :1], 3.0), squares)


def test_teacher_uses_its_own_tokenizer_and_the_order_of_the_task(data, teacher):
    examples, _ = read_examples(SHORT, data / "choice", "train")
    opened = open_teacher(SHORT, Distillation(teacher=teacher), examples)
    logits = opened.logits(CPU)
    assert logits.shape == (16, 2) and opened.opened.label_columns == [1, 0]
    model, tokenizer = opened.opened.model.eval(), opened.opened.tokenizer
    assert tokenizer.vocab_size == 300
    ids = np.array([tokenizer.cls_id, *tokenizer.encode(examples[3].texts[0]), tokenizer.sep_id])
    with torch.inference_mode():
        alone = model(pack([ids], [np.zeros_like(ids)]))[0].numpy()
    np.testing.assert_allclose(logits[3], alone[[1, 0]], atol=1e-5)


def test_loss_weighs_labels_and_teacher(data, taught, start, tmp_path, monkeypatch):
    losses, sequences = [], []
    forward, call = Encoder.forward, TaskLoss.__call__

    def record(self, model, batch):
        outputs = []
        hook = model.register_forward_hook(lambda _, inputs, output: outputs.append(output.detach()))
        sums = call(self, model, batch)
        hook.remove()
        hard = functional.cross_entropy(outputs[0], batch.targets, reduction="sum")
        soft = CLASSES.soft_loss(outputs[0], batch.teacher, 4.0)
        losses.append((sums.losses["choice"].item(), (0.25 * hard + 0.75 * soft).item()))
        return sums

    monkeypatch.setattr(TaskLoss, "__call__", record)
    monkeypatch.setattr(Encoder, "forward", lambda *args: sequences.append(args[2].n_sequences) or forward(*args))
    result = finetune(SHORT, start, data / "choice", tmp_path / "run", settings=taught)
    assert len(losses) == 6
    for loss, expected in losses:
        assert loss == pytest.approx(expected, rel=1e-5)
    # the teacher once over the training set, the student in 6 updates of 4, over the development set and training rows
    assert sum(sequences) == 16 + 6 * 4 + 16 + 16
    recorded = read_json_object(tmp_path / "run/recipe.json")["settings"]["distillation"]
    teacher = Path(taught.distillation.teacher)
    assert recorded["teacher"] == "/".join(teacher.parts[-2:]) and recorded["temperature"] == 4.0
    assert any(note.startswith(f"learns from {recorded['teacher']}") for note in result.report["notes"])


def test_seeds_share_the_logits_of_the_teacher(data, taught, start, tmp_path, monkeypatch):
    sequences, forward = [], Encoder.forward
    monkeypatch.setattr(Encoder, "forward", lambda *args: sequences.append(args[2].n_sequences) or forward(*args))
    variants = seed_variants(SHORT, None, taught, 2)
    seeds = run_sweep("seed", SHORT, variants, start, data / "choice", tmp_path / "seeds")
    # the teacher once over the training set, each student in 6 updates of 4, over the development set and training rows
    assert sum(sequences) == 16 + 2 * (6 * 4 + 16 + 16)
    alone = finetune(SHORT, start, data / "choice", tmp_path / "alone", settings=replace(taught, seed=1))
    assert (seeds.runs[1].directory / "model/model.safetensors").read_bytes() == weights_of(alone)


def test_another_teacher_is_another_run(data, taught, teacher, config, start, tmp_path):
    finetune(SHORT, start, data / "choice", tmp_path / "run", settings=taught)
    assert finetune(SHORT, start, data / "choice", tmp_path / "run", settings=taught).already_complete
    torch.manual_seed(7)
    another, extra = AlbertForSequenceClassification(config, 2), {"id2label": {0: "positive", 1: "negative"}}
    save_model_directory(Path(teacher), another, Path(teacher), extra=extra, replace=True)
    with refusal(CannotCreate, "teacher"):
        finetune(SHORT, start, data / "choice", tmp_path / "run", settings=taught)


def test_invalid_teacher_leaves_no_directory(data, teacher, config, tokenizer_directory, start, tmp_path):
    def learn(task, folder, **distillation):
        settings = replace(PLAIN, distillation=Distillation(**distillation))
        finetune(task, start, folder, tmp_path / "run", settings=settings)

    save_model_directory(tmp_path / "three", AlbertForSequenceClassification(config, 3), tokenizer_directory)
    with refusal(InvalidConfiguration, "LABEL_0, LABEL_1, LABEL_2"):
        learn(SHORT, data / "choice", teacher=str(tmp_path / "three"))
    save_model_directory(tmp_path / "spans", AlbertForQuestionAnswering(config), tokenizer_directory)
    with refusal(InvalidConfiguration, "teacher"):
        learn(DECLARED["squad-1.1"], data, teacher=str(tmp_path / "spans"))
    assert model_name("someone/tiny@v1.0") == "someone/tiny@v1.0"
    with refusal(MissingInput, "v1.0", "teacher"):
        learn(SHORT, data / "choice", teacher=f"{teacher}@v1.0")
    assert not (tmp_path / "run").exists()
    for invalid in ({"temperature": 0.0}, {"weight": 0.0}, {"weight": 1.5}):
        with refusal(InvalidConfiguration, "distillation"):
            Distillation(teacher="t", **invalid)


# --------------------------------------------------------------------------------------------------------------------
# Frozen encoders.


@pytest.mark.parametrize("kind", ["classification", "multiple_choice", "question_answering"])
@pytest.mark.parametrize("kept", [True, False])
def test_frozen_encoder_gives_the_loss_and_gradients_of_one_without_dropout(
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
        monkeypatch.setattr(objective, "MAX_STATE_BYTES", 0)
    target = {"question_answering": Span(), "multiple_choice": MultipleChoice(("A", "B"), "y")}.get(kind, CLASSES)
    batches = batches_of(targets, target.term, n_options)
    setup = training_setup(model, target, batches, CPU, freeze_encoder=True)
    assert ("computed once" in setup.notes[0]) == kept
    (frozen_batch,), (batch,) = setup.source.micro_batches(0, 0, 1), batches.micro_batches(0, 0, 1)
    result, expected = setup.objective(setup.module.train(), frozen_batch), TaskLoss(target)(reference, batch)
    for sums in (result, expected):
        sum(sums.losses.values()).backward()
    torch.testing.assert_close(result.losses, expected.losses)
    assert result.correct == expected.correct
    gradients = {name: p.grad for name, p in reference.named_parameters()}
    for name, parameter in model.named_parameters():
        if name.startswith(("albert.embeddings", "albert.encoder")):
            assert parameter.grad is None
        else:
            torch.testing.assert_close(parameter.grad, gradients[name], msg=name)


def test_frozen_encoder_runs_once_per_example_and_is_not_changed(data, pretrained, start, tmp_path, monkeypatch):
    sequences, forward = [], Encoder.forward
    monkeypatch.setattr(Encoder, "forward", lambda *args: sequences.append(args[2].n_sequences) or forward(*args))
    settings = replace(PLAIN, freeze_encoder=True)
    result = finetune(SHORT, start, data / "choice", tmp_path / "run", settings=settings)
    assert sum(sequences) == 48  # the training rows for the updates, then development and training rows for the scores
    assert "the encoder is frozen, its states are computed once" in result.report["notes"]
    before = open_model(pretrained, "encoder").model.state_dict()
    after = open_model(result.model_directory, "classification").model.albert.state_dict()
    for name, tensor in before.items():
        assert torch.equal(tensor, after[name]) != name.startswith("pooler"), name


# --------------------------------------------------------------------------------------------------------------------
# Resumed runs, and the command line.


@pytest.mark.parametrize(
    ("name", "frozen"),
    [("sst-2", True), ("race", True), ("squad-2.0", True), ("sst-2", False), ("sts-b", False), ("race", False)],
)
def test_resumed_run_has_the_same_weights(
    name, frozen, data, config, tokenizer_directory, start, tmp_path, complete_and_resumed
):
    """With a frozen encoder, or with a teacher."""
    torch.manual_seed(6)
    settings = replace(PLAIN, checkpoint_every=2, freeze_encoder=frozen)
    if not frozen:
        outputs = {"sst-2": 2, "sts-b": 1}
        teacher = (
            AlbertForSequenceClassification(config, outputs[name])
            if name in outputs
            else AlbertForMultipleChoice(config)
        )
        labels = {"id2label": {0: "negative", 1: "positive"}} if name == "sst-2" else {}
        save_model_directory(tmp_path / "teacher", teacher, tokenizer_directory, extra=labels)
        distillation = Distillation(teacher=str(tmp_path / "teacher"))
        settings = replace(settings, distillation=distillation)
    task = short_task(name, steps=6, question_length=8, stride=8, encoder_dropout=0.1)
    _, resumed = complete_and_resumed(task, start, folder_of(name, data), settings, 4)
    assert read_json_object(resumed.model_directory / "config.json")["num_hidden_layers"] == 2


def test_deep_teacher_and_shallow_student_from_the_command_line(command, data, tmp_path, capsys):
    assert run(command("sst-2", data / "choice", "teacher", "depth=5", "freeze_encoder=true")) == 0
    teacher = read_json_object(tmp_path / "teacher/recipe.json")
    assert teacher["changes"] == {"num_hidden_layers": 5} and teacher["settings"]["freeze_encoder"]
    student = command("sst-2", data / "choice", "student", "depth=3", "--teacher", str(tmp_path / "teacher"))
    assert run([*student, "distillation.temperature=4"]) == 0
    settings = read_json_object(tmp_path / "student/recipe.json")["settings"]
    assert settings["distillation"]["temperature"] == 4
    capsys.readouterr()
    evaluate = ["evaluate", "sst-2", "--model", str(tmp_path / "student"), "--data", str(data / "choice")]
    assert run([*evaluate, "--device", "cpu", "--depth", "1", "3", "6"]) == 0
    assert "trained at depth 3" in capsys.readouterr().out
    predict = ["predict", str(tmp_path / "student"), "--classify", "the ship saw the storm", "--device", "cpu"]
    assert run([*predict, "--depth", "1"]) == 0
    assert "1 layer\n" in capsys.readouterr().err
