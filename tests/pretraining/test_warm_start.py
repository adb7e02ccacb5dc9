"""A run that starts from a trained model: it begins where that one ended, needs it no more, and says what changed."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from reliability.runs import journal_of
from tests.pretraining.conftest import prepare_texts

from albert.checkpoints.model_directory import open_model, save_model_directory
from albert.model.albert import AlbertForPreTraining, AlbertForSequenceClassification
from albert.pretraining import run as pretrain_module
from albert.pretraining.run import pretrain
from albert.pretraining.run_identity import Init, recipe_for_model
from albert.runtime.errors import InvalidConfiguration, MissingInput
from albert.runtime.json_files import load_json, read_journal
from albert.text.sentencepiece import train_tokenizer

WORDS = "albert.embeddings.word_embeddings.weight"


@pytest.fixture(scope="module")
def trained(tiny_recipe, tiny_corpus, tmp_path_factory):
    """A finished run of twelve updates."""
    run = tmp_path_factory.mktemp("trained") / "source"
    pretrain(tiny_recipe, tiny_corpus, run, "cpu")
    return run


@pytest.fixture(scope="module")
def other_corpus(tiny_texts, tmp_path_factory):
    """The same text in the pieces of another tokenizer."""
    return prepare_texts(tiny_texts, train_tokenizer(tiny_texts, vocab_size=220), tmp_path_factory.mktemp("other"), 0.2)


@pytest.fixture
def short(tiny_recipe):
    """Six updates, a checkpoint after every second."""
    schedule = replace(tiny_recipe.schedule, total_steps=6, warmup_steps=2)
    return replace(tiny_recipe, schedule=schedule, checkpoint_every=2)


def with_model(recipe, **changes):
    return replace(recipe, model=replace(recipe.model, **changes))


def evaluations(run):
    return [record for record in read_journal(run / "journal.jsonl") if record["event"] == "evaluation"]


def state_of(directory):
    return open_model(directory, "pretraining").model.state_dict()


def started_state(run):
    """The weights a run began with; it must keep three checkpoints at least."""
    return state_of(run / "checkpoints" / "step-00000000")


def test_where_nothing_changed_the_run_begins_with_the_loss_that_the_model_ended_with(
    short, tiny_corpus, trained, tmp_path
):
    pretrain(short, tiny_corpus, tmp_path / "run", "cpu", init=Init(model=str(trained)))
    before, first = evaluations(trained)[-1], evaluations(tmp_path / "run")[0]
    assert (before["step"], first["step"], first["tokens"]) == (12, 0, 0)
    losses = ("masked_tokens_loss", "masked_tokens_accuracy", "sentence_order_loss", "sentence_order_accuracy")
    assert {name: first[name] for name in losses} == {name: before[name] for name in losses}
    record = json.loads((tmp_path / "run/start.json").read_text())
    assert record["source"].endswith("source") and len(record["weights"]) == 64 and record["notes"] == []
    assert "started from" in (tmp_path / "run/model/README.md").read_text(encoding="utf-8")


def test_a_killed_run_goes_on_without_the_model_to_the_same_bytes(short, tiny_corpus, trained, tmp_path, killed_at):
    recipe = with_model(short, num_hidden_layers=4, sharing="none", hidden_dropout_prob=0.1)
    source = tmp_path / "lent"
    shutil.copytree(trained / "model", source)
    whole = pretrain(recipe, tiny_corpus, tmp_path / "whole", "cpu", init=Init(model=str(source)))
    for calls in (0, 3, 5):  # two micro-batches a step: before the first update, and in the midst of two later ones
        with killed_at(calls + 1):
            pretrain(recipe, tiny_corpus, tmp_path / "cut", "cpu", init=Init(model=str(source)) if not calls else None)
        shutil.rmtree(source, ignore_errors=True)
    cut = pretrain(recipe, tiny_corpus, tmp_path / "cut", "cpu")
    one, two = (Path(run.model, "model.safetensors").read_bytes() for run in (whole, cut))
    assert one == two
    assert cut.start == whole.start
    assert journal_of(tmp_path / "whole") == journal_of(tmp_path / "cut")


def test_a_run_killed_before_its_first_checkpoint_asks_for_the_model_again(
    short, tiny_corpus, trained, tmp_path, monkeypatch
):
    init, run = Init(model=str(trained)), tmp_path / "run"
    monkeypatch.setattr(pretrain_module.HeldOutSamples, "evaluate", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        pretrain(short, tiny_corpus, run, "cpu", init=init)
    monkeypatch.undo()
    with pytest.raises(MissingInput, match="has no checkpoint yet; give --init again"):
        pretrain(short, tiny_corpus, run, "cpu")
    whole = pretrain(short, tiny_corpus, tmp_path / "whole", "cpu", init=init)
    late = pretrain(short, tiny_corpus, run, "cpu", init=init)
    assert (late.model / "model.safetensors").read_bytes() == (whole.model / "model.safetensors").read_bytes()


def test_a_run_goes_on_from_its_own_start_only(short, tiny_corpus, trained, tmp_path):
    pretrain(short, tiny_corpus, tmp_path / "random", "cpu")
    with pytest.raises(InvalidConfiguration, match="this run was started from random weights, not from"):
        pretrain(short, tiny_corpus, tmp_path / "random", "cpu", init=Init(model=str(trained)))
    warm = tmp_path / "warm"
    pretrain(short, tiny_corpus, warm, "cpu", init=Init(model=str(trained)))
    before = (warm / "start.json").read_bytes()
    with pytest.raises(InvalidConfiguration, match=r"was started from .*source .*, now it is .*random"):
        pretrain(short, tiny_corpus, warm, "cpu", init=Init(model=str(tmp_path / "random")))
    with pytest.raises(InvalidConfiguration, match="with other options, now it is"):
        pretrain(short, tiny_corpus, warm, "cpu", init=Init(model=str(trained), drop_heads=("sentence_order",)))
    assert (warm / "start.json").read_bytes() == before
    again = pretrain(short, tiny_corpus, warm, "cpu", init=Init(model=str(trained)))
    assert again.start is not None and (warm / "start.json").read_bytes() == before


def test_another_depth_is_the_same_tensors_and_new_positions_are_tiled(short, tiny_corpus, trained, tmp_path):
    recipe = replace(with_model(short, num_hidden_layers=6, max_position_embeddings=96), keep_checkpoints=9)
    result = pretrain(recipe, tiny_corpus, tmp_path / "run", "cpu", init=Init(model=str(trained)))
    begun, source = started_state(tmp_path / "run"), state_of(trained)
    positions = "albert.embeddings.position_embeddings.weight"
    assert all(torch.equal(begun[name], source[name]) for name in source if name != positions)
    # The recipe's longest sequence is 32: rows behind it were never trained, and nothing is built on them.
    assert torch.equal(begun[positions], source[positions][:32].repeat(3, 1))
    assert result.start.notes == (
        "2 layers with sharing all → 6 layers with sharing all (layer i begins as layer ⌊i·2/6⌋)",
        "64 → 96 positions, 32 trained ones extended by tile",
    )
    assert json.loads((result.model / "config.json").read_text())["max_sequence_length"] == 96


def test_another_tokenizer_is_refused_unless_the_vocabulary_is_to_be_resized(
    short, other_corpus, trained, tmp_path, capsys
):
    with pytest.raises(InvalidConfiguration, match="or match the pieces with --resize-vocabulary"):
        pretrain(short, other_corpus, tmp_path / "run", "cpu", init=Init(model=str(trained)))
    assert not (tmp_path / "run").exists()
    recipe, init = replace(short, keep_checkpoints=9), Init(model=str(trained), resize_vocabulary=True)
    result = pretrain(recipe, other_corpus, tmp_path / "run", "cpu", init=init)
    (note,) = result.start.notes
    assert note.startswith("300 → 220 pieces: ") and "keep their embedding" in note
    assert note in capsys.readouterr().err
    begun = started_state(tmp_path / "run")
    assert begun[WORDS].shape == (220, 16) and begun["predictions.bias"].shape == (220,)


@pytest.mark.parametrize(
    ("changes", "head"),
    [
        ({"drop_heads": ("masked_tokens", "sentence_order")}, "predictions."),
        ({"drop_heads": ("sentence_order",)}, "sop_classifier."),
        ({"objective": "nsp"}, "sop_classifier."),
    ],
)
def test_a_head_is_drawn_anew_when_asked_or_when_it_was_trained_for_another_task(
    short, tiny_corpus, trained, tmp_path, changes, head
):
    recipe = replace(short, keep_checkpoints=9)
    if "objective" in changes:
        recipe = replace(recipe, sequences=replace(recipe.sequences, objective=changes["objective"]))
    init = Init(model=str(trained), drop_heads=changes.get("drop_heads", ()))
    result = pretrain(recipe, tiny_corpus, tmp_path / "run", "cpu", init=init)
    begun, source = started_state(tmp_path / "run"), state_of(trained)
    for name, tensor in source.items():
        moved = torch.equal(tensor, begun[name])
        assert moved == (not name.startswith(head) and not (len(init.drop_heads) == 2 and "sop_classifier" in name))
    assert any(note.startswith("new, drawn at random: ") and head in note for note in result.start.notes)


def test_a_classifier_can_be_pre_trained_on_and_its_missing_heads_are_said(short, tiny_corpus, tiny_recipe, tmp_path):
    model = AlbertForSequenceClassification(tiny_recipe.model, 3)
    save_model_directory(tmp_path / "classifier", model, tiny_corpus)
    result = pretrain(short, tiny_corpus, tmp_path / "run", "cpu", init=Init(model=str(tmp_path / "classifier")))
    drawn, unused = result.start.notes
    assert drawn.startswith("new, drawn at random: ") and "predictions.bias" in drawn and "sop_classifier" in drawn
    assert unused == "in the file, not used here: 2 of classifier"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"embedding_size": 8}, "embedding_size: is 16 in the trained model and 8 here"),
        ({"hidden_size": 64}, "hidden_size: is 32 in the trained model and 64 here"),
        ({"intermediate_size": 96}, "intermediate_size: is 64 in the trained model and 96 here"),
    ],
)
def test_another_width_is_refused_before_anything_is_written(short, tiny_corpus, trained, tmp_path, change, message):
    with pytest.raises(InvalidConfiguration, match=message):
        pretrain(with_model(short, **change), tiny_corpus, tmp_path / "run", "cpu", init=Init(model=str(trained)))
    assert not (tmp_path / "run").exists()


def test_a_model_without_a_tokenizer_is_refused(short, tiny_corpus, tiny_recipe, tmp_path):
    save_model_directory(tmp_path / "bare", AlbertForPreTraining(tiny_recipe.model), None)
    with pytest.raises(MissingInput, match="bare: has no tokenizer, so its embeddings cannot be matched"):
        pretrain(short, tiny_corpus, tmp_path / "run", "cpu", init=Init(model=str(tmp_path / "bare")))


def test_a_model_that_is_not_there_is_a_missing_input(short, tiny_corpus, tmp_path):
    with pytest.raises(MissingInput, match="no such directory"):
        pretrain(short, tiny_corpus, tmp_path / "run", "cpu", init=Init(model=str(tmp_path / "absent")))
    assert not (tmp_path / "run").exists()


def test_the_recipe_like_a_model_has_its_architecture_length_and_objective(trained, tiny_recipe):
    recipe = recipe_for_model(Init(model=str(trained)))
    kept = load_json(type(tiny_recipe), trained / "recipe.json")
    assert recipe.model == kept.model
    assert (recipe.sequences.max_length, recipe.sequences.objective) == (32, "sop")
