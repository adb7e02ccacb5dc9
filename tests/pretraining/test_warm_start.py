"""Starting from a trained model: the initial weights, resuming without the model, and what is refused."""

import json
import shutil
from dataclasses import replace

import pytest
import torch
from dev.reliability.runs import journal_of
from tests.pretraining.conftest import events, model_bytes, prepare_texts
from tests.refusals import refusal

from albert.checkpoints.model_directory import open_model, save_model_directory
from albert.model.albert import AlbertForPreTraining, AlbertForSequenceClassification
from albert.pretraining.evaluation import HeldOutSamples
from albert.pretraining.initial_weights import Init, recipe_for_model
from albert.pretraining.run import pretrain
from albert.runtime.errors import CannotCreate, InvalidConfiguration, MissingInput
from albert.runtime.json_files import load_versioned
from albert.text.sentencepiece import train_tokenizer

WORDS = "albert.embeddings.word_embeddings.weight"
POSITIONS = "albert.embeddings.position_embeddings.weight"


@pytest.fixture(scope="module")
def trained(tiny_recipe, tiny_corpus, tmp_path_factory):
    """A finished run of twelve updates."""
    run = tmp_path_factory.mktemp("trained") / "source"
    pretrain(tiny_recipe, tiny_corpus, run, "cpu")
    return run


@pytest.fixture(scope="module")
def other_corpus(tiny_texts, tmp_path_factory):
    """The same texts with another tokenizer."""
    return prepare_texts(tiny_texts, train_tokenizer(tiny_texts, vocab_size=220), tmp_path_factory.mktemp("other"), 0.2)


@pytest.fixture
def short(tiny_recipe):
    """Six updates, a checkpoint every two, all of which are kept."""
    schedule = replace(tiny_recipe.schedule, total_steps=6, warmup_steps=2)
    return replace(tiny_recipe, schedule=schedule, checkpoint_every=2, keep_checkpoints=9)


@pytest.fixture
def start(short, tiny_corpus, trained, tmp_path):
    """Start or resume a run from a trained model."""

    def start(recipe=short, model=trained, corpus=tiny_corpus, run="run", **options):
        return pretrain(recipe, corpus, tmp_path / run, "cpu", init=Init(model=str(model), **options))

    return start


def with_model(recipe, **changes):
    return replace(recipe, model=replace(recipe.model, **changes))


def weights_of(model):
    return open_model(model, "pretraining").model.state_dict()


def initial_weights(run):
    return weights_of(run / "checkpoints" / "step-00000000")


def test_an_unchanged_model_starts_with_the_loss_it_ended_with(start, trained):
    run = start().run
    before, first = events(trained, "evaluation")[-1], events(run, "evaluation")[0]
    assert (before["step"], first["step"], first["tokens"]) == (12, 0, 0)
    names = ("masked_tokens_loss", "masked_tokens_accuracy", "sentence_order_loss", "sentence_order_accuracy")
    assert [first[name] for name in names] == [before[name] for name in names]
    record = json.loads((run / "start.json").read_text())
    assert record["source"].endswith("source") and len(record["weights"]) == 64 and record["notes"] == []
    assert "started from" in (run / "model/README.md").read_text(encoding="utf-8")


def test_a_killed_run_resumes_without_the_model_to_the_same_bytes(
    start, short, tiny_corpus, trained, tmp_path, killed_at
):
    recipe = with_model(short, num_hidden_layers=4, sharing="none", hidden_dropout_prob=0.1)
    source, run = tmp_path / "source", tmp_path / "run"
    shutil.copytree(trained / "model", source)
    reference = start(recipe, source, run="reference")
    with killed_at(1):  # before the first update
        start(recipe, source)
    shutil.rmtree(source)
    for call in (4, 6):  # within a step: each has two micro-batches
        with killed_at(call):
            pretrain(recipe, tiny_corpus, run, "cpu")
    resumed = pretrain(recipe, tiny_corpus, run, "cpu")
    assert model_bytes(reference.run) == model_bytes(run)
    assert resumed.start == reference.start
    assert journal_of(reference.run) == journal_of(run)


