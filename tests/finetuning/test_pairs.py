"""Pairs of texts: each encoded by itself, or both in one sequence, with and without a match embedding."""

import json
import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.finetuning.conftest import PLAIN_WORDS

import albert
from albert.cli.main import run
from albert.finetuning.fill_in import choose_pairs
from albert.finetuning.initial_model import RandomEncoder, beginning_of
from albert.model.albert import AlbertForPairClassification, AlbertModel
from albert.model.packing import pack, split_segments, tokens_in_other_segment
from albert.recipes.architecture import EncoderConfig
from albert.runtime.json_files import read_json_object
from albert.tasks.submission import DECLARED

LONG = ["steps=90", "batch_size=16", "learning_rate=3e-3", "max_length=32", "--device", "cpu"]
SHORT = ["steps=3", "batch_size=4", "max_length=32", "--device", "cpu"]


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """Pairs of lists of words: the same words in another order, or none in common."""
    folder, draw = tmp_path_factory.mktemp("pairs"), random.Random(0)
    for name, rows in (("train", 320), ("dev", 100)):
        lines = []
        for row in range(rows):
            first = draw.sample(PLAIN_WORDS, 4)
            second = draw.sample(first, 4) if row % 2 else draw.sample([w for w in PLAIN_WORDS if w not in first], 4)
            lines.append({"a": " ".join(first), "b": " ".join(second), "label": "same" if row % 2 else "other"})
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


@pytest.fixture(scope="module")
def command(table, pretrained):
    """The arguments of `albert finetune` on these pairs, all but the output."""
    files = ["--train", str(table / "train.jsonl"), "--dev", str(table / "dev.jsonl")]
    return ["finetune", *files, "--text", "a", "--pair", "b", "--label", "label", "--model", str(pretrained)]


@pytest.fixture(scope="module")
def finetuned(command, tmp_path_factory):
    """A run for each way to encode pairs; a model this narrow has a match embedding by default."""
    runs = {how: tmp_path_factory.mktemp("runs") / how for how in ("separately", "together", "matching")}
    keys = {"together": ["encode_pairs=together", "match_embedding=false"], "matching": ["encode_pairs=together"]}
    for how, path in runs.items():
        assert run([*command, "--output", str(path), *LONG, *keys.get(how, ["encode_pairs=separately"])]) == 0
    return runs


