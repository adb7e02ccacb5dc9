"""A model of ours that transformers saved again: the same predictions here, and fine-tuning starts from it."""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch
import transformers

from albert.checkpoints.model_directory import FINGERPRINT_KEY, open_model, save_model_directory
from albert.finetuning.model import PretrainedEncoder, start_model
from albert.inference.predictor import Predictor
from albert.model.albert import AlbertForPreTraining, AlbertForSequenceClassification
from albert.model.config import AlbertConfig
from albert.runtime.errors import DamagedData
from albert.tasks.submission import DECLARED
from albert.text.tokenizer import byte_fingerprint
from albert.text.tokenizer_loading import load_tokenizer

Save = Callable[..., Path]
open_exactly = partial(Predictor.open, precision="fp32")
TEXT = "The ``old'' café – [MASK] saw £3.50 in 2010, didn't it?"


@pytest.fixture
def ours(saved: Save, config: AlbertConfig) -> Path:
    return saved(AlbertForPreTraining(config), sentence_objective="sop")


@pytest.fixture
def theirs(ours: Path, tmp_path: Path) -> Path:
    path = tmp_path / "theirs"
    transformers.AlbertForPreTraining.from_pretrained(ours).save_pretrained(path)
    transformers.AutoTokenizer.from_pretrained(ours).save_pretrained(path)
    assert not (path / "spiece.model").exists()
    assert json.loads((path / "config.json").read_text())[FINGERPRINT_KEY]
    return path


def _record(directory: Path, fingerprint: str) -> None:
    path = directory / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {FINGERPRINT_KEY: fingerprint}))


def test_masks_are_filled_as_before(ours: Path, theirs: Path) -> None:
    before, after = open_exactly(ours), open_exactly(theirs)
    assert after.fill_mask(TEXT) == before.fill_mask(TEXT)
    assert after.order("The cat saw.", "A dog!") == before.order("The cat saw.", "A dog!")
    assert after.tokenizer.fingerprint == before.tokenizer.fingerprint


def test_finetuning_starts_from_it_and_saves_a_whole_directory(theirs: Path, tmp_path: Path) -> None:
    task = DECLARED["sst-2"]
    started = start_model(PretrainedEncoder(str(theirs)), task.target, task.recipe, 0)
    assert started.tokenizer_directory == theirs
    path = tmp_path / "fine-tuned"
    save_model_directory(path, started.model, started.tokenizer_directory)
    assert (path / "spiece.model").is_file()
    opened = open_model(path, "classification")
    assert opened.extra[FINGERPRINT_KEY] == load_tokenizer(theirs).fingerprint == load_tokenizer(path).fingerprint
    assert open_exactly(path).classify("The cat saw it.")
    for word in ("cat", "café", "2010,"):
        ids = transformers.AutoTokenizer.from_pretrained(path)(word, add_special_tokens=False)["input_ids"]
        assert ids == started.tokenizer.encode(word)


def test_a_model_with_a_fingerprint_of_before_opens_in_both_forms(ours: Path, theirs: Path) -> None:
    tokenizer = load_tokenizer(ours)
    (ours / "MANIFEST.json").unlink()
    for directory in (ours, theirs):
        _record(directory, byte_fingerprint(tokenizer.model, tokenizer.lower_case, tokenizer.keep_accents))
    assert open_exactly(ours).fill_mask(TEXT) == open_exactly(theirs).fill_mask(TEXT)


def test_a_changed_vocabulary_is_refused_and_named(theirs: Path) -> None:
    path = theirs / "tokenizer.json"
    content = json.loads(path.read_text())
    content["model"]["vocab"][100][1] -= 0.5
    path.write_text(json.dumps(content))
    with pytest.raises(DamagedData, match=r"tokenizer\.json: has fingerprint v2:"):
        open_exactly(theirs)


def test_a_classifier_that_transformers_saved_classifies(saved: Save, config: AlbertConfig, tmp_path: Path) -> None:
    torch.manual_seed(3)
    ours, path = saved(AlbertForSequenceClassification(config, 3)), tmp_path / "theirs"
    transformers.AlbertForSequenceClassification.from_pretrained(ours).save_pretrained(path)
    transformers.AutoTokenizer.from_pretrained(ours).save_pretrained(path)
    assert open_exactly(path).classify("A dog", "a cat") == open_exactly(ours).classify("A dog", "a cat")