def test_a_run_killed_before_its_first_checkpoint_needs_the_model_again(
    start, short, tiny_corpus, tmp_path, monkeypatch
):
    def interrupt(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(HeldOutSamples, "evaluate", interrupt)
        start()
    with refusal(MissingInput, "--init"):
        pretrain(short, tiny_corpus, tmp_path / "run", "cpu")
    assert model_bytes(start().run) == model_bytes(start(run="reference").run)


def test_a_run_resumes_from_its_own_start_only(start, short, tiny_corpus, tmp_path):
    pretrain(short, tiny_corpus, tmp_path / "random", "cpu")
    with refusal(CannotCreate, "random weights"):
        start(run="random")
    record = start().run / "start.json"
    before = record.read_bytes()
    with refusal(CannotCreate, "source", "random"):
        start(model=tmp_path / "random")
    with refusal(CannotCreate, "without the head sentence_order"):
        start(drop_heads=("sentence_order",))
    assert start().start is not None and record.read_bytes() == before


def test_another_depth_reuses_the_layers_and_new_positions_are_tiled(start, short, trained):
    result = start(with_model(short, num_hidden_layers=6, max_position_embeddings=96))
    initial, source = initial_weights(result.run), weights_of(trained)
    assert all(torch.equal(initial[name], source[name]) for name in source if name != POSITIONS)
    # The model was trained with 32 positions; the others are not used.
    assert torch.equal(initial[POSITIONS], source[POSITIONS][:32].repeat(3, 1))
    assert result.start.notes == (
        "2 layers with sharing all → 6 layers with sharing all (layer i begins as layer ⌊i·2/6⌋)",
        "64 → 96 positions, 32 trained ones repeated",
    )
    assert json.loads((result.model / "config.json").read_text())["max_sequence_length"] == 96


def test_another_tokenizer_needs_resize_vocabulary(start, other_corpus, tmp_path, capsys):
    with refusal(InvalidConfiguration, "--resize-vocabulary"):
        start(corpus=other_corpus)
    assert not (tmp_path / "run").exists()
    result = start(corpus=other_corpus, resize_vocabulary=True)
    (note,) = result.start.notes
    assert note.startswith("300 → 220 pieces: ") and "reuse their embedding" in note
    assert note in capsys.readouterr().err
    initial = initial_weights(result.run)
    assert initial[WORDS].shape == (220, 16) and initial["predictions.bias"].shape == (220,)


@pytest.mark.parametrize(
    ("drop_heads", "objective", "drawn"),
    [
        (("masked_tokens", "sentence_order"), "sop", ("predictions.", "sop_classifier.")),
        (("sentence_order",), "sop", ("sop_classifier.",)),
        ((), "nsp", ("sop_classifier.",)),
    ],
)
def test_heads_are_initialised_on_request_or_for_another_objective(start, short, trained, drop_heads, objective, drawn):
    recipe = replace(short, sequences=replace(short.sequences, objective=objective))
    result = start(recipe, drop_heads=drop_heads)
    initial = initial_weights(result.run)
    for name, tensor in weights_of(trained).items():
        assert torch.equal(tensor, initial[name]) != name.startswith(drawn)
    assert any(note.startswith("newly initialised: ") and drawn[0] in note for note in result.start.notes)


def test_a_classifier_can_be_the_start_and_its_missing_heads_are_reported(start, tiny_corpus, tiny_recipe, tmp_path):
    save_model_directory(tmp_path / "classifier", AlbertForSequenceClassification(tiny_recipe.model, 3), tiny_corpus)
    drawn, unused = start(model=tmp_path / "classifier").start.notes
    assert drawn.startswith("newly initialised: ") and "predictions.bias" in drawn and "sop_classifier" in drawn
    assert unused == "tensors of the file that are not used here: classifier (2)"


@pytest.mark.parametrize(("name", "here"), [("embedding_size", 8), ("hidden_size", 64), ("intermediate_size", 96)])
def test_another_width_is_refused_before_anything_is_written(start, short, tmp_path, name, here):
    with refusal(InvalidConfiguration, name, getattr(short.model, name), here):
        start(with_model(short, **{name: here}))
    assert not (tmp_path / "run").exists()


def test_a_missing_model_or_tokenizer_is_refused(start, tiny_recipe, tmp_path):
    with refusal(MissingInput, tmp_path / "absent"):
        start(model=tmp_path / "absent")
    save_model_directory(tmp_path / "bare", AlbertForPreTraining(tiny_recipe.model), None)
    with refusal(MissingInput, tmp_path / "bare"):
        start(model=tmp_path / "bare")
    assert not (tmp_path / "run").exists()


def test_recipe_for_model_has_its_architecture_length_and_objective(trained, tiny_recipe):
    recipe = recipe_for_model(Init(model=str(trained)))
    assert recipe.model == load_versioned(type(tiny_recipe), trained / "recipe.json").model
    assert (recipe.sequences.max_length, recipe.sequences.objective) == (32, "sop")