def rows_of(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_words_are_matched_by_separate_encoding_or_a_match_embedding(finetuned):
    scores = {how: read_json_object(path / "results.json")["scores"] for how, path in finetuned.items()}
    assert scores["separately"]["accuracy"] >= 85
    assert scores["matching"]["accuracy"] >= 85
    assert scores["together"]["accuracy"] <= 75


def test_head_reads_the_vectors_of_embed(finetuned):
    predictor = albert.load(finetuned["separately"], precision="fp32")
    texts = ["ship storm", "the river and the stone"]
    u, v = predictor.embed(texts)
    head = predictor.network.classifier
    weight, bias = head.weight.detach().numpy(), head.bias.detach().numpy()
    logits = weight @ np.concatenate([u, v, abs(u - v), u * v]) + bias
    expected = dict(zip(predictor.labels, np.exp(logits) / np.exp(logits).sum(), strict=True))
    assert {row["label"]: row["score"] for row in predictor.classify(*texts)} == pytest.approx(expected, abs=1e-5)


def test_match_embedding_is_added_to_tokens_of_the_other_segment(config):
    model = AlbertModel(config.with_match_embedding()).eval()
    packed = pack([np.array([2, 10, 11, 3, 11, 10, 12, 3]), np.array([2, 13, 3])], [np.arange(8) > 3, np.zeros(3)])
    is_match = [False, True, True, True, True, True, False, True, False, False, False]
    assert tokens_in_other_segment(packed).tolist() == is_match
    embeddings = model.embeddings
    with torch.inference_mode():
        marked = embeddings(packed)
        embeddings.match_embedding = False
        plain = embeddings(packed)
        assert (marked != plain).any(dim=1).tolist() == is_match
        embeddings.match_embedding = True
        embeddings.token_type_embeddings.weight[-1] = 0
        assert torch.equal(embeddings(packed), plain)


@pytest.mark.parametrize("how", ["separately", "matching"])
def test_saved_model_predicts_as_it_was_scored(how, finetuned, table, tmp_path):
    path, dev = finetuned[how], rows_of(table / "dev.jsonl")
    predictor = albert.load(path, precision="fp32")
    ranked = predictor.classify_batch([row["a"] for row in dev], [row["b"] for row in dev])
    for labels, entry in zip(ranked, rows_of(path / "predictions-dev.jsonl"), strict=True):
        assert {row["label"]: row["score"] for row in labels} == pytest.approx(entry["probabilities"], abs=1e-5)
    scores = tmp_path / "scores.json"
    assert run(["evaluate", "--model", str(path), "--results", str(scores), "--precision", "fp32"]) == 0
    assert read_json_object(scores)["scores"] == pytest.approx(read_json_object(path / "results.json")["scores"])
    if how == "separately":
        return
    for export in (["export", "onnx"], ["quantize"]):  # both compare their outputs with the model's
        assert run([*export, str(path / "model"), "--output", str(tmp_path / export[0])]) == 0
    int8 = albert.load(tmp_path / "quantize", precision="fp32").classify(dev[0]["a"], dev[0]["b"])[0]
    assert int8["score"] == pytest.approx(ranked[0][0]["score"], abs=0.1)


def test_a_text_without_its_pair_is_refused(finetuned, table, tmp_path, refused, capsys):
    predict = ["predict", str(finetuned["matching"])]
    why = "--pair: the model was trained on pairs of texts; give the second text"
    assert why in refused([*predict, "--classify", "ship"], 2, "--pair")
    assert run([*predict, "--classify", "ship", "--pair", "storm"]) == 0
    for columns in ([], ["--text", "a"], ["--text", "a", "--pair", "b"]):  # the task has the columns, too
        assert run([*predict, "--input", str(table / "dev.jsonl"), *columns]) == 0
    alone = tmp_path / "alone.csv"
    alone.write_text("a\nship\n")
    assert "--pair" in refused([*predict, "--input", str(alone)], 65, "'b'")


def test_transformers_refuses_a_match_embedding(finetuned):
    transformers = pytest.importorskip("transformers")
    folder = finetuned["matching"] / "model"
    assert read_json_object(folder / "config.json")["model_type"] == "albert_match"
    assert "transformers does not" in (folder / "README.md").read_text()
    for opener in (transformers.AutoModel, transformers.AlbertForSequenceClassification):
        with pytest.raises(ValueError, match="albert_match|match_embedding"):
            opener.from_pretrained(folder)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("sst-2 match_embedding=true", "needs two texts in one sequence"),
        ("sts-b match_embedding=true encode_pairs=separately", "needs two texts in one sequence"),
        ("sts-b match_embedding=false encode_pairs=together --model MATCHING", "cannot be removed"),
    ],
)
def test_match_embedding_where_it_cannot_be(flags, message, data, finetuned, pretrained, tmp_path, capsys):
    task, *flags = flags.replace("MATCHING", str(finetuned["matching"])).split()
    model = [] if "--model" in flags else ["--model", str(pretrained)]
    folder = data / ("choice" if task == "sst-2" else "score")
    assert (
        run(["finetune", task, "--data", str(folder), *model, "--output", str(tmp_path / "no"), *flags, *SHORT]) == 78
    )
    assert message in capsys.readouterr().err
    assert not (tmp_path / "no").exists()


def test_transformers_opens_the_encoder(finetuned):
    transformers = pytest.importorskip("transformers")
    folder = finetuned["separately"] / "model"
    assert read_json_object(folder / "config.json")["architectures"] == ["AlbertForPairClassification"]
    card = (folder / "README.md").read_text()
    assert "library_name: albert" in card
    assert "it opens the encoder alone" in card
    model, report = transformers.AutoModel.from_pretrained(folder, output_loading_info=True)
    assert type(model).__name__ == "AlbertModel"
    assert {name.split(".")[0] for name in report["missing_keys"]} == {"pooler"}


