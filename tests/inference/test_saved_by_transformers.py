"""A model that transformers saved again gives the same predictions, and fine-tuning starts from it."""

import json

import pytest
import torch
import transformers

import albert

FINGERPRINT_KEY = "tokenizer_fingerprint"
TEXT = "The ``old'' café – [MASK] saw £3.50 in 2010, didn't it?"


def open_exactly(path):
    return albert.load(path, precision="fp32")


def save_again(kind, path, output):
    """Open a directory with transformers and save it."""
    kind.from_pretrained(path).save_pretrained(output)
    transformers.AutoTokenizer.from_pretrained(path).save_pretrained(output)
    return output


def edit_json(path, change):
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))


@pytest.fixture
def ours(saved, config):
    return saved("pretraining", sentence_objective="sop")


@pytest.fixture
def theirs(ours, tmp_path):
    path = save_again(transformers.AlbertForPreTraining, ours, tmp_path / "theirs")
    assert not (path / "spiece.model").exists()
    assert json.loads((path / "config.json").read_text())[FINGERPRINT_KEY]
    return path


def test_predictions_are_the_same(ours, theirs, saved, tmp_path):
    before, after = open_exactly(ours), open_exactly(theirs)
    assert after.fill_mask(TEXT) == before.fill_mask(TEXT)
    assert after.order("The cat saw.", "A dog!") == before.order("The cat saw.", "A dog!")
    assert after.tokenizer.fingerprint == before.tokenizer.fingerprint
    torch.manual_seed(3)
    classifier = saved("classification", 3)
    again = save_again(transformers.AlbertForSequenceClassification, classifier, tmp_path / "classifier")
    assert open_exactly(again).classify("A dog", "a cat") == open_exactly(classifier).classify("A dog", "a cat")


def test_head_that_the_weights_lack_is_no_ability(ours, tmp_path):
    masked = open_exactly(save_again(transformers.AlbertForMaskedLM, ours, tmp_path / "masked"))
    assert masked.abilities == ("fill masks",)
    assert masked.fill_mask(TEXT) == open_exactly(ours).fill_mask(TEXT)


def test_fine_tuning_starts_from_it_and_saves_a_complete_directory(theirs, tmp_path):
    rows = "".join(f"film {number} was {word},{word}\n" for number, word in enumerate(("good", "bad") * 8))
    (tmp_path / "films.csv").write_text("text,label\n" + rows)
    path = tmp_path / "run" / "model"
    albert.finetune(train=tmp_path / "films.csv", model=theirs, steps=1, device="cpu", output=tmp_path / "run")
    assert (path / "spiece.model").is_file()
    fingerprint = json.loads((path / "config.json").read_text())[FINGERPRINT_KEY]
    assert fingerprint == albert.tokenizer.load(theirs).fingerprint == albert.tokenizer.load(path).fingerprint
    assert open_exactly(path).classify("The cat saw it.")
    for word in ("cat", "café", "2010,"):
        ids = transformers.AutoTokenizer.from_pretrained(path)(word, add_special_tokens=False)["input_ids"]
        assert ids == albert.tokenizer.load(theirs).encode(word)


def test_a_changed_vocabulary_is_refused(theirs, refused):
    def change(content):
        content["model"]["vocab"][100][1] -= 0.5

    edit_json(theirs / "tokenizer.json", change)
    refused(lambda: open_exactly(theirs), 65, "tokenizer.json", "fingerprint")
