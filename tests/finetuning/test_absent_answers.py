"""Questions without an answer; tags and sets of labels."""

import json
from dataclasses import replace

import pytest
import torch
import transformers

from albert.checkpoints.model_directory import open_model, read_config, save_model_directory
from albert.finetuning.data import PreparedSplit, prepare_split, read_examples
from albert.finetuning.evaluation import CHOSEN_ON_THESE, evaluate_directory, hold_out
from albert.finetuning.model import PretrainedEncoder, RandomEncoder, head_description, start_model
from albert.finetuning.objective import task_loss
from albert.finetuning.run import finetune, task_batches, training_windows
from albert.finetuning.run_record import FinetuningSettings
from albert.inference.predictor import Predictor
from albert.model.albert import AlbertForQuestionAnswering
from albert.runtime.errors import DamagedData, InvalidConfiguration
from albert.tasks.examples import IGNORE_INDEX, Example, span_features
from albert.tasks.submission import DECLARED
from albert.tasks.task import Answer, Choice, Labels, Tags

# --------------------------------------------------------------------------------------------------------------------
# Questions that may have no answer: what is kept back, which windows teach, and where the threshold comes from.


CPU = FinetuningSettings(device="cpu")


@pytest.fixture
def open_task():
    task = DECLARED["squad-2.0"]
    recipe = replace(
        task.recipe,
        learning_rate=3e-3,
        batch_size=8,
        steps=12,
        examples=None,
        max_length=32,
        question_length=8,
        stride=8,
    )
    return replace(task, recipe=recipe)


@pytest.mark.parametrize("head", ["joint", "independent"])
def test_the_threshold_is_of_questions_held_out_and_goes_with_the_model(head, open_task, data, pretrained, tmp_path):
    task = replace(open_task, target=replace(open_task.target, head=head))
    result = finetune(task, PretrainedEncoder(str(pretrained)), data, tmp_path / "run", settings=CPU)
    assert result.report["training"]["held_out"] == 2
    _, extra = read_config(result.model_directory)
    assert extra["no_answer_threshold_from"] == "2 questions held out of the training set"
    assert any("2 questions held out" in note for note in result.report["notes"])
    assert CHOSEN_ON_THESE in result.report["notes"]
    again = evaluate_directory(open_task, str(tmp_path / "run"), data, device="cpu")  # whichever head it has
    assert again.evaluation.scores == result.scores
    entries = [json.loads(line) for line in (tmp_path / "run/predictions-dev.jsonl").read_text().splitlines()]
    for entry in entries:
        assert (entry["prediction"] == "") == (entry["no_answer"] > extra["no_answer_threshold"])
        assert sum(each["probability"] for each in entry["best"]) + entry["no_answer_probability"] <= 1 + 1e-9


@pytest.mark.parametrize("value", [-1e9, 1e9])
def test_predictions_follow_the_threshold_of_the_model(value, config, tokenizer_directory, tmp_path):
    torch.manual_seed(0)
    model = AlbertForQuestionAnswering(config)
    save_model_directory(tmp_path / "m", model, tokenizer_directory, extra={"no_answer_threshold": value})
    found = Predictor.open(tmp_path / "m", "cpu").answer("who saw?", "the ship saw the storm", top_k=3)
    assert len(found) == 3
    assert [each["answer"] == "" for each in found].count(True) <= 1
    assert (found[0]["answer"] == "") == (value < 0)
    (none,) = [
        each for each in Predictor.open(tmp_path / "m", "cpu").answer("who?", "a ship", 99) if not each["answer"]
    ]
    assert (none["start"], none["end"]) == (0, 0)
    save_model_directory(tmp_path / "bad", model, tokenizer_directory, extra={"no_answer_threshold": "high"})
    with pytest.raises(InvalidConfiguration, match="no_answer_threshold: is 'high', a number is needed"):
        Predictor.open(tmp_path / "bad", "cpu")


def test_the_references_way_is_there_and_said(open_task, data, pretrained, tmp_path):
    settings = replace(CPU, null_threshold="dev")
    result = finetune(open_task, PretrainedEncoder(str(pretrained)), data, tmp_path / "run", settings=settings)
    assert "held_out" not in result.report["training"]
    assert result.scores["f1"] == pytest.approx(result.scores["best_f1"])
    assert any("chosen on the very questions that are scored" in note for note in result.report["notes"])
    again = evaluate_directory(open_task, str(tmp_path / "run"), data, device="cpu")
    assert again.evaluation.scores == result.scores


def test_a_span_model_of_transformers_is_scored_with_the_threshold_0(
    open_task, data, config, tokenizer_directory, tmp_path
):
    save_model_directory(tmp_path / "m", AlbertForQuestionAnswering(config), tokenizer_directory)
    found = evaluate_directory(replace(open_task), str(tmp_path / "m"), data, device="cpu", max_length=32)
    assert any("chosen on nothing: 0" in note for note in found.notes)


def questions(n_contexts, per_context=2):
    return [
        Example(f"{c}-{q}", "here", ("who", f"context {c}"), None, (Answer("context", 0),) if q else ())
        for c in range(n_contexts)
        for q in range(per_context)
    ]


