"""A tag for every word and several labels at once: transformers' losses, one answer everywhere, bad input in a line."""

from dataclasses import replace

import pytest
import torch
import transformers

from albert.checkpoints.model_directory import save_model_directory
from albert.finetuning.data import prepare_split, read_examples
from albert.finetuning.evaluation import evaluate_directory
from albert.finetuning.model import RandomEncoder, head_description, start_model
from albert.finetuning.objective import task_loss
from albert.finetuning.run import task_batches
from albert.finetuning.run_record import FinetuningSettings
from albert.inference.predictor import Predictor
from albert.runtime.errors import DamagedData, InvalidConfiguration
from albert.tasks.features import NOT_JUDGED
from albert.tasks.task import Choice, Labels, Tags

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
    tags = torch.full_like(ids, NOT_JUDGED)
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
