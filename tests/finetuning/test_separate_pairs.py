"""Pairs of which each text is read by itself (`--encode-pairs separately`): what they learn, and what opens them."""

import json
import random
import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file
from tests.finetuning.conftest import PLAIN_WORDS

import albert
from albert.cli.main import dispatch, run
from albert.finetuning.model import PretrainedEncoder, RandomEncoder, choose_pair_encoding
from albert.model.albert import AlbertForPairClassification
from albert.model.config import AlbertConfig
from albert.model.packing import pack, split_segments
from albert.tasks.submission import DECLARED

LEARN = ["--steps", "120", "--batch-size", "16", "--learning-rate", "3e-3", "--max-length", "32", "--device", "cpu"]
SHORT = ["--steps", "3", "--batch-size", "4", "--max-length", "32", "--device", "cpu"]
COLUMNS = ["--text", "a", "--pair", "b", "--label", "label"]


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
def finetuned(table, pretrained, tmp_path_factory):
    """A run of `albert finetune` on them, for each way to read pairs."""
    files = ["--train", str(table / "train.jsonl"), "--dev", str(table / "dev.jsonl"), *COLUMNS]
    runs = {}
    for how in ("separately", "together"):
        runs[how] = tmp_path_factory.mktemp("runs") / how
        command = ["finetune", *files, "--model", str(pretrained), "--output", str(runs[how]), "--encode-pairs", how]
        assert dispatch([*command, *LEARN]) == 0
    return runs