def test_whole_contexts_are_held_out_by_the_seed():
    examples = questions(100)
    learnt, held = hold_out(examples, seed=1)
    assert len(held) == 10
    assert sorted(each.identifier for each in learnt + held) == sorted(each.identifier for each in examples)
    assert not {each.texts[1] for each in learnt} & {each.texts[1] for each in held}
    assert hold_out(examples, seed=1) == (learnt, held)
    assert hold_out(examples, seed=2)[1] != held
    with pytest.raises(InvalidConfiguration, match=r"too few contexts.*--null-threshold dev"):
        hold_out(questions(1), seed=1)
    answered = [replace(each, answers=(Answer("x", 0),)) for each in examples]
    with pytest.raises(InvalidConfiguration, match=r"every question has an answer in the training set.*dev"):
        hold_out(answered, seed=1)


def test_questions_of_both_kinds_are_held_out():
    """A threshold cannot be chosen on questions that all have an answer."""
    examples = [replace(each, answers=(Answer("x", 0),)) for each in questions(100)]
    last = examples[-1].texts[1]
    examples = [replace(each, answers=()) if each.texts[1] == last else each for each in examples]
    for seed in range(3):
        assert {bool(each.answers) for each in hold_out(examples, seed)[1]} == {True, False}


def test_windows_without_the_answer_teach_that_there_is_none_unless_the_place_is_unknown(open_task, tokenizer):
    context = "old sailors sang of storms " * 6
    examples = [
        Example("placed", "here", ("who", context), None, (Answer("old", 0),)),
        Example("absent", "here", ("who", context)),
        Example("unknown", "here", ("who", context), None, (Answer("old", None),)),
    ]
    features = span_features(examples, tokenizer, 32, 8, 8)
    learnt = training_windows(open_task, PreparedSplit("train", examples, features, {}), features)
    assert {features.windows[place].example for place in learnt} == {0, 1}
    assert len(learnt) == sum(window.example < 2 for window in features.windows)
    certain = replace(open_task, target=replace(open_task.target, may_be_absent=False))
    held = training_windows(certain, PreparedSplit("train", examples, features, {}), features)
    assert (features.targets[held, 0] >= 0).all()
    assert len(held) < len(learnt)
    with pytest.raises(InvalidConfiguration, match="no window of the training set holds an answer"):
        training_windows(
            open_task,
            PreparedSplit("train", examples[1:2], features, {}),
            span_features(examples[1:2], tokenizer, 32, 8, 8),
        )


def test_a_joint_model_opens_as_what_it_is(open_task, data, pretrained, tmp_path):
    result = finetune(open_task, PretrainedEncoder(str(pretrained)), data, tmp_path / "run", settings=CPU)
    opened = open_model(result.model_directory, "joint_question_answering")
    assert not opened.loading_report.newly_initialised
    assert opened.extra["architectures"] == ["AlbertForJointQuestionAnswering"]


# --------------------------------------------------------------------------------------------------------------------
# A tag for every word and several labels at once: transformers' losses, one answer everywhere, bad input in a line.


THEIRS = {
    Tags: transformers.AlbertForTokenClassification,
    Labels: transformers.AlbertForSequenceClassification,
}


BOTH = pytest.mark.parametrize("task", ["tags", "labels"], indirect=True)


@pytest.fixture
def saved(task, config, tokenizer_directory, tmp_path):
    """A model with weights that tell its outputs apart, and its directory."""
    started = start_model(RandomEncoder(config, tokenizer_directory), task.target, task.recipe, seed=1)
    for parameter in started.model.parameters():
        parameter.data.normal_(std=0.3)
    extra = head_description(task, task.recipe, None)
    save_model_directory(tmp_path / "model", started.model.eval(), tokenizer_directory, extra=extra)
    return started, tmp_path / "model"


@BOTH
def test_the_loss_is_that_of_transformers(task, saved, tmp_path):
    started, directory = saved
    prepared = prepare_split(task, tmp_path, "train", started.tokenizer, task.recipe)
    batches = task_batches(task, prepared, task.recipe, FinetuningSettings())
    theirs = THEIRS[type(task.target)].from_pretrained(directory).eval()
    sums = [task_loss(started.model, batch) for batch in batches.micro_batches(0, 0, 1)]
    count = sum(next(iter(batch.counts.values())) for batch in batches.micro_batches(0, 0, 1))
    ours = sum(next(iter(each.losses.values())).item() for each in sums) / count
    (batch,) = batches.micro_batches(0, 0, 1)
    lengths = batch.packed.lengths
    ids, mask = (torch.zeros(len(lengths), max(lengths), dtype=torch.int64) for _ in range(2))
    tags = torch.full_like(ids, IGNORE_INDEX)
    start = 0
    for row, length in enumerate(lengths):
        ids[row, :length] = batch.packed.token_ids[start : start + length]
        mask[row, :length] = 1
        if isinstance(task.target, Tags):
            tags[row, :length] = batch.targets[start : start + length]
        start += length
    labels = tags if isinstance(task.target, Tags) else batch.targets
    with torch.inference_mode():
        loss = theirs(input_ids=ids, attention_mask=mask, labels=labels).loss
    assert ours == pytest.approx(float(loss), rel=1e-5)


