"""Changes of a model before fine-tuning: architecture, positions, head."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from tests.refusals import refusal
from tests.tiny import short_task

from albert.checkpoints.model_directory import open_model, save_model_directory
from albert.cli.main import run
from albert.finetuning.initial_model import PretrainedEncoder, initial_model
from albert.finetuning.task_run import finetune
from albert.model.albert import AlbertForQuestionAnswering, AlbertForSequenceClassification
from albert.model.packing import pack
from albert.recipes.architecture import ArchitectureChanges
from albert.recipes.finetuning import FinetuningSettings
from albert.runtime.errors import CannotCreate, InvalidConfiguration
from albert.runtime.json_files import read_json_object
from albert.tasks.regression import Regression
from albert.tasks.single_label import SingleLabel
from albert.tasks.span import Span
from albert.tasks.submission import DECLARED

SHORT = short_task(steps=4)

CPU = FinetuningSettings(device="cpu")
ENTAILMENT = SingleLabel(("entailment", "not_entailment"), "label")
THREE = SingleLabel(("neutral", "contradiction", "entailment"), "label")
MNLI = {0: "contradiction", 1: "entailment", 2: "neutral"}
RECIPE = replace(DECLARED["sst-2"].recipe, encoder_dropout=0.0)


@pytest.fixture(scope="module")
def mnli(config, tokenizer_directory, tmp_path_factory):
    """A classifier with MNLI's three classes, whose biases are not zero."""
    torch.manual_seed(2)
    model = AlbertForSequenceClassification(config, 3)
    torch.nn.init.normal_(model.classifier.bias)
    path = tmp_path_factory.mktemp("models") / "mnli"
    save_model_directory(path, model, tokenizer_directory, extra={"id2label": MNLI})
    return path


def logits(model, length=20):
    ids = np.random.default_rng(0).integers(5, 300, length)
    with torch.inference_mode():
        return model.eval()(pack([ids], [np.zeros_like(ids)]))


def test_head_of_another_task_is_replaced(mnli):
    initial = initial_model(PretrainedEncoder(str(mnli)), ENTAILMENT, RECIPE, seed=0)
    assert initial.model.classifier.out_features == 2
    assert any("newly initialised: classifier.weight" in note for note in initial.notes)
    source = open_model(mnli, "classification").model
    assert torch.equal(initial.model.albert.pooler.weight, source.albert.pooler.weight)


def keep_head(model, target):
    return initial_model(PretrainedEncoder(str(model), keep_head=True), target, RECIPE, seed=0)


def test_kept_head_is_reordered_to_the_labels_of_the_task(mnli):
    kept = keep_head(mnli, THREE)
    source = logits(open_model(mnli, "classification").model)
    torch.testing.assert_close(logits(kept.model), source[:, [2, 0, 1]])
    assert any("is kept" in note for note in kept.changed)
    assert not any("new, drawn" in note for note in kept.notes)
    digits = SingleLabel(("0", "1", "2"), "label", names=("entailment", "neutral", "contradiction"))
    torch.testing.assert_close(logits(keep_head(mnli, digits).model), source[:, [1, 2, 0]])


def test_heads_for_numbers_and_spans_can_be_kept(config, tokenizer_directory, tmp_path):
    models = {"score": AlbertForSequenceClassification(config, 1), "span": AlbertForQuestionAnswering(config)}
    for (name, model), target in zip(models.items(), (Regression("score"), Span()), strict=True):
        save_model_directory(tmp_path / name, model, tokenizer_directory)
        state = keep_head(tmp_path / name, target).model.state_dict()
        assert all(torch.equal(tensor, state[name]) for name, tensor in model.state_dict().items())


def test_head_that_cannot_be_kept_is_refused(mnli, pretrained, config, tokenizer_directory, tmp_path):
    nameless = tmp_path / "nameless"
    save_model_directory(nameless, AlbertForSequenceClassification(config, 2), tokenizer_directory)
    for model, target, subjects in (
        (mnli, ENTAILMENT, "labels contradiction, entailment, neutral"),
        (pretrained, ENTAILMENT, "head classifier.weight"),
        (mnli, Span(), "head qa_outputs"),
        (mnli, Regression("score"), "head 3 1"),
        (nameless, ENTAILMENT, "labels LABEL_0 LABEL_1"),
    ):
        with refusal(InvalidConfiguration, *subjects.split()):
            keep_head(model, target)