def rows_of(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_words_are_matched_where_one_sequence_of_both_texts_does_not(finetuned):
    scores = {how: json.loads((path / "results.json").read_text())["scores"] for how, path in finetuned.items()}
    assert scores["separately"]["accuracy"] >= 85
    assert scores["together"]["accuracy"] <= 75


def test_the_saved_model_answers_as_it_was_scored(finetuned, table, tmp_path, capsys):
    path, dev = finetuned["separately"], rows_of(table / "dev.jsonl")
    predictor = albert.load(path, precision="fp32")
    ranked = predictor.classify_batch([row["a"] for row in dev], [row["b"] for row in dev])
    said = [{each["label"]: each["score"] for each in labels} for labels in ranked]
    for mine, kept in zip(said, rows_of(path / "predictions-dev.jsonl"), strict=True):
        assert mine == pytest.approx(kept["probabilities"], abs=1e-5)
    scores = tmp_path / "scores.json"
    assert dispatch(["evaluate", "--model", str(path), "--results", str(scores), "--precision", "fp32"]) == 0
    report = json.loads((path / "results.json").read_text())
    assert json.loads(scores.read_text())["scores"] == pytest.approx(report["scores"])


def test_a_head_of_an_earlier_version_gives_what_it_gave(finetuned, tmp_path):
    """It read the vectors of `embed` alone, no states of shared tokens."""
    shutil.copytree(finetuned["separately"] / "model", tmp_path / "model")
    (tmp_path / "model" / "MANIFEST.json").unlink()
    tensors = load_file(tmp_path / "model" / "model.safetensors")
    weight, bias = tensors["pair_classifier.weight"], tensors["pair_classifier.bias"]
    tensors["pair_classifier.weight"] = weight[:, : 4 * weight.shape[1] // 6].copy()
    save_file(tensors, tmp_path / "model" / "model.safetensors")
    predictor = albert.load(tmp_path / "model", precision="fp32")
    texts = ["ship storm", "the river and the ship"]
    u, v = predictor.embed(texts)
    logits = tensors["pair_classifier.weight"] @ np.concatenate([u, v, abs(u - v), u * v]) + bias
    wanted = dict(zip(predictor.labels, np.exp(logits) / np.exp(logits).sum(), strict=True))
    assert {each["label"]: each["score"] for each in predictor.classify(*texts)} == pytest.approx(wanted, abs=1e-5)


def test_the_head_reads_means_and_the_states_of_shared_tokens(config):
    model = AlbertForPairClassification(replace(config, initializer_range=0.2), 3).eval()
    first, second = [2, 10, 11, 12, 3], [13, 11, 3]
    packed = pack([np.array([*first, *second])], [np.array([0] * len(first) + [1] * len(second))])
    with torch.inference_mode():
        states = model.albert(split_segments(packed))
        a, b = states[:5], states[5:]
        shared = a[[0, 2, 4]].sum(0) / 5, b[[0, 2, 3]].sum(0) / 4  # [CLS], 11 and [SEP]
        u, v = a.mean(0), b.mean(0)
        wanted = model.classifier(torch.cat([u, v, (u - v).abs(), u * v, *shared]))
        torch.testing.assert_close(model(packed)[0], wanted)


def test_transformers_is_told_and_opens_the_encoder(finetuned):
    transformers = pytest.importorskip("transformers")
    folder = finetuned["separately"] / "model"
    assert json.loads((folder / "config.json").read_text())["architectures"] == ["AlbertForPairClassification"]
    card = (folder / "README.md").read_text()
    assert "library_name: albert" in card
    assert "transformers opens the encoder alone" in card
    model, report = transformers.AutoModel.from_pretrained(folder, output_loading_info=True)
    assert type(model).__name__ == "AlbertModel"
    assert {name.split(".")[0] for name in report["missing_keys"]} == {"pooler"}


def test_what_else_is_made_of_such_a_model(finetuned, tmp_path, capsys):
    path = str(finetuned["separately"] / "model")
    assert dispatch(["export", "sentence-transformers", path, "--output", str(tmp_path / "vectors")]) == 0
    assert dispatch(["quantize", path, "--output", str(tmp_path / "int8")]) == 0
    int8, fp32 = (albert.load(each, precision="fp32") for each in (tmp_path / "int8", path))
    labels = [each.classify("ship storm", "storm ship")[0] for each in (int8, fp32)]
    assert labels[0]["label"] == labels[1]["label"]
    assert labels[0]["score"] == pytest.approx(labels[1]["score"], abs=0.1)
    assert albert.load(tmp_path / "vectors").embed(["ship"]).shape == (1, 32)
    assert run(["export", "onnx", path, "--output", str(tmp_path / "onnx")]) == 78
    assert "encodes the texts of a pair separately" in capsys.readouterr().err
    assert not (tmp_path / "onnx").exists()


def test_both_doors_write_the_same_model(table, pretrained, tmp_path):
    rows = {"train": table / "train.jsonl", "dev": table / "dev.jsonl"}
    files = [word for name, path in rows.items() for word in (f"--{name}", str(path))]
    command = ["finetune", *files, *COLUMNS, "--model", str(pretrained), "--output", str(tmp_path / "command")]
    assert dispatch([*command, *SHORT, "--encode-pairs", "separately"]) == 0
    columns = {"text": "a", "pair": "b", "label": "label"}
    short = {"steps": 3, "batch_size": 4, "max_length": 32, "device": "cpu"}
    albert.finetune(**rows, **columns, **short, model=pretrained, output=tmp_path / "python", encode_pairs="separately")
    weights = [(tmp_path / door / "model/model.safetensors").read_bytes() for door in ("command", "python")]
    assert weights[0] == weights[1]


@pytest.mark.parametrize("more", [["--freeze-encoder"], ["--teacher"], ["--select", "best", "--evaluate-every", "2"]])
def test_it_goes_with_other_ways_to_learn(more, finetuned, table, pretrained, tmp_path):
    more = [*more, str(finetuned["together"])] if more == ["--teacher"] else more
    files = ["--train", str(table / "train.jsonl"), "--dev", str(table / "dev.jsonl"), *COLUMNS]
    command = ["finetune", *files, "--model", str(pretrained), "--output", str(tmp_path / "run"), *SHORT, *more]
    assert dispatch([*command, "--encode-pairs", "separately"]) == 0
    config = json.loads((tmp_path / "run/model/config.json").read_text())
    assert config["architectures"] == ["AlbertForPairClassification"]


def test_a_number_of_a_pair_in_its_own_unit(data, pretrained, tmp_path):
    command = ["finetune", "sts-b", "--model", str(pretrained), "--data", str(data / "score")]
    assert dispatch([*command, "--output", str(tmp_path / "run"), *SHORT]) == 0  # separately, as the model is narrow
    predictor = albert.load(tmp_path / "run", precision="fp32")
    kept = rows_of(tmp_path / "run/predictions-dev.jsonl")
    score = predictor.score("the ship saw the ship", "the ship")
    assert score == pytest.approx(kept[0]["prediction"], abs=1e-4)
    again = [*command, "--keep-head", "--output", str(tmp_path / "again"), *SHORT]
    again[again.index(str(pretrained))] = str(tmp_path / "run")
    assert dispatch(again) == 0


def test_the_default_is_by_width_and_a_run_goes_on_as_it_began(finetuned, table, pretrained, config, tmp_path, capsys):
    task, single = DECLARED["mrpc"], DECLARED["sst-2"]
    narrow = PretrainedEncoder(str(pretrained))
    wide = RandomEncoder(replace(AlbertConfig(), vocab_size=400), pretrained)
    assert choose_pair_encoding(task, narrow, None, False, None) == "separately"
    assert choose_pair_encoding(task, wide, None, False, None) == "together"
    assert choose_pair_encoding(task, wide, "separately", False, None) == "separately"
    assert choose_pair_encoding(single, narrow, None, False, None) == "together"
    assert choose_pair_encoding(task, narrow, None, True, None) == "together"
    assert choose_pair_encoding(task, narrow, None, False, {"settings": {}}) == "together"  # of an earlier version
    files = ["--train", str(table / "train.jsonl"), "--dev", str(table / "dev.jsonl"), *COLUMNS]
    command = ["finetune", *files, "--model", str(pretrained), *LEARN, "--output"]
    for path in finetuned.values():  # nothing said: what the folder holds is this very run, and complete
        assert dispatch([*command, str(path)]) == 0
    assert run([*command, str(finetuned["together"]), "--encode-pairs", "separately"]) != 0
    assert "another" in capsys.readouterr().err


def test_what_cannot_be_is_said_on_one_line(finetuned, data, pretrained, tmp_path, capsys):
    output = ["--output", str(tmp_path / "no"), *SHORT]
    model = str(finetuned["separately"])
    score = ["finetune", "sts-b", "--data", str(data / "score"), "--encode-pairs"]
    single = ["finetune", "sst-2", "--data", str(data / "choice"), "--model", str(pretrained)]
    for command, message in (
        ([*single, "--encode-pairs", "separately", *output], "needs pairs of texts, sst-2 has none"),
        ([*score, "separately", "--model", str(pretrained), "--exits", "1", *output], "no exits"),
        ([*score, "together", "--model", model, "--keep-head", *output], "reads pairs separately"),
        (["predict", model, "--classify", "ship"], "this model compares two texts"),
        (["evaluate", "sst-2", "--data", str(data / "choice"), "--model", model], "compares two texts"),
    ):
        assert run(command) in (2, 78), command
        error = capsys.readouterr().err.strip().splitlines()[-1]
        assert message in error
    assert not (tmp_path / "no").exists()


def test_pairs_by_boundaries_as_on_a_gpu_are_those_by_groups(config):
    model = AlbertForPairClassification(replace(config, initializer_range=0.2), 3).eval()
    draws, lengths = np.random.default_rng(0), (40, 5, 17, 16)
    ids = [draws.integers(5, 300, n) for n in lengths]
    packed = pack(ids, [(np.arange(n) >= n // 3).astype(np.int64) for n in lengths])
    with torch.inference_mode():
        by_groups, by_boundaries = (model(each) for each in (packed, packed.without_groups(torch.device("cpu"))))
    torch.testing.assert_close(by_boundaries, by_groups, atol=1e-5, rtol=1e-5)
    assert not split_segments(packed.without_groups(torch.device("cpu"))).has_groups
