"""What is written for sentence-transformers says what it reads, and still is a model directory."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import transformers

from albert.cli.main import run
from albert.inference.int8 import quantize_directory
from albert.inference.predictor import Predictor, save_for_sentence_transformers
from albert.model.albert import AlbertForPreTraining, AlbertForSequenceClassification
from albert.model.config import AlbertConfig
from albert.runtime.errors import CannotCreate, InvalidConfiguration
from albert.runtime.manifest import verify_directory

Save = Callable[..., Path]


def test_steps_and_their_settings(saved: Save, config: AlbertConfig, tmp_path: Path) -> None:
    model = saved(AlbertForSequenceClassification(config, 2), max_sequence_length=48)
    output = tmp_path / "vectors"
    save_for_sentence_transformers(model, output, "cls", normalize=True)
    verify_directory(output)
    steps = json.loads((output / "modules.json").read_text())
    assert [(step["idx"], step["path"], step["type"].split(".")[-1]) for step in steps] == [
        (0, "", "Transformer"),
        (1, "1_Pooling", "Pooling"),
        (2, "2_Normalize", "Normalize"),
    ]
    assert all((output / step["path"]).is_dir() for step in steps)
    pooling = json.loads((output / "1_Pooling" / "config.json").read_text())
    assert pooling.pop("word_embedding_dimension") == config.hidden_size
    assert [mode for mode, chosen in pooling.items() if chosen] == ["pooling_mode_cls_token", "include_prompt"]
    assert json.loads((output / "sentence_bert_config.json").read_text())["max_seq_length"] == 48
    transformers.AutoModel.from_pretrained(output)
    texts = ["The cat saw the dog.", "A letter"]
    actual, expected = (Predictor.open(path, precision="fp32").embed(texts) for path in (output, model))
    np.testing.assert_array_equal(actual, expected)


def test_what_exists_is_replaced_only_when_told(saved: Save, config: AlbertConfig, tmp_path: Path) -> None:
    model = saved(AlbertForPreTraining(config))
    save_for_sentence_transformers(model, tmp_path / "vectors")
    assert len(json.loads((tmp_path / "vectors" / "modules.json").read_text())) == 2
    with pytest.raises(CannotCreate):
        save_for_sentence_transformers(model, tmp_path / "vectors")
    save_for_sentence_transformers(tmp_path / "vectors", tmp_path / "again", "cls")
    pooling = json.loads((tmp_path / "again" / "1_Pooling" / "config.json").read_text())
    assert pooling["pooling_mode_cls_token"] and not pooling["pooling_mode_mean_tokens"]


def test_the_command_writes_it_and_says_how_to_open_it(saved: Save, config: AlbertConfig, tmp_path: Path, capsys):
    model, output = saved(AlbertForPreTraining(config), max_sequence_length=32), tmp_path / "vectors"
    assert run(["export", "sentence-transformers", str(model), "--output", str(output), "--normalize"]) == 0
    verify_directory(output)
    assert len(json.loads((output / "modules.json").read_text())) == 3
    shown = capsys.readouterr().out
    assert f"{config.hidden_size} numbers, the mean over all tokens, of length 1" in shown
    assert "at most 32 tokens" in shown and "SentenceTransformer(" in shown


def test_what_sentence_transformers_would_not_read_is_refused(saved: Save, config: AlbertConfig, tmp_path: Path):
    quantize_directory(saved(AlbertForPreTraining(config)), tmp_path / "int8")
    windowed = saved(AlbertForPreTraining(replace(config, attention_window=4)))
    for model, why in ((tmp_path / "int8", "integers"), (windowed, "its attention window")):
        with pytest.raises(InvalidConfiguration, match=why):
            save_for_sentence_transformers(model, tmp_path / "vectors")
    assert not (tmp_path / "vectors").exists()
