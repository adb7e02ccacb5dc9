"""A model changes before it learns a task: architecture, positions, head; each is told, and reproducible."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.tiny import short_task

from albert.checkpoints.model_directory import open_model, save_model_directory
from albert.cli.main import run
from albert.finetuning.model import PretrainedEncoder, start_model
from albert.finetuning.run import finetune
from albert.finetuning.run_record import FinetuningSettings
from albert.model.albert import AlbertForQuestionAnswering, AlbertForSequenceClassification
from albert.model.config import ArchitectureChanges
from albert.model.packing import pack
from albert.runtime.errors import CannotCreate, InvalidConfiguration
from albert.tasks.submission import DECLARED
from albert.tasks.task import Choice, Score, Span

CPU = FinetuningSettings(device="cpu")
ENTAILMENT = Choice(("entailment", "not_entailment"), "label")
THREE = Choice(("neutral", "contradiction", "entailment"), "label")
MNLI = {0: "contradiction", 1: "entailment", 2: "neutral"}
RECIPE = replace(DECLARED["sst-2"].recipe, encoder_dropout=0.0)


@pytest.fixture
def short(data):
    return short_task(steps=4)


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


def changed(model, **changes):
    start = PretrainedEncoder(str(model), changes=ArchitectureChanges(**changes))
    return start_model(start, ENTAILMENT, RECIPE, seed=0)


def test_the_head_of_another_task_is_left_and_a_new_one_said(mnli):
    started = start_model(PretrainedEncoder(str(mnli)), ENTAILMENT, RECIPE, seed=0)
    assert started.model.classifier.out_features == 2
    assert any("new, drawn at random: classifier.weight" in note for note in started.notes)
    source = open_model(mnli, "classification").model
    assert torch.equal(started.model.albert.pooler.weight, source.albert.pooler.weight)


def test_a_kept_head_has_its_outputs_in_the_order_of_the_tasks_labels(mnli):
    kept = start_model(PretrainedEncoder(str(mnli), keep_head=True), THREE, RECIPE, seed=0)
    source = logits(open_model(mnli, "classification").model)
    torch.testing.assert_close(logits(kept.model), source[:, [2, 0, 1]])
    assert any("is kept" in note for note in kept.changed)
    assert not any("new, drawn" in note for note in kept.notes)
    digits = Choice(("0", "1", "2"), "label", names=("entailment", "neutral", "contradiction"))
    by_words = start_model(PretrainedEncoder(str(mnli), keep_head=True), digits, RECIPE, seed=0)
    torch.testing.assert_close(logits(by_words.model), source[:, [1, 2, 0]])


def test_a_head_for_numbers_and_one_for_spans_are_kept_as_they_are(config, tokenizer_directory, tmp_path):
    models = {"score": AlbertForSequenceClassification(config, 1), "span": AlbertForQuestionAnswering(config)}
    for (name, model), target in zip(models.items(), (Score("score"), Span()), strict=True):
        save_model_directory(tmp_path / name, model, tokenizer_directory)
        kept = start_model(PretrainedEncoder(str(tmp_path / name), keep_head=True), target, RECIPE, seed=0)
        state = kept.model.state_dict()
        assert all(torch.equal(tensor, state[name]) for name, tensor in model.state_dict().items())


def test_a_head_that_cannot_be_kept_is_refused_with_the_reason(mnli, pretrained, config, tokenizer_directory, tmp_path):
    def keep(model, target):
        return start_model(PretrainedEncoder(str(model), keep_head=True), target, RECIPE, seed=0)

    with pytest.raises(
        InvalidConfiguration, match="head for contradiction, entailment, neutral, not for entailment, n"
    ):
        keep(mnli, ENTAILMENT)
    with pytest.raises(InvalidConfiguration, match=r"has no head to keep \(classifier\.weight"):
        keep(pretrained, ENTAILMENT)
    with pytest.raises(InvalidConfiguration, match=r"has no head to keep \(qa_outputs"):
        keep(mnli, Span())
    with pytest.raises(InvalidConfiguration, match="has a head with 3 outputs, a number needs 1"):
        keep(mnli, Score("score"))
    save_model_directory(tmp_path / "nameless", AlbertForSequenceClassification(config, 2), tokenizer_directory)
    with pytest.raises(InvalidConfiguration, match="has a head for LABEL_0, LABEL_1, not for entailment"):
        keep(tmp_path / "nameless", ENTAILMENT)


def test_longer_sequences_than_the_model_had_positions_for(short, data, pretrained, tmp_path):
    long = "the sailor saw the storm and " * 30
    for split in ("train", "dev"):
        rows = "".join(f"{long} {n}\t{n % 2}\n" for n in range(8))
        (tmp_path / f"{split}.tsv").write_text("sentence\tlabel\n" + rows)
    recipe = replace(short.recipe, max_length=160)
    cut = finetune(short, PretrainedEncoder(str(pretrained)), tmp_path, tmp_path / "cut", recipe, CPU)
    assert (
        "sequences of at most 64 tokens, not 160: --max-position-embeddings makes more positions" in cut.report["notes"]
    )
    assert cut.report["training"]["truncated"] == 8
    changes = ArchitectureChanges(max_position_embeddings=192, extend_positions="interpolate")
    start = PretrainedEncoder(str(pretrained), changes=changes)
    result = finetune(short, start, tmp_path, tmp_path / "run", recipe, CPU)
    note = "64 → 192 positions, 64 trained ones extended by interpolate"
    assert note in result.report["notes"] and note in (result.model_directory / "README.md").read_text()
    assert result.report["training"]["tokens_cut"] < cut.report["training"]["tokens_cut"]
    saved = open_model(result.model_directory, "classification")
    assert saved.config.max_position_embeddings == 192 and saved.extra["max_sequence_length"] == 160


def test_positions_that_were_never_trained_are_said(short, data, config, tokenizer_directory, tmp_path):
    model = AlbertForSequenceClassification(config, 2)
    save_model_directory(tmp_path / "m", model, tokenizer_directory, extra={"max_sequence_length": 16})
    started = start_model(PretrainedEncoder(str(tmp_path / "m")), ENTAILMENT, RECIPE, seed=0)
    assert any(note.startswith("positions from 16 on were never trained") for note in started.notes)
    tiled = changed(tmp_path / "m", extend_positions="tile")
    table = "albert.embeddings.position_embeddings.weight"
    assert torch.equal(tiled.model.state_dict()[table], started.model.state_dict()[table][:16].repeat(4, 1))
    assert not any("never trained" in note for note in tiled.notes)
    result = finetune(short, PretrainedEncoder(str(tmp_path / "m")), data / "choice", tmp_path / "run", settings=CPU)
    saved = open_model(result.model_directory, "classification").extra
    assert saved["trained_positions"] == 32


def test_an_interrupted_run_with_changes_goes_on_to_the_same_weights_and_to_no_other(
    short, data, pretrained, tmp_path, interrupted
):
    changes = ArchitectureChanges(sharing="none", num_hidden_layers=3)
    start, settings = PretrainedEncoder(str(pretrained), changes=changes), replace(CPU, checkpoint_every=2)
    whole = finetune(short, start, data / "choice", tmp_path / "whole", settings=settings)
    with interrupted(3):
        finetune(short, start, data / "choice", tmp_path / "cut", settings=settings)
    for other in (replace(changes, hidden_act="gelu"), ArchitectureChanges()):
        with pytest.raises(CannotCreate, match="another changes"):
            finetune(short, replace(start, changes=other), data / "choice", tmp_path / "cut", settings=settings)
    resumed = finetune(short, start, data / "choice", tmp_path / "cut", settings=settings)
    one, two = (Path(r.model_directory, "model.safetensors").read_bytes() for r in (whole, resumed))
    assert one == two
    with pytest.raises(CannotCreate, match="holds a finished run with another recipe"):
        finetune(
            short, replace(start, changes=replace(changes, hidden_act="gelu")), data / "choice", tmp_path / "whole"
        )


def test_every_flag_from_the_command_line(data, pretrained, tmp_path, capsys):
    words = ["finetune", "sst-2", "--model", str(pretrained), "--data", str(data / "choice"), "--device", "cpu"]
    words += ["--steps", "2", "--batch-size", "4", "--max-length", "70", "--output", str(tmp_path / "run")]
    flags = ["--num-hidden-layers", "4", "--sharing", "attention", "--num-attention-heads", "4", "--hidden-act", "gelu"]
    flags += ["--max-position-embeddings", "80", "--extend-positions", "tile", "--encoder-dropout", "0.1"]
    assert run([*words, *flags]) == 0
    said = capsys.readouterr().out
    card = (tmp_path / "run/model/README.md").read_text(encoding="utf-8")
    for note in (
        "2 layers with sharing all → 4 layers with sharing attention (layer i begins as layer ⌊i·2/4⌋)",
        "64 → 80 positions, 64 trained ones extended by tile",
        "hidden_act gelu_new → gelu (the same weights compute another function)",
        "num_attention_heads 2 → 4 (the same weights compute another function)",
    ):
        assert note in said and note in card
    saved = open_model(tmp_path / "run", "classification").config
    assert (saved.num_hidden_layers, saved.sharing, saved.num_attention_heads) == (4, "attention", 4)
    assert (saved.hidden_act, saved.max_position_embeddings, saved.hidden_dropout_prob) == ("gelu", 80, 0.1)
    report = json.loads((tmp_path / "run/results.json").read_text())
    assert report["changes"]["extend_positions"] == "tile" and report["recipe"]["max_length"] == 70
    assert run([*words, *flags]) == 0 and "nothing was trained" in capsys.readouterr().out
    keep = ["--keep-head", "--model", str(tmp_path / "run"), "--output", str(tmp_path / "kept")]
    assert run([*words, *keep]) == 0
    assert "the head of" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("flags", "code", "message"),
    [
        (["--keep-head"], 78, "has no head to keep"),
        (["--keep-head", "--init", "random"], 2, "--keep-head: and --init random contradict each other"),
        (["--sharing", "some"], 2, "albert finetune: "),
        (["--revision", "main"], 2, "which is a directory"),
        (["--num-hidden-groups", "5"], 78, "num_hidden_groups: 5 groups for 2 layers"),
        (["--extend-position", "tile"], 2, "--extend-position: unknown option; did you mean '--extend-positions'?"),
    ],
)
def test_mistakes_are_one_line(flags, code, message, data, pretrained, tmp_path, capsys):
    words = ["finetune", "sst-2", "--model", str(pretrained), "--data", str(data / "choice"), "--device", "cpu"]
    assert run([*words, "--output", str(tmp_path / "run"), *flags]) == code
    said = capsys.readouterr().err.strip()
    assert message in said and said.count("\n") == 0 and not (tmp_path / "run").exists()
