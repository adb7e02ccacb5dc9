"""Every kind of target can be learnt, the result is a model that transformers opens, and a run is reproducible."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers

from albert.checkpoints.model_directory import open_model
from albert.finetuning import objective as ways_of_learning
from albert.finetuning.data import prepare_split
from albert.finetuning.evaluation import Computing, evaluate_directory, evaluate_model
from albert.finetuning.model import PretrainedEncoder, RandomEncoder, head_kind, random_encoder_like, start_model
from albert.finetuning.run import finetune
from albert.finetuning.run_record import FinetuningSettings
from albert.model.packing import pack
from albert.runtime.errors import AlbertError, CannotCreate, DamagedData, InvalidConfiguration, MissingInput
from albert.runtime.json_files import read_journal
from albert.runtime.manifest import verify_directory
from albert.tasks.submission import DECLARED
from albert.tasks.task import Choice, Labels, Option, Score, Span, Tags
from albert.text.tokenizer_loading import load_tokenizer

CPU = FinetuningSettings(device="cpu")
PERFECT = {
    "accuracy": 100.0,
    "pearson": 95.0,
    "span_f1": 100.0,
    "f1": 90.0,
    "entity_f1": 95.0,
    "micro_f1": 95.0,
}


def test_a_tiny_model_learns_sixteen_examples_and_transformers_opens_it(task, task_data, pretrained, tmp_path):
    result = finetune(task, PretrainedEncoder(str(pretrained)), task_data, tmp_path / "run", settings=CPU)
    name, score = next(iter(result.scores.items()))
    assert score >= PERFECT[name]
    verify_directory(result.model_directory)
    report = json.loads((tmp_path / "run/results.json").read_text())
    assert report["scores"] == result.scores
    may_be_absent = isinstance(task.target, Span) and task.target.may_be_absent
    assert report["evaluation"]["examples"] == (32 if may_be_absent else 16)
    held_out = report["training"].get("held_out", 0)
    assert report["training"]["examples"] == report["evaluation"]["examples"] - held_out
    assert bool(held_out) == may_be_absent
    assert report["seed"] == 0
    assert report["training"]["sequences_per_second"] > 0
    if isinstance(task.target, Choice):
        assert report["baseline"] == {"accuracy": 50.0}
    losses = [e["loss"] for e in read_journal(tmp_path / "run/journal.jsonl") if e["event"] == "train"]
    assert losses[-1] < losses[0] / 3
    lines = (tmp_path / "run/predictions-dev.jsonl").read_text().splitlines()
    assert len(lines) == report["evaluation"]["examples"]
    again = evaluate_directory(task, str(tmp_path / "run"), task_data, device="cpu")
    assert again.evaluation.scores == result.scores
    assert [json.loads(line) for line in lines] == again.evaluation.predictions
    same_logits_in_transformers(task, task_data, result.model_directory)


THEIRS = {
    "classification": transformers.AutoModelForSequenceClassification,
    "question_answering": transformers.AutoModelForQuestionAnswering,
    "multiple_choice": transformers.AutoModelForMultipleChoice,
    "token_classification": transformers.AutoModelForTokenClassification,
}


def same_states_in_transformers(ours, prepared, directory):
    """What transformers can hold of a joint head: the encoder under it."""
    theirs = transformers.AutoModel.from_pretrained(directory, add_pooling_layer=False).eval()
    ids, types = prepared.features.sequences.token_ids(3), prepared.features.sequences.token_type_ids(3)
    with torch.inference_mode():
        output = theirs(input_ids=torch.from_numpy(ids)[None], token_type_ids=torch.from_numpy(types)[None])
        torch.testing.assert_close(ours(pack([ids], [types])), output.last_hidden_state[0], atol=1e-5, rtol=1e-4)


def same_logits_in_transformers(task, task_data, directory):
    kind = head_kind(task.target)
    ours = open_model(directory, kind)
    prepared = prepare_split(task, task_data, "dev", load_tokenizer(directory), task.recipe)
    if kind == "joint_question_answering":
        same_states_in_transformers(ours.model.albert, prepared, directory)
        return
    theirs = THEIRS[kind].from_pretrained(directory).eval()
    ids, types = prepared.features.sequences.token_ids(3), prepared.features.sequences.token_type_ids(3)
    with torch.inference_mode():
        packed = ours.model(pack([ids], [types]))
        shape = (1, 1, -1) if isinstance(task.target, Option) else (1, -1)
        inputs = {"input_ids": torch.from_numpy(ids), "token_type_ids": torch.from_numpy(types)}
        output = theirs(**{name: tensor.view(shape) for name, tensor in inputs.items()})
    if isinstance(task.target, Option | Tags):
        torch.testing.assert_close(packed, output.logits[0], atol=1e-5, rtol=1e-4)
    elif isinstance(task.target, Span):
        torch.testing.assert_close(packed[0], output.start_logits[0], atol=1e-5, rtol=1e-4)
        torch.testing.assert_close(packed[1], output.end_logits[0], atol=1e-5, rtol=1e-4)
    else:
        torch.testing.assert_close(packed, output.logits, atol=1e-5, rtol=1e-4)
    if isinstance(task.target, Choice):
        assert theirs.config.id2label == {0: "negative", 1: "positive"}
        assert theirs.config.problem_type == "single_label_classification"
    if isinstance(task.target, Score):
        assert theirs.config.problem_type == "regression"
    if isinstance(task.target, Labels):
        assert theirs.config.problem_type == "multi_label_classification"
    if isinstance(task.target, Labels | Tags):
        assert list(theirs.config.id2label.values()) == list(task.target.labels)


@pytest.fixture
def short(data):
    task = DECLARED["sst-2"]
    recipe = replace(task.recipe, steps=6, examples=None, batch_size=4, learning_rate=1e-3, encoder_dropout=0.1)
    return replace(task, recipe=recipe)


def test_an_interrupted_run_goes_on_to_the_same_weights(short, data, pretrained, tmp_path, monkeypatch):
    start, settings = PretrainedEncoder(str(pretrained)), replace(CPU, checkpoint_every=2)
    whole = finetune(short, start, data / "choice", tmp_path / "whole", settings=settings)
    stop_at(monkeypatch, step=4)
    with pytest.raises(KeyboardInterrupt):
        finetune(short, start, data / "choice", tmp_path / "cut", settings=settings)
    monkeypatch.undo()
    assert not (tmp_path / "cut/model").exists()
    resumed = finetune(short, start, data / "choice", tmp_path / "cut", settings=settings)
    one, two = (Path(r.model_directory, "model.safetensors").read_bytes() for r in (whole, resumed))
    assert one == two
    assert not (tmp_path / "cut/checkpoints").exists()


def stop_at(monkeypatch, step):
    inner, calls = ways_of_learning.task_loss, []

    def loss(model, batch):
        calls.append(batch)
        if len(calls) > step:
            raise KeyboardInterrupt
        return inner(model, batch)

    monkeypatch.setattr(ways_of_learning, "task_loss", loss)


def test_a_finished_run_is_returned_and_another_one_is_refused(short, data, pretrained, tmp_path):
    start = PretrainedEncoder(str(pretrained))
    first = finetune(short, start, data / "choice", tmp_path / "run", settings=CPU)
    again = finetune(short, start, data / "choice", tmp_path / "run", settings=replace(CPU, workers=0))
    assert again.already_complete
    assert again.scores == first.scores
    with pytest.raises(CannotCreate, match="holds a finished run with another recipe"):
        finetune(short, start, data / "choice", tmp_path / "run", settings=replace(CPU, seed=1))


def test_the_control_has_none_of_the_weights_and_all_of_the_architecture(pretrained, config):
    recipe = DECLARED["sst-2"].recipe
    target = Choice(("a", "b"), "label")
    trained = start_model(PretrainedEncoder(str(pretrained)), target, recipe, seed=0)
    control = start_model(random_encoder_like(PretrainedEncoder(str(pretrained))), target, recipe, seed=0)
    assert trained.config == control.config
    ours, theirs = trained.model.state_dict(), control.model.state_dict()
    word = "albert.embeddings.word_embeddings.weight"
    original = open_model(pretrained, "pretraining").model.state_dict()
    assert torch.equal(ours[word], original[word])
    assert not torch.equal(theirs[word], original[word])
    assert {name: t.shape for name, t in ours.items()} == {name: t.shape for name, t in theirs.items()}
    assert any("classifier.weight" in note and "new" in note for note in trained.notes)
    again = start_model(PretrainedEncoder(str(pretrained)), target, recipe, seed=0).model.state_dict()
    assert all(torch.equal(ours[name], again[name]) for name in ours)


def test_dropout_is_the_recipes_not_the_pretrained_models(pretrained):
    recipe = replace(DECLARED["sst-2"].recipe, encoder_dropout=0.2, head_dropout=0.3)
    config = start_model(PretrainedEncoder(str(pretrained)), Choice(("a", "b"), "label"), recipe, seed=0).config
    found = (config.hidden_dropout_prob, config.attention_probs_dropout_prob, config.classifier_dropout_prob)
    assert found == (0.2, 0.2, 0.3)


def test_a_subset_is_drawn_by_the_seed_and_said(short, data, config, tokenizer_directory, tmp_path):
    start = RandomEncoder(config, tokenizer_directory)
    settings = replace(CPU, max_train_examples=5)
    report = finetune(short, start, data / "choice", tmp_path / "run", settings=settings).report
    assert (report["training"]["examples"], report["training"]["left_out_by_choice"]) == (5, 11)
    assert report["evaluation"]["examples"] == 16
    assert report["evaluation"]["left_out_by_choice"] == 0


def test_labels_are_matched_by_name_whatever_their_order(short, data, pretrained, tmp_path):
    finetune(short, PretrainedEncoder(str(pretrained)), data / "choice", tmp_path / "run", settings=CPU)
    turned = replace(short, target=Choice(("1", "0"), "label", names=("positive", "negative")))
    one = evaluate_directory(short, str(tmp_path / "run"), data / "choice", device="cpu").evaluation
    two = evaluate_directory(turned, str(tmp_path / "run"), data / "choice", device="cpu").evaluation
    assert one.scores == two.scores
    assert [p["prediction"] for p in one.predictions] == [p["prediction"] for p in two.predictions]
    other = replace(short, target=Choice(("0", "1"), "label", names=("bad", "good")))
    with pytest.raises(InvalidConfiguration, match="has the labels negative, positive; the task has bad, good"):
        evaluate_directory(other, str(tmp_path / "run"), data / "choice", device="cpu")


def test_a_model_without_the_head_is_not_evaluated(short, data, pretrained):
    with pytest.raises(InvalidConfiguration, match="has no head for this task"):
        evaluate_directory(short, str(pretrained), data / "choice", device="cpu")


@pytest.mark.parametrize("tokens", [1, 40, 10_000])
def test_the_size_of_evaluation_batches_changes_no_answer(task, task_data, config, tokenizer_directory, tokens):
    started = start_model(RandomEncoder(config, tokenizer_directory), task.target, task.recipe, seed=3)
    prepared = prepare_split(task, task_data, "dev", started.tokenizer, task.recipe)
    cpu = torch.device("cpu")
    one = evaluate_model(started.model, task, prepared, Computing(cpu, "fp32", tokens))
    two = evaluate_model(started.model, task, prepared, Computing(cpu, "fp32", 77))
    assert [p["id"] for p in one.predictions] == [e.identifier for e in prepared.examples]
    for ours, theirs in zip(one.predictions, two.predictions, strict=True):
        if isinstance(task.target, Score):
            assert np.isclose(ours["prediction"], theirs["prediction"], atol=1e-5)
        else:
            assert ours["prediction"] == theirs["prediction"]


def test_bad_input_leaves_nothing_behind(short, data, pretrained, tmp_path):
    start = PretrainedEncoder(str(pretrained))
    (tmp_path / "train.tsv").write_text("sentence\tlabel\ngood\t1\nbad\t0\n")
    with pytest.raises(MissingInput, match=r"has no dev\.tsv"):
        finetune(short, start, tmp_path, tmp_path / "run", settings=CPU)
    (tmp_path / "dev.tsv").write_text("sentence\tlabel\ngood\t7\n")
    with pytest.raises(DamagedData, match="unknown label '7'"):
        finetune(short, start, tmp_path, tmp_path / "run", settings=CPU)
    with pytest.raises(AlbertError):
        finetune(short, PretrainedEncoder(str(tmp_path)), data / "choice", tmp_path / "run", settings=CPU)
    assert not (tmp_path / "run").exists()