def test_sequences_are_limited_to_the_positions_unless_they_are_extended(start, tmp_path):
    long = "the sailor saw the storm and " * 30
    for split in ("train", "dev"):
        rows = "".join(f"{long} {n}\t{n % 2}\n" for n in range(8))
        (tmp_path / f"{split}.tsv").write_text("sentence\tlabel\n" + rows)
    recipe = replace(SHORT.recipe, max_length=160)
    cut = finetune(SHORT, start, tmp_path, tmp_path / "cut", recipe, CPU).report
    assert (
        "sequences of at most 64 tokens, not 160: architecture.max_position_embeddings makes more positions"
        in cut["notes"]
    )
    assert cut["training"]["truncated"] == 8
    changes = ArchitectureChanges(max_position_embeddings=192)
    result = finetune(SHORT, replace(start, changes=changes), tmp_path, tmp_path / "run", recipe, CPU)
    note = "64 → 192 positions, 64 trained ones repeated"
    assert note in result.report["notes"] and note in (result.model_directory / "README.md").read_text()
    assert result.report["training"]["tokens_cut"] < cut["training"]["tokens_cut"]
    saved = open_model(result.model_directory, "classification")
    assert saved.config.max_position_embeddings == 192 and saved.extra["max_sequence_length"] == 160


def test_untrained_positions_are_noted(data, config, tokenizer_directory, tmp_path):
    model = AlbertForSequenceClassification(config, 2)
    save_model_directory(tmp_path / "m", model, tokenizer_directory, extra={"max_sequence_length": 16})
    start = PretrainedEncoder(str(tmp_path / "m"))
    initial = initial_model(start, ENTAILMENT, RECIPE, seed=0)
    tiled = initial_model(
        replace(start, changes=ArchitectureChanges(extend_positions=True)), ENTAILMENT, RECIPE, seed=0
    )
    table = "albert.embeddings.position_embeddings.weight"
    assert torch.equal(tiled.model.state_dict()[table], initial.model.state_dict()[table][:16].repeat(4, 1))
    announced = {}
    result = finetune(SHORT, start, data / "choice", tmp_path / "run", settings=CPU, announce=announced.update)
    before = [line for line in announced["before_training"] if "positions from 16 on were never trained" in line]
    assert before and before[0] in result.report["notes"]
    short = replace(SHORT, recipe=replace(SHORT.recipe, max_length=16))
    result = finetune(short, start, data / "choice", tmp_path / "short", settings=CPU)
    assert not any("never trained" in note for note in result.report["notes"])
    result = finetune(SHORT, start, data / "choice", tmp_path / "run", settings=CPU)
    model = open_model(result.model_directory, "classification")
    assert model.extra["trained_positions"] == 17  # of the longest row, though up to 32 tokens are read


def test_run_with_changes_is_resumed_only_with_the_same_changes(
    data, start, tmp_path, interrupted, complete_and_resumed
):
    changes = ArchitectureChanges(sharing="none", num_hidden_layers=3)
    start, settings = replace(start, changes=changes), replace(CPU, checkpoint_every=2)
    gelu = replace(start, changes=replace(changes, hidden_act="gelu"))
    with interrupted(3):
        finetune(SHORT, start, data / "choice", tmp_path / "stopped", settings=settings)
    for other in (gelu, replace(start, changes=ArchitectureChanges())):
        with refusal(CannotCreate):
            finetune(SHORT, other, data / "choice", tmp_path / "stopped", settings=settings)
    complete_and_resumed(SHORT, start, data / "choice", settings, 0)
    with refusal(CannotCreate, "hidden_act"):
        finetune(SHORT, gelu, data / "choice", tmp_path / "complete")


@pytest.fixture
def command(data, pretrained, tmp_path):
    words = ["finetune", "sst-2", "--model", str(pretrained), "--data", str(data / "choice"), "--device", "cpu"]
    return [*words, "--output", str(tmp_path / "run")]


def test_all_options_from_the_command_line(command, tmp_path, capsys):
    command += ["steps=2", "batch_size=4", "max_length=70"]
    flags = [
        "depth=4",
        "architecture.sharing=attention",
        "architecture.num_attention_heads=4",
        "architecture.hidden_act=gelu",
    ]
    flags += ["architecture.max_position_embeddings=80", "architecture.extend_positions=true", "encoder_dropout=0.1"]
    assert run([*command, *flags]) == 0
    out = capsys.readouterr().out
    card = (tmp_path / "run/model/README.md").read_text(encoding="utf-8")
    for note in (
        "2 layers with sharing all → 4 layers with sharing attention (layer i begins as layer ⌊i·2/4⌋)",
        "64 → 80 positions, 64 trained ones repeated",
        "hidden_act gelu_new → gelu (the same weights compute another function)",
        "num_attention_heads 2 → 4 (the same weights compute another function)",
    ):
        assert note in out and note in card
    saved = open_model(tmp_path / "run", "classification").config
    assert (saved.num_hidden_layers, saved.sharing, saved.num_attention_heads) == (4, "attention", 4)
    assert (saved.hidden_act, saved.max_position_embeddings, saved.hidden_dropout_prob) == ("gelu", 80, 0.1)
    report = read_json_object(tmp_path / "run/results.json")
    assert report["changes"]["extend_positions"] is True and report["recipe"]["max_length"] == 70
    assert run([*command, *flags]) == 0 and "nothing was trained" in capsys.readouterr().out
    keep = ["keep_head=true", "--model", str(tmp_path / "run"), "--output", str(tmp_path / "kept")]
    assert run([*command, *keep]) == 0
    assert "the head of" in capsys.readouterr().out
