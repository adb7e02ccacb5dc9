"""`albert evaluate` says what is doubtful about a model, scores no random head, and sets what weights do not show."""

import csv
import io
import json
import logging
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

import albert
from albert.checkpoints.model_directory import open_model, write_model
from albert.cli.main import run
from albert.model.albert import AlbertForPreTraining

DEV = ["evaluate", "--text", "review", "--label", "stars", "--device", "cpu"]


@pytest.fixture
def changed(scene, tmp_path: Path) -> Callable[..., Path]:
    """A copy of a model of the scene without its manifest, with other keys in its configuration."""

    def change(model: Path, **keys: object) -> Path:
        path = tmp_path / "changed"
        shutil.copytree(model, path)
        (path / "MANIFEST.json").unlink()
        content = json.loads((path / "config.json").read_text()) | keys
        (path / "config.json").write_text(json.dumps(content))
        return path

    return change


@pytest.mark.parametrize("door", ["predict", "evaluate", "pretraining", "python"])
def test_a_model_without_a_manifest_is_said_once(scene, changed, door, monkeypatch, capsys):
    monkeypatch.setattr(logging.getLogger(), "handlers", [])  # pytest's own: logging then writes to standard error
    model = str(changed(scene.pretrained if door == "pretraining" else scene.classifier))
    dev = str(scene.tables / "dev.csv")
    for _ in range(2):
        match door:
            case "predict":
                assert run(["predict", model, "--classify", "It was good"]) == 0
            case "evaluate":
                assert run([*DEV, "--dev", dev, "--model", model]) == 0
            case "pretraining":
                assert run(["evaluate", "pretraining", "--data", str(scene.corpus), "--model", model]) == 0
            case "python":
                albert.load(model)
    said = [line for line in capsys.readouterr().err.splitlines() if "unverified" in line]
    assert said == [
        f"albert: note: {model}/model.safetensors: unverified: there is no MANIFEST.json to check it against"
    ]
    albert.load(scene.classifier)
    assert "unverified" not in capsys.readouterr().err


def test_doubts_are_said_and_settings_change_the_scores(scene, changed, tmp_path, capsys):
    model = changed(scene.classifier, hidden_act="gelu", net_structure_type=0)
    probabilities = []
    for flags in ([], ["--hidden-act", "gelu_new", "--num-attention-heads", "4"]):
        out = tmp_path / f"predictions-{len(flags)}.jsonl"
        dev = ["--dev", str(scene.tables / "dev.csv"), "--precision", "fp32"]
        command = [*DEV, *dev, "--model", str(model), "--predictions", str(out), *flags]
        assert run(command) == 0
        assert ("Google trained with the tanh form" in capsys.readouterr().out) == (not flags)
        probabilities.append([json.loads(line)["probabilities"] for line in out.read_text().splitlines()])
    assert probabilities[0] != probabilities[1]


def test_doubts_are_said_before_the_figures_of_pre_training(scene, changed, capsys):
    model = changed(scene.pretrained, hidden_act="gelu", down_scale_factor=1)
    command = ["evaluate", "pretraining", "--model", str(model), "--data", str(scene.corpus), "--sequences", "4"]
    for flags in ([], ["--hidden-act", "gelu_new"]):
        assert run([*command, "--device", "cpu", *flags]) == 0
        assert ("Google trained with the tanh form" in capsys.readouterr().out) == (not flags)
    assert run([*command, "--device", "cpu", "--num-attention-heads", "5"]) == 78
    assert "5 heads do not divide" in capsys.readouterr().err


@pytest.fixture
def learnt(scene, tmp_path: Path) -> Callable[[str], Path]:
    """The model of the scene as one whose sentence head learnt an objective."""

    def write(objective: str) -> Path:
        model = open_model(scene.pretrained, "pretraining").model
        assert isinstance(model, AlbertForPreTraining)
        (tmp_path / objective).mkdir()
        write_model(tmp_path / objective, model, scene.tokenizer, extra={"sentence_objective": objective})
        return tmp_path / objective

    return write


def asked(scene, *models: Path) -> list[str]:
    names = [str(model) for model in models]
    words = ["evaluate", "pretraining", "--data", str(scene.corpus), "--sequences", "40", "--device", "cpu"]
    return [*words, "--model", *names]


def test_what_models_know_of_all_tasks_is_one_table(scene, learnt, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "200")
    assert run(asked(scene, scene.run, learnt("nsp"), learnt("none"))) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[0].split() == ["right,", "%", "head", "learnt", "MLM", "NSP", "SOP", "loss"]
    rows = {line.split()[0]: line.split()[1:] for line in said[2:] if line[:1] == "/"}
    assert [row[0] for row in rows.values()] == ["sop", "nsp", "none"]
    numbers = {name: [cell != "-" for cell in row[1:]] for name, row in rows.items()}
    assert [all(cells) for cells in numbers.values()] == [True, True, False]
    assert list(numbers.values())[2] == [True, False, False, True]
    assert any(line.startswith("a constant answer") for line in said)
    assert "no sentence head; the paper's 52.4 (NSP) and 53.3 (SOP)" in said[-1]


