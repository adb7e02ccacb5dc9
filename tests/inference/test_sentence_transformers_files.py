"""The files for sentence-transformers say how vectors are computed; the directory is still a model directory."""

import json

import numpy as np
import pytest
import transformers
from safetensors.torch import load_file

import albert
from albert.checkpoints.model_directory import save_model_directory
from albert.cli.main import run
from albert.model.albert import AlbertForMaskedLM

EXPORT = ["export", "sentence-transformers"]


def read(path):
    return json.loads(path.read_text())


def test_modules_and_their_settings(saved, config, tmp_path, refused):
    model = saved("classification", 2, max_sequence_length=48)
    (model / "MANIFEST.json").unlink()
    (model / "checkpoint-5").mkdir()  # of transformers' Trainer
    (model / "checkpoint-5" / "optimizer.pt").write_bytes(b"pickle")
    output = tmp_path / "vectors"
    assert run([*EXPORT, str(model), "--output", str(output), "--pooling", "cls", "--normalize"]) == 0
    assert run(["info", str(output), "--verify"]) == 0
    modules = read(output / "modules.json")
    assert [(module["idx"], module["path"], module["type"].split(".")[-1]) for module in modules] == [
        (0, "", "Transformer"),
        (1, "1_Pooling", "Pooling"),
        (2, "2_Normalize", "Normalize"),
    ]
    assert all((output / module["path"]).is_dir() for module in modules)
    pooling = read(output / "1_Pooling" / "config.json")
    assert pooling.pop("word_embedding_dimension") == config.hidden_size
    assert [mode for mode, chosen in pooling.items() if chosen] == ["pooling_mode_cls_token", "include_prompt"]
    assert read(output / "sentence_bert_config.json")["max_seq_length"] == 48
    assert not (output / "checkpoint-5").exists()
    transformers.AutoModel.from_pretrained(output)
    texts = ["The cat saw the dog.", "A letter"]
    actual = albert.load(output, precision="fp32").embed(texts)
    expected = albert.load(model, precision="fp32").embed(texts, "cls", normalize=True)
    np.testing.assert_array_equal(actual, expected)
    refused([*EXPORT, model, "--output", output], 73, output)
    assert run([*EXPORT, str(output), "--output", str(tmp_path / "same")]) == 0
    assert read(tmp_path / "same" / "1_Pooling" / "config.json")["pooling_mode_cls_token"]
    assert len(read(tmp_path / "same" / "modules.json")) == 3
    again = ["--output", str(tmp_path / "again"), "--pooling", "mean", "--normalize=false"]
    assert run([*EXPORT, str(output), *again]) == 0
    assert read(tmp_path / "again" / "1_Pooling" / "config.json")["pooling_mode_mean_tokens"]
    assert len(read(tmp_path / "again" / "modules.json")) == 2


def test_command_prints_dimension_and_maximum_length(saved, config, tmp_path, capsys):
    model, output = saved("pretraining", max_sequence_length=32), tmp_path / "vectors"
    assert run([*EXPORT, str(model), "--output", str(output), "--normalize"]) == 0
    shown = capsys.readouterr().out
    assert f"{config.hidden_size} numbers, the mean over all tokens, of length 1" in shown
    assert "at most 32 tokens" in shown and "SentenceTransformer(" in shown


def test_models_that_sentence_transformers_cannot_open_are_refused(saved, config, tmp_path, refused):
    assert run(["quantize", str(saved("pretraining")), "--output", str(tmp_path / "int8")]) == 0
    matching = saved("pretraining", config=config.with_match_embedding())
    for model, why in ((tmp_path / "int8", "integers"), (matching, "match embedding")):
        refused([*EXPORT, model, "--output", tmp_path / "vectors"], 78, model, why)
    assert not (tmp_path / "vectors").exists()


def test_example_rows_stay_with_the_model(config, tokenizer_directory, tmp_path):
    """The page of `albert serve` shows them; sentence-transformers does not read them."""
    model = tmp_path / "model"
    save_model_directory(model, AlbertForMaskedLM(config), tokenizer_directory, examples=[{"text": "A row of mine."}])
    assert run([*EXPORT, str(model), "--output", str(tmp_path / "vectors")]) == 0
    assert (model / "examples.json").exists() and not (tmp_path / "vectors/examples.json").exists()


@pytest.mark.parametrize("kind", ["classification", "question_answering", "token_classification", "pretraining"])
def test_the_head_stays_behind(kind, saved, tmp_path):
    model, output = saved(kind, None if kind in ("question_answering", "pretraining") else 3), tmp_path / "vectors"
    assert run([*EXPORT, str(model), "--output", str(output)]) == 0
    with_head = set(load_file(model / "model.safetensors"))
    names = set(load_file(output / "model.safetensors"))
    assert names < with_head and all(name.startswith("albert.") for name in names)
    config = read(output / "config.json")
    assert config["architectures"] == ["AlbertModel"] and "id2label" not in config
    _, told = transformers.AlbertModel.from_pretrained(output, output_loading_info=True)
    assert not told["unexpected_keys"] and not told["mismatched_keys"]
    assert all(name.startswith("pooler.") for name in told["missing_keys"])  # which has no part in vectors
    texts = ["The cat saw the dog.", "A letter"]
    np.testing.assert_array_equal(albert.load(output).embed(texts), albert.load(model).embed(texts))
