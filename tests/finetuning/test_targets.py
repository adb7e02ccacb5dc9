"""Questions without an answer, tags, and several labels per example."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
import transformers
from tests.refusals import refusal

import albert
from albert.checkpoints.config_json import read_config
from albert.checkpoints.model_directory import open_model, save_model_directory
from albert.finetuning.batches import prepare_split, read_examples
from albert.finetuning.evaluation import evaluate_directory
from albert.finetuning.initial_model import RandomEncoder, initial_model
from albert.finetuning.objective import TaskLoss
from albert.finetuning.opened_model import head_description
from albert.finetuning.task_run import finetune, task_batches
from albert.inference.predictor import Predictor
from albert.model.albert import AlbertForQuestionAnswering
from albert.recipes.finetuning import FinetuningSettings
from albert.runtime.errors import DamagedData, InvalidConfiguration
from albert.tables.table import Answer
from albert.tasks.examples import IGNORE_INDEX, Example
from albert.tasks.multi_label import MultiLabel
from albert.tasks.single_label import SingleLabel
from albert.tasks.span import CHOSEN_ON_THESE
from albert.tasks.span_answers import keep_back_questions
from albert.tasks.span_windows import span_features
from albert.tasks.submission import DECLARED
from albert.tasks.tagging import TokenTagging

# --------------------------------------------------------------------------------------------------------------------
# Questions that may have no answer: held-out questions, training windows, and the threshold.


CPU = FinetuningSettings(device="cpu")


@pytest.fixture
def open_task():
    task = DECLARED["squad-2.0"]
    recipe = replace(task.recipe, learning_rate=3e-3, batch_size=8, steps=12, examples=None)
    return replace(task, recipe=replace(recipe, max_length=32, question_length=8, stride=8))


@pytest.mark.parametrize("head", ["joint", "independent"])
def test_threshold_is_chosen_on_held_out_questions_and_saved(head, open_task, data, start, tmp_path):
    task = replace(open_task, target=replace(open_task.target, head=head))
    result = finetune(task, start, data, tmp_path / "run", settings=CPU)
    assert result.report["training"]["held_out"] == 2
    _, extra = read_config(result.model_directory)
    assert extra["no_answer_threshold_from"] == "2 questions held out of the training set"
    assert any("2 questions held out" in note for note in result.report["notes"])
    assert CHOSEN_ON_THESE in result.report["notes"]
    again = evaluate_directory(open_task, str(tmp_path / "run"), data, device="cpu")  # whichever head it has
    assert again.scores == result.scores
    entries = [json.loads(line) for line in (tmp_path / "run/predictions-dev.jsonl").read_text().splitlines()]
    for entry in entries:
        assert (entry["prediction"] == "") == (entry["no_answer"] > extra["no_answer_threshold"])
        assert sum(answer["probability"] for answer in entry["best"]) + entry["no_answer_probability"] <= 1 + 1e-9
    if head == "joint":
        opened = open_model(result.model_directory, "joint_question_answering")
        assert not opened.loading_report.newly_initialised
        assert opened.extra["architectures"] == ["AlbertForJointQuestionAnswering"]


@pytest.mark.parametrize("value", [-1e9, 1e9])
def test_predictions_follow_the_saved_threshold(value, config, tokenizer_directory, tmp_path):
    torch.manual_seed(0)
    model = AlbertForQuestionAnswering(config)
    save_model_directory(tmp_path / "m", model, tokenizer_directory, extra={"no_answer_threshold": value})
    predictor = Predictor.open(tmp_path / "m", "cpu")
    answers = [answer["answer"] for answer in predictor.answer("who saw?", "the ship saw the storm", top_k=3)]
    assert len(answers) == 3 and answers.count("") <= 1
    assert (answers[0] == "") == (value < 0)
    (none,) = [answer for answer in predictor.answer("who?", "a ship", 99) if not answer["answer"]]
    assert (none["start"], none["end"]) == (0, 0)
    save_model_directory(tmp_path / "bad", model, tokenizer_directory, extra={"no_answer_threshold": "high"})
    with refusal(InvalidConfiguration, "no_answer_threshold", "high"):
        Predictor.open(tmp_path / "bad", "cpu")


def test_threshold_may_be_chosen_on_the_scored_questions(open_task, data, start, tmp_path):
    settings = replace(CPU, null_threshold="dev")
    result = finetune(open_task, start, data, tmp_path / "run", settings=settings)
    assert "held_out" not in result.report["training"]
    assert result.scores["f1"] == pytest.approx(result.scores["best_f1"])
    assert any("chosen on the very questions that are scored" in note for note in result.report["notes"])
    again = evaluate_directory(open_task, str(tmp_path / "run"), data, device="cpu")
    assert again.scores == result.scores


def test_model_without_a_threshold_has_the_threshold_0(open_task, data, config, tokenizer_directory, tmp_path):
    save_model_directory(tmp_path / "m", AlbertForQuestionAnswering(config), tokenizer_directory)
    notes = evaluate_directory(open_task, str(tmp_path / "m"), data, device="cpu", max_length=32).notes
    assert any("chosen on nothing: 0" in note for note in notes)


def questions(n_contexts, answered=lambda context, question: question == 1):
    """Two questions for each context."""
    return [
        Example(f"{c}-{q}", "rows", ("who", f"context {c}"), None, (Answer("context", 0),) if answered(c, q) else ())
        for c in range(n_contexts)
        for q in range(2)
    ]


def test_whole_contexts_are_held_out_by_the_seed():
    examples = questions(100)
    train, held = keep_back_questions(examples, seed=1)
    assert len(held) == 10
    assert sorted(row.identifier for row in train + held) == sorted(row.identifier for row in examples)
    assert not {row.texts[1] for row in train} & {row.texts[1] for row in held}
    assert keep_back_questions(examples, seed=1) == (train, held)
    assert keep_back_questions(examples, seed=2)[1] != held
    with refusal(InvalidConfiguration, "null_threshold=dev"):
        keep_back_questions(questions(1), seed=1)
    with refusal(InvalidConfiguration, "dev"):
        keep_back_questions(questions(100, lambda context, question: True), seed=1)


def test_held_out_questions_are_of_both_kinds():
    examples = questions(100, lambda context, question: context < 99)
    for seed in range(3):
        assert {bool(row.answers) for row in keep_back_questions(examples, seed)[1]} == {True, False}


def test_training_windows(open_task, tokenizer):
    """Windows without the answer are trained on [CLS], unless the answer is in no window of the question."""
    context = "old sailors sang of storms " * 6
    examples = [
        Example("found", "rows", ("who", context), None, (Answer("old", 0),)),
        Example("absent", "rows", ("who", context)),
        Example("not found", "rows", ("who", context), None, (Answer("old", None),)),
    ]

    def windows(task, examples):
        features = span_features(examples, tokenizer, 32, 8, 8)
        learned = task.target.to_train(examples, features, task.title)
        return features, learned.sequences, learned.targets

    features, sequences, _ = windows(open_task, examples)
    assert len(sequences) == sum(window.example < 2 for window in features.windows)
    always_answered = replace(open_task, target=replace(open_task.target, may_be_absent=False))
    _, with_answer, targets = windows(always_answered, examples)
    assert (targets > 0).all() and len(with_answer) < len(sequences)
    with refusal(InvalidConfiguration, "window"):
        windows(open_task, examples[1:2])


# --------------------------------------------------------------------------------------------------------------------
# A tag for every word, and several labels per example.


TRANSFORMERS_CLASSES = {
    TokenTagging: transformers.AlbertForTokenClassification,
    MultiLabel: transformers.AlbertForSequenceClassification,
}
BOTH = pytest.mark.parametrize("task", ["tags", "labels"], indirect=True)


@pytest.fixture
def saved(task, config, tokenizer_directory, tmp_path):
    """A model with random weights, and its directory."""
    initial = initial_model(RandomEncoder(config, tokenizer_directory), task.target, task.recipe, seed=1)
    for parameter in initial.model.parameters():
        parameter.data.normal_(std=0.3)
    extra = head_description(task, task.recipe, None)
    save_model_directory(tmp_path / "model", initial.model.eval(), tokenizer_directory, extra=extra)
    return initial, tmp_path / "model"


@BOTH
def test_loss_is_that_of_transformers(task, saved, tmp_path):
    initial, directory = saved
    prepared = prepare_split(task, tmp_path, "train", initial.tokenizer, task.recipe)
    (batch,) = task_batches(task, prepared, task.recipe, FinetuningSettings()).micro_batches(0, 0, 1)
    (loss,), (count,) = TaskLoss(task.target)(initial.model, batch).losses.values(), batch.counts.values()
    lengths = batch.packed.lengths
    ids, mask = (torch.zeros(len(lengths), max(lengths), dtype=torch.int64) for _ in range(2))
    labels = torch.full_like(ids, IGNORE_INDEX) if isinstance(task.target, TokenTagging) else batch.targets
    start = 0
    for row, length in enumerate(lengths):
        ids[row, :length] = batch.packed.token_ids[start : start + length]
        mask[row, :length] = 1
        if isinstance(task.target, TokenTagging):
            labels[row, :length] = batch.targets[start : start + length]
        start += length
    theirs = TRANSFORMERS_CLASSES[type(task.target)].from_pretrained(directory).eval()
    with torch.inference_mode():
        expected = theirs(input_ids=ids, attention_mask=mask, labels=labels).loss
    assert loss.item() / count == pytest.approx(float(expected), rel=1e-5)


@BOTH
def test_predictor_agrees_with_evaluation(task, saved, tmp_path):
    directory = saved[1]
    entries = evaluate_directory(task, str(directory), tmp_path, device="cpu").predictions
    predictor = Predictor.open(directory, device="cpu", precision="fp32")
    assert predictor.labels == list(task.target.labels)
    if isinstance(task.target, MultiLabel):
        texts = [row.text("sentence") for row in task.source.read(tmp_path, "dev").rows]
        for entry, labels in zip(entries, predictor.classify_batch(texts), strict=True):
            assert {row["label"]: row["score"] for row in labels} == pytest.approx(entry["probabilities"], abs=1e-5)
            assert {row["label"] for row in labels if row["score"] >= 0.5} == set(entry["prediction"])
        return
    for entry, tags in zip(entries, predictor.tag_sentences([e["words"] for e in entries]), strict=True):
        assert [tag["word"] for tag in tags] == entry["words"]
        assert [tag["entity"] for tag in tags] == entry["prediction"]
        assert [tag["score"] for tag in tags] == pytest.approx(entry["probabilities"], abs=1e-5)
    plain = [entry for entry in entries if all(word.isalpha() for word in entry["words"])]
    for entry, tags in zip(plain, predictor.tag_batch([" ".join(e["words"]) for e in plain]), strict=True):
        assert [tag["word"] for tag in tags] == entry["words"]
        assert [tag["entity"] for tag in tags] == entry["prediction"]


@BOTH
def test_order_of_labels_changes_no_prediction(task, saved, tmp_path):
    def evaluate(target):
        return evaluate_directory(replace(task, target=target), str(saved[1]), tmp_path, device="cpu")

    labels = task.target.labels
    one, two = (evaluate(replace(task.target, labels=order)) for order in (labels, labels[::-1]))
    assert one.scores == pytest.approx(two.scores)
    assert one.baseline == pytest.approx(two.baseline)
    for ours, theirs in zip(one.predictions, two.predictions, strict=True):
        ordered = list if isinstance(task.target, TokenTagging) else sorted
        assert ordered(ours["prediction"]) == ordered(theirs["prediction"])
    with refusal(InvalidConfiguration, "labels"):
        evaluate(replace(task.target, labels=("x", *labels[1:])))
    with refusal(InvalidConfiguration):
        evaluate(SingleLabel(labels, "about"))


@pytest.mark.parametrize(
    ("task", "fields", "subjects"),
    [
        ("tags", {"words": ("a", "b"), "tags": ("O",)}, "1 tags 'tags' 2 words"),
        ("tags", {"words": ("a",), "tags": ("B-X",)}, "'B-X' 'tags' 1 'O'"),
        ("tags", {"words": ("a",)}, "'tags'"),
        ("labels", {"sentence": "a", "about": ("boat",)}, "'boat' 'about' 'ship'"),
        ("labels", {"sentence": ("a", "b"), "about": ()}, "'sentence' list"),
    ],
    indirect=["task"],
)
def test_invalid_rows_are_named(task, fields, subjects, tmp_path):
    source = replace(task.source, columns=(*task.source.columns, fields))
    with refusal(DamagedData, "dev:17", *subjects.split()):
        read_examples(replace(task, source=source), tmp_path, "dev")


# --------------------------------------------------------------------------------------------------------------------
# Rare entities: the logit of `O`.


def sentences_with_rare_entities(number: int) -> list[dict[str, list[str]]]:
    """One word in twenty is an entity, and the same word is often none."""
    random = np.random.default_rng(3)
    rows = []
    for _ in range(number):
        words = random.choice(["river", "stone", "light", "paper"], 8).tolist()
        tags = ["O"] * len(words)
        place = int(random.integers(len(words)))
        words[place] = "berlin"
        if random.random() < 0.4:
            tags[place] = "B-place"
        rows.append({"words": words, "tags": tags})
    return rows


def test_the_logit_of_outside_is_lowered_for_entities_and_saved_in_the_head(pretrained, tmp_path):
    rows = sentences_with_rare_entities(550)
    keywords = {"train": rows[:520], "dev": rows[520:], "words": "words", "tags": "tags", "model": str(pretrained)}
    result = albert.finetune(**keywords, output=tmp_path / "run", steps=40, learning_rate=3e-3, device="cpu")
    assert result.report["training"]["held_out"] == 100
    assert any("the logit of O " in note for note in result.report["notes"])
    assert result.scores["entity_recall"] > 0
    again = albert.evaluate(model=result.model, dev=rows[520:], words="words", tags="tags", device="cpu")
    assert again.scores == pytest.approx(result.scores)
    entries = [json.loads(line) for line in (tmp_path / "run/predictions-dev.jsonl").read_text().splitlines()]
    predicted = albert.load(result.model, device="cpu").tag_sentences([row["words"] for row in rows[520:]])
    assert [[word["entity"] for word in sentence] for sentence in predicted] == [
        entry["prediction"] for entry in entries
    ]


@pytest.mark.parametrize("number", [300, 520])
def test_few_sentences_and_parts_of_speech_hold_nothing_out(number, pretrained, tmp_path):
    rows = sentences_with_rare_entities(number + 6)
    if number == 520:
        rows = [{"words": row["words"], "tags": ["noun"] * 7 + ["verb"]} for row in rows]
    train = rows[:number]
    keywords = {"train": train, "dev": rows[number:], "words": "words", "tags": "tags", "model": str(pretrained)}
    result = albert.finetune(**keywords, output=tmp_path / "run", steps=2, device="cpu")
    assert "held_out" not in result.report["training"]