def test_exports(finetuned, tmp_path, capsys):
    path = str(finetuned["separately"] / "model")
    assert run(["export", "sentence-transformers", path, "--output", str(tmp_path / "vectors")]) == 0
    assert run(["quantize", path, "--output", str(tmp_path / "int8")]) == 0
    int8, fp32 = (
        albert.load(model, precision="fp32").classify("ship storm", "storm ship")[0]
        for model in (tmp_path / "int8", path)
    )
    assert int8["label"] == fp32["label"] and int8["score"] == pytest.approx(fp32["score"], abs=0.1)
    assert albert.load(tmp_path / "vectors").embed(["ship"]).shape == (1, 32)
    assert run(["export", "onnx", path, "--output", str(tmp_path / "onnx")]) == 78
    assert "encodes the texts of a pair separately" in capsys.readouterr().err
    assert not (tmp_path / "onnx").exists()


@pytest.mark.parametrize("flags", ["freeze_encoder=true", "--teacher TEACHER", "select=best evaluate_every=2"])
def test_combination_with_other_options(flags, finetuned, command, tmp_path):
    flags = flags.replace("TEACHER", str(finetuned["together"])).split()
    output = tmp_path / "run"
    assert run([*command, "--output", str(output), *SHORT, *flags, "encode_pairs=separately"]) == 0
    assert read_json_object(output / "model/config.json")["architectures"] == ["AlbertForPairClassification"]


def test_regression_on_pairs(data, pretrained, tmp_path):
    command = ["finetune", "sts-b", "--data", str(data / "score"), *SHORT, "encode_pairs=separately", "--model"]
    assert run([*command, str(pretrained), "--output", str(tmp_path / "run")]) == 0
    predictor = albert.load(tmp_path / "run", precision="fp32")
    first = rows_of(tmp_path / "run/predictions-dev.jsonl")[0]
    score = predictor.score("the ship saw the ship", "the ship")
    assert score == pytest.approx(first["prediction"], abs=1e-4)
    assert run([*command, str(tmp_path / "run"), "keep_head=true", "--output", str(tmp_path / "again")]) == 0


def test_defaults_and_a_resumed_run_keeps_its_encoding(finetuned, command, start, capsys):
    task, single, squad, race = (DECLARED[name] for name in ("mrpc", "sst-2", "squad-1.1", "race"))
    wide = RandomEncoder(replace(EncoderConfig(), vocab_size=400), Path(start.model))

    def recorded(pairs, matching):
        return {"encode_pairs": pairs, "match_embedding": matching}

    for *arguments, encoding, matching in (
        (task, start, None, None, None, "together", True),
        (task, start, None, False, None, "together", False),
        (task, start, "separately", None, None, "separately", False),
        (squad, start, None, None, None, "together", True),
        (race, start, None, None, None, "together", True),
        (single, start, None, None, None, "together", False),
        (task, wide, None, None, None, "together", False),
        (task, wide, None, True, None, "together", True),
        (task, start, None, None, recorded("together", False), "together", False),
        (task, start, None, None, recorded("separately", False), "separately", False),
        (task, start, None, None, recorded("together", True), "together", True),
    ):
        task_, start_, pairs, match, record = arguments
        assert choose_pairs(task_, beginning_of(start_), pairs, match, record) == (encoding, matching)
    for path in finetuned.values():  # without either option: the same run, and complete
        assert run([*command, *LONG, "--output", str(path)]) == 0
    assert run([*command, *LONG, "--output", str(finetuned["together"]), "encode_pairs=separately"]) != 0
    assert "another" in capsys.readouterr().err


def test_packing_with_and_without_groups_gives_the_same_logits(config):
    model = AlbertForPairClassification(replace(config, initializer_range=0.2), 3).eval()
    draws, lengths = np.random.default_rng(0), (40, 5, 17, 16)
    ids = [draws.integers(5, 300, n) for n in lengths]
    packed = pack(ids, [(np.arange(n) >= n // 3).astype(np.int64) for n in lengths])
    ungrouped = packed.without_groups(torch.device("cpu"))  # as on a GPU
    with torch.inference_mode():
        torch.testing.assert_close(model(ungrouped), model(packed), atol=1e-5, rtol=1e-5)
    assert not split_segments(ungrouped).has_groups
