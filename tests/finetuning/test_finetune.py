"""Fine-tuning: batches, learning plan, runs."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional

from albert.checkpoints.model_directory import open_model
from albert.cli.main import run
from albert.experiments.grids import TABLE_14
from albert.finetuning.data import TaskBatch, TaskBatches, batch_members, prepare_split
from albert.finetuning.evaluation import ComputeOptions, evaluate_directory, evaluate_model
from albert.finetuning.model import PretrainedEncoder, RandomEncoder, head_kind, random_encoder_like, start_model
from albert.finetuning.objective import task_loss
from albert.finetuning.options import MAX_EPOCHS, MIN_UPDATES, plan_learning, rate_for_width, requested_recipe
from albert.finetuning.run import finetune
from albert.finetuning.run_record import FinetuningSettings
from albert.finetuning.seeds import finetune_seeds
from albert.model.albert import SpanFromStart
from albert.model.config import PRESETS
from albert.model.packing import pack
from albert.runtime.errors import AlbertError, CannotCreate, DamagedData, InvalidConfiguration, MissingInput
from albert.runtime.json_files import read_journal
from albert.runtime.manifest import verify_directory
from albert.tasks.custom import declare_custom_task
from albert.tasks.examples import join_sequences
from albert.tasks.submission import DECLARED
from albert.tasks.table_task import RecipeChanges
from albert.tasks.task import Choice, Labels, Option, Score, Span, Tags, TaskRecipe
from albert.text.tokenizer_loading import load_tokenizer

# --------------------------------------------------------------------------------------------------------------------
# Every kind of target can be learnt, the result is a model that transformers opens, and a run is reproducible.


CPU = FinetuningSettings(device="cpu", encode_pairs="together")
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


def test_an_interrupted_run_goes_on_to_the_same_weights(short, data, pretrained, tmp_path, interrupted):
    start, settings = PretrainedEncoder(str(pretrained)), replace(CPU, checkpoint_every=2)
    whole = finetune(short, start, data / "choice", tmp_path / "whole", settings=settings)
    with interrupted(4):
        finetune(short, start, data / "choice", tmp_path / "cut", settings=settings)
    assert not (tmp_path / "cut/model").exists()
    resumed = finetune(short, start, data / "choice", tmp_path / "cut", settings=settings)
    one, two = (Path(r.model_directory, "model.safetensors").read_bytes() for r in (whole, resumed))
    assert one == two
    assert not (tmp_path / "cut/checkpoints").exists()


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
    one = evaluate_model(started.model, task, prepared, ComputeOptions(cpu, "fp32", tokens))
    two = evaluate_model(started.model, task, prepared, ComputeOptions(cpu, "fp32", 77))
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


# --------------------------------------------------------------------------------------------------------------------
# Which examples a step learns from is a pure function of seed and step; ranks and micro-batches only divide it.


@given(n=st.integers(1, 30), batch=st.integers(1, 12), seed=st.integers(0, 5))
def test_every_epoch_goes_through_every_example_once(n, batch, seed):
    steps = -(-2 * n // batch)
    members = np.concatenate([batch_members(n, batch, seed, step) for step in range(steps)])
    assert sorted(members[:n]) == list(range(n))
    assert sorted(members[n : 2 * n]) == list(range(n))


def test_orders_differ_between_epochs_and_seeds():
    first, second = batch_members(50, 50, 0, 0), batch_members(50, 50, 0, 1)
    assert not np.array_equal(first, second)
    assert not np.array_equal(first, batch_members(50, 50, 1, 0))
    assert np.array_equal(first, batch_members(50, 50, 0, 0))


@given(
    lengths=st.lists(st.integers(1, 9), min_size=1, max_size=12),
    batch=st.integers(1, 16),
    world=st.integers(1, 4),
    tokens=st.integers(1, 40),
    step=st.integers(0, 5),
)
def test_ranks_and_micro_batches_share_out_one_batch(lengths, batch, world, tokens, step):
    sequences = join_sequences([([i] * length, 1) for i, length in enumerate(lengths)])
    source = TaskBatches(sequences, np.arange(len(lengths)), "choice", batch, 7, tokens)
    dealt = []
    for rank in range(world):
        for piece in source.micro_batches(step, rank, world):
            assert piece.n_tokens <= tokens or piece.packed.n_sequences == 1
            assert piece.counts == {"choice": piece.packed.n_sequences}
            dealt += piece.targets.tolist()
    assert sorted(dealt) == sorted(batch_members(len(lengths), batch, 7, step).tolist())


class Fixed(torch.nn.Module):
    """A model whose output is given."""

    def __init__(self, output):
        super().__init__()
        self.output = output

    def forward(self, packed):
        return self.output


LENGTHS = (3, 5, 2)


def batch_of(targets, term):
    ids = [np.zeros(length, np.int64) for length in LENGTHS]
    return TaskBatch(pack(ids, ids), targets, term)


def test_the_span_loss_is_the_mean_of_two_cross_entropies_over_each_window():
    starts, ends = torch.randn(10), torch.randn(10)
    targets = torch.tensor([[0, 2], [1, 4], [0, 0]])
    expected = torch.tensor(0.0)
    for piece, (start, end) in zip(range(3), targets, strict=True):
        one, two = starts.split(LENGTHS)[piece], ends.split(LENGTHS)[piece]
        expected += (functional.cross_entropy(one, start) + functional.cross_entropy(two, end)) / 2
    sums = task_loss(Fixed((starts, ends)), batch_of(targets, "span"))
    assert sums.losses["span"].item() == pytest.approx(expected.item(), rel=1e-6)


def test_the_other_losses_are_sums_too():
    logits, labels = torch.randn(3, 4), torch.tensor([0, 3, 1])
    choice = task_loss(Fixed(logits), batch_of(labels, "choice"))
    assert choice.losses["choice"].item() == pytest.approx(
        functional.cross_entropy(logits, labels).item() * 3, rel=1e-6
    )
    numbers, gold = torch.randn(3, 1), torch.tensor([0.5, 5.0, 2.0])
    score = task_loss(Fixed(numbers), batch_of(gold, "score"))
    assert score.losses["score"].item() == pytest.approx(((numbers[:, 0] - gold) ** 2).sum().item(), rel=1e-6)
    assert score.correct == {}


def test_the_joint_loss_adds_half_the_decision():
    starts, ends, unanswerable = torch.randn(10), torch.randn(10), torch.randn(3)
    targets = torch.tensor([[0, 0], [1, 4], [0, 0]])
    spans = task_loss(Fixed((starts, ends)), batch_of(targets, "span")).losses["span"]
    decision = functional.binary_cross_entropy_with_logits(unanswerable, torch.tensor([1.0, 0.0, 1.0]), reduction="sum")
    seen = []

    class Joint(torch.nn.Module):
        def forward(self, packed, given):
            seen.append(given.tolist())
            return SpanFromStart(starts, ends, unanswerable)

    sums = task_loss(Joint(), batch_of(targets, "joint_span"))
    assert sums.losses["joint_span"].item() == pytest.approx((spans + decision / 2).item(), rel=1e-6)
    assert seen == [[0, 3 + 1, 8]]  # the gold starts, counted over all tokens


def test_the_options_of_a_question_compete_with_each_other():
    scores, right = torch.randn(3), torch.tensor([2])
    expected = functional.cross_entropy(scores[None], right)
    sums = task_loss(Fixed(scores), batch_of(right, "option"))
    assert sums.losses["option"].item() == pytest.approx(expected.item(), rel=1e-6)


@given(n=st.integers(1, 7), options=st.integers(2, 4), world=st.integers(1, 3), tokens=st.integers(1, 60))
def test_options_stay_together_and_in_order(n, options, world, tokens):
    sequences = join_sequences(
        [([100 * question + option] * 3, 1) for question in range(n) for option in range(options)]
    )
    source = TaskBatches(sequences, np.arange(n), "option", n, 7, tokens, options)
    dealt = []
    for rank in range(world):
        for piece in source.micro_batches(0, rank, world):
            assert piece.counts == {"option": len(piece.targets)}
            first = piece.packed.token_ids[piece.packed.first_positions].reshape(len(piece.targets), options)
            assert (first == 100 * piece.targets[:, None] + torch.arange(options)).all()
            dealt += piece.targets.tolist()
    assert sorted(dealt) == list(range(n))


# --------------------------------------------------------------------------------------------------------------------
# What nobody asks for is decided in one place, by the width of the model and the rows there are.


FEW = RecipeChanges(steps=3, max_length=16)
BEFORE = TaskRecipe(learning_rate=1.2e-4, batch_size=8, epochs=1.0, max_length=16)
"""As an earlier version had it by default."""


@pytest.fixture
def table(tmp_path):
    """A table of 24 rows, and the same for development."""
    rows = "".join(f"the {word} ship {n},{n % 2}\n" for n, word in enumerate(("good", "bad", "long") * 8))
    path = tmp_path / "my.csv"
    path.write_text("review,label\n" + rows)
    return {"train": path, "dev": path}


def command(table, model, output, *flags):
    files = ["--train", str(table["train"]), "--dev", str(table["dev"]), "--text", "review", "--label", "label"]
    return run(["finetune", *files, "--model", str(model), "--output", str(output), "--device", "cpu", *flags])


def test_command_and_python_give_the_same_model_and_files(table, pretrained, tmp_path, monkeypatch):
    monkeypatch.setattr("albert.finetuning.options.MIN_UPDATES", 8)
    one, two = tmp_path / "one", tmp_path / "two"
    assert command(table, pretrained, one) == 0
    task = declare_custom_task(table, "review", "label")
    finetune(task, PretrainedEncoder(str(pretrained)), tmp_path, two, settings=CPU)
    files = [sorted(str(path.relative_to(place)) for path in place.rglob("*") if "events" not in path.name)
             for place in (one, two)]  # fmt: skip
    assert files[0] == files[1] and {"task.json", "results.json", "model/model.safetensors"} <= {*files[0]}
    for name in ("recipe.json", "model/model.safetensors", "model/config.json", "predictions-dev.jsonl"):
        assert (one / name).read_bytes() == (two / name).read_bytes(), name
    asked = [json.loads((place / "task.json").read_text()) for place in (one, two)]
    assert [each.pop("held_out") != {} for each in asked] and asked[0] == asked[1]
    assert run(["evaluate", "--model", str(two), "--device", "cpu"]) == 0


def test_the_plan_is_shown_before_training(table, pretrained, tmp_path, capsys):
    assert command(table, pretrained, tmp_path / "run", "--epochs", "1") == 0
    said = capsys.readouterr().out
    assert f"learning rate {rate_for_width(2e-5, 32):.3g}" in said and "batch size 16" in said
    assert "1.33 epochs of 24 examples" in said
    assert said.index("learning rate") < said.index("drawn at random: classifier.weight")


@pytest.mark.parametrize("preset", ["albert-base", "albert-large", "albert-xlarge", "albert-xxlarge", "bert-base"])
def test_published_models_learn_at_published_rates(preset):
    assert rate_for_width(2e-5, PRESETS[preset].hidden_size) == 2e-5


def test_a_narrower_model_learns_faster():
    rates = [rate_for_width(2e-5, width) for width in (64, 128, 256, 384, 512)]
    assert rates == sorted(rates, reverse=True) and rates[-1] > 2e-5
    assert rates[:3] == pytest.approx([5e-4, 5e-4, 2.5e-4], rel=0.02)
    assert rate_for_width(1e-4, 64) == 1e-3 and rate_for_width(2e-3, 64) == 2e-3


@pytest.mark.parametrize("name", sorted(TABLE_14))
def test_a_published_task_keeps_its_recipe_and_only_its_rate_is_fitted(name):
    task = DECLARED[name]
    rows = task.recipe.examples or 1000
    wide = plan_learning(requested_recipe(task), 768, rows)
    assert wide.recipe == task.recipe and wide.updates == TABLE_14[name]["steps"]
    narrow = plan_learning(requested_recipe(task), 128, rows)
    rate = rate_for_width(task.recipe.learning_rate, 128)
    assert narrow.recipe == replace(task.recipe, learning_rate=rate)


def test_what_is_asked_for_stays(table):
    task = declare_custom_task(table, "review", "label")
    asked = RecipeChanges(learning_rate=3e-5, epochs=2.0, batch_size=7)
    recipe = plan_learning(requested_recipe(task, asked), 32, 24).recipe
    assert (recipe.learning_rate, recipe.epochs, recipe.batch_size) == (3e-5, 2.0, 7)
    whole = TaskRecipe(learning_rate=1e-3, batch_size=5, steps=4)
    for basis in (
        requested_recipe(task, whole),
        requested_recipe(declare_custom_task(table, "review", "label", recipe=whole)),
    ):
        assert plan_learning(basis, 32, 24).recipe == whole
    own = replace(DECLARED["sst-2"], recipe=whole)
    assert plan_learning(requested_recipe(own), 32, 24).recipe == whole


@pytest.mark.parametrize("rows", [40, 300, 800, 3000, 4999, 5000, 50_000])
def test_a_small_table_is_learnt_for_enough_updates(table, rows):
    plan = plan_learning(requested_recipe(declare_custom_task(table, "review", "label")), 768, rows)
    assert plan.epochs >= 3 - 0.1
    assert plan.updates >= MIN_UPDATES or plan.recipe.epochs == MAX_EPOCHS
    assert plan.recipe.batch_size == (16 if rows < 5000 else 32)


def as_before(folder, by_default):
    """The recipe of a run as another version recorded it."""
    path = folder / "recipe.json"
    record = json.loads(path.read_text())
    record["recipe"] = {**vars(BEFORE)}
    del record["by_default"]
    if by_default is not None:
        record["by_default"] = by_default
    record["settings"]["optimizer"]["learning_rate"] = BEFORE.learning_rate
    path.write_text(json.dumps(record))


@pytest.mark.parametrize("by_default", [None, ["batch_size", "epochs", "examples", "learning_rate", "steps"]])
def test_a_run_goes_on_with_the_defaults_that_it_began_with(table, pretrained, tmp_path, by_default):
    output = tmp_path / "run"
    assert command(table, pretrained, output, "--max-length", "16", "--epochs", "1") == 0
    (output / "results.json").unlink()
    as_before(output, by_default)
    assert command(table, pretrained, output, "--max-length", "16") == 0
    report = json.loads((output / "results.json").read_text())
    assert report["recipe"] == vars(BEFORE) and report["training"]["steps"] == 3
    assert command(table, pretrained, output, "--max-length", "16") == 0
    assert command(table, pretrained, output, "--max-length", "16", "--epochs", "2") == 73


def test_what_was_asked_for_is_not_forgotten_where_a_run_goes_on(table, pretrained, tmp_path, capsys):
    output = tmp_path / "run"
    assert command(table, pretrained, output, "--max-length", "16", "--epochs", "1") == 0
    assert command(table, pretrained, output, "--max-length", "16") == 73
    assert "another recipe" in capsys.readouterr().err


def test_a_run_that_was_recorded_without_an_optimiser_goes_on(table, pretrained, tmp_path):
    task, start, place = declare_custom_task(table, "review", "label"), PretrainedEncoder(str(pretrained)), tmp_path
    finetune(task, start, place, place / "run", FEW, CPU)
    (place / "run/results.json").unlink()
    record = json.loads((place / "run/recipe.json").read_text())
    record["settings"]["optimizer"] = None
    (place / "run/recipe.json").write_text(json.dumps(record))
    again = finetune(task, start, place, place / "run", FEW, CPU)
    assert again.report["settings"]["optimizer"] is None
    with pytest.raises(CannotCreate, match="another"):
        finetune(task, start, place, place / "run", FEW, replace(CPU, optimizer="lamb"))


def test_all_seeds_learn_by_the_recipe_of_the_first(table, pretrained, tmp_path):
    task, start, place = declare_custom_task(table, "review", "label"), PretrainedEncoder(str(pretrained)), tmp_path
    finetune_seeds(task, start, place, place / "runs", RecipeChanges(epochs=1.0, max_length=16), CPU, 1)
    (place / "runs/seed-0/results.json").unlink()
    as_before(place / "runs/seed-0", None)
    finetune_seeds(task, start, place, place / "runs", RecipeChanges(epochs=1.0, max_length=16), CPU, 2)
    for seed in (0, 1):
        recipe = json.loads((place / f"runs/seed-{seed}/results.json").read_text())["recipe"]
        assert recipe == vars(BEFORE)
    assert (place / "runs/task.json").is_file() and (place / "runs/seed-1/task.json").is_file()