@BOTH
def test_the_denominator_is_what_is_judged(task, saved, tmp_path):
    prepared = prepare_split(task, tmp_path, "train", saved[0].tokenizer, task.recipe)
    recipe = replace(task.recipe, batch_size=len(prepared.features.sequences))
    batches = task_batches(task, prepared, recipe, FinetuningSettings())
    recipe = replace(recipe, batch_size=batches.n_examples)
    batches = task_batches(task, prepared, recipe, FinetuningSettings(micro_batch_tokens=50))
    counted = sum(next(iter(batch.counts.values())) for batch in batches.micro_batches(0, 0, 1))
    if isinstance(task.target, Tags):
        assert counted == prepared.counts["words"] == sum(len(each.texts) for each in prepared.examples)
        assert prepared.counts["words_without_pieces"] == 6
        assert prepared.counts["sentences_without_words"] == 1
        assert prepared.counts["sentences_in_several_windows"] == 1
        assert prepared.counts["tags_that_continue_nothing"] == 1
        assert len(batches.sequences) == len(prepared.features.sequences) - 1
    else:
        assert counted == 16


@BOTH
def test_the_predictor_says_what_the_evaluation_says(task, saved, tmp_path):
    directory = saved[1]
    entries = evaluate_directory(task, str(directory), tmp_path, device="cpu").evaluation.predictions
    predictor = Predictor.open(directory, device="cpu", precision="fp32")
    assert predictor.labels == list(task.target.labels)
    if isinstance(task.target, Labels):
        texts = [row.text("sentence") for row in task.source.read(tmp_path, "dev").rows]
        for entry, found in zip(entries, predictor.classify_batch(texts), strict=True):
            assert {each["label"]: each["score"] for each in found} == pytest.approx(entry["probabilities"], abs=1e-5)
            assert {each["label"] for each in found if each["score"] >= 0.5} == set(entry["prediction"])
        return
    for entry, found in zip(entries, predictor.tag_sentences([e["words"] for e in entries]), strict=True):
        assert [each["word"] for each in found] == entry["words"]
        assert [each["entity"] for each in found] == entry["prediction"]
        assert [each["score"] for each in found] == pytest.approx(entry["probabilities"], abs=1e-5)
    plain = [entry for entry in entries if all(word.isalpha() for word in entry["words"])]
    for entry, found in zip(plain, predictor.tag_batch([" ".join(e["words"]) for e in plain]), strict=True):
        assert [(each["word"], each["entity"]) for each in found] == list(
            zip(entry["words"], entry["prediction"], strict=True)
        )


@BOTH
def test_another_order_of_labels_changes_no_answer(task, saved, tmp_path):
    turned = replace(task, target=replace(task.target, labels=task.target.labels[::-1]))
    one, two = (evaluate_directory(each, str(saved[1]), tmp_path, device="cpu").evaluation for each in (task, turned))
    assert one.scores == pytest.approx(two.scores)
    assert one.baseline == pytest.approx(two.baseline)
    for ours, theirs in zip(one.predictions, two.predictions, strict=True):
        ordered = list if isinstance(task.target, Tags) else sorted
        assert ordered(ours["prediction"]) == ordered(theirs["prediction"])
    other = replace(task, target=replace(task.target, labels=("x", *task.target.labels[1:])))
    with pytest.raises(InvalidConfiguration, match="has the labels"):
        evaluate_directory(other, str(saved[1]), tmp_path, device="cpu")


@BOTH
def test_a_model_of_one_label_is_not_asked_for_several(task, saved, tmp_path):
    target = Choice(task.target.labels, "about")
    with pytest.raises(InvalidConfiguration, match="several labels at once|has no head for this task"):
        evaluate_directory(replace(task, target=target), str(saved[1]), tmp_path, device="cpu")


@pytest.mark.parametrize(
    ("task", "fields", "said"),
    [
        (
            "tags",
            {"words": ("a", "b"), "tags": ("O",)},
            "has 1 tags in column 'tags' for 2 words; every word needs one",
        ),
        (
            "tags",
            {"words": ("a",), "tags": ("B-SHIP",)},
            "unknown tag 'B-SHIP' in column 'tags', at word 1; known: 'O'",
        ),
        ("tags", {"words": ("a",)}, "has no column 'tags'"),
        (
            "labels",
            {"sentence": "a", "about": ("ship", "boat")},
            "unknown label 'boat' in column 'about'; known: 'ship'",
        ),
        ("labels", {"sentence": ("a", "b"), "about": ()}, "has a list in column 'sentence' where a text is expected"),
    ],
    indirect=["task"],
)
def test_bad_rows_are_named(task, fields, said, tmp_path):
    broken = replace(task.source, columns=(*task.source.columns, fields))
    with pytest.raises(DamagedData, match=f"dev:17: {said}"):
        read_examples(replace(task, source=broken), tmp_path, "dev")