def test_the_figures_for_programs_are_those_of_the_table(scene, learnt, tmp_path, capsys):
    command = [*asked(scene, scene.pretrained, learnt("none")), "--results", str(tmp_path / "figures.json")]
    assert run([*command, "--json"]) == 0
    figures = json.loads(capsys.readouterr().out)
    assert json.loads((tmp_path / "figures.json").read_text()) == {"task": "pretraining", **figures}
    assert run([*asked(scene, scene.pretrained, tmp_path / "none"), "--csv"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [(row["sentence_objective"], row["test"]) for row in rows] == [
        (objective, test)
        for objective in ("sop", "none")
        for test in ("masked_tokens", "next_sentence", "sentence_order")
    ]
    for row in rows:
        scores = next(one for one in figures["models"] if one["model"] == row["model"])["scores"]
        for name in ("accuracy", "low", "high", "baseline", "loss"):
            assert row[name] == str(scores.get(row["test"], {}).get(name, ""))
        assert int(row["sequences"]) == figures["sequences"] and int(row["count"]) > 0


def test_masked_tokens_alone_are_asked_where_nothing_else_is_wanted(scene, capsys):
    assert run([*asked(scene, scene.pretrained), "--objective", "none"]) == 0
    said = capsys.readouterr().out
    assert "MLM" in said and "NSP" not in said and "SOP" not in said


def test_where_nothing_can_be_asked_it_is_said(scene, capsys):
    assert run([*asked(scene, scene.pretrained), "--max-length", "8"]) == 0
    assert "none of these sequences has two segments" in capsys.readouterr().out


def test_a_model_of_another_tokenizer_is_refused_by_its_name(scene, changed, tmp_path, capsys):
    foreign = tmp_path / "foreign"
    model = open_model(scene.pretrained, "pretraining").model
    foreign.mkdir()
    write_model(foreign, model, scene.other_corpus)
    assert run(asked(scene, scene.pretrained, foreign)) == 78
    said = capsys.readouterr()
    assert f"{foreign}: has tokenizer" in said.err and not said.out


def test_masks_are_those_that_are_asked_for_and_the_same_for_any_model(scene, changed, capsys):
    """--max-ngram 1 gives the figures of a card; which tokens are masked does not depend on the model."""
    other = changed(scene.pretrained)
    held = load_file(other / "model.safetensors")
    held["albert.pooler.bias"] += 1
    held["albert.embeddings.word_embeddings.weight"] *= 0.9
    save_file(held, other / "model.safetensors")
    found = {}
    for ngram in (1, 3):
        flags = ["--max-ngram", str(ngram), "--max-length", "24", "--json"]
        alone = [run([*asked(scene, model), *flags]) or json.loads(capsys.readouterr().out) for model in (other,)]
        assert run([*asked(scene, scene.pretrained, other), *flags]) == 0
        found[ngram] = json.loads(capsys.readouterr().out)
        assert found[ngram]["max_ngram"] == ngram and alone[0]["models"] == found[ngram]["models"][1:]
        scores = [one["scores"]["masked_tokens"] for one in found[ngram]["models"]]
        assert scores[0]["baseline"] == scores[1]["baseline"] and scores[0]["loss"] != scores[1]["loss"]
    assert found[1]["models"][0]["scores"]["masked_tokens"] != found[3]["models"][0]["scores"]["masked_tokens"]
    assert run([*asked(scene, scene.pretrained), "--max-ngram", "1"]) == 0
    assert "single words masked" in capsys.readouterr().out


def test_a_classifier_on_a_random_pooler_is_not_scored(scene, changed, capsys):
    model = changed(scene.classifier)
    held = load_file(model / "model.safetensors")
    for name in ("albert.pooler.weight", "albert.pooler.bias"):
        del held[name]
    save_file(held, model / "model.safetensors")
    assert run([*DEV, "--dev", str(scene.tables / "dev.csv"), "--model", str(model)]) == 78
    refusal = capsys.readouterr().err
    assert "has no head for this task (albert.pooler.weight, albert.pooler.bias would be random)" in refusal
    assert run(["predict", str(model), "--classify", "a"]) == 78
    assert "has no trained head to classify texts" in capsys.readouterr().err


def test_a_foreign_tokenizer_is_not_scored(scene, changed, capsys):
    model = changed(scene.classifier, tokenizer_fingerprint="pieces-0")
    assert run([*DEV, "--dev", str(scene.tables / "dev.csv"), "--model", str(model)]) == 65
    assert "the model was trained with pieces-0" in capsys.readouterr().err
