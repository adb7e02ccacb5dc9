"""Fine-tuning: runs, batches, losses, and the default recipe."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from experiments.grids import TABLE_14
from hypothesis import given
from hypothesis import strategies as st
from tests.finetuning.conftest import filled_in
from tests.parity import assert_transformers_opens
from tests.refusals import refusal
from tests.tiny import short_task
from torch.nn import functional

import albert
from albert.checkpoints.model_directory import open_model
from albert.cli.main import run
from albert.columns.read import declare_custom_task
from albert.finetuning.batches import TaskBatch, TaskBatches, batch_members, prepare_split
from albert.finetuning.evaluation import ComputeOptions, evaluate_directory, evaluate_model
from albert.finetuning.fill_in import (
    MAX_EPOCHS,
    MIN_UPDATES,
    rate_for_width,
)
from albert.finetuning.initial_model import (
    PretrainedEncoder,
    RandomEncoder,
    initial_model,
    random_encoder_like,
)
from albert.finetuning.objective import TaskLoss
from albert.finetuning.task_run import finetune
from albert.model.albert import SpanFromStart
from albert.model.packing import pack
from albert.recipes.architecture import PRESETS
from albert.recipes.finetuning import FinetuningSettings, RecipeChanges, TaskRecipe
from albert.runtime.errors import AlbertError, CannotCreate, DamagedData, InvalidConfiguration, MissingInput
from albert.runtime.json_files import read_journal, read_json_object
from albert.runtime.manifest import verify_directory
from albert.tasks.examples import join_sequences
from albert.tasks.multi_label import MultiLabel
from albert.tasks.multiple_choice import MultipleChoice
from albert.tasks.regression import Regression
from albert.tasks.single_label import SingleLabel
from albert.tasks.span import Span
from albert.tasks.submission import DECLARED
from albert.tasks.tagging import TokenTagging
from albert.text.tokenizer_loading import load_tokenizer

SHORT = short_task(steps=6, encoder_dropout=0.1)

# --------------------------------------------------------------------------------------------------------------------
# Runs.


CPU = FinetuningSettings(device="cpu", encode_pairs="together", match_embedding=False)  # as transformers does
LEAST_SCORES = {"accuracy": 100, "pearson": 95, "span_f1": 100, "f1": 90, "entity_f1": 95, "micro_f1": 95}


def test_model_learns_sixteen_examples_and_opens_in_transformers(task, task_data, start, tmp_path):
    result = finetune(task, start, task_data, tmp_path / "run", settings=CPU)
    name, score = next(iter(result.scores.items()))
    assert score >= LEAST_SCORES[name]
    verify_directory(result.model_directory)
    report = read_json_object(tmp_path / "run/results.json")
    training, evaluation = report["training"], report["evaluation"]
    may_be_absent = isinstance(task.target, Span) and task.target.may_be_absent
    assert report["scores"] == result.scores and report["seed"] == 0
    assert evaluation["examples"] == (32 if may_be_absent else 16)
    assert training["examples"] == evaluation["examples"] - training.get("held_out", 0)
    assert bool(training.get("held_out")) == may_be_absent and training["sequences_per_second"] > 0
    if isinstance(task.target, SingleLabel):
        assert report["baseline"] == {"accuracy": 50.0}
    losses = [e["loss"] for e in read_journal(tmp_path / "run/journal.jsonl") if e["event"] == "train"]
    assert losses[-1] < losses[0] / 3
    again = evaluate_directory(task, str(tmp_path / "run"), task_data, device="cpu")
    assert again.scores == result.scores
    lines = (tmp_path / "run/predictions-dev.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == again.predictions
    assert_transformers_computes_the_same(task, task_data, result.model_directory)


PROBLEM_TYPES = {
    SingleLabel: "single_label_classification",
    Regression: "regression",
    MultiLabel: "multi_label_classification",
}


def assert_transformers_computes_the_same(task, task_data, directory):
    """The same logits; of a joint head, which transformers lacks, the same states of the encoder."""
    sequences = prepare_split(task, task_data, "dev", load_tokenizer(directory), task.recipe).features.sequences
    theirs = assert_transformers_opens(directory, [sequences.token_ids(3)], [sequences.token_type_ids(3)])
    if isinstance(task.target, SingleLabel):
        assert theirs.config.id2label == {0: "negative", 1: "positive"}
    if type(task.target) in PROBLEM_TYPES:
        assert theirs.config.problem_type == PROBLEM_TYPES[type(task.target)]
    if isinstance(task.target, MultiLabel | TokenTagging):
        assert list(theirs.config.id2label.values()) == list(task.target.labels)


def test_resumed_run_has_the_same_weights(data, start, complete_and_resumed):
    complete_and_resumed(SHORT, start, data / "choice", replace(CPU, checkpoint_every=2), 4)


def test_finished_run_is_returned_and_another_one_refused(data, start, tmp_path):
    first = finetune(SHORT, start, data / "choice", tmp_path / "run", settings=CPU)
    again = finetune(SHORT, start, data / "choice", tmp_path / "run", settings=replace(CPU, workers=0))
    assert again.already_complete and again.scores == first.scores
    with refusal(CannotCreate, "seed"):
        finetune(SHORT, start, data / "choice", tmp_path / "run", settings=replace(CPU, seed=1))


def test_the_precision_that_a_machine_chose_is_that_of_the_run(data, start, tmp_path):
    """The default of the machine is in the record, so that it may be named, and another machine keeps it."""
    usual = replace(CPU, precision=None)
    finetune(SHORT, start, data / "choice", tmp_path / "run", settings=usual)
    assert read_json_object(tmp_path / "run/recipe.json")["settings"]["precision"] == "fp32"
    assert finetune(SHORT, start, data / "choice", tmp_path / "run", settings=CPU).already_complete
    with refusal(CannotCreate, 'precision ("fp32", now "bf16")'):
        finetune(SHORT, start, data / "choice", tmp_path / "run", settings=replace(CPU, precision="bf16"))
    finetune(SHORT, start, data / "choice", tmp_path / "other", settings=replace(CPU, precision="bf16"))
    (tmp_path / "other/results.json").unlink()
    again = finetune(SHORT, start, data / "choice", tmp_path / "other", settings=usual)
    assert not again.already_complete and again.report["computed_in"] == "bf16"


def test_random_encoder_has_the_architecture_but_not_the_weights(pretrained, start):
    recipe = replace(DECLARED["sst-2"].recipe, encoder_dropout=0.2, head_dropout=0.3)
    target = SingleLabel(("a", "b"), "label")
    trained, again = (initial_model(start, target, recipe, seed=0) for _ in range(2))
    control = initial_model(random_encoder_like(start), target, recipe, seed=0)
    assert trained.config == control.config
    dropouts = ("hidden_dropout_prob", "attention_probs_dropout_prob", "classifier_dropout_prob")
    assert [getattr(trained.config, name) for name in dropouts] == [0.2, 0.2, 0.3]
    ours, theirs = trained.model.state_dict(), control.model.state_dict()
    word = "albert.embeddings.word_embeddings.weight"
    original = open_model(pretrained, "pretraining").model.state_dict()
    assert torch.equal(ours[word], original[word]) and not torch.equal(theirs[word], original[word])
    assert {name: t.shape for name, t in ours.items()} == {name: t.shape for name, t in theirs.items()}
    assert any("classifier.weight" in note and "new" in note for note in trained.notes)
    assert all(torch.equal(tensor, again.model.state_dict()[name]) for name, tensor in ours.items())


def test_max_train_examples_draws_a_counted_subset(data, config, tokenizer_directory, tmp_path):
    start, settings = RandomEncoder(config, tokenizer_directory), replace(CPU, max_train_examples=5)
    report = finetune(SHORT, start, data / "choice", tmp_path / "run", settings=settings).report
    counts = [report[part][name] for part in ("training", "evaluation") for name in ("examples", "left_out_by_choice")]
    assert counts == [5, 11, 16, 0]


def test_labels_are_matched_by_name_whatever_their_order(data, start, tmp_path):
    finetune(SHORT, start, data / "choice", tmp_path / "run", settings=CPU)

    def evaluate(labels, names):
        task = replace(SHORT, target=SingleLabel(labels, "label", names=names))
        return evaluate_directory(task, str(tmp_path / "run"), data / "choice", device="cpu")

    one, two = evaluate(("0", "1"), ("negative", "positive")), evaluate(("1", "0"), ("positive", "negative"))
    assert one.scores == two.scores
    assert [p["prediction"] for p in one.predictions] == [p["prediction"] for p in two.predictions]
    with refusal(InvalidConfiguration, "negative, positive", "bad, good"):
        evaluate(("0", "1"), ("bad", "good"))


@pytest.mark.parametrize("tokens", [1, 10_000])
def test_the_size_of_evaluation_batches_changes_no_answer(task, task_data, config, tokenizer_directory, tokens):
    initial = initial_model(RandomEncoder(config, tokenizer_directory), task.target, task.recipe, seed=3)
    prepared = prepare_split(task, task_data, "dev", initial.tokenizer, task.recipe)
    one, two = (
        evaluate_model(initial.model, task, prepared, ComputeOptions(torch.device("cpu"), "fp32", size)).predictions
        for size in (tokens, 77)
    )
    assert [p["id"] for p in one] == [e.identifier for e in prepared.examples]
    for ours, theirs in zip(one, two, strict=True):
        if isinstance(task.target, Regression):
            assert np.isclose(ours["prediction"], theirs["prediction"], atol=1e-5)
        else:
            assert ours["prediction"] == theirs["prediction"]


def test_bad_input_leaves_no_directory(data, start, tmp_path):
    (tmp_path / "train.tsv").write_text("sentence\tlabel\ngood\t1\nbad\t0\n")
    with refusal(MissingInput, "dev.tsv"):
        finetune(SHORT, start, tmp_path, tmp_path / "run", settings=CPU)
    (tmp_path / "dev.tsv").write_text("sentence\tlabel\ngood\t7\n")
    with refusal(DamagedData, "'7'"):
        finetune(SHORT, start, tmp_path, tmp_path / "run", settings=CPU)
    with pytest.raises(AlbertError):
        finetune(SHORT, PretrainedEncoder(str(tmp_path)), data / "choice", tmp_path / "run", settings=CPU)
    assert not (tmp_path / "run").exists()


# --------------------------------------------------------------------------------------------------------------------
# The batch of a step is a pure function of seed and step; ranks and micro-batches only divide it.


@given(n=st.integers(1, 30), batch=st.integers(1, 12), seed=st.integers(0, 5))
def test_every_epoch_has_every_example_once(n, batch, seed):
    steps = -(-2 * n // batch)
    members = np.concatenate([batch_members(n, batch, seed, step) for step in range(steps)])
    assert sorted(members[:n]) == sorted(members[n : 2 * n]) == list(range(n))


def test_order_depends_on_epoch_and_seed():
    first, again, second, other_seed = (batch_members(50, 50, *key) for key in ((0, 0), (0, 0), (0, 1), (1, 0)))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, second) and not np.array_equal(first, other_seed)


@given(
    lengths=st.lists(st.integers(1, 9), min_size=1, max_size=12),
    batch=st.integers(1, 16),
    world=st.integers(1, 4),
    tokens=st.integers(1, 40),
    step=st.integers(0, 5),
)
def test_ranks_and_micro_batches_divide_one_batch(lengths, batch, world, tokens, step):
    sequences = join_sequences([([i] * length, 1) for i, length in enumerate(lengths)])
    source = TaskBatches(sequences, np.arange(len(lengths)), "choice", batch, 7, tokens)
    members = []
    for rank in range(world):
        for piece in source.micro_batches(step, rank, world):
            assert piece.n_tokens <= tokens or piece.packed.n_sequences == 1
            assert piece.counts == {"choice": piece.packed.n_sequences}
            members += piece.targets.tolist()
    assert sorted(members) == sorted(batch_members(len(lengths), batch, 7, step).tolist())


@given(n=st.integers(1, 7), options=st.integers(2, 4), world=st.integers(1, 3), tokens=st.integers(1, 60))
def test_options_of_a_question_stay_together_and_in_order(n, options, world, tokens):
    sequences = join_sequences([([100 * row + option] * 3, 1) for row in range(n) for option in range(options)])
    example_of, slot_of = np.divmod(np.arange(n * options), options)
    source = TaskBatches(sequences, np.arange(n), "option", n, 7, tokens, example_of=example_of, slot_of=slot_of)
    members = []
    for rank in range(world):
        for piece in source.micro_batches(0, rank, world):
            assert piece.counts == {"option": len(piece.targets)}
            first = piece.packed.token_ids[piece.packed.first_positions].reshape(len(piece.targets), options)
            assert (first == 100 * piece.targets[:, None] + torch.arange(options)).all()
            members += piece.targets.tolist()
    assert sorted(members) == list(range(n))


# --------------------------------------------------------------------------------------------------------------------
# Losses.


LENGTHS = (3, 5, 2)


def loss_of(output, targets, target, **slots):
    """The loss of a model with this output for three sequences, and the arguments that the model got."""
    calls = []

    class Model(torch.nn.Module):
        def forward(self, packed, *head_inputs):
            calls.append(head_inputs)
            return output

    ids = [np.zeros(length, np.int64) for length in LENGTHS]
    sums = TaskLoss(target)(Model(), TaskBatch(pack(ids, ids), targets, target.term, **slots))
    return sums.losses[target.term].item(), sums.correct, calls[0]


def test_span_loss_is_the_mean_of_two_cross_entropies_within_each_sequence():
    starts, ends, unanswerable = torch.randn(10), torch.randn(10), torch.randn(3)
    targets = torch.tensor([[0, 0], [1, 4], [0, 0]])
    expected = 0.0
    for logits, positions in zip((starts, ends), targets.T, strict=True):
        pieces = zip(logits.split(LENGTHS), positions, strict=True)
        expected += sum(functional.cross_entropy(piece, position) / 2 for piece, position in pieces).item()
    span, _, _ = loss_of((starts, ends), targets, Span())
    assert span == pytest.approx(expected, rel=1e-6)
    # A joint head adds half the cross entropy of "no answer", and reads the gold starts, counted over all tokens.
    decision = functional.binary_cross_entropy_with_logits(unanswerable, torch.tensor([1.0, 0.0, 1.0]), reduction="sum")
    joint, _, (gold_starts,) = loss_of(SpanFromStart(starts, ends, unanswerable), targets, Span(head="joint"))
    assert joint == pytest.approx(span + decision.item() / 2, rel=1e-6)
    assert gold_starts.tolist() == [0, 3 + 1, 8]


def test_other_losses_are_sums():
    logits, labels = torch.randn(3, 4), torch.tensor([0, 3, 1])
    loss, _, _ = loss_of(logits, labels, SingleLabel(("a", "b", "c", "d"), "y"))
    assert loss == pytest.approx(functional.cross_entropy(logits, labels).item() * 3, rel=1e-6)
    numbers, gold = torch.randn(3, 1), torch.tensor([0.5, 5.0, 2.0])
    loss, correct, _ = loss_of(numbers, gold, Regression("y"))
    assert loss == pytest.approx(((numbers[:, 0] - gold) ** 2).sum().item(), rel=1e-6) and correct == {}
    options = torch.randn(3)  # the options of one question compete with each other
    slots = {"example_of": torch.zeros(3, dtype=torch.int64), "slot_of": torch.arange(3), "n_slots": 3}
    loss, _, _ = loss_of(options, torch.tensor([2]), MultipleChoice(("A", "B", "C"), "y"), **slots)
    assert loss == pytest.approx(functional.cross_entropy(options[None], torch.tensor([2])).item(), rel=1e-6)


# --------------------------------------------------------------------------------------------------------------------
# The default recipe, by the width of the model and the number of rows.


FEW = RecipeChanges(steps=3, max_length=16)
OLD_RECIPE = TaskRecipe(learning_rate=1.2e-4, batch_size=8, epochs=1.0, max_length=16)
"""A default recipe that is not that of today."""


@pytest.fixture
def table(tmp_path):
    """A table of 24 rows, the same for training and development."""
    rows = "".join(f"the {word} ship {n},{n % 2}\n" for n, word in enumerate(("good", "bad", "long") * 8))
    path = tmp_path / "my.csv"
    path.write_text("review,label\n" + rows)
    return {"train": path, "dev": path}


@pytest.fixture
def own_task(table):
    return declare_custom_task(table, "review", "label")


@pytest.fixture
def command(table, pretrained):
    def finetune_table(output, *flags):
        files = ["--train", str(table["train"]), "--dev", str(table["dev"]), "--text", "review", "--label", "label"]
        return run(["finetune", *files, "--model", str(pretrained), "--output", str(output), "--device", "cpu", *flags])

    return finetune_table


def test_command_and_python_write_the_same_files(command, table, pretrained, tmp_path, monkeypatch):
    monkeypatch.setattr("albert.finetuning.fill_in.MIN_UPDATES", 8)
    folders = one, two = tmp_path / "one", tmp_path / "two"
    assert command(one) == 0
    albert.finetune(**table, text="review", label="label", model=pretrained, output=two, device="cpu")
    first, second = (
        sorted(
            str(path.relative_to(folder))
            for path in folder.rglob("*")
            if "events" not in path.name and path.name != "curves.png"
        )
        for folder in folders
    )
    assert first == second and {"task.json", "results.json", "model/model.safetensors"} <= {*first}
    for name in ("recipe.json", "model/model.safetensors", "model/config.json", "predictions-dev.jsonl"):
        assert (one / name).read_bytes() == (two / name).read_bytes(), name
    tasks = [read_json_object(folder / "task.json") for folder in folders]
    assert [task.pop("held_out") != {} for task in tasks] and tasks[0] == tasks[1]
    assert run(["evaluate", "--model", str(two), "--device", "cpu"]) == 0


def test_learning_rate_is_the_published_one_from_768_on_and_higher_below():
    for preset in ("albert-base", "albert-large", "albert-xlarge", "albert-xxlarge", "bert-base"):
        assert rate_for_width(2e-5, PRESETS[preset].hidden_size) == 2e-5
    rates = [rate_for_width(2e-5, width) for width in (64, 128, 256, 384, 512)]
    assert rates == sorted(rates, reverse=True) and rates[-1] > 2e-5
    assert rates[:3] == pytest.approx([5e-4, 5e-4, 2.5e-4], rel=0.02)
    assert rate_for_width(1e-4, 64) == 1e-3 and rate_for_width(2e-3, 64) == 2e-3


@pytest.mark.parametrize("name", sorted(TABLE_14))
def test_published_task_keeps_its_recipe_except_the_rate(name):
    task = DECLARED[name]
    wide, narrow = (filled_in(task, width=width, rows=task.recipe.examples or 1000) for width in (768, 128))
    assert wide.values == task.recipe and wide.updates == TABLE_14[name]["steps"]
    assert narrow.values == replace(task.recipe, learning_rate=rate_for_width(task.recipe.learning_rate, 128))


def test_explicit_values_are_not_changed(table, own_task):
    changes = RecipeChanges(learning_rate=3e-5, epochs=2.0, batch_size=7)
    recipe = filled_in(own_task, changes, 32, 24).values
    assert (recipe.learning_rate, recipe.epochs, recipe.batch_size) == (3e-5, 2.0, 7)
    complete = TaskRecipe(learning_rate=1e-3, batch_size=5, steps=4)
    for recipe in (
        filled_in(own_task, complete, 32, 24),
        filled_in(declare_custom_task(table, "review", "label", recipe=complete), None, 32, 24),
        filled_in(replace(DECLARED["sst-2"], recipe=complete), None, 32, 24),
    ):
        assert recipe.values == complete


@pytest.mark.parametrize("rows", [40, 300, 800, 3000, 4999, 5000, 50_000])
def test_small_table_gets_enough_updates(own_task, rows):
    recipe = filled_in(own_task, rows=rows)
    assert recipe.epochs >= 3 - 0.1
    assert recipe.updates >= MIN_UPDATES or recipe.values.epochs == MAX_EPOCHS
    assert recipe.values.batch_size == (16 if rows < 5000 else 32)


def make_unfinished(folder):
    """Turn a run into an unfinished one that recorded other defaults."""
    (folder / "results.json").unlink()
    record = read_json_object(folder / "recipe.json")
    record["recipe"] = {**vars(OLD_RECIPE)}
    record["by_default"] = ["batch_size", "epochs", "examples", "learning_rate", "steps"]
    (folder / "recipe.json").write_text(json.dumps(record))


def test_resumed_run_keeps_its_recorded_defaults(command, tmp_path):
    output = tmp_path / "run"
    assert command(output, "max_length=16", "epochs=1") == 0
    make_unfinished(output)
    assert command(output, "max_length=16") == 0
    report = read_json_object(output / "results.json")
    assert report["recipe"] == vars(OLD_RECIPE) and report["training"]["steps"] == 3
    assert command(output, "max_length=16") == 0
    assert command(output, "max_length=16", "epochs=2") == 73


def test_explicit_values_must_be_repeated_when_a_run_is_resumed(command, tmp_path, capsys):
    assert command(tmp_path / "run", "max_length=16", "epochs=1") == 0
    assert command(tmp_path / "run", "max_length=16") == 73
    assert "epochs (1.0, now" in capsys.readouterr().err
